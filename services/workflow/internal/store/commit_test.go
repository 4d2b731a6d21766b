package store

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/engine"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/execution"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/flow"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/program"
)

// A commit is tried strictly, which takes for granted what is nearly always true, and again without that where it is refused (commitAll).

// incoming are events from outside, of type com.example.go, as items of a commit.
func (b *testStore) incoming(data ...string) (items []*item) {
	for _, d := range data {
		b.n++
		e := eventAt(1, fmt.Sprintf("incoming-%d", b.n), "com.example.go", d, b.clock.Now())
		items = append(items, &item{received: &received{newEvent: newEvent{Event: e}}})
	}
	return items
}

// matched lists how many waits each of items has satisfied; -1 is a duplicate.
func matched(items []*item) (counts []int) {
	for _, i := range items {
		if !i.received.stored {
			counts = append(counts, -1)
			continue
		}
		counts = append(counts, i.received.matched)
	}
	return counts
}

// emitting is the last turn of a run, which emits an event.
func (b *testStore) emitting(l engine.Loaded, eventType, data string) engine.Commit {
	c := b.parking(l)
	c.Next, c.LastSeq = execution.Completed, 1
	c.Entries = []history.Entry{b.ending(1)}
	c.Emits = []history.Emit{{
		ID: l.Ref + "/emitted", Organization: l.Organization, Workflow: l.Workflow,
		Type: eventType, Data: json.RawMessage(data), Time: b.clock.Now(),
	}}
	return c
}

// strictly tries a commit strictly and requires the given outcome.
func (b *testStore) strictly(items []*item, wantRefused bool) {
	b.t.Helper()
	if err := b.Store.commit(b.t.Context(), items, true); refused(err) != wantRefused || (err != nil) != wantRefused {
		b.t.Fatalf("a strict commit: %v; expected it to be refused: %t", err, wantRefused)
	}
}

func TestAStrictCommitMatchesEventsOfKnownTypes(t *testing.T) {
	t.Parallel()
	b := newTestStore(t)
	woken := map[int64]*engine.Wakeup{}
	b.Woken = func(w engine.Woken) { woken[w.ID] = w.Wakeup }
	one, both := b.startRun(1), b.startRun(1)
	b.commit(b.parking(one, waitFor(0, "com.example.go", history.Filter{"n": "1"})))
	b.commit(b.parking(both, waitFor(0, "com.example.go", history.Filter{"n": "2"}), waitFor(1, "com.example.go", history.Filter{"m": "3"})))

	// The process does not know of the two filters: nothing is stored. It learns them when the commit is repeated.
	items := b.incoming(`{"n": 7}`)
	b.strictly(items, true)
	same(t, "events stored by a commit that was refused", 0, b.count("SELECT count(*) FROM event"))
	if err := b.commitAll(t.Context(), items); err != nil {
		t.Fatal(err)
	}
	same(t, "waits matched by the commit that was repeated", []int{0}, matched(items))

	// Some events have no key of a filter, one has those of two waits of one run.
	items = b.incoming(`{"x": 1}`, `{"n": 1}`, `{"n": 5, "m": 3}`, `{"m": 4}`, `{"n": 2}`, `{"n": 1}`)
	b.strictly(items, false)
	same(t, "waits matched", []int{0, 1, 1, 0, 1, 0}, matched(items))
	same(t, "arrivals of the one run", []string{"0.0 " + items[1].received.ID}, b.arrivals(one.ID))
	same(t, "arrivals of the other", []string{"1.0 " + items[2].received.ID, "0.0 " + items[4].received.ID}, b.arrivals(both.ID))
	_, arrived, err := b.Arrivals(t.Context(), one.ID)
	if err != nil {
		t.Fatal(err)
	}
	want := map[int64]*engine.Wakeup{one.ID: {Wakes: one.Wakes + 1, Arrival: arrived[0]}, both.ID: nil}
	same(t, "arrivals reported with the wake-ups", want, woken)
}

func TestDuplicatesDoNotKeepNewEventsFromBeingStored(t *testing.T) {
	t.Parallel()
	b := newTestStore(t)
	first := b.incoming(`{"n": 1}`)
	if err := b.commitAll(t.Context(), first); err != nil {
		t.Fatal(err)
	}

	repeated := append(b.incoming(`{"n": 9}`), &item{received: &received{newEvent: newEvent{Event: first[0].received.Event}}})
	b.strictly(repeated, true)
	if err := b.commitAll(t.Context(), repeated); err != nil {
		t.Fatal(err)
	}
	same(t, "a new event and a duplicate", []int{0, -1}, matched(repeated))

	twins := b.incoming(`{"n": 9}`, `{"n": 9}`)
	twins[1].received.ID = twins[0].received.ID
	b.strictly(twins, false)
	same(t, "two events of one name", []int{0, -1}, matched(twins))
	same(t, "events stored", 3, b.count("SELECT count(*) FROM event"))
}

// A flow that is registered later starts its runs, although the process knew the type as one without flows.
func TestAFlowMeetsEventsOfATypeThatIsKnown(t *testing.T) {
	t.Parallel()
	b := newTestStore(t)
	met := 0
	b.Met = func() { met++ }
	b.receive(1, "before", "com.example.go", `{}`)
	_, _, err := b.RegisterFlow(t.Context(), flow.Flow{
		Organization: 1, Name: "f", Program: program.Program{Source: []byte("x = 1")}, Inputs: json.RawMessage(`{}`), RegisteredAt: b.clock.Now(),
		Handlers: []program.Handler{{Types: []string{"com.example.go"}, Function: "f"}},
	}, [32]byte{1})
	if err != nil {
		t.Fatal(err)
	}

	b.strictly(b.incoming(`{}`), true)
	b.receive(1, "after", "com.example.go", `{}`)
	b.strictly(b.incoming(`{}`), false)

	starts, err := b.NextFlowWork(t.Context(), b.clock.Now(), 10)
	if err != nil || len(starts) != 2 || met != 2 {
		t.Errorf("%d starts are to be made and %d were reported (%v), expected 2", len(starts), met, err)
	}
}

// What is emitted reaches the runs that wait for it, and is in the outbox once, whether the process knows of their waits or not.
func TestAnEmittedEventReachesItsWait(t *testing.T) {
	t.Parallel()
	b := newTestStore(t)
	var woken []int64
	b.Woken = func(w engine.Woken) { woken = append(woken, w.ID) }
	for n, known := range []bool{false, true} {
		waiter := b.startRun(1)
		b.commit(b.parking(waiter, waitFor(0, event.TypeDeploymentAdvance, history.Filter{"n": "1"})))
		last := b.emitting(b.startRun(1), event.TypeDeploymentAdvance, `{"n": 1}`)
		if filters := b.filters.find(eventType{1, event.TypeDeploymentAdvance}); len(filters.shapes) > 0 != known {
			t.Errorf("emission %d: the process knows the filters %v", n, filters)
		}

		b.commit(last)

		same(t, "arrivals", []string{"0.0 " + last.Emits[0].ID}, b.arrivals(waiter.ID))
		same(t, "executions woken", []int64{waiter.ID}, woken)
		same(t, "events in the outbox", n+1, b.count("SELECT count(*) FROM outbox"))
		same(t, "entries", n+1, b.count("SELECT count(*) FROM entry"))
		woken = nil
	}
	// One of a type that an organization has declared reaches its waits, and stays here.
	waiter := b.startRun(1)
	b.commit(b.parking(waiter, waitFor(0, "com.example.go", history.Filter{"n": "1"})))
	b.commit(b.emitting(b.startRun(1), "com.example.go", `{"n": 1}`))
	same(t, "executions woken", []int64{waiter.ID}, woken)
	same(t, "events in the outbox", 2, b.count("SELECT count(*) FROM outbox"))
	if filters := b.filters.find(eventType{2, event.TypeDeploymentAdvance}); len(filters.shapes) > 0 {
		t.Errorf("another organization has the filters %v", filters)
	}
}

// An event that was emitted before, by a turn that a retry has undone, does not keep the turn from being committed.
func TestWhatWasEmittedBeforeIsEmittedOnce(t *testing.T) {
	t.Parallel()
	b := newTestStore(t)
	c := b.emitting(b.startRun(1), "com.example.go", `{"n": 1}`)
	before := eventAt(1, c.Emits[0].ID, "com.example.go", `{"n": 1}`, b.clock.Now())
	before.Source = "/services/workflow"
	if _, _, err := b.Receive(t.Context(), before); err != nil {
		t.Fatal(err)
	}

	if done := b.commit(c); done.State != execution.Completed {
		t.Errorf("the run is %s, expected it to have completed", done.State)
	}
	same(t, "events", 1, b.count("SELECT count(*) FROM event"))
}

// A strict commit is one round trip to the server, and two where events may have met a wait.
func TestRoundTripsOfACommit(t *testing.T) {
	t.Parallel()
	b := newTestStore(t)
	sent := new(roundTrips)
	config := b.Pool.Config()
	config.ConnConfig.Tracer = sent
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	waiter, ending, step := b.startRun(1), b.startRun(1), b.underWay()
	deps := b.Deps
	deps.Pool = pool
	traced := New(deps)
	taking := func(fn func() error) int {
		t.Helper()
		*sent = 0
		if err := fn(); err != nil {
			t.Fatal(err)
		}
		return int(*sent)
	}
	commit := func(c engine.Commit) func() error {
		return func() error { _, err := traced.Commit(t.Context(), c); return err }
	}
	receive := func(id string) func() error {
		e := eventAt(1, id, "com.example.go", `{"n": 1}`, b.clock.Now())
		return func() error { _, _, err := traced.Receive(t.Context(), e); return err }
	}

	same(t, "a step", 1, taking(commit(b.step(step))))
	same(t, "an end that emits an event", 1, taking(commit(b.emitting(ending, "com.example.go", `{"n": 1}`))))
	same(t, "an event that nobody waits for", 1, taking(receive("unawaited")))
	same(t, "a wait", 2, taking(commit(b.parking(waiter, waitFor(0, "com.example.go", history.Filter{"n": "1"})))))
	if err := receive("first")(); err != nil { // the process learns the filter
		t.Fatal(err)
	}
	same(t, "an event that may have met a wait", 2, taking(receive("second")))
}

// roundTrips counts the batches that are sent, for tests in which nothing is sent at the same time.
type roundTrips int

func (r *roundTrips) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	*r++
	return ctx
}
func (*roundTrips) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (*roundTrips) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}

func (*roundTrips) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}
func (*roundTrips) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}
