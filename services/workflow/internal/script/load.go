package script

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"

	"go.starlark.net/lib/json"
	"go.starlark.net/lib/math"
	"go.starlark.net/resolve"
	"go.starlark.net/starlark"
	"go.starlark.net/starlarkstruct"
	"go.starlark.net/syntax"
)

// branchKey finds the branch of a thread; a thread without one is loading a module, and may not act.
const branchKey = "branch"

// module is a loaded module, or one that is being loaded (globals and err nil).
type module struct {
	globals starlark.StringDict
	err     error
}

// hostModules are the names beside the builtins that every file sees.
func hostModules() starlark.StringDict {
	return starlark.StringDict{
		"json":   json.Module,
		"math":   math.Module,
		"struct": starlark.NewBuiltin("struct", starlarkstruct.Make),
	}
}

// own are the names that every file sees. Nothing can change them, so all programs share them. They are made at their first
// use: builtins lead to functions that use them.
var own struct { //nolint:gochecknoglobals // as a table of constants would be
	once  sync.Once
	names starlark.StringDict
}

func ownNames() starlark.StringDict {
	own.once.Do(func() {
		own.names = hostModules()
		for _, table := range []map[string]builtin{builtins(), comparisons()} {
			for name, fn := range table {
				own.names[name] = starlark.NewBuiltin(name, fn)
			}
		}
	})
	return own.names
}

// predeclared are the globals of the main file, as far as it uses them: most of what there is most programs do not.
func (p *compiled) predeclared(inputs starlark.StringDict) starlark.StringDict {
	own, globals := ownNames(), make(starlark.StringDict, len(p.uses))
	for _, name := range p.uses {
		value, given := inputs[name]
		if !given {
			value = own[name]
		}
		globals[name] = value
	}
	return globals
}

// thread makes what a branch or a module runs on. A branch replaces Print by its own, which records.
func (m *machine) thread(name string) *starlark.Thread {
	return &starlark.Thread{
		Name:  name,
		Load:  m.load,
		Print: func(*starlark.Thread, string) {}, // a module's top level has nobody to print for
		OnMaxSteps: func(t *starlark.Thread) {
			t.Cancel(fmt.Sprintf("more than %d steps without waiting", m.limits.Steps))
		},
	}
}

// loadable says which name a file loads that its module does not define: the run would fail there, and at its start.
func loadable(field string, file *syntax.File, modules map[string]*syntax.File) (failure error) {
	syntax.Walk(file, func(n syntax.Node) bool {
		load, ok := n.(*syntax.LoadStmt)
		if !ok || failure != nil {
			return failure == nil
		}
		var defined []string
		if module, ok := modules[load.ModuleName()].Module.(*resolve.Module); ok { // file has made sure that there is the module
			for _, global := range module.Globals {
				if !strings.HasPrefix(global.First.Name, "_") {
					defined = append(defined, global.First.Name)
				}
			}
		}
		for _, name := range load.From {
			if !slices.Contains(defined, name.Name) {
				failure = invalid(field, "%s: load of %q, which %s does not define: found %s", name.NamePos, name.Name, load.ModuleName(),
					cmp.Or(strings.Join(slices.Sorted(slices.Values(defined)), ", "), "none"))
			}
		}
		return false
	})
	return failure
}

// circle says where loads come back to a module that is being loaded: whatever the run does, it fails there. Modules that the main
// file does not lead to are never run, so they may.
func circle(main *starlark.Program, modules map[string]*starlark.Program) error {
	done := map[string]bool{}
	var visit func(field string, file *starlark.Program, path []string) error
	visit = func(field string, file *starlark.Program, path []string) error {
		for i := range file.NumLoads() {
			name, pos := file.Load(i)
			if from := slices.Index(path, name); from >= 0 {
				return invalid(field, "%s: load of %q, which leads back to itself: %s, expected modules without circles", pos, name,
					strings.Join(append(path[from:], name), " loads "))
			}
			if done[name] {
				continue
			}
			if err := visit("modules."+name, modules[name], append(path, name)); err != nil {
				return err
			}
			done[name] = true
		}
		return nil
	}
	return visit("starlark", main, nil)
}

// load runs a module once per run of a program.
func (m *machine) load(_ *starlark.Thread, name string) (starlark.StringDict, error) {
	if known, ok := m.modules[name]; ok {
		if known == nil {
			return nil, fmt.Errorf("module %s loads itself", name)
		}
		return known.globals, known.err
	}
	compiled, ok := m.program.modules[name]
	if !ok {
		return nil, fmt.Errorf("no module %q", name)
	}
	// Known, but not loaded: a load() of it from inside finds this, and is a cycle.
	m.modules[name] = nil
	thread := m.thread("module " + name)
	thread.SetMaxExecutionSteps(m.limits.Steps)
	globals, err := compiled.Init(thread, m.debugger.names(ownNames()))
	// Branches share modules. Frozen, they hold no state through which one branch could reach another.
	globals.Freeze()
	m.modules[name] = &module{globals, locate(err)}
	return globals, locate(err)
}

// runProgram is the body of the first branch: the top level, then the entry point.
func (m *machine) runProgram(thread *starlark.Thread) (starlark.Value, error) {
	globals, err := m.program.main.Init(thread, m.debugger.names(m.program.predeclared(m.inputs)))
	if err != nil {
		return nil, err
	}
	m.entered = true
	if err := m.inherit(thread, globals); err != nil {
		return nil, err
	}
	value, err := m.entry.call(thread, globals, m.inputs)
	if err != nil {
		return nil, err
	}
	return value, m.returned(value)
}
