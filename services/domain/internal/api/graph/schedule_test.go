package graph_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/handoff"
)

func (r *runs) schedule() handoff.Schedule {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)
	return handoff.Schedule{
		Name: "nightly", Version: 1, Cron: []string{"0 3 * * *"}, TimeZone: "Europe/Berlin", Overlap: handoff.OverlapSkip, Paused: r.paused,
		CreatedAt: at, ChangedAt: at, NextDueTimes: []time.Time{at},
		Fires: []handoff.ScheduleFire{{DueAt: at, Outcome: handoff.FireSkipped, Detail: "another one was under way", Count: 1}},
	}
}

func (r *runs) ListSchedules(_ context.Context, organization int64, _ core.Page) (s core.Slice[handoff.Schedule], err error) {
	if organization == ours {
		s.Nodes, s.Cursors = []handoff.Schedule{r.schedule()}, []string{"s1"}
	}
	return s, nil
}

func (r *runs) ScheduleByName(_ context.Context, organization int64, name string) (handoff.Schedule, error) {
	if organization != ours || name != "nightly" {
		return handoff.Schedule{}, fault.New(fault.NotFound, "schedule %q does not exist", name)
	}
	return r.schedule(), nil
}

func (r *runs) PauseSchedule(_ context.Context, _ int64, name, note string) error {
	return r.set(true, "pause "+name+": "+note)
}

func (r *runs) ResumeSchedule(_ context.Context, _ int64, name, note string) error {
	return r.set(false, "resume "+name+": "+note)
}

func (r *runs) TriggerSchedule(_ context.Context, _ int64, name string) (string, error) {
	return "schedule/" + name + "/1/20261120T100000Z", r.set(r.paused, "trigger "+name)
}

func (r *runs) set(paused bool, what string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.paused = paused
	r.asked = append(r.asked, what)
	return nil
}

// Issue 18, item 1: schedules are looked at by everybody, and paused, resumed and triggered by those who configure.
func TestSchedulesAreLookedAtAndOperated(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	type ability struct {
		Action  string
		Allowed bool
	}
	var read struct {
		WorkflowSchedules struct{ Nodes []struct{ Name string } }
		WorkflowSchedule  struct {
			Cron      []string
			TimeZone  string
			Overlap   string
			Fires     []struct{ Outcome, Detail string }
			ViewerCan []ability
		}
	}
	const question = `{ workflowSchedules { nodes { name } } workflowSchedule(name: "nightly") {
		cron timeZone overlap fires { outcome detail } viewerCan { action allowed } } }`
	f.ask(ours, question, nil).into(t, &read)
	s := read.WorkflowSchedule
	if len(read.WorkflowSchedules.Nodes) != 1 || s.Cron[0] != "0 3 * * *" || s.TimeZone != "Europe/Berlin" || s.Overlap != "SKIP" ||
		s.Fires[0].Outcome != "SKIPPED" {
		t.Errorf("found %+v", read)
	}
	if diff := cmp.Diff([]ability{
		{"pauseWorkflowSchedule", true}, {"resumeWorkflowSchedule", false}, {"triggerWorkflowSchedule", true},
	}, s.ViewerCan); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	change := func(organization int64, verb string) string {
		var data struct {
			It struct {
				WorkflowID string
				Errors     []userError
			}
		}
		f.ask(organization, `mutation { it: `+verb+`WorkflowSchedule(input: {name: "nightly", reason: "why"}) {
			workflowId schedule { name } errors { code message field } } }`, nil).into(t, &data)
		if len(data.It.Errors) > 0 {
			return data.It.Errors[0].Code
		}
		return data.It.WorkflowID
	}
	for _, step := range []struct{ verb, want string }{
		{"resume", "REFUSED"},
		{"pause", ""},
		{"pause", "REFUSED"},
		{"trigger", "schedule/nightly/1/20261120T100000Z"},
		{"resume", ""},
	} {
		if found := change(ours, step.verb); found != step.want {
			t.Errorf("%s: found %q; want %q", step.verb, found, step.want)
		}
	}
	if diff := cmp.Diff([]string{"pause nightly: why", "trigger nightly", "resume nightly: why"}, f.runs.asked); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	for _, verb := range []string{"pause", "resume", "trigger"} {
		if found := change(theirs, verb); found != "NOT_FOUND" {
			t.Errorf("%s of another organization's: found %q", verb, found)
		}
		f.as = core.RoleDeployer.Permissions()
		if found := change(ours, verb); found != "DENIED" {
			t.Errorf("%s by a deployer: found %q", verb, found)
		}
		f.as = core.RoleOwner.Permissions()
	}
}
