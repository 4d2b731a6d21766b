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
	e, err := o.find(ctx, organization, workflow)
	if err == nil && wait > 0 && !e.State.Ended() {
		e, err = o.untilEnded(ctx, e, o.clock.Now().Add(wait))
	}
	if err != nil {
		return View{}, err
	}
	return o.view(ctx, e)
}

// untilEnded answers the execution when it has ended, or as it stands at the deadline.
func (o *Operator) untilEnded(ctx context.Context, e Execution, deadline time.Time) (Execution, error) {
	ended, forget := o.runner.Watch(e.ID)
	defer func() { forget() }()
	for {
		// It may have ended between the look before and Watch.
		now, err := o.store.Get(ctx, e.Organization, e.Workflow)
		left := deadline.Sub(o.clock.Now())
		if err != nil || now.State.Ended() || left <= 0 {
			return now, err
		}
		t := o.clock.NewTimer(min(left, lookAgain))
		select {
		case <-ended:
			// A closed channel says so once; a retry may have it run again.
			forget()
			ended, forget = o.runner.Watch(e.ID)
		case <-t.C():
		case <-ctx.Done():
			err = ctx.Err()
		}
		t.Stop()
		if err != nil {
			return now, err
		}
	}
}
