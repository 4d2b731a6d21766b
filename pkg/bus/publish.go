package bus

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/telemetry"
)

const (
	// publishWithin is how long Publish keeps trying if its context allows.
	publishWithin = 5 * time.Second
	// confirmWithin is how long one attempt waits for the stream.
	confirmWithin = 2 * time.Second
)

// Publish sends e on its subject and returns once its stream has stored it. An event with an id that was published in
// the last two minutes is stored once. While the server or the stream is away it keeps trying until ctx ends, for five
// seconds at most; then the error is Unavailable, and the event may have been stored or not. An event that is not of the
// catalogue is Invalid, one on a path of others is Denied.
func (c *Conn) Publish(ctx context.Context, e event.Event) error {
	return c.PublishAttempt(ctx, e, e.ID())
}

// PublishAttempt is Publish under another message id, for an event that was lost after it had been stored: under its own
// id the stream would take it for a duplicate.
func (c *Conn) PublishAttempt(ctx context.Context, e event.Event, msgID string) error {
	e = e.Clone()
	telemetry.InjectTrace(ctx, &e)
	sealed, err := event.Seal(e)
	if err != nil {
		return err
	}
	o := outgoing{Sealed: sealed, msgID: msgID}
	o.begin(ctx, c.clock.Now())
	err = c.publishWhile(ctx, o, func() bool { return true })
	o.end(c.clock.Now(), err)
	return err
}

// outgoing is an event on its way to its stream.
type outgoing struct {
	event.Sealed
	msgID string
	span  telemetry.Sending
}

// begin starts the span of an event that is about to be sent, unless it has one. Its consumers link theirs to it: they continue the trace
// of the event itself.
func (o *outgoing) begin(ctx context.Context, now time.Time) {
	if o.span.Started() || !telemetry.Tracing() {
		return
	}
	o.span = telemetry.StartSending(ctx, o.Trace(), "send "+o.Type(), now, telemetry.EventAttributes("send", o.Subject(), o.ID())...)
}

// end ends the span of an event that was published or not.
func (o *outgoing) end(now time.Time, err error) {
	if o.span.Started() {
		o.span.End(now, sendProblem(err))
	}
}

// publishWhile keeps trying to store o until ctx ends, for publishWithin at most, and only as long as the condition holds.
func (c *Conn) publishWhile(ctx context.Context, o outgoing, holds func() bool) (err error) {
	ctx, cancel := context.WithTimeout(ctx, publishWithin)
	defer cancel()
	retry := newBackoff(50*time.Millisecond, time.Second)
	for {
		attempt := c.publishOnce(ctx, o)
		if attempt == nil || fault.ClassOf(attempt) != fault.Unavailable {
			return attempt
		}
		if err == nil || ctx.Err() == nil { // an attempt that was cut short knows less than the one before it
			err = attempt
		}
		if retry.wait(ctx, c.clock) != nil || !holds() {
			return err
		}
	}
}

func sendProblem(err error) string {
	if err == nil {
		return ""
	}
	return fault.Public(err)
}

// publishOnce makes one attempt. Its error has a class.
func (c *Conn) publishOnce(ctx context.Context, o outgoing) (err error) {
	defer func() { c.heard(ctx, &c.silent.publish, err) }()
	subject := o.Subject()
	concerns := func(denied string) bool { return denied == subject }
	err = c.denied.watch(ctx, confirmWithin, concerns, func(ctx context.Context) error {
		_, err := c.js.PublishMsg(ctx, o.message(), jetstream.WithRetryAttempts(1), jetstream.WithRetryWait(10*time.Millisecond))
		return err
	})
	var refusal *jetstream.APIError
	switch {
	case err == nil, fault.Is(err, fault.Denied):
		return err
	case errors.Is(err, nats.ErrMaxPayload), errors.Is(err, jetstream.ErrStreamMessageExceedsMaximum):
		return fault.New(fault.Invalid, "publish on %s: %d bytes are more than the event bus takes", subject, len(o.JSON()))
	case errors.Is(err, jetstream.ErrNoStreamResponse), errors.Is(err, nats.ErrNoResponders):
		c.keeper.nudge()
		return fault.Because(err, fault.Unavailable, "publish on %s: no stream takes it", subject)
	case errors.As(err, &refusal):
		return fault.Because(err, fault.Unavailable, "publish on %s: %s", subject, refusal.Description)
	default:
		return fault.Because(err, fault.Unavailable, "publish on %s: the event bus did not confirm it", subject)
	}
}
