package script

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"go.starlark.net/starlark"

	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/program"
)

// scope is what a call of attempt, or a deferred call, is made of: the branches that were spawned in it, and in those. It ends when all of
// them have ended, and what one of them fails with is the scope's to handle, and does not end the run.
type scope struct {
	branches []*branch
}

// The codes of errors that no Function has answered with.
const (
	// codeFail is the code of an error that the program has raised with fail.
	codeFail = "fail"
	// codeProgram is the code of every other error of the program itself: a key that a dict does not have, a call that does not fit.
	codeProgram = "program"
)

// raised is an error as attempt and the end of a deferred call record it, and as a program sees it.
type raised struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	// Where is the place in the program, file:line:column; empty where no place of it is involved.
	Where string `json:"where,omitempty"`
}

// attempted is the Value of an entry of KindAttempt and KindDeferred.
type attempted struct {
	OK bool `json:"ok"`
	// From is the first operation of the calling branch that belongs to the attempt.
	From  string  `json:"from,omitempty"`
	Error *raised `json:"error,omitempty"`
}

// limitError is a limit of the sandbox that a program has met. It ends the run: a program that could catch it would have no limit.
type limitError struct{ text string }

// Error is the text.
func (e *limitError) Error() string { return e.text }

// stepped is what the interpreter says of a thread that was stopped, because its program took too many steps.
const stepped = "Starlark computation cancelled"

// catchable reports whether a scope may handle an error. The end of the run, a mismatch, a limit and a defect of the interpreter it may
// not.
func catchable(err error) bool {
	if errors.Is(err, errClosed) || errors.Is(err, errContinued) {
		return false
	}
	if _, is := errors.AsType[*program.Mismatch](err); is {
		return false
	}
	if _, is := errors.AsType[*PanicError](err); is {
		return false
	}
	if _, is := errors.AsType[*limitError](err); is {
		return false
	}
	return !strings.HasPrefix(innermost(err).Error(), stepped)
}

// innermost is the first error of a chain that went through several calls.
func innermost(err error) error {
	for {
		eval, ok := errors.AsType[*starlark.EvalError](err)
		if !ok {
			return err
		}
		if eval.Unwrap() == nil {
			return errors.New(eval.Msg)
		}
		err = eval.Unwrap()
	}
}

// describeRaised puts an error into the words that are recorded.
func describeRaised(err error) *raised {
	r := &raised{Code: codeProgram}
	var last *starlark.EvalError
	for inner := err; ; inner = last.Unwrap() {
		eval, ok := errors.AsType[*starlark.EvalError](inner)
		if !ok {
			break
		}
		last = eval
	}
	cause := innermost(err)
	r.Message = cause.Error()
	if last != nil {
		if at, ok := locate(last).(*located); ok { //nolint:errorlint // what locate answers is not wrapped
			r.Where = at.position
		}
		if len(last.CallStack) > 0 && last.CallStack.At(0).Name == "fail" {
			r.Code, r.Message = codeFail, strings.TrimPrefix(strings.TrimPrefix(r.Message, "fail:"), " ")
		}
	}
	if refusal, ok := errors.AsType[*history.FunctionError](err); ok {
		r.Code, r.Message = refusal.Code, refusal.Message
	}
	r.Message, r.Where = history.Storable(history.Truncate(r.Message, history.MaxError)), history.Storable(history.Truncate(r.Where, maxName))
	return r
}

// value is the error as a program sees it.
func (r *raised) value() starlark.Value {
	if r == nil {
		return starlark.None
	}
	o := newObject(3)
	o.set("code", starlark.String(r.Code))
	o.set("message", starlark.String(r.Message))
	o.set("where", starlark.String(r.Where))
	return o
}

// attempt(fn, *args, **kwargs) calls fn and answers {ok, value, error}: what fn returned, or the error that it ended with, {code, message,
// where}. Branches that are spawned inside belong to it: it waits for all of them, and what one of them fails with is its error, if fn
// itself has none. What ends the run, a cancellation or a limit, it does not catch.
//
// The outcome is recorded: later versions of the engine may word an error in another way, and the program may have branched on it.
func attempt(thread *starlark.Thread, fn *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	b, err := branchOf(thread, fn)
	if err != nil {
		return nil, err
	}
	called, err := callee(fn.Name(), args)
	if err != nil {
		return nil, err
	}
	from := history.OpRef{Branch: b.number, Index: b.ops}
	outer, inner := b.scope, new(scope)
	b.scope = inner
	value, failure := starlark.Call(thread, called, args[1:], kwargs)
	b.scope = outer
	if failure != nil && !catchable(failure) {
		return nil, failure
	}
	for i := 0; i < len(inner.branches); i++ { // which may spawn more
		if err := b.await(inner.branches[i]); err != nil {
			return nil, err
		}
		if failure == nil {
			failure = inner.branches[i].err
		}
	}
	outcome := attempted{OK: failure == nil, From: from.String()}
	if failure != nil {
		outcome.Error, value = describeRaised(failure), starlark.None
	}
	recorded, err := b.settled(history.KindAttempt, called.Name(), outcome)
	if err != nil {
		return nil, err
	}
	o := newObject(3)
	o.set("ok", starlark.Bool(recorded.OK))
	o.set("value", value)
	o.set("error", recorded.Error.value())
	return o, nil
}

// settled records the outcome of a scope, or has it from the history.
func (b *branch) settled(kind history.Kind, name string, outcome attempted) (attempted, error) {
	encoded, err := json.Marshal(outcome)
	if err != nil {
		return outcome, fmt.Errorf("encode the outcome of %s: %w", name, err)
	}
	op := b.op(kind, history.Truncate(name, maxName), nil)
	seq := b.machine.nextSeq()
	c, err := b.machine.immediate(op, func() history.Completion { return history.Completion{Op: op.Ref, Value: encoded} })
	if err != nil {
		return outcome, err
	}
	var recorded attempted
	if err := json.Unmarshal(c.Value, &recorded); err != nil {
		return outcome, fmt.Errorf("the recorded outcome of %s: %w", name, err)
	}
	if recorded.OK != outcome.OK {
		return outcome, &program.Mismatch{
			Seq: seq, Position: b.machine.position(op.Ref), Call: op.Ref,
			Differs: fmt.Sprintf("%s has %s in the history, now it has %s", title(kind, name), went(recorded), went(outcome)),
		}
	}
	return recorded, nil
}

func went(outcome attempted) string {
	if outcome.OK {
		return "succeeded"
	}
	return "failed"
}

// callee is the first argument of attempt, defer and on_cancel.
func callee(builtin string, args starlark.Tuple) (starlark.Callable, error) {
	if len(args) == 0 {
		return nil, fmt.Errorf("%s: expected a function and its arguments", builtin)
	}
	called, ok := args[0].(starlark.Callable)
	if !ok {
		return nil, fmt.Errorf("%s: the first argument is a %s, expected a function", builtin, args[0].Type())
	}
	return called, nil
}

// patched(name) reports whether the run takes a change of its program that was made while runs were under way: True in a run that
// gets here for the first time with the new program, which is recorded, and False in one whose history was recorded without it. The answer
// for a name stays the same for the rest of the generation.
func patched(thread *starlark.Thread, fn *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	b, err := branchOf(thread, fn)
	if err != nil {
		return nil, err
	}
	var name string
	if err := starlark.UnpackArgs(fn.Name(), args, kwargs, "name", &name); err != nil {
		return nil, err
	}
	if name == "" {
		return nil, errors.New("patched: name is empty, expected the name of a change")
	}
	if err := checkName("patched: name", name); err != nil {
		return nil, err
	}
	m := b.machine
	if taken, known := m.patches[name]; known {
		return starlark.Bool(taken), nil
	}
	taken := !m.resuming
	if m.replaying() {
		next := m.history[m.replayed]
		taken = next.Kind == history.KindPatched && next.Name == name && next.Op == (history.OpRef{Branch: b.number, Index: b.ops})
	}
	if m.patches == nil {
		m.patches = map[string]bool{}
	}
	m.patches[name] = taken
	if !taken {
		return starlark.False, nil // and no operation of its own: those of the history have the numbers
	}
	op := b.op(history.KindPatched, name, nil)
	if _, err := m.immediate(op, func() history.Completion {
		return history.Completion{Op: op.Ref, Value: json.RawMessage("true")}
	}); err != nil {
		return nil, err
	}
	return starlark.True, nil
}
