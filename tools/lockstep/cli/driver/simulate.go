package driver

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v4"

	"github.com/lockstep-cd/lockstep/pkg/driver"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	engine "github.com/lockstep-cd/lockstep/services/workflow"
	"github.com/lockstep-cd/lockstep/tools/lockstep/cli/command"
)

// simulated is the file with what a check is simulated with.
type simulated struct {
	// Config is the configuration of the check; Subject is what it is about, by default an application in two environments.
	Config  any `json:"config" yaml:"config"`
	Subject any `json:"subject" yaml:"subject"`
	// Target is proposed, the default where the kind has it, or active.
	Target string `json:"target" yaml:"target"`
	// Functions are what Functions answer, as in tables of cases: http.request, for instance.
	Functions any `json:"functions" yaml:"functions"`
	// Steps are what happens to the run, as in tables of cases. By default it ends after its first evaluation.
	Steps any `json:"steps" yaml:"steps"`
}

// exampleSubject is what a check is about if the file does not say it.
const exampleSubject = `{"application":{"id":1,"name":"shop"},"environment":{"id":2,"name":"production","tier":"production","version_set_id":4},
"environments":[{"id":1,"name":"staging","tier":"staging","version_set_id":5},{"id":2,"name":"production","tier":"production","version_set_id":4}],
"rollout":{"id":7},"version_set":{"id":5,"name":"5","versions":[{"name":"1.2.0","image":"registry.example.com/shop","digest":"sha256:ab",
"reference":"registry.example.com/shop@sha256:ab","artifact_source_id":1}]},"commits":[]}`

// kindSimulate needs no service.
func (c commands) kindSimulate() *cobra.Command {
	return &cobra.Command{
		Use: "simulate KIND|FOLDER FILE", Short: "Run a check kind here, with the input of a file, and print what each expression comes to",
		Long: "Run a check kind here, with the input of a file, and print what each expression comes to. Nothing is called: the file has what Functions " +
			"answer, as tables of cases have it. Without steps the run ends after its first evaluation.",
		Example: "  lockstep check simulate web-request approval.yaml\n  lockstep check simulate ./ticket input.yaml -o json", Args: command.Exactly(2),
		RunE: func(_ *cobra.Command, args []string) error {
			if err := c.CheckOutput(); err != nil {
				return err
			}
			kind, err := kindOf(args[0])
			if err != nil {
				return err
			}
			one, err := simulation(kind, args[1])
			if err != nil {
				return err
			}
			done, err := engine.Simulate(one)
			if err != nil {
				return fault.New(fault.Invalid, "simulate %s: %w", kind.Ref(), err)
			}
			if err := c.Print(done, func(w io.Writer) { simulationTable(w, done) }); err != nil {
				return err
			}
			if done.Failure != "" && done.State == "failed" {
				return fault.New(fault.Refused, "the program failed: %s", done.Failure)
			}
			return nil
		},
	}
}

func simulationTable(w io.Writer, done engine.TestSimulation) {
	command.Row(w, "WHERE", "EXPRESSION", "VALUE")
	for _, e := range done.Expressions {
		value := string(e.Value)
		if e.Error != "" {
			value = e.Error
		}
		command.Row(w, e.Label, e.Text, value)
	}
	for _, r := range done.Reports {
		command.Row(w, "reported", r.Phase, r.Description)
	}
}

// kindOf is a built-in check kind, with its major or without, or that of a folder.
func kindOf(name string) (*driver.Bundle, error) {
	if info, err := os.Stat(name); err == nil && info.IsDir() {
		texts, err := driverFolder(name)
		if err != nil {
			return nil, err
		}
		bundles, err := driver.FromFiles(texts)
		if err != nil {
			return nil, err
		}
		if !bundles[0].IsCheck() {
			return nil, fault.New(fault.Invalid, "folder: found the driver %s in %s, expected a check kind", bundles[0].Ref(), name)
		}
		return bundles[len(bundles)-1], nil // its newest major
	}
	set, err := driver.EmbeddedChecks()
	if err != nil {
		return nil, err
	}
	kind, err := set.Get(driver.CheckRef(name))
	if err != nil {
		return nil, fault.New(fault.Invalid, "kind: found %q, expected a built-in check kind, such as web-request, or the folder of one", name)
	}
	return kind, nil
}

// simulation is the case that plays a check kind with the input of a file.
func simulation(kind *driver.Bundle, file string) (engine.TestCase, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return engine.TestCase{}, fault.New(fault.Invalid, "input: %w", err)
	}
	in := simulated{Target: "proposed"}
	if targets := kind.CheckTargets(); !slices.Contains(targets, in.Target) {
		in.Target = targets[0]
	}
	if err := yaml.Load(text, &in, yaml.WithKnownFields()); err != nil {
		return engine.TestCase{}, fault.New(fault.Invalid, "input: %s: %w", file, err)
	}
	config, err := json.Marshal(in.Config)
	if err != nil {
		return engine.TestCase{}, fault.New(fault.Invalid, "input: config: %w", err)
	}
	if !slices.Contains(kind.CheckTargets(), in.Target) {
		return engine.TestCase{}, fault.New(fault.Invalid, "input: target: found %q, expected %s", in.Target, strings.Join(kind.CheckTargets(), " or "))
	}
	if err := kind.ValidateCheck(config); err != nil {
		return engine.TestCase{}, fmt.Errorf("config: %w", err)
	}
	if in.Subject == nil {
		if err := json.Unmarshal([]byte(exampleSubject), &in.Subject); err != nil {
			return engine.TestCase{}, fmt.Errorf("read the example of a subject: %w", err)
		}
	}
	if in.Steps == nil {
		in.Steps = []any{map[string]any{"cancel": "one evaluation"}}
	}
	program, err := kind.Program(driver.Check)
	if err != nil {
		return engine.TestCase{}, err
	}
	modules := []string{}
	for name := range program.Modules {
		modules = append(modules, name)
	}
	table, err := json.Marshal(map[string]any{
		"program": program.Path, "modules": modules, "functions": in.Functions, "cases": []any{map[string]any{
			"name": kind.Ref(), "steps": in.Steps, "inputs": map[string]any{
				"check":  map[string]any{"run_id": 1, "key": kind.Name(), "kind": kind.Ref(), "target": in.Target, "number": 1},
				"config": in.Config, "subject": in.Subject,
			},
		}},
	})
	if err != nil {
		return engine.TestCase{}, fault.New(fault.Invalid, "input: %w", err)
	}
	cases, err := engine.ReadTestTable(table, func(name string) ([]byte, error) {
		if name == program.Path {
			return program.Source, nil
		}
		return program.Modules[name], nil
	})
	if err != nil {
		return engine.TestCase{}, fault.New(fault.Invalid, "input: %w", err)
	}
	return cases[0], nil
}
