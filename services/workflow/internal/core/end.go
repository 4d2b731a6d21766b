package core

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// maxError bounds the text of a failure in bytes: it goes into the row, the history and an event.
const maxError = 4 << 10

// end commits the last turn: the final entry and the event that tells the world, in the transaction of the rest.
// Every run that fails tells so (D36). The event's id is made of handle and state: a repeat is the same event (D16).
func (d *driver) end(ctx context.Context, failure error) (State, error) {
	last, err := d.ending(ctx, failure)
	if err != nil {
		return last.Next, err
	}
	return d.store(ctx, last)
}

// endData is what the last entry and the event about the end hold.
type endData struct {
	Error    string `json:"error,omitempty"`
	Workflow string `json:"workflow_id"`
}

// ending puts the end of the run into the present turn.
func (d *driver) ending(ctx context.Context, failure error) (Commit, error) {
	for ref, cancel := range d.running {
		cancel()
		delete(d.running, ref)
	}
	state, kind, text := Completed, KindCompleted, ""
	emit := Emit{Type: TypeCompleted}
	data := endData{Workflow: d.loaded.Workflow}
	if failure != nil {
		state, kind, emit.Type = Failed, KindFailed, TypeFailed
		text = storable(truncate(failure.Error(), maxError))
		data.Error = text
		d.logFailure(ctx, failure)
	}
	encoded, err := json.Marshal(data)
	if err != nil {
		return Commit{Next: state}, fmt.Errorf("encode %s of %q: %w", emit.Type, d.loaded.Workflow, err)
	}
	emit.ID, emit.Data = d.loaded.Ref+"/"+string(kind), encoded
	// Whoever reads the history looks for the place in the program. The world is told what it can do something about.
	stack := stackOf(failure)
	if len(stack) > 0 {
		if encoded, err = json.Marshal(failed{data, stack}); err != nil {
			return Commit{Next: state}, fmt.Errorf("encode the end of %q: %w", d.loaded.Workflow, err)
		}
	}
	d.seq++
	d.entries = append(d.entries, Entry{Seq: d.seq, Op: OpRef{Branch: -1}, Kind: kind, Value: encoded, At: d.engine.Clock.Now()})
	d.emits = append(d.emits, d.emit(emit))
	return Commit{Next: state, Error: text, Stack: stack}, nil
}

// fail ends an execution that cannot even be replayed, or whose turn cannot be kept.
func (d *driver) fail(ctx context.Context, failure error) error {
	_, err := d.end(ctx, failure)
	return err
}

// drop ends a run whose turn the store refuses for what is in it: doing it again would lead to the same.
func (d *driver) drop(ctx context.Context, refusal error) error {
	d.engine.Log.ErrorContext(ctx, "turn cannot be stored", "workflow", d.loaded.Workflow, "organization", d.loaded.Organization, "error", refusal)
	// Back to where the store stands: the last entry has to follow without a gap.
	d.seq -= int64(len(d.entries))
	d.entries, d.emits, d.closed = nil, nil, nil
	return d.fail(ctx, errors.New("what the program did last cannot be stored; the service's log says why"))
}

// logFailure is where the stack of a panic goes: histories hold none, for it differs between processes.
func (d *driver) logFailure(ctx context.Context, failure error) {
	d.engine.Log.WarnContext(ctx, "workflow failed", "workflow", d.loaded.Workflow, "organization", d.loaded.Organization, "error", failure)
	if panicked, ok := failure.(interface{ StackTrace() []byte }); ok {
		d.engine.Log.ErrorContext(ctx, "workflow panicked", "workflow", d.loaded.Workflow, "stack", string(panicked.StackTrace()))
	}
}

// storable is text that PostgreSQL takes: a program may fail with anything, and a failure that cannot be kept would be
// tried again for ever.
func storable(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\ufffd"), "\x00", "\ufffd")
}

// truncate may cut a character in two. storable, which sees the text afterwards, mends that.
func truncate(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	return s[:limit] + Cut
}
