package control

import (
	"context"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/execution"
)

const (
	// lookAgain is how often a wait asks the store for what may have ended in another process.
	lookAgain = time.Second
	// MaxWait is the longest that a caller may wait.
	MaxWait = time.Minute
)

// ErrStopping ends calls that would last longer while the service stops; their callers retry.
var ErrStopping = fault.New(fault.Unavailable, "the service stops; ask again")

// Wait is how long a caller would rather wait for the end of an execution than have its state: For, and not beyond Stopping.
type Wait struct {
	// For is 0 to MaxWait.
	For time.Duration
	// Stopping is closed when the service stops; nil: it does not.
	Stopping <-chan struct{}
}

func (w Wait) check() error {
	if w.For < 0 || w.For > MaxWait {
		return fault.InvalidFields(fault.Field{Name: "wait", Problem: "found " + w.For.String() + ", expected 0s to " + MaxWait.String()})
	}
	return nil
}

// Await is View for a caller who wants the end: it returns once the execution has ended, and after the wait with its present state.
// ErrStopping: the service stops, which has nothing to do with the execution.
func (o *Operator) Await(ctx context.Context, organization int64, workflow string, w Wait) (View, error) {
	if err := w.check(); err != nil {
		return View{}, err
	}
	if err := execution.CheckNamed(workflow); err != nil {
		return View{}, err
	}
	// Before the look: it may end right after it.
	ended, forget := o.runner.Watch(organization, workflow)
	defer forget()
	v, err := o.await(ctx, organization, workflow, "", w, ended)
	if err != nil {
		return View{}, err
	}
	if _, known := o.runner.Recall(organization, workflow); known {
		return v, nil // the store has nothing more about it
	}
	return o.reported(ctx, v)
}

// StartAndAwait is Start and Await in one. A run that ends between its commit and the wait is not missed, and where it runs in this
// process the store is not asked how it ended. An error that comes with a receipt is about the wait: the run is stored, and
// the same start again joins the wait.
func (o *Operator) StartAndAwait(ctx context.Context, start execution.Start, w Wait) (execution.Started, View, error) {
	if err := w.check(); err != nil {
		return execution.Started{}, View{}, err // before anything is stored: a refusal is one of all
	}
	// Before the start: it may end with its commit.
	ended, forget := o.runner.Watch(start.Organization, start.Workflow)
	defer forget()
	started, err := o.Start(ctx, start)
	if err != nil {
		return execution.Started{}, View{}, err
	}
	v, err := o.await(ctx, start.Organization, start.Workflow, started.Ref, w, ended)
	return started, v, err
}

// await waits for the end that the channel ended reports, and polls the store for one that it may not report. ref is the run that is meant;
// empty: whichever has the id.
func (o *Operator) await(
	ctx context.Context, organization int64, workflow, ref string, w Wait, ended <-chan execution.Execution,
) (View, error) {
	deadline, left := o.clock.Now().Add(w.For), w.For
	if !o.runner.Runs(organization, workflow) {
		left = 0 // else its end is reported here, usually within milliseconds, and the store is polled where that takes longer
	}
	var e execution.Execution
	for {
		end, reported, err := o.until(ctx, ended, w.Stopping, min(left, lookAgain))
		switch {
		case err != nil:
			return View{}, err
		case reported && end.Attempt == 1:
			return View{Execution: end}, nil // started in this process: the store has nothing more about it
		case reported && e.ID != 0:
			e.State, e.Error, e.Stack, e.EndedAt, e.UpdatedAt, e.LastSeq = end.State, end.Error, end.Stack, end.EndedAt, end.UpdatedAt, end.LastSeq
			e.Generation, e.Base = end.Generation, end.Base
			return o.view(ctx, e)
		}
		if e, known := o.runner.Recall(organization, workflow); known && (ref == "" || e.Ref == ref) {
			return View{Execution: e}, nil // it waits for nothing, and was never retried
		}
		if e, err = o.store.Get(ctx, organization, workflow); err != nil {
			return View{}, err
		}
		if left = deadline.Sub(o.clock.Now()); e.State.Ended() || left <= 0 {
			return o.view(ctx, e)
		}
	}
}

// until returns the end that the channel ended reports within d.
func (o *Operator) until(
	ctx context.Context, ended <-chan execution.Execution, stopping <-chan struct{}, d time.Duration,
) (end execution.Execution, reported bool, err error) {
	if d <= 0 {
		select {
		case end = <-ended:
			return end, true, nil
		default:
			return execution.Execution{}, false, nil
		}
	}
	t := o.clock.NewTimer(d)
	defer t.Stop()
	select {
	case end = <-ended:
		return end, true, nil
	case <-t.C():
		return execution.Execution{}, false, nil
	case <-stopping:
		return execution.Execution{}, false, ErrStopping
	case <-ctx.Done():
		return execution.Execution{}, false, ctx.Err()
	}
}
