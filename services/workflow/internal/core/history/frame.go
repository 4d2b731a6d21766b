package history

import (
	"encoding/json"
	"errors"
)

// End is what the last entry and the event about the end hold.
type End struct {
	Error    string `json:"error,omitempty"`
	Workflow string `json:"workflow_id"`
	// Result is what a child has returned to its parent.
	Result json.RawMessage `json:"result,omitempty"`
}

// CancelledEnd is End for a run that was cancelled, and the Value of an arrival for Cancellation.
type CancelledEnd struct {
	Reason   string `json:"reason"`
	Workflow string `json:"workflow_id"`
}

// Frame is one call that was under way in a program when it failed. It names places of the program and no values, so it
// can hold no secret.
type Frame struct {
	// Branch is the branch that made the call, from 0.
	Branch int `json:"branch"`
	// Function is the function that was being carried out: a name, <toplevel> or lambda.
	Function string `json:"function"`
	// Position is where it stood: file:line:column.
	Position string `json:"position"`
}

const (
	// maxFrames bounds the stack that is kept of a failure. The innermost calls are the ones that say most.
	maxFrames = 50
	// maxFrameText bounds a name and a position, in bytes: both are chosen by the program.
	maxFrameText = 256
)

// Failure is the last entry of a run that its program has failed, beside what is published about the end.
type Failure struct {
	End
	// Stack is the calls, the innermost first; empty where the error names the only one.
	Stack []Frame `json:"stack,omitempty"`
}

// StackOf is the stack of a failure that has one, as it can be stored.
func StackOf(failure error) []Frame {
	var traced interface{ CallStack() []Frame }
	if !errors.As(failure, &traced) {
		return nil
	}
	stack := traced.CallStack()
	stack = stack[:min(len(stack), maxFrames)]
	kept := make([]Frame, len(stack))
	for i, f := range stack {
		kept[i] = Frame{f.Branch, Storable(Truncate(f.Function, maxFrameText)), Storable(Truncate(f.Position, maxFrameText))}
	}
	return kept
}

// Stack reads the calls out of the last entry of a run; nil where it holds none.
func (e Entry) Stack() []Frame {
	var last Failure
	if e.Kind != KindFailed || json.Unmarshal(e.Value, &last) != nil {
		return nil
	}
	return last.Stack
}
