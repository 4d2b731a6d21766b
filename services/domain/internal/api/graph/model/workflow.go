package model

import (
	"strings"

	"github.com/99designs/gqlgen/graphql"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// Workflow wraps the domain's.
type Workflow struct{ core.WorkflowRun }

// WrapWorkflow wraps the domain's.
func WrapWorkflow(w core.WorkflowRun) Workflow { return Workflow{w} }

// MarshalWorkflowState writes a state.
func MarshalWorkflowState(s core.WorkflowState) graphql.Marshaler {
	return word(strings.ToUpper(string(s)))
}

// UnmarshalWorkflowState reads a state.
func UnmarshalWorkflowState(v any) (core.WorkflowState, error) {
	return enum(v, core.AllWorkflowStates()...)
}
