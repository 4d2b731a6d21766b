package store

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/lockstep-cd/lockstep/services/workflow/internal/core"
)

// step is a turn that has recorded one thing more than was loaded, and goes on.
func (b *bench) step(l core.Loaded) core.Commit {
	c := b.turn(l)
	c.Next, c.LastSeq = core.Running, c.LastSeq+1
	c.Entries = []core.Entry{{Seq: c.LastSeq, Op: core.OpRef{Index: int(c.LastSeq) - 1}, Kind: core.KindRun, Name: "checkpoint", Value: json.RawMessage("1"), At: b.clock.Now()}}
	return c
}

// row is which version of an execution's row there is, and where that says the execution stands.
func (b *bench) row(id int64) (version string, lastSeq int64, crashes int) {
	b.t.Helper()
	if err := b.Pool.QueryRow(b.t.Context(), "SELECT ctid::text, last_seq, crashes FROM execution WHERE id = $1", id).Scan(&version, &lastSeq, &crashes); err != nil {
		b.t.Fatal(err)
	}
	return version, lastSeq, crashes
}

// underWay is an execution behind its first turn.
func (b *bench) underWay() core.Loaded {
	b.t.Helper()
	l := b.running(1)
	b.commit(b.step(l))
	return b.load(l.ID)
}

// TestAStepLeavesTheRowAlone has an execution record steps. None makes a new version of its row, and everybody is told all the same how far
// it has come; the end makes one.
func TestAStepLeavesTheRowAlone(t *testing.T) {
	t.Parallel()
	b := setup(t)
	l := b.underWay()
	before, said, _ := b.row(l.ID)
	for range 3 {
		if done := b.commit(b.step(l)); done.Turn != l.Turn || done.State != core.Running {
			t.Fatalf("a step led to %+v, expected turn %d, running", done, l.Turn)
		}
		b.clock.Advance(1)
		l = b.load(l.ID)
	}
	if after, lastSeq, _ := b.row(l.ID); after != before || lastSeq != said {
		t.Errorf("behind three steps the row is at %s and says %d, expected %s and %d as before", after, lastSeq, before, said)
	}
	shown, err := b.Get(t.Context(), 1, l.Workflow)
	if err != nil {
		t.Fatal(err)
	}
	progresses, err := b.Progresses(t.Context(), []int64{l.ID})
	if err != nil {
		t.Fatal(err)
	}
	same(t, "how far it has come, to readers, watchers and its owner", []any{int64(4), int64(4), 4}, []any{shown.LastSeq, progresses[0].LastSeq, len(l.History)})
	if want := l.History[3].At; !shown.UpdatedAt.Equal(want) {
		t.Errorf("it was updated at %s, expected %s, when it recorded the last step", shown.UpdatedAt, want)
	}
	end := b.step(l)
	end.Next = core.Completed
	if done := b.commit(end); done.Turn != l.Turn+1 || done.State != core.Completed {
		t.Errorf("the end led to %+v", done)
	}
	if after, lastSeq, _ := b.row(l.ID); after == before || lastSeq != 5 {
		t.Errorf("behind the end the row is at %s and says %d, expected another place and 5", after, lastSeq)
	}
}

// TestWhatIsBehindTheHistoryIsFenced has turns committed that do not know the last step of their execution: a step, a turn that parks and has
// recorded nothing, and one of an owner who remembers what he had before another owner's step.
func TestWhatIsBehindTheHistoryIsFenced(t *testing.T) {
	t.Parallel()
	b := setup(t)
	l := b.underWay()
	b.commit(b.step(l))
	for name, c := range map[string]core.Commit{"a step": b.step(l), "a turn that parks": b.turn(l)} {
		if _, err := b.Commit(t.Context(), c); !errors.Is(err, core.ErrFenced) {
			t.Errorf("%s behind a step that it does not know: %v", name, err)
		}
	}
	// Another owner finds another turn than is remembered, so that what is remembered is not gone on with; the same one does not, as he
	// may claim what he has just stored and has in hand.
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
		t.Errorf("behind a successor's claim: turn %d and %d entries, expected another than %d, and 2", after.Turn, len(after.History), before.Turn)
	}
	remembered := b.turn(before)
	remembered.Lease = b.lease
	if _, err := b.Commit(t.Context(), remembered); !errors.Is(err, core.ErrFenced) {
		t.Error("a turn of what was remembered from before the claim:", err)
	}
}

// TestStepsAndEndsOfOneTransaction commits steps of some executions with the ends of others, and a former owner's step: the row of one who
// had crashed forgets it, and each gets what it asked for but the former owner.
func TestStepsAndEndsOfOneTransaction(t *testing.T) {
	t.Parallel()
	for name, fenced := range map[string]bool{"all as asked": false, "one fenced": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			var items []*work
			var loaded []core.Loaded
			for i := range 4 {
				l := b.underWay()
				if _, err := b.Pool.Exec(t.Context(), "UPDATE execution SET crashes = 2 WHERE id = $1", l.ID); err != nil {
					t.Fatal(err)
				}
				c := b.step(l)
				switch {
				case i%2 == 1:
					c.Next = core.Completed
				case i == 2 && fenced:
					c.Lease.Epoch--
				}
				loaded, items = append(loaded, l), append(items, &work{turn: &turn{Commit: c}})
			}
			if err := b.commitAll(t.Context(), items); err != nil {
				t.Fatal(err)
			}
			for i, l := range loaded {
				of := items[0].turn
				for _, item := range items {
					if item.turn.Execution.ID == l.ID {
						of = item.turn
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

// TestACancellationKnowsTheLastStep ends an execution whose row does not say how far it has come.
func TestACancellationKnowsTheLastStep(t *testing.T) {
	t.Parallel()
	b := setup(t)
	l := b.underWay()
	b.commit(b.step(l))
	if ended, err := b.Cancel(t.Context(), 1, l.Workflow, "enough", b.clock.Now()); err != nil || !ended {
		t.Fatal(ended, err)
	}
	entries, err := b.History(t.Context(), l.ID, 0, 10)
	if err != nil {
		t.Fatal(err)
	}
	if _, lastSeq, _ := b.row(l.ID); len(entries) != 3 || lastSeq != 3 || entries[2].Kind != core.KindCancelled {
		t.Errorf("the row says %d and the history is %+v, expected 3 entries, the last of them about the end", lastSeq, entries)
	}
}
