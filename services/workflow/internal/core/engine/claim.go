package engine

import (
	"context"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/wake"
)

// claimLoop takes executions that are runnable and have no live owner: those of dead processes, those that found no free place when
// they were stored, and those whose signal was lost. Its cost grows with these alone, never with what is parked.
func (e *Engine) claimLoop(ctx context.Context) {
	for ctx.Err() == nil {
		if e.claim(ctx) > 0 {
			continue
		}
		wait := wake.MaxIdle
		if e.suspect.execution != 0 {
			wait = e.Settings.Poll // its probation ends by itself
		}
		e.claims.Wait(ctx, e.Clock, wait)
	}
}

// claim takes as many executions as there are free places, and answers how many it took.
func (e *Engine) claim(ctx context.Context) int {
	now := e.Clock.Now()
	here, free := e.places.here(now)
	if free <= 0 {
		e.places.callWhenFree(e.claims.Raise)
		return 0
	}
	c := Claim{Lease: e.lease, Now: now, Here: here, Limit: free, Suspicious: e.suspicious()}
	found, err := e.claimWhole(ctx, c)
	e.report(ctx, "claim executions", err)
	for _, w := range found {
		e.places.wake(w.Woken)
	}
	if err != nil {
		return 0
	}
	return len(found) + e.claimSuspect(ctx, c)
}

// claimWhole waits for the answer of a claim also when ctx ends: one that was given up would be carried out by the database later, for a
// process that has released everything by then, and its end would count as a crash.
func (e *Engine) claimWhole(ctx context.Context, c Claim) ([]Claimed, error) {
	whole, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() {
		_ = clock.Sleep(whole, e.Clock, releaseWithin)
		cancel()
	})()
	return e.Store.Claim(whole, c)
}
