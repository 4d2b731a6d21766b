package script

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.starlark.net/starlark"

	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/program"
)

// builtin is what starlark.NewBuiltin takes.
type builtin = func(*starlark.Thread, *starlark.Builtin, starlark.Tuple, []starlark.Tuple) (starlark.Value, error)

// builtins are what a program can do beside computing. A new name here is also one of added: runs that were started with such an input
// have that, and continue.
func builtins() map[string]builtin {
	return map[string]builtin{
		"run":            run,
		"poll":           poll,
		"sleep":          sleep,
		"wait_for_event": waitForEvent,
		"spawn":          spawn,
		"gather":         gather,
		"attempt":        attempt,
		"defer":          deferCall,
		"on_cancel":      onCancel,
		"patched":        patched,
		"set_status":     setStatus,
		"start_workflow": startWorkflow,
		"await_workflow": awaitWorkflow,
		"channel":        makeChannel,
		"receive":        receive,
		"inbox":          inbox,
		"reply":          reply,
		"on_event":       onEvent,
		"continue_with":  continueWith,
		"history_length": historyLength,
		"now":            now,
		"uuid":           uuid,
		"random":         random,
		"parse_yaml":     parseYAML,
		"to_yaml":        toYAML,
	}
}

// added reports whether a builtin came after programs with inputs of that name may have been started. Such an input hides it.
func added(name string) bool {
	switch name {
	case "attempt", "defer", "on_cancel", "patched", "start_workflow", "await_workflow", "set_status", "inbox", "reply":
		return true
	}
	return false
}

// maxWait is the longest sleep or timeout: a mistyped unit should not park a run forever.
const maxWait = 10 * 365 * 24 * time.Hour

// branchOf finds the branch that a builtin is called on. A module has none: its top level may run in any branch that
// loads it first, and must not act in that one's name.
func branchOf(thread *starlark.Thread, fn *starlark.Builtin) (*branch, error) {
	b, ok := thread.Local(branchKey).(*branch)
	if !ok {
		return nil, fmt.Errorf("%s: a module may only define things at its top level; call %s from a function", fn.Name(), fn.Name())
	}
	if b.deciding {
		return nil, fmt.Errorf("%s: the condition of a poll may only compute", fn.Name())
	}
	return b, nil
}

// arguments checks what run and poll have in common, and encodes the Function's arguments; nil are none.
func (b *branch) arguments(builtin, name string, given starlark.Value, onError string) (json.RawMessage, error) {
	if err := checkName("function", name); err != nil {
		return nil, fmt.Errorf("%s: %w", builtin, err)
	}
	if err := checkOnError(onError); err != nil {
		return nil, fmt.Errorf("%s(%q): %w", builtin, name, err)
	}
	if given == nil {
		return json.RawMessage("{}"), nil
	}
	if _, isMapping := given.(starlark.IterableMapping); !isMapping {
		return nil, fmt.Errorf("%s(%q): args is a %s, expected a dict", builtin, name, given.Type())
	}
	encoded, err := encode(given, b.machine.limits.Value)
	if err != nil {
		return nil, fmt.Errorf("%s(%q): args: %w", builtin, name, err)
	}
	return encoded, nil
}

// parameters are those of run.
type parameters struct {
	name, onError         string
	given, timeout, retry starlark.Value
}

// runParameters reads them. The interpreter's own way is for any parameters and gives each a place on the heap; most calls
// are a name and a dict.
func runParameters(fn *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (parameters, error) {
	if len(args) == 2 && len(kwargs) == 0 {
		if name, ok := args[0].(starlark.String); ok {
			return parameters{name: string(name), given: args[1], onError: onErrorFail, retry: starlark.True}, nil
		}
	}
	a := &parameters{onError: onErrorFail, retry: starlark.True}
	err := starlark.UnpackArgs(fn.Name(), args, kwargs, "function", &a.name, "args?", &a.given, "on_error?", &a.onError, "timeout??",
		&a.timeout, "retry??", &a.retry)
	return *a, err
}

// run(function, args={}, on_error="fail", timeout=None, retry=True) has a Function carried out and answers its value.
// With on_error="return" it answers {ok, value, error, code} instead of failing the run (D36).
func run(thread *starlark.Thread, fn *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	b, err := branchOf(thread, fn)
	if err != nil {
		return nil, err
	}
	a, err := runParameters(fn, args, kwargs)
	if err != nil {
		return nil, err
	}
	name, onError := a.name, a.onError
	encoded, err := b.arguments("run", name, a.given, onError)
	if err != nil {
		return nil, err
	}
	again, policy, err := retrying(a.retry)
	if err != nil {
		return nil, fmt.Errorf("run(%q): retry%w", name, err)
	}
	limit, err := duration("timeout", a.timeout)
	if err != nil {
		return nil, fmt.Errorf("run(%q): %w", name, err)
	}
	var c history.Completion
	if name == activity.EmitFunction {
		c, err = b.emit(encoded)
	} else {
		op := b.op(history.KindRun, name, encoded)
		// Timeout and retry are no part of the fingerprint: they say how long to wait, not what is done.
		op.Args, op.Timeout, op.NoRetry, op.Retry = encoded, within(a.timeout, limit), !again, policy
		c, err = b.block(op)
	}
	if err != nil {
		return nil, err
	}
	what := fn.Name()
	if c.Error != nil {
		what = fmt.Sprintf("%s(%q)", what, name)
	}
	return b.result(what, onError, c)
}

// emit sends a domain event in the transaction that records it. On replay the history answers: the event has left
// with the turn that recorded it, and is not sent again.
func (b *branch) emit(args json.RawMessage) (history.Completion, error) {
	var event struct {
		Type string          `json:"type"`
		Data json.RawMessage `json:"data"`
	}
	_ = json.Unmarshal(args, &event) // what does not fit is missing, and refused below
	if err := checkName("emit: type", event.Type); err != nil {
		return history.Completion{}, err
	}
	op := b.op(history.KindEmit, event.Type, args)
	id := history.ActivityID(b.machine.env.Ref, op.Ref)
	return b.machine.immediate(op, func() history.Completion {
		if refusal := b.machine.env.Emit(id, event.Type, event.Data); refusal != nil {
			return history.Completion{Op: op.Ref, Error: refusal}
		}
		b.machine.emits = append(b.machine.emits, history.Emit{ID: id, Type: event.Type, Data: event.Data})
		value, err := json.Marshal(map[string]string{"event_id": id})
		if err != nil {
			return history.Completion{Op: op.Ref, Error: history.AsFunctionError(err)}
		}
		return history.Completion{Op: op.Ref, Value: value}
	})
}

// sleep(seconds) waits.
func sleep(thread *starlark.Thread, fn *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	b, err := branchOf(thread, fn)
	if err != nil {
		return nil, err
	}
	var seconds starlark.Value
	if err := starlark.UnpackArgs(fn.Name(), args, kwargs, "seconds", &seconds); err != nil {
		return nil, err
	}
	// A soak time that was forgotten is not zero. Histories of earlier releases, in which it was, may contain one.
	if seconds == starlark.None && !b.machine.replaying() {
		return nil, errors.New("sleep: seconds is None, expected a number of seconds")
	}
	d, err := duration("seconds", seconds)
	if err != nil {
		return nil, fmt.Errorf("sleep: %w", err)
	}
	op := b.op(history.KindSleep, "", []byte(d.String()))
	op.Timeout = d
	_, err = b.block(op)
	return starlark.None, err
}

// waitForEvent(type, filter={}, timeout=None, on_error="fail", filters={}) waits for the first event of one of the types whose data has the
// values of the filter, and of that which filters has for its type, and answers it, or None after timeout seconds. Without a timeout the
// configured default applies, whose end fails the run (D12), as an event does that cannot be read; with on_error="return" either is {ok,
// value, error, code}.
func waitForEvent(thread *starlark.Thread, fn *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	b, err := branchOf(thread, fn)
	if err != nil {
		return nil, err
	}
	var given, timeout, each starlark.Value
	var filter starlark.Value = starlark.NewDict(0)
	onError := onErrorFail
	if err := starlark.UnpackArgs(fn.Name(), args, kwargs, "type", &given, "filter??", &filter, "timeout??", &timeout, "on_error?",
		&onError, "filters??", &each); err != nil {
		return nil, err
	}
	if err := checkOnError(onError); err != nil {
		return nil, fmt.Errorf("wait_for_event: %w", err)
	}
	types, err := eventTypes(fn.Name(), given)
	if err != nil {
		return nil, err
	}
	if slices.Contains(types, history.TypeMessage) {
		return nil, fmt.Errorf("wait_for_event: %s is received with receive(channel) only", history.TypeMessage)
	}
	limit, err := duration("timeout", timeout)
	if err != nil {
		return nil, fmt.Errorf("wait_for_event: %w", err)
	}
	wanted := history.Filter{}
	if err := b.flatten(wanted, filter); err != nil {
		return nil, fmt.Errorf("wait_for_event: %w", err)
	}
	filters, err := b.filters(types, wanted, each)
	if err != nil {
		return nil, fmt.Errorf("wait_for_event: %w", err)
	}
	parts := []any{types, wanted, limit}
	if len(filters) > 0 {
		parts = append(parts, filters)
	}
	fingerprint, err := json.Marshal(parts)
	if err != nil {
		return nil, fmt.Errorf("wait_for_event: %w", err)
	}
	op := b.op(history.KindWait, joinTypes(types), fingerprint)
	op.Types, op.Filter, op.Filters, op.Timeout = types, wanted, filters, within(timeout, limit)
	c, err := b.block(op)
	if err != nil {
		return nil, err
	}
	return b.result("wait_for_event", onError, c)
}

// now() is the time in whole seconds since 1970, read once and recorded.
func now(thread *starlark.Thread, fn *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	return recorded(thread, fn, args, kwargs, history.KindNow, func(e program.Environment) any { return e.Now().Unix() })
}

// uuid() is a unique identifier, made once and recorded.
func uuid(thread *starlark.Thread, fn *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	return recorded(thread, fn, args, kwargs, history.KindUUID, func(e program.Environment) any { return e.UUID() })
}

// random() is a number from 0 up to but not including 1, drawn once and recorded.
func random(thread *starlark.Thread, fn *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	v, err := recorded(thread, fn, args, kwargs, history.KindRandom, func(e program.Environment) any { return e.Random() })
	if err != nil {
		return nil, err
	}
	// JSON writes 0.0 as 0, which would come back as an int.
	f, _ := starlark.AsFloat(v) // only numbers are recorded
	return starlark.Float(f), nil
}

// recorded asks the environment once. Every replay has the answer from the history, since a program that branched on
// another one would not be the program that was recorded (D34).
func recorded(
	thread *starlark.Thread, fn *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple, kind history.Kind,
	answer func(program.Environment) any,
) (starlark.Value, error) {
	b, err := branchOf(thread, fn)
	if err != nil {
		return nil, err
	}
	if err := starlark.UnpackArgs(fn.Name(), args, kwargs); err != nil {
		return nil, err
	}
	op := b.op(kind, "", nil)
	c, err := b.machine.immediate(op, func() history.Completion {
		value, err := json.Marshal(answer(b.machine.env))
		if err != nil {
			return history.Completion{Op: op.Ref, Error: history.AsFunctionError(err)}
		}
		return history.Completion{Op: op.Ref, Value: value}
	})
	if err != nil {
		return nil, err
	}
	return b.result(fn.Name(), onErrorFail, c)
}

// result is what a program sees of a completion. It is decoded from the recorded JSON the first time, too: a replay
// must not see another type than the first run did.
func (b *branch) result(what, onError string, c history.Completion) (starlark.Value, error) {
	var value starlark.Value = starlark.None
	switch {
	// A poll that ended with an error has what it saw last beside it.
	case c.Value == nil, c.Error != nil && onError != onErrorReturn:
	case b.machine.replaying() && c.Value[0] == '{':
		value = recordedObject(c.Value)
	default:
		var err error
		if value, err = decode(c.Value); err != nil {
			return nil, fmt.Errorf("%s: the recorded value: %w", what, err)
		}
	}
	if onError == onErrorReturn {
		return envelope(value, c.Error), nil
	}
	if c.Error != nil {
		return nil, fmt.Errorf("%s: %w", what, c.Error)
	}
	return value, nil
}

// The ways to treat an error (D36).
const (
	onErrorFail   = "fail"
	onErrorReturn = "return"
)

func checkOnError(s string) error {
	if s != onErrorFail && s != onErrorReturn {
		return fmt.Errorf("on_error is %q, expected %q or %q", s, onErrorFail, onErrorReturn)
	}
	return nil
}

// envelope is {ok, value, error, code}.
func envelope(value starlark.Value, failure *history.FunctionError) starlark.Value {
	o := newObject(4)
	o.set("ok", starlark.Bool(failure == nil))
	o.set("value", value)
	o.set("error", starlark.None)
	o.set("code", starlark.None)
	if failure != nil {
		o.set("error", starlark.String(failure.Message))
		o.set("code", starlark.String(failure.Code))
	}
	return o
}

// within is the timeout of an operation for what a program gave and duration has read: no time, which is what is left of a
// deadline that has passed, is not the default.
func within(given starlark.Value, limit time.Duration) time.Duration {
	if given != nil && given != starlark.None {
		return max(limit, history.NoTime)
	}
	return limit
}

// duration reads seconds; None is 0.
func duration(name string, v starlark.Value) (time.Duration, error) {
	if v == nil || v == starlark.None {
		return 0, nil
	}
	seconds, ok := starlark.AsFloat(v)
	if !ok {
		return 0, fmt.Errorf("%s is a %s, expected a number of seconds", name, v.Type())
	}
	if !(seconds >= 0 && seconds <= maxWait.Seconds()) { // NaN fails too
		return 0, fmt.Errorf("%s is %v, expected 0 to %.0f seconds", name, seconds, maxWait.Seconds())
	}
	return time.Duration(seconds * float64(time.Second)), nil
}
