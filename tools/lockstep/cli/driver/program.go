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
	var problems []string
	err := p.Ask(func(client autoflowv1.AutoFlowClient) error {
		for _, b := range bundles {
			for _, w := range append(driver.Workflows(), driver.Check) {
				if !b.Has(w) {
					continue
				}
				found, err := programProblems(ctx, client, b, w)
				if err != nil {
					return err
				}
				for _, p := range found {
					if !slices.Contains(problems, p) { // of a module that several programs load
						problems = append(problems, p)
					}
				}
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if len(problems) > 0 {
		return fault.New(fault.Invalid, "%s", strings.Join(problems, "; "))
	}
	return nil
}

// programProblems is what is wrong with one program, by the names of the driver's files.
func programProblems(ctx context.Context, client autoflowv1.AutoFlowClient, b *driver.Bundle, w driver.Workflow) ([]string, error) {
	program, err := b.Program(w)
	if err != nil {
		return nil, err
	}
	// The engine looks at the names of inputs, and no further.
	given := map[string]struct{}{}
	for _, name := range w.Inputs() {
		given[name] = struct{}{}
	}
	inputs, err := json.Marshal(given)
	if err != nil {
		return nil, fmt.Errorf("encode inputs: %w", err)
	}
	found, err := client.CheckProgram(ctx, &autoflowv1.CheckProgramRequest{Starlark: program.Source, Modules: program.Modules, Inputs: inputs})
	if err != nil {
		return nil, err
	}
	problems := make([]string, len(found.GetProblems()))
	for i, p := range found.GetProblems() {
		if at, ok := strings.CutPrefix(p.GetDescription(), "main.star:"); ok {
			problems[i] = program.Path + ":" + at
		} else if module, ok := strings.CutPrefix(p.GetField(), "modules."); ok {
			problems[i] = "module " + module + ": " + p.GetDescription()
		} else {
			problems[i] = program.Path + ": " + p.GetField() + ": " + p.GetDescription()
		}
	}
	return problems, nil
}
