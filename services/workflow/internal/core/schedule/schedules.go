package schedule

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/execution"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/program"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/wake"
)

// Deps are what Schedules work with.
type Deps struct {
	Store   Store
	Scripts program.Scripts
	// Start stores a run, as Service.StartOfFlow does, and Cancel ends one.
	Start  func(ctx context.Context, s execution.Start) (execution.Started, error)
	Cancel func(ctx context.Context, organization int64, workflow, reason string) error
	// Counted is called with how many due times had an outcome: started, skipped, missed or refused; Late with how late a run was started.
	// They may be nil.
	Counted func(outcome State, times int64)
	Late    func(time.Duration)
	Clock   clock.Clock
	Log     *slog.Logger
}

// Schedules keeps schedules and starts their runs. A start is decided in one transaction and carried out after it, and its id is made of
// the schedule and the due time: a crash in between, or a second process, finds the run that exists (E19).
type Schedules struct {
	Deps
	alarm *wake.Alarm
}

// New makes Schedules.
func New(d Deps) *Schedules {
	if d.Counted == nil {
		d.Counted = func(State, int64) {}
	}
	if d.Late == nil {
		d.Late = func(time.Duration) {}
	}
	return &Schedules{Deps: d, alarm: wake.NewAlarm()}
}

// Registration is a schedule that is to be kept.
type Registration struct {
	Schedule
	// Keep is set if the program, modules, inputs, secrets and labels, where they are empty, stay those of the schedule that exists.
	Keep bool
	// Expected is the version that the schedule has to have, 0 for none; nil for any.
	Expected *int
}

// attempts bounds how often a registration that keeps content begins again because another one came first.
const attempts = 5

// Register checks a schedule and makes it the one of its name. The same content again is a no-op. Due times that have passed before are not
// caught up.
func (s *Schedules) Register(ctx context.Context, r Registration, by string) (current Schedule, created bool, err error) {
	if !r.Keep {
		return s.register(ctx, r.Schedule, r.Expected, by)
	}
	if err := s.named(r.Organization, r.Name); err != nil {
		return Schedule{}, false, err
	}
	for range attempts {
		// What is kept was read before the transaction: it is that of a version, which the schedule still has to have then.
		found, whole, err := s.content(ctx, r.Organization, r.Name)
		if err != nil {
			return Schedule{}, false, err
		}
		if r.Expected != nil && *r.Expected != found.Version {
			return Schedule{}, false, overtaken(r.Name, found.Version, *r.Expected)
		}
		current, created, err = s.register(ctx, r.keeping(whole), &found.Version, by)
		if fault.ClassOf(err) != fault.Conflict {
			return current, created, err
		}
	}
	return current, created, err
}

// keeping is the schedule with what it leaves out taken from another one.
func (r Registration) keeping(old Schedule) Schedule {
	s := r.Schedule
	if len(s.Program.Source) == 0 {
		s.Program.Source = old.Program.Source
	}
	if len(s.Program.Modules) == 0 {
		s.Program.Modules = old.Program.Modules
	}
	if len(bytes.TrimSpace(s.Inputs)) == 0 {
		s.Inputs = old.Inputs
	}
	if len(s.Secrets) == 0 {
		s.Secrets = old.Secrets
	}
	if len(s.Labels) == 0 {
		s.Labels = old.Labels
	}
	return s
}

// content reads a schedule, and with it what its runs are started with.
func (s *Schedules) content(ctx context.Context, organization int64, name string) (found, whole Schedule, err error) {
	if found, err = s.Store.FindSchedule(ctx, organization, name); err != nil {
		return found, whole, err
	}
	all, err := s.Store.LoadSchedules(ctx, []Taken{{Schedule: found}})
	if err != nil {
		return found, whole, err
	}
	whole, exists := all[found.ID]
	if !exists {
		return found, whole, fault.New(fault.NotFound, "schedule %q was deleted", name)
	}
	return found, whole, nil
}

// overtaken is the error about a version that is not the expected one.
func overtaken(name string, found, expected int) error {
	return fault.New(fault.Conflict, "found version %d of schedule %q, expected version %d: it was changed meanwhile", found, name, expected)
}

func (s *Schedules) register(ctx context.Context, given Schedule, expected *int, by string) (current Schedule, created bool, err error) {
	if len(bytes.TrimSpace(given.Inputs)) == 0 {
		given.Inputs = nil // as for a run
	}
	if err := execution.CheckOrganization(given.Organization); err != nil {
		return Schedule{}, false, err
	}
	plan, err := given.check(s.Scripts)
	if err != nil {
		return Schedule{}, false, err
	}
	if err := checkNote(given.Note); err != nil {
		return Schedule{}, false, err
	}
	digest, err := given.digest()
	if err != nil {
		return Schedule{}, false, err
	}
	now := s.Clock.Now()
	given.CreatedAt, given.ChangedAt, given.ChangedBy = now, now, by
	current, created, err = s.Store.SaveSchedule(ctx, given, digest, MaxSchedules, func(old *Known) (time.Time, error) {
		from, version := now, 0
		if old != nil {
			from, version = latest(from, old.LastDue), old.Version // the clock may have been set back
		}
		if expected != nil && *expected != version {
			return time.Time{}, overtaken(given.Name, version, *expected)
		}
		return plan.Next(from), nil
	})
	if err == nil && created {
		s.alarm.Raise()
	}
	return current, created, err
}

// Pause has a schedule start nothing until it is resumed, except what is backfilled.
func (s *Schedules) Pause(ctx context.Context, organization int64, name, note, by string) (Schedule, error) {
	return s.change(ctx, organization, name, note, func(k Known) Schedule {
		k.Paused, k.Note, k.ChangedBy = true, note, by
		return k.Schedule
	})
}

// Resume is the opposite of Pause. What was due meanwhile is not started; it can be backfilled.
func (s *Schedules) Resume(ctx context.Context, organization int64, name, note, by string) (Schedule, error) {
	now := s.Clock.Now()
	return s.change(ctx, organization, name, note, func(k Known) Schedule {
		if k.Paused {
			if plan, err := k.Spec.Plan(); err == nil { // it was checked when it was registered
				k.NextDue = plan.Next(latest(now, k.LastDue))
			}
		}
		k.Paused, k.Note, k.ChangedBy = false, note, by
		return k.Schedule
	})
}

func (s *Schedules) change(ctx context.Context, organization int64, name, note string, change func(Known) Schedule) (Schedule, error) {
	if err := s.named(organization, name); err != nil {
		return Schedule{}, err
	}
	if err := checkNote(note); err != nil {
		return Schedule{}, err
	}
	changed, _, err := s.Store.ChangeSchedule(ctx, organization, name, func(k Known) (Schedule, []Fire, error) {
		result := change(k)
		result.ChangedAt, result.Note = s.Clock.Now(), history.Storable(result.Note)
		return result, nil, nil
	})
	if err == nil {
		s.alarm.Raise()
	}
	return changed, err
}

// maxBackfill bounds the due times of one backfill.
const maxBackfill = 1000

// Backfill has the due times from from on, and before to, started that have no run. planned counts them all, added those that get one.
// overlap is the policy for them; empty for BufferAll, whose bound is not for them.
func (s *Schedules) Backfill(
	ctx context.Context, organization int64, name string, from, to time.Time, overlap Overlap,
) (planned, added int, err error) {
	if err := s.named(organization, name); err != nil {
		return 0, 0, err
	}
	now := s.Clock.Now()
	var fields []fault.Field
	if from.IsZero() || !from.Before(to) {
		fields = append(fields, fault.Field{Name: "from", Problem: fmt.Sprintf("found %s, expected a time before `to`, %s", instant(from), instant(to))})
	}
	if to.After(now) {
		fields = append(fields, fault.Field{Name: "to", Problem: fmt.Sprintf("found %s, expected no time to come: it is %s", instant(to), instant(now))})
	}
	if overlap == "" {
		overlap = BufferAll
	}
	fields = append(fields, fault.FieldsOf(checkOverlap(overlap))...)
	if len(fields) > 0 {
		return 0, 0, fault.InvalidFields(fields...)
	}
	_, added, err = s.Store.ChangeSchedule(ctx, organization, name, func(k Known) (Schedule, []Fire, error) {
		plan, err := k.Spec.Plan()
		if err != nil {
			return k.Schedule, nil, err
		}
		var fires []Fire
		for d := plan.Next(from.Add(-time.Nanosecond)); !d.IsZero() && d.Before(to); d = plan.Next(d) {
			if len(fires) == maxBackfill {
				return k.Schedule, nil, fault.InvalidFields(fault.Field{Name: "to", Problem: fmt.Sprintf(
					"found a range of more than %d due times, the last of them %s; expected at most as many", maxBackfill, instant(fires[maxBackfill-1].Due))})
			}
			fires = append(fires, Fire{Due: d, State: Waiting, Backfill: true, Overlap: overlap, Count: 1, Workflow: k.RunID(d)})
		}
		planned = len(fires)
		return k.Schedule, fires, nil
	})
	if err == nil && added > 0 {
		s.alarm.Raise()
	}
	return planned, added, err
}

// Trigger has a schedule start a run now, as if it were due, also while it is paused. Within one second it is one run.
func (s *Schedules) Trigger(ctx context.Context, organization int64, name string, overlap Overlap) (workflow string, err error) {
	if err := s.named(organization, name); err != nil {
		return "", err
	}
	if overlap != "" {
		if err := checkOverlap(overlap); err != nil {
			return "", err
		}
	}
	due := s.Clock.Now().Truncate(time.Second)
	_, _, err = s.Store.ChangeSchedule(ctx, organization, name, func(k Known) (Schedule, []Fire, error) {
		workflow = k.RunID(due)
		return k.Schedule, []Fire{{Due: due, State: Waiting, Backfill: true, Overlap: overlap, Count: 1, Workflow: workflow}}, nil
	})
	if err == nil {
		s.alarm.Raise()
	}
	return workflow, err
}

func instant(t time.Time) string {
	if t.IsZero() {
		return "none"
	}
	return t.UTC().Format(time.RFC3339)
}

func (*Schedules) named(organization int64, name string) error {
	if err := execution.CheckOrganization(organization); err != nil {
		return err
	}
	return checkName(name)
}

// View is a schedule with everything a reader wants to know of it.
type View struct {
	Schedule
	// Next are the due times to come; none while it is paused.
	Next []time.Time
	// Fires are the last due times that were dealt with, newest first.
	Fires []Fire
}

const (
	// shownNext is how many due times to come are shown.
	shownNext = 10
	// KeptFires is how many due times of a schedule are kept that were dealt with, beside those whose run is under way.
	KeptFires = 100
)

// Content is what the runs of a schedule are started with: a schedule with only that.
func (s *Schedules) Content(ctx context.Context, organization int64, name string) (Schedule, error) {
	if err := s.named(organization, name); err != nil {
		return Schedule{}, err
	}
	_, whole, err := s.content(ctx, organization, name)
	return whole, err
}

// Get answers a schedule with its next and its last due times.
func (s *Schedules) Get(ctx context.Context, organization int64, name string) (View, error) {
	if err := s.named(organization, name); err != nil {
		return View{}, err
	}
	found, err := s.Store.FindSchedule(ctx, organization, name)
	if err != nil {
		return View{}, err
	}
	v := View{Schedule: found}
	if v.Fires, err = s.Store.Fires(ctx, organization, found.ID, KeptFires); err != nil {
		return View{}, err
	}
	v.Next, err = found.upcoming(shownNext)
	return v, err
}

// upcoming are the next due times.
func (s Schedule) upcoming(n int) (next []time.Time, err error) {
	if s.Paused {
		return nil, nil
	}
	plan, err := s.Spec.Plan()
	if err != nil {
		return nil, err
	}
	for d := s.NextDue; !d.IsZero() && len(next) < n; d = plan.Next(d) {
		next = append(next, d)
	}
	return next, nil
}

// List answers a page of schedules.
func (s *Schedules) List(ctx context.Context, organization, after int64, limit int) ([]Schedule, error) {
	if err := execution.CheckOrganization(organization); err != nil {
		return nil, err
	}
	return s.Store.ListSchedules(ctx, organization, after, limit)
}

// Delete removes a schedule. Runs that it has started continue.
func (s *Schedules) Delete(ctx context.Context, organization int64, name string) error {
	if err := s.named(organization, name); err != nil {
		return err
	}
	return s.Store.DeleteSchedule(ctx, organization, name)
}

const (
	// batch is how many schedules are looked at in one transaction.
	batch = 256
	// maxIdle is after how long a process looks for schedules that others have registered or changed.
	maxIdle = 5 * time.Second
	// afterFailure is how long to wait after the database has failed.
	afterFailure = time.Second
	// afterCancel is when a schedule is looked at again that has cancelled a run.
	afterCancel = 100 * time.Millisecond
)

// Run starts runs until ctx ends. Several processes may do so side by side.
func (s *Schedules) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		next, err := s.Store.NextAttention(ctx)
		now := s.Clock.Now()
		if err == nil && !next.IsZero() && !next.After(now) {
			if _, err = s.Round(ctx); err == nil {
				continue
			}
		}
		until := now.Add(maxIdle)
		if !next.IsZero() {
			until = earliest(until, next)
		}
		if err != nil && ctx.Err() == nil {
			s.Log.WarnContext(ctx, "claiming due schedules failed; will retry", "error", err)
			until = now.Add(afterFailure)
		}
		s.alarm.Sleep(ctx, s.Clock, until)
	}
	return nil
}

// Round looks at schedules whose time has come, at most 256, and carries out what that leads to. Run calls it.
func (s *Schedules) Round(ctx context.Context) (taken int, err error) {
	now := s.Clock.Now()
	turns, err := s.Store.TakeTurns(ctx, now, batch, func(found Schedule, open []Fire) (Turn, error) {
		plan, err := found.Spec.Plan()
		if err != nil {
			return Turn{}, err
		}
		return found.turn(plan, open, now), nil
	})
	if err != nil || len(turns) == 0 {
		return 0, err
	}
	for _, t := range turns {
		s.Counted(Skipped, t.Turn.Skipped)
		s.Counted(Missed, t.Turn.Missed)
	}
	return len(turns), s.carryOut(ctx, turns)
}

// carryOut starts and cancels runs. What fails is done again later, by whichever process looks at the schedule then.
func (s *Schedules) carryOut(ctx context.Context, turns []Taken) error {
	var starting []Taken
	for _, t := range turns {
		if len(t.Turn.Start) > 0 {
			starting = append(starting, t)
		}
	}
	var whole map[int64]Schedule
	if len(starting) > 0 {
		var err error
		if whole, err = s.Store.LoadSchedules(ctx, starting); err != nil {
			return err
		}
	}
	var mu sync.Mutex
	var outcomes []Outcome
	var settled []Taken
	var all sync.WaitGroup
	for _, t := range turns {
		if len(t.Turn.Start) == 0 && len(t.Turn.Cancel) == 0 {
			continue
		}
		all.Go(func() {
			found, done := s.carryOutOne(ctx, t, whole)
			mu.Lock()
			defer mu.Unlock()
			outcomes = append(outcomes, found...)
			if done {
				settled = append(settled, t)
			}
		})
	}
	all.Wait()
	if len(outcomes) == 0 && len(settled) == 0 {
		return nil
	}
	for i, t := range settled {
		if len(t.Turn.Cancel) > 0 {
			settled[i].Turn.Settled = s.Clock.Now().Add(afterCancel)
		}
	}
	return s.Store.FinishTurns(ctx, outcomes, settled)
}

// carryOutOne is carryOut for one turn. done reports that nothing is left to do.
func (s *Schedules) carryOutOne(ctx context.Context, t Taken, whole map[int64]Schedule) (outcomes []Outcome, done bool) {
	done = true
	log := s.Log.With("schedule", t.Schedule.Name, "organization", t.Schedule.Organization)
	for _, workflow := range t.Turn.Cancel {
		err := s.Cancel(ctx, t.Schedule.Organization, workflow, fmt.Sprintf("the next run of schedule %q is due", t.Schedule.Name))
		if err != nil && !fault.Is(err, fault.NotFound) {
			log.WarnContext(ctx, "cancelling a run for the next one failed; will retry", "workflow", workflow, "error", err)
			done = false
		}
	}
	found, exists := whole[t.Schedule.ID]
	if !exists {
		return nil, done // deleted
	}
	for _, f := range t.Turn.Start {
		outcome := Outcome{Organization: found.Organization, Schedule: found.ID, Due: f.Due, State: Started}
		start, err := found.start(f)
		if err == nil {
			_, err = s.Start(ctx, start)
		}
		switch fault.ClassOf(err) {
		case fault.Conflict: // the schedule was changed after its run was started; nobody else may start a run of this id
			err = nil
		case fault.Invalid, fault.Refused: // will not be better the next time
			log.WarnContext(ctx, "run of a schedule refused", "due", f.Due, "error", err)
			outcome.State, outcome.Detail = Refused, history.Truncate(history.Storable(fault.Public(err)), history.MaxError)
			err = nil
		default:
		}
		if err != nil {
			if ctx.Err() == nil {
				log.WarnContext(ctx, "starting run of a schedule failed; will retry", "due", f.Due, "error", err)
			}
			done = false
			continue
		}
		s.Counted(outcome.State, 1)
		if outcome.State == Started {
			s.late(t.Schedule, f)
		}
		outcomes = append(outcomes, outcome)
	}
	return outcomes, done
}

// late measures how late a run was started that did not have to wait for another one.
func (s *Schedules) late(of Schedule, f Fire) {
	if f.Backfill || of.NextDue.IsZero() || f.Due.Before(of.NextDue) { // it has waited, or was triggered
		return
	}
	plan, err := of.Spec.Plan()
	if err != nil {
		return
	}
	s.Late(max(0, s.Clock.Now().Sub(f.Due.Add(plan.Delay(of.ID, f.Due)))))
}
