package script

import (
	"fmt"

	"go.starlark.net/starlark"
)

// handle is a spawned branch as the program holds it.
type handle struct {
	branch *branch
}

var _ starlark.Value = handle{}

// String is "<branch 3>"; the number is the same at every replay, so it may be printed.
func (h handle) String() string { return fmt.Sprintf("<branch %d>", h.branch.number) }

// Type is "branch".
func (handle) Type() string { return "branch" }

// Freeze has nothing to do: a program cannot change a handle.
func (handle) Freeze() {}

// Truth is always true.
func (handle) Truth() starlark.Bool { return true }

// Hash is the number, so that handles may be keys of a dict.
func (h handle) Hash() (uint32, error) { return uint32(h.branch.number), nil }

// spawn(fn, *args, **kwargs) starts a branch that calls fn, and answers a handle for gather. The new branch runs when
// the present one blocks. A run ends when all its branches have ended, and fails when one of them fails that was not spawned in an attempt.
func spawn(thread *starlark.Thread, fn *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	b, err := branchOf(thread, fn)
	if err != nil {
		return nil, err
	}
	if len(args) == 0 {
		return nil, fmt.Errorf("spawn: expected a function and its arguments")
	}
	called, ok := args[0].(starlark.Callable)
	if !ok {
		return nil, fmt.Errorf("spawn: the first argument is a %s, expected a function", args[0].Type())
	}
	// The first branch is the program itself and was not spawned, hence no >=.
	if len(b.machine.branches) > b.machine.limits.Branches {
		return nil, &limitError{fmt.Sprintf("spawn: more than %d branches", b.machine.limits.Branches)}
	}
	child := b.machine.start(func(t *starlark.Thread) (starlark.Value, error) {
		return starlark.Call(t, called, args[1:], kwargs)
	})
	// Of the stack of the branch that spawns, this one call is kept: there may be a thousand branches, and few fail.
	child.parent, child.spawned = b, caller(thread)
	if child.home, child.scope = b.scope, b.scope; b.scope != nil {
		b.scope.branches = append(b.scope.branches, child)
	}
	return handle{child}, nil
}

// gather(*handles) waits for branches and answers the list of what their functions returned, in the order of the
// handles. It takes lists of handles as well.
func gather(thread *starlark.Thread, fn *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	b, err := branchOf(thread, fn)
	if err != nil {
		return nil, err
	}
	if len(kwargs) > 0 {
		return nil, fmt.Errorf("gather: unexpected keyword arguments")
	}
	var handles []handle
	for _, arg := range args {
		if many, ok := arg.(starlark.Iterable); ok {
			for item := range starlark.Elements(many) {
				h, ok := item.(handle)
				if !ok {
					return nil, fmt.Errorf("gather: found a %s, expected what spawn answered", item.Type())
				}
				handles = append(handles, h)
			}
			continue
		}
		h, ok := arg.(handle)
		if !ok {
			return nil, fmt.Errorf("gather: found a %s, expected what spawn answered", arg.Type())
		}
		handles = append(handles, h)
	}
	values := make([]starlark.Value, len(handles))
	for i, h := range handles {
		if err := b.join(h.branch); err != nil {
			return nil, err
		}
		values[i] = h.branch.value
	}
	return starlark.NewList(values), nil
}
