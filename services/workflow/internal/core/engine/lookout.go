package engine

import (
	"context"
	"errors"

	"github.com/lockstep-cd/lockstep/pkg/clock"
)

// lookoutLoop finds work for which no signal was received: executions of dead processes, executions that found no free place when they
// were stored, timers and calls of other processes, and lost signals. One statement serves all loops, so an idle service costs the
// database one look at the ends of some indexes each Poll, however many executions are parked. The same statement renews the lease.
//
// Errors of the database are retried: the lease only saves work; each commit is fenced by itself.
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
		r.Here, _ = e.places.here(now)
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
		e.raise(due)
	}
	return nil
}

// raise wakes the loops that have something to do.
func (e *Engine) raise(due Due) {
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
