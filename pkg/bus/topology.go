package bus

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/telemetry"
)

// Stream declares a stream: stored in files, old messages dropped at its limits, duplicates recognized for two minutes.
type Stream struct {
	// Name and Subjects say what it is called and what it stores.
	Name     string
	Subjects []string
	// WorkQueue streams keep a message only until its one consumer has acknowledged it.
	WorkQueue bool
	// MaxAge and MaxBytes are its limits; 0 is none.
	MaxAge   time.Duration
	MaxBytes int64
	// Replicas is the number of servers that store it; 0 is what the Layout says.
	Replicas int
}

// Consumer declares a durable pull consumer. The zero value of each field but Stream and Durable works.
type Consumer struct {
	Stream, Durable string
	// Filters are the subjects of interest; none is all of the stream.
	Filters []string
	// AckWait is how long the server waits for an outcome before it delivers again, 6 s by default. It is how long the
	// events that a killed process was handling have to wait. Long handlers are no concern: a heartbeat renews it.
	AckWait time.Duration
	// MaxDeliver is the delivery whose failure is final, 20 by default. Failures that are Unavailable do not count: nothing
	// is wrong with the event, so it is tried for as long as its stream keeps it.
	MaxDeliver int
	// Backoff is the delay before the second, third, … delivery; the last one repeats. The default goes from 200 ms to 30 s.
	Backoff []time.Duration
	// MaxAckPending is how many messages may be in progress over all replicas, 256 by default.
	MaxAckPending int
	// Skip is the source of events that are acknowledged unread: a service's own come back to it with those of others. Empty
	// skips none. It saves work and decides nothing: a message that does not say its source is handled.
	Skip string
	// External also takes events of types outside of the catalogue, from event.ExternalSubject. Other consumers of the stream
	// acknowledge them unread.
	External bool
	// Workers is how many messages one replica handles at once, 1 by default, which also keeps them in order as long as
	// none fails.
	Workers int
}

// Topology is the streams and consumers that a service makes.
type Topology struct {
	Streams   []Stream
	Consumers []Consumer
}

func (c Consumer) withDefaults() Consumer {
	c.AckWait = cmp.Or(c.AckWait, 6*time.Second)
	c.MaxDeliver = cmp.Or(c.MaxDeliver, 20)
	c.MaxAckPending = cmp.Or(c.MaxAckPending, 256)
	c.Workers = max(c.Workers, 1)
	if len(c.Backoff) == 0 {
		c.Backoff = []time.Duration{200 * time.Millisecond, time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 30 * time.Second}
	}
	return c
}

// config is the stream on so many servers, which have the tags.
func (s Stream) config(replicas int, tags []string) jetstream.StreamConfig {
	retention := jetstream.LimitsPolicy
	if s.WorkQueue {
		retention = jetstream.WorkQueuePolicy
	}
	var placement *jetstream.Placement
	if len(tags) > 0 {
		placement = &jetstream.Placement{Tags: tags}
	}
	return jetstream.StreamConfig{
		Name: s.Name, Subjects: s.Subjects, Retention: retention, Storage: jetstream.FileStorage, Discard: jetstream.DiscardOld,
		MaxAge: s.MaxAge, MaxBytes: cmp.Or(s.MaxBytes, -1), MaxMsgs: -1, MaxMsgSize: -1, MaxConsumers: -1,
		Replicas: replicas, Placement: placement, Duplicates: duplicateWindow,
		AllowAtomicPublish: true, // servers before 2.12 do not know it, and do not say that they do
	}
}

// config leaves the number of deliveries to us: the server would stop delivering without a word, also when the last
// attempt ended with the process. It also leaves the backoff to us, since its own replaces AckWait.
func (c Consumer) config() jetstream.ConsumerConfig {
	c = c.withDefaults()
	return jetstream.ConsumerConfig{
		Durable: c.Durable, Name: c.Durable, FilterSubjects: c.Filters, AckPolicy: jetstream.AckExplicitPolicy,
		DeliverPolicy: jetstream.DeliverAllPolicy, AckWait: c.AckWait, MaxDeliver: -1, MaxAckPending: c.MaxAckPending,
	}
}

// Apply makes the streams and consumers of t, or changes them to what t says; what is as t says, or more than that (Layout), is left alone.
// It waits for a server that is away until ctx ends. The connection remembers t and makes it again whenever something of it has vanished.
func (c *Conn) Apply(ctx context.Context, t Topology) error {
	retry := newBackoff(100*time.Millisecond, 2*time.Second)
	logged := ""
	for {
		err := c.applyOnce(ctx, t)
		if err == nil {
			c.keeper.remember(t)
			return nil
		}
		if !fault.Is(err, fault.Unavailable) {
			return err
		}
		if text := err.Error(); text != logged && ctx.Err() == nil { // for an operator who waits for the start
			logged = text
			c.log.WarnContext(ctx, "streams and consumers are not made yet", telemetry.KeyError, err)
		}
		if retry.wait(ctx, c.clock) != nil {
			return err
		}
	}
}

func (c *Conn) applyOnce(ctx context.Context, t Topology) error {
	for _, s := range t.Streams {
		if err := c.makeStream(ctx, s); err != nil {
			return fmt.Errorf("make stream %s: %w", s.Name, err)
		}
		c.mirror(ctx, s)
		c.log.DebugContext(ctx, "stream made", telemetry.KeyStream, s.Name)
	}
	for _, consumer := range t.Consumers {
		if _, err := c.makeConsumer(ctx, consumer); err != nil {
			return err
		}
	}
	return nil
}

func (c *Conn) makeConsumer(ctx context.Context, consumer Consumer) (made jetstream.Consumer, err error) {
	err = c.api(ctx, consumer.Stream, func(ctx context.Context) error {
		made, err = c.js.CreateOrUpdateConsumer(ctx, consumer.Stream, consumer.config())
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("make consumer %s of stream %s: %w", consumer.Durable, consumer.Stream, err)
	}
	c.log.DebugContext(ctx, "consumer made", telemetry.KeyStream, consumer.Stream, telemetry.KeyConsumer, consumer.Durable)
	return made, nil
}

// findConsumer is a consumer that another user makes.
func (c *Conn) findConsumer(ctx context.Context, stream, durable string) (found jetstream.Consumer, err error) {
	err = c.look(ctx, stream, func(ctx context.Context) error {
		found, err = c.js.Consumer(ctx, stream, durable)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("find consumer %s of stream %s: %w", durable, stream, err)
	}
	return found, nil
}

// api makes one request about a stream and gives its error a class: Denied, NotFound, or Unavailable where the server
// did not answer or could not do it. An answer that refuses the request has none.
func (c *Conn) api(ctx context.Context, stream string, request func(context.Context) error) error {
	return c.within(ctx, apiWithin, stream, request)
}

// look is api for a request that changes nothing: nobody answers it while its stream has no leader, and it is made again sooner.
func (c *Conn) look(ctx context.Context, stream string, request func(context.Context) error) error {
	return c.within(ctx, lookWithin, stream, request)
}

func (c *Conn) within(ctx context.Context, limit time.Duration, stream string, request func(context.Context) error) (err error) {
	defer func() { c.heard(ctx, &c.silent.api, err) }()
	concerns := func(subject string) bool {
		return strings.HasPrefix(subject, "$JS.API.") && slices.Contains(strings.Split(subject, "."), stream)
	}
	err = c.denied.watch(ctx, limit, concerns, request)
	var refusal *jetstream.APIError
	switch {
	case err == nil, fault.Is(err, fault.Denied):
		return err
	case errors.Is(err, jetstream.ErrStreamNotFound), errors.Is(err, jetstream.ErrConsumerNotFound):
		return fault.New(fault.NotFound, "%w", err)
	case errors.As(err, &refusal) && refusal.Code < 500:
		return err
	case errors.As(err, &refusal): // such as no room for what a stream reserves
		return fault.Because(err, fault.Unavailable, "the event bus cannot do it: %s", refusal.Description)
	default:
		return fault.Because(err, fault.Unavailable, "the event bus does not answer")
	}
}

// connected reports whether a request has a chance.
func (c *Conn) connected() bool { return c.nc.Status() == nats.CONNECTED }
