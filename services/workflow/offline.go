package workflow

import (
	"context"
	"encoding/json"
	"maps"
	"slices"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/program"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/events"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/function"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/offline"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/script"
)

// Recording is a run that was exported, and can be replayed without the service.
type Recording = offline.Recording

// ReplayOptions say how a recording is replayed.
type ReplayOptions = offline.Options

// ReplayReport is what a replay led to.
type ReplayReport = offline.Report

// ReadRecording reads the file that an export was written to.
func ReadRecording(text []byte) (Recording, error) { return offline.Read(text) }

// Replay runs a program over a recording, in this process.
func Replay(r Recording, o ReplayOptions) (ReplayReport, error) { return offline.Replay(r, o) }

// ParseBreakpoint reads FILE:LINE.
func ParseBreakpoint(text string) (file string, line int, err error) {
	return offline.ParseBreakpoint(text)
}

// CheckProgram compiles a program with its modules, and compares the inputs, an object, with what it can take; nothing is run. The error is
// Invalid, with a field for each finding, as CheckProgram of the API names it. Which Functions there are is not known here.
func CheckProgram(source []byte, modules map[string][]byte, inputs []byte) error {
	return script.New(script.Limits{}).Check(program.Program{Source: source, Modules: modules}, inputs)
}

// RecordedEntry is an entry of a Recording as an export has it.
type RecordedEntry = offline.Entry

// MainFile is the name of a program's main file in a Recording.
const MainFile = offline.MainFile

// TestCase is a test of a program.
type TestCase = offline.Case

// TestOutcome is what a test has led to.
type TestOutcome = offline.Outcome

// ReadTestTable reads a table of cases, as JSON. load reads the files that it names. The error is Invalid, too, for an answer of a Function
// with a code that it never answers: a case about it would show nothing.
func ReadTestTable(text []byte, load func(name string) ([]byte, error)) ([]TestCase, error) {
	return withKnownCodes(offline.ReadTable(text, load))
}

// ReadTestStarlark reads cases in Starlark, as ReadTestTable does. load reads the files that they name.
func ReadTestStarlark(name string, text []byte, load func(name string) ([]byte, error)) ([]TestCase, error) {
	return withKnownCodes(offline.ReadStarlark(name, text, load))
}

// ReadTestScenario reads a case of files by name, as those of this service's own tests.
func ReadTestScenario(name string, files map[string][]byte) (TestCase, error) {
	c, err := offline.ReadScenario(name, files)
	if err == nil {
		_, err = withKnownCodes([]TestCase{c}, nil)
	}
	return c, err
}

// withKnownCodes refuses cases in which a Function answers a code that it never answers.
func withKnownCodes(cases []TestCase, err error) ([]TestCase, error) {
	if err != nil {
		return nil, err
	}
	for i, c := range cases {
		for _, name := range slices.Sorted(maps.Keys(c.Functions)) {
			for n, answer := range c.Functions[name] {
				if answer.Error == nil {
					continue
				}
				if err := function.CheckCode(name, answer.Error.Code); err != nil {
					return nil, fault.New(fault.Invalid, "cases[%d] (%s): functions.%s[%d].error.code: %w", i, c.Name, name, n, err)
				}
			}
		}
	}
	return cases, nil
}

// TestCarrier carries a call of a Function out in a test.
type TestCarrier = offline.Carrier

// Test plays a case without crashes and then, with crashes, once for each seed, in this process. Functions that only compute are carried
// out where the case has no answers for them.
func Test(c TestCase, seeds []uint64) TestOutcome {
	return offline.Test(computing(c), seeds, events.CheckEmit)
}

// computing is a case whose Functions that only compute are carried out.
func computing(c TestCase) TestCase {
	if c.Compute == nil {
		c.Compute = map[string]offline.Carrier{}
		for _, f := range function.Computing() {
			c.Compute[f.Name()] = carrier(f)
		}
	}
	return c
}

// TestSimulation is what a program has computed and reported.
type TestSimulation = offline.Simulation

// Simulate plays a case once, in this process, and shows what it computes.
func Simulate(c TestCase) (TestSimulation, error) {
	return offline.Simulate(computing(c), events.CheckEmit)
}

// carrier is a Function of this process as a test has it.
func carrier(f activity.Function) offline.Carrier {
	return func(key string, encoded json.RawMessage) (json.RawMessage, *history.FunctionError) {
		args, err := history.Arguments(encoded)
		if err == nil {
			if checker, checks := f.(activity.Checker); checks {
				err = checker.Check(args)
			}
		}
		var value any
		if err == nil {
			value, err = f.Call(context.Background(), activity.Call{ID: key, Function: f.Name(), Args: args, Organization: 1})
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
