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
func (d *run) end(ctx context.Context, failure error) (execution.State, error) {
	last, err := d.ending(ctx, failure)
	if err != nil {
		return last.Next, err
	}
	return d.store(ctx, last)
}

// ending puts the end of the run into the present turn.
func (d *run) ending(ctx context.Context, failure error) (Commit, error) {
	for ref, cancel := range d.running {
		cancel()
		delete(d.running, ref)
	}
	state, kind, text := execution.Completed, history.KindCompleted, ""
	emit := history.Emit{Type: history.TypeCompleted}
	data := history.End{Workflow: d.loaded.Workflow}
	if failure != nil {
		state, kind, emit.Type = execution.Failed, history.KindFailed, history.TypeFailed
		text = history.Storable(history.Truncate(failure.Error(), history.MaxError))
		data.Error = text
		d.logFailure(ctx, failure)
	}
	if failure == nil && id.IsChildRun(d.loaded.Workflow) {
		data.Result = d.machine.Result()
	}
	encoded, err := json.Marshal(data)
	if cause, is := errors.AsType[*program.Stopped](failure); is && cause.Cancelled {
		state, kind, emit.Type = execution.Cancelled, history.KindCancelled, history.TypeCancelled
		text = history.Storable(cause.Reason)
		encoded, err = json.Marshal(history.CancelledEnd{Workflow: d.loaded.Workflow, Reason: text})
	}
	if err != nil {
		return Commit{Next: state}, fmt.Errorf("encode %s of %q: %w", emit.Type, d.loaded.Workflow, err)
	}
	emit.ID, emit.Data = d.loaded.Ref+"/"+string(kind), encoded
	// The history also has the place in the program where it failed; the published event has only the error.
	stack := history.StackOf(failure)
	if len(stack) > 0 {
		if encoded, err = json.Marshal(history.Failure{End: data, Stack: stack}); err != nil {
			return Commit{Next: state}, fmt.Errorf("encode the end of %q: %w", d.loaded.Workflow, err)
		}
	}
	d.seq++
	d.entries = append(d.entries, history.Entry{
		Seq: d.seq, Op: history.OpRef{Branch: -1}, Kind: kind, Value: encoded,
		At: d.engine.Clock.Now(),
	})
	d.emits = append(d.emits, d.emit(emit))
	return Commit{Next: state, Error: text, Stack: stack}, nil
}

// cancelled has a run that was cancelled call what it has deferred. One that is ending already does so anyway, and ends as it would have.
func (d *run) cancelled(a Arrival) {
	d.closed = append(d.closed, a.Op)
	var why history.CancelledEnd
	_ = json.Unmarshal(a.Value, &why) // the store's own; without a reason it is cancelled as well
	d.machine.Stop(program.Stopped{Cancelled: true, Reason: why.Reason})
}

// withdraw drops what is known of operations that nobody waits for any more: the run has ended, and calls what it has deferred, or such a
// call was given up or has ended.
func (d *run) withdraw() {
	if !d.machine.Ending() {
		return
	}
	for ref := range d.open {
		if _, pending := d.pending(ref); !pending {
			d.forget(ref)
		}
	}
}

// fail ends an execution that cannot even be replayed, or whose turn cannot be kept.
func (d *run) fail(ctx context.Context, failure error) error {
	_, err := d.end(ctx, failure)
	return err
}

// drop ends a run whose turn the store refuses for what is in it: doing it again would lead to the same.
func (d *run) drop(ctx context.Context, refusal error) error {
	d.engine.Log.ErrorContext(ctx, "turn cannot be stored", "workflow", d.loaded.Workflow, "organization",
		d.loaded.Organization, "error", refusal)
	// Back to where the store stands: the last entry has to follow without a gap.
	d.seq -= int64(len(d.entries))
	d.entries, d.emits, d.closed, d.starts = nil, nil, nil, nil
	return d.fail(ctx, errors.New("what the program did last cannot be stored; the service's log says why"))
}

// logFailure is where the stack of a panic goes: histories hold none, for it differs between processes.
func (d *run) logFailure(ctx context.Context, failure error) {
	if cause, is := errors.AsType[*program.Stopped](failure); is && cause.Cancelled {
		return
	}
	d.engine.Log.WarnContext(ctx, "workflow failed", "workflow", d.loaded.Workflow, "organization", d.loaded.Organization, "error", failure)
	if panicked, ok := failure.(interface{ StackTrace() []byte }); ok {
		d.engine.Log.ErrorContext(ctx, "workflow panicked", "workflow", d.loaded.Workflow, "stack", string(panicked.StackTrace()))
	}
}

// emit completes an event with whose it is.
func (d *run) emit(e history.Emit) history.Emit {
	e.Organization, e.Workflow, e.Time = d.loaded.Organization, d.loaded.Workflow, d.engine.Clock.Now()
	return e
}
