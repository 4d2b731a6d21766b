package script

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"go.starlark.net/resolve"
	"go.starlark.net/starlark"
	"go.starlark.net/syntax"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/program"
)

// mainFile is the name of the main source in positions.
const mainFile = "main.star"

// Scripts checks and opens Starlark programs, and keeps compiled ones. It is safe for concurrent use.
type Scripts struct {
	limits Limits

	// debugger observes programs; nil where nobody does.
	debugger *Debugger

	mu       sync.Mutex
	compiled map[[32]byte]*compiled
}

var (
	_ program.Scripts = (*Scripts)(nil)
	_ program.Near    = (*Scripts)(nil)
)

// New makes Scripts that bound every program by limits.
func New(limits Limits) *Scripts {
	return &Scripts{limits: limits.withDefaults(), compiled: map[[32]byte]*compiled{}}
}

// cached is how many compiled programs are kept; beyond it the cache starts anew, since programs are few.
const cached = 256

// program is a compiled main file with its compiled modules. It is immutable.
type compiled struct {
	main    *starlark.Program
	modules map[string]*starlark.Program
	// functions are those that the main file defines at its top level, uses the names of this package and of inputs that it refers to.
	functions map[string]definition
	uses      []string
	// circular is what is wrong with its loads. Such a program cannot be started; a run that was started before this was checked
	// continues to where it fails.
	circular error
}

// Near reports that all programs run in this process.
func (*Scripts) Near(program.Program) bool { return true }

// Check parses and resolves the program and its modules, and compares inputs with what the program can take.
func (s *Scripts) Check(p program.Program, inputs []byte) error {
	compiled, _, _, err := s.prepare(p, inputs)
	if err != nil {
		return err
	}
	return compiled.circular
}

// prepare compiles a program and fits its inputs to it.
func (s *Scripts) prepare(p program.Program, inputs []byte) (*compiled, starlark.StringDict, entry, error) {
	globals, entry, err := s.inputs(inputs)
	if err != nil {
		return nil, nil, entry, err
	}
	compiled, err := s.compile(p, globals)
	if err != nil {
		return nil, nil, entry, err
	}
	return compiled, globals, entry, entry.check(compiled, globals)
}

// checkNames says which input cannot be a global.
func checkNames(inputs starlark.StringDict) error {
	own := ownNames()
	for _, name := range inputs.Keys() {
		switch {
		case !isIdentifier(name):
			return invalid("inputs."+name, "not a name that a global of a program can have")
		case own.Has(name) && !added(name) || starlark.Universe.Has(name):
			return invalid("inputs."+name, "is the name of a builtin")
		}
	}
	return nil
}

// inputs decodes the inputs. One of them is no global: it says which handler of a flow the run is for.
func (s *Scripts) inputs(inputs []byte) (starlark.StringDict, entry, error) {
	globals, start := starlark.StringDict{}, entry{function: entryPoint}
	if len(bytes.TrimSpace(inputs)) == 0 {
		return globals, start, nil
	}
	if len(inputs) > s.limits.Value {
		return nil, start, invalid("inputs", "%d bytes, expected at most %d", len(inputs), s.limits.Value)
	}
	v, err := decode(inputs)
	if err != nil {
		return nil, start, invalid("inputs", "%s", err)
	}
	object, ok := v.(*Object)
	if !ok {
		return nil, start, invalid("inputs", "found a JSON %s, expected an object", v.Type())
	}
	// Branches and main's parameters share the values.
	object.Freeze()
	for _, item := range object.Items() {
		name, _ := starlark.AsString(item[0])
		if name != program.HandlerInput {
			globals[name] = item[1]
		} else if start, err = handlerCall(item[1]); err != nil {
			return nil, start, err
		}
	}
	return globals, start, nil
}

// isIdentifier asks the parser, which knows the reserved words.
func isIdentifier(name string) bool {
	e, err := new(syntax.FileOptions).ParseExpr("", name, 0)
	ident, ok := e.(*syntax.Ident)
	return err == nil && ok && ident.Name == name
}

// compile is the program from the cache, or made. It is made outside of the lock: two callers may make the same one,
// and it does not matter whose is kept.
func (s *Scripts) compile(p program.Program, inputs starlark.StringDict) (*compiled, error) {
	key := digest(p, inputs)
	s.mu.Lock()
	known := s.compiled[key]
	s.mu.Unlock()
	if known != nil {
		return known, nil // with inputs of the same names, which were checked
	}
	if err := checkNames(inputs); err != nil {
		return nil, err
	}
	c := &compiled{modules: map[string]*starlark.Program{}, functions: map[string]definition{}}
	own := ownNames()
	used := map[string]bool{}
	inMain := func(name string) bool {
		if !inputs.Has(name) && !own.Has(name) {
			return s.debugger != nil && name == breakpoint
		}
		used[name] = true
		return true
	}
	for _, name := range slices.Sorted(maps.Keys(p.Modules)) {
		_, compiled, err := s.file("modules."+name, name, p.Modules[name], p.Modules, s.debugger.names(own).Has)
		if err != nil {
			return nil, err
		}
		c.modules[name] = compiled
	}
	file, compiled, err := s.file("starlark", mainFile, p.Source, p.Modules, inMain)
	if err != nil {
		return nil, err
	}
	for _, stmt := range file.Stmts {
		if def, ok := stmt.(*syntax.DefStmt); ok {
			c.functions[def.Name.Name] = definition{required: required(def), at: def.Def}
		}
	}
	c.main, c.uses, c.circular = compiled, slices.Collect(maps.Keys(used)), circle(compiled, c.modules)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.compiled) >= cached {
		clear(s.compiled)
	}
	s.compiled[key] = c
	return c, nil
}

// file compiles one file. field names it in errors, as the caller of StartWorkflow knows it.
func (s *Scripts) file(
	field, name string, source []byte, modules map[string][]byte, has func(string) bool,
) (*syntax.File, *starlark.Program, error) {
	if len(source) > s.limits.Source {
		return nil, nil, invalid(field, "%d bytes, expected at most %d", len(source), s.limits.Source)
	}
	file, err := dialect().Parse(name, source, 0)
	var compiled *starlark.Program
	if err == nil {
		compareContent(file)
		s.debugger.instrument(name, file)
		compiled, err = starlark.FileProgram(file, has)
	}
	if err != nil {
		return nil, nil, invalid(field, "%s", describe(err))
	}
	for i := range compiled.NumLoads() {
		module, pos := compiled.Load(i)
		if _, ok := modules[module]; !ok {
			known := strings.Join(slices.Sorted(maps.Keys(modules)), ", ")
			return nil, nil, invalid(field, "%s: load of %q, which is not among the modules: found %s", pos, module, cmp.Or(known, "none"))
		}
	}
	return file, compiled, nil
}

// dialect is the language of programs. Recursion stays off (D34): a branch's depth is bounded by the program's text.
func dialect() *syntax.FileOptions {
	return &syntax.FileOptions{Set: true, While: true, TopLevelControl: true, GlobalReassign: true}
}

// describe turns the parser's and the resolver's errors, which may be many, into one line.
func describe(err error) string {
	var many resolve.ErrorList
	if !errors.As(err, &many) {
		return err.Error()
	}
	const shown = 5
	parts := make([]string, 0, len(many))
	for i, e := range many {
		if i == shown {
			parts = append(parts, fmt.Sprintf("and %d more", len(many)-shown))
			break
		}
		parts = append(parts, e.Error())
	}
	return strings.Join(parts, "; ")
}

// digest identifies a compiled program: its bytes and the names it may refer to.
func digest(p program.Program, inputs starlark.StringDict) [32]byte {
	h := sha256.New()
	var length [8]byte
	add := func(part []byte) { // with its length, so that no two programs give the same bytes
		binary.BigEndian.PutUint64(length[:], uint64(len(part)))
		_, _ = h.Write(length[:]) // writing to a hash does not fail
		_, _ = h.Write(part)
	}
	add(p.Source)
	binary.BigEndian.PutUint64(length[:], uint64(len(p.Modules)))
	add(length[:])
	for _, name := range slices.Sorted(maps.Keys(p.Modules)) {
		add([]byte(name))
		add(p.Modules[name])
	}
	for _, name := range inputs.Keys() {
		add([]byte(name))
	}
	return [32]byte(h.Sum(nil))
}

func invalid(field, format string, args ...any) error {
	return fault.InvalidFields(fault.Field{Name: field, Problem: fmt.Sprintf(format, args...)})
}
