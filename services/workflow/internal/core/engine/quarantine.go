package engine

import (
	"context"
	"fmt"
	"time"
)

// An execution whose turn kills the process would kill the next one as well, and for ever: it would be claimed by one process after the
// other until none is left. So the store counts, for every execution, how many processes have died while they owned it since it last made
// progress (Store.Claim), and after Settings.Crashes of them it is quarantined.
//
// A process that dies takes all of its executions with it, not only the cause, and it may die for another reason: a node that fails, too
// little memory, an operator. Innocent executions make progress as soon as they are claimed again, which clears them. Those that have not
// made progress in time are suspected, and from then on
//   - a process takes one of them at a time;
//   - only after it has lived for calm without any of them, so that a death with one is evidence against this one;
//   - and when a process dies that ran none of them, their crashes are reset: the cause is something else (Store.Exonerate).
//
// Two deaths in trials, each after a calm, are the evidence. That a process died while it merely owned an execution is not.

// probation is how long a process has to survive a suspect for it to be cleared. Other suspects wait meanwhile.
const probation = 10 * time.Second

// calm is how long a process lives without any suspect before it takes one.
const calm = 3 * probation

// suspicious is the number of crashes from which on an execution is suspected, and convicted that from which on it is quarantined.
func (e *Engine) suspicious() int { return e.Settings.Crashes - 1 }

func (e *Engine) convicted() int { return e.Settings.Crashes + 1 }

// suspect is an execution on probation; 0 for none.
type suspect struct {
	execution int64
	since     time.Time
}

// claimSuspect takes an execution that may be why processes die, unless there is one on probation.
func (e *Engine) claimSuspect(ctx context.Context, c Claim) int {
	if e.Clock.Now().Sub(e.began) < calm || e.suspect.execution != 0 && !e.cleared(ctx) {
		return 0
	}
	c.Suspected, c.Limit = true, 1
	c.Here, _ = e.places.here(c.Now)
	found, err := e.claimWhole(ctx, c)
	e.report(ctx, "claim a suspect", err)
	for _, w := range found {
		if w.Crashes >= e.convicted() {
			if !e.quarantine(ctx, w) {
				return 0 // not at once again
			}
			continue
		}
		e.Log.WarnContext(ctx, "processes have died while they ran this workflow", "workflow", w.Workflow, "organization", w.Organization,
			"crashes", w.Crashes)
		if err := e.Store.Try(ctx, e.lease, w.ID); err != nil {
			e.report(ctx, "try a suspect", err)
			return 0 // it is not run, and claimed again
		}
		e.suspect = suspect{execution: w.ID, since: e.Clock.Now()}
		e.places.wake(w.Woken)
	}
	return len(found)
}

// cleared reports whether the probation is over: the execution has left this process, or has been in it for long enough.
func (e *Engine) cleared(ctx context.Context) bool {
	if e.places.has(e.suspect.execution) {
		if e.Clock.Now().Sub(e.suspect.since) < probation {
			return false
		}
		if err := e.Store.Absolve(ctx, e.lease, e.suspect.execution); err != nil {
			e.report(ctx, "clear a suspect", err)
			return false
		}
	}
	if err := e.Store.Try(ctx, e.lease, 0); err != nil {
		e.report(ctx, "end a trial", err)
		return false
	}
	e.suspect = suspect{}
	return true
}

// quarantine sets an execution aside. Where that fails it is claimed again, and has not been run meanwhile.
func (e *Engine) quarantine(ctx context.Context, c Claimed) bool {
	reason := fmt.Sprintf("quarantined: %d processes in a row died while they ran it, the last ones while they lived without it and died with it; RetryWorkflow releases it", c.Crashes)
	ended, err := e.Store.Quarantine(ctx, c.Organization, c.Workflow, reason, e.Clock.Now())
	e.report(ctx, "quarantine", err)
	if ended {
		e.quarantined.Add(1)
		e.Log.ErrorContext(ctx, "workflow quarantined", "workflow", c.Workflow, "organization", c.Organization, "crashes", c.Crashes)
	}
	return err == nil
}

// releaseWithin bounds how long a process that ends takes to release its executions.
const releaseWithin = 2 * time.Second

// release gives up the owned executions: this is no crash, and other processes need not wait for the lease to expire. If the store is
// unavailable, it is as after a crash.
func (e *Engine) release(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseWithin)
	defer cancel()
	if err := e.Store.Release(ctx, e.lease); err != nil {
		e.Log.WarnContext(ctx, "releasing owned executions failed", "error", err)
	}
}
