package store

import (
	"fmt"
	"strconv"
	"sync"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/testkit/wait"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/execution"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
)

// blocked is how many sessions of the test wait for a lock of another: its connections have the name of its database.
func (b *testStore) blocked() (n int) {
	b.t.Helper()
	err := b.Pool.QueryRow(b.t.Context(), `SELECT count(*) FROM pg_stat_activity
WHERE application_name = current_setting('application_name') AND cardinality(pg_blocking_pids(pid)) > 0`).Scan(&n)
	if err != nil {
		b.t.Fatal(err)
	}
	return n
}

// receiving stores an event in another process, and returns what waits for that.
func (b *testStore) receiving(id, eventType, data string) (done func()) {
	b.t.Helper()
	other := New(b.Deps)
	answered := make(chan error, 1)
	e := eventAt(1, id, eventType, data, b.clock.Now())
	go func() {
		_, _, err := other.Receive(b.t.Context(), e)
		answered <- err
	}()
	return func() {
		b.t.Helper()
		if err := <-answered; err != nil {
			b.t.Errorf("event %s: %v", id, err)
		}
	}
}

// An event waits for a transaction that has its own key, and for no other one (D65): beside one that holds a type as a whole, events and
// waits of other types and other organizations are stored.
func TestAnEventWaitsOnlyForItsOwnKind(t *testing.T) {
	t.Parallel()
	b := newTestStore(t)
	run := b.startRun(1)
	b.commit(b.parking(run, waitFor(0, "y", history.Filter{"id": "1"})))
	holding := b.begin()
	b.lockWhole(holding, 1, "x")
	if lockOf(eventType{1, "x"}) == lockOf(eventType{1, "y"}) || lockOf(eventType{1, "x"}) == lockOf(eventType{2, "x"}) {
		t.Fatal("the names of this test share a lock")
	}

	same(t, "waits matched by an event of another type", 1, b.receive(1, "e", "y", `{"id": 1}`))
	same(t, "waits matched in another organization", 0, b.receive(2, "e", "x", `{"id": 1}`))

	done := b.receiving("own", "x", `{}`)
	wait.For(t, "an event of the type waits", func() bool { return b.blocked() == 1 })
	var waiting int
	if err := b.Pool.QueryRow(t.Context(), "SELECT match_waiting()").Scan(&waiting); err != nil || waiting != 1 {
		t.Errorf("the metric counts %d transactions that wait (%v), expected 1", waiting, err)
	}
	if err := holding.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	done()
}

// Events that no filter asks for do not wait for one another, however many processes store them.
func TestEventsThatNobodyAsksForDoNotWait(t *testing.T) {
	t.Parallel()
	b := newTestStore(t)
	holding := b.begin()
	locks := newMatchLocks()
	locks.event(&newEvent{Event: eventAt(1, "held", "x", `{}`, b.clock.Now()), outside: true})
	if err := locks.lock(t.Context(), b.queries.WithTx(holding)); err != nil {
		t.Fatal(err)
	}
	same(t, "waits matched", 0, b.receive(1, "beside", "x", `{}`))
	done := b.receiving("held", "x", `{}`)
	wait.For(t, "the same event waits", func() bool { return b.blocked() == 1 })
	if err := holding.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	done()
}

// A wait for one of two types is met by both at the same moment. The second event is for another wait of the run, and reaches it: were
// executions not locked before the look, it would be given to the first wait once more, come to nothing there, and be lost to the other.
func TestTwoEventsMeetOneWaitAtTheSameMoment(t *testing.T) {
	t.Parallel()
	b := newTestStore(t)
	run := b.startRun(1)
	b.commit(b.parking(run, waitFor(0, "x,y", nil), waitFor(1, "y", nil)))
	holding := b.begin()
	if _, err := holding.Exec(t.Context(), "SELECT FROM execution WHERE id = $1 FOR NO KEY UPDATE", run.ID); err != nil {
		t.Fatal(err)
	}
	first := b.receiving("first", "x", `{}`)
	wait.For(t, "the first event waits for the run", func() bool { return b.blocked() == 1 })
	second := b.receiving("second", "y", `{}`)
	wait.For(t, "the second event waits, too", func() bool { return b.blocked() == 2 })
	if err := holding.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	first()
	second()
	same(t, "arrivals", []string{"0.0 first", "1.0 second"}, b.arrivals(run.ID))
}

// Three processes store waits and events of many types at once, also each other's runs' and in batches of more keys than one transaction
// locks: no wait that is open has an event that it could have and has not, and none has one that another wait of its run has.
func TestThreeEnginesMissNothing(t *testing.T) {
	t.Parallel()
	b := newTestStore(t)
	engines := []*Store{b.Store, New(b.Deps), New(b.Deps)}
	const runs = 240
	var all sync.WaitGroup
	for i := range runs {
		n := b.startRun(1)
		filter := history.Filter{"id": strconv.Itoa(i)}
		this, next := fmt.Sprintf("x%d", i%5), fmt.Sprintf("x%d", (i+1)%5)
		turn := b.parking(n, waitFor(0, this+","+next, filter), waitFor(1, next, filter), waitFor(2, this, filter))
		all.Go(func() {
			if _, err := engines[i%3].Commit(t.Context(), turn); err != nil {
				t.Error(err)
			}
		})
		for k, name := range []string{this, next, next} {
			e := eventAt(1, fmt.Sprintf("%d-%d", i, k), name, fmt.Sprintf(`{"id": %d}`, i), b.clock.Now())
			for again := range 2 { // at least once, to two of the processes
				all.Go(func() {
					if _, _, err := engines[(i+k+again)%3].Receive(t.Context(), e); err != nil {
						t.Error(err)
					}
				})
			}
		}
		if i%120 == 119 {
			all.Wait()
		}
	}
	var events, missed, delivered int
	err := b.Pool.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM event), (
    SELECT count(*) FROM wait w JOIN execution x ON x.id = w.execution JOIN event_key k ON k.key = w.key AND k.event > x.start_event
    WHERE NOT EXISTS (SELECT FROM delivery d WHERE d.execution = w.execution AND d.branch = w.branch AND d.op = w.op)
      AND NOT EXISTS (SELECT FROM delivery d WHERE d.execution = w.execution AND d.event = k.event)
), (SELECT count(*) FROM delivery)`).Scan(&events, &missed, &delivered)
	if err != nil {
		t.Fatal(err)
	}
	if events != 3*runs || missed > 0 || delivered < 2*runs {
		t.Errorf("found %d events, %d that an open wait was to get, %d delivered; expected %d, 0, and at least %d",
			events, missed, delivered, 3*runs, 2*runs)
	}
}

// A transaction of more keys than it may lock locks their types as a whole, so that the server's table of locks does not run full.
func TestManyKeysAreTheirTypes(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		keys  int
		whole bool
	}{{keyLocks - 1, false}, {keyLocks, true}} {
		b := newTestStore(t)
		locks := newMatchLocks()
		for i := range test.keys {
			key := history.Key(1, "x", []string{"id"}, []string{strconv.Itoa(i)})
			locks.event(&newEvent{Event: eventAt(1, "e", "x", `{}`, b.clock.Now()), keys: [][]byte{key[:]}, outside: true})
		}
		holding := b.begin()
		if err := locks.lock(t.Context(), b.queries.WithTx(holding)); err != nil {
			t.Fatal(err)
		}
		var locked, all int
		err := holding.QueryRow(t.Context(), `SELECT count(*) FILTER (WHERE mode = 'ExclusiveLock'), count(*) FROM pg_locks
WHERE locktype = 'advisory' AND pid = pg_backend_pid()`).Scan(&locked, &all)
		if err != nil {
			t.Fatal(err)
		}
		want := test.keys + 1 // and the name
		if test.whole {
			want = 1
		}
		if locked != want || all > typeLocks+keyLocks+1 {
			t.Errorf("with %d keys: found %d locks for itself, %d in all; expected %d for itself", test.keys, locked, all, want)
		}
	}
}

// While processes of an earlier release run beside those of this one, as during an upgrade, each keeps out of the other's way: theirs take
// one lock for all.
func TestAnEarlierReleaseIsKeptOut(t *testing.T) {
	t.Parallel()
	b := newTestStore(t)
	holding := b.begin()
	b.lockWhole(holding, 1, "x")
	var free bool
	err := b.Pool.QueryRow(t.Context(), "SELECT pg_try_advisory_xact_lock(hashtextextended(current_schema() || '/match', 0))").Scan(&free)
	if err != nil || free {
		t.Errorf("beside a transaction that matches, the lock of earlier releases is free: %t (%v)", free, err)
	}
}

// A process that shuts down owns nothing afterwards, whatever its other parts commit meanwhile: it waits for transactions under way, and
// what comes later has no owner. Another process claims all of it at once, and no crash is counted.
func TestAReleaseWaitsForTransactionsUnderWay(t *testing.T) {
	t.Parallel()
	b := newTestStore(t)
	woken, later := b.startRun(1), b.startRun(1)
	b.commit(b.parking(woken, waitFor(0, "x", nil)))
	b.commit(b.parking(later, waitFor(0, "y", nil)))
	holding := b.begin()
	if _, err := holding.Exec(t.Context(), `SELECT FROM execution WHERE id = $1 FOR UPDATE`, woken.ID); err != nil {
		t.Fatal(err)
	}
	received := make(chan error, 1)
	e := eventAt(1, "e", "x", `{}`, b.clock.Now())
	go func() {
		_, _, err := b.Receive(t.Context(), e)
		received <- err
	}()
	wait.For(t, "the run is about to be woken", func() bool { return b.blocked() == 1 })
	released := make(chan error, 1)
	go func() { released <- b.Release(t.Context(), b.lease) }()
	wait.For(t, "the release waits, or has ended", func() bool {
		b.owning.mu.Lock()
		defer b.owning.mu.Unlock()
		return b.owning.over != nil || len(released) > 0
	})
	if err := holding.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	for what, done := range map[string]chan error{"receive": received, "release": released} {
		if err := <-done; err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	b.receive(1, "later", "y", `{}`)
	started := b.owned(1)
	created, err := b.Create(t.Context(), started)
	if err != nil {
		t.Fatal(err)
	}
	begun, _ := b.ahead(b.owned(1), execution.Running)
	other := newTestStoreOn(t, b.Pool, b.clock)
	want := []int64{woken.ID, later.ID, created.ID, begun}
	same(t, "claimed by another process", want, other.claim(other.acquire("two")))
	for _, id := range want {
		if _, _, crashes := b.row(id); crashes != 0 {
			t.Errorf("execution %d: found %d crashes, expected none: the process has shut down", id, crashes)
		}
	}
}
