package workflow_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgxpool"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/lockstep-cd/lockstep/pkg/clock/clocktest"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/outbox"
	"github.com/lockstep-cd/lockstep/pkg/testkit/bustest"
	"github.com/lockstep-cd/lockstep/pkg/testkit/pgtest"
	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/control"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/execution"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/program"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/schedule"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/events"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/script"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/store"
	schedulestore "github.com/lockstep-cd/lockstep/services/workflow/internal/store/schedules"
)

// errKilled is what a process gets of everything after its death.
var errKilled = errors.New("killed")

// doomed counts what a process does to the world, and kills it at a number: before that is done, or after it.
type doomed struct {
	mu      sync.Mutex
	n, at   int
	applied bool
	dead    bool
}

func (m *doomed) do(what func() error) error {
	m.mu.Lock()
	m.n++
	last := m.n == m.at
	if last || m.dead {
		m.dead = true
		applied := last && m.applied
		m.mu.Unlock()
		if applied {
			_ = what()
		}
		return errKilled
	}
	m.mu.Unlock()
	return what()
}

// doomedStore is the store of a process that may die.
type doomedStore struct {
	schedule.Store
	life *doomed
}

func (s doomedStore) TakeTurns(
	ctx context.Context, now time.Time, limit int, decide func(schedule.Schedule, []schedule.Fire) (schedule.Turn, error),
) (taken []schedule.Taken, err error) {
	err = s.life.do(func() (err error) { taken, err = s.Store.TakeTurns(ctx, now, limit, decide); return err })
	return taken, err
}

func (s doomedStore) LoadSchedules(ctx context.Context, of []schedule.Taken) (found map[int64]schedule.Schedule, err error) {
	err = s.life.do(func() (err error) { found, err = s.Store.LoadSchedules(ctx, of); return err })
	return found, err
}

func (s doomedStore) FinishTurns(ctx context.Context, outcomes []schedule.Outcome, settled []schedule.Taken) error {
	return s.life.do(func() error { return s.Store.FinishTurns(ctx, outcomes, settled) })
}

// timetable is schedules over a real database, on a clock that a test moves. Runs are stored, and under way until the test ends them.
type timetable struct {
	t       *testing.T
	clock   *clocktest.Clock
	pool    *pgxpool.Pool
	runs    *store.Store
	service *control.Service
}

func newTimetable(t *testing.T) *timetable {
	t.Helper()
	pool, _ := pgtest.New(t, pgtest.Migration{Name: "outbox", FS: outbox.Migrations()}, pgtest.Migration{Name: "workflow", FS: store.Migrations()})
	tt := &timetable{t: t, pool: pool, clock: clocktest.New(time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC))}
	tt.runs = store.New(store.Deps{
		Pool: pool, Encode: events.Encode, Add: outbox.AddNumbered, AddNew: outbox.AddNew, Committed: func() {}, Clock: tt.clock,
		Log: bustest.Log(t),
	})
	tt.service = control.NewService(tt.runs, script.New(script.Limits{}), tt.clock, &engines{t: t})
	return tt
}

// process is one of several processes with schedules.
func (tt *timetable) process(life *doomed) *schedule.Schedules {
	return schedule.New(schedule.Deps{
		Store: doomedStore{schedulestore.New(tt.pool), life}, Scripts: script.New(script.Limits{}), Clock: tt.clock, Log: bustest.Log(tt.t),
		Start: func(ctx context.Context, s execution.Start) (started execution.Started, err error) {
			err = life.do(func() (err error) { started, err = tt.service.StartOfFlow(ctx, s); return err })
			return started, err
		},
		Cancel: func(ctx context.Context, organization int64, workflow, reason string) error {
			return life.do(func() error { return tt.service.Cancel(ctx, organization, workflow, reason) })
		},
	})
}

func (tt *timetable) register(by *schedule.Schedules, s schedule.Schedule) {
	tt.t.Helper()
	s.Program = program.Program{Source: []byte("sleep(seconds = 60)\n")}
	if s.Organization == 0 {
		s.Organization = organization
	}
	if _, _, err := by.Register(tt.t.Context(), schedule.Registration{Schedule: s}, "test"); err != nil {
		tt.t.Fatal(err)
	}
}

// set moves the clock, also back.
func (tt *timetable) set(now time.Time) { tt.clock.Advance(now.Sub(tt.clock.Now())) }

// rounds has processes look until none finds anything.
func (tt *timetable) rounds(processes ...*schedule.Schedules) {
	tt.t.Helper()
	for again := true; again; {
		again = false
		for _, p := range processes {
			n, err := p.Round(tt.t.Context())
			if err != nil && !errors.Is(err, errKilled) {
				tt.t.Fatal(err)
			}
			again = again || n > 0 && err == nil
		}
	}
}

// started are the due times of the runs of an organization, and whether they are under way, oldest first.
func (tt *timetable) started(organization int64) (found []string) {
	tt.t.Helper()
	list, _, err := tt.runs.List(tt.t.Context(), control.ListQuery{Organization: organization, Limit: 1000})
	if err != nil {
		tt.t.Fatal(err)
	}
	for _, e := range list {
		found = append(found, e.Labels["due_at"][11:16]+" "+e.State.String())
	}
	slices.Reverse(found)
	return found
}

// end ends all runs of an organization that are under way.
func (tt *timetable) end(organization int64) {
	tt.t.Helper()
	list, _, err := tt.runs.List(tt.t.Context(), control.ListQuery{Organization: organization, Limit: 1000})
	if err != nil {
		tt.t.Fatal(err)
	}
	for _, e := range list {
		if _, err := tt.runs.Cancel(tt.t.Context(), organization, e.Workflow, "over", tt.clock.Now()); err != nil {
			tt.t.Fatal(err)
		}
	}
}

// TestKilledAtEveryStepOfASchedule kills a process before and after each thing that it does to the world, with another process beside it:
// each due time has exactly one run, counted once, in the order of due times (issue 18).
func TestKilledAtEveryStepOfASchedule(t *testing.T) {
	t.Parallel()
	tt := newTimetable(t)
	const dueTimes = 3
	for _, applied := range []bool{false, true} {
		for at := 1; ; at++ {
			org := int64(1000 + at)
			if applied {
				org += 1000
			}
			life := &doomed{at: at, applied: applied}
			first, second := tt.process(life), tt.process(&doomed{})
			tt.register(second, schedule.Schedule{
				Organization: org, Name: "s", Spec: schedule.Spec{Every: time.Minute}, Overlap: schedule.BufferAll, CatchUp: time.Hour,
			})
			begin := tt.clock.Now().Truncate(time.Minute)
			var want []string
			for i := range dueTimes {
				tt.set(begin.Add(time.Duration(i+1) * time.Minute))
				want = append(want, tt.clock.Now().Format("15:04 ")+"cancelled")
				tt.rounds(first)
				tt.rounds(second)
				for range 3 { // a start that was decided is done again, and what waits starts when the run has ended
					tt.clock.Advance(6 * time.Second)
					tt.rounds(first, second)
				}
				tt.end(org)
			}
			if diff := cmp.Diff(want, tt.started(org)); diff != "" {
				t.Fatalf("killed at %d, applied %t: runs (-want +got):\n%s", at, applied, diff)
			}
			v, err := second.Get(t.Context(), org, "s")
			if err != nil || v.Started != dueTimes || v.Skipped+v.Missed+v.Refused != 0 {
				t.Fatalf("killed at %d, applied %t: found %+v, error %v, expected %d started", at, applied, v.Schedule, err, dueTimes)
			}
			if err := second.Delete(t.Context(), org, "s"); err != nil {
				t.Fatal(err)
			}
			if !life.dead {
				if at < 5 {
					t.Errorf("the process did only %d things", at)
				}
				break
			}
		}
	}
}

// TestManyProcessesStartEachRunOnce has four processes look at the same schedules at the same time.
func TestManyProcessesStartEachRunOnce(t *testing.T) {
	t.Parallel()
	tt := newTimetable(t)
	var processes []*schedule.Schedules
	for range 4 {
		processes = append(processes, tt.process(&doomed{}))
	}
	const schedules = 30
	for i := range schedules {
		tt.register(processes[0], schedule.Schedule{Name: fmt.Sprintf("s%d", i), Spec: schedule.Spec{Every: time.Minute}, Overlap: schedule.Allow})
	}
	tt.rounds(processes[0])
	for minute := range 3 {
		tt.clock.Advance(time.Minute)
		var all sync.WaitGroup
		for _, p := range processes {
			all.Go(func() {
				for range 3 {
					if _, err := p.Round(t.Context()); err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		if n := len(tt.started(organization)); n != schedules*(minute+1) {
			t.Fatalf("%d runs after %d minutes, expected %d", n, minute+1, schedules*(minute+1))
		}
	}
}

// TestClockJumpsAndPausesOfASchedule: set back, the clock starts nothing again; set ahead beyond the catch-up, due times are missed; what
// was due during a pause or was missed can be backfilled, once; also with a registration of other content in between.
func TestClockJumpsAndPausesOfASchedule(t *testing.T) {
	t.Parallel()
	tt := newTimetable(t)
	p := tt.process(&doomed{})
	s := schedule.Schedule{Name: "s", Spec: schedule.Spec{Every: time.Hour}, Overlap: schedule.Allow}
	tt.register(p, s)
	at := func(text string) {
		t.Helper()
		hour, err := time.Parse("15:04", text)
		if err != nil {
			t.Fatal(err)
		}
		tt.set(time.Date(2026, 11, 23, hour.Hour(), hour.Minute(), 0, 0, time.UTC))
		tt.rounds(p)
	}
	at("13:00")
	at("11:30")                            // set back
	s.Labels = map[string]string{"a": "b"} // another version
	tt.register(p, s)                      //
	at("12:00")                            //
	at("13:00")                            // again
	at("14:00")                            //
	at("17:05")                            // set ahead: 15:00 and 16:00 are missed
	if _, err := p.Pause(t.Context(), organization, "s", "maintenance", "alice"); err != nil {
		t.Fatal(err)
	}
	at("18:00")
	at("19:30")
	v, err := p.Get(t.Context(), organization, "s")
	if err != nil || !v.Paused || v.Note != "maintenance" || v.ChangedBy != "alice" || len(v.Next) != 0 {
		t.Errorf("found %+v, error %v, expected that it is paused", v, err)
	}
	if _, err := p.Resume(t.Context(), organization, "s", "", "bob"); err != nil {
		t.Fatal(err)
	}
	at("20:00")
	want := []string{"13:00 running", "14:00 running", "17:00 running", "20:00 running"}
	if diff := cmp.Diff(want, tt.started(organization)); diff != "" {
		t.Errorf("runs (-want +got):\n%s", diff)
	}
	if v, err = p.Get(t.Context(), organization, "s"); err != nil || v.Missed != 2 || v.Started != 4 || v.Version != 2 || len(v.Next) != 10 {
		t.Errorf("found %+v, error %v, expected 2 missed, 4 started and version 2", v, err)
	}
	day := time.Date(2026, 11, 23, 0, 0, 0, 0, time.UTC)
	for _, added := range []int{4, 0} {
		due, n, err := p.Backfill(t.Context(), organization, "s", day.Add(13*time.Hour), tt.clock.Now(), schedule.Allow)
		if err != nil || due != 7 || n != added {
			t.Errorf("%d due times, %d added, error %v, expected 7 and %d", due, n, err, added)
		}
		tt.rounds(p)
	}
	if found := tt.started(organization); len(found) != 8 {
		t.Errorf("found %d runs after the backfill, expected 8: %v", len(found), found)
	}
	for want, r := range map[string][2]time.Time{
		"to: found a range": {day.AddDate(-1, 0, 0), day},
		"to: found 2026":    {day, day.AddDate(0, 0, 2)},
		"from: found":       {day, day},
		"from: found none":  {{}, day},
	} {
		_, _, err := p.Backfill(t.Context(), organization, "s", r[0], r[1], "")
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("found %v, expected a refusal with %q", err, want)
		}
	}
}

// TestCancelOtherOfASchedule: the run that is under way is cancelled, and the next one starts when it has ended.
func TestCancelOtherOfASchedule(t *testing.T) {
	t.Parallel()
	tt := newTimetable(t)
	p := tt.process(&doomed{})
	tt.register(p, schedule.Schedule{Name: "s", Spec: schedule.Spec{Every: time.Minute}, Overlap: schedule.CancelOther})
	for range 2 {
		tt.clock.Advance(time.Minute)
		tt.rounds(p)
		tt.clock.Advance(time.Second)
		tt.rounds(p)
	}
	if diff := cmp.Diff([]string{"12:01 cancelled", "12:02 running"}, tt.started(organization)); diff != "" {
		t.Errorf("runs (-want +got):\n%s", diff)
	}
}

// TestAScheduleKeepsItsLastDueTimes: a hundred, and the one whose run is under way, however old it is.
func TestAScheduleKeepsItsLastDueTimes(t *testing.T) {
	t.Parallel()
	tt := newTimetable(t)
	p := tt.process(&doomed{})
	tt.register(p, schedule.Schedule{Name: "s", Spec: schedule.Spec{Every: time.Minute}})
	for range 110 {
		tt.clock.Advance(time.Minute)
		tt.rounds(p)
	}
	var rows, skipped int
	if err := tt.pool.QueryRow(t.Context(), `SELECT count(*), count(*) FILTER (WHERE state = 'skipped') FROM schedule_fire`).Scan(&rows, &skipped); err != nil {
		t.Fatal(err)
	}
	if rows < 101 || rows > 102 || skipped < 100 || skipped > 101 {
		t.Errorf("%d rows, %d of them skipped, expected 100 and the run's", rows, skipped)
	}
	if found := tt.started(organization); len(found) != 1 {
		t.Errorf("found %v, expected the first run only", found)
	}
}

// TestSchedulesOverTheAPI covers registration, refusals, what another organization sees, and ids that nobody else may take.
func TestSchedulesOverTheAPI(t *testing.T) {
	t.Parallel()
	s := start(t)
	request := &autoflowv1.RegisterScheduleRequest{
		OrganizationId: organization, Name: "tick", Spec: &autoflowv1.ScheduleSpec{Every: durationpb.New(time.Second)},
		Starlark: []byte("print(schedule.name, schedule.due_at, who)\n"), Inputs: []byte(`{"who": "me"}`), Labels: map[string]string{"team": "shop"},
	}
	first, err := s.RegisterSchedule(t.Context(), request)
	if err != nil || !first.GetCreated() {
		t.Fatal(first, err)
	}
	if again, err := s.RegisterSchedule(t.Context(), request); err != nil || again.GetCreated() || again.GetSchedule().GetVersion() != 1 {
		t.Errorf("found %v, error %v, expected that nothing has changed", again, err)
	}
	var found *autoflowv1.GetScheduleResponse
	s.eventually("two runs have ended", func(ctx context.Context) bool {
		found, err = s.GetSchedule(ctx, &autoflowv1.GetScheduleRequest{OrganizationId: organization, Name: "tick"})
		if err != nil {
			t.Fatal(err)
		}
		ended := 0
		for _, f := range found.GetFires() {
			if f.GetWorkflowState() == autoflowv1.WorkflowState_WORKFLOW_STATE_COMPLETED {
				ended++
			}
		}
		return ended >= 2
	})
	if n := len(found.GetNextDueAt()); n != 10 {
		t.Errorf("found %d due times to come, expected 10", n)
	}
	pause := &autoflowv1.PauseScheduleRequest{OrganizationId: organization, Name: "tick", Note: "enough"}
	if _, err := s.PauseSchedule(t.Context(), pause); err != nil {
		t.Fatal(err)
	}
	fire := found.GetFires()[len(found.GetFires())-1]
	want := "tick " + fire.GetDueAt().AsTime().Format(time.RFC3339) + " me"
	if lines := s.lines(fire.GetWorkflowId()); len(lines) != 1 || lines[0] != want {
		t.Errorf("the run has printed %q, expected %q", lines, want)
	}
	_, err = s.StartWorkflow(t.Context(), &autoflowv1.StartWorkflowRequest{
		OrganizationId: organization, WorkflowId: "schedule/tick/1/20261123T120000Z", Starlark: []byte("x = 1"),
	})
	if !fault.Is(err, fault.Denied) {
		t.Errorf("found %v, expected that only the schedule may take the id", err)
	}
	triggered, err := s.TriggerSchedule(t.Context(), &autoflowv1.TriggerScheduleRequest{OrganizationId: organization, Name: "tick"})
	if err != nil {
		t.Fatal(err)
	}
	s.await(triggered.GetWorkflowId(), autoflowv1.WorkflowState_WORKFLOW_STATE_COMPLETED)
	if _, err := s.GetSchedule(t.Context(), &autoflowv1.GetScheduleRequest{OrganizationId: 2, Name: "tick"}); !fault.Is(err, fault.NotFound) {
		t.Errorf("another organization gets %v, expected nothing", err)
	}
	for field, bad := range map[string]*autoflowv1.RegisterScheduleRequest{
		"name":            {Name: "A", Spec: request.GetSpec(), Starlark: request.GetStarlark()},
		"cron":            {Name: "a", Starlark: request.GetStarlark()},
		"cron.0":          {Name: "a", Spec: &autoflowv1.ScheduleSpec{Cron: []string{"* * *"}}, Starlark: request.GetStarlark()},
		"starlark":        {Name: "a", Spec: request.GetSpec()},
		"starlark ":       {Name: "a", Spec: request.GetSpec(), Starlark: request.GetStarlark()},
		"inputs.schedule": {Name: "a", Spec: request.GetSpec(), Starlark: []byte("x = 1"), Inputs: []byte(`{"schedule": 1}`)},
		"catch_up":        {Name: "a", Spec: request.GetSpec(), Starlark: []byte("x = 1"), CatchUp: durationpb.New(time.Second)},
		"overlap":         {Name: "a", Spec: request.GetSpec(), Starlark: []byte("x = 1"), Overlap: 99},
		"spec.start":      {Name: "a", Spec: &autoflowv1.ScheduleSpec{Start: &timestamppb.Timestamp{Seconds: 1 << 60}}, Starlark: []byte("x = 1")},
	} {
		bad.OrganizationId = organization
		_, err := s.RegisterSchedule(t.Context(), bad)
		fields := fault.FieldsOf(err)
		if !fault.Is(err, fault.Invalid) || len(fields) == 0 || fields[0].Name != strings.TrimSpace(field) {
			t.Errorf("%s: found %v, expected a refusal of it", field, err)
		}
	}
	if _, err := s.DeleteSchedule(t.Context(), &autoflowv1.DeleteScheduleRequest{OrganizationId: organization, Name: "tick"}); err != nil {
		t.Fatal(err)
	}
	list, err := s.ListSchedules(t.Context(), &autoflowv1.ListSchedulesRequest{OrganizationId: organization})
	if err != nil || len(list.GetSchedules()) != 0 {
		t.Errorf("found %v, error %v, expected no schedule", list, err)
	}
}

// TestLatenessOfSchedules: what a run waited for is no lateness, and what the service was late by is (issue 18).
func TestLatenessOfSchedules(t *testing.T) {
	t.Parallel()
	tt := newTimetable(t)
	by := tt.process(&doomed{})
	var late []time.Duration
	counted := map[schedule.State]int64{}
	by.Late = func(d time.Duration) { late = append(late, d) }
	by.Counted = func(outcome schedule.State, times int64) { counted[outcome] += times }
	tt.register(by, schedule.Schedule{Name: "s", Spec: schedule.Spec{Every: time.Minute}, Overlap: schedule.BufferOne, CatchUp: 90 * time.Second})
	begin := tt.clock.Now().Truncate(time.Minute)
	for _, step := range []struct {
		at time.Duration
	}{
		{time.Minute + 3*time.Second},    // 3 s late
		{2 * time.Minute},                // waits for the first run
		{2*time.Minute + 30*time.Second}, // and is not late when that has ended
		{20*time.Minute + time.Second},   // most are missed, the last two not
	} {
		tt.set(begin.Add(step.at))
		tt.rounds(by)
		if step.at != 2*time.Minute {
			tt.end(organization)
			tt.clock.Advance(2 * time.Second)
			tt.rounds(by)
		}
	}
	if len(late) == 0 || late[0] != 3*time.Second {
		t.Errorf("found %v, expected 3s first", late)
	}
	for _, d := range late {
		if d > 90*time.Second {
			t.Errorf("found a run that was %s late, expected at most the catch-up window", d)
		}
	}
	if counted[schedule.Missed] < 15 || counted[schedule.Started] < 3 {
		t.Errorf("counted %v", counted)
	}
}

// A change keeps the program, modules, inputs, secrets and labels that it leaves out, and is refused where the schedule
// is not the expected version; what is kept is that of the version which is replaced.
func TestAScheduleIsChangedWithWhatItKeeps(t *testing.T) {
	t.Parallel()
	s := start(t)
	spec := func(every time.Duration) *autoflowv1.ScheduleSpec {
		return &autoflowv1.ScheduleSpec{Every: durationpb.New(every)}
	}
	version := func(n int32) *int32 { return &n }
	first := &autoflowv1.RegisterScheduleRequest{
		OrganizationId: organization, Name: "tick", Spec: spec(time.Hour), Inputs: []byte(`{"who": "me"}`), Labels: map[string]string{"team": "shop"},
		Starlark: []byte("load('lib.star', 'x')\nprint(x, who)\n"), Modules: map[string][]byte{"lib.star": []byte("x = 1\n")},
		ExpectedVersion: version(0),
	}
	keep := &autoflowv1.RegisterScheduleRequest{OrganizationId: organization, Name: "tick", Spec: spec(time.Minute), Keep: true}
	if _, err := s.RegisterSchedule(t.Context(), keep); !fault.Is(err, fault.NotFound) {
		t.Errorf("keeping what does not exist: found %v", err)
	}
	if _, err := s.RegisterSchedule(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	if again, err := s.RegisterSchedule(t.Context(), first); err != nil || again.GetCreated() {
		t.Errorf("a repeat: found %v, error %v, expected that nothing has changed", again, err)
	}
	other := &autoflowv1.RegisterScheduleRequest{
		OrganizationId: organization, Name: "tick", Spec: spec(time.Hour), Starlark: []byte("x = 1"), ExpectedVersion: version(0),
	}
	if _, err := s.RegisterSchedule(t.Context(), other); !fault.Is(err, fault.Conflict) {
		t.Errorf("a new one of a taken name: found %v", err)
	}
	content := func() *autoflowv1.ScheduleContent {
		t.Helper()
		found, err := s.GetSchedule(t.Context(), &autoflowv1.GetScheduleRequest{OrganizationId: organization, Name: "tick", IncludeContent: true})
		if err != nil {
			t.Fatal(err)
		}
		return found.GetContent()
	}
	before := content()
	keep.ExpectedVersion = version(1)
	changed, err := s.RegisterSchedule(t.Context(), keep)
	if err != nil || changed.GetSchedule().GetVersion() != 2 || changed.GetSchedule().GetSpec().GetEvery().AsDuration() != time.Minute {
		t.Fatal(changed, err)
	}
	if after := content(); !proto.Equal(before, after) || string(after.GetModules()["lib.star"]) != "x = 1\n" || len(after.GetInputs()) == 0 {
		t.Errorf("found %v, expected what was kept: %v", after, before)
	}
	if again, err := s.RegisterSchedule(t.Context(), keep); !fault.Is(err, fault.Conflict) {
		t.Errorf("a change of version 1 again: found %v, error %v", again, err)
	}
	keep.ExpectedVersion, keep.Starlark = nil, []byte("print(who)\n")
	if _, err := s.RegisterSchedule(t.Context(), keep); err != nil {
		t.Fatal(err)
	}
	if after := content(); string(after.GetStarlark()) != "print(who)\n" || string(after.GetInputs()) != string(before.GetInputs()) {
		t.Errorf("found %v, expected another program with the inputs of before", after)
	}
	without, err := s.GetSchedule(t.Context(), &autoflowv1.GetScheduleRequest{OrganizationId: organization, Name: "tick"})
	if err != nil || without.GetContent() != nil {
		t.Errorf("found %v, error %v, expected no content that was not requested", without, err)
	}
	// Many change it at once: each change is of the version that it has read, so that none is lost.
	keep.Starlark = nil
	var group sync.WaitGroup
	var done, conflicts atomic.Int32
	for i := range 8 {
		group.Go(func() {
			one := proto.CloneOf(keep)
			one.Spec, one.ExpectedVersion = spec(time.Duration(i+2)*time.Minute), version(3)
			switch _, err := s.RegisterSchedule(t.Context(), one); {
			case err == nil:
				done.Add(1)
			case fault.Is(err, fault.Conflict):
				conflicts.Add(1)
			default:
				t.Error(err)
			}
		})
	}
	group.Wait()
	if done.Load() != 1 || conflicts.Load() != 7 {
		t.Errorf("found %d changes and %d conflicts, expected one change of version 3", done.Load(), conflicts.Load())
	}
}
