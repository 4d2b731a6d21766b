package script

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strings"

	"go.starlark.net/resolve"
	"go.starlark.net/starlark"
	"go.starlark.net/syntax"

	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/program"
)

// Inspect parses and resolves a program and its modules, and reads what it uses out of their syntax. Nothing of it is
// run. A global that neither the program nor the language defines is taken for an input.
func (s *Scripts) Inspect(p program.Program) (program.Outline, error) {
	o := &outliner{inputs: map[string]bool{}, uses: map[string]map[string]program.Use{}, exported: map[string]map[string]string{}}
	own := ownNames()
	modules, compiled := map[string]*syntax.File{}, map[string]*starlark.Program{}
	for _, name := range slices.Sorted(maps.Keys(p.Modules)) {
		file, source, err := s.file("modules."+name, name, p.Modules[name], p.Modules, own.Has)
		if err != nil {
			return program.Outline{}, err
		}
		modules[name], compiled[name] = file, source
	}
	o.modules = modules
	for _, name := range slices.Sorted(maps.Keys(modules)) {
		if err := o.file("modules."+name, modules[name], false); err != nil {
			return program.Outline{}, err
		}
		if err := loadable("modules."+name, modules[name], modules); err != nil {
			return program.Outline{}, err
		}
	}
	file, source, err := s.file("starlark", mainFile, p.Source, p.Modules, func(name string) bool {
		if !own.Has(name) && !starlark.Universe.Has(name) {
			o.inputs[name] = true
		}
		return own.Has(name) || o.inputs[name]
	})
	if err != nil {
		return program.Outline{}, err
	}
	if err := circle(source, compiled); err != nil {
		return program.Outline{}, err
	}
	if err := o.callable(file); err != nil {
		return program.Outline{}, err
	}
	// The top level runs in order: what it uses before its definition is no input of that name.
	if module, ok := file.Module.(*resolve.Module); ok {
		for _, global := range module.Globals {
			if o.inputs[global.First.Name] {
				return program.Outline{}, invalid("starlark", "%s: %s is used before it is defined here", global.First.NamePos, global.First.Name)
			}
		}
	}
	if err := o.file("starlark", file, true); err != nil {
		return program.Outline{}, err
	}
	if err := loadable("starlark", file, modules); err != nil {
		return program.Outline{}, err
	}
	if def := definitionOf(file, entryPoint); def != nil {
		for _, param := range required(def) {
			o.inputs[param.Name] = true
		}
	}
	return o.outline(), nil
}

// callable refuses a call of what would be an input: none of them is a function, so its definition is missing.
func (o *outliner) callable(file *syntax.File) error {
	const shown = 5
	var missing []string
	syntax.Walk(file, func(n syntax.Node) bool {
		call, ok := n.(*syntax.CallExpr)
		if !ok {
			return true
		}
		ident := identOf(call.Fn)
		if binding := bindingOf(call.Fn); binding != nil && binding.Scope == resolve.Predeclared && o.inputs[ident.Name] && len(missing) < shown {
			missing = append(missing, fmt.Sprintf("%s: %s is called, and is not defined: expected a function; an input cannot be one",
				ident.NamePos, ident.Name))
		}
		return true
	})
	if len(missing) > 0 {
		return invalid("starlark", "%s", strings.Join(missing, "; "))
	}
	return nil
}

// required are the parameters of a function that have no default. *args and **kwargs are other nodes.
func required(def *syntax.DefStmt) []*syntax.Ident {
	var names []*syntax.Ident
	for _, param := range def.Params {
		if ident, ok := param.(*syntax.Ident); ok {
			names = append(names, ident)
		}
	}
	return names
}

// outliner collects what Inspect answers.
type outliner struct {
	inputs map[string]bool
	// uses are the first uses by the list they belong to, and by name.
	uses     map[string]map[string]program.Use
	handlers []program.Handler
	dynamic  []string
	// modules are all there are, and exported the aliases of those that were asked for.
	modules  map[string]*syntax.File
	exported map[string]map[string]string
}

// The lists of uses.
const (
	usedFunctions = "functions"
	usedWaits     = "waits"
	usedEmits     = "emits"
)

func (o *outliner) outline() program.Outline {
	sorted := func(list string) []program.Use {
		return slices.SortedFunc(maps.Values(o.uses[list]), func(a, b program.Use) int { return cmp.Compare(a.Name, b.Name) })
	}
	return program.Outline{
		Inputs:    slices.Sorted(maps.Keys(o.inputs)),
		Functions: sorted(usedFunctions), Waits: sorted(usedWaits), Emits: sorted(usedEmits),
		Handlers: o.handlers, Dynamic: o.dynamic,
	}
}

// exports are the names of a module that stand for builtins. In a circle of loads that is never run, nobody needs them.
func (o *outliner) exports(module string) map[string]string {
	if known, ok := o.exported[module]; ok {
		return known
	}
	o.exported[module] = nil
	if file := o.modules[module]; file != nil {
		o.exported[module] = aliasesOf(file, o.exports).exported
	}
	return o.exported[module]
}

// acts are the builtins whose first argument the lists of uses name. They may be handed to spawn.
func acts(builtin string) bool {
	return builtin == "run" || builtin == "poll" || builtin == "wait_for_event"
}

// hands reports whether a builtin calls what its first argument is.
func hands(builtin string) bool {
	return builtin == "spawn" || builtin == "attempt" || builtin == "defer" || builtin == "on_cancel"
}

// file looks at every call of a builtin in a resolved file. field is how the caller of the API knows the file.
func (o *outliner) file(field string, file *syntax.File, isMain bool) error {
	atTop := map[*syntax.CallExpr]bool{}
	for _, stmt := range file.Stmts {
		if e, ok := stmt.(*syntax.ExprStmt); ok && isMain {
			if call, ok := e.X.(*syntax.CallExpr); ok {
				atTop[call] = true
			}
		}
	}
	names := aliasesOf(file, o.exports)
	var failure error
	syntax.Walk(file, func(n syntax.Node) bool {
		// What is handed on may be called anywhere.
		if ident, ok := n.(*syntax.Ident); ok && acts(names.builtin(ident)) && !names.explained[ident] {
			o.dynamic = append(o.dynamic, ident.NamePos.String())
		}
		call, ok := n.(*syntax.CallExpr)
		if !ok || failure != nil {
			return failure == nil
		}
		builtin, first := names.builtin(call.Fn), 0
		names.explain(call.Fn)
		if hands(builtin) && len(call.Args) > 0 && acts(names.builtin(call.Args[0])) {
			builtin, first = names.builtin(call.Args[0]), 1
			names.explain(call.Args[0])
		}
		switch builtin {
		case "run", "poll":
			o.function(call, first)
		case "wait_for_event":
			o.wait(call, first)
		case "continue_with":
			if err := continuable(call); err != nil {
				failure = invalid(field, "%s: %s", call.Lparen, err)
			}
		case "on_event":
			if !atTop[call] {
				failure = invalid(field, "%s: on_event is only for the top level of the main file, as a statement of its own", call.Lparen)
				break
			}
			h, err := handlerOf(call, file)
			if err != nil {
				failure = invalid(field, "%s: %s", call.Lparen, err)
			}
			o.handlers = append(o.handlers, h)
		}
		return true
	})
	return failure
}

// continuable reports what can be known before any run to be wrong with the function that a generation continues with: a literal is not
// a function, and neither an input nor a builtin will do. What a variable holds is known only to the run.
// written out is none, nor is an input or a builtin. What a variable holds only the run knows.
func continuable(call *syntax.CallExpr) error {
	first := argument(call, 0, "")
	wrong := first == nil || literal(first) != nil
	if ident, ok := first.(*syntax.Ident); ok {
		binding, _ := ident.Binding.(*resolve.Binding)
		wrong = wrong || binding != nil && (binding.Scope == resolve.Predeclared || binding.Scope == resolve.Universal)
	}
	if wrong {
		return errors.New("continue_with: expected a function that the main file defines at its top level, and its arguments")
	}
	return nil
}

// definitionOf is the function of a name that a file defines at its top level, the last one where there are several.
func definitionOf(file *syntax.File, name string) (found *syntax.DefStmt) {
	for _, stmt := range file.Stmts {
		if def, ok := stmt.(*syntax.DefStmt); ok && def.Name.Name == name {
			found = def
		}
	}
	return found
}

// argument is the argument of a name or, without one, at a place; nil when it is not given.
func argument(call *syntax.CallExpr, place int, name string) syntax.Expr {
	for i, arg := range call.Args {
		if named, ok := arg.(*syntax.BinaryExpr); ok && named.Op == syntax.EQ {
			if ident, ok := named.X.(*syntax.Ident); ok && ident.Name == name {
				return named.Y
			}
			continue
		}
		if i == place {
			return arg
		}
	}
	return nil
}

func (o *outliner) use(list, name string, call *syntax.CallExpr) {
	if o.uses[list] == nil {
		o.uses[list] = map[string]program.Use{}
	}
	if _, known := o.uses[list][name]; !known {
		o.uses[list][name] = program.Use{Name: name, Position: call.Lparen.String()}
	}
}

// function notes run("name", …), and of an emit the type of its event. first is the place of the first argument: spawn(run, …) has
// another one before it.
func (o *outliner) function(call *syntax.CallExpr, first int) {
	name, ok := starlark.AsString(literal(argument(call, first, "function")))
	switch {
	case !ok:
		o.dynamic = append(o.dynamic, call.Lparen.String())
	case name != activity.EmitFunction:
		o.use(usedFunctions, name, call)
	default:
		var eventType string
		if args, ok := argument(call, first+1, "args").(*syntax.DictExpr); ok {
			for _, item := range args.List {
				entry, _ := item.(*syntax.DictEntry) // the parser puts nothing else there
				if key, _ := starlark.AsString(literal(entry.Key)); key == "type" {
					eventType, _ = starlark.AsString(literal(entry.Value))
				}
			}
		}
		if eventType == "" {
			o.dynamic = append(o.dynamic, call.Lparen.String())
			return
		}
		o.use(usedEmits, eventType, call)
	}
}

func (o *outliner) wait(call *syntax.CallExpr, first int) {
	given := literal(argument(call, first, "type"))
	if given == nil {
		o.dynamic = append(o.dynamic, call.Lparen.String())
		return
	}
	types, err := eventTypes("wait_for_event", given)
	if err != nil {
		return // the run will say so, if it gets there
	}
	for _, t := range types {
		o.use(usedWaits, t, call)
	}
}

// literal is the value of an expression that is written out; nil for one that would have to be computed.
func literal(expr syntax.Expr) starlark.Value {
	switch e := expr.(type) {
	case *syntax.Literal:
		switch v := e.Value.(type) {
		case string:
			return starlark.String(v)
		case int64:
			return starlark.MakeInt64(v)
		case *big.Int:
			return starlark.MakeBigInt(v)
		case float64:
			return starlark.Float(v)
		}
	case *syntax.Ident:
		if v, ok := (starlark.StringDict{"True": starlark.True, "False": starlark.False, "None": starlark.None})[e.Name]; ok {
			return v
		}
	case *syntax.ParenExpr:
		return literal(e.X)
	case *syntax.UnaryExpr:
		if x := literal(e.X); x != nil {
			if v, err := starlark.Unary(e.Op, x); err == nil {
				return v
			}
		}
	case *syntax.ListExpr:
		return literals(e.List)
	case *syntax.TupleExpr:
		return literals(e.List)
	case *syntax.DictExpr:
		return literalDict(e)
	}
	return nil
}

func literals(exprs []syntax.Expr) starlark.Value {
	items := make([]starlark.Value, len(exprs))
	for i, expr := range exprs {
		if items[i] = literal(expr); items[i] == nil {
			return nil
		}
	}
	return starlark.NewList(items)
}

func literalDict(e *syntax.DictExpr) starlark.Value {
	dict := starlark.NewDict(len(e.List))
	for _, item := range e.List {
		entry, _ := item.(*syntax.DictEntry) // the parser puts nothing else there
		key, value := literal(entry.Key), literal(entry.Value)
		if key == nil || value == nil || dict.SetKey(key, value) != nil {
			return nil
		}
	}
	return dict
}
