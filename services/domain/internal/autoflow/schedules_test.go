package autoflow_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/handoff"
)

func (s *server) nightly() *autoflowv1.Schedule {
	at := timestamppb.New(began)
	return &autoflowv1.Schedule{
		Name: "nightly", Version: 2, Overlap: autoflowv1.ScheduleOverlap_SCHEDULE_OVERLAP_BUFFER_ONE, CatchUp: durationpb.New(time.Minute),
		Spec: &autoflowv1.ScheduleSpec{Cron: []string{"0 3 * * *"}, Every: durationpb.New(time.Hour)}, ProgramDigest: "ab",
		Paused: true, Note: "why", CreatedAt: at, ChangedAt: at, NextDueAt: at, Started: 1, Skipped: 2, Missed: 3, Refused: 4,
	}
}

func (s *server) ListSchedules(context.Context, *autoflowv1.ListSchedulesRequest) (*autoflowv1.ListSchedulesResponse, error) {
	return &autoflowv1.ListSchedulesResponse{
		Schedules: []*autoflowv1.Schedule{s.nightly(), s.nightly()}, NextPageToken: "b", PageTokens: []string{"a", "b"},
	}, nil
}

func (s *server) GetSchedule(_ context.Context, r *autoflowv1.GetScheduleRequest) (*autoflowv1.GetScheduleResponse, error) {
	if r.GetName() != "nightly" {
		return nil, fault.New(fault.NotFound, "schedule %q does not exist", r.GetName())
	}
	at := timestamppb.New(began)
	return &autoflowv1.GetScheduleResponse{Schedule: s.nightly(), NextDueAt: []*timestamppb.Timestamp{at}, Fires: []*autoflowv1.ScheduleFire{
		{
			DueAt: at, State: autoflowv1.ScheduleFireState_SCHEDULE_FIRE_STATE_STARTED, Backfill: true, Count: 1, WorkflowId: "run",
			WorkflowState: autoflowv1.WorkflowState_WORKFLOW_STATE_FAILED, WorkflowError: "no", FinishedAt: at,
		},
		{DueAt: at, State: autoflowv1.ScheduleFireState_SCHEDULE_FIRE_STATE_MISSED, Detail: "late", Count: 3},
	}}, nil
}

func (s *server) PauseSchedule(_ context.Context, r *autoflowv1.PauseScheduleRequest) (*autoflowv1.PauseScheduleResponse, error) {
	s.done = append(s.done, "pause "+r.GetName()+" "+r.GetNote())
	return &autoflowv1.PauseScheduleResponse{}, nil
}

func (s *server) ResumeSchedule(_ context.Context, r *autoflowv1.ResumeScheduleRequest) (*autoflowv1.ResumeScheduleResponse, error) {
	s.done = append(s.done, "resume "+r.GetName()+" "+r.GetNote())
	return &autoflowv1.ResumeScheduleResponse{}, nil
}

func (s *server) TriggerSchedule(_ context.Context, r *autoflowv1.TriggerScheduleRequest) (*autoflowv1.TriggerScheduleResponse, error) {
	s.done = append(s.done, "trigger "+r.GetName())
	return &autoflowv1.TriggerScheduleResponse{WorkflowId: "run"}, nil
}

// Issue 18, item 1: schedules are shown as the engine reports them.
func TestSchedulesAreReportedAsTheEngineReportsThem(t *testing.T) {
	t.Parallel()
	s := &server{}
	e, ctx := connect(t, s), t.Context()
	over, failed := began, handoff.WorkflowFailed
	want := handoff.Schedule{
		Name: "nightly", Version: 2, Digest: "ab", Cron: []string{"0 3 * * *"}, EverySeconds: 3600, TimeZone: "UTC",
		Overlap: handoff.OverlapBufferOne, CatchUpSeconds: 60, Paused: true, Note: "why", CreatedAt: began, ChangedAt: began, NextDueAt: &over,
		Started: 1, Skipped: 2, Missed: 3, Refused: 4,
	}
	page, err := e.ListSchedules(ctx, 7, core.Page{First: 2})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(core.Slice[handoff.Schedule]{
		Nodes: []handoff.Schedule{want, want}, Cursors: []string{"a", "b"}, HasNext: true,
	}, page); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	want.NextDueTimes = []time.Time{began}
	want.Fires = []handoff.ScheduleFire{
		{
			DueAt: began, Outcome: handoff.FireStarted, Requested: true, Count: 1, WorkflowID: "run", WorkflowState: &failed,
			WorkflowError: "no", FinishedAt: &over,
		},
		{DueAt: began, Outcome: handoff.FireMissed, Detail: "late", Count: 3},
	}
	one, err := e.ScheduleByName(ctx, 7, "nightly")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, one); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if _, err := e.ScheduleByName(ctx, 7, "other"); !fault.Is(err, fault.NotFound) {
		t.Errorf("found %v; want that there is none", err)
	}
	run, err := e.TriggerSchedule(ctx, 7, "nightly")
	if err != nil || run != "run" {
		t.Errorf("found %q, %v", run, err)
	}
	if err := e.PauseSchedule(ctx, 7, "nightly", "a"); err != nil {
		t.Error(err)
	}
	if err := e.ResumeSchedule(ctx, 7, "nightly", "b"); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff([]string{"trigger nightly", "pause nightly a", "resume nightly b"}, s.done); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
