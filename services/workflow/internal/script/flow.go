package script

import (
	"cmp"
	"fmt"

	"go.starlark.net/starlark"
	"go.starlark.net/syntax"

	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/program"
)

// onEvent(type, filter={}, handler) says that an event starts a run that calls handler with it. The program's text says
// so before any run (Inspect); in the run itself there is nothing left to do.
func onEvent(thread *starlark.Thread, fn *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	if _, err := branchOf(thread, fn); err != nil {
		return nil, err
	}
	var eventType, filter starlark.Value
	var handler starlark.Callable
	if err := starlark.UnpackArgs(fn.Name(), args, kwargs, "type", &eventType, "filter??", &filter, "handler?", &handler); err != nil {
		return nil, err
	}
	if handler == nil {
		return nil, fmt.Errorf("on_event: missing argument for handler")
	}
	return starlark.None, nil
}

// entry is what is called after the top level of the main file.
type entry struct {
	// function is its name; handles that it is one of on_event's, and takes event and nothing else.
	function string
	handles  bool
	event    starlark.Value
	// resumes is set if it is what the generation before has asked for, with args and kwargs.
	resumes bool
	args    starlark.Tuple
	kwargs  starlark.StringDict
	// deferred are the calls that the generation before had deferred.
	deferred []carried
	// parent is set if it had started children that end with the run.
	parent bool
	// status are the keys that it had given values.
	status []string
}

// statuses are the keys that have values when the generation begins.
func (e entry) statuses() map[string]bool {
	keys := make(map[string]bool, len(e.status))
	for _, key := range e.status {
		keys[key] = true
	}
	return keys
}

// handlerCall reads program.HandlerInput.
func handlerCall(v starlark.Value) (entry, error) {
	const field = "inputs." + program.HandlerInput
	object, ok := v.(*Object)
	if !ok {
		return entry{}, invalid(field, "found a %s, expected an object with handler and event", v.Type())
	}
	name, _ := object.get("handler")
	function, ok := starlark.AsString(name)
	event, given := object.get("event")
	if !ok || !given || object.Len() != 2 {
		return entry{}, invalid(field, "expected exactly the members handler, a string, and event")
	}
	return entry{function: function, handles: true, event: event}, nil
}

// check finds before the program is ever run that it has no such function, or lacks inputs that main takes.
func (e entry) check(p *compiled, inputs starlark.StringDict) error {
	definition, defined := p.functions[e.function]
	if e.handles {
		if !defined || len(definition.required) > 1 {
			return invalid("inputs."+program.HandlerInput, "found the handler %q, expected a function of the main file that takes the event",
				e.function)
		}
		return nil
	}
	for _, param := range definition.required {
		if !inputs.Has(param.Name) {
			return invalid("inputs."+param.Name, "missing; main takes it at %s", param.NamePos)
		}
	}
	return nil
}

// call calls the entry point that the top level has left in globals. A program needs no main.
func (e entry) call(thread *starlark.Thread, globals, inputs starlark.StringDict) (starlark.Value, error) {
	f, ok := globals[e.function].(*starlark.Function)
	switch {
	case !ok && (e.handles || e.resumes):
		return nil, fmt.Errorf("%s is no function any more", e.function) // the program has given the name another value
	case !ok:
		return starlark.None, nil
	case e.handles:
		return starlark.Call(thread, f, starlark.Tuple{e.event}, nil)
	case e.resumes:
		return e.resume(thread, f, inputs)
	}
	var args []starlark.Tuple
	// Inputs that main does not name stay globals, unless it takes all others as **kwargs.
	taken := map[string]bool{}
	for i := range f.NumParams() {
		name, _ := f.Param(i)
		if value, given := inputs[name]; given {
			args = append(args, starlark.Tuple{starlark.String(name), value})
			taken[name] = true
		}
	}
	if f.HasKwargs() {
		for _, name := range inputs.Keys() {
			if !taken[name] {
				args = append(args, starlark.Tuple{starlark.String(name), inputs[name]})
			}
		}
	}
	return starlark.Call(thread, f, nil, args)
}

// handlerOf reads on_event(type=, filter=, handler=). Everything about it has to be known before any event comes, so
// its arguments are literals and the name of a function.
func handlerOf(call *syntax.CallExpr, file *syntax.File) (program.Handler, error) {
	h := program.Handler{Filter: history.Filter{}, Position: call.Lparen.String()}
	given := literal(argument(call, 0, "type"))
	if given == nil {
		return h, fmt.Errorf("on_event: type is missing or computed, expected a string or a list of strings, written out")
	}
	var err error
	if h.Types, err = eventTypes("on_event", given); err != nil {
		return h, err
	}
	if expr := argument(call, 1, "filter"); expr != nil {
		filter := literal(expr)
		if filter == nil {
			return h, fmt.Errorf("on_event: filter is computed, expected a dict of strings, numbers, bools and None, written out")
		}
		if filter != starlark.None {
			if err := cmp.Or(flatten(h.Filter, "", filter), matchable(h.Filter, filter)); err != nil {
				return h, fmt.Errorf("on_event: %w", err)
			}
		}
	}
	ident, ok := argument(call, 2, "handler").(*syntax.Ident)
	if !ok {
		return h, fmt.Errorf("on_event: handler is missing or not a name, expected a function of the main file")
	}
	def := definitionOf(file, ident.Name)
	if def == nil {
		return h, fmt.Errorf("on_event: %s is no function of the main file", ident.Name)
	}
	if !takesEvent(def) {
		return h, fmt.Errorf("on_event: %s at %s cannot be called with the event alone, expected def %s(event), with defaults for what else it takes", ident.Name, def.Def, ident.Name)
	}
	h.Function = ident.Name
	return h, nil
}

// takesEvent reports whether a function can be called with one argument by place and nothing else.
func takesEvent(def *syntax.DefStmt) bool {
	places, needed, named := 0, 0, false
	for _, param := range def.Params {
		switch param := param.(type) {
		case *syntax.Ident:
			if named {
				return false // behind *, and without a default
			}
			places, needed = places+1, needed+1
		case *syntax.BinaryExpr:
			if !named {
				places++
			}
		case *syntax.UnaryExpr: // *args, **kwargs, or * alone
			if param.Op == syntax.STAR && param.X != nil {
				places++
			}
			named = true
		}
	}
	return places > 0 && needed <= 1
}
