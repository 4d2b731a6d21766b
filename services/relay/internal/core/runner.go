package core

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/turn"
)

// The Functions that a relay carries out.
const (
	FunctionGet     = "k8s.get"
	FunctionSync    = "argo.sync"
	FunctionPromote = "argo.promote"
	FunctionAbort   = "argo.abort"
	FunctionRetry   = "argo.retry"
)

// RunnerDeps are what a Runner needs.
type RunnerDeps struct {
	Cluster Cluster
	Clock   clock.Clock
	Log     *slog.Logger
	// Poll is how long a wait goes without looking, when no watch says that something has changed.
	Poll time.Duration
}

// Runner carries out calls. It is safe for concurrent use.
type Runner struct {
	cluster Cluster
	clock   clock.Clock
	log     *slog.Logger
	poll    time.Duration
	// syncing has a turn for each Application.
	syncing turn.Keys
}

// NewRunner makes a Runner.
func NewRunner(d RunnerDeps) *Runner {
	return &Runner{cluster: d.Cluster, clock: d.Clock, log: d.Log, poll: d.Poll}
}

// Run carries out one call and ends with its deadline at the latest. Every outcome is an Answer.
func (r *Runner) Run(ctx context.Context, call Call) Answer {
	answer := Answer{CallID: call.ID, Attempt: call.Attempt}
	ctx, cancel := context.WithTimeout(ctx, r.budget(call.Deadline))
	defer cancel()
	value, err := r.dispatch(ctx, call)
	if err != nil {
		answer.Err = asError(err)
		if answer.Err.Code == CodeInternal {
			r.log.ErrorContext(ctx, "function failed", "call_id", call.ID, "function", call.Function, "error", err)
		}
		return answer
	}
	answer.Value = value
	return answer
}

// budget ends a little before the deadline, so that the answer, which says what was waited for, arrives in time. That
// little is a tenth of what is left, 2 s at most.
func (r *Runner) budget(deadline time.Time) time.Duration {
	left := deadline.Sub(r.clock.Now())
	return left - min(left/10, 2*time.Second)
}

// dispatch has the Functions that internal/function of the workflow service declares with the location Cluster.
func (r *Runner) dispatch(ctx context.Context, call Call) (map[string]any, error) {
	switch call.Function {
	case FunctionGet:
		return r.get(ctx, call)
	case FunctionSync:
		return r.sync(ctx, call)
	case FunctionPromote:
		return r.rollout(ctx, call, true, NextPromotion)
	case FunctionAbort:
		return r.rollout(ctx, call, false, NextAbort)
	case FunctionRetry:
		return r.rollout(ctx, call, false, NextRetry)
	default:
		known := []string{FunctionGet, FunctionSync, FunctionPromote, FunctionAbort, FunctionRetry}
		slices.Sort(known)
		return nil, fault.InvalidFields(fault.Field{Name: "function", Problem: fmt.Sprintf(
			"found %q, expected one of %s", call.Function, strings.Join(known, ", "))})
	}
}

// sync brings one Application at a time to one revision: a second call for the same one would otherwise take the first
// one's outcome off the Application before the first has seen it.
func (r *Runner) sync(ctx context.Context, call Call) (map[string]any, error) {
	want, err := parseSync(call)
	if err != nil {
		return nil, err
	}
	release, err := r.syncing.Enter(ctx, want.Ref.String())
	if err != nil {
		return nil, &Error{Code: CodeTimeout, Message: want.Ref.String() + ": waited for an earlier sync of it to end"}
	}
	defer release()
	return r.drive(ctx, want.Ref, func(observed Object) (Decision, error) {
		want.Now = r.clock.Now()
		return NextSync(want, observed)
	})
}

// rollout drives one of the three Functions on a Rollout. Each is one patch, so they need no queue.
func (r *Runner) rollout(
	ctx context.Context, call Call, withStep bool, next func(RolloutRequest, Object) (Decision, error),
) (map[string]any, error) {
	want, err := parseRollout(call.Args, withStep)
	if err != nil {
		return nil, err
	}
	return r.drive(ctx, want.Ref, func(observed Object) (Decision, error) { return next(want, observed) })
}

// drive looks, decides and does, until the decision is that nothing is left to do. A cluster that is away, and an
// object that changed between look and deed, only cost another round; what ends the rounds is the call's deadline.
func (r *Runner) drive(ctx context.Context, ref Ref, next func(Object) (Decision, error)) (map[string]any, error) {
	waiting, pause := "the cluster to answer", firstPause
	for ctx.Err() == nil {
		observed, err := r.cluster.Get(ctx, ref)
		// An absent object is nil to the decision, which knows whether that is an error.
		if err == nil || fault.Is(err, fault.NotFound) {
			var d Decision
			if d, err = next(observed); err != nil {
				return nil, err
			}
			if d.Action == Wait {
				waiting = d.Waiting
				r.cluster.AwaitChange(ctx, ref, observed.resourceVersion(), r.poll)
				continue
			}
			err = r.do(ctx, ref, d)
			// A patch with a value is the last word; one without is a step, after which the object is looked at again.
			if err == nil && d.Value != nil {
				return d.Value, nil
			}
		}
		switch {
		case err == nil:
			pause = firstPause
			continue
		case fault.Is(err, fault.Unavailable):
			waiting = "the cluster to answer: " + err.Error()
		case fault.Is(err, fault.Conflict):
			waiting = "others to stop changing it: " + err.Error()
		default:
			return nil, err
		}
		_ = clock.Sleep(ctx, r.clock, pause) // the loop's condition sees the end of ctx
		pause = min(2*pause, longestPause)
	}
	return nil, &Error{Code: CodeTimeout, Message: fmt.Sprintf("%s: waited until the deadline for %s", ref, waiting)}
}

// The pauses between attempts that the cluster refused.
const (
	firstPause   = 50 * time.Millisecond
	longestPause = 3 * time.Second
)

// do carries a decision out.
func (r *Runner) do(ctx context.Context, ref Ref, d Decision) error {
	switch d.Action {
	case Create:
		return r.cluster.Create(ctx, ref, d.Body)
	case Patch:
		return r.cluster.Patch(ctx, ref, d.Body, d.Status)
	case Wait, Done:
	}
	return nil
}
