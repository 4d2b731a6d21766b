package engine

import (
	"context"

	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/execution"
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
