package graph_test

import (
	"context"
	"encoding/json"
	"fmt"
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
		Name: "nightly", Version: 1, ScheduleTimes: handoff.ScheduleTimes{Cron: []string{"0 3 * * *"}, TimeZone: "Europe/Berlin"},
		Overlap: handoff.OverlapSkip, Paused: r.paused,
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

func (r *runs) ScheduleContent(context.Context, int64, string) (handoff.ScheduleContent, error) {
	return handoff.ScheduleContent{Program: "x = 1", Inputs: json.RawMessage(`{"a":1}`)}, nil
}

func (r *runs) RegisterSchedule(_ context.Context, _ int64, s handoff.ScheduleRegistration) error {
	switch {
	case s.EverySeconds < 0:
		return fault.InvalidFields(fault.Field{Name: "every", Problem: "found -1s"}, fault.Field{Name: "starlark", Problem: "main.star:1:1: no"},
			fault.Field{Name: "spec.start", Problem: "found no time"}, fault.Field{Name: "cron.0", Problem: "found x"})
	case s.Version > 1:
		return fault.New(fault.Conflict, "it was changed meanwhile")
	}
	kept := "kept"
	if s.Program != nil {
		kept = *s.Program
	}
	return r.set(s.Paused, fmt.Sprintf("register %s %d: %s", s.Name, s.Version, kept))
}

func (r *runs) BackfillSchedule(_ context.Context, _ int64, name string, b handoff.Backfill) (handoff.Backfilled, error) {
	return handoff.Backfilled{Due: 3, Added: 2}, r.set(r.paused, fmt.Sprintf("backfill %s %s %s", name, b.To.Sub(b.From), b.Overlap))
}

func (r *runs) ListFunctions(_ context.Context, organization int64) ([]handoff.Function, error) {
	if organization != ours {
		return []handoff.Function{{Name: "http.request", Effect: handoff.FunctionChanges}}, nil
	}
	return []handoff.Function{
		{Name: "http.request", Effect: handoff.FunctionChanges},
		{Name: "shop.reserve", Effect: handoff.FunctionReads, Worker: true, Connected: 2, ArgumentsSchema: json.RawMessage(`{"type":"object"}`)},
	}, nil
}

func (r *runs) DeleteSchedule(_ context.Context, _ int64, name string) error {
	return r.set(r.paused, "delete "+name)
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

// Schedules are looked at by everybody, and paused, resumed and triggered by those who configure.
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
		{"registerWorkflowSchedule", true},
		{"pauseWorkflowSchedule", true},
		{"resumeWorkflowSchedule", false},
		{"triggerWorkflowSchedule", true},
		{"backfillWorkflowSchedule", true},
		{"deleteWorkflowSchedule", true},
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
	for _, verb := range []string{"pause", "resume", "trigger", "delete"} {
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

// Schedules are registered, changed, backfilled and deleted by those who configure; a change is of the version that was
// read; what is wrong is reported at the input's field; the journal has what was asked for, and what was refused.
func TestSchedulesAreMadeAndChanged(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	type payload struct {
		Schedule   *struct{ Name string }
		Due, Added int
		Errors     []userError
	}
	do := func(organization int64, mutation, input string) payload {
		t.Helper()
		var data struct{ It payload }
		more := ""
		if mutation == "backfillWorkflowSchedule" {
			more = "due added"
		}
		f.ask(organization, fmt.Sprintf(
			`mutation { it: %s(input: {%s}) { schedule { name } %s errors { code message field } } }`, mutation, input, more,
		), nil).into(t, &data)
		return data.It
	}
	const register, backfill, remove = "registerWorkflowSchedule", "backfillWorkflowSchedule", "deleteWorkflowSchedule"
	const night = `name: "nightly", cron: ["0 3 * * *"]`
	if p := do(ours, register, night); len(p.Errors) != 1 || p.Errors[0].Field[0] != "program" {
		t.Errorf("without a program: found %+v", p)
	}
	if p := do(ours, register, night+`, program: "x = 1", reason: "new"`); len(p.Errors) > 0 || p.Schedule.Name != "nightly" {
		t.Errorf("a new one: found %+v", p)
	}
	if p := do(ours, register, night+`, version: 1`); len(p.Errors) > 0 {
		t.Errorf("a change: found %+v", p)
	}
	if p := do(ours, register, night+`, version: 1, program: ""`); len(p.Errors) != 1 || p.Errors[0].Field[0] != "program" {
		t.Errorf("a change to an empty program: found %+v", p) // the engine would keep the old one
	}
	if p := do(ours, register, night+`, version: 2`); len(p.Errors) != 1 || p.Errors[0].Code != "CONFLICT" {
		t.Errorf("a change of another version: found %+v", p)
	}
	var fields [][]string
	for _, e := range do(ours, register, `name: "nightly", everySeconds: -1, program: "x"`).Errors {
		fields = append(fields, e.Field)
	}
	if diff := cmp.Diff([][]string{{"everySeconds"}, {"program"}, {"startAt"}, {"cron", "0"}}, fields); diff != "" {
		t.Errorf("fields (-want +got)\n%s", diff)
	}
	const days = `name: "nightly", from: "2026-11-01T00:00:00Z", to: "2026-11-03T00:00:00Z", overlap: ALLOW`
	if p := do(ours, backfill, days); len(p.Errors) > 0 || p.Due != 3 || p.Added != 2 {
		t.Errorf("a backfill: found %+v", p)
	}
	if p := do(ours, remove, `name: "nightly"`); len(p.Errors) > 0 || p.Schedule.Name != "nightly" {
		t.Errorf("a deletion: found %+v", p)
	}
	if diff := cmp.Diff([]string{
		"register nightly 0: x = 1", "register nightly 1: kept", "backfill nightly 48h0m0s allow", "delete nightly",
	}, f.runs.asked); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	var journal struct {
		Audit struct {
			Nodes []struct{ Action, Detail string }
		}
	}
	f.ask(ours, `{ audit(first: 50) { nodes { action detail } } }`, nil).into(t, &journal)
	count := map[string]int{}
	for _, n := range journal.Audit.Nodes {
		count[n.Action]++
	}
	if count[register] != 6 || count[backfill] != 1 || count[remove] != 1 { // two registrations were refused by the engine
		t.Errorf("the journal has %v: %+v", count, journal)
	}
	var content struct {
		WorkflowSchedule struct {
			Content *struct {
				Program string
				Inputs  map[string]int
			}
		}
	}
	const question = `{ workflowSchedule(name: "nightly") { content { program inputs } } }`
	if f.ask(ours, question, nil).into(t, &content); content.WorkflowSchedule.Content.Inputs["a"] != 1 {
		t.Errorf("found %+v", content)
	}
	if p := do(theirs, backfill, days); len(p.Errors) != 1 || p.Errors[0].Code != "NOT_FOUND" {
		t.Errorf("another organization's: found %+v", p)
	}
	f.as = core.RoleDeployer.Permissions()
	content.WorkflowSchedule.Content = nil
	if f.ask(ours, question, nil).into(t, &content); content.WorkflowSchedule.Content != nil {
		t.Errorf("a deployer sees %+v", content)
	}
	for mutation, input := range map[string]string{register: night + `, program: "x"`, backfill: days} {
		if p := do(ours, mutation, input); len(p.Errors) != 1 || p.Errors[0].Code != "DENIED" {
			t.Errorf("%s by a deployer: found %+v", mutation, p)
		}
	}
}

// An organization sees the Functions of its own workers, with their schemas, beside those of the engine.
func TestFunctionsOfAnOrganizationAreShown(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	type shown struct {
		Name, Effect    string
		Worker          bool
		Connected       int
		ArgumentsSchema map[string]string
	}
	for organization, want := range map[int64][]shown{
		ours: {
			{Name: "http.request", Effect: "CHANGES"},
			{Name: "shop.reserve", Effect: "READS", Worker: true, Connected: 2, ArgumentsSchema: map[string]string{"type": "object"}},
		},
		theirs: {{Name: "http.request", Effect: "CHANGES"}},
	} {
		var data struct{ WorkflowFunctions []shown }
		f.ask(organization, `{ workflowFunctions { name effect worker connected argumentsSchema } }`, nil).into(t, &data)
		if diff := cmp.Diff(want, data.WorkflowFunctions); diff != "" {
			t.Errorf("organization %d (-want +got)\n%s", organization, diff)
		}
	}
}
