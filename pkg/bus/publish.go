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
func (c *Conn) PublishAttempt(ctx context.Context, e event.Event, msgID string) (err error) {
	if err := event.Validate(e); err != nil {
		return err
	}
	subject, err := event.Subject(e)
	if err != nil {
		return err
	}
	e = e.Clone()
	telemetry.InjectTrace(ctx, &e)
	// A span of its own, which is nobody's parent: who receives the event goes on from whoever made it.
	ctx, endSpan := telemetry.StartSpan(telemetry.ExtractTrace(ctx, e), "send "+e.Type(), telemetry.Producer, telemetry.EventAttributes("send", subject, e.ID())...)
	defer func() { endSpan(sendProblem(err)) }()
	msg, err := encode(ctx, e, subject)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, publishWithin)
	defer cancel()
	retry := newBackoff(50*time.Millisecond, time.Second)
	for {
		attempt := c.publishOnce(ctx, msg, msgID)
		if attempt == nil || fault.ClassOf(attempt) != fault.Unavailable {
			return attempt
		}
		if err == nil || ctx.Err() == nil { // an attempt that was cut short knows less than the one before it
			err = attempt
		}
		if retry.wait(ctx, c.clock) != nil {
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
func (c *Conn) publishOnce(ctx context.Context, msg *nats.Msg, msgID string) error {
	sent := nats.Msg{Subject: msg.Subject, Header: nats.Header{}, Data: msg.Data}
	for k, v := range msg.Header {
		sent.Header[k] = v
	}
	concerns := func(subject string) bool { return subject == msg.Subject }
	err := c.denied.watch(ctx, confirmWithin, concerns, func(ctx context.Context) error {
		_, err := c.js.PublishMsg(ctx, &sent, jetstream.WithMsgID(msgID), jetstream.WithRetryAttempts(1), jetstream.WithRetryWait(10*time.Millisecond))
		return err
	})
	var refusal *jetstream.APIError
	switch {
	case err == nil, fault.Is(err, fault.Denied):
		return err
	case errors.Is(err, nats.ErrMaxPayload), errors.Is(err, jetstream.ErrStreamMessageExceedsMaximum):
		return fault.New(fault.Invalid, "publish on %s: %d bytes are more than the event bus takes", msg.Subject, len(msg.Data))
	case errors.Is(err, jetstream.ErrNoStreamResponse), errors.Is(err, nats.ErrNoResponders):
		c.keeper.nudge()
		return fault.Because(err, fault.Unavailable, "publish on %s: no stream takes it", msg.Subject)
	case errors.As(err, &refusal):
		return fault.Because(err, fault.Unavailable, "publish on %s: %s", msg.Subject, refusal.Description)
	default:
		return fault.Because(err, fault.Unavailable, "publish on %s: the event bus did not confirm it", msg.Subject)
	}
}
