package engine

import (
	"context"
	"errors"

	"github.com/lockstep-cd/lockstep/pkg/clock"
)

// lookoutLoop finds what nobody was told of: what dead processes have left, what found no place when it was stored, timers and calls
// of others, and whatever a signal was lost for. It asks one question for all loops, so that a service with nothing to do, however much
// is parked, costs the database one look at some ends of indexes each Poll. The same statement keeps the lease alive.
//
// Trouble with the database is waited out: the lease only saves work, the commits are fenced by themselves.
func (e *Engine) lookoutLoop(ctx context.Context) error {
	// At a third of the lease a renewal may fail, and those after it are still in time.
	renewAfter := e.Settings.Lease / 3
	every := min(e.Settings.Poll, renewAfter)
	renewed := e.Clock.Now()
	for clock.Sleep(ctx, e.Clock, every) == nil {
		now := e.Clock.Now()
		r := Round{Lease: e.lease, Now: now, Soon: now.Add(every)}
		if until := e.timers.Until(); until.IsZero() || until.After(now) && until.Before(r.Soon) {
			r.Soon = until // the timer loop is awake then, if the clock was not set meanwhile
		}
		r.Here, _ = e.places.here()
		if now.Sub(renewed) >= renewAfter {
			r.Until = now.Add(e.Settings.Lease)
		}
		due, err := e.Store.Due(ctx, r)
		if errors.Is(err, ErrFenced) {
			e.Log.ErrorContext(ctx, "another process took this instance's name", "instance", e.lease.Instance)
			return err
		}
		e.report(ctx, "look for work", err)
		if err != nil {
			continue
		}
		if !r.Until.IsZero() {
			renewed = now
		}
		e.tell(due)
	}
	return nil
}

// tell wakes the loops that have something to do.
func (e *Engine) tell(due Due) {
	if due.Executions {
		e.claims.Raise()
	}
	if due.Timers {
		e.timers.Raise()
	}
	if due.Calls {
		e.calls.Raise()
	}
	if due.Orphans {
		e.orphans.Raise()
	}
	if due.Flows && e.Flows != nil {
		e.Flows()
	}
}
