package offline_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"go.yaml.in/yaml/v4"

	"github.com/lockstep-cd/lockstep/pkg/driver"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/function"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/offline"
)

// kinds are the folders of the built-in check kinds.
const kinds = "../../../../pkg/driver/checks/kinds"

// R3-29 to R3-46, R3-49, R2-32: the built-in check kinds do what their tables of cases say, each also with crashes of the engine at random.
// The cases name the requirements that they show.
func TestBuiltInCheckKinds(t *testing.T) {
	t.Parallel()
	tables, err := filepath.Glob(filepath.Join(kinds, "*", "check.test.yaml"))
	if err != nil || len(tables) == 0 {
		t.Fatalf("found %v, %v", tables, err)
	}
	for _, table := range tables {
		cases := casesOf(t, table)
		for _, c := range cases {
			t.Run(filepath.Base(filepath.Dir(table))+"/"+c.Name, func(t *testing.T) {
				t.Parallel()
				c.Compute = computing(t)
				if o := offline.Test(c, seeds(3), anything); !o.Passed {
					t.Errorf("%v\n%s", o.Failures, o.History)
				}
			})
		}
		if least := 60; filepath.Base(filepath.Dir(table)) == "web-request" && len(cases) < least {
			t.Errorf("found %d cases of web-request, expected at least %d", len(cases), least)
		}
	}
}

func casesOf(t *testing.T, file string) []offline.Case {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var table any
	if err := yaml.Unmarshal(text, &table); err != nil {
		t.Fatal(err)
	}
	encoded, err := json.Marshal(table)
	if err != nil {
		t.Fatal(err)
	}
	cases, err := offline.ReadTable(encoded, func(name string) ([]byte, error) {
		if module, exists := driver.HostModule(name); exists {
			return module, nil
		}
		return os.ReadFile(filepath.Join(filepath.Dir(file), name))
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		for name, answers := range c.Functions {
			for _, a := range answers {
				if a.Error == nil {
					continue
				}
				if err := function.CheckCode(name, a.Error.Code); err != nil {
					t.Errorf("%s: %s: %v", c.Name, name, err)
				}
			}
		}
	}
	return cases
}

// computing are the Functions that only compute, as they are.
func computing(t *testing.T) map[string]offline.Carrier {
	t.Helper()
	all := map[string]offline.Carrier{}
	for _, f := range function.Computing() {
		checker, checks := f.(activity.Checker)
		if !checks {
			t.Fatalf("%s checks no arguments", f.Name())
		}
		all[f.Name()] = func(key string, encoded json.RawMessage) (json.RawMessage, *history.FunctionError) {
			args, err := history.Arguments(encoded)
			if err == nil {
				err = checker.Check(args)
			}
			var value any
			if err == nil {
				value, err = f.Call(t.Context(), activity.Call{ID: key, Function: f.Name(), Args: args})
			}
			if err != nil {
				return nil, history.AsFunctionError(err)
			}
			answer, err := json.Marshal(value)
			if err != nil {
				return nil, history.AsFunctionError(err)
			}
			return answer, nil
		}
	}
	return all
}
