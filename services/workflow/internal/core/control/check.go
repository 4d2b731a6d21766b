package control

import (
	"context"
	"fmt"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/execution"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/program"
)

// Checkup is what can be found out about a program without running it.
type Checkup struct {
	// Problems keep it from being started, or from ending well: fields as callers of StartWorkflow know them.
	Problems []fault.Field
	// Outline is empty when the program cannot be read.
	Outline program.Outline
}

// ProgramChecker says what is wrong with programs. Nothing of them is run.
type ProgramChecker struct {
	Scripts   program.Scripts
	Functions *activity.Functions
	// CheckType says whether a program may emit an event of the type; nil when it may.
	CheckType func(ctx context.Context, organization int64, eventType string) *history.FunctionError
}

// Check looks at a program of an organization, 0 for nobody's yet, and at inputs, unless there are none. The error is about the request;
// what is wrong with the program is in the answer.
func (c ProgramChecker) Check(ctx context.Context, organization int64, p program.Program, inputs []byte) (Checkup, error) {
	if len(p.Source) == 0 {
		return Checkup{}, fault.InvalidFields(fault.Field{Name: "starlark", Problem: "missing, expected a program"})
	}
	// Everything about a start that is not its program is right.
	basis := execution.Start{Organization: 1, Workflow: "check", Program: p, Inputs: inputs}
	if err := basis.Admit(); err != nil {
		return Checkup{Problems: fault.FieldsOf(err)}, nil
	}
	outline, err := program.ScriptsFor(c.Scripts, organization).Inspect(p)
	if err != nil {
		return problems(err, program.Outline{})
	}
	checkup := Checkup{Outline: outline}
	if len(inputs) > 0 {
		if checkup, err = problems(program.ScriptsFor(c.Scripts, organization).Check(p, inputs), outline); err != nil {
			return Checkup{}, err
		}
	}
	report := func(format string, args ...any) {
		checkup.Problems = append(checkup.Problems, fault.Field{Name: "starlark", Problem: fmt.Sprintf(format, args...)})
	}
	for _, use := range outline.Functions {
		_, known, err := c.Functions.Of(ctx, organization, use.Name)
		if err != nil {
			return Checkup{}, err
		}
		if !known {
			report("%s: %s", use.Position, c.Functions.Unknown(use.Name).Message)
		}
	}
	for _, use := range outline.Emits {
		if refusal := c.CheckType(ctx, organization, use.Name); refusal != nil {
			report("%s: %s", use.Position, refusal.Message)
		}
	}
	for _, handler := range outline.Handlers {
		if err := handler.Check(); err != nil {
			checkup.Problems = append(checkup.Problems, fault.FieldsOf(err)...)
		}
	}
	return checkup, nil
}

// problems takes what an error says about a program out of it. Another error stays one.
func problems(err error, o program.Outline) (Checkup, error) {
	fields := fault.FieldsOf(err)
	if err != nil && len(fields) == 0 {
		return Checkup{}, err
	}
	return Checkup{Problems: fields, Outline: o}, nil
}
