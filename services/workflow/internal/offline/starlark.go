package offline

import (
	"encoding/json"
	"fmt"

	starlarkjson "go.starlark.net/lib/json"
	"go.starlark.net/starlark"
	"go.starlark.net/syntax"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// maxTestSteps bounds what a file of cases may compute.
const maxTestSteps = 20_000_000

// ReadStarlark reads cases in Starlark: a file whose variables are the members of a table, or that has a list of tables. It may load files
// beside it. load reads the files that it names.
func ReadStarlark(name string, text []byte, load func(name string) ([]byte, error)) ([]Case, error) {
	globals, err := evaluate(name, text, load)
	if err != nil {
		return nil, err
	}
	tables, several := globals["tables"]
	if !several {
		one := new(starlark.Dict)
		for _, member := range []string{"program", "modules", "inputs", "functions", "event_types", "cases"} {
			if value, set := globals[member]; set {
				if err := one.SetKey(starlark.String(member), value); err != nil {
					return nil, fault.New(fault.Invalid, "%s: %w", member, err)
				}
			}
		}
		tables = starlark.NewList([]starlark.Value{one})
	}
	encoded, err := starlark.Call(&starlark.Thread{Name: name}, starlarkjson.Module.Members["encode"], starlark.Tuple{tables}, nil)
	if err != nil {
		return nil, fault.New(fault.Invalid, "%w", err)
	}
	encodedText, _ := starlark.AsString(encoded)
	var list []json.RawMessage
	if err := json.Unmarshal([]byte(encodedText), &list); err != nil {
		return nil, fault.New(fault.Invalid, "tables: %w", err)
	}
	var cases []Case
	for n, one := range list {
		found, err := ReadTable(one, load)
		if err != nil && several {
			return nil, fault.New(fault.Invalid, "tables[%d]: %w", n, err)
		}
		if err != nil {
			return nil, err
		}
		cases = append(cases, found...)
	}
	if len(cases) == 0 {
		return nil, fault.New(fault.Invalid, "found no table, expected at least one")
	}
	return cases, nil
}

// evaluate runs a file and those that it loads, with a bound on what they compute together.
func evaluate(name string, text []byte, load func(name string) ([]byte, error)) (starlark.StringDict, error) {
	options := &syntax.FileOptions{Set: true, While: true, TopLevelControl: true, GlobalReassign: true}
	known := starlark.StringDict{"json": starlarkjson.Module}
	loaded, loading := map[string]starlark.StringDict{}, map[string]bool{}
	thread := &starlark.Thread{Name: name, Print: func(*starlark.Thread, string) {}}
	thread.SetMaxExecutionSteps(maxTestSteps)
	thread.Load = func(t *starlark.Thread, module string) (starlark.StringDict, error) {
		if found, exists := loaded[module]; exists {
			return found, nil
		}
		if loading[module] {
			return nil, fmt.Errorf("%s loads itself", module)
		}
		loading[module] = true
		source, err := load(module)
		if err != nil {
			return nil, err
		}
		found, err := starlark.ExecFileOptions(options, t, module, source, known)
		loaded[module] = found
		return found, err
	}
	globals, err := starlark.ExecFileOptions(options, thread, name, text, known)
	if err != nil {
		return nil, fault.New(fault.Invalid, "%w", err)
	}
	return globals, nil
}
