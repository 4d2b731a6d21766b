package handoff

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
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
	// ScheduleContent is what the runs of a schedule are started with.
	ScheduleContent(ctx context.Context, organization int64, name string) (ScheduleContent, error)
	// RegisterSchedule makes a schedule the one of its name; Conflict where it does not have the expected version.
	RegisterSchedule(ctx context.Context, organization int64, r ScheduleRegistration) error
	// BackfillSchedule starts runs for the due times of a range that have none.
	BackfillSchedule(ctx context.Context, organization int64, name string, b Backfill) (Backfilled, error)
	DeleteSchedule(ctx context.Context, organization int64, name string) error
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

// ScheduleTimes say when a schedule is due.
type ScheduleTimes struct {
	// Cron are the expressions that it is due by, read in TimeZone; EverySeconds is the interval, 0 for none, counted from AnchorAt.
	Cron         []string
	EverySeconds int
	AnchorAt     *time.Time
	TimeZone     string
	// StartAt and EndAt bound the due times; JitterSeconds delays each start by less than that.
	StartAt, EndAt *time.Time
	JitterSeconds  int
}

// ScheduleContent is what the runs of a schedule are started with. Secrets are not part of it: their references concern the installation,
// and stay as they were registered.
type ScheduleContent struct {
	Program string
	Modules []ScheduleModule
	Inputs  json.RawMessage
	Labels  []WorkflowPair
}

// ScheduleModule is a file that the program of a schedule may load.
type ScheduleModule struct{ Name, Source string }

// ScheduleRegistration is a schedule to be kept. A nil member of the content stays what it is.
type ScheduleRegistration struct {
	Name string
	// Version is the one that is changed, 0 where there is none yet.
	Version int
	ScheduleTimes
	Overlap        ScheduleOverlap
	CatchUpSeconds int
	Program        *string
	Inputs         json.RawMessage
	// Paused is whether a new one begins paused.
	Paused bool
	Reason string
}

// Backfill is a range of due times in the past.
type Backfill struct {
	From, To time.Time
	// Overlap is the policy for them; empty for the engine's.
	Overlap ScheduleOverlap
}

// Backfilled is how many due times a range has, and how many of them get a run.
type Backfilled struct{ Due, Added int }

// Schedule is a program that is started at given times.
type Schedule struct {
	Name    string
	Version int
	// Digest is the SHA-256 of the program, hexadecimal.
	Digest string
	ScheduleTimes
	Overlap ScheduleOverlap
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

// ScheduleContent is what the runs of a schedule are started with, for those who may change it; Denied for others.
func (u *UseCases) ScheduleContent(ctx context.Context, a core.Actor, name string) (ScheduleContent, error) {
	if err := a.May(core.ActionRegisterSchedule); err != nil {
		return ScheduleContent{}, err
	}
	return u.workflows.ScheduleContent(ctx, a.Organization, name)
}

// ChangeSchedule pauses, resumes, triggers or deletes one; triggered is the id of the run that was asked for. The schedule is as it is
// afterwards, and as it was before for one that is gone.
func (u *UseCases) ChangeSchedule(
	ctx context.Context, a core.Actor, action core.Action, name, reason string,
) (s Schedule, triggered string, err error) {
	before, err := u.operable(ctx, a, action, name)
	if err != nil {
		return s, "", err
	}
	err = u.changing(ctx, a, action, name, reason, before.recorded(), nil, func() (err error) {
		switch action {
		case core.ActionPauseSchedule:
			return u.workflows.PauseSchedule(ctx, a.Organization, name, reason)
		case core.ActionResumeSchedule:
			return u.workflows.ResumeSchedule(ctx, a.Organization, name, reason)
		case core.ActionDeleteSchedule:
			return u.workflows.DeleteSchedule(ctx, a.Organization, name)
		default:
			triggered, err = u.workflows.TriggerSchedule(ctx, a.Organization, name)
			return err
		}
	})
	if err != nil {
		return s, "", err
	}
	if action == core.ActionDeleteSchedule {
		return before, "", nil
	}
	s, err = u.Schedule(ctx, a, name)
	return s, triggered, err
}

// RegisterSchedule makes a schedule, or changes the one whose version is given.
func (u *UseCases) RegisterSchedule(ctx context.Context, a core.Actor, r ScheduleRegistration) (s Schedule, err error) {
	if err := a.May(core.ActionRegisterSchedule); err != nil {
		return s, err
	}
	if r.Version == 0 && r.Program == nil {
		return s, fault.InvalidFields(fault.Field{Name: "program", Problem: "found none, expected the program of a new schedule"})
	}
	if r.Program != nil && *r.Program == "" {
		return s, fault.InvalidFields(fault.Field{
			Name: "program", Problem: "found an empty one, expected a program, or none to keep that of the schedule",
		})
	}
	var before any
	if r.Version > 0 {
		old, err := u.workflows.ScheduleByName(ctx, a.Organization, r.Name)
		if err != nil {
			return s, err
		}
		before = old.recorded()
	}
	err = u.changing(ctx, a, core.ActionRegisterSchedule, r.Name, r.Reason, before, r.recorded(), func() error {
		return u.workflows.RegisterSchedule(ctx, a.Organization, r)
	})
	if err != nil {
		return s, err
	}
	return u.Schedule(ctx, a, r.Name)
}

// BackfillSchedule has the due times of a range started that have no run.
func (u *UseCases) BackfillSchedule(
	ctx context.Context, a core.Actor, name, reason string, b Backfill,
) (s Schedule, result Backfilled, err error) {
	if _, err := u.operable(ctx, a, core.ActionBackfillSchedule, name); err != nil {
		return s, result, err
	}
	requested := map[string]any{"from": b.From, "to": b.To, "overlap": b.Overlap}
	err = u.changing(ctx, a, core.ActionBackfillSchedule, name, reason, nil, requested, func() (err error) {
		result, err = u.workflows.BackfillSchedule(ctx, a.Organization, name, b)
		return err
	})
	if err != nil {
		return s, result, err
	}
	s, err = u.Schedule(ctx, a, name)
	return s, result, err
}

// operable is a schedule that an actor may do something with as it stands.
func (u *UseCases) operable(ctx context.Context, a core.Actor, action core.Action, name string) (Schedule, error) {
	if err := a.May(action); err != nil {
		return Schedule{}, err
	}
	s, err := u.workflows.ScheduleByName(ctx, a.Organization, name)
	if err != nil {
		return s, err
	}
	return s, s.MayOperate(a, action)
}

// changing has the engine change a schedule. As with runs, the journal of changes has who asked for it before the engine is called, and
// whether the engine refused it.
func (u *UseCases) changing(
	ctx context.Context, a core.Actor, action core.Action, name, reason string, before, after any, change func() error,
) error {
	write := func(detail string) func(ctx context.Context, tx Tx) error {
		return func(ctx context.Context, tx Tx) error {
			return core.Record(ctx, tx, a, core.Change{
				Action: action, Subject: core.AccessSubject{Kind: core.ChangedWorkflow, Name: "schedule/" + name}, Reason: reason, Detail: detail,
			}, before, after)
		}
	}
	if err := core.By(ctx, u.store, a, action, write("requested")); err != nil {
		return err
	}
	if err := change(); err != nil { // what was decided about the request is not decided again
		return errors.Join(err, u.store.In(core.Judged(ctx), a.Organization, write("not done: "+fault.Public(err))))
	}
	return nil
}

// recorded is what the journal of changes has of a schedule.
func (s Schedule) recorded() map[string]any {
	return s.ScheduleTimes.recorded(map[string]any{
		"paused": s.Paused, "version": s.Version, "overlap": s.Overlap, "catch_up_seconds": s.CatchUpSeconds, "program_digest": s.Digest,
	})
}

// recorded is what the journal of changes has of a registration: of the program and the inputs, where they are given, their digests.
func (r ScheduleRegistration) recorded() map[string]any {
	all := map[string]any{"overlap": r.Overlap, "catch_up_seconds": r.CatchUpSeconds}
	if r.Version == 0 { // one that is changed stays as it is
		all["paused"] = r.Paused
	}
	if r.Program != nil {
		all["program_digest"] = digestOf([]byte(*r.Program))
	}
	if len(r.Inputs) > 0 {
		all["inputs_digest"] = digestOf(r.Inputs)
	}
	return r.ScheduleTimes.recorded(all)
}

func digestOf(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

func (t ScheduleTimes) recorded(all map[string]any) map[string]any {
	all["cron"], all["every_seconds"], all["time_zone"], all["jitter_seconds"] = t.Cron, t.EverySeconds, t.TimeZone, t.JitterSeconds
	for name, at := range map[string]*time.Time{"anchor_at": t.AnchorAt, "start_at": t.StartAt, "end_at": t.EndAt} {
		if at != nil {
			all[name] = at
		}
	}
	return all
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
