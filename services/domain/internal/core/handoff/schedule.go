package handoff

import (
	"context"
	"errors"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// Schedules looks at what the engine starts at given times. The engine keeps all of it, as with Workflows. NotFound where the organization
// has no such schedule.
type Schedules interface {
	// ListSchedules is a page of them in the order of their creation, without NextDueTimes and Fires.
	ListSchedules(ctx context.Context, organization int64, p core.Page) (core.Slice[Schedule], error)
	ScheduleByName(ctx context.Context, organization int64, name string) (Schedule, error)
	PauseSchedule(ctx context.Context, organization int64, name, note string) error
	ResumeSchedule(ctx context.Context, organization int64, name, note string) error
	// TriggerSchedule asks for a run as if it were due now, and has its id.
	TriggerSchedule(ctx context.Context, organization int64, name string) (string, error)
}

// ScheduleOverlap is what happens to a due time while a run of the schedule is under way.
type ScheduleOverlap string

// The policies.
const (
	OverlapSkip        ScheduleOverlap = "skip"
	OverlapBufferOne   ScheduleOverlap = "buffer_one"
	OverlapBufferAll   ScheduleOverlap = "buffer_all"
	OverlapCancelOther ScheduleOverlap = "cancel_other"
	OverlapAllow       ScheduleOverlap = "allow"
)

// ScheduleOutcome is what a due time led to.
type ScheduleOutcome string

// The outcomes.
const (
	FireWaiting  ScheduleOutcome = "waiting"
	FireStarting ScheduleOutcome = "starting"
	FireStarted  ScheduleOutcome = "started"
	FireSkipped  ScheduleOutcome = "skipped"
	FireMissed   ScheduleOutcome = "missed"
	FireRefused  ScheduleOutcome = "refused"
)

// Schedule is a program that is started at given times.
type Schedule struct {
	Name    string
	Version int
	// Digest is the SHA-256 of the program, hexadecimal.
	Digest string
	// Cron are the expressions that it is due by, read in TimeZone; EverySeconds is the interval, 0 for none.
	Cron         []string
	EverySeconds int
	TimeZone     string
	Overlap      ScheduleOverlap
	// CatchUpSeconds is how late a run may start.
	CatchUpSeconds       int
	Paused               bool
	Note                 string
	CreatedAt, ChangedAt time.Time
	NextDueAt            *time.Time
	// NextDueTimes are the next ten, Fires the last hundred, newest first.
	NextDueTimes                      []time.Time
	Started, Skipped, Missed, Refused int64
	Fires                             []ScheduleFire
}

// ScheduleFire is a due time and its outcome.
type ScheduleFire struct {
	DueAt     time.Time
	Outcome   ScheduleOutcome
	Requested bool
	Detail    string
	// Count is how many due times it stands for.
	Count int64
	// WorkflowID is empty, and WorkflowState nil, where there is no run.
	WorkflowID    string
	WorkflowState *WorkflowState
	WorkflowError string
	FinishedAt    *time.Time
}

// Schedules looks at the engine's schedules of the actor's organization.
func (u *UseCases) Schedules(ctx context.Context, a core.Actor, p core.Page) (core.Slice[Schedule], error) {
	return u.workflows.ListSchedules(ctx, a.Organization, p)
}

// Schedule is one of them.
func (u *UseCases) Schedule(ctx context.Context, a core.Actor, name string) (Schedule, error) {
	return u.workflows.ScheduleByName(ctx, a.Organization, name)
}

// ChangeSchedule pauses, resumes or triggers one; triggered is the id of the run that was asked for. As with runs, the journal of changes
// has who asked for it before the engine is called.
func (u *UseCases) ChangeSchedule(
	ctx context.Context, a core.Actor, action core.Action, name, reason string,
) (s Schedule, triggered string, err error) {
	if err := a.May(action); err != nil {
		return s, "", err
	}
	before, err := u.workflows.ScheduleByName(ctx, a.Organization, name)
	if err != nil {
		return s, "", err
	}
	if err := before.MayOperate(a, action); err != nil {
		return s, "", err
	}
	write := func(detail string) error {
		return u.store.In(ctx, a.Organization, func(ctx context.Context, tx Tx) error {
			return core.Record(ctx, tx, a, core.Change{
				Action: action, Subject: core.AccessSubject{Kind: core.ChangedWorkflow, Name: "schedule/" + name}, Reason: reason, Detail: detail,
			}, map[string]any{"paused": before.Paused, "version": before.Version}, nil)
		})
	}
	if err := write("requested"); err != nil {
		return s, "", err
	}
	switch action {
	case core.ActionPauseSchedule:
		err = u.workflows.PauseSchedule(ctx, a.Organization, name, reason)
	case core.ActionResumeSchedule:
		err = u.workflows.ResumeSchedule(ctx, a.Organization, name, reason)
	default:
		triggered, err = u.workflows.TriggerSchedule(ctx, a.Organization, name)
	}
	if err != nil {
		return s, "", errors.Join(err, write("not done: "+fault.Public(err)))
	}
	s, err = u.Schedule(ctx, a, name)
	return s, triggered, err
}

// MayOperate is nil when an actor may do something with a schedule as it stands.
func (s Schedule) MayOperate(a core.Actor, action core.Action) error {
	if err := a.May(action); err != nil {
		return err
	}
	switch {
	case action == core.ActionPauseSchedule && s.Paused:
		return fault.New(fault.Refused, "%s is paused", s.Name)
	case action == core.ActionResumeSchedule && !s.Paused:
		return fault.New(fault.Refused, "%s is not paused", s.Name)
	default:
		return nil
	}
}
