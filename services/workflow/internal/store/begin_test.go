package store

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/engine"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/execution"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
)

// opening is the first turn of a run that is not stored, which has recorded the answer of one Function.
func (b *testStore) opening(n engine.NewExecution, next execution.State) engine.Commit {
	c := engine.Commit{
		Lease: b.lease, Execution: execution.Execution{Ref: n.Ref, Organization: n.Organization, Workflow: n.Workflow, Trace: n.Trace},
		Entries: []history.Entry{{
			Seq: 1, Op: history.OpRef{}, Kind: history.KindRun, Name: "checkpoint", Hash: 7, Value: json.RawMessage(`{"i":1}`), At: b.clock.Now(),
		}},
		LastSeq: 1, Next: next, At: b.clock.Now(), Bare: true,
	}
	if next.Ended() {
		c.LastSeq = 2
		c.Entries = append(c.Entries, b.ending(2))
		c.Emits = []history.Emit{{
			ID: n.Ref + "/completed", Organization: n.Organization, Workflow: n.Workflow,
			Type: history.TypeCompleted, Data: json.RawMessage("{}"), Time: b.clock.Now(),
		}}
	}
	return c
}

// owned is a start for this process.
func (b *testStore) owned(organization int64) engine.NewExecution {
	n := b.start(organization)
	n.Owner = &b.lease
	return n
}

// ahead has a start stored with its first turn.
func (b *testStore) ahead(n engine.NewExecution, next execution.State) (id int64, begun bool) {
	b.t.Helper()
	id, begun, err := b.Begin(b.t.Context(), n, b.opening(n, next))
	if err != nil {
		b.t.Fatal(err)
	}
	return id, begun
}

// A start with its first turn leaves the same as a start and then a commit: a run that continues has its owner and its entry; a run that
// has ended has its last entry, and its event is in the outbox.
func TestAStartIsStoredWithItsFirstTurn(t *testing.T) {
	t.Parallel()
	b := newTestStore(t)
	n := b.owned(1)
	n.Trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	id, begun := b.ahead(n, execution.Running)
	if !begun || id == 0 {
		t.Fatalf("begun: %t, as %d", begun, id)
	}
	l := b.load(id)
	same(t, "turn, workflow, trace and inputs of the run that continues",
		[]any{int64(1), n.Workflow, n.Trace, string(n.Inputs)}, []any{l.Turn, l.Workflow, l.Trace, string(l.Inputs)})
	if len(l.History) != 1 || l.History[0].Name != "checkpoint" {
		t.Errorf("its history is %+v", l.History)
	}
	next := b.parking(l)
	next.Next, next.LastSeq = execution.Completed, 2
	next.Entries = []history.Entry{b.ending(2)}
	b.commit(next) // the fence lets its owner through

	whole := b.owned(1)
	if _, begun := b.ahead(whole, execution.Completed); !begun {
		t.Fatal("a run that ends with its first turn was not begun")
	}
	e, err := b.Get(t.Context(), 1, whole.Workflow)
	if err != nil || e.State != execution.Completed || e.LastSeq != 2 || e.EndedAt.IsZero() {
		t.Errorf("what has ended was stored as %+v (%v)", e, err)
	}
	entries, err := b.History(t.Context(), e.ID, 0, 10)
	if err != nil || len(entries) != 2 || string(entries[0].Value) != `{"i":1}` || entries[1].Kind != history.KindCompleted {
		t.Errorf("its history is %+v (%v)", entries, err)
	}
	same(t, "events with a position in the outbox", 1, b.count("SELECT count(*) FROM outbox WHERE place IS NOT NULL"))
	same(t, "events stored", 1, b.count("SELECT count(*) FROM event"))
	same(t, "runnable runs", 0, b.count("SELECT count(*) FROM runnable"))
	// Starting it again returns the same run.
	digests, err := whole.Digests()
	if err != nil {
		t.Fatal(err)
	}
	if c, err := b.Create(t.Context(), whole); err != nil || c.Created || c.Ref != whole.Ref || len(digests.Differences(c.Existing)) > 0 {
		t.Errorf("the second start answers %+v (%v)", c, err)
	}
}

// Of what is refused nothing is left, and of a run that is there nothing is changed; of two with one name in one transaction
// the first is stored.
func TestAStartThatIsRefusedWithItsTurnLeavesNothing(t *testing.T) {
	t.Parallel()
	b := newTestStore(t)
	there := b.owned(1)
	b.ahead(there, execution.Running)
	again := b.owned(1)
	again.Workflow = there.Workflow
	if _, begun := b.ahead(again, execution.Completed); begun {
		t.Error("a run that exists was begun")
	}
	twin, other := b.owned(2), b.owned(2)
	twin.Workflow = other.Workflow
	pair := make([]*item, 2)
	for i, n := range []engine.NewExecution{twin, other} {
		s, err := new(Store).newStart(n)
		if err != nil {
			t.Fatal(err)
		}
		pair[i] = &item{start: s, commit: &commit{Commit: b.opening(n, execution.Running)}}
	}
	if err := b.beginAll(t.Context(), pair); err != nil {
		t.Fatal(err)
	}
	same(t, "which of two starts of one name is stored", []bool{true, false},
		[]bool{pair[0].start.created.Created, pair[1].start.created.Created})
	var refs []string
	if err := b.Pool.QueryRow(t.Context(), `SELECT array_agg(ref ORDER BY id) FROM execution`).Scan(&refs); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{there.Ref, twin.Ref}, refs); diff != "" {
		t.Errorf("stored runs (-want +got):\n%s", diff)
	}
	same(t, "entries, of the two runs that were stored", 2, b.count("SELECT count(*) FROM entry"))
	same(t, "events in the outbox", 0, b.count("SELECT count(*) FROM outbox"))
}

// The first turn of a run ends it, and other runs wait for that: they are woken, whether the process knows of their waits or not.
func TestAStartWhoseEndIsAwaitedWakesTheRunsThatWait(t *testing.T) {
	t.Parallel()
	b := newTestStore(t)
	var woken []int64
	b.Woken = func(w engine.Woken) { woken = append(woken, w.ID) }
	waiter := b.startRun(1)
	b.commit(b.parking(waiter, waitFor(0, history.TypeCompleted, nil)))

	if _, begun := b.ahead(b.owned(1), execution.Completed); begun {
		t.Error("a start was stored with its first turn, although the process did not know of the wait")
	}
	same(t, "executions woken by a start that was refused", []int64(nil), woken)
	b.receive(1, "other", history.TypeCompleted, `{}`) // the process learns of the wait, and the wait has its event
	next := b.startRun(1)
	b.commit(b.parking(next, waitFor(0, history.TypeCompleted, nil)))
	woken = nil
	if _, begun := b.ahead(b.owned(1), execution.Completed); !begun {
		t.Error("a start was not stored with its first turn")
	}
	same(t, "executions woken", []int64{next.ID}, woken)
}
