package bus

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/telemetry"
)

// Delivery is an event as one attempt to have it handled.
type Delivery struct {
	Event event.Event
	// Attempt counts from 1.
	Attempt int
	// Subject is where it was published.
	Subject string
}

// Handler handles one event. It is idempotent, since every event may come again.
type Handler func(context.Context, Delivery) error

// Rejected is called with an event that will not be delivered again, and the reason. The event is incomplete where it could not be
// decoded.
type Rejected func(context.Context, Delivery, error)

const (
	// pullExpiry is how long a request for a message stands on the server.
	pullExpiry = 30 * time.Second
	// pullHeartbeat is how often the server confirms that the request is still pending; after twice that time without a heartbeat, the
	// consumer is looked up again.
	pullHeartbeat = 2 * time.Second
	// restartFirst and restartLimit bound how fast a consumer that is away is looked up again.
	restartFirst = 100 * time.Millisecond
	restartLimit = 2 * time.Second
)

// Consume has h handle the messages of a consumer until ctx ends, and then waits for the handlers that run. It makes the
// consumer, unless this user may not make consumers of that stream; then it waits until another user has. It continues
// through restarts of the server, and through the loss of consumer, stream or the whole store.
//
// A nil error is acknowledged, and the acknowledgement confirmed. Otherwise the class of the error decides (package
// fault): another delivery after a delay of the backoff list, or the end of the message, with which rejected is called, if it
// is not nil. The end also comes to messages that hold no event of the catalogue, which h never sees, and to those whose
// last delivery (MaxDeliver) failed. Handlers interrupted by the end of ctx give their message back at once.
func (c *Conn) Consume(
	ctx context.Context, consumer Consumer, h func(context.Context, Delivery) error, rejected func(context.Context, Delivery, error),
) error {
	consumer = consumer.withDefaults()
	if consumer.Stream == "" || consumer.Durable == "" {
		return fault.New(fault.Invalid, "consumer %q of stream %q: both need a name", consumer.Durable, consumer.Stream)
	}
	l := &loop{
		conn: c, consumer: consumer, handle: h, rejected: rejected,
		slots: make(chan struct{}, consumer.Workers), ended: make(chan struct{}),
		log: c.log.With(telemetry.KeyStream, consumer.Stream, telemetry.KeyConsumer, consumer.Durable),
	}
	defer l.running.Wait()
	defer close(l.ended)
	retry := newBackoff(restartFirst, restartLimit)
	for {
		received, err := l.pull(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if received {
			retry.reset()
		}
		if !errors.Is(err, errRenewed) {
			l.log.WarnContext(ctx, "consumer interrupted", telemetry.KeyError, err)
		}
		if retry.wait(ctx, c.clock) != nil {
			return nil
		}
	}
}

// errRenewed interrupts a consumer whose stream may be another one now.
var errRenewed = errors.New("the topology was made again")

// pull takes messages until something goes wrong. It asks for one at a time and only when a worker is free, so that no
// message grows old in our hands.
func (l *loop) pull(outer context.Context) (received bool, err error) {
	ctx, cancel := context.WithCancelCause(outer)
	defer cancel(nil)
	renewal := l.conn.keeper.renewal()
	consumer, err := l.bind(ctx)
	if err != nil {
		return false, err
	}
	messages, err := consumer.Messages(
		jetstream.PullMaxMessages(1), jetstream.PullExpiry(pullExpiry), jetstream.PullHeartbeat(pullHeartbeat),
		jetstream.WithMessagesErrOnMissingHeartbeat(true),
	)
	if err != nil {
		return false, fmt.Errorf("pull: %w", err)
	}
	defer giveBack(messages)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel(nil)
	watching.Go(func() {
		select {
		case <-renewal:
			cancel(errRenewed)
		case <-ctx.Done():
		}
	})
	for {
		select {
		case l.slots <- struct{}{}:
		case <-ctx.Done():
			return received, context.Cause(ctx)
		}
		msg, err := messages.Next(jetstream.NextContext(ctx))
		if err != nil {
			<-l.slots
			if cause := context.Cause(ctx); cause != nil {
				err = cause
			}
			return received, err
		}
		received = true
		l.start(outer, msg)
	}
}

// bind finds the consumer, and makes it if that is ours to do.
func (l *loop) bind(ctx context.Context) (jetstream.Consumer, error) {
	c := l.conn
	if !mayMakeConsumer(c.user, l.consumer.Stream) {
		return c.findConsumer(ctx, l.consumer.Stream, l.consumer.Durable)
	}
	made, err := c.makeConsumer(ctx, l.consumer)
	if fault.Is(err, fault.NotFound) { // the stream is gone
		c.keeper.nudge()
	}
	if err != nil {
		return nil, err
	}
	c.keeper.remember(Topology{Consumers: []Consumer{l.consumer}})
	return made, nil
}

// giveBack ends a subscription and returns what had already arrived on it.
func giveBack(messages jetstream.MessagesContext) {
	messages.Drain()
	for {
		msg, err := messages.Next(jetstream.NextMaxWait(time.Second))
		if err != nil {
			messages.Stop()
			return
		}
		_ = msg.Nak() // else it comes again after AckWait
	}
}
