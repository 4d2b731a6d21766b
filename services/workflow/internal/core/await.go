package core

import (
	"context"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

const (
	// lookAgain is how often Await asks the store for what may have ended in another process.
	lookAgain = time.Second
	// MaxWait is the longest that Await waits.
	MaxWait = time.Minute
)

// Await is View for a caller who would rather know the end: it answers once the execution has ended, and after wait with
// how it stands then.
func (o *Operator) Await(ctx context.Context, organization int64, workflow string, wait time.Duration) (View, error) {
	if wait < 0 || wait > MaxWait {
		return View{}, fault.InvalidFields(fault.Field{Name: "wait", Problem: "found " + wait.String() + ", expected 0s to " + MaxWait.String()})
	}
	deadline := o.clock.Now().Add(wait)
	// Before the look: it may end right after it.
	ended, forget := o.runner.Watch(organization, workflow)
	defer forget()
	if wait > 0 && o.runner.Runs(organization, workflow) {
		// Its end is told here, mostly within milliseconds. The store is asked where that takes longer.
		if _, err := o.until(ctx, ended, Execution{}, min(wait, lookAgain)); err != nil {
			return View{}, err
		}
	}
	for {
		if e, known := o.runner.Recall(organization, workflow); known {
			return View{Execution: e}, nil // it waits for nothing, and was never retried
		}
		e, err := o.find(ctx, organization, workflow)
		left := deadline.Sub(o.clock.Now())
		if err == nil && !e.State.Ended() && left > 0 {
			e, err = o.until(ctx, ended, e, min(left, lookAgain))
			if err == nil && !e.State.Ended() {
				continue
			}
		}
		if err != nil {
			return View{}, err
		}
		return o.view(ctx, e)
	}
}

// until answers the execution when it has ended, or as it is after d.
func (o *Operator) until(ctx context.Context, ended <-chan Execution, e Execution, d time.Duration) (Execution, error) {
	t := o.clock.NewTimer(d)
	defer t.Stop()
	select {
	case end := <-ended:
		e.State, e.Error, e.EndedAt, e.UpdatedAt, e.LastSeq = end.State, end.Error, end.EndedAt, end.UpdatedAt, end.LastSeq
		e.Generation, e.Base = end.Generation, end.Base
	case <-t.C():
	case <-ctx.Done():
		return e, ctx.Err()
	}
	return e, nil
}
