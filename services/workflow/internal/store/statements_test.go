package store

import (
	"errors"
	"testing"

	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/engine"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/execution"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
)

// step is a turn that records one more entry and keeps the run running.
func (b *testStore) step(l engine.Loaded) engine.Commit {
	c := b.parking(l)
	c.Next, c.LastSeq = execution.Running, c.LastSeq+1
	recorded := b.entry(c.LastSeq, history.OpRef{Index: int(c.LastSeq) - 1}, history.KindRun, "1")
	recorded.Name = "checkpoint"
	c.Entries = []history.Entry{recorded}
	return c
}

// row returns the version of an execution's row, and two of its columns.
func (b *testStore) row(id int64) (version string, lastSeq int64, crashes int) {
	b.t.Helper()
	row := b.Pool.QueryRow(b.t.Context(), "SELECT ctid::text, last_seq, crashes FROM execution WHERE id = $1", id)
	if err := row.Scan(&version, &lastSeq, &crashes); err != nil {
		b.t.Fatal(err)
	}
	return version, lastSeq, crashes
}

// underWay is an execution after its first turn.
func (b *testStore) underWay() engine.Loaded {
	b.t.Helper()
	l := b.startRun(1)
	b.commit(b.step(l))
	return b.load(l.ID)
}

// Steps make no new version of their execution's row, and every reader knows their progress all the same; the end makes one.
func TestAStepLeavesTheRowAlone(t *testing.T) {
	t.Parallel()
	b := newTestStore(t)
	l := b.underWay()
	before, wantSeq, _ := b.row(l.ID)
	for range 3 {
		if done := b.commit(b.step(l)); done.Turn != l.Turn || done.State != execution.Running {
			t.Fatalf("a step led to %+v, expected turn %d, running", done, l.Turn)
		}
		b.clock.Advance(1)
		l = b.load(l.ID)
	}
	if after, lastSeq, _ := b.row(l.ID); after != before || lastSeq != wantSeq {
		t.Errorf("after three steps the row is at %s with last_seq %d, expected %s and %d as before", after, lastSeq, before, wantSeq)
	}
	shown, err := b.Get(t.Context(), 1, l.Workflow)
	if err != nil {
		t.Fatal(err)
	}
	progresses, err := b.Progresses(t.Context(), []int64{l.ID})
	if err != nil {
		t.Fatal(err)
	}
	same(t, "its progress, for readers, watchers and its owner", []any{int64(4), int64(4), 4},
		[]any{shown.LastSeq, progresses[0].LastSeq, len(l.History)})
	if want := l.History[3].At; !shown.UpdatedAt.Equal(want) {
		t.Errorf("it was updated at %s, expected %s, when it recorded the last step", shown.UpdatedAt, want)
	}
	end := b.step(l)
	end.Next = execution.Completed
	if done := b.commit(end); done.Turn != l.Turn+1 || done.State != execution.Completed {
		t.Errorf("the end led to %+v", done)
	}
	if after, lastSeq, _ := b.row(l.ID); after == before || lastSeq != 5 {
		t.Errorf("behind the end the row is at %s and says %d, expected another place and 5", after, lastSeq)
	}
}

// Turns are fenced that do not know the last step of their execution: a step, a turn that parks and records nothing, and a turn of an
// owner whose memory is older than another owner's step.
func TestWhatIsBehindTheHistoryIsFenced(t *testing.T) {
	t.Parallel()
	b := newTestStore(t)
	l := b.underWay()
	b.commit(b.step(l))
	for name, c := range map[string]engine.Commit{"a step": b.step(l), "a turn that parks": b.parking(l)} {
		if _, err := b.Commit(t.Context(), c); !errors.Is(err, engine.ErrFenced) {
			t.Errorf("%s behind a step that it does not know: %v", name, err)
		}
	}
	// A claim by another owner changes the turn, so that memory of the previous one is stale. A claim by the same owner does not, because it
	// may claim a run that it has just stored and owns.
	before := b.load(l.ID)
	b.claim(b.lease)
	if again := b.load(l.ID); again.Turn != before.Turn {
		t.Errorf("behind its owner's claim: turn %d, expected %d", again.Turn, before.Turn)
	}
	b.lease = b.acquire("one")
	if claimed := b.claim(b.lease); len(claimed) != 1 {
		t.Fatalf("claimed %v, expected the execution", claimed)
	}
	if after := b.load(l.ID); after.Turn == before.Turn || len(after.History) != 2 {
		t.Errorf("after a successor's claim: turn %d and %d entries, expected another turn than %d, and 2 entries",
			after.Turn, len(after.History), before.Turn)
	}
	remembered := b.parking(before)
	remembered.Lease = b.lease
	if _, err := b.Commit(t.Context(), remembered); !errors.Is(err, engine.ErrFenced) {
		t.Error("a turn of what was remembered from before the claim:", err)
	}
}

// One transaction has steps of some executions, the ends of others, and a former owner's step. Every turn but the former owner's is
// committed, and resets the crashes of its execution.
func TestStepsAndEndsOfOneTransaction(t *testing.T) {
	t.Parallel()
	for name, fenced := range map[string]bool{"all as asked": false, "one fenced": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newTestStore(t)
			var items []*item
			var loaded []engine.Loaded
			for i := range 4 {
				l := b.underWay()
				if _, err := b.Pool.Exec(t.Context(), "UPDATE execution SET crashes = 2 WHERE id = $1", l.ID); err != nil {
					t.Fatal(err)
				}
				c := b.step(l)
				switch {
				case i%2 == 1:
					c.Next = execution.Completed
				case i == 2 && fenced:
					c.Lease.Epoch--
				}
				loaded, items = append(loaded, l), append(items, &item{commit: &commit{Commit: c}})
			}
			if err := b.commitAll(t.Context(), items); err != nil {
				t.Fatal(err)
			}
			for i, l := range loaded {
				of := items[0].commit
				for _, item := range items {
					if item.commit.Execution.ID == l.ID {
						of = item.commit
					}
				}
				entries, err := b.History(t.Context(), l.ID, 0, 10)
				if err != nil {
					t.Fatal(err)
				}
				_, _, crashes := b.row(l.ID)
				want := []any{false, 2, 0}
				if i == 2 && fenced {
					want = []any{true, 1, 2}
				}
				same(t, "fenced, entries and crashes of "+l.Workflow, want, []any{of.fenced, len(entries), crashes})
			}
		})
	}
}

// An execution is cancelled whose row does not have the number of its last entry.
func TestACancellationKnowsTheLastStep(t *testing.T) {
	t.Parallel()
	b := newTestStore(t)
	l := b.underWay()
	b.commit(b.step(l))
	if ended, err := b.Cancel(t.Context(), 1, l.Workflow, "enough", b.clock.Now()); err != nil || !ended {
		t.Fatal(ended, err)
	}
	entries, err := b.History(t.Context(), l.ID, 0, 10)
	if err != nil {
		t.Fatal(err)
	}
	if _, lastSeq, _ := b.row(l.ID); len(entries) != 3 || lastSeq != 3 || entries[2].Kind != history.KindCancelled {
		t.Errorf("the row says %d and the history is %+v, expected 3 entries, the last of them about the end", lastSeq, entries)
	}
}
