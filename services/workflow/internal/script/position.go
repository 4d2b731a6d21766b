package script

import (
	"errors"
	"slices"
	"strings"

	"go.starlark.net/starlark"

	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
)

// position is where the innermost Starlark code of a thread stands.
func position(thread *starlark.Thread) string {
	if frame := caller(thread); frame.Pos.IsValid() {
		return frame.Pos.String()
	}
	return ""
}

const builtinFile = "<builtin>"

// locate puts the position of the innermost Starlark code in front of an error's text.
func locate(err error) error {
	eval, ok := errors.AsType[*starlark.EvalError](err)
	if !ok {
		return err
	}
	for i := range eval.CallStack {
		frame := eval.CallStack.At(i)
		if i == 0 && len(eval.CallStack) > 1 && misfit(eval) {
			continue // at fault is the call, and not the first line of what is called
		}
		if pos := frame.Pos; pos.Filename() != builtinFile {
			return &located{position: pos.String(), cause: eval}
		}
	}
	return eval
}

// misfit reports whether the arguments of the innermost call do not fit what is called.
func misfit(eval *starlark.EvalError) bool {
	return strings.HasPrefix(eval.Msg, "function "+eval.CallStack.At(0).Name+" ")
}

// located is a failure of the program with its place.
type located struct {
	position string
	cause    *starlark.EvalError
	// stack is the calls that were under way, the innermost first; empty where position is the only one.
	stack []history.Frame
}

// Error is "file:line:column: message", on one line for the history.
func (l *located) Error() string { return l.position + ": " + l.cause.Msg }

// Unwrap returns the cause, so that callers find a *program.Mismatch.
func (l *located) Unwrap() error { return l.cause }

// CallStack is the calls that were under way, the innermost first, as core shows them.
func (l *located) CallStack() []history.Frame { return l.stack }

// trace adds to a failure of the branch the calls that led to it, and the calls of spawn that led to the branch.
func (b *branch) trace(err error) error {
	failure, ok := err.(*located) //nolint:errorlint // what locate answers is not wrapped
	if !ok {
		return err
	}
	stack := frames(b.number, calls(failure.cause))
	if misfit(failure.cause) && (len(stack) > 1 || b.parent != nil) {
		if stack = stack[1:]; len(stack) == 0 {
			failure.position = b.spawned.Pos.String()
		}
	}
	for child := b; child.parent != nil; child = child.parent {
		stack = append(stack, frames(child.parent.number, starlark.CallStack{child.spawned})...)
	}
	if len(stack) > 1 {
		failure.stack = stack
	}
	return failure
}

// calls is the whole stack of an error, the innermost call last. An error that has passed through a builtin which calls back, as
// poll does, or through load, which runs the module by itself, has a stack for each part of its way.
func calls(err error) starlark.CallStack {
	var stack starlark.CallStack
	for {
		eval, ok := errors.AsType[*starlark.EvalError](err)
		if !ok {
			return stack
		}
		inner := eval.CallStack
		if len(inner) >= len(stack) && slices.Equal(places(inner[:len(stack)]), places(stack)) {
			stack = slices.Clone(inner) // of the same thread: it continues where the outer one ends
		} else {
			stack = append(stack, inner...)
		}
		err = eval.Unwrap()
	}
}

// places makes stacks comparable.
func places(stack starlark.CallStack) []string {
	all := make([]string, len(stack))
	for i, frame := range stack {
		all[i] = frame.Name + frame.Pos.String()
	}
	return all
}

// frames turns a stack round, and leaves out what is not the program's.
func frames(branch int, stack starlark.CallStack) []history.Frame {
	var all []history.Frame
	for _, frame := range slices.Backward(stack) {
		if frame.Pos.IsValid() && frame.Pos.Filename() != builtinFile {
			all = append(all, history.Frame{Branch: branch, Function: frame.Name, Position: frame.Pos.String()})
		}
	}
	return all
}

// caller is the innermost call of Starlark code on a thread that is in a builtin.
func caller(thread *starlark.Thread) starlark.CallFrame {
	for i := range thread.CallStackDepth() {
		if frame := thread.CallFrame(i); frame.Pos.IsValid() && frame.Pos.Filename() != builtinFile {
			return frame
		}
	}
	return starlark.CallFrame{}
}
