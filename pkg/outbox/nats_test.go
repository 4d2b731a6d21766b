package outbox_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstep-cd/lockstep/pkg/bus"
	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/outbox"
	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/pkg/testkit/bustest"
	"github.com/lockstep-cd/lockstep/pkg/testkit/wait"
)

// overNATS is a stage whose receiver listens to the real bus, in order, and whose sender may be anything.
type overNATS struct {
	*stage
	nats *bustest.TestServer
	wire *bustest.Wire

	mu       sync.Mutex
	arrivals []string // the ids of events, in the order in which they were first handled
}

func newOverNATS(t *testing.T) *overNATS {
	t.Helper()
	s := &overNATS{stage: newStage(t), nats: bustest.Server(t)}
	s.wire = s.nats.Wire(t)
	to := s.nats.Connect(t, bus.UserDomain)
	consumer := bus.Consumer{Stream: bus.StreamDomain, Durable: "domain", Filters: []string{"cd.domain.>"}}
	s.must(to.Apply(t.Context(), bus.Topology{Streams: []bus.Stream{bus.DomainStream()}, Consumers: []bus.Consumer{consumer}}))
	inbox := outbox.NewInbox(outbox.InboxDeps{Pool: s.to, Bus: to, Clock: clock.System(), Log: bustest.Log(t), Name: "domain"})
	s.run(inbox.Run)
	s.run(func(ctx context.Context) error {
		return to.ConsumeInOrder(ctx, consumer, func(ctx context.Context, all []bus.Delivery) []error { return s.handle(ctx, inbox, all) }, nil)
	})
	return s
}

// run runs a part until the test ends, or the function that it answers is called.
func (s *overNATS) run(part func(context.Context) error) (end func()) {
	ctx, cancel := context.WithCancel(s.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := part(ctx); err != nil && ctx.Err() == nil {
			s.t.Error(err)
		}
	}()
	end = sync.OnceFunc(func() { cancel(); <-done })
	s.t.Cleanup(end)
	return end
}

func (s *overNATS) handle(ctx context.Context, inbox *outbox.Inbox, all []bus.Delivery) []error {
	errs := make([]error, len(all))
	for i, d := range all {
		var first bool
		errs[i] = pg.InTx(ctx, s.to, func(tx pgx.Tx) (err error) {
			first, err = inbox.Claim(ctx, tx, d.Event)
			return err
		})
		if errs[i] == nil && first {
			s.mu.Lock()
			s.arrivals = append(s.arrivals, d.Event.ID())
			s.mu.Unlock()
		}
	}
	return errs
}

func (s *overNATS) arrived() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string{}, s.arrivals...)
}

// connected is a sender over the wire.
func (s *overNATS) connected(resendAfter time.Duration) *outbox.Sender {
	from := s.wire.Connect(s.t, s.nats, bus.UserWorkflow)
	s.must(from.Apply(s.t.Context(), bus.Topology{Streams: []bus.Stream{bus.DomainStream()}}))
	return realSender(s.from, from, resendAfter, bustest.Log(s.t))
}

func realSender(pool *pgxpool.Pool, conn *bus.Conn, resendAfter time.Duration, log *slog.Logger) *outbox.Sender {
	return outbox.NewSender(outbox.SenderDeps{
		Pool: pool, Bus: conn, Clock: clock.System(), Log: log, Name: "workflow", Receivers: []string{"domain"}, ResendAfter: resendAfter,
	})
}

// The store of the bus is wiped while events are under way: each is applied once all the same.
func TestOverABusThatIsWiped(t *testing.T) {
	t.Parallel()
	s := newOverNATS(t)
	sender := s.connected(500 * time.Millisecond)
	s.run(sender.Run)
	var want []string
	for i := range 30 {
		want = append(want, s.addMany(10*i, 1+9*(i%2))...)
		sender.Wake()
		if i == 10 || i == 20 {
			s.nats.Wipe(t)
		}
	}
	wait.For(t, "everything is confirmed", func() bool { return len(s.held()) == 0 })
	got := map[string]int{}
	for _, id := range s.arrived() {
		got[id]++
	}
	for _, id := range want {
		if got[id] != 1 {
			t.Errorf("event %s was applied %d times", id, got[id])
		}
	}
}

// Messages, answers and connections are lost in the middle of batches: the receiver gets everything in the order of the
// outbox all the same, whatever it gets twice.
func TestTheOrderIsKeptOverAWireThatLoses(t *testing.T) {
	t.Parallel()
	s := newOverNATS(t)
	sender := s.connected(time.Minute)
	const subject = "cd.domain.1.rollout.started"
	sent, answered := 0, 0
	s.wire.Decide(func(f bustest.Frame) bustest.Fate {
		switch {
		case f.ToServer && f.Subject == subject:
			sent++
			switch sent {
			case 40, 700:
				return bustest.Lost
			case 400, 900, 1234:
				return bustest.Cut
			}
		case !f.ToServer && bytes.Contains(f.Bytes, []byte(`"stream":"DOMAIN"`)):
			answered++
			switch answered {
			case 2:
				return bustest.Lost
			case 7, 300:
				return bustest.Cut
			}
		}
		return bustest.Arrives
	})
	want := s.addMany(0, 600)
	s.run(sender.Run)
	wait.For(t, "the first half has come", func() bool { return len(s.arrived()) >= 300 })
	want = append(want, s.addMany(600, 900)...)
	sender.Wake()
	wait.For(t, "everything has come", func() bool { return len(s.arrived()) >= len(want) })
	wait.For(t, "everything is confirmed", func() bool { return len(s.held()) == 0 })
	same(t, "arrivals", s.arrived(), want)
}

// A sender that is killed anywhere, again and again, has lost nothing and changed no order.
func TestAKilledSenderLosesNothing(t *testing.T) {
	t.Parallel()
	s := newOverNATS(t)
	var want []string
	for round := range 4 {
		want = append(want, s.addMany(1000*round, 500)...)
		child := s.child()
		seen := len(s.arrived())
		wait.For(t, "the child sends", func() bool { return len(s.arrived()) > seen+20*round })
		s.must(child.Process.Kill())
		if err := child.Wait(); err == nil {
			t.Fatal("the child ended by itself")
		}
	}
	s.run(s.connected(time.Minute).Run)
	wait.For(t, "everything is confirmed", func() bool { return len(s.held()) == 0 })
	same(t, "arrivals", s.arrived(), want)
}

// childVariable makes of this program a sender, with what it needs to know on its standard input.
const childVariable = "LOCKSTEP_TEST_OUTBOX_SENDER"

type childConfig struct {
	URL, Schema string
	Bus         bus.Config
}

func (s *overNATS) child() *exec.Cmd {
	s.t.Helper()
	config, err := json.Marshal(childConfig{s.sending.URL, s.sending.Schema, s.nats.Config(bus.UserWorkflow)})
	s.must(err)
	child := exec.CommandContext(s.t.Context(), os.Args[0])
	child.Env = append(os.Environ(), childVariable+"=1")
	child.Stdin, child.Stderr = bytes.NewReader(config), os.Stderr
	s.must(child.Start())
	return child
}

// childSender is what the child does until it is killed.
func childSender() {
	input, err := io.ReadAll(os.Stdin)
	check(err)
	var c childConfig
	check(json.Unmarshal(input, &c))
	ctx, log := context.Background(), slog.New(slog.DiscardHandler)
	pool, err := pg.Open(ctx, pg.Config{URL: c.URL, Schema: c.Schema})
	check(err)
	conn, err := bus.Connect(ctx, c.Bus, log)
	check(err)
	check(conn.Apply(ctx, bus.Topology{Streams: []bus.Stream{bus.DomainStream()}}))
	// What it has sent may be confirmed while nobody listens: the process that takes its lanes hears that only when it is sent again.
	check(realSender(pool, conn, 0, log).Run(ctx))
	os.Exit(0)
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
