package autoflow

import (
	"context"
	"fmt"
	"strings"

	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/handoff"
)

// ListSchedules implements handoff.Schedules.
func (e Engine) ListSchedules(ctx context.Context, organization int64, p core.Page) (s core.Slice[handoff.Schedule], err error) {
	answer, err := e.client.ListSchedules(ctx, &autoflowv1.ListSchedulesRequest{
		OrganizationId: organization, PageSize: int32(p.First), PageToken: p.After,
	})
	if err != nil {
		return s, fmt.Errorf("list schedules: %w", err)
	}
	for _, one := range answer.GetSchedules() {
		s.Nodes = append(s.Nodes, schedule(one))
	}
	s.Cursors, s.HasNext = cursors(len(s.Nodes), answer), answer.GetNextPageToken() != ""
	s.HasPrevious = p.After != ""
	return s, nil
}

// ScheduleByName implements handoff.Schedules.
func (e Engine) ScheduleByName(ctx context.Context, organization int64, name string) (handoff.Schedule, error) {
	answer, err := e.client.GetSchedule(ctx, &autoflowv1.GetScheduleRequest{OrganizationId: organization, Name: name})
	if err != nil {
		return handoff.Schedule{}, fmt.Errorf("get schedule %s: %w", name, err)
	}
	s := schedule(answer.GetSchedule())
	for _, due := range answer.GetNextDueAt() {
		s.NextDueTimes = append(s.NextDueTimes, due.AsTime())
	}
	for _, f := range answer.GetFires() {
		fire := handoff.ScheduleFire{
			DueAt: f.GetDueAt().AsTime(), Outcome: handoff.ScheduleOutcome(constant(f.GetState().String(), "SCHEDULE_FIRE_STATE_")),
			Requested: f.GetBackfill(), Detail: f.GetDetail(), Count: f.GetCount(), WorkflowID: f.GetWorkflowId(),
			WorkflowError: f.GetWorkflowError(), FinishedAt: ended(f.GetFinishedAt()),
		}
		if state, is := published()[f.GetWorkflowState()]; is {
			fire.WorkflowState = &state
		}
		s.Fires = append(s.Fires, fire)
	}
	return s, nil
}

// PauseSchedule implements handoff.Schedules.
func (e Engine) PauseSchedule(ctx context.Context, organization int64, name, note string) error {
	_, err := e.client.PauseSchedule(ctx, &autoflowv1.PauseScheduleRequest{OrganizationId: organization, Name: name, Note: note})
	if err != nil {
		return fmt.Errorf("pause schedule %s: %w", name, err)
	}
	return nil
}

// ResumeSchedule implements handoff.Schedules.
func (e Engine) ResumeSchedule(ctx context.Context, organization int64, name, note string) error {
	_, err := e.client.ResumeSchedule(ctx, &autoflowv1.ResumeScheduleRequest{OrganizationId: organization, Name: name, Note: note})
	if err != nil {
		return fmt.Errorf("resume schedule %s: %w", name, err)
	}
	return nil
}

// TriggerSchedule implements handoff.Schedules.
func (e Engine) TriggerSchedule(ctx context.Context, organization int64, name string) (string, error) {
	answer, err := e.client.TriggerSchedule(ctx, &autoflowv1.TriggerScheduleRequest{OrganizationId: organization, Name: name})
	if err != nil {
		return "", fmt.Errorf("trigger schedule %s: %w", name, err)
	}
	return answer.GetWorkflowId(), nil
}

func schedule(s *autoflowv1.Schedule) handoff.Schedule {
	zone := s.GetSpec().GetTimeZone()
	if zone == "" {
		zone = "UTC"
	}
	return handoff.Schedule{
		Name: s.GetName(), Version: int(s.GetVersion()), Digest: s.GetProgramDigest(), Cron: s.GetSpec().GetCron(),
		EverySeconds: int(s.GetSpec().GetEvery().AsDuration().Seconds()), TimeZone: zone,
		Overlap:        handoff.ScheduleOverlap(constant(s.GetOverlap().String(), "SCHEDULE_OVERLAP_")),
		CatchUpSeconds: int(s.GetCatchUp().AsDuration().Seconds()), Paused: s.GetPaused(), Note: s.GetNote(),
		CreatedAt: s.GetCreatedAt().AsTime(), ChangedAt: s.GetChangedAt().AsTime(), NextDueAt: ended(s.GetNextDueAt()),
		Started: s.GetStarted(), Skipped: s.GetSkipped(), Missed: s.GetMissed(), Refused: s.GetRefused(),
	}
}

// constant is a constant of the contract without what all of its enumeration begin with.
func constant(name, prefix string) string { return strings.ToLower(strings.TrimPrefix(name, prefix)) }
