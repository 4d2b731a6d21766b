package script

import (
	"fmt"
	"maps"
	"slices"
	"unicode/utf8"

	"go.starlark.net/starlark"

	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
)

// The bounds of what a run reports of itself: keys, characters of a key, and bytes of a value as JSON.
const (
	maxStatuses    = 16
	maxStatusKey   = 64
	maxStatusValue = 1 << 10
)

// setStatus(key, value) has those who look at the run see the value under the key; None takes the key away. It is stored with what
// the program does next, and read without the program.
func setStatus(thread *starlark.Thread, fn *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	b, err := branchOf(thread, fn)
	if err != nil {
		return nil, err
	}
	var key string
	var value starlark.Value
	if err := starlark.UnpackArgs(fn.Name(), args, kwargs, "key", &key, "value", &value); err != nil {
		return nil, err
	}
	if key == "" || utf8.RuneCountInString(key) > maxStatusKey {
		return nil, fmt.Errorf("set_status: key is %.80q, expected 1 to %d characters", key, maxStatusKey)
	}
	if err := checkName("set_status: key", key); err != nil {
		return nil, err
	}
	switch value.(type) {
	case starlark.NoneType, starlark.Bool, starlark.Int, starlark.Float, starlark.String:
	default:
		return nil, fmt.Errorf("set_status: value is a %s, expected a string, a number, a bool or None", value.Type())
	}
	encoded, err := encode(value, maxStatusValue)
	if err != nil {
		return nil, fmt.Errorf("set_status(%q): %w", key, err)
	}
	m := b.machine
	if value == starlark.None {
		delete(m.statuses, key)
	} else if m.statuses[key] = true; len(m.statuses) > maxStatuses {
		delete(m.statuses, key)
		return nil, fmt.Errorf("set_status: more than %d keys", maxStatuses)
	}
	op := b.op(history.KindStatus, key, encoded)
	if _, err := m.immediate(op, func() history.Completion { return history.Completion{Op: op.Ref, Value: encoded} }); err != nil {
		return nil, err
	}
	return starlark.None, nil
}

// statusKeys are the keys that a generation hands to the next one, which may not have more of them than one.
func (m *machine) statusKeys() *starlark.List {
	var keys []starlark.Value
	for _, key := range slices.Sorted(maps.Keys(m.statuses)) {
		keys = append(keys, starlark.String(key))
	}
	return starlark.NewList(keys)
}
