package script

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"go.starlark.net/starlark"
	"go.starlark.net/syntax"

	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
)

// errContinued unwinds the branch that has called continue_with. Programs cannot catch it.
var errContinued = errors.New("the run continues in its next generation")

// continuation is a call that a generation of a run hands to the next one, as it is recorded.
type continuation struct {
	Function string                     `json:"function"`
	Args     []json.RawMessage          `json:"args"`
	Kwargs   map[string]json.RawMessage `json:"kwargs"`
	// Deferred are calls for the end of the run.
	Deferred []carried `json:"deferred,omitempty"`
	// Children is set if the run has started children that end with it.
	Children bool `json:"children,omitempty"`
	// Status are the keys that have values.
	Status []string `json:"status,omitempty"`
}

// continueWith(function, *args, **kwargs) ends this generation of the run, and continues the run with an empty history: the
// top level once more, and then the call in place of main's. What the function takes and is not given comes from the
// inputs, as for main.
//
// It is refused beside branches that have not ended: to drop what they wait for, and what Functions do for them, without a
// word would be to lose it.
func continueWith(thread *starlark.Thread, fn *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	b, err := branchOf(thread, fn)
	if err != nil {
		return nil, err
	}
	if len(args) == 0 {
		return nil, errors.New("continue_with: expected a function and its arguments")
	}
	m := b.machine
	if m.cleaning {
		return nil, errors.New("continue_with: the run is ending, and what was deferred is being called")
	}
	f, ok := args[0].(*starlark.Function)
	if !ok || !m.program.defines(f) {
		return nil, fmt.Errorf("continue_with: the first argument is %s, expected a function that the main file defines at its top level",
			args[0])
	}
	if err := fit(f, args[1:], kwargs, m.inputs); err != nil {
		return nil, fmt.Errorf("continue_with: %w", err)
	}
	others := 0
	for _, other := range m.branches {
		if other != b && !other.done {
			others++
		}
	}
	if others > 0 {
		return nil, fmt.Errorf("continue_with: %d other branches of the run have not ended; gather them first", others)
	}
	named := starlark.NewDict(len(kwargs))
	for _, pair := range kwargs {
		_ = named.SetKey(pair[0], pair[1]) // a name is a key like another
	}
	call := starlark.NewDict(3)
	for _, part := range []starlark.Tuple{
		{starlark.String("function"), starlark.String(f.Name())}, {starlark.String("args"), args[1:]}, {starlark.String("kwargs"), named},
	} {
		_ = call.SetKey(part[0], part[1])
	}
	calls, err := m.carry()
	if err != nil {
		return nil, err
	}
	if len(m.statuses) > 0 {
		_ = call.SetKey(starlark.String("status"), m.statusKeys())
	}
	if m.parent {
		_ = call.SetKey(starlark.String("children"), starlark.True)
	}
	if calls != nil {
		_ = call.SetKey(starlark.String("deferred"), calls)
	}
	encoded, err := encode(call, m.limits.Value)
	if err != nil {
		return nil, fmt.Errorf("continue_with(%s): %w", f.Name(), err)
	}
	op := b.op(history.KindContinue, f.Name(), encoded)
	if _, err := m.immediate(op, func() history.Completion { return history.Completion{Op: op.Ref, Value: encoded} }); err != nil {
		return nil, err
	}
	return nil, errContinued
}

// fit says why a function cannot be called so. The call is made in the next generation, and would fail there, where nobody
// remembers who asked for it.
func fit(f *starlark.Function, args starlark.Tuple, kwargs []starlark.Tuple, inputs starlark.StringDict) error {
	names := parameterNames(f)
	given := map[string]bool{}
	if most := len(names) - f.NumKwonlyParams(); len(args) > most && !f.HasVarargs() {
		return fmt.Errorf("%s takes %d arguments by position, found %d", f.Name(), most, len(args))
	}
	for i := range min(len(args), len(names)-f.NumKwonlyParams()) {
		given[names[i]] = true
	}
	for _, pair := range kwargs {
		name, _ := starlark.AsString(pair[0])
		switch {
		case given[name]:
			return fmt.Errorf("%s is given %s twice", f.Name(), name)
		case !slices.Contains(names, name) && !f.HasKwargs():
			return fmt.Errorf("%s takes no argument %s", f.Name(), name)
		}
		given[name] = true
	}
	for i, name := range names {
		if !given[name] && f.ParamDefault(i) == nil && !inputs.Has(name) {
			return fmt.Errorf("%s takes %s, which is neither given nor an input", f.Name(), name)
		}
	}
	return nil
}

// parameterNames are those of the parameters that a function names, without *args and **kwargs, which come last.
func parameterNames(f *starlark.Function) []string {
	n := f.NumParams()
	for _, rest := range []bool{f.HasVarargs(), f.HasKwargs()} {
		if rest {
			n--
		}
	}
	names := make([]string, n)
	for i := range names {
		names[i], _ = f.Param(i)
	}
	return names
}

// resumed is the entry of a generation that continues with a call.
func (s *Scripts) resumed(recorded json.RawMessage) (entry, error) {
	var call continuation
	if err := json.Unmarshal(recorded, &call); err != nil {
		return entry{}, fmt.Errorf("the recorded call of continue_with: %w", err)
	}
	e := entry{
		function: call.Function, resumes: true, kwargs: starlark.StringDict{},
		deferred: call.Deferred, parent: call.Children, status: call.Status,
	}
	for _, arg := range call.Args {
		v, err := decode(arg)
		if err != nil {
			return entry{}, fmt.Errorf("the recorded call of continue_with: %w", err)
		}
		e.args = append(e.args, v)
	}
	for name, arg := range call.Kwargs {
		v, err := decode(arg)
		if err != nil {
			return entry{}, fmt.Errorf("the recorded call of continue_with: %w", err)
		}
		e.kwargs[name] = v
	}
	return e, nil
}

// resume makes the call that the generation before has asked for.
func (e entry) resume(thread *starlark.Thread, f *starlark.Function, inputs starlark.StringDict) (starlark.Value, error) {
	var kwargs []starlark.Tuple
	for i, name := range parameterNames(f) {
		if value, given := inputs[name]; given && i >= len(e.args) && !e.kwargs.Has(name) {
			kwargs = append(kwargs, starlark.Tuple{starlark.String(name), value})
		}
	}
	for _, name := range e.kwargs.Keys() {
		kwargs = append(kwargs, starlark.Tuple{starlark.String(name), e.kwargs[name]})
	}
	return starlark.Call(thread, f, e.args, kwargs)
}

// historyLength() is how many entries this generation of the run has recorded so far. It is the same at every replay, since an
// entry is handed to the program at the place where it was recorded, and so it is not recorded itself.
func historyLength(thread *starlark.Thread, fn *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	b, err := branchOf(thread, fn)
	if err != nil {
		return nil, err
	}
	if err := starlark.UnpackArgs(fn.Name(), args, kwargs); err != nil {
		return nil, err
	}
	return starlark.MakeInt(b.machine.length), nil
}

// definition is a function that the main file defines at its top level.
type definition struct {
	// required are the parameters that have no default, and at where its def is.
	required []*syntax.Ident
	at       syntax.Position
}

// defines reports whether a function is one of the main file's top level, by which name a later generation finds it again.
func (p *compiled) defines(f *starlark.Function) bool {
	d, ok := p.functions[f.Name()]
	at := f.Position()
	return ok && at.Filename() == d.at.Filename() && at.Line == d.at.Line && at.Col == d.at.Col
}
