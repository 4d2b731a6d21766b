package engine

import (
	"testing"
	"time"
)

// TestWhatIsHeldIsNotNamed: however many executions rest, a claim names only those that the store does not hold at its time.
func TestWhatIsHeldIsNotNamed(t *testing.T) {
	t.Parallel()
	p := newScheduler(10, 1<<20)
	now := time.Date(2026, 3, 2, 9, 0, 0, 0, time.UTC)
	var holdings []Holding
	for n := range int64(10_000) {
		p.resting[n+1] = resting{why: OverRate}
		holdings = append(holdings, Holding{n + 1, now.Add(time.Minute)})
	}
	if ids, free := p.here(now); len(ids) != 10_000 || free != 10 {
		t.Errorf("found %d executions before they are held, and %d free places", len(ids), free)
	}
	p.hold(holdings, holdings)
	if ids, _ := p.here(now); len(ids) != 0 {
		t.Errorf("found %d executions although they are held", len(ids))
	}
	if rests, _ := p.toHold(now); len(rests) != 0 {
		t.Errorf("found %d to hold that are held", len(rests))
	}
	if rests, _ := p.toHold(now.Add(59 * time.Second)); len(rests) != 10_000 {
		t.Errorf("found %d to hold again shortly before their time", len(rests))
	}
	if ids, _ := p.here(now.Add(time.Minute)); len(ids) != 10_000 {
		t.Errorf("found %d executions when their time has come", len(ids))
	}
	// One that a claim has found all the same, or that was woken, is named; one that is resumed is not held any more.
	p.wake(Woken{ID: 7, Ours: true})
	if ids, _ := p.here(now); len(ids) != 1 || ids[0] != 7 {
		t.Errorf("found %v, expected the one that was woken", ids)
	}
	p.resume(job{id: 8})
	if _, resumed := p.toHold(now); len(resumed) != 1 || resumed[0] != 8 {
		t.Errorf("found %v, expected the one that was resumed", resumed)
	}
	if _, resumed := p.toHold(now); len(resumed) != 0 {
		t.Errorf("found %v a second time", resumed)
	}
	if !p.has(7) || p.has(20_000) {
		t.Error("found others in the process")
	}
}
