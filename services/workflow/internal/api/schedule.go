package api

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/lockstep-cd/lockstep/pkg/rpc"
	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/program"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/schedule"
)

// RegisterSchedule keeps a program that is started at given times.
func (s *Server) RegisterSchedule(
	ctx context.Context, req *autoflowv1.RegisterScheduleRequest,
) (*autoflowv1.RegisterScheduleResponse, error) {
	org, err := organization(ctx, req.GetOrganizationId())
	if err != nil {
		return nil, err
	}
	spec, err := specOf(req.GetSpec())
	if err != nil {
		return nil, err
	}
	overlap, err := overlapOf(req.GetOverlap())
	if err != nil {
		return nil, err
	}
	catchUp, err := durationOf("catch_up", req.GetCatchUp())
	if err != nil {
		return nil, err
	}
	given := schedule.Registration{Keep: req.GetKeep(), Schedule: schedule.Schedule{
		Organization: org, Name: req.GetName(), Spec: spec, Overlap: overlap, CatchUp: catchUp,
		Program: program.Program{Source: req.GetStarlark(), Modules: req.GetModules()},
		Inputs:  req.GetInputs(), Secrets: req.GetSecrets(), Labels: req.GetLabels(), Paused: req.GetPaused(), Note: req.GetNote(),
	}}
	if req.ExpectedVersion != nil {
		expected := int(req.GetExpectedVersion())
		given.Expected = &expected
	}
	current, created, err := s.Schedules.Register(ctx, given, callerName(ctx))
	if err != nil {
		return nil, err
	}
	return &autoflowv1.RegisterScheduleResponse{Schedule: scheduleOf(current), Created: created}, nil
}

// callerName is the name of the caller's token.
func callerName(ctx context.Context) string {
	caller, _ := rpc.CallerFrom(ctx)
	return caller.Name
}

// GetSchedule answers a schedule with its due times.
func (s *Server) GetSchedule(ctx context.Context, req *autoflowv1.GetScheduleRequest) (*autoflowv1.GetScheduleResponse, error) {
	org, err := organization(ctx, req.GetOrganizationId())
	if err != nil {
		return nil, err
	}
	v, err := s.Schedules.Get(ctx, org, req.GetName())
	if err != nil {
		return nil, err
	}
	resp := &autoflowv1.GetScheduleResponse{Schedule: scheduleOf(v.Schedule)}
	for _, due := range v.Next {
		resp.NextDueAt = append(resp.NextDueAt, timestamppb.New(due))
	}
	for _, f := range v.Fires {
		resp.Fires = append(resp.Fires, fireOf(f))
	}
	if req.GetIncludeContent() {
		c, err := s.Schedules.Content(ctx, org, req.GetName())
		if err != nil {
			return nil, err
		}
		resp.Content = &autoflowv1.ScheduleContent{
			Starlark: c.Program.Source, Modules: c.Program.Modules, Inputs: c.Inputs, Secrets: c.Secrets, Labels: c.Labels,
		}
	}
	return resp, nil
}

// ListSchedules answers a page of an organization's schedules.
func (s *Server) ListSchedules(ctx context.Context, req *autoflowv1.ListSchedulesRequest) (*autoflowv1.ListSchedulesResponse, error) {
	org, err := organization(ctx, req.GetOrganizationId())
	if err != nil {
		return nil, err
	}
	size, err := pageSize(req.GetPageSize(), defaultWorkflows, maxWorkflows)
	if err != nil {
		return nil, err
	}
	after, err := position(req.GetPageToken(), "schedules", org)
	if err != nil {
		return nil, err
	}
	list, err := s.Schedules.List(ctx, org, after, size+1) // one more shows whether there is a next page
	if err != nil {
		return nil, err
	}
	resp := &autoflowv1.ListSchedulesResponse{}
	if len(list) > size {
		list = list[:size]
		resp.NextPageToken = pageToken(list[size-1].ID, "schedules", org)
	}
	for _, one := range list {
		resp.Schedules = append(resp.Schedules, scheduleOf(one))
		resp.PageTokens = append(resp.PageTokens, pageToken(one.ID, "schedules", org))
	}
	return resp, nil
}

// PauseSchedule has a schedule start nothing.
func (s *Server) PauseSchedule(ctx context.Context, req *autoflowv1.PauseScheduleRequest) (*autoflowv1.PauseScheduleResponse, error) {
	org, err := organization(ctx, req.GetOrganizationId())
	if err != nil {
		return nil, err
	}
	changed, err := s.Schedules.Pause(ctx, org, req.GetName(), req.GetNote(), callerName(ctx))
	if err != nil {
		return nil, err
	}
	return &autoflowv1.PauseScheduleResponse{Schedule: scheduleOf(changed)}, nil
}

// ResumeSchedule ends a pause.
func (s *Server) ResumeSchedule(ctx context.Context, req *autoflowv1.ResumeScheduleRequest) (*autoflowv1.ResumeScheduleResponse, error) {
	org, err := organization(ctx, req.GetOrganizationId())
	if err != nil {
		return nil, err
	}
	changed, err := s.Schedules.Resume(ctx, org, req.GetName(), req.GetNote(), callerName(ctx))
	if err != nil {
		return nil, err
	}
	return &autoflowv1.ResumeScheduleResponse{Schedule: scheduleOf(changed)}, nil
}

// BackfillSchedule starts runs for due times in the past.
func (s *Server) BackfillSchedule(
	ctx context.Context, req *autoflowv1.BackfillScheduleRequest,
) (*autoflowv1.BackfillScheduleResponse, error) {
	org, err := organization(ctx, req.GetOrganizationId())
	if err != nil {
		return nil, err
	}
	from, err := timeOf("from", req.GetFrom())
	if err != nil {
		return nil, err
	}
	to, err := timeOf("to", req.GetTo())
	if err != nil {
		return nil, err
	}
	overlap, err := overlapOf(req.GetOverlap())
	if err != nil {
		return nil, err
	}
	due, added, err := s.Schedules.Backfill(ctx, org, req.GetName(), from, to, overlap)
	if err != nil {
		return nil, err
	}
	return &autoflowv1.BackfillScheduleResponse{Due: int32(due), Added: int32(added)}, nil
}

// TriggerSchedule starts a run now.
func (s *Server) TriggerSchedule(ctx context.Context, req *autoflowv1.TriggerScheduleRequest) (*autoflowv1.TriggerScheduleResponse, error) {
	org, err := organization(ctx, req.GetOrganizationId())
	if err != nil {
		return nil, err
	}
	overlap, err := overlapOf(req.GetOverlap())
	if err != nil {
		return nil, err
	}
	workflow, err := s.Schedules.Trigger(ctx, org, req.GetName(), overlap)
	if err != nil {
		return nil, err
	}
	return &autoflowv1.TriggerScheduleResponse{WorkflowId: workflow}, nil
}

// DeleteSchedule ends a schedule.
func (s *Server) DeleteSchedule(ctx context.Context, req *autoflowv1.DeleteScheduleRequest) (*autoflowv1.DeleteScheduleResponse, error) {
	org, err := organization(ctx, req.GetOrganizationId())
	if err != nil {
		return nil, err
	}
	if err := s.Schedules.Delete(ctx, org, req.GetName()); err != nil {
		return nil, err
	}
	return &autoflowv1.DeleteScheduleResponse{}, nil
}

// overlaps are the policies by their names in the API.
func overlaps() map[autoflowv1.ScheduleOverlap]schedule.Overlap {
	return map[autoflowv1.ScheduleOverlap]schedule.Overlap{
		autoflowv1.ScheduleOverlap_SCHEDULE_OVERLAP_UNSPECIFIED:  "",
		autoflowv1.ScheduleOverlap_SCHEDULE_OVERLAP_SKIP:         schedule.Skip,
		autoflowv1.ScheduleOverlap_SCHEDULE_OVERLAP_BUFFER_ONE:   schedule.BufferOne,
		autoflowv1.ScheduleOverlap_SCHEDULE_OVERLAP_BUFFER_ALL:   schedule.BufferAll,
		autoflowv1.ScheduleOverlap_SCHEDULE_OVERLAP_CANCEL_OTHER: schedule.CancelOther,
		autoflowv1.ScheduleOverlap_SCHEDULE_OVERLAP_ALLOW:        schedule.Allow,
	}
}

func overlapOf(given autoflowv1.ScheduleOverlap) (schedule.Overlap, error) {
	o, known := overlaps()[given]
	if !known {
		return "", invalid("overlap", "found %d, expected one of the values of ScheduleOverlap", given)
	}
	return o, nil
}

func durationOf(field string, d *durationpb.Duration) (time.Duration, error) {
	if d != nil && !d.IsValid() {
		return 0, invalid(field, "found %d seconds and %d nanoseconds, expected a duration", d.GetSeconds(), d.GetNanos())
	}
	return d.AsDuration(), nil
}

func timeOf(field string, t *timestamppb.Timestamp) (time.Time, error) {
	if t == nil {
		return time.Time{}, nil
	}
	if !t.IsValid() {
		return time.Time{}, invalid(field, "found %d seconds and %d nanoseconds, expected a time", t.GetSeconds(), t.GetNanos())
	}
	return t.AsTime(), nil
}

func specOf(given *autoflowv1.ScheduleSpec) (spec schedule.Spec, err error) {
	spec.Cron, spec.Zone = given.GetCron(), given.GetTimeZone()
	for field, d := range map[string]struct {
		into  *time.Duration
		given *durationpb.Duration
	}{"spec.every": {&spec.Every, given.GetEvery()}, "spec.jitter": {&spec.Jitter, given.GetJitter()}} {
		if *d.into, err = durationOf(field, d.given); err != nil {
			return spec, err
		}
	}
	for field, t := range map[string]struct {
		into  *time.Time
		given *timestamppb.Timestamp
	}{"spec.anchor": {&spec.Anchor, given.GetAnchor()}, "spec.start": {&spec.Start, given.GetStart()}, "spec.end": {&spec.End, given.GetEnd()}} {
		if *t.into, err = timeOf(field, t.given); err != nil {
			return spec, err
		}
	}
	return spec, nil
}

// instant is a time that may be absent.
func instant(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

// span is a duration that may be absent.
func span(d time.Duration) *durationpb.Duration {
	if d == 0 {
		return nil
	}
	return durationpb.New(d)
}

func scheduleOf(one schedule.Schedule) *autoflowv1.Schedule {
	shown := &autoflowv1.Schedule{
		Name: one.Name, OrganizationId: one.Organization, Version: int32(one.Version),
		Spec: &autoflowv1.ScheduleSpec{
			Cron: one.Spec.Cron, Every: span(one.Spec.Every), Anchor: instant(one.Spec.Anchor), TimeZone: one.Spec.Zone,
			Start: instant(one.Spec.Start), End: instant(one.Spec.End), Jitter: span(one.Spec.Jitter),
		},
		CatchUp: span(one.CatchUp), ProgramDigest: one.ProgramDigest, Paused: one.Paused, Note: one.Note, ChangedBy: one.ChangedBy,
		CreatedAt: instant(one.CreatedAt), ChangedAt: instant(one.ChangedAt),
		Started: one.Started, Skipped: one.Skipped, Missed: one.Missed, Refused: one.Refused,
	}
	if !one.Paused {
		shown.NextDueAt = instant(one.NextDue)
	}
	for name, o := range overlaps() {
		if o == one.Overlap {
			shown.Overlap = name
		}
	}
	return shown
}

func fireOf(f schedule.Fire) *autoflowv1.ScheduleFire {
	states := map[schedule.State]autoflowv1.ScheduleFireState{
		schedule.Waiting:  autoflowv1.ScheduleFireState_SCHEDULE_FIRE_STATE_WAITING,
		schedule.Starting: autoflowv1.ScheduleFireState_SCHEDULE_FIRE_STATE_STARTING,
		schedule.Started:  autoflowv1.ScheduleFireState_SCHEDULE_FIRE_STATE_STARTED,
		schedule.Done:     autoflowv1.ScheduleFireState_SCHEDULE_FIRE_STATE_STARTED,
		schedule.Skipped:  autoflowv1.ScheduleFireState_SCHEDULE_FIRE_STATE_SKIPPED,
		schedule.Missed:   autoflowv1.ScheduleFireState_SCHEDULE_FIRE_STATE_MISSED,
		schedule.Refused:  autoflowv1.ScheduleFireState_SCHEDULE_FIRE_STATE_REFUSED,
	}
	shown := &autoflowv1.ScheduleFire{
		DueAt: instant(f.Due), State: states[f.State], Backfill: f.Backfill, Detail: f.Detail, Count: f.Count,
	}
	if f.Exists {
		shown.WorkflowId, shown.WorkflowState, shown.WorkflowError, shown.FinishedAt = f.Workflow, state(f.Run), f.RunError, instant(f.EndedAt)
	}
	return shown
}
