package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/agent"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/control"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/engine"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/execution"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
)

// border is a turn of what was loaded that ends its generation, behind entries.
func (b *testStore) border(l engine.Loaded, entries ...history.Entry) engine.Commit {
	c := b.parking(l)
	c.Next, c.Continue = execution.Running, json.RawMessage(`{"function":"again"}`)
	c.Entries = append(entries, history.Entry{
		Op: history.OpRef{Index: len(entries)}, Kind: history.KindContinue, Name: "again", Value: c.Continue,
	})
	for i := range c.Entries {
		c.LastSeq++
		c.Entries[i].Seq, c.Entries[i].At = c.LastSeq, b.clock.Now()
	}
	return c
}

// count answers a number from the database.
func (b *testStore) count(sql string, args ...any) (n int) {
	b.t.Helper()
	if err := b.Pool.QueryRow(b.t.Context(), sql, args...).Scan(&n); err != nil {
		b.t.Fatal(err)
	}
	return n
}

// TestTheBorderOfAGeneration ends a generation: what is loaded then is the same run with an empty history, and everything that it
// had is still its own (C16).
func TestTheBorderOfAGeneration(t *testing.T) {
	t.Parallel()
	b := newTestStore(t)
	first := b.startRun(1)
	const token = "ch_AAAAAAAAAAAAAAAAAAAAAAAAAA"
	channel := b.parking(first, waitFor(0, "x", history.Filter{"id": "1"}))
	channel.Next, channel.LastSeq = execution.Running, 1
	channel.Entries = []history.Entry{b.entry(1, history.OpRef{Branch: 1}, history.KindChannel, `"`+token+`"`)}
	b.commit(channel)
	b.receive(1, "one", "x", `{"id": 1}`)
	b.receive(1, "two", "x", `{"id": 1}`)
	if _, _, err := b.Send(t.Context(), history.Message{Organization: 1, Token: token, ID: "m", Time: b.clock.Now()}); err != nil {
		t.Fatal(err)
	}
	if err := b.OpenWatch(t.Context(), agent.Watch{ID: first.Ref + "/0.9", Execution: first.Ref, Agent: 7}); err != nil {
		t.Fatal(err)
	}
	l := b.load(first.ID)
	last := b.border(l, history.Entry{Op: history.OpRef{}, Kind: history.KindWait, Value: json.RawMessage(`{}`), Event: l.Arrived[0].Event})
	last.Closed = []history.OpRef{{}}
	done := b.commit(last)
	same(t, "the state", execution.Running, done.State)
	if _, err := b.Commit(t.Context(), last); !errors.Is(err, engine.ErrFenced) {
		t.Errorf("the border again: %v", err)
	}

	next := b.load(first.ID)
	same(t, "what is new", []any{2, int64(3), string(last.Continue), 0, first.Ref + "~1.2"},
		[]any{next.Generation, next.Base, string(next.Continuation), len(next.History), next.Ref})
	same(t, "what stays", []any{first.Secrets, first.Inputs, first.Program, first.Workflow, first.CreatedAt},
		[]any{next.Secrets, next.Inputs, next.Program, next.Workflow, next.CreatedAt})
	shown, err := b.Get(t.Context(), 1, first.Workflow)
	if err != nil {
		t.Fatal(err)
	}
	same(t, "what callers see", []any{first.Ref, 2, int64(3), int64(3), map[string]string{"a": "b"}},
		[]any{shown.Ref, shown.Generation, shown.Base, shown.LastSeq, shown.Labels})
	same(t, "its watches", []string{first.Ref + "/0.9 "}, b.wanted(7))

	// The event that was consumed does not arrive again; the later event and the message arrive for the next generation.
	next.History = nil
	c := b.parking(next, waitFor(0, "x", history.Filter{"id": "1"}),
		history.Op{Ref: history.OpRef{Branch: 1}, Kind: history.KindReceive, Channels: []string{token}, Timeout: time.Hour})
	c.LastSeq = next.Base
	b.commit(c)
	same(t, "what came", []string{"0.0 two", "1.0 m"}, b.arrivals(first.ID))

	entries, err := b.History(t.Context(), first.ID, 0, 10)
	if err != nil {
		t.Fatal(err)
	}
	ended, err := b.Cancel(t.Context(), 1, first.Workflow, "enough", b.clock.Now())
	if err != nil || !ended {
		t.Fatal(ended, err)
	}
	more, err := b.History(t.Context(), first.ID, 3, 10)
	if err != nil {
		t.Fatal(err)
	}
	var numbers []string
	for _, e := range append(entries, more...) {
		numbers = append(numbers, fmt.Sprintf("%d %d %s", e.Generation, e.Seq, e.Kind))
	}
	same(t, "the history", []string{"1 1 channel", "1 2 wait", "1 3 continue", "2 4 cancelled"}, numbers)
	same(t, "the event about the end", 1, b.count(`SELECT count(*) FROM event WHERE event_id = $1`, first.Ref+"~1.2/cancelled"))
}

// TestARetryBeginsInThePresentGeneration has a run fail in its second generation: what may be forgotten is the second alone.
func TestARetryBeginsInThePresentGeneration(t *testing.T) {
	t.Parallel()
	b := newTestStore(t)
	l := b.startRun(1)
	broken := &history.FunctionError{Code: "broken"}
	b.commit(b.border(l, history.Entry{Kind: history.KindRun, Name: "act", Error: broken}))
	for _, tt := range []struct {
		fails history.Entry
		// from is the first entry that a retry of the failed step forgets.
		from int64
	}{
		{history.Entry{Kind: history.KindNow, Value: json.RawMessage("1")}, 3},
		{history.Entry{Kind: history.KindRun, Name: "act", Error: broken}, 3},
	} {
		b.claim(b.lease)
		l = b.load(l.ID)
		c := b.parking(l)
		c.Next, c.Error, c.LastSeq = execution.Failed, "it broke", l.Base+2
		tt.fails.Seq, tt.fails.At = l.Base+1, b.clock.Now()
		c.Entries = []history.Entry{tt.fails, b.entry(l.Base+2, history.OpRef{Branch: -1}, history.KindFailed, "{}")}
		b.commit(c)
		err := b.Retry(t.Context(), control.RetryRequest{Organization: 1, Workflow: l.Workflow, From: 2, At: b.clock.Now()})
		const problem = "found 2, which is of a generation that has ended; expected at least 3, the beginning of generation 2"
		if fields := fault.FieldsOf(err); len(fields) != 1 || !strings.Contains(fields[0].Problem, problem) {
			t.Errorf("a retry from the generation before: %v", err)
		}
		if err := b.Retry(t.Context(), control.RetryRequest{Organization: 1, Workflow: l.Workflow, At: b.clock.Now()}); err != nil {
			t.Fatal(err)
		}
		retries, err := b.Retries(t.Context(), l.ID)
		if err != nil {
			t.Fatal(err)
		}
		same(t, "the first entry forgotten", tt.from, retries[len(retries)-1].From)
		again := b.load(l.ID)
		same(t, "what is loaded", []any{2, int64(2), 0, fmt.Sprintf("ref-%d~%d.2", b.n, len(retries)+1)},
			[]any{again.Generation, again.Base, len(again.History), again.Ref})
	}
}

// TestEventsRaceBorders sends each of many runs an event while its generation ends. The event is consumed exactly once, by the generation
// that waits for it, whichever is first (C16).
func TestEventsRaceBorders(t *testing.T) {
	t.Parallel()
	b := newTestStore(t)
	other := New(b.Deps) // another process: it shares nothing but the database
	const runs = 200
	var race sync.WaitGroup
	ids := make([]int64, runs)
	for i := range runs {
		l := b.startRun(1)
		ids[i] = l.ID
		filter := history.Filter{"id": strconv.Itoa(i)}
		begin := make(chan struct{})
		race.Go(func() {
			<-begin
			if _, err := b.Commit(t.Context(), b.border(l)); err != nil {
				t.Error(err)
				return
			}
			next, err := b.Load(t.Context(), l.ID)
			if err != nil {
				t.Error(err)
				return
			}
			c := b.parking(next, waitFor(0, "x", filter))
			c.LastSeq = next.Base
			if _, err := b.Commit(t.Context(), c); err != nil {
				t.Error(err)
			}
		})
		race.Go(func() {
			<-begin
			if _, _, err := other.Receive(t.Context(), eventAt(1, strconv.Itoa(i), "x", fmt.Sprintf(`{"id": %d}`, i), b.clock.Now())); err != nil {
				t.Error(err)
			}
		})
		close(begin)
		if i%32 == 31 {
			race.Wait()
		}
	}
	race.Wait()
	for i, id := range ids {
		if got := b.arrivals(id); len(got) != 1 || got[0] != "0.0 "+strconv.Itoa(i) {
			t.Errorf("run %d has got %v, expected its event once", i, got)
		}
	}
}

// TestCancellationRacesBorders cancels each of many runs while its generation ends: it ends cancelled, in the one or the other, and
// the border is stored completely or not at all.
func TestCancellationRacesBorders(t *testing.T) {
	t.Parallel()
	b := newTestStore(t)
	const runs = 100
	var race sync.WaitGroup
	for range runs {
		l := b.startRun(1)
		begin := make(chan struct{})
		race.Go(func() {
			<-begin
			if _, err := b.Commit(t.Context(), b.border(l)); err != nil && !errors.Is(err, engine.ErrFenced) {
				t.Error(err)
			}
		})
		race.Go(func() {
			<-begin
			if ended, err := b.Cancel(t.Context(), 1, l.Workflow, "enough", b.clock.Now()); err != nil || !ended {
				t.Error(ended, err)
			}
		})
		close(begin)
	}
	race.Wait()
	same(t, "cancelled runs", runs, b.count(`SELECT count(*) FROM execution WHERE state = 'cancelled'`))
	same(t, "their last entries", runs, b.count(`SELECT count(*)
FROM entry JOIN execution ON execution.id = entry.execution AND seq = last_seq WHERE kind = 'cancelled'`))
	same(t, "half borders", 0, b.count(`SELECT count(*)
FROM generation FULL JOIN (SELECT execution, seq FROM entry WHERE kind = 'continue') AS e
ON e.execution = generation.execution AND e.seq = generation.base_seq WHERE e.execution IS NULL OR generation.execution IS NULL`))
}

// TestForgetsOldGenerations keeps the present generation whatever its age, and what others have made that is still in use.
func TestForgetsOldGenerations(t *testing.T) {
	t.Parallel()
	b := newTestStore(t)
	l := b.startRun(1)
	const token = "ch_BBBBBBBBBBBBBBBBBBBBBBBBBB"
	channel := b.parking(l, history.Op{Kind: history.KindReceive, Channels: []string{token}, Timeout: time.Hour})
	channel.Next, channel.LastSeq = execution.Running, 1
	channel.Entries = []history.Entry{b.entry(1, history.OpRef{Branch: 1}, history.KindChannel, `"`+token+`"`)}
	b.commit(channel)
	for _, id := range []string{"had", "unread"} {
		if _, _, err := b.Send(t.Context(), history.Message{Organization: 1, Token: token, ID: id, Time: b.clock.Now()}); err != nil {
			t.Fatal(err)
		}
	}
	forget := func() {
		t.Helper()
		if err := b.Forget(t.Context(), b.clock.Now().Add(-time.Minute)); err != nil {
			t.Fatal(err)
		}
	}
	sequences := func() (all []int64) {
		t.Helper()
		entries, err := b.History(t.Context(), l.ID, 0, 100)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			all = append(all, e.Seq)
		}
		return all
	}
	l = b.load(l.ID)
	c := b.border(l, history.Entry{Op: history.OpRef{}, Kind: history.KindReceive, Value: json.RawMessage(`{}`), Event: l.Arrived[0].Event})
	c.Closed = []history.OpRef{{}}
	b.commit(c)
	forget()
	same(t, "while it is young", []int64{1, 2, 3}, sequences())
	b.clock.Advance(time.Hour)
	l = b.load(l.ID)
	second := b.border(l)
	for i := range second.Entries {
		second.LastSeq = l.Base + int64(i) + 1
		second.Entries[i].Seq = second.LastSeq
	}
	b.commit(second)
	forget()
	// The entry that made the channel stays: a retry opens it again. The second generation has only just ended.
	same(t, "later", []int64{1, 4}, sequences())
	forget()
	same(t, "and again", []int64{1, 4}, sequences())

	l = b.load(l.ID)
	same(t, "the present one", []any{3, int64(4), `{"function":"again"}`}, []any{l.Generation, l.Base, string(l.Continuation)})
	receive := b.parking(l, history.Op{Kind: history.KindReceive, Channels: []string{token}, Timeout: time.Hour})
	receive.LastSeq = l.Base
	b.commit(receive)
	same(t, "what it receives", []string{"0.0 unread"}, b.arrivals(l.ID))
	rows, err := b.Pool.Query(t.Context(), "SELECT event_id FROM event ORDER BY id")
	if err != nil {
		t.Fatal(err)
	}
	left, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	same(t, "messages left", []string{"unread"}, left)
}

// TestConsumedEventsAreNotReadAgain has a run consume many events of a type and end its generation: the next one costs as few rows as
// the first did, and one that was left out is not skipped.
func TestConsumedEventsAreNotReadAgain(t *testing.T) {
	t.Parallel()
	b := newTestStore(t)
	pool, err := pg.Open(t.Context(), pg.Config{URL: b.Pool.Config().ConnString(), Schema: schemaOf(b), MaxConns: 1, Settings: Settings()})
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	b.Pool = pool
	b.Store = New(b.Deps)
	filter := history.Filter{"id": "1"}
	l := b.startRun(1)
	b.commit(b.parking(l, waitFor(0, "x", filter)))
	few := b.rowsRead(func() { same(t, "matched", 1, b.receive(1, "event-0", "x", `{"id": 1}`)) })
	b.claim(b.lease)
	b.commit(b.consuming(b.load(l.ID)))

	const events, leftOut = 300, 200
	for i := 1; i <= events; i++ {
		b.receive(1, fmt.Sprintf("event-%d", i), "x", `{"id": 1}`)
	}
	rows, err := pool.Query(t.Context(), "SELECT id FROM event WHERE event_id NOT IN ('event-0', $1) ORDER BY id",
		fmt.Sprintf("event-%d", leftOut))
	if err != nil {
		t.Fatal(err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		t.Fatal(err)
	}
	consumed := func(ids ...int64) engine.Loaded {
		t.Helper()
		b.claim(b.lease)
		l = b.load(l.ID)
		c := b.parking(l)
		c.LastSeq, c.Next, c.Continue = l.Base+int64(len(l.History)), execution.Running, json.RawMessage(`{"function":"again"}`)
		for i, id := range append(ids, 0) {
			e := history.Entry{Op: history.OpRef{Index: i + 1}, Kind: history.KindWait, Value: json.RawMessage("{}"), Event: id, At: b.clock.Now()}
			if id == 0 {
				e.Kind, e.Value = history.KindContinue, c.Continue
			}
			c.LastSeq++
			e.Seq = c.LastSeq
			c.Entries = append(c.Entries, e)
		}
		c.Consumed = []history.Want{{Type: "x", Filter: filter}, {Type: "x", Filter: history.Filter{"id": "1"}}}
		for _, a := range l.Arrived {
			c.Closed = append(c.Closed, a.Op)
		}
		b.commit(c)
		return b.load(l.ID)
	}
	parks := func() engine.Loaded {
		t.Helper()
		c := b.parking(l, waitFor(0, "x", filter))
		c.LastSeq = l.Base
		b.commit(c)
		return b.load(l.ID)
	}
	l = consumed(ids...)
	l = parks()
	same(t, "what was left out", []string{fmt.Sprintf("0.0 event-%d", leftOut)}, b.arrivals(l.ID))
	l = consumed(l.Arrived[0].Event)
	l = parks()
	same(t, "what came", []string(nil), b.arrivals(l.ID))
	// A plan that was made while the tables were empty may go over a whole history. It is made anew once the server knows how long
	// they are: here at once, elsewhere within a minute.
	if _, err := pool.Exec(t.Context(), "ANALYZE"); err != nil {
		t.Fatal(err)
	}
	many := b.rowsRead(func() { same(t, "matched", 1, b.receive(1, "next", "x", `{"id": 1}`)) })
	if many > few+20 {
		t.Errorf("an event reads %d rows after %d of its kind, %d as the first", many, events, few)
	}
	same(t, "what came then", []string{"0.0 next"}, b.arrivals(l.ID))
}
