package engine

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// An execution whose turn takes the process down would do so again in the next one, and for ever: the leases would pass it on until
// no process of the service is left. So the store counts, for every execution, how many processes have died with it in hand since
// it last got anywhere (Store.Claim), and one that has had Settings.Crashes of them is quarantined.
//
// A process that dies takes everybody's executions with it, not only the guilty one's, and it may die of something else: a node that goes
// away, too little memory, an operator. Innocent ones get on as soon as somebody claims them, which clears them. Those that have not got on
// in time are suspected, and from then on
//   - a process takes one of them at a time;
//   - only after it has lived for calm without any of them, so that a death with one in hand is a difference that this one made;
//   - and when a process dies that had none in hand, what counts against them begins anew: something else kills (Store.Exonerate).
//
// Two deaths in trials, with a calm behind each, are the evidence. That it was there when a process died is none.

// probation is how long a suspect has to be in hand without the process dying to be cleared. Others of its kind wait meanwhile.
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
	c.Here, _ = e.places.here()
	found, err := e.Store.Claim(ctx, c)
	e.report(ctx, "claim a suspect", err)
	for _, w := range found {
		if w.Crashes >= e.convicted() {
			if !e.quarantine(ctx, w) {
				return 0 // not at once again
			}
			continue
		}
		e.Log.WarnContext(ctx, "processes have died with this workflow in hand", "workflow", w.Workflow, "organization", w.Organization,
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
	here, _ := e.places.here()
	if slices.Contains(here, e.suspect.execution) {
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

// releaseWithin bounds the good-bye of a process that ends.
const releaseWithin = 2 * time.Second

// release gives up what is in hand: it is no crash, and others need not wait for the lease to run out. If the store is away it is
// as after a crash.
func (e *Engine) release(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseWithin)
	defer cancel()
	if err := e.Store.Release(ctx, e.lease); err != nil {
		e.Log.WarnContext(ctx, "releasing owned executions failed", "error", err)
	}
}
