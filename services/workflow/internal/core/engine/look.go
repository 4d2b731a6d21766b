package engine

import (
	"context"
	"slices"

	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/execution"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
)

// fromWakeup takes the arrival that the wake-up carries. all is set if nothing else has arrived since the run parked: the counter of
// arrivals is then one higher than at that time. A look at the moment of its commit would have read the same, so the fence and the
// counter of the next commit notice whatever has happened after it, as they do after a look.
func (r *run) fromWakeup() (arrival Arrival, all bool) {
	c := r.wakeup
	r.wakeup = nil
	if c == nil || c.Wakes != r.loaded.Wakes+1 {
		return Arrival{}, false
	}
	r.touched, r.loaded.Wakes = true, c.Wakes
	return c.Arrival, true
}

// look reads what has arrived for the execution. If its state is Parked there is none: the wake-up was late.
func (r *run) look(ctx context.Context) (execution.State, []Arrival, error) {
	r.touched = true
	// The counter is read before the arrivals. What arrives later makes it differ, so the next commit does not park.
	standing, arrived, err := r.engine.Store.Arrivals(ctx, r.loaded.ID)
	r.loaded.Wakes = standing.Wakes
	return standing.State, arrived, err
}

// cancellation reads whether a run with a debt was cancelled. What else has arrived is read when that is paid.
func (r *run) cancellation(ctx context.Context) ([]Arrival, error) {
	_, arrived, err := r.look(ctx)
	return slices.DeleteFunc(arrived, func(a Arrival) bool { return a.Op != history.Cancellation }), err
}

// await returns what has arrived, after a result of this process, a wake-up, or a while.
func (r *run) await(ctx context.Context) ([]Arrival, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if len(r.answered) > 0 {
		answered := r.answered
		r.answered = nil
		for _, c := range answered {
			r.complete(c)
		}
		r.moreResults()
		return nil, nil
	}
	// If no Function runs, the turn was cut short, or an arrival kept it from parking: look at once.
	if len(r.running) > 0 {
		// Results that are available go first: the order is not left to chance, so that a simulated schedule can be repeated.
		if r.moreResults() {
			return nil, nil
		}
		t := r.engine.Clock.NewTimer(r.patience())
		defer t.Stop()
		select {
		case c := <-r.results:
			r.complete(c)
			r.moreResults()
			return nil, nil // whatever else has arrived raises woken
		case <-r.woken:
		case <-t.C():
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if r.engine.owing(r.loaded.ID) > 0 {
			return r.cancellation(ctx)
		}
	}
	_, arrived, err := r.look(ctx)
	return arrived, err
}

// moreResults takes the results that have arrived meanwhile, so that they share the commit, and reports whether there were some. What the
// history has no room for waits until the commit has measured it.
func (r *run) moreResults() (some bool) {
	for len(r.running) > 0 && r.roomFor(1) {
		select {
		case c := <-r.results:
			r.complete(c)
			some = true
		default:
			return some
		}
	}
	return some
}
