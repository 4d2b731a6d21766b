package bus

import (
	"bytes"
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

// encode is e as a message, structured: attributes may hold any text, which headers cannot carry.
func encode(ctx context.Context, e event.Event, subject string) (*nats.Msg, error) {
	var body bytes.Buffer
	if _, err := cenats.WriteMsg(binding.WithForceStructured(ctx), binding.ToMessage(&e), &body); err != nil {
		return nil, fault.New(fault.Invalid, "encode event %s: %w", e.ID(), err)
	}
	msg := nats.NewMsg(subject)
	msg.Header.Set(contentTypeHeader, contentType)
	msg.Header.Set(sourceHeader, e.Source())
	msg.Data = body.Bytes()
	return msg, nil
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
