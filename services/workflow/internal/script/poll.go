package script

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"go.starlark.net/starlark"
	"go.starlark.net/starlarkstruct"

	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
)

// defaultInterval is the pause between two rounds of a poll (E42).
const defaultInterval = 30 * time.Second

// poll(function, args={}, until=, interval=30, timeout=None, on_error="fail") has a Function carried out again and again
// until the program is content with its value, and answers that value. It is one operation however long it lasts.
//
// until is a function of the value, or a dict of the values that it must have, as in a filter. Only the value that ends
// the poll is recorded, so until may look at everything and change nothing: it is not called when a run is replayed.
func poll(thread *starlark.Thread, fn *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	b, err := branchOf(thread, fn)
	if err != nil {
		return nil, err
	}
	var (
		name              string
		given, until      starlark.Value
		interval, timeout starlark.Value
		onError           = onErrorFail
	)
	if err := starlark.UnpackArgs(fn.Name(), args, kwargs, "function", &name, "args?", &given, "until?", &until, "interval??", &interval,
		"timeout??", &timeout, "on_error?", &onError); err != nil {
		return nil, err
	}
	what := fmt.Sprintf("poll(%q)", name)
	encoded, err := b.arguments("poll", name, given, onError)
	if err != nil {
		return nil, err
	}
	content, named, err := b.condition(until)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	op := history.Op{Interval: defaultInterval}
	if interval != nil {
		if op.Interval, err = duration("interval", interval); err != nil {
			return nil, fmt.Errorf("%s: %w", what, err)
		}
	}
	if op.Interval < time.Second {
		return nil, fmt.Errorf("%s: interval is %s, expected at least a second", what, op.Interval)
	}
	limit, err := duration("timeout", timeout)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	op.Timeout = within(timeout, limit)
	fingerprint, err := json.Marshal([]any{encoded, named})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	numbered := b.op(history.KindPoll, name, fingerprint)
	op.Ref, op.Kind, op.Name, op.Hash, op.Position, op.Args = numbered.Ref, numbered.Kind, name, numbered.Hash, numbered.Position, encoded
	c, err := b.observe(op, content)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	return b.result(what, onError, c)
}

// observe blocks until the poll is over: with an error, with a value that the program is content with, or with what the
// history says. It records the value itself; what a poll has seen before leaves no trace.
func (b *branch) observe(op history.Op, content func(*branch, history.Completion) (bool, error)) (history.Completion, error) {
	for {
		c, err := b.block(op)
		if err != nil || b.replayed || c.Error != nil {
			return c, err
		}
		enough, err := content(b, c)
		if err != nil {
			return c, err
		}
		if enough {
			b.machine.record(op, c)
			return c, nil
		}
	}
}

// condition is until as a test of an observation, and what of it goes into the fingerprint.
func (b *branch) condition(until starlark.Value) (content func(*branch, history.Completion) (bool, error), named any, err error) {
	switch until := until.(type) {
	case nil:
		return nil, nil, errors.New("until is missing, expected a function of the value or a dict of what it must have")
	case starlark.Callable:
		return func(b *branch, c history.Completion) (bool, error) { return b.asks(until, c) }, until.Name(), nil
	case starlark.IterableMapping:
		wanted := history.Filter{}
		if err := b.flatten(wanted, until); err != nil {
			return nil, nil, fmt.Errorf("until: %w", err)
		}
		return func(_ *branch, c history.Completion) (bool, error) { return wanted.Matches(c.Value), nil }, wanted, nil
	default:
		return nil, nil, fmt.Errorf("until is a %s, expected a function of the value or a dict of what it must have", until.Type())
	}
}

// asks calls until. While it does, the branch can do nothing else, and everything that until can reach is held.
func (b *branch) asks(until starlark.Callable, c history.Completion) (bool, error) {
	value, err := decode(c.Value)
	if err != nil {
		return false, fmt.Errorf("the value: %w", err)
	}
	b.deciding = true
	release := hold(until)
	answer, err := starlark.Call(b.thread, until, starlark.Tuple{value}, nil)
	release()
	b.deciding = false
	if err != nil {
		return false, fmt.Errorf("until, which may look at everything but change and do nothing: %w", locate(err))
	}
	return bool(answer.Truth()), nil
}

// hold keeps everything that can be reached from a value from being changed, until it is released. The interpreter
// refuses to change what is being iterated over.
func hold(from starlark.Value) (release func()) {
	var held []starlark.Iterator
	seen := map[any]bool{}
	todo := []starlark.Value{from}
	first := func(key any) bool {
		again := seen[key]
		seen[key] = true
		return !again
	}
	for len(todo) > 0 {
		v := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		switch v := v.(type) {
		case *starlark.List:
			if first(v) {
				held = append(held, v.Iterate())
				for i := range v.Len() {
					todo = append(todo, v.Index(i))
				}
			}
		case *Object:
			todo = append(todo, v.members())
		case *starlark.Dict:
			if first(v) {
				held = append(held, v.Iterate())
				for _, item := range v.Items() {
					todo = append(todo, item...) // a key may be a function
				}
			}
		case *starlark.Set:
			if first(v) {
				for item := range starlark.Elements(v) {
					todo = append(todo, item) // as a key of a dict
				}
				held = append(held, v.Iterate())
			}
		case starlark.Tuple:
			todo = append(todo, v...)
		case *starlarkstruct.Struct:
			for _, name := range v.AttrNames() {
				if member, err := v.Attr(name); err == nil {
					todo = append(todo, member)
				}
			}
		case *starlark.Builtin:
			todo = append(todo, v.Receiver())
		case *starlark.Function:
			if first(v) {
				todo = append(todo, reach(v, first)...)
			}
		}
	}
	return func() {
		for _, it := range held {
			it.Done()
		}
	}
}

// reach is what a function can see besides its arguments: what it has closed over, its defaults, the globals of its
// file.
func reach(f *starlark.Function, first func(any) bool) (values []starlark.Value) {
	for i := range f.NumFreeVars() {
		if _, v := f.FreeVar(i); v != nil {
			values = append(values, v)
		}
	}
	for i := range f.NumParams() {
		if v := f.ParamDefault(i); v != nil {
			values = append(values, v)
		}
	}
	if first(f.Module()) {
		for _, v := range f.Globals() {
			values = append(values, v)
		}
	}
	return values
}
