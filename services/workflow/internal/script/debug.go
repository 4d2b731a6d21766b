package script

import (
	"fmt"
	"maps"
	"slices"

	"go.starlark.net/starlark"
	"go.starlark.net/syntax"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/program"
)

// Debugger observes programs. It sees what a history leads to, and nothing of what a program does behind the end of the history.
type Debugger struct {
	// Breakpoints are lines by the name of the file, from 1.
	Breakpoints map[string][]int
	// Stopped is called where a branch reaches a breakpoint, before the statement is executed.
	Stopped func(Stop)
	// Asked is called for each operation that a program reaches.
	Asked func(op history.OpRef, position string)
}

// Stop is a branch at a breakpoint.
type Stop struct {
	// Position is file:line:column, Function what is being executed.
	Position, Function string
	Branch             int
	// Recorded is how many entries of the generation the program has been given so far.
	Recorded int
	// Variables are those of the function, by name; at the top level those of the file that are not functions.
	Variables []Variable
}

// Variable is a name and its value, as Starlark writes it.
type Variable struct {
	Name, Value string
}

// breakpoint is the builtin that is called at breakpoints. No program can call it, because this is no name.
const breakpoint = "break point"

// maxShown bounds a value that is shown, in bytes.
const maxShown = 500

// Debug is Scripts whose programs are observed. It is for one caller at a time.
func (s *Scripts) Debug(d Debugger) *Scripts {
	observed := New(s.limits)
	observed.debugger = &d
	return observed
}

// CheckBreakpoints refuses a breakpoint where a program has no statement, and says where the next one is.
func CheckBreakpoints(p program.Program, breakpoints map[string][]int) error {
	for _, name := range slices.Sorted(maps.Keys(breakpoints)) {
		source, known := p.Modules[name]
		if name == mainFile {
			source, known = p.Source, true
		}
		if !known {
			return fault.New(fault.Invalid, "breakpoint in %s: there is no such file; found %v", name,
				append([]string{mainFile}, slices.Sorted(maps.Keys(p.Modules))...))
		}
		file, err := dialect().Parse(name, source, 0)
		if err != nil {
			return fault.New(fault.Invalid, "%s", describe(err))
		}
		lines := map[int]bool{}
		statements(&file.Stmts, func(s syntax.Stmt) []syntax.Stmt {
			lines[line(s)] = true
			return []syntax.Stmt{s}
		})
		for _, wanted := range breakpoints[name] {
			if lines[wanted] {
				continue
			}
			for _, next := range slices.Sorted(maps.Keys(lines)) {
				if next > wanted {
					return fault.New(fault.Invalid, "breakpoint %s:%d: no statement begins on that line; the next one is on line %d", name, wanted,
						next)
				}
			}
			return fault.New(fault.Invalid, "breakpoint %s:%d: no statement begins there or below", name, wanted)
		}
	}
	return nil
}

func line(s syntax.Stmt) int {
	start, _ := s.Span()
	return int(start.Line)
}

// statements replaces each statement of a block, and of the blocks in it.
func statements(block *[]syntax.Stmt, by func(syntax.Stmt) []syntax.Stmt) {
	var all []syntax.Stmt
	for _, s := range *block {
		switch s := s.(type) {
		case *syntax.DefStmt:
			statements(&s.Body, by)
		case *syntax.ForStmt:
			statements(&s.Body, by)
		case *syntax.WhileStmt:
			statements(&s.Body, by)
		case *syntax.IfStmt:
			statements(&s.True, by)
			statements(&s.False, by)
		}
		all = append(all, by(s)...)
	}
	*block = all
}

// instrument puts a call in front of each statement that has a breakpoint. Positions stay what they are.
func (d *Debugger) instrument(name string, file *syntax.File) {
	if d == nil || len(d.Breakpoints[name]) == 0 {
		return
	}
	statements(&file.Stmts, func(s syntax.Stmt) []syntax.Stmt {
		if !slices.Contains(d.Breakpoints[name], line(s)) {
			return []syntax.Stmt{s}
		}
		at, _ := s.Span()
		call := &syntax.CallExpr{Fn: &syntax.Ident{NamePos: at, Name: breakpoint}, Lparen: at, Rparen: at}
		return []syntax.Stmt{&syntax.ExprStmt{X: call}, s}
	})
}

// names are what a file sees, with the call at breakpoints.
func (d *Debugger) names(all starlark.StringDict) starlark.StringDict {
	if d == nil {
		return all
	}
	all = maps.Clone(all)
	all[breakpoint] = starlark.NewBuiltin("breakpoint", d.stop)
	return all
}

func (d *Debugger) stop(thread *starlark.Thread, _ *starlark.Builtin, _ starlark.Tuple, _ []starlark.Tuple) (starlark.Value, error) {
	frame := thread.DebugFrame(1)
	f, ok := frame.Callable().(*starlark.Function)
	if !ok || d.Stopped == nil {
		return starlark.None, nil
	}
	stop := Stop{Position: frame.Position().String(), Function: f.Name()}
	if b, is := thread.Local(branchKey).(*branch); is {
		if b.machine.beyond {
			return starlark.None, nil
		}
		stop.Branch, stop.Recorded = b.number, b.machine.length
	}
	show := func(name string, v starlark.Value) {
		text := fmt.Sprint(v)
		if v.Type() == "cell" {
			text = "(shared with an inner function, which shows it)"
		}
		stop.Variables = append(stop.Variables, Variable{name, history.Truncate(text, maxShown)})
	}
	for i := range frame.NumLocals() {
		if binding, v := frame.Local(i); v != nil {
			show(binding.Name, v)
		}
	}
	for i := range f.NumFreeVars() {
		if binding, v := f.FreeVar(i); v != nil {
			show(binding.Name, v)
		}
	}
	if f.Name() == "<toplevel>" {
		for _, name := range f.Globals().Keys() {
			if v := f.Globals()[name]; v.Type() != "function" {
				show(name, v)
			}
		}
	}
	slices.SortStableFunc(stop.Variables, func(a, b Variable) int {
		switch {
		case a.Name < b.Name:
			return -1
		case a.Name > b.Name:
			return 1
		}
		return 0
	})
	d.Stopped(stop)
	return starlark.None, nil
}

// asked reports an operation.
func (d *Debugger) asked(b *branch, ref history.OpRef) {
	if d != nil && d.Asked != nil && !b.machine.beyond {
		d.Asked(ref, position(b.thread))
	}
}
