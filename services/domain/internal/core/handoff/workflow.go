package handoff

import (
	"context"
	"errors"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// Workflows looks into the engine, and interferes with what runs there, for people who operate it. The engine keeps all of it; the
// domain keeps nothing, and asks anew each time. NotFound where the organization has no such run.
type Workflows interface {
	// ListWorkflows is a page of runs, newest first, without what they wait for.
	ListWorkflows(ctx context.Context, organization int64, f WorkflowFilter, p core.Page) (core.Slice[WorkflowRun], error)
	// CountWorkflows is how many runs ListWorkflows would list.
	CountWorkflows(ctx context.Context, organization int64, f WorkflowFilter) (WorkflowCount, error)
	WorkflowByID(ctx context.Context, organization int64, id string) (WorkflowRun, error)
	// WorkflowHistory and WorkflowLogs are oldest first.
	WorkflowHistory(ctx context.Context, organization int64, id string, p core.Page) (core.Slice[WorkflowEntry], error)
	WorkflowLogs(ctx context.Context, organization int64, id string, p core.Page) (core.Slice[WorkflowLine], error)
	// WorkflowTimeline is what the run's generation did, branch by branch; without inputs where they are not asked for.
	WorkflowTimeline(ctx context.Context, organization int64, id string, q TimelineQuery) (WorkflowTimeline, error)
	// RetryWorkflow continues a failed run from the step that failed, or from an entry of its history.
	RetryWorkflow(ctx context.Context, organization int64, id, reason string, from int64) error
	Schedules
	Functions
	// Cancel asks a run to stop.
	Cancel(ctx context.Context, organization int64, id, reason string) error
}

// WorkflowState is where a run stands.
type WorkflowState string

// The states of runs.
const (
	WorkflowRunning    WorkflowState = "running"
	WorkflowParked     WorkflowState = "parked"
	WorkflowCompleted  WorkflowState = "completed"
	WorkflowFailed     WorkflowState = "failed"
	WorkflowCancelled  WorkflowState = "cancelled"
	WorkflowTerminated WorkflowState = "terminated"
	// WorkflowQuarantined is a run that killed the engine's processes one after the other and was set aside; a retry releases it.
	WorkflowQuarantined WorkflowState = "quarantined"
)

// AllWorkflowStates is every state.
func AllWorkflowStates() []WorkflowState {
	return []WorkflowState{
		WorkflowRunning, WorkflowParked, WorkflowCompleted, WorkflowFailed, WorkflowCancelled, WorkflowTerminated, WorkflowQuarantined,
	}
}

// WorkflowFilter narrows a list of runs; its zero value does not.
type WorkflowFilter struct {
	States []WorkflowState
	// Program is what the driver calls it: deploy, onboarding. Subject is what it is run for: rollout_7.
	Program, Subject string
	// Parent is the id of the run that has started them.
	Parent string
	WorkflowConditions
}

// WorkflowConditions are further conditions of a list of runs; a zero value is none. The engine bounds them, and reports what is wrong
// with them.
type WorkflowConditions struct {
	// StartedAfter and EndedAfter include the time itself, StartedBefore and EndedBefore do not.
	StartedAfter, StartedBefore, EndedAfter, EndedBefore *time.Time
	IDPrefix, IDContains                                 string
	Labels, Status                                       []WorkflowPair
}

// WorkflowPair is a label, or a value that a program reports: a string, number or bool as JSON.
type WorkflowPair struct{ Key, Value string }

// WorkflowCount is a number of runs; AtLeast where there may be more, as the engine does not count on forever.
type WorkflowCount struct {
	Count   int
	AtLeast bool
}

// WorkflowRun is one run of a program.
type WorkflowRun struct {
	// ID is the caller's, Ref the engine's handle.
	ID, Ref string
	State   WorkflowState
	// Error is why, for one that failed or was ended.
	Error string
	// WaitingFor has a sentence for each thing that it waits for.
	WaitingFor []string
	// Program and Subject are as in WorkflowFilter; empty for one that was not started here.
	Program, Subject string
	// Status is what its program reports, by key; Parent the id of the run that has started it, empty for any other.
	Status               []WorkflowPair
	Parent               string
	Digest               string
	CreatedAt, UpdatedAt time.Time
	FinishedAt           *time.Time
	LastSequence         int64
	// Generation is how often it has continued with an empty history, from 1; GenerationSequence where the history of this one begins.
	Generation         int
	GenerationSequence int64
	Retries            []WorkflowRetry
}

// WorkflowRetry is one retry of it.
type WorkflowRetry struct {
	At            time.Time
	Reason, Error string
	FromSequence  int64
}

// WorkflowEntry is one recorded result.
type WorkflowEntry struct {
	Sequence int64
	// Generation is that of the run which recorded it, from 1.
	Generation int
	Branch     int
	// Kind is what was recorded, Name what it is about, Value the result as JSON, cut where Truncated says so.
	Kind, Name, Value string
	Truncated         bool
	RecordedAt        time.Time
}

// WorkflowLine is one thing that a run printed, or had carried out.
type WorkflowLine struct {
	Sequence         int64
	Branch           int
	Kind, Name, Text string
	// Code is of a call that failed.
	Code                string
	Truncated, Redacted bool
	RecordedAt          time.Time
}

// Workflows looks at the engine's runs of the actor's organization.
func (u *UseCases) Workflows(ctx context.Context, a core.Actor, f WorkflowFilter, p core.Page) (core.Slice[WorkflowRun], error) {
	return u.workflows.ListWorkflows(ctx, a.Organization, f, p)
}

// CountWorkflows is how many there are.
func (u *UseCases) CountWorkflows(ctx context.Context, a core.Actor, f WorkflowFilter) (WorkflowCount, error) {
	return u.workflows.CountWorkflows(ctx, a.Organization, f)
}

// Workflow is one of them.
func (u *UseCases) Workflow(ctx context.Context, a core.Actor, id string) (WorkflowRun, error) {
	return u.workflows.WorkflowByID(ctx, a.Organization, id)
}

// WorkflowHistory is what one recorded.
func (u *UseCases) WorkflowHistory(ctx context.Context, a core.Actor, id string, p core.Page) (core.Slice[WorkflowEntry], error) {
	return u.workflows.WorkflowHistory(ctx, a.Organization, id, p)
}

// WorkflowLogs is what one printed, for those who may read what it is run for (D29).
func (u *UseCases) WorkflowLogs(ctx context.Context, a core.Actor, id string, p core.Page) (core.Slice[WorkflowLine], error) {
	return u.workflows.WorkflowLogs(ctx, a.Organization, id, p)
}

// RetryWorkflow continues a failed run (E29). What it was run for may be over by then, and stays so.
func (u *UseCases) RetryWorkflow(ctx context.Context, a core.Actor, id, reason string, from int64) (WorkflowRun, error) {
	if err := a.May(core.ActionRetryWorkflow); err != nil {
		return WorkflowRun{}, err
	}
	err := u.recorded(ctx, a, core.ActionRetryWorkflow, id, reason, func(ctx context.Context) error {
		return u.workflows.RetryWorkflow(ctx, a.Organization, id, reason, from)
	})
	if err != nil {
		return WorkflowRun{}, err
	}
	return u.Workflow(ctx, a, id)
}

// CancelWorkflow asks a run to stop. What it is run for ends with it, once the engine says so.
func (u *UseCases) CancelWorkflow(ctx context.Context, a core.Actor, id, reason string) (WorkflowRun, error) {
	if err := a.May(core.ActionCancelWorkflow); err != nil {
		return WorkflowRun{}, err
	}
	err := u.recorded(ctx, a, core.ActionCancelWorkflow, id, reason, func(ctx context.Context) error {
		return u.workflows.Cancel(ctx, a.Organization, id, reason)
	})
	if err != nil {
		return WorkflowRun{}, err
	}
	return u.Workflow(ctx, a, id)
}

// recorded has the engine do something with a run, and keeps in the journal of changes who asked for it. The row is committed before the
// engine is called, as the call cannot be taken back; if the engine refuses, a second row says so.
func (u *UseCases) recorded(
	ctx context.Context, a core.Actor, action core.Action, id, reason string, do func(ctx context.Context) error,
) error {
	before, err := u.workflows.WorkflowByID(ctx, a.Organization, id)
	if err != nil {
		return err
	}
	write := func(detail string) error {
		return u.store.In(ctx, a.Organization, func(ctx context.Context, tx Tx) error {
			return core.Record(ctx, tx, a, core.Change{
				Action: action, Subject: core.AccessSubject{Kind: core.ChangedWorkflow, Name: id}, Reason: reason, Detail: detail,
			}, map[string]any{"state": before.State, "program": before.Program, "subject": before.Subject}, nil)
		})
	}
	if err := write("requested"); err != nil {
		return err
	}
	refused := do(ctx)
	if refused == nil {
		return nil
	}
	return errors.Join(refused, write("not done: "+fault.Public(refused)))
}

// MayOperate is nil when an actor may do something with a run as it stands.
func (w WorkflowRun) MayOperate(a core.Actor, action core.Action) error {
	if err := a.May(action); err != nil {
		return err
	}
	over := w.State != WorkflowRunning && w.State != WorkflowParked
	switch {
	case action == core.ActionRetryWorkflow && w.State != WorkflowFailed:
		return fault.New(fault.Refused, "%s is %s; only what has failed can continue from where it failed", w.ID, w.State)
	case action == core.ActionCancelWorkflow && over:
		return fault.New(fault.Refused, "%s is over: %s", w.ID, w.State)
	default:
		return nil
	}
}
