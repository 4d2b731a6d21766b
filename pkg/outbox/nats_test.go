package outbox_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockstep-cd/lockstep/pkg/bus"
	"github.com/lockstep-cd/lockstep/pkg/bus/bustest"
	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/outbox"
	"github.com/lockstep-cd/lockstep/pkg/pg"
)

// TestOverNATS has both halves run over the real bus, whose store is wiped while events are under way.
func TestOverNATS(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	nats := bustest.Server(t)
	consumer := bus.Consumer{Stream: bus.StreamDomain, Durable: "domain", Filters: []string{"cd.domain.>"}, Workers: 4}
	from, to := nats.Connect(t, bus.UserWorkflow), nats.Connect(t, bus.UserDomain)
	s.must(from.Apply(t.Context(), bus.Topology{Streams: []bus.Stream{bus.DomainStream()}}))
	s.must(to.Apply(t.Context(), bus.Topology{Streams: []bus.Stream{bus.DomainStream()}, Consumers: []bus.Consumer{consumer}}))
	log := bustest.Log(t)
	sender := outbox.NewSender(outbox.SenderDeps{
		Pool: s.from, Bus: from, Clock: clock.System(), Log: log, Name: "workflow", Receivers: []string{"domain"}, ResendAfter: 500 * time.Millisecond,
	})
	inbox := outbox.NewInbox(outbox.InboxDeps{Pool: s.to, Bus: to, Clock: clock.System(), Log: log, Name: "domain"})

	var mu sync.Mutex
	var applied []string
	handle := func(ctx context.Context, d bus.Delivery) error {
		return pg.InTx(ctx, s.to, func(tx pgx.Tx) error {
			first, err := inbox.Claim(ctx, tx, d.Event)
			if first {
				mu.Lock()
				applied = append(applied, d.Event.ID())
				mu.Unlock()
			}
			return err
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	t.Cleanup(func() { cancel(); all.Wait() })
	for _, run := range []func(context.Context) error{
		sender.Run, inbox.Run,
		func(ctx context.Context) error { return to.Consume(ctx, consumer, handle, nil) },
	} {
		all.Go(func() {
			if err := run(ctx); err != nil && ctx.Err() == nil {
				t.Error(err)
			}
		})
	}
	var want []string
	for i := range 30 {
		id := fmt.Sprintf("e%02d", i)
		want = append(want, id)
		s.add(id)
		sender.Wake()
		if i == 10 || i == 20 {
			nats.Wipe(t)
		}
	}
	eventually(t, "everything is confirmed", func() bool { return len(s.held()) == 0 })
	mu.Lock()
	defer mu.Unlock()
	slices.Sort(applied)
	same(t, "applied", applied, want)
}
