package events

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/lockstep-cd/lockstep/pkg/bus"
	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/sealing/book"
	"github.com/lockstep-cd/lockstep/pkg/telemetry"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/callpolicy"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/guard"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
)

// Receiver stores events from other services' outboxes and hands them to waits. It is one transaction, because a claim
// without its event would have the sender forget what nobody has stored (D44).
type Receiver interface {
	// ReceiveFrom claims wire, stores e and matches it, in one transaction.
	ReceiveFrom(ctx context.Context, wire event.Event, e history.Event) (matched int, duplicate bool, err error)
	// ReceiveChange is ReceiveFrom for a report that decides what runs may change, which is stored in the same transaction.
	ReceiveChange(ctx context.Context, wire event.Event, e history.Event, c guard.Change) (matched int, duplicate bool, err error)
}

// Policies stores what the domain service says of policies about calls and of credentials. It is no event for programs: none of them sees
// it.
type Policies interface {
	// ReceivePolicySet claims wire and stores a policy set, unless a later version is stored, in one transaction.
	ReceivePolicySet(ctx context.Context, wire event.Event, s callpolicy.Set) error
	// ReceiveCallAnswer claims wire and hands an answer to the call that waits for it, in one transaction. An answer to anything else is a
	// no-op.
	ReceiveCallAnswer(ctx context.Context, wire event.Event, organization int64, a history.CallAnswer) error
	// ReceiveCredential claims wire and stores a credential, unless a later report is stored, in one transaction.
	ReceiveCredential(ctx context.Context, wire event.Event, r book.Report) error
}

// Rejecter records that an event can never be applied.
type Rejecter interface {
	Reject(ctx context.Context, e event.Event, reason string) error
}

// Domain consumes the domain path.
type Domain struct {
	Receiver Receiver
	Policies Policies
	Inbox    Rejecter
	Log      *slog.Logger
}

// Handle takes one event. What this service emitted itself is left out: the store has kept it with the turn that
// emitted it, and matched it there.
func (d Domain) Handle(ctx context.Context, delivery bus.Delivery) error {
	if delivery.Event.Source() == Source {
		return nil
	}
	e, err := FromWire(delivery.Event)
	if err == nil {
		err = event.CheckSource(e.Type, e.Source)
	}
	if err != nil {
		return err
	}
	if ofPolicies(e.Type) {
		return d.policies(ctx, delivery.Event, e)
	}
	change, decides, err := changeOf(delivery.Event, e)
	if err != nil {
		return err
	}
	var matched int
	var duplicate bool
	if decides {
		matched, duplicate, err = d.Receiver.ReceiveChange(ctx, delivery.Event, e, change)
	} else {
		matched, duplicate, err = d.Receiver.ReceiveFrom(ctx, delivery.Event, e)
	}
	if err != nil {
		return err
	}
	d.Log.DebugContext(ctx, "domain event received", telemetry.KeyEvent, e.ID, telemetry.KeyEventType, e.Type,
		telemetry.KeyAttempt, delivery.Attempt, telemetry.KeyCount, matched, "duplicate", duplicate)
	return nil
}

// Rejected records an event that will not come again, so that its sender does not send it for ever. The reason is
// kept and shown, so it is the public text of the cause.
func (d Domain) Rejected(ctx context.Context, delivery bus.Delivery, cause error) {
	if delivery.Event.Source() == Source {
		return
	}
	err := d.Inbox.Reject(ctx, delivery.Event, fault.Public(cause))
	if fault.Is(err, fault.Invalid) {
		return // no sender has such an event in its outbox: its id or source cannot be stored
	}
	if err != nil {
		d.Log.ErrorContext(ctx, "recording rejected event failed", telemetry.KeyEvent, delivery.Event.ID(), telemetry.KeyError, err)
	}
}

// FromWire is a CloudEvent as waits see it, from whichever door. The error is Invalid: an event without an organization belongs to
// nobody, and data that is not JSON, or exceeds the limits of values, cannot be matched or read.
func FromWire(wire event.Event) (history.Event, error) {
	if err := event.ValidateAny(wire); err != nil {
		return history.Event{}, err
	}
	for _, attribute := range [...]struct{ name, text string }{
		{"id", wire.ID()},
		{"source", wire.Source()},
		{"type", wire.Type()},
		{"subject", wire.Subject()},
	} {
		if strings.ContainsFunc(attribute.text, unicode.IsControl) || !utf8.ValidString(attribute.text) {
			return history.Event{}, fault.InvalidFields(fault.Field{
				Name:    attribute.name,
				Problem: fmt.Sprintf("found %q, expected text without control characters", attribute.text),
			})
		}
	}
	organization, err := event.Organization(wire)
	if err != nil {
		return history.Event{}, err
	}
	var fields []fault.Field
	if organization == 0 {
		fields = append(fields, fault.Field{
			Name:    event.ExtensionOrganization,
			Problem: "missing, expected the organization whose workflows may see the event",
		})
	}
	data := wire.Data()
	if len(data) > 0 {
		fields = append(fields, fault.FieldsOf(history.EventDoor.CheckField("data", data))...)
	}
	if len(fields) > 0 {
		return history.Event{}, fault.InvalidFields(fields...)
	}
	return history.Event{
		Organization: organization, Source: wire.Source(), ID: wire.ID(), Type: wire.Type(), Data: data, Time: wire.Time(),
	}, nil
}
