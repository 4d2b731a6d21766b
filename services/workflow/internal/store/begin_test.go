package store

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-cd/lockstep/services/workflow/internal/core"
)

// opening is the first turn of a run that is not stored, which has recorded the answer of one Function.
func (b *bench) opening(n core.NewExecution, next core.State) core.Commit {
	c := core.Commit{
		Lease: b.lease, Execution: core.Execution{Ref: n.Ref, Organization: n.Organization, Workflow: n.Workflow, Trace: n.Trace},
		Entries: []core.Entry{{Seq: 1, Op: core.OpRef{}, Kind: core.KindRun, Name: "checkpoint", Hash: 7, Value: json.RawMessage(`{"i":1}`), At: b.clock.Now()}},
		LastSeq: 1, Next: next, At: b.clock.Now(), Bare: true,
	}
	if next.Ended() {
		c.LastSeq = 2
		c.Entries = append(c.Entries, core.Entry{Seq: 2, Op: core.OpRef{Branch: -1}, Kind: core.KindCompleted, Value: json.RawMessage("{}"), At: b.clock.Now()})
		c.Emits = []core.Emit{{ID: n.Ref + "/completed", Organization: n.Organization, Workflow: n.Workflow, Type: core.TypeCompleted, Data: json.RawMessage("{}"), Time: b.clock.Now()}}
	}
	return c
}

// owned is a start for this process.
func (b *bench) owned(organization int64) core.NewExecution {
	n := b.start(organization)
	n.Owner = &b.lease
	return n
}

// ahead has a start stored with its first turn.
func (b *bench) ahead(n core.NewExecution, next core.State) (id int64, begun bool) {
	b.t.Helper()
	id, begun, err := b.Begin(b.t.Context(), n, b.opening(n, next))
	if err != nil {
		b.t.Fatal(err)
	}
	return id, begun
}

// What a start and a commit one after the other leave is what both leave together: a run that goes on has its owner and its entry, one
// that has ended its end, and its event is in the outbox.
func TestAStartIsStoredWithItsFirstTurn(t *testing.T) {
	t.Parallel()
	b := setup(t)
	n := b.owned(1)
	n.Trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	id, begun := b.ahead(n, core.Running)
	if !begun || id == 0 {
		t.Fatalf("begun: %t, as %d", begun, id)
	}
	l := b.load(id)
	if l.Turn != 1 || l.Workflow != n.Workflow || l.Trace != n.Trace || len(l.History) != 1 || l.History[0].Name != "checkpoint" || string(l.Inputs) != string(n.Inputs) {
		t.Errorf("what goes on was stored as %+v", l)
	}
	next := b.turn(l)
	next.Next, next.LastSeq = core.Completed, 2
	next.Entries = []core.Entry{{Seq: 2, Op: core.OpRef{Branch: -1}, Kind: core.KindCompleted, Value: json.RawMessage("{}"), At: b.clock.Now()}}
	b.commit(next) // the fence lets its owner through

	whole := b.owned(1)
	if _, begun := b.ahead(whole, core.Completed); !begun {
		t.Fatal("a run that ends with its first turn was not begun")
	}
	e, err := b.Get(t.Context(), 1, whole.Workflow)
	if err != nil || e.State != core.Completed || e.LastSeq != 2 || e.EndedAt.IsZero() {
		t.Errorf("what has ended was stored as %+v (%v)", e, err)
	}
	history, err := b.History(t.Context(), e.ID, 0, 10)
	if err != nil || len(history) != 2 || string(history[0].Value) != `{"i":1}` || history[1].Kind != core.KindCompleted {
		t.Errorf("its history is %+v (%v)", history, err)
	}
	var held, events, runnable int
	err = b.Pool.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM outbox WHERE position IS NOT NULL), (SELECT count(*) FROM event), (SELECT count(*) FROM runnable)`).Scan(&held, &events, &runnable)
	if err != nil || held != 1 || events != 1 || runnable != 0 {
		t.Errorf("%d events in the outbox, %d stored, %d runs to go on (%v), expected 1, 1 and none", held, events, runnable, err)
	}
	// The caller that starts it again is told of the same run.
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
	b := setup(t)
	there := b.owned(1)
	b.ahead(there, core.Running)
	again := b.owned(1)
	again.Workflow = there.Workflow
	if _, begun := b.ahead(again, core.Completed); begun {
		t.Error("a run that exists was begun")
	}
	waiter := b.running(1)
	b.commit(b.turn(waiter, wait(0, core.TypeCompleted, core.Filter{"n": "1"})))
	for _, known := range []bool{false, true} {
		if got := b.awaited.has(awaitedType{1, core.TypeCompleted}); got != known {
			t.Errorf("that somebody waits for the end of runs is known: %t", got)
		}
		if _, begun := b.ahead(b.owned(1), core.Completed); begun {
			t.Error("a run was begun whose end somebody waits for")
		}
	}
	twin, other := b.owned(2), b.owned(2)
	twin.Workflow = other.Workflow
	pair := make([]*beginning, 2)
	for i, n := range []core.NewExecution{twin, other} {
		s, err := newStart(n)
		if err != nil {
			t.Fatal(err)
		}
		pair[i] = &beginning{start: s, turn: &turn{Commit: b.opening(n, core.Running)}}
	}
	if err := b.beginAll(t.Context(), pair); err != nil || pair[0].refused || !pair[1].refused {
		t.Errorf("of two of one name these are refused: %t, %t (%v); expected the second", pair[0].refused, pair[1].refused, err)
	}
	var refs []string
	if err := b.Pool.QueryRow(t.Context(), `SELECT array_agg(ref ORDER BY id) FROM execution`).Scan(&refs); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{there.Ref, waiter.Ref, twin.Ref}, refs); diff != "" {
		t.Errorf("stored runs (-want +got):\n%s", diff)
	}
	var entries, held int
	if err := b.Pool.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM entry), (SELECT count(*) FROM outbox)`).Scan(&entries, &held); err != nil || entries != 2 || held != 0 {
		t.Errorf("%d entries and %d events (%v), expected those of the two that were begun, and none", entries, held, err)
	}
}
