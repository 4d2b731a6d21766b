package model

import (
	"strings"

	"github.com/99designs/gqlgen/graphql"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core/handoff"
)

// Workflow wraps the domain's.
type Workflow struct{ handoff.WorkflowRun }

// WrapWorkflow wraps the domain's.
func WrapWorkflow(w handoff.WorkflowRun) Workflow { return Workflow{w} }

// MarshalWorkflowState writes a state.
func MarshalWorkflowState(s handoff.WorkflowState) graphql.Marshaler {
	return word(strings.ToUpper(string(s)))
}

// UnmarshalWorkflowState reads a state.
func UnmarshalWorkflowState(v any) (handoff.WorkflowState, error) {
	return enum(v, handoff.AllWorkflowStates()...)
}
