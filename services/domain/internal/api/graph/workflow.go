package graph

import (
	"context"
	"encoding/json"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/api/graph/model"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/handoff"
)

// Workflows is a page of runs of the engine.
func (q query) Workflows(
	ctx context.Context, first *int, after *string, states []handoff.WorkflowState, program, subject *string,
	filter *handoff.WorkflowConditions,
) (model.WorkflowConnection, error) {
	p, err := forward(first, after)
	if err != nil {
		return model.WorkflowConnection{}, err
	}
	s, err := q.domain.Workflows.Workflows(ctx, loadersOf(ctx).actor, workflowFilter(states, program, subject, filter), p)
	return model.WorkflowConnection(model.Connect[model.WorkflowEdge](s, model.WrapWorkflow, nil)), err
}

// WorkflowCount is how many there are.
func (q query) WorkflowCount(
	ctx context.Context, states []handoff.WorkflowState, program, subject *string, filter *handoff.WorkflowConditions,
) (handoff.WorkflowCount, error) {
	return q.domain.Workflows.CountWorkflows(ctx, loadersOf(ctx).actor, workflowFilter(states, program, subject, filter))
}

func workflowFilter(
	states []handoff.WorkflowState, program, subject *string, more *handoff.WorkflowConditions,
) handoff.WorkflowFilter {
	f := handoff.WorkflowFilter{States: states, Program: orEmpty(program), Subject: orEmpty(subject)}
	if more != nil {
		f.WorkflowConditions = *more
	}
	return f
}

// Workflow finds one; null where there is none.
func (q query) Workflow(ctx context.Context, id string) (*model.Workflow, error) {
	w, err := q.domain.Workflows.Workflow(ctx, loadersOf(ctx).actor, id)
	return orNull(w, err, model.WrapWorkflow)
}

// FlowDefinitionSchema is the JSON Schema of a pipeline definition.
func (q query) FlowDefinitionSchema(context.Context) (json.RawMessage, error) {
	return q.domain.Setup.DefinitionSchema()
}

// ValidateFlowDefinition says what is wrong with a definition. That it is wrong is the answer, not an error.
func (q query) ValidateFlowDefinition(ctx context.Context, definition json.RawMessage) ([]model.ConfigProblem, error) {
	problems, err := q.domain.Setup.CheckFlowDefinition(ctx, loadersOf(ctx).actor, definition)
	return wrapAll(problems, wrapProblem), err
}

func wrapProblem(f fault.Field) model.ConfigProblem {
	return model.ConfigProblem{Pointer: f.Name, Message: f.Problem}
}

// workflow resolves the fields of Workflow that are asked of the engine by themselves.
type workflow struct{ domain Domain }

// Children are the runs that it has started.
func (r workflow) Children(ctx context.Context, w *model.Workflow, first *int, after *string) (model.WorkflowConnection, error) {
	p, err := forward(first, after)
	if err != nil {
		return model.WorkflowConnection{}, err
	}
	s, err := r.domain.Workflows.Workflows(ctx, loadersOf(ctx).actor, handoff.WorkflowFilter{Parent: w.ID}, p)
	return model.WorkflowConnection(model.Connect[model.WorkflowEdge](s, model.WrapWorkflow, nil)), err
}

// History is what it recorded.
func (r workflow) History(ctx context.Context, w *model.Workflow, first *int, after *string) (model.WorkflowHistoryConnection, error) {
	p, err := forward(first, after)
	if err != nil {
		return model.WorkflowHistoryConnection{}, err
	}
	s, err := r.domain.Workflows.WorkflowHistory(ctx, loadersOf(ctx).actor, w.ID, p)
	return model.WorkflowHistoryConnection(model.Connect[model.WorkflowHistoryEdge](s, asItIs[handoff.WorkflowEntry], nil)), err
}

// Logs is what it printed.
func (r workflow) Logs(ctx context.Context, w *model.Workflow, first *int, after *string) (model.WorkflowLogConnection, error) {
	p, err := forward(first, after)
	if err != nil {
		return model.WorkflowLogConnection{}, err
	}
	s, err := r.domain.Workflows.WorkflowLogs(ctx, loadersOf(ctx).actor, w.ID, p)
	return model.WorkflowLogConnection(model.Connect[model.WorkflowLogEdge](s, asItIs[handoff.WorkflowLine], nil)), err
}

// Timeline is what it did, branch by branch.
func (r workflow) Timeline(ctx context.Context, w *model.Workflow, first, before *int) (handoff.WorkflowTimeline, error) {
	p, err := forward(first, nil)
	if err != nil {
		return handoff.WorkflowTimeline{}, err
	}
	from := int64(0)
	if before != nil {
		from = int64(*before)
	}
	return r.domain.Workflows.WorkflowTimeline(ctx, loadersOf(ctx).actor, w.ID, p.First, from)
}

// asItIs wraps nothing: the schema shows what the engine reports.
func asItIs[V any](v V) V { return v }

// ViewerCan is about a run as it stands.
func (workflow) ViewerCan(ctx context.Context, w *model.Workflow) ([]model.Ability, error) {
	a := loadersOf(ctx).actor
	return abilities(func(action core.Action) error { return w.MayOperate(a, action) }, core.ActionRetryWorkflow, core.ActionCancelWorkflow)
}

// RetryWorkflow continues a failed run.
func (m mutation) RetryWorkflow(ctx context.Context, in model.RetryWorkflowInput) (model.WorkflowPayload, error) {
	from := int64(0)
	if in.FromSequence != nil {
		from = int64(*in.FromSequence)
	}
	w, err := m.domain.Workflows.RetryWorkflow(ctx, loadersOf(ctx).actor, in.WorkflowID, orEmpty(in.Reason), from)
	return operated(w, err)
}

// CancelWorkflow asks a run to stop.
func (m mutation) CancelWorkflow(ctx context.Context, in model.CancelWorkflowInput) (model.WorkflowPayload, error) {
	w, err := m.domain.Workflows.CancelWorkflow(ctx, loadersOf(ctx).actor, in.WorkflowID, orEmpty(in.Reason))
	return operated(w, err)
}

// operated is the payload of what was done with a run.
func operated(w handoff.WorkflowRun, err error) (model.WorkflowPayload, error) {
	p := model.WorkflowPayload{Errors: []model.UserError{}}
	if err != nil {
		p.Errors, err = userErrors(inField(err, "/workflowId"))
		return p, err
	}
	run := model.WrapWorkflow(w)
	p.Workflow = &run
	return p, nil
}

// WorkflowFunctions is what programs can call.
func (q query) WorkflowFunctions(ctx context.Context) ([]handoff.Function, error) {
	return q.domain.Workflows.Functions(ctx, loadersOf(ctx).actor)
}

// WorkflowSchedules is a page of schedules of the engine.
func (q query) WorkflowSchedules(ctx context.Context, first *int, after *string) (model.WorkflowScheduleConnection, error) {
	p, err := forward(first, after)
	if err != nil {
		return model.WorkflowScheduleConnection{}, err
	}
	s, err := q.domain.Workflows.Schedules(ctx, loadersOf(ctx).actor, p)
	return model.WorkflowScheduleConnection(model.Connect[model.WorkflowScheduleEdge](s, model.WrapSchedule, nil)), err
}

// WorkflowSchedule finds one; null where there is none.
func (q query) WorkflowSchedule(ctx context.Context, name string) (*model.WorkflowSchedule, error) {
	s, err := q.domain.Workflows.Schedule(ctx, loadersOf(ctx).actor, name)
	return orNull(s, err, model.WrapSchedule)
}

// workflowSchedule resolves the fields of WorkflowSchedule that are the viewer's.
type workflowSchedule struct{ domain Domain }

// Content is null for those who may not change the schedule.
func (r workflowSchedule) Content(ctx context.Context, s *model.WorkflowSchedule) (*handoff.ScheduleContent, error) {
	c, err := r.domain.Workflows.ScheduleContent(ctx, loadersOf(ctx).actor, s.Name)
	if fault.Is(err, fault.Denied) {
		return nil, nil
	}
	return orNull(c, err, asItIs[handoff.ScheduleContent])
}

// ViewerCan is about a schedule as it stands.
func (workflowSchedule) ViewerCan(ctx context.Context, s *model.WorkflowSchedule) ([]model.Ability, error) {
	a := loadersOf(ctx).actor
	return abilities(func(action core.Action) error { return s.MayOperate(a, action) },
		core.ActionRegisterSchedule, core.ActionPauseSchedule, core.ActionResumeSchedule, core.ActionTriggerSchedule,
		core.ActionBackfillSchedule, core.ActionDeleteSchedule)
}

// PauseWorkflowSchedule has a schedule start nothing.
func (m mutation) PauseWorkflowSchedule(ctx context.Context, in model.ChangeWorkflowScheduleInput) (model.WorkflowSchedulePayload, error) {
	return m.changeSchedule(ctx, core.ActionPauseSchedule, in)
}

// ResumeWorkflowSchedule ends a pause.
func (m mutation) ResumeWorkflowSchedule(ctx context.Context, in model.ChangeWorkflowScheduleInput) (model.WorkflowSchedulePayload, error) {
	return m.changeSchedule(ctx, core.ActionResumeSchedule, in)
}

// TriggerWorkflowSchedule starts a run now.
func (m mutation) TriggerWorkflowSchedule(
	ctx context.Context, in model.ChangeWorkflowScheduleInput,
) (model.WorkflowSchedulePayload, error) {
	return m.changeSchedule(ctx, core.ActionTriggerSchedule, in)
}

// DeleteWorkflowSchedule ends a schedule.
func (m mutation) DeleteWorkflowSchedule(ctx context.Context, in model.ChangeWorkflowScheduleInput) (model.WorkflowSchedulePayload, error) {
	return m.changeSchedule(ctx, core.ActionDeleteSchedule, in)
}

// RegisterWorkflowSchedule makes or changes a schedule.
func (m mutation) RegisterWorkflowSchedule(
	ctx context.Context, in model.RegisterWorkflowScheduleInput,
) (model.WorkflowSchedulePayload, error) {
	p := model.WorkflowSchedulePayload{Errors: []model.UserError{}}
	changed, err := m.domain.Workflows.RegisterSchedule(ctx, loadersOf(ctx).actor, handoff.ScheduleRegistration{
		Name: in.Name, Version: in.Version, Overlap: in.Overlap, CatchUpSeconds: in.CatchUpSeconds, Program: in.Program, Inputs: in.Inputs,
		Paused: in.Paused, Reason: orEmpty(in.Reason),
		ScheduleTimes: handoff.ScheduleTimes{
			Cron: in.Cron, EverySeconds: in.EverySeconds, AnchorAt: in.AnchorAt, TimeZone: in.TimeZone, StartAt: in.StartAt, EndAt: in.EndAt,
			JitterSeconds: in.JitterSeconds,
		},
	})
	if err != nil {
		p.Errors, err = scheduleErrors(err)
		return p, err
	}
	s := model.WrapSchedule(changed)
	p.Schedule = &s
	return p, nil
}

// BackfillWorkflowSchedule starts runs for due times in the past.
func (m mutation) BackfillWorkflowSchedule(
	ctx context.Context, in model.BackfillWorkflowScheduleInput,
) (model.BackfillWorkflowSchedulePayload, error) {
	p := model.BackfillWorkflowSchedulePayload{Errors: []model.UserError{}}
	b := handoff.Backfill{From: in.From, To: in.To}
	if in.Overlap != nil {
		b.Overlap = *in.Overlap
	}
	changed, result, err := m.domain.Workflows.BackfillSchedule(ctx, loadersOf(ctx).actor, in.Name, orEmpty(in.Reason), b)
	if err != nil {
		p.Errors, err = scheduleErrors(err)
		return p, err
	}
	s := model.WrapSchedule(changed)
	p.Schedule, p.Due, p.Added = &s, result.Due, result.Added
	return p, nil
}

// scheduleErrors are the errors of a payload with the fields of the engine's contract under the names that they have here.
func scheduleErrors(err error) ([]model.UserError, error) {
	problems, err := userErrors(inField(err, "/name"))
	names := map[string]string{
		"starlark": "program", "time_zone": "timeZone", "every": "everySeconds", "anchor": "anchorAt", "start": "startAt", "end": "endAt",
		"jitter": "jitterSeconds", "catch_up": "catchUpSeconds", "note": "reason",
	}
	for i, p := range problems {
		path := p.Field
		if len(path) > 1 && path[0] == "spec" {
			path = path[1:]
		}
		if len(path) > 0 && names[path[0]] != "" {
			path = append([]string{names[path[0]]}, path[1:]...)
		}
		problems[i].Field = path
	}
	return problems, err
}

func (m mutation) changeSchedule(
	ctx context.Context, action core.Action, in model.ChangeWorkflowScheduleInput,
) (model.WorkflowSchedulePayload, error) {
	p := model.WorkflowSchedulePayload{Errors: []model.UserError{}}
	changed, run, err := m.domain.Workflows.ChangeSchedule(ctx, loadersOf(ctx).actor, action, in.Name, orEmpty(in.Reason))
	if err != nil {
		p.Errors, err = userErrors(inField(err, "/name"))
		return p, err
	}
	s := model.WrapSchedule(changed)
	p.Schedule, p.WorkflowID = &s, run
	return p, nil
}
