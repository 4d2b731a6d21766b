package autoflow_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
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
	if r.GetIncludeContent() {
		return &autoflowv1.GetScheduleResponse{Schedule: s.nightly(), Content: &autoflowv1.ScheduleContent{
			Starlark: []byte("x = 1"), Inputs: []byte(`{"a":1}`), Modules: map[string][]byte{"b.star": []byte("b"), "a.star": []byte("a")},
			Secrets: map[string]string{"git": "env:GIT"}, Labels: map[string]string{"team": "shop"},
		}}, nil
	}
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

func (s *server) RegisterSchedule(
	_ context.Context, r *autoflowv1.RegisterScheduleRequest,
) (*autoflowv1.RegisterScheduleResponse, error) {
	s.registered = r
	return &autoflowv1.RegisterScheduleResponse{}, nil
}

func (s *server) BackfillSchedule(
	_ context.Context, r *autoflowv1.BackfillScheduleRequest,
) (*autoflowv1.BackfillScheduleResponse, error) {
	s.done = append(s.done, fmt.Sprintf("backfill %s %s %s", r.GetName(), r.GetTo().AsTime().Sub(r.GetFrom().AsTime()), r.GetOverlap()))
	return &autoflowv1.BackfillScheduleResponse{Due: 3, Added: 2}, nil
}

func (s *server) DeleteSchedule(_ context.Context, r *autoflowv1.DeleteScheduleRequest) (*autoflowv1.DeleteScheduleResponse, error) {
	s.done = append(s.done, "delete "+r.GetName())
	return &autoflowv1.DeleteScheduleResponse{}, nil
}

// What is registered, backfilled and deleted is what the engine is asked for; a change keeps what it does not name, and
// is of the version that was read.
func TestSchedulesAreRegisteredAsTheyAreGiven(t *testing.T) {
	t.Parallel()
	s := &server{}
	e, ctx := connect(t, s), t.Context()
	source, version := "x = 1", int32(0)
	r := handoff.ScheduleRegistration{
		Name: "nightly", Program: &source, Overlap: handoff.OverlapCancelOther, CatchUpSeconds: 60, Reason: "why", Paused: true,
		Inputs:        json.RawMessage(`{"a":1}`),
		ScheduleTimes: handoff.ScheduleTimes{Cron: []string{"0 3 * * *"}, TimeZone: "Europe/Berlin", EndAt: &began, JitterSeconds: 5},
	}
	want := &autoflowv1.RegisterScheduleRequest{
		OrganizationId: 7, Name: "nightly", Starlark: []byte(source), Overlap: autoflowv1.ScheduleOverlap_SCHEDULE_OVERLAP_CANCEL_OTHER,
		CatchUp: durationpb.New(time.Minute), Note: "why", Paused: true, Inputs: []byte(`{"a":1}`), ExpectedVersion: &version,
		Spec: &autoflowv1.ScheduleSpec{
			Cron: []string{"0 3 * * *"}, TimeZone: "Europe/Berlin", End: timestamppb.New(began), Jitter: durationpb.New(5 * time.Second),
		},
	}
	if err := e.RegisterSchedule(ctx, 7, r); err != nil || !proto.Equal(want, s.registered) {
		t.Errorf("error %v, registered %v, expected %v", err, s.registered, want)
	}
	r.Program, r.Inputs, r.Version = nil, nil, 4
	want.Starlark, want.Inputs, want.Keep, version = nil, nil, true, 4
	if err := e.RegisterSchedule(ctx, 7, r); err != nil || !proto.Equal(want, s.registered) {
		t.Errorf("error %v, registered %v, expected %v", err, s.registered, want)
	}
	done, err := e.BackfillSchedule(ctx, 7, "nightly", handoff.Backfill{From: began, To: began.Add(time.Hour), Overlap: handoff.OverlapAllow})
	if err != nil || done != (handoff.Backfilled{Due: 3, Added: 2}) {
		t.Errorf("found %+v, error %v", done, err)
	}
	if err := e.DeleteSchedule(ctx, 7, "nightly"); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff([]string{"backfill nightly 1h0m0s SCHEDULE_OVERLAP_ALLOW", "delete nightly"}, s.done); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	content, err := e.ScheduleContent(ctx, 7, "nightly")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(handoff.ScheduleContent{
		Program: source, Inputs: json.RawMessage(`{"a":1}`), Labels: []handoff.WorkflowPair{{Key: "team", Value: "shop"}},
		Modules: []handoff.ScheduleModule{{Name: "a.star", Source: "a"}, {Name: "b.star", Source: "b"}},
	}, content); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// Schedules are shown as the engine reports them.
func TestSchedulesAreReportedAsTheEngineReportsThem(t *testing.T) {
	t.Parallel()
	s := &server{}
	e, ctx := connect(t, s), t.Context()
	over, failed := began, handoff.WorkflowFailed
	want := handoff.Schedule{
		Name: "nightly", Version: 2, Digest: "ab",
		ScheduleTimes: handoff.ScheduleTimes{Cron: []string{"0 3 * * *"}, EverySeconds: 3600, TimeZone: "UTC"},
		Overlap:       handoff.OverlapBufferOne, CatchUpSeconds: 60, Paused: true, Note: "why", CreatedAt: began, ChangedAt: began,
		NextDueAt: &over,
		Started:   1, Skipped: 2, Missed: 3, Refused: 4,
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
