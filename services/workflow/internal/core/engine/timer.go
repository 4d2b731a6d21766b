package engine

import (
	"context"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/wake"
)

// timerBatch bounds how many executions one firing locks and wakes.
const timerBatch = 500

// timerLoop fires timers when they are due. For timers that other processes open, and after an error, the lookout wakes it.
func (e *Engine) timerLoop(ctx context.Context) {
	for ctx.Err() == nil {
		now := e.Clock.Now()
		fired, next, err := e.Store.FireTimers(ctx, now, timerBatch)
		e.report(ctx, "fire timers", err)
		if fired == timerBatch {
			continue
		}
		until := now.Add(wake.MaxIdle)
		if !next.IsZero() && next.Before(until) {
			// The next timer may have become due since now was read; the floor keeps the loop from spinning.
			until = later(next, now.Add(time.Millisecond))
		}
		e.timers.Sleep(ctx, e.Clock, until)
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// forgetEvery is how often old events are forgotten.
const forgetEvery = time.Hour

// forgetLoop forgets events that are older than any wait may look for.
func (e *Engine) forgetLoop(ctx context.Context) {
	for ctx.Err() == nil {
		e.report(ctx, "forget old events", e.Store.Forget(ctx, e.Clock.Now().Add(-e.Settings.Retention)))
		_ = clock.Sleep(ctx, e.Clock, forgetEvery) // ends early with ctx
	}
}

// patience is how long to wait for the Functions under way before the next look at the store, or before calls that are not stored yet
// have to be.
func (r *run) patience() time.Duration {
	patience, now := r.engine.Settings.Poll, r.engine.Clock.Now()
	for ref := range r.running {
		if known := r.open[ref]; !known.stored {
			patience = min(patience, known.intended().Sub(now))
		}
	}
	return max(patience, time.Millisecond)
}
