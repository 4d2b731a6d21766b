package bus

import (
	"context"
	"fmt"

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
	return &nats.Msg{Subject: o.Subject(), Header: header, Data: o.JSON()}
}

// decode is the event in a message of either mode. It is one of the catalogue, and came on the subject it belongs on:
// the permissions are on subjects, so an event on another one would have got past them. The error is Invalid; the event
// is whatever could be read.
func decode(ctx context.Context, subject string, header nats.Header, data []byte) (event.Event, error) {
	msg := &nats.Msg{Subject: subject, Header: header, Data: data}
	e, err := binding.ToEvent(ctx, cenats.NewMessage(msg))
	if err != nil {
		return event.Event{}, fault.New(fault.Invalid, "message on %s is not a CloudEvent: %w", subject, err)
	}
	if err := event.Validate(*e); err != nil {
		return *e, fmt.Errorf("event %s on %s: %w", e.ID(), subject, err)
	}
	want, err := event.Subject(*e)
	if err != nil {
		return *e, fmt.Errorf("event %s on %s: %w", e.ID(), subject, err)
	}
	if want != subject {
		return *e, fault.InvalidFields(fault.Field{Name: "subject", Problem: fmt.Sprintf("event %s came on %q, expected %q", e.ID(), subject, want)})
	}
	return *e, nil
}
