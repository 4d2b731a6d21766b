package store

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/agent"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/engine"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/execution"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
)

func TestMatching(t *testing.T) {
	t.Parallel()
	id1 := history.Filter{"id": "1"}

	t.Run("waits for the same events get one each, in the order of the events", func(t *testing.T) {
		t.Parallel()
		b := newTestStore(t)
		run := b.startRun(1)
		b.receive(1, "first", "x", `{"id": 1}`)
		b.receive(1, "second", "x", `{"id": 1}`)

		b.commit(b.parking(run, waitFor(0, "x", id1), waitFor(1, "x", id1), waitFor(2, "x", id1)))

		same(t, "arrivals", []string{"0.0 first", "1.0 second"}, b.arrivals(run.ID))
		same(t, "waits matched by a third event", 1, b.receive(1, "third", "x", `{"id": 1}`))
		same(t, "waits matched by a fourth event", 0, b.receive(1, "fourth", "x", `{"id": 1}`))
		same(t, "arrivals", []string{"0.0 first", "1.0 second", "2.0 third"}, b.arrivals(run.ID))
	})

	t.Run("an event older than the run does not match", func(t *testing.T) {
		t.Parallel()
		b := newTestStore(t)
		b.receive(1, "older", "x", `{"id": 1}`)
		run := b.startRun(1)

		b.commit(b.parking(run, waitFor(0, "x", id1)))

		same(t, "arrivals", []string(nil), b.arrivals(run.ID))
	})

	t.Run("an event of another organization does not match", func(t *testing.T) {
		t.Parallel()
		b := newTestStore(t)
		run := b.startRun(2)
		b.receive(1, "earlier", "x", `{"id": 1}`)

		b.commit(b.parking(run, waitFor(0, "x", id1)))

		same(t, "waits matched by a later event", 0, b.receive(1, "later", "x", `{"id": 1}`))
		same(t, "arrivals", []string(nil), b.arrivals(run.ID))
	})

	t.Run("a duplicate does not match", func(t *testing.T) {
		t.Parallel()
		b := newTestStore(t)
		run := b.startRun(1)
		b.commit(b.parking(run, waitFor(0, "x", id1), waitFor(1, "x", id1)))

		same(t, "waits matched by an event", 1, b.receive(1, "event", "x", `{"id": 1}`))
		same(t, "waits matched by the same event", 0, b.receive(1, "event", "x", `{"id": 1}`))
	})

	t.Run("a wait for several types gets the first event of any of them", func(t *testing.T) {
		t.Parallel()
		b := newTestStore(t)
		run := b.startRun(1)
		b.commit(b.parking(run, waitFor(0, "y,x,x", id1)))

		same(t, "waits matched by an event of one type", 1, b.receive(1, "x", "x", `{"id": 1}`))
		same(t, "waits matched by an event of the other type", 0, b.receive(1, "y", "y", `{"id": 1}`))
	})

	t.Run("an event that the run has consumed does not match again", func(t *testing.T) {
		t.Parallel()
		b := newTestStore(t)
		run := b.startRun(1)
		b.commit(b.parking(run, waitFor(0, "x", id1)))
		b.receive(1, "first", "x", `{"id": 1}`)
		b.receive(1, "second", "x", `{"id": 1}`)

		run = b.load(run.ID)
		again := b.consuming(run)
		again.Next, again.Open = execution.Parked, b.parking(run, waitFor(1, "x", id1)).Open
		b.commit(again)

		same(t, "arrivals", []string{"1.0 second"}, b.arrivals(run.ID))
	})
}

func TestFiltersMatchValues(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		filter history.Filter
		data   string
		want   int
	}{
		{"a number", history.Filter{"id": "1"}, `{"id": 1}`, 1},
		{"a number with a fraction of zero", history.Filter{"id": "1"}, `{"id": 1.0}`, 1},
		{"a text that looks like a number", history.Filter{"id": `"1"`}, `{"id": "1"}`, 1},
		{"a number where a text is wanted", history.Filter{"id": `"25"`}, `{"id": 25}`, 0},
		{"a member of an object", history.Filter{"deep.s": "25"}, `{"deep": {"s": 25}}`, 1},
		{"a list", history.Filter{"id": "1"}, `{"id": [1]}`, 0},
		{"a missing member", history.Filter{"id": "1"}, `{}`, 0},
		{"null instead of an object", history.Filter{"id": "1"}, `null`, 0},
		{"anything, without a filter", nil, `null`, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			b := newTestStore(t)
			run := b.startRun(1)
			b.commit(b.parking(run, waitFor(0, "x", test.filter)))

			same(t, "waits matched", test.want, b.receive(1, "event", "x", test.data))
		})
	}
}

// A wait times out while an event arrives for it: another wait of the run for the same events gets it.
func TestAnEventForAWaitThatGaveUpReachesTheNext(t *testing.T) {
	t.Parallel()
	b := newTestStore(t)
	run := b.startRun(1)
	b.commit(b.parking(run, waitFor(0, "x", nil), waitFor(1, "x", nil)))
	b.clock.Advance(time.Hour)
	if _, _, err := b.FireTimers(t.Context(), b.clock.Now(), 10); err != nil {
		t.Fatal(err)
	}
	run = b.load(run.ID)
	b.receive(1, "late", "x", `{}`)
	same(t, "arrivals before the timeout is recorded", []string{"0.0 late", "0.0 timer", "1.0 timer"}, b.arrivals(run.ID))

	timeout := b.parking(run)
	timeout.LastSeq++
	timeout.Closed = []history.OpRef{{Branch: 0}}
	timeout.Entries = []history.Entry{b.entry(timeout.LastSeq, timeout.Closed[0], history.KindWait, "null")}
	if done := b.commit(timeout); done.State != execution.Running {
		t.Errorf("with an event for the other wait the run is %s, expected running", done.State)
	}

	same(t, "arrivals after the timeout was recorded", []string{"1.0 late", "1.0 timer"}, b.arrivals(run.ID))
}

// Two processes commit an event and its wait at the same time, for many pairs, with new filters and with known ones: none may miss each
// other.
func TestEventsRaceWaits(t *testing.T) {
	t.Parallel()
	b := newTestStore(t)
	other := New(b.Deps) // another process: it shares nothing but the database
	const pairs = 600
	executions := make([]engine.Loaded, pairs)
	var started sync.WaitGroup
	for i := range executions {
		n := b.start(1)
		n.Owner = &b.lease
		started.Go(func() {
			c, err := b.Create(t.Context(), n)
			if err != nil {
				t.Error(err)
			}
			executions[i] = engine.Loaded{Execution: execution.Execution{ID: c.ID, Ref: c.Ref, Organization: 1, Workflow: n.Workflow}}
		})
	}
	started.Wait()
	eventType := func(i int) string { return "x" + strconv.Itoa(i/20) } // every twentieth pair has a type, so a shape, of its own
	var race sync.WaitGroup
	for i, l := range executions {
		begin := make(chan struct{})
		race.Go(func() {
			<-begin
			if _, err := b.Commit(t.Context(), b.parking(l, waitFor(0, eventType(i), history.Filter{"id": strconv.Itoa(i)}))); err != nil {
				t.Error(err)
			}
		})
		race.Go(func() {
			<-begin
			e := eventAt(1, strconv.Itoa(i), eventType(i), fmt.Sprintf(`{"id": %d}`, i), b.clock.Now())
			if _, _, err := other.Receive(t.Context(), e); err != nil {
				t.Error(err)
			}
		})
		close(begin)
		if i%32 == 31 {
			race.Wait()
		}
	}
	race.Wait()
	lost := 0
	for i, l := range executions {
		if got := b.arrivals(l.ID); len(got) != 1 || got[0] != "0.0 "+strconv.Itoa(i) {
			lost++
		}
	}
	if lost > 0 {
		t.Errorf("%d of %d pairs missed each other", lost, pairs)
	}
}

// Why there are locks of matching: two transactions that each store their side and look up the other one before they commit do not see each
// other, and the run would wait forever.
func TestLookingWithoutTheLockMissesEvents(t *testing.T) {
	t.Parallel()
	b := newTestStore(t)
	l := b.startRun(1)
	key := history.Key(1, "x", nil, nil)
	if _, err := b.shape(t.Context(), 1, "x", nil); err != nil {
		t.Fatal(err)
	}
	waits, events := b.begin(), b.begin()
	exec := func(tx pgx.Tx, sql string, args ...any) {
		t.Helper()
		if _, err := tx.Exec(t.Context(), sql, args...); err != nil {
			t.Fatal(err)
		}
	}
	exec(waits, `INSERT INTO wait (execution, branch, op, key, shape, type, filter, created_at)
SELECT $1, 0, 0, $2, id, 'x', '{}', now() FROM shape`, l.ID, key[:])
	exec(events, `INSERT INTO event (organization, source, event_id, type, data, occurred_at, received_at)
VALUES (1, '/t', 'e', 'x', '{}', now(), now())`)
	exec(events, "INSERT INTO event_key (key, event) SELECT $1, max(id) FROM event", key[:])
	for name, look := range map[string]struct {
		tx  pgx.Tx
		sql string
	}{
		"the wait's side":  {waits, "SELECT count(*) FROM event_key WHERE key = $1"},
		"the event's side": {events, "SELECT count(*) FROM wait WHERE key = $1"},
	} {
		var found int
		if err := look.tx.QueryRow(t.Context(), look.sql, key[:]).Scan(&found); err != nil || found != 0 {
			t.Errorf("%s found %d, error %v: then the lock is not needed", name, found, err)
		}
	}
	for _, tx := range []pgx.Tx{waits, events} {
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	same(t, "arrived", []string(nil), b.arrivals(l.ID))
}

// lockWhole locks a type of events as a whole in tx.
func (b *testStore) lockWhole(tx pgx.Tx, organization int64, name string) {
	b.t.Helper()
	locks := newMatchLocks()
	locks.whole(eventType{organization, name})
	if err := locks.lock(b.t.Context(), b.queries.WithTx(tx)); err != nil {
		b.t.Fatal(err)
	}
}

func (b *testStore) begin() pgx.Tx {
	b.t.Helper()
	tx, err := b.Pool.Begin(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = tx.Rollback(context.WithoutCancel(b.t.Context())) })
	return tx
}

// A process stalls between locking and its commit.
func TestAProcessThatStallsWithTheMatchLockLosesIt(t *testing.T) {
	t.Parallel()
	b := newTestStore(t)
	stalled := b.begin()
	b.lockWhole(stalled, 1, "x")
	if _, duplicate, err := b.Receive(t.Context(), eventAt(1, "e", "x", "{}", b.clock.Now())); err != nil || duplicate {
		t.Errorf("beside a stalled process: duplicate %t, error %v", duplicate, err)
	}
	if err := stalled.Commit(t.Context()); err == nil {
		t.Error("the stalled transaction committed")
	}
}

// The rows that are read for one event do not depend on the number of parked runs.
func TestWorkIsProportionalToMatches(t *testing.T) {
	t.Parallel()
	b := newTestStore(t)
	pool, err := pg.Open(t.Context(), pg.Config{URL: b.Pool.Config().ConnString(), Schema: schemaOf(b), MaxConns: 1, Settings: Settings()})
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	b.Pool = pool
	b.Store = New(b.Deps)
	l := b.startRun(1)
	b.commit(b.parking(l, waitFor(0, "x", history.Filter{"id": "1"})))
	few := b.rowsRead(func() { same(t, "matched", 1, b.receive(1, "first", "x", `{"id": 1}`)) })
	b.claim(b.lease)
	b.commit(b.consuming(b.load(l.ID)))

	// Parked runs by the thousand, with a wait and a timer each; they are copies of the one that is parked already.
	for _, sql := range []string{
		`INSERT INTO execution (ref, organization, workflow, state, program, modules, inputs, secrets, labels, start_event, created_at)
SELECT ref || n, organization, workflow || n, 'parked', program, modules, inputs, secrets, labels, start_event, created_at
FROM execution, generate_series(1, 20000) n WHERE id = (SELECT min(id) FROM execution)`,
		`INSERT INTO wait (execution, branch, op, key, shape, type, filter, created_at)
SELECT e.id, 0, 0, decode(md5(e.id::text), 'hex'), s.id, 'x', '{}', now() FROM execution e, shape s WHERE e.workflow <> 'w-1'`,
		`INSERT INTO timer (execution, branch, op, due) SELECT id, 0, 0, now() + interval '1 day' FROM execution WHERE workflow <> 'w-1'`,
	} {
		if _, err := pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	l = b.load(l.ID)
	b.commit(b.parking(l, waitFor(1, "x", history.Filter{"id": "1"})))
	many := b.rowsRead(func() { same(t, "matched", 1, b.receive(1, "second", "x", `{"id": 1}`)) })
	if many > few+20 {
		t.Errorf("an event reads %d rows beside 20,000 parked runs, %d beside none", many, few)
	}
	idle := b.rowsRead(func() {
		if fired, _, err := b.FireTimers(t.Context(), b.clock.Now(), 500); err != nil || fired != 0 {
			t.Error(fired, err)
		}
		if ids := b.claim(b.lease, l.ID); len(ids) != 0 {
			t.Error("claimed", ids)
		}
	})
	if idle > 20 {
		t.Errorf("a look for something to do reads %d rows", idle)
	}
}

// consuming is a turn that records the events that have arrived, and keeps the run running.
func (b *testStore) consuming(l engine.Loaded) engine.Commit {
	c := b.parking(l)
	c.Next = execution.Running
	for _, a := range l.Arrived {
		c.LastSeq++
		c.Entries = append(c.Entries, history.Entry{Seq: c.LastSeq, Op: a.Op, Kind: history.KindWait, Value: a.Value, Event: a.Event, At: c.At})
		c.Closed = append(c.Closed, a.Op)
	}
	return c
}

// rowsRead is the number of rows that fn reads on the only connection, as the server counts them.
func (b *testStore) rowsRead(fn func()) int64 {
	b.t.Helper()
	count := func() (n int64) {
		for range 2 { // the first has the counters written, the second reads them
			err := b.Pool.QueryRow(b.t.Context(), `SELECT sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0))::bigint
FROM pg_stat_user_tables, (SELECT pg_stat_force_next_flush()) AS f WHERE schemaname = current_schema()`).Scan(&n)
			if err != nil {
				b.t.Fatal(err)
			}
		}
		return n
	}
	before := count()
	fn()
	return count() - before
}

func schemaOf(b *testStore) string {
	b.t.Helper()
	var schema string
	if err := b.Pool.QueryRow(b.t.Context(), "SELECT current_schema()").Scan(&schema); err != nil {
		b.t.Fatal(err)
	}
	return schema
}

// A process registered a shape and died before it stored the keys of older events.
func TestAFilterNobodyHasUsedFindsOlderEvents(t *testing.T) {
	t.Parallel()
	b := newTestStore(t)
	l := b.startRun(1)
	b.receive(1, "before", "x", `{"id": 1}`)
	if _, err := b.Pool.Exec(t.Context(), "INSERT INTO shape (organization, type, paths) VALUES (1, 'x', '{id}')"); err != nil {
		t.Fatal(err)
	}
	if done := b.commit(b.parking(l, waitFor(0, "x", history.Filter{"id": "1"}))); done.State != execution.Running {
		t.Error("state", done.State)
	}
	same(t, "found", []string{"0.0 before"}, b.arrivals(l.ID))
}

func TestForget(t *testing.T) {
	t.Parallel()
	b := newTestStore(t)
	l := b.startRun(1)
	b.receive(1, "old", "x", "{}")
	b.commit(b.parking(l, waitFor(0, "y", nil)))
	b.receive(1, "delivered", "y", "{}")
	b.clock.Advance(time.Hour)
	b.receive(1, "young", "x", "{}")
	if err := b.Forget(t.Context(), b.clock.Now().Add(-time.Minute)); err != nil {
		t.Fatal(err)
	}
	rows, err := b.Pool.Query(t.Context(), "SELECT event_id FROM event ORDER BY id")
	if err != nil {
		t.Fatal(err)
	}
	left, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	same(t, "left", []string{"delivered", "young"}, left)
}

func TestCalls(t *testing.T) {
	t.Parallel()
	b := newTestStore(t)
	l := b.startRun(1)
	called := history.Op{
		Ref: history.OpRef{Branch: 0, Index: 3}, Kind: history.KindRun, Name: "k8s.get", Args: []byte(`{"a":1}`), Timeout: time.Minute,
	}
	deadline := b.clock.Now().Add(time.Minute)
	b.commit(b.parking(l, called))
	id := l.Ref + "/0.3"
	due := func(want ...int) {
		t.Helper()
		calls, err := b.NextCalls(t.Context(), b.clock.Now(), 10)
		if err != nil {
			t.Fatal(err)
		}
		var attempts []int
		for _, c := range calls {
			attempts = append(attempts, c.Attempt)
			same(t, "a call", []any{id, int64(7), "k8s.get", `{"a":1}`, true},
				[]any{c.ID, c.Agent, c.Function, string(c.Args), c.Deadline.Equal(deadline)})
		}
		same(t, "attempts", want, attempts)
	}
	answer := func(agentID int64, value string, refusal *history.FunctionError) error {
		a := agent.Answer{Call: id, Agent: agentID, Error: refusal}
		if value != "" {
			a.Value = []byte(value)
		}
		return b.Answer(t.Context(), a, b.clock.Now().Add(time.Second))
	}
	due(1)
	due()
	b.clock.Advance(2 * time.Second)
	due(2)
	b.clock.Advance(2 * time.Second)
	due() // the interval grows
	if err := answer(8, `{"of": "another agent"}`, nil); !fault.Is(err, fault.Denied) {
		t.Error("another agent's answer:", err)
	}
	if err := answer(7, "", &history.FunctionError{Code: "unreachable", Retryable: true}); err != nil {
		t.Fatal(err)
	}
	same(t, "after a retryable error", []string(nil), b.arrivals(l.ID))
	b.clock.Advance(time.Second)
	due(3)
	for _, value := range []string{`{"first": true}`, `{"second": true}`} {
		if err := answer(7, value, nil); err != nil {
			t.Fatal(err)
		}
	}
	b.clock.Advance(30 * time.Second)
	due()
	same(t, "claimed", []int64{l.ID}, b.claim(b.lease))
	l = b.load(l.ID)
	if len(l.Arrived) != 1 || string(l.Arrived[0].Value) != `{"first": true}` {
		t.Errorf("arrived %+v", l.Arrived)
	}
	c := b.parking(l)
	c.Closed = []history.OpRef{called.Ref}
	b.commit(c)
	if err := answer(7, `{"late": true}`, nil); err != nil {
		t.Error("a late answer:", err)
	}
	same(t, "after all", []string(nil), b.arrivals(l.ID))
}

// TestAnAnswerOfAnotherSenderMeetsNoWait (D47): one that an earlier release has let in is stored, and no wait finds it: neither one that is
// open, nor one that opens later, with a filter that is known or with a new one.
func TestAnAnswerOfAnotherSenderMeetsNoWait(t *testing.T) {
	t.Parallel()
	b := newTestStore(t)
	run := b.startRun(1)
	approved := func(id, source string) int {
		matched, _, err := b.Receive(t.Context(), history.Event{
			Organization: 1, Source: source, ID: id, Type: event.TypeApprovalResolved, Data: []byte(`{"rollout_id": 7, "gate_id": "production"}`),
			Time: b.Clock.Now(),
		})
		if err != nil {
			t.Fatal(err)
		}
		return matched
	}
	byRollout, byGate := history.Filter{"rollout_id": "7"}, history.Filter{"gate_id": `"production"`}
	approved("before", "/ci")
	b.commit(b.parking(run, waitFor(0, event.TypeApprovalResolved, byRollout)))
	for _, source := range []string{"/ci", event.SourceWorkflow, "/agents/42"} {
		same(t, "waits matched from "+source, 0, approved("forged", source))
	}
	other := b.startRun(1)
	b.commit(b.parking(other, waitFor(0, event.TypeApprovalResolved, byGate)))
	same(t, "arrivals", []string(nil), b.arrivals(run.ID))
	same(t, "arrivals", []string(nil), b.arrivals(other.ID))
	same(t, "waits matched from the domain service", 2, approved("real", event.SourceDomain))
}
