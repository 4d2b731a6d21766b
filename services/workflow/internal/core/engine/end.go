package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/lockstep-cd/lockstep/pkg/id"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/execution"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/program"
)

// end commits the last turn: the final entry and the event about the end, in one transaction with the rest.
// Every run that fails publishes one (D36). The event's id is made of handle and state: a repeat is the same event (D16).
func (r *run) end(ctx context.Context, failure error) (execution.State, error) {
	last, err := r.ending(ctx, failure)
	if err != nil {
		return last.Next, err
	}
	return r.store(ctx, last)
}

// ending puts the end of the run into the present turn.
func (r *run) ending(ctx context.Context, failure error) (Commit, error) {
	for ref, cancel := range r.running {
		cancel()
		delete(r.running, ref)
	}
	state, kind, text := execution.Completed, history.KindCompleted, ""
	emit := history.Emit{Type: history.TypeCompleted}
	data := history.End{Workflow: r.loaded.Workflow}
	if failure != nil {
		state, kind, emit.Type = execution.Failed, history.KindFailed, history.TypeFailed
		text = history.Storable(history.Truncate(failure.Error(), history.MaxError))
		data.Error = text
		r.logFailure(ctx, failure)
	}
	if failure == nil && id.IsChildRun(r.loaded.Workflow) {
		data.Result = r.machine.Result()
	}
	encoded, err := json.Marshal(data)
	if cause, is := errors.AsType[*program.Stopped](failure); is && cause.Cancelled {
		state, kind, emit.Type = execution.Cancelled, history.KindCancelled, history.TypeCancelled
		text = history.Storable(cause.Reason)
		encoded, err = json.Marshal(history.CancelledEnd{Workflow: r.loaded.Workflow, Reason: text})
	}
	if err != nil {
		return Commit{Next: state}, fmt.Errorf("encode %s of %q: %w", emit.Type, r.loaded.Workflow, err)
	}
	emit.ID, emit.Data = r.loaded.Ref+"/"+string(kind), encoded
	// The history also has the place in the program where it failed; the published event has only the error.
	stack := history.StackOf(failure)
	if len(stack) > 0 {
		if encoded, err = json.Marshal(history.Failure{End: data, Stack: stack}); err != nil {
			return Commit{Next: state}, fmt.Errorf("encode the end of %q: %w", r.loaded.Workflow, err)
		}
	}
	r.seq++
	r.entries = append(r.entries, history.Entry{
		Seq: r.seq, Op: history.OpRef{Branch: -1}, Kind: kind, Value: encoded,
		At: r.engine.Clock.Now(),
	})
	r.emits = append(r.emits, r.emit(emit))
	return Commit{Next: state, Error: text, Stack: stack}, nil
}

// cancelled has a run that was cancelled call what it has deferred. One that is ending already does so anyway, and ends as it would have.
func (r *run) cancelled(a Arrival) {
	r.closed = append(r.closed, a.Op)
	r.engine.excuse(r.loaded.ID)
	var why history.CancelledEnd
	_ = json.Unmarshal(a.Value, &why) // the store's own; without a reason it is cancelled as well
	r.machine.Stop(program.Stopped{Cancelled: true, Reason: why.Reason})
}

// withdraw drops what is known of operations that are no longer waited for: the run has ended, and calls what it has deferred, or such a
// call was given up or has ended.
func (r *run) withdraw() {
	if !r.machine.Ending() {
		return
	}
	for ref := range r.open {
		if _, pending := r.pending(ref); !pending {
			r.forget(ref)
		}
	}
}

// fail ends an execution that cannot even be replayed, or whose turn cannot be kept.
func (r *run) fail(ctx context.Context, failure error) error {
	_, err := r.end(ctx, failure)
	return err
}

// drop ends a run whose turn the store refuses for what is in it: doing it again would lead to the same.
func (r *run) drop(ctx context.Context, refusal error) error {
	r.engine.Log.ErrorContext(ctx, "turn cannot be stored", "workflow", r.loaded.Workflow, "organization",
		r.loaded.Organization, "error", refusal)
	// Back to where the store stands: the last entry has to follow without a gap.
	r.seq -= int64(len(r.entries))
	r.entries, r.emits, r.closed, r.starts = nil, nil, nil, nil
	return r.fail(ctx, errors.New("what the program did last cannot be stored; the service's log says why"))
}

// logFailure is where the stack of a panic goes: histories hold none, for it differs between processes.
func (r *run) logFailure(ctx context.Context, failure error) {
	if cause, is := errors.AsType[*program.Stopped](failure); is && cause.Cancelled {
		return
	}
	r.engine.Log.WarnContext(ctx, "workflow failed", "workflow", r.loaded.Workflow, "organization", r.loaded.Organization, "error", failure)
	if panicked, ok := failure.(interface{ StackTrace() []byte }); ok {
		r.engine.Log.ErrorContext(ctx, "workflow panicked", "workflow", r.loaded.Workflow, "stack", string(panicked.StackTrace()))
	}
}

// emit completes an event with whose it is.
func (r *run) emit(e history.Emit) history.Emit {
	e.Organization, e.Workflow, e.Time = r.loaded.Organization, r.loaded.Workflow, r.engine.Clock.Now()
	return e
}
