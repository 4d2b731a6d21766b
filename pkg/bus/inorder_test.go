package bus_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/lockstep-cd/lockstep/pkg/bus"
	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// inOrder consumes until enough are handled, and answers in which order the events of each call came.
func inOrder(
	t *testing.T, conn *bus.Conn, h func(call int, ids []string) []error, rejected func(string, error), enough func(done []string) bool,
) []string {
	t.Helper()
	consumer := watcher()
	consumer.MaxAckPending = 8
	return inOrderAs(t, conn, consumer, h, rejected, enough)
}

// inOrderAs is inOrder as a consumer.
func inOrderAs(
	t *testing.T, conn *bus.Conn, consumer bus.Consumer, h func(call int, ids []string) []error, rejected func(string, error),
	enough func(done []string) bool,
) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var mu sync.Mutex
	var done []string
	calls := 0
	finish := func(id string) {
		if done = append(done, id); enough(done) {
			cancel()
		}
	}
	err := conn.ConsumeInOrder(ctx, consumer, func(_ context.Context, all []bus.Delivery) []error {
		mu.Lock()
		defer mu.Unlock()
		ids := make([]string, len(all))
		for i, d := range all {
			ids[i] = d.Event.ID()
		}
		calls++
		errs := h(calls, ids)
		for i, err := range errs {
			if err == nil {
				finish(ids[i])
			}
		}
		return errs
	}, func(_ context.Context, d bus.Delivery, err error) {
		mu.Lock()
		defer mu.Unlock()
		rejected(d.Event.ID(), err)
		finish("rejected " + d.Event.ID())
	})
	if err != nil {
		t.Fatal(err)
	}
	return done
}

// TestNothingOvertakesWhatHasToBeTriedAgain has an event fail for a while, another permanently, and those behind them wait.
func TestNothingOvertakesWhatHasToBeTriedAgain(t *testing.T) {
	t.Parallel()
	server, conn := setup(t)
	publisher := server.Connect(t, bus.UserWorkflow)
	var want []string
	for n := range 20 {
		e := healthy(t, n+1)
		if err := publisher.Publish(t.Context(), e); err != nil {
			t.Fatal(err)
		}
		want = append(want, e.ID())
	}
	want[4] = "rejected " + want[4]
	failures, why := 0, error(nil)
	got := inOrder(t, conn, func(_ int, ids []string) []error {
		if len(ids) > 8 {
			t.Errorf("%d events at once", len(ids))
		}
		errs := make([]error, len(ids))
		for i, id := range ids {
			switch {
			case i > 0 && errs[i-1] != nil && !fault.Is(errs[i-1], fault.Invalid):
				errs[i] = bus.ErrBehind
			case id == "healthy-3" && failures < 5: // more often than an event may fail of itself
				failures++
				errs[i] = fault.New(fault.Unavailable, "not now")
			case id == "healthy-5":
				errs[i] = fault.New(fault.Invalid, "never")
			}
		}
		return errs
	}, func(_ string, err error) { why = err }, func(done []string) bool { return len(done) == len(want) })
	// What was refused is reported when its call has ended, after those of the same call that were not.
	at := slices.Index(got, want[4])
	if at < 0 || !fault.Is(why, fault.Invalid) || failures != 5 {
		t.Fatalf("handled %q, rejected for %v after %d failures", got, why, failures)
	}
	if rest := slices.Delete(slices.Clone(got), at, at+1); !slices.Equal(rest, slices.Delete(slices.Clone(want), 4, 5)) {
		t.Errorf("handled in the order %q", rest)
	}
}

// TestNothingOvertakesTheEventsOfAKilledProcess: later events wait until the server redelivers them.
func TestNothingOvertakesTheEventsOfAKilledProcess(t *testing.T) {
	t.Parallel()
	server, conn := setup(t)
	consumer := watcher()
	consumer.MaxAckPending, consumer.AckWait = 8, 5*time.Second // a busy machine answers for an event sooner
	if err := conn.Apply(t.Context(), bus.Topology{Consumers: []bus.Consumer{consumer}}); err != nil {
		t.Fatal(err)
	}
	publisher := server.Connect(t, bus.UserWorkflow)
	publish := func(n int) {
		t.Helper()
		if err := publisher.Publish(t.Context(), healthy(t, n)); err != nil {
			t.Fatal(err)
		}
	}
	publish(1)
	publish(2)
	js := server.JetStream(t, bus.UserDomain)
	theirs, err := js.Consumer(t.Context(), consumer.Stream, consumer.Durable)
	if err != nil {
		t.Fatal(err)
	}
	batch, err := theirs.Fetch(2, jetstream.FetchMaxWait(patience))
	if err != nil {
		t.Fatal(err)
	}
	taken := 0
	for range batch.Messages() {
		taken++
	}
	js.Conn().Close()
	if taken != 2 {
		t.Fatalf("the process has taken %d events, want 2", taken)
	}
	publish(3)
	got := inOrderAs(t, conn, consumer, func(_ int, ids []string) []error { return make([]error, len(ids)) },
		func(id string, err error) { t.Errorf("%s was rejected: %v", id, err) }, func(done []string) bool { return len(done) == 3 })
	if want := []string{"healthy-1", "healthy-2", "healthy-3"}; !slices.Equal(got, want) {
		t.Errorf("handled in the order %q, want %q", got, want)
	}
}

// TestAnEventThatKeepsFailingIsGivenUp, so that it does not stop all that comes behind it.
func TestAnEventThatKeepsFailingIsGivenUp(t *testing.T) {
	t.Parallel()
	server, conn := setup(t)
	publisher := server.Connect(t, bus.UserWorkflow)
	for n := range 3 {
		if err := publisher.Publish(t.Context(), healthy(t, n+1)); err != nil {
			t.Fatal(err)
		}
	}
	tries := 0
	got := inOrder(t, conn, func(_ int, ids []string) []error {
		errs := make([]error, len(ids))
		if i := slices.Index(ids, "healthy-2"); i >= 0 {
			tries++
			for n := i + 1; n < len(ids); n++ {
				errs[n] = bus.ErrBehind
			}
			if tries == 2 {
				panic("a slip")
			}
			errs[i] = fault.New(fault.Internal, "broken")
		}
		return errs
	}, func(string, error) {}, func(done []string) bool { return len(done) == 3 })
	// A panic is counted against the first of its call, which is this one: it has been alone in front since its first try.
	if want := []string{"healthy-1", "rejected healthy-2", "healthy-3"}; !slices.Equal(got, want) || tries != 3 {
		t.Errorf("handled %q after %d tries, want %q", got, tries, want)
	}
}
