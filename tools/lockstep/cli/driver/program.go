package driver

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/driver"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
	engine "github.com/lockstep-cd/lockstep/services/workflow"
	"github.com/lockstep-cd/lockstep/tools/lockstep/cli/workflow"
)

// programs checks the programs of drivers with the engine.
type programs struct{ *workflow.Engine }

// checkFiles are the drivers of a folder's files, once they are what may be published.
func (p programs) checkFiles(ctx context.Context, files map[string][]byte) ([]*driver.Bundle, error) {
	bundles, err := driver.FromFiles(files)
	if err == nil {
		err = driver.CheckNew(bundles)
	}
	if err == nil {
		err = driver.CheckWidgets(bundles)
	}
	if err == nil {
		err = p.checkPrograms(ctx, bundles)
	}
	return bundles, err
}

// checkPrograms has the engine that the caller named check the programs of drivers. Only an engine knows which builtins and Functions
// exist; otherwise an installation finds an invalid program when it runs it. Without an engine a note says that nothing was checked.
func (p programs) checkPrograms(ctx context.Context, bundles []*driver.Bundle) error {
	if !p.IsNamed() {
		fmt.Fprintln(p.ErrOut, "the programs were not checked: that requires a workflow service (--grpc, LOCKSTEP_GRPC or --endpoints-file)")
		return nil
	}
	return p.Ask(func(client autoflowv1.AutoFlowClient) error {
		return eachProgram(bundles, func(program driver.Program, inputs []byte) ([]fault.Field, error) {
			request := autoflowv1.CheckProgramRequest{Starlark: program.Source, Modules: program.Modules, Inputs: inputs}
			found, err := client.CheckProgram(ctx, &request)
			if err != nil {
				return nil, err
			}
			problems := make([]fault.Field, len(found.GetProblems()))
			for i, p := range found.GetProblems() {
				problems[i] = fault.Field{Name: p.GetField(), Problem: p.GetDescription()}
			}
			return problems, nil
		})
	})
}

// compilePrograms compiles the programs of drivers, without a service. Which Functions exist is not known here.
func compilePrograms(bundles []*driver.Bundle) error {
	return eachProgram(bundles, func(program driver.Program, inputs []byte) ([]fault.Field, error) {
		err := engine.CheckProgram(program.Source, program.Modules, inputs)
		if fields := fault.FieldsOf(err); len(fields) > 0 {
			return fields, nil
		}
		return nil, err
	})
}

// eachProgram checks every program of drivers. The error is Invalid, and has what is wrong with all of them, by the names of the drivers'
// files.
func eachProgram(bundles []*driver.Bundle, check func(program driver.Program, inputs []byte) ([]fault.Field, error)) error {
	var problems []string
	for _, b := range bundles {
		for _, w := range append(driver.Workflows(), driver.Check) {
			if !b.Has(w) {
				continue
			}
			program, err := b.Program(w)
			if err != nil {
				return err
			}
			// The engine looks at the names of inputs, and no further.
			given := map[string]struct{}{}
			for _, name := range w.Inputs() {
				given[name] = struct{}{}
			}
			inputs, err := json.Marshal(given)
			if err != nil {
				return fmt.Errorf("encode inputs: %w", err)
			}
			found, err := check(program, inputs)
			if err != nil {
				return err
			}
			for _, f := range found {
				if text := problemOf(program, f); !slices.Contains(problems, text) { // of a module that several programs load
					problems = append(problems, text)
				}
			}
		}
	}
	if len(problems) > 0 {
		return fault.New(fault.Invalid, "%s", strings.Join(problems, "; "))
	}
	return nil
}

// problemOf is what is wrong with a program, by the names of the driver's files.
func problemOf(program driver.Program, f fault.Field) string {
	if at, ok := strings.CutPrefix(f.Problem, "main.star:"); ok {
		return program.Path + ":" + at
	}
	if module, ok := strings.CutPrefix(f.Name, "modules."); ok {
		return "module " + module + ": " + f.Problem
	}
	return program.Path + ": " + f.Name + ": " + f.Problem
}
