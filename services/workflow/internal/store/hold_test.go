package store

import (
	"slices"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/engine"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/execution"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
)

// TestHeldRunsAreNotClaimed: of its own runs a process claims those that are held at their time only, and so does its successor; who does
// not own a run holds none, and what parks is held no more.
func TestHeldRunsAreNotClaimed(t *testing.T) {
	t.Parallel()
	b := newTestStore(t)
	var ids []int64
	for range 4 {
		ids = append(ids, b.startRun(1).ID)
	}
	slices.Sort(ids)
	until := b.clock.Now().Add(time.Minute)
	hold := func(l engine.Lease, until time.Time, of ...int64) []int64 {
		t.Helper()
		var holdings []engine.Holding
		for _, id := range of {
			holdings = append(holdings, engine.Holding{Execution: id, Until: until})
		}
		held, err := b.Hold(t.Context(), l, holdings)
		if err != nil {
			t.Fatal(err)
		}
		var done []int64
		for _, h := range held {
			done = append(done, h.Execution)
		}
		slices.Sort(done)
		return done
	}
	due := func(l engine.Lease) bool {
		t.Helper()
		found, err := b.Due(t.Context(), engine.Round{Lease: l, Now: b.clock.Now(), Soon: b.clock.Now()})
		if err != nil {
			t.Fatal(err)
		}
		return found.Executions
	}
	same(t, "held by another", []int64(nil), hold(engine.Lease{Instance: "two", Epoch: 1}, until, ids...))
	same(t, "held", ids, hold(b.lease, until, ids...))
	same(t, "claimed while they are held", []int64(nil), b.claim(b.lease))
	same(t, "due while they are held", false, due(b.lease))
	same(t, "held no more", ids[:1], hold(b.lease, time.Time{}, ids[0]))
	same(t, "due", true, due(b.lease))
	same(t, "claimed", ids[:1], b.claim(b.lease))

	parks := b.load(ids[1])
	if done := b.commit(b.parking(parks)); done.State != execution.Parked {
		t.Fatalf("found %+v", done)
	}
	if err := b.Release(t.Context(), b.lease); err != nil {
		t.Fatal(err)
	}
	b.lease = b.acquire("one")
	same(t, "claimed after a restart", ids[:1], b.claim(b.lease))
	b.clock.Advance(time.Minute)
	b.lease = b.acquire("one")
	same(t, "claimed at their time", []int64{ids[0], ids[2], ids[3]}, b.claim(b.lease))
}

// TestACancellationEndsAHold: a run that a process held for an hour, and that was cancelled after the process has gone, is claimed at once,
// so that it makes the calls that it has deferred.
func TestACancellationEndsAHold(t *testing.T) {
	t.Parallel()
	b := newTestStore(t)
	l := b.startRun(1)
	c := b.parking(l)
	c.LastSeq++
	c.Entries = append(c.Entries, b.entry(c.LastSeq, history.OpRef{}, history.KindDefer, "null"))
	c.Next = execution.Running
	b.commit(c)
	if _, err := b.Hold(t.Context(), b.lease, []engine.Holding{{Execution: l.ID, Until: b.clock.Now().Add(time.Hour)}}); err != nil {
		t.Fatal(err)
	}
	if err := b.Release(t.Context(), b.lease); err != nil {
		t.Fatal(err)
	}
	b.lease = b.acquire("two")
	same(t, "claimed while it is held", []int64(nil), b.claim(b.lease))
	if ended, err := b.Cancel(t.Context(), 1, l.Workflow, "enough", b.clock.Now()); err != nil || ended {
		t.Fatalf("found ended %t, error %v", ended, err)
	}
	same(t, "claimed once it is cancelled", []int64{l.ID}, b.claim(b.lease))
}
