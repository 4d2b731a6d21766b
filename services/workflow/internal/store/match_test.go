package store

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core"
)

func TestMatching(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.receive(1, "too-early", "x", `{"id": 1}`)
	l, other := b.running(1), b.running(2)
	b.receive(1, "first", "x", `{"id": 1, "deep": {"s": "25", "n": 25}}`)
	b.receive(1, "second", "x", `{"id": 1}`)
	b.receive(1, "list", "x", `{"id": [1]}`)
	b.receive(1, "nothing", "x", `null`)
	b.commit(b.turn(other, wait(0, "x", core.Filter{"id": "1"})))
	same(t, "another organization's events", []string(nil), b.arrived(other.ID))

	b.commit(b.turn(l,
		wait(0, "x", core.Filter{"id": "1"}),
		wait(1, "x", core.Filter{"id": "1"}),
		wait(2, "x", core.Filter{"id": "1"}),
		wait(3, "x", core.Filter{"deep.n": `"25"`}),
		wait(4, "y,x,x", core.Filter{"id": `"1"`}),
		wait(5, "y", nil),
		wait(6, "x", core.Filter{"deep.s": "25"}),
	))
	same(t, "each event once, in order", []string{"0.0 first", "1.0 second"}, b.arrived(l.ID))
	for _, late := range []struct {
		id, eventType, data string
		matched             int
	}{
		{"third", "x", `{"id": 1.0}`, 1},
		{"fourth", "x", `{"id": 1}`, 0},
		{"text", "x", `{"id": "1"}`, 1},
		{"any", "y", `{"id": 1}`, 1},
		{"any-again", "y", `{}`, 0},
		{"deep", "x", `{"deep": {"s": 25}}`, 1},
	} {
		same(t, "waits matched by "+late.id, late.matched, b.receive(1, late.id, late.eventType, late.data))
		same(t, "waits matched by "+late.id+" again", 0, b.receive(1, late.id, late.eventType, late.data))
	}
	same(t, "in the end", []string{"0.0 first", "1.0 second", "2.0 third", "4.0 text", "5.0 any", "6.0 deep"}, b.arrived(l.ID))

	// What has become part of the history does not come again.
	b.claim(b.lease)
	l = b.load(l.ID)
	c := b.turn(l, wait(7, "x", core.Filter{"id": "1"}))
	for _, a := range l.Arrived {
		c.LastSeq++
		c.Entries = append(c.Entries, core.Entry{Seq: c.LastSeq, Op: a.Op, Kind: core.KindWait, Value: a.Value, Event: a.Event, At: c.At})
		c.Closed = append(c.Closed, a.Op)
	}
	b.commit(c)
	same(t, "the next wait", []string{"7.0 fourth"}, b.arrived(l.ID))
}

// TestAnEventForAWaitThatGaveUpIsThereForTheNext has an event come for a wait whose timeout is being recorded: another wait of the run
// for the same gets it.
func TestAnEventForAWaitThatGaveUpIsThereForTheNext(t *testing.T) {
	t.Parallel()
	b := setup(t)
	l := b.running(1)
	b.commit(b.turn(l, wait(0, "x", nil), wait(1, "x", nil)))
	b.clock.Advance(time.Hour)
	if _, _, err := b.FireTimers(t.Context(), b.clock.Now(), 10); err != nil {
		t.Fatal(err)
	}
	b.claim(b.lease)
	l = b.load(l.ID)
	b.receive(1, "late", "x", `{}`)
	same(t, "before the timeout is recorded", []string{"0.0 late", "0.0 timer", "1.0 timer"}, b.arrived(l.ID))
	c := b.turn(l)
	c.LastSeq++
	gone := core.OpRef{Branch: 0}
	c.Entries = append(c.Entries, core.Entry{Seq: c.LastSeq, Op: gone, Kind: core.KindWait, Value: json.RawMessage("null"), At: c.At})
	c.Closed = append(c.Closed, gone)
	if done := b.commit(c); done.State != core.Running {
		t.Errorf("with an event for the other wait it is %s, expected running", done.State)
	}
	same(t, "afterwards", []string{"1.0 late", "1.0 timer"}, b.arrived(l.ID))
}

// TestEventsRaceWaits has an event and its wait committed at the same moment by two processes, many times, under filters
// that are new and filters that are known: no pair may miss each other.
func TestEventsRaceWaits(t *testing.T) {
	t.Parallel()
	b := setup(t)
	other := New(b.Deps) // another process: it shares nothing but the database
	const pairs = 600
	executions := make([]core.Loaded, pairs)
	var started sync.WaitGroup
	for i := range executions {
		n := b.start(1)
		n.Owner = &b.lease
		started.Go(func() {
			c, err := b.Create(t.Context(), n)
			if err != nil {
				t.Error(err)
			}
			executions[i] = core.Loaded{Execution: core.Execution{ID: c.ID, Ref: c.Ref, Organization: 1, Workflow: n.Workflow}}
		})
	}
	started.Wait()
	eventType := func(i int) string { return "x" + strconv.Itoa(i/20) } // every twentieth pair has a type, so a shape, of its own
	var race sync.WaitGroup
	for i, l := range executions {
		begin := make(chan struct{})
		race.Go(func() {
			<-begin
			if _, err := b.Commit(t.Context(), b.turn(l, wait(0, eventType(i), core.Filter{"id": strconv.Itoa(i)}))); err != nil {
				t.Error(err)
			}
		})
		race.Go(func() {
			<-begin
			e := happened(1, strconv.Itoa(i), eventType(i), fmt.Sprintf(`{"id": %d}`, i), b.clock.Now())
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
		if got := b.arrived(l.ID); len(got) != 1 || got[0] != "0.0 "+strconv.Itoa(i) {
			lost++
		}
	}
	if lost > 0 {
		t.Errorf("%d of %d pairs missed each other", lost, pairs)
	}
}

// TestLookingWithoutTheLockMissesEvents shows what the match lock is for: two transactions that each make their side known
// and look for the other before they commit see nothing of each other, and the wait sleeps for ever.
func TestLookingWithoutTheLockMissesEvents(t *testing.T) {
	t.Parallel()
	b := setup(t)
	l := b.running(1)
	key := core.Key(1, "x", nil, nil)
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
	exec(waits, "INSERT INTO wait (execution, branch, op, key, shape, type, filter, created_at) SELECT $1, 0, 0, $2, id, 'x', '{}', now() FROM shape", l.ID, key[:])
	exec(events, `INSERT INTO event (organization, source, event_id, type, data, occurred_at, received_at) VALUES (1, '/t', 'e', 'x', '{}', now(), now())`)
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
	same(t, "arrived", []string(nil), b.arrived(l.ID))
}

func (b *bench) begin() pgx.Tx {
	b.t.Helper()
	tx, err := b.Pool.Begin(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = tx.Rollback(context.WithoutCancel(b.t.Context())) })
	return tx
}

// TestAProcessThatStallsWithTheMatchLockLosesIt has one stop between its look and its commit.
func TestAProcessThatStallsWithTheMatchLockLosesIt(t *testing.T) {
	t.Parallel()
	b := setup(t)
	stalled := b.begin()
	if err := b.queries.WithTx(stalled).LockMatching(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, duplicate, err := b.Receive(t.Context(), happened(1, "e", "x", "{}", b.clock.Now())); err != nil || duplicate {
		t.Errorf("beside a stalled process: duplicate %t, error %v", duplicate, err)
	}
	if err := stalled.Commit(t.Context()); err == nil {
		t.Error("the stalled transaction committed")
	}
}

// TestWorkIsProportionalToMatches counts the rows that one event reads beside a few parked runs, and beside many.
func TestWorkIsProportionalToMatches(t *testing.T) {
	t.Parallel()
	b := setup(t)
	pool, err := pg.Open(t.Context(), pg.Config{URL: b.Pool.Config().ConnString(), Schema: schemaOf(b), MaxConns: 1, Settings: Settings()})
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	b.Pool = pool
	b.Store = New(b.Deps)
	l := b.running(1)
	b.commit(b.turn(l, wait(0, "x", core.Filter{"id": "1"})))
	few := b.rowsRead(func() { same(t, "matched", 1, b.receive(1, "first", "x", `{"id": 1}`)) })
	b.commitArrived(l)

	// Parked runs by the thousand, with a wait and a timer each; they are copies of the one that is parked already.
	for _, sql := range []string{
		`INSERT INTO execution (ref, organization, workflow, state, program, modules, inputs, secrets, labels, start_event, created_at)
SELECT ref || n, organization, workflow || n, 1, program, modules, inputs, secrets, labels, start_event, created_at FROM execution, generate_series(1, 20000) n WHERE id = (SELECT min(id) FROM execution)`,
		`INSERT INTO wait (execution, branch, op, key, shape, type, filter, created_at) SELECT e.id, 0, 0, decode(md5(e.id::text), 'hex'), s.id, 'x', '{}', now() FROM execution e, shape s WHERE e.workflow <> 'w-1'`,
		`INSERT INTO timer (execution, branch, op, due) SELECT id, 0, 0, now() + interval '1 day' FROM execution WHERE workflow <> 'w-1'`,
	} {
		if _, err := pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	l = b.load(l.ID)
	b.commit(b.turn(l, wait(1, "x", core.Filter{"id": "1"})))
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

// commitArrived takes what has arrived into the history and keeps the run.
func (b *bench) commitArrived(l core.Loaded) {
	b.t.Helper()
	b.claim(b.lease)
	l = b.load(l.ID)
	c := b.turn(l)
	c.Next = core.Running
	for _, a := range l.Arrived {
		c.LastSeq++
		c.Entries = append(c.Entries, core.Entry{Seq: c.LastSeq, Op: a.Op, Kind: core.KindWait, Value: a.Value, Event: a.Event, At: c.At})
		c.Closed = append(c.Closed, a.Op)
	}
	b.commit(c)
}

// rowsRead are the rows that fn has the one connection read, as the server counts them.
func (b *bench) rowsRead(fn func()) int64 {
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

func schemaOf(b *bench) string {
	b.t.Helper()
	var schema string
	if err := b.Pool.QueryRow(b.t.Context(), "SELECT current_schema()").Scan(&schema); err != nil {
		b.t.Fatal(err)
	}
	return schema
}

// TestAFilterNobodyHasUsedFindsOlderEvents has a shape that a process registered and then died, before it gave the older
// events their keys.
func TestAFilterNobodyHasUsedFindsOlderEvents(t *testing.T) {
	t.Parallel()
	b := setup(t)
	l := b.running(1)
	b.receive(1, "before", "x", `{"id": 1}`)
	if _, err := b.Pool.Exec(t.Context(), "INSERT INTO shape (organization, type, paths) VALUES (1, 'x', '{id}')"); err != nil {
		t.Fatal(err)
	}
	if done := b.commit(b.turn(l, wait(0, "x", core.Filter{"id": "1"}))); done.State != core.Running {
		t.Error("state", done.State)
	}
	same(t, "found", []string{"0.0 before"}, b.arrived(l.ID))
}

func TestForget(t *testing.T) {
	t.Parallel()
	b := setup(t)
	l := b.running(1)
	b.receive(1, "old", "x", "{}")
	b.commit(b.turn(l, wait(0, "y", nil)))
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
	b := setup(t)
	l := b.running(1)
	called := core.Op{Ref: core.OpRef{Branch: 0, Index: 3}, Kind: core.KindRun, Name: "k8s.get", Args: []byte(`{"a":1}`), Timeout: time.Minute}
	b.commit(b.turn(l, called))
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
			if c.ID != id || c.Agent != 7 || c.Function != "k8s.get" || string(c.Args) != `{"a":1}` || !c.Deadline.Equal(time.Date(2026, 3, 25, 10, 1, 0, 0, time.UTC)) {
				t.Errorf("call %+v", c)
			}
		}
		same(t, "attempts", want, attempts)
	}
	answer := func(agent int64, value string, refusal *core.FunctionError) error {
		a := core.Answer{Call: id, Agent: agent, Error: refusal}
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
	if err := answer(7, "", &core.FunctionError{Code: "unreachable", Retryable: true}); err != nil {
		t.Fatal(err)
	}
	same(t, "after a retryable error", []string(nil), b.arrived(l.ID))
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
	c := b.turn(l)
	c.Closed = []core.OpRef{called.Ref}
	b.commit(c)
	if err := answer(7, `{"late": true}`, nil); err != nil {
		t.Error("a late answer:", err)
	}
	same(t, "after all", []string(nil), b.arrived(l.ID))
}
