package bus

import (
	"context"
	"fmt"
	"net/url"
	"strings"

	cenats "github.com/cloudevents/sdk-go/protocol/nats_jetstream/v2"
	"github.com/cloudevents/sdk-go/v2/binding"
	"github.com/nats-io/nats.go"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// contentType is the header and its value that mark a structured event in the NATS protocol binding of CloudEvents.
const (
	contentTypeHeader = "content-type"
	contentType       = "application/cloudevents+json"
	// sourceHeader repeats the event's source, for Consumer.Skip.
	sourceHeader = "Lockstep-Source"
	// sentHeader names the span that sent the message (W3C Trace Context). The trace of the event itself is an attribute of the event.
	sentHeader = "traceparent"
)

// structured is the value of contentTypeHeader, which all messages share: nobody changes it.
//
//nolint:gochecknoglobals // a constant, which Go has no other way to say
var structured = []string{contentType}

// message is o to be sent, structured: attributes may hold any text, which headers cannot carry. The library adds headers of its own to
// what it sends, so each attempt has a message of its own.
func (o outgoing) message() *nats.Msg {
	const headers = 8 // at most
	header := make(nats.Header, headers)
	header[contentTypeHeader] = structured
	header[sourceHeader] = []string{o.Source()}
	header[nats.MsgIdHdr] = []string{o.msgID}
	if sent := o.span.TraceParent(); sent != "" {
		header[sentHeader] = []string{sent}
	}
	return &nats.Msg{Subject: o.Subject(), Header: header, Data: o.JSON()}
}

// decode is the event in a message of either mode. It came on the subject it belongs on: the permissions are on subjects, so an event
// on another one would have got past them. On the subject of external events its type may be any outside of the catalogue; on all
// others it is one of the catalogue. The error is Invalid; the event is whatever could be read.
func decode(ctx context.Context, subject string, header nats.Header, data []byte) (event.Event, error) {
	msg := &nats.Msg{Subject: subject, Header: decoded(header), Data: data}
	e, err := binding.ToEvent(ctx, cenats.NewMessage(msg))
	if err != nil {
		return event.Event{}, fault.New(fault.Invalid, "message on %s is not a CloudEvent: %w", subject, err)
	}
	if err := event.ValidateAny(*e); err != nil {
		return *e, fmt.Errorf("event %s on %s: %w", e.ID(), subject, err)
	}
	want, err := subjectOf(*e, subject)
	if err != nil {
		return *e, fmt.Errorf("event %s on %s: %w", e.ID(), subject, err)
	}
	if want != subject {
		return *e, fault.InvalidFields(fault.Field{
			Name:    "subject",
			Problem: fmt.Sprintf("event %s came on %q, expected %q", e.ID(), subject, want),
		})
	}
	return *e, nil
}

// subjectOf is the subject of an event that arrived on another or the same one.
func subjectOf(e event.Event, arrival string) (string, error) {
	if _, known := event.Lookup(e.Type()); known || !event.IsExternal(arrival) {
		return event.Subject(e)
	}
	organization, err := event.Organization(e)
	if err == nil && organization == 0 {
		err = fault.InvalidFields(fault.Field{
			Name:    event.ExtensionOrganization,
			Problem: "missing, expected the organization whose programs may see the event",
		})
	}
	return event.ExternalSubject(organization), err
}

// decoded are headers whose attributes are as the event has them: in binary mode they are percent-encoded, by the rule of the HTTP
// binding. What is no such encoding stays as it is.
func decoded(header nats.Header) nats.Header {
	const attribute = "ce-"
	plain := nats.Header{}
	for name, values := range header {
		if strings.HasPrefix(name, attribute) && len(values) > 0 && strings.Contains(values[0], "%") {
			if text, err := url.PathUnescape(values[0]); err == nil {
				values = []string{text}
			}
		}
		plain[name] = values
	}
	return plain
}
