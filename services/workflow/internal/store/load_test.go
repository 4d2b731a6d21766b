package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/engine"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/store/query"
)

// counted counts the statements that answer rows.
type counted struct {
	query.DBTX
	n *int
}

func (c counted) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	*c.n++
	return c.DBTX.Query(ctx, sql, args...)
}

// recorded is a turn that adds n entries to what was loaded.
func (b *testStore) recorded(l engine.Loaded, n int, opened ...history.Op) engine.Commit {
	c := b.parking(l, opened...)
	for range n {
		c.LastSeq++
		c.Entries = append(c.Entries, history.Entry{
			Seq: c.LastSeq, Op: history.OpRef{Index: int(c.LastSeq) - 1}, Kind: history.KindRun, Name: "checkpoint", Hash: 1 << 63,
			Value: json.RawMessage(fmt.Sprint(c.LastSeq)), At: b.clock.Now(),
		})
	}
	return c
}

// Runs that are read together come back each with its own, whatever the others have; and it takes as many statements as
// for one (f.10, kill -9).
func TestManyRunsAreReadTogether(t *testing.T) {
	t.Parallel()
	b := newTestStore(t)
	at := b.clock.Now()
	plain, ended := b.startRun(1), b.startRun(1)
	waiting := b.startRun(1)
	asleep := history.Op{Ref: history.OpRef{Branch: 1}, Kind: history.KindSleep, Timeout: time.Minute}
	b.commit(b.recorded(waiting, 3, waitFor(0, "com.example.go", history.Filter{"n": "1"}), asleep))
	b.receive(1, "one", "com.example.go", `{"n": 1}`)
	long := b.startRun(1)
	b.commit(b.recorded(long, loadEntries+1))
	polling := b.startRun(1)
	polls := b.parking(polling, history.Op{Ref: history.OpRef{Branch: 2}, Kind: history.KindPoll, Name: "k8s.get", Timeout: time.Hour})
	poll := engine.Polling{
		Op: history.OpRef{Branch: 2}, Function: "k8s.get", Round: 4, Deadline: at.Add(2 * time.Hour),
		Value: json.RawMessage(`{"ready":1}`), Error: &history.FunctionError{Code: "unavailable"},
	}
	polls.Open[0].Poll = &poll
	b.commit(polls)
	second := b.startRun(1)
	b.commit(b.border(second))
	if ended, err := b.Cancel(t.Context(), 1, ended.Workflow, "no more", at); err != nil || !ended {
		t.Fatal(ended, err)
	}
	b.clock.Advance(time.Minute)
	if fired, _, err := b.FireTimers(t.Context(), b.clock.Now(), 10); err != nil || fired != 1 {
		t.Fatalf("%d timers fired (%v), expected that of the sleep", fired, err)
	}

	n := 0
	b.queries = query.New(counted{b.Pool, &n})
	items := []*load{
		{execution: plain.ID},
		{execution: waiting.ID},
		{execution: long.ID},
		{execution: polling.ID},
		{execution: second.ID},
		{execution: ended.ID},
		{execution: 1 << 40},
		{execution: plain.ID},
	}
	if err := b.loadAll(t.Context(), items); err != nil {
		t.Fatal(err)
	}
	if n > 3 {
		t.Errorf("found %d statements, expected 3: executions, histories, what is open (the programs are known)", n)
	}
	same(t, "what was loaded twice", items[0].loaded, items[7].loaded)
	same(t, "a run with nothing", plain, items[0].loaded)
	if !errors.Is(items[5].refusal, engine.ErrFenced) || !fault.Is(items[6].refusal, fault.NotFound) {
		t.Errorf("one that has ended: %v; one that is not there: %v", items[5].refusal, items[6].refusal)
	}
	got := items[1].loaded
	if len(got.History) != 3 || got.History[2].Seq != 3 || string(got.History[2].Value) != "3" || got.History[2].Hash != 1<<63 {
		t.Errorf("the history is %+v", got.History)
	}
	wantOpen := []engine.Opened{{Op: asleep.Ref, Deadline: at.Add(time.Minute)}, {Deadline: at.Add(time.Hour)}}
	same(t, "open operations of the waiting run", wantOpen, got.Open)
	if len(got.Arrived) != 2 || got.Arrived[0].Kind != engine.EventArrived ||
		got.Arrived[1].Op != asleep.Ref || got.Arrived[1].Kind != engine.TimerArrived {
		t.Errorf("what came is %+v, expected the event and then the end of the sleep", got.Arrived)
	}
	same(t, "how far the poll has come", []engine.Polling{poll}, items[3].loaded.Polls)
	same(t, "what the poll has open", []engine.Opened{{Op: poll.Op, Deadline: at.Add(time.Hour)}}, items[3].loaded.Open)
	if l := items[4].loaded; l.Generation != 2 || l.Base != 1 || len(l.History) != 0 || string(l.Continuation) != `{"function":"again"}` {
		t.Errorf("the second generation is %+v", l)
	}
	if items[2].loaded.History != nil || items[2].entries != loadEntries+1 {
		t.Errorf("a history of %d entries was read with others, %d of them", items[2].entries, len(items[2].loaded.History))
	}
	if l := b.load(long.ID); len(l.History) != loadEntries+1 || l.History[loadEntries].Seq != loadEntries+1 {
		t.Errorf("loaded %d entries, expected all %d", len(l.History), loadEntries+1)
	}
}

// A wake-up for one timer has the timer; if two timers fire, the run reads their order.
func TestAWakeUpHasItsTimer(t *testing.T) {
	t.Parallel()
	b := newTestStore(t)
	var woken []engine.Woken
	b.Woken = func(w engine.Woken) { woken = append(woken, w) }
	sleep := func(branch int, d time.Duration) history.Op {
		return history.Op{Ref: history.OpRef{Branch: branch}, Kind: history.KindSleep, Timeout: d}
	}
	one, both := b.startRun(1), b.startRun(1)
	b.commit(b.parking(one, sleep(0, time.Hour), sleep(3, time.Second)))
	b.commit(b.parking(both, sleep(1, time.Second), sleep(2, time.Second)))
	b.clock.Advance(time.Second)
	if _, _, err := b.FireTimers(t.Context(), b.clock.Now(), 10); err != nil {
		t.Fatal(err)
	}
	reported := map[int64]*engine.Wakeup{}
	for _, w := range woken {
		reported[w.ID] = w.Wakeup
	}
	_, arrived, err := b.Arrivals(t.Context(), one.ID)
	if err != nil || len(arrived) != 1 {
		t.Fatalf("%d arrivals (%v), expected 1", len(arrived), err)
	}
	want := map[int64]*engine.Wakeup{one.ID: {Wakes: one.Wakes + 1, Arrival: arrived[0]}, both.ID: nil}
	if diff := cmp.Diff(want, reported); diff != "" {
		t.Errorf("reported with the wake-ups (-read, +reported):\n%s", diff)
	}
}
