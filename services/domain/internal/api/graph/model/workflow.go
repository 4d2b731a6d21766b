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

// WorkflowSchedule wraps the domain's.
type WorkflowSchedule struct{ handoff.Schedule }

// WrapSchedule wraps the domain's.
func WrapSchedule(s handoff.Schedule) WorkflowSchedule { return WorkflowSchedule{s} }

// MarshalScheduleOverlap writes a policy.
func MarshalScheduleOverlap(o handoff.ScheduleOverlap) graphql.Marshaler { return word(string(o)) }

// UnmarshalScheduleOverlap reads a policy.
func UnmarshalScheduleOverlap(v any) (handoff.ScheduleOverlap, error) {
	return enum(v, handoff.OverlapSkip, handoff.OverlapBufferOne, handoff.OverlapBufferAll, handoff.OverlapCancelOther, handoff.OverlapAllow)
}

// MarshalScheduleOutcome writes an outcome.
func MarshalScheduleOutcome(o handoff.ScheduleOutcome) graphql.Marshaler { return word(string(o)) }

// UnmarshalScheduleOutcome reads an outcome.
func UnmarshalScheduleOutcome(v any) (handoff.ScheduleOutcome, error) {
	return enum(v,
		handoff.FireWaiting, handoff.FireStarting, handoff.FireStarted, handoff.FireSkipped, handoff.FireMissed, handoff.FireRefused)
}

// MarshalFunctionEffect writes an effect.
func MarshalFunctionEffect(e handoff.FunctionEffect) graphql.Marshaler { return word(string(e)) }

// UnmarshalFunctionEffect reads an effect.
func UnmarshalFunctionEffect(v any) (handoff.FunctionEffect, error) {
	return enum(v, handoff.FunctionReads, handoff.FunctionChanges, handoff.FunctionTakesBack, handoff.FunctionSpecial)
}
