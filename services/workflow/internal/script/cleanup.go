package script

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.starlark.net/starlark"

	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/program"
)

// The bounds of what a run may do at its end.
const (
	// maxDeferred is how many calls may be deferred at a time.
	maxDeferred = 1000
	// defaultCleanup and maxCleanup are how long each of them may take.
	defaultCleanup = 5 * time.Minute
	maxCleanup     = time.Hour
)

// deferred is a call that is made when the run ends.
type deferred struct {
	called starlark.Callable
	args   starlark.Tuple
	kwargs []starlark.Tuple
	// limit is how long it may take, and cancelled is set if it is only made when the run is cancelled.
	limit     time.Duration
	cancelled bool
	// inside is set if it was deferred after the top level: a later generation would not defer it again.
	inside bool
	// by is the branch that has deferred it, at the call.
	by *branch
	at starlark.CallFrame
}

// carried is a deferred call as one generation hands it to the next.
type carried struct {
	Function  string                     `json:"function"`
	Args      []json.RawMessage          `json:"args"`
	Kwargs    map[string]json.RawMessage `json:"kwargs"`
	Timeout   float64                    `json:"timeout"`
	Cancelled bool                       `json:"cancelled"`
}

// errAbandoned is the outcome of a branch that had not ended when the run did.
var errAbandoned = errors.New("the branch had not ended when the run did")

// deferCall(fn, *args, timeout=300, **kwargs) has fn called when the run ends: when it has completed, failed or been cancelled. What was
// deferred last is called first. An error of such a call is recorded, and the other calls are made; how the run ended stays as it was.
// Only TerminateWorkflow ends a run without them.
func deferCall(thread *starlark.Thread, fn *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	return register(thread, fn, args, kwargs, false)
}

// onCancel(fn, *args, timeout=300, **kwargs) is deferCall for a run that is cancelled.
func onCancel(thread *starlark.Thread, fn *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	return register(thread, fn, args, kwargs, true)
}

func register(
	thread *starlark.Thread, fn *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple, cancelled bool,
) (starlark.Value, error) {
	b, err := branchOf(thread, fn)
	if err != nil {
		return nil, err
	}
	called, err := callee(fn.Name(), args)
	if err != nil {
		return nil, err
	}
	m := b.machine
	if m.cleaning {
		return nil, fmt.Errorf("%s: the run is ending, and what was deferred before is being called", fn.Name())
	}
	if len(m.deferred) >= maxDeferred {
		return nil, &limitError{fmt.Sprintf("%s: more than %d deferred calls", fn.Name(), maxDeferred)}
	}
	limit := defaultCleanup
	var others []starlark.Tuple
	for _, pair := range kwargs {
		if name, _ := starlark.AsString(pair[0]); name != "timeout" {
			others = append(others, pair)
			continue
		}
		if limit, err = duration("timeout", pair[1]); err != nil {
			return nil, fmt.Errorf("%s: %w", fn.Name(), err)
		}
		if limit <= 0 || limit > maxCleanup {
			return nil, fmt.Errorf("%s: timeout is %s, expected more than 0 and at most %.0f seconds", fn.Name(), pair[1], maxCleanup.Seconds())
		}
	}
	name := called.Name()
	op := b.op(history.KindDefer, history.Truncate(name, maxName), []byte(fmt.Sprintf("%s %t", limit, cancelled)))
	if _, err := m.immediate(op, func() history.Completion {
		return history.Completion{Op: op.Ref, Value: json.RawMessage("null")}
	}); err != nil {
		return nil, err
	}
	m.deferred = append(m.deferred, &deferred{
		called: called, args: args[1:], kwargs: others, limit: limit, cancelled: cancelled, inside: m.entered, by: b, at: caller(thread),
	})
	return starlark.None, nil
}

// ending is the Value of an entry of KindEnding.
type ending struct {
	// Error is why, for a run that was stopped from outside: cancelled, or ended for a limit of the engine.
	Error string `json:"error,omitempty"`
	// Outside is set if the run was stopped.
	Outside bool `json:"outside,omitempty"`
}

// The names of entries of KindEnding.
const (
	endedWell      = string(history.KindCompleted)
	endedBadly     = string(history.KindFailed)
	endedCancelled = string(history.KindCancelled)
)

// Stop ends the run from outside: what it waits for is given up, and what it has deferred is called.
func (m *machine) Stop(cause program.Stopped) bool {
	if m.ended || m.cleaning {
		return false
	}
	m.stop(cause)
	return true
}

// Ending reports whether deferred calls are being made.
func (m *machine) Ending() bool { return m.cleaning }

// stop is Stop, also for one that the history holds.
func (m *machine) stop(cause program.Stopped) {
	m.ended, m.failure = true, &cause
	if m.beginCleanup() {
		m.settle()
	}
}

// stopped reads out of the history that the run was stopped from outside there.
func stopped(e history.Entry) (program.Stopped, bool) {
	var how ending
	if e.Kind != history.KindEnding || json.Unmarshal(e.Value, &how) != nil || !how.Outside {
		return program.Stopped{}, false
	}
	return program.Stopped{Cancelled: e.Name == endedCancelled, Reason: how.Error}, true
}

// beginCleanup begins to call what was deferred, when the run has ended; false where nothing is to be called. Branches that have not ended
// are given up.
func (m *machine) beginCleanup() bool {
	if !m.ended || m.cleaning || m.continued {
		return false
	}
	if _, is := errors.AsType[*program.Mismatch](m.failure); is {
		return false
	}
	name, how := endedWell, ending{}
	if m.failure != nil {
		name = endedBadly
	}
	if cause, is := m.failure.(*program.Stopped); is { //nolint:errorlint // it is not wrapped
		if how = (ending{Error: cause.Reason, Outside: true}); cause.Cancelled {
			name = endedCancelled
		}
	}
	calls := slices.DeleteFunc(slices.Clone(m.deferred), func(d *deferred) bool { return d.cancelled && name != endedCancelled })
	if len(calls) == 0 {
		return false
	}
	slices.Reverse(calls)
	for _, b := range m.branches {
		b.abandon()
	}
	m.cleaning, m.outcome = true, m.failure
	m.ended, m.failure, m.ready, m.recorded = false, nil, nil, 0
	m.start(func(thread *starlark.Thread) (starlark.Value, error) {
		b, _ := thread.Local(branchKey).(*branch)
		return starlark.None, b.cleanUp(calls, name, how)
	})
	return true
}

// abandon gives a branch up, wherever it is blocked.
func (b *branch) abandon() {
	if b.done {
		return
	}
	b.stop()
	b.done, b.pending, b.joiners, b.err = true, nil, nil, errAbandoned
}

// cleanUp is the body of the last branch that a run starts by itself.
func (b *branch) cleanUp(calls []*deferred, name string, how ending) error {
	encoded, err := json.Marshal(how)
	if err != nil {
		return fmt.Errorf("encode the end: %w", err)
	}
	op := b.op(history.KindEnding, name, nil)
	if _, err := b.machine.immediate(op, func() history.Completion { return history.Completion{Op: op.Ref, Value: encoded} }); err != nil {
		return err
	}
	for _, d := range calls {
		b.machine.recorded = 0
		outcome, err := b.call(d)
		if err != nil {
			return err
		}
		if _, err := b.settled(history.KindDeferred, d.called.Name(), outcome); err != nil {
			return err
		}
	}
	return nil
}

// call makes a deferred call in a branch of its own, and waits for that one and all that it spawns, until its time is up.
func (b *branch) call(d *deferred) (attempted, error) {
	m, within := b.machine, new(scope)
	child := m.start(func(thread *starlark.Thread) (starlark.Value, error) {
		return starlark.Call(thread, d.called, d.args, d.kwargs)
	})
	child.parent, child.spawned, child.home, child.scope = d.by, d.at, within, within
	within.branches = append(within.branches, child)
	op := b.op(history.KindSleep, "", []byte(d.limit.String()))
	op.Timeout = d.limit
	b.asked = op
	b.pending = &b.asked
	for i := 0; i < len(within.branches); i++ {
		if err := b.await(within.branches[i]); err != nil {
			return attempted{}, err
		}
		if b.pending != nil {
			continue
		}
		for _, late := range within.branches {
			late.abandon()
		}
		return attempted{Error: &raised{Code: history.CodeTimeout, Message: fmt.Sprintf("did not end within %s", d.limit)}}, nil
	}
	b.pending = nil // it is no longer waited for
	for _, ended := range within.branches {
		if ended.err != nil {
			return attempted{Error: describeRaised(ended.err)}, nil //nolint:nilerr // it is the call's, and recorded as that
		}
	}
	return attempted{OK: true}, nil
}

// holds reports whether an error of a branch is for its scope to handle, and not the end of the run. At the end of a run that is every
// one but a mismatch: the calls that are left are made.
func (b *branch) holds(err error) bool {
	if err == nil || b.home == nil {
		return false
	}
	if b.machine.cleaning {
		_, mismatch := errors.AsType[*program.Mismatch](err)
		return !mismatch
	}
	return catchable(err)
}

// carry are the deferred calls that the next generation has to know of, as they are recorded; nil for none. What the top level has
// deferred that of the next generation defers again.
func (m *machine) carry() (starlark.Value, error) {
	var calls []starlark.Value
	for _, d := range m.deferred {
		if !d.inside {
			continue
		}
		f, ok := d.called.(*starlark.Function)
		if !ok || !m.program.defines(f) {
			return nil, fmt.Errorf("continue_with: %s was deferred, expected only functions that the main file defines at its top level, "+
				"which the next generation can call", d.called.Name())
		}
		named := starlark.NewDict(len(d.kwargs))
		for _, pair := range d.kwargs {
			_ = named.SetKey(pair[0], pair[1]) // a name is a key like another
		}
		call := starlark.NewDict(5)
		for _, part := range []starlark.Tuple{
			{starlark.String("function"), starlark.String(f.Name())},
			{starlark.String("args"), d.args},
			{starlark.String("kwargs"), named},
			{starlark.String("timeout"), starlark.Float(d.limit.Seconds())},
			{starlark.String("cancelled"), starlark.Bool(d.cancelled)},
		} {
			_ = call.SetKey(part[0], part[1])
		}
		calls = append(calls, call)
	}
	if len(calls) == 0 {
		return nil, nil //nolint:nilnil // nothing to carry is no error
	}
	return starlark.NewList(calls), nil
}

// inherit defers what the generation before has handed on.
func (m *machine) inherit(thread *starlark.Thread, globals starlark.StringDict) error {
	b, _ := thread.Local(branchKey).(*branch)
	for _, c := range m.entry.deferred {
		f, ok := globals[c.Function].(*starlark.Function)
		if !ok {
			return fmt.Errorf("%s, which was deferred, is no function any more", c.Function)
		}
		d := &deferred{called: f, limit: time.Duration(c.Timeout * float64(time.Second)), cancelled: c.Cancelled, inside: true, by: b}
		for _, arg := range c.Args {
			v, err := decode(arg)
			if err != nil {
				return fmt.Errorf("the recorded argument of %s: %w", c.Function, err)
			}
			d.args = append(d.args, v)
		}
		for _, name := range slices.Sorted(maps.Keys(c.Kwargs)) {
			v, err := decode(c.Kwargs[name])
			if err != nil {
				return fmt.Errorf("the recorded argument of %s: %w", c.Function, err)
			}
			d.kwargs = append(d.kwargs, starlark.Tuple{starlark.String(name), v})
		}
		m.deferred = append(m.deferred, d)
	}
	return nil
}
