package autoflow

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

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

// ScheduleContent implements handoff.Schedules.
func (e Engine) ScheduleContent(ctx context.Context, organization int64, name string) (handoff.ScheduleContent, error) {
	answer, err := e.client.GetSchedule(ctx, &autoflowv1.GetScheduleRequest{OrganizationId: organization, Name: name, IncludeContent: true})
	if err != nil {
		return handoff.ScheduleContent{}, fmt.Errorf("get schedule %s: %w", name, err)
	}
	found := answer.GetContent()
	c := handoff.ScheduleContent{Program: string(found.GetStarlark()), Inputs: found.GetInputs()}
	for _, file := range slices.Sorted(maps.Keys(found.GetModules())) {
		c.Modules = append(c.Modules, handoff.ScheduleModule{Name: file, Source: string(found.GetModules()[file])})
	}
	for _, key := range slices.Sorted(maps.Keys(found.GetLabels())) {
		c.Labels = append(c.Labels, handoff.WorkflowPair{Key: key, Value: found.GetLabels()[key]})
	}
	return c, nil
}

// RegisterSchedule implements handoff.Schedules.
func (e Engine) RegisterSchedule(ctx context.Context, organization int64, r handoff.ScheduleRegistration) error {
	version := int32(r.Version)
	request := &autoflowv1.RegisterScheduleRequest{
		OrganizationId: organization, Name: r.Name, Overlap: overlap(r.Overlap), CatchUp: seconds(r.CatchUpSeconds),
		Spec: &autoflowv1.ScheduleSpec{
			Cron: r.Cron, Every: seconds(r.EverySeconds), Anchor: moment(r.AnchorAt), TimeZone: r.TimeZone, Start: moment(r.StartAt),
			End: moment(r.EndAt), Jitter: seconds(r.JitterSeconds),
		},
		Inputs: r.Inputs, Paused: r.Paused, Note: r.Reason, Keep: r.Version > 0, ExpectedVersion: &version,
	}
	if r.Program != nil {
		request.Starlark = []byte(*r.Program)
	}
	if _, err := e.client.RegisterSchedule(ctx, request); err != nil {
		return fmt.Errorf("register schedule %s: %w", r.Name, err)
	}
	return nil
}

// BackfillSchedule implements handoff.Schedules.
func (e Engine) BackfillSchedule(ctx context.Context, organization int64, name string, b handoff.Backfill) (handoff.Backfilled, error) {
	answer, err := e.client.BackfillSchedule(ctx, &autoflowv1.BackfillScheduleRequest{
		OrganizationId: organization, Name: name, From: timestamppb.New(b.From), To: timestamppb.New(b.To), Overlap: overlap(b.Overlap),
	})
	if err != nil {
		return handoff.Backfilled{}, fmt.Errorf("backfill schedule %s: %w", name, err)
	}
	return handoff.Backfilled{Due: int(answer.GetDue()), Added: int(answer.GetAdded())}, nil
}

// DeleteSchedule implements handoff.Schedules.
func (e Engine) DeleteSchedule(ctx context.Context, organization int64, name string) error {
	_, err := e.client.DeleteSchedule(ctx, &autoflowv1.DeleteScheduleRequest{OrganizationId: organization, Name: name})
	if err != nil {
		return fmt.Errorf("delete schedule %s: %w", name, err)
	}
	return nil
}

// overlap is a policy in the contract; the engine's own where it is empty.
func overlap(o handoff.ScheduleOverlap) autoflowv1.ScheduleOverlap {
	return autoflowv1.ScheduleOverlap(autoflowv1.ScheduleOverlap_value["SCHEDULE_OVERLAP_"+strings.ToUpper(string(o))])
}

// seconds is a duration that may be absent.
func seconds(n int) *durationpb.Duration {
	if n == 0 {
		return nil
	}
	return &durationpb.Duration{Seconds: int64(n)}
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
		Name: s.GetName(), Version: int(s.GetVersion()), Digest: s.GetProgramDigest(),
		ScheduleTimes: handoff.ScheduleTimes{
			Cron: s.GetSpec().GetCron(), EverySeconds: int(s.GetSpec().GetEvery().AsDuration().Seconds()), TimeZone: zone,
			AnchorAt: ended(s.GetSpec().GetAnchor()), StartAt: ended(s.GetSpec().GetStart()), EndAt: ended(s.GetSpec().GetEnd()),
			JitterSeconds: int(s.GetSpec().GetJitter().AsDuration().Seconds()),
		},
		Overlap:        handoff.ScheduleOverlap(constant(s.GetOverlap().String(), "SCHEDULE_OVERLAP_")),
		CatchUpSeconds: int(s.GetCatchUp().AsDuration().Seconds()), Paused: s.GetPaused(), Note: s.GetNote(),
		CreatedAt: s.GetCreatedAt().AsTime(), ChangedAt: s.GetChangedAt().AsTime(), NextDueAt: ended(s.GetNextDueAt()),
		Started: s.GetStarted(), Skipped: s.GetSkipped(), Missed: s.GetMissed(), Refused: s.GetRefused(),
	}
}

// constant is a constant of the contract without what all of its enumeration begin with.
func constant(name, prefix string) string { return strings.ToLower(strings.TrimPrefix(name, prefix)) }
