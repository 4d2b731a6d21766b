package bus

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/telemetry"
)

const (
	// keepEvery is how often the topology is looked at when nothing gives a reason to.
	keepEvery = 15 * time.Second
	// troubleAfter is how long streams may be without an answer until Ready reports it. The election of a leader takes a cluster of NATS up
	// to nine seconds, and a lost one may have led several groups.
	troubleAfter = 30 * time.Second
)

// keeper remembers the topology of a connection and keeps it in being.
type keeper struct {
	wake chan struct{}

	mu        *sync.Mutex
	streams   map[string]Stream
	consumers map[string]Consumer
	renewed   chan struct{} // closed and replaced when something had to be made again
	raised    map[string]time.Time
	// err is what was wrong at the last look, and since when.
	err   error
	since time.Time
}

func newKeeper() keeper {
	return keeper{
		wake: make(chan struct{}, 1), mu: &sync.Mutex{},
		streams: map[string]Stream{}, consumers: map[string]Consumer{}, renewed: make(chan struct{}),
		raised: map[string]time.Time{},
	}
}

func (k *keeper) remember(t Topology) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, s := range t.Streams {
		k.streams[s.Name] = s
	}
	for _, c := range t.Consumers {
		k.consumers[c.Stream+"."+c.Durable] = c
	}
}

// topology is everything remembered, in a fixed order.
func (k *keeper) topology() Topology {
	k.mu.Lock()
	defer k.mu.Unlock()
	var t Topology
	for _, name := range slices.Sorted(maps.Keys(k.streams)) {
		t.Streams = append(t.Streams, k.streams[name])
	}
	for _, name := range slices.Sorted(maps.Keys(k.consumers)) {
		t.Consumers = append(t.Consumers, k.consumers[name])
	}
	return t
}

// nudge has the topology looked at now.
func (k *keeper) nudge() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// renewal is closed when something has been made again since the call.
func (k *keeper) renewal() <-chan struct{} {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.renewed
}

func (k *keeper) settle(now time.Time, renewed bool, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.err == nil {
		k.since = now
	}
	k.err = err
	if renewed {
		close(k.renewed)
		k.renewed = make(chan struct{})
	}
}

// trouble is what is wrong, once it is more than the change of a leader: while a server of a cluster dies, the others need some seconds to
// agree on who answers instead. What waiting does not mend is wrong at once.
func (k *keeper) trouble(now time.Time) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if fault.Is(k.err, fault.Unavailable) && now.Sub(k.since) < troubleAfter {
		return nil
	}
	return k.err
}

// mayRaise reports whether a stream may be tried to be given more replicas now.
func (k *keeper) mayRaise(stream string, now time.Time) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if now.Sub(k.raised[stream]) < raiseEvery {
		return false
	}
	k.raised[stream] = now
	return true
}

// keep looks after the topology until ctx ends.
func (c *Conn) keep(ctx context.Context) {
	retry := newBackoff(100*time.Millisecond, 5*time.Second)
	for {
		timer := c.clock.NewTimer(keepEvery)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C():
		case <-c.keeper.wake:
			timer.Stop()
		}
		for c.connected() {
			if c.restore(ctx) == nil {
				retry.reset()
				break
			}
			if retry.wait(ctx, c.clock) != nil {
				return
			}
		}
	}
}

// restore makes the remembered topology again if any of it is missing.
func (c *Conn) restore(ctx context.Context) error {
	t := c.keeper.topology()
	missing, err := c.missing(ctx, t)
	if err == nil && missing != "" {
		c.log.WarnContext(ctx, "topology lost, making it again", telemetry.KeyStream, missing)
		err = c.applyOnce(ctx, t)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		c.log.WarnContext(ctx, "topology not checked", telemetry.KeyError, err)
	}
	c.keeper.settle(c.clock.Now(), missing != "" && err == nil, err)
	return err
}

// missing is the first stream or consumer of t that does not exist; "" when all do.
func (c *Conn) missing(ctx context.Context, t Topology) (string, error) {
	for _, s := range t.Streams {
		found, err := c.findStream(ctx, s.Name)
		if fault.Is(err, fault.NotFound) {
			return s.Name, nil
		}
		if err != nil {
			return "", err
		}
		if mayMakeStream(c.user, s.Name) {
			c.raise(ctx, s, found)
			c.mirror(ctx, s)
		}
	}
	for _, consumer := range t.Consumers {
		_, err := c.findConsumer(ctx, consumer.Stream, consumer.Durable)
		if fault.Is(err, fault.NotFound) {
			return consumer.Stream + "." + consumer.Durable, nil
		}
		if err != nil {
			return "", err
		}
	}
	return "", nil
}
