package graph_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/handoff"
)

// runs is the workflow engine: it has runs of our organization, and takes notes of what it is asked to do.
type runs struct {
	mu    sync.Mutex
	asked []string
	// paused is of the schedule.
	paused bool
}

func (*runs) all() []handoff.WorkflowRun {
	at := time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)
	over := at.Add(time.Minute)
	return []handoff.WorkflowRun{
		{
			ID: "rollout-2", Ref: "run-2", State: handoff.WorkflowParked, Program: "deploy", Subject: "rollout_2", CreatedAt: at, UpdatedAt: at,
			LastSequence: 7, Parent: "release-1", Status: []handoff.WorkflowPair{{Key: "phase", Value: `"soak"`}}, Generation: 3, GenerationSequence: 5, WaitingFor: []string{"an answer to gate production"},
		},
		{
			ID: "environment-3-1", Ref: "run-1", State: handoff.WorkflowFailed, Error: "onboard.star:12: no such namespace", Program: "onboarding",
			Subject: "environment_3", CreatedAt: at, UpdatedAt: at, FinishedAt: &over,
		},
	}
}

func (r *runs) ListWorkflows(
	_ context.Context, organization int64, f handoff.WorkflowFilter, p core.Page,
) (s core.Slice[handoff.WorkflowRun], err error) {
	if organization != ours {
		return s, nil
	}
	for _, w := range r.all() {
		if (len(f.States) == 0 || slices.Contains(f.States, w.State)) && (f.Program == "" || f.Program == w.Program) &&
			(f.Subject == "" || f.Subject == w.Subject) && (f.Parent == "" || f.Parent == w.Parent) &&
			strings.Contains(w.ID, f.IDContains) && (len(f.Status) == 0 || slices.Equal(f.Status, w.Status)) &&
			(f.StartedAfter == nil || !w.CreatedAt.Before(*f.StartedAfter)) {
			s.Nodes = append(s.Nodes, w)
		}
	}
	if len(s.Nodes) > p.First {
		s.Nodes, s.HasNext = s.Nodes[:p.First], true
	}
	for _, w := range s.Nodes {
		s.Cursors = append(s.Cursors, "behind "+w.ID)
	}
	return s, nil
}

func (r *runs) CountWorkflows(ctx context.Context, organization int64, f handoff.WorkflowFilter) (handoff.WorkflowCount, error) {
	s, err := r.ListWorkflows(ctx, organization, f, core.Page{First: 100})
	return handoff.WorkflowCount{Count: len(s.Nodes)}, err
}

func (r *runs) WorkflowByID(_ context.Context, organization int64, id string) (handoff.WorkflowRun, error) {
	for _, w := range r.all() {
		if organization == ours && w.ID == id {
			return w, nil
		}
	}
	return handoff.WorkflowRun{}, fault.New(fault.NotFound, "workflow %q does not exist", id)
}

func (r *runs) WorkflowHistory(context.Context, int64, string, core.Page) (core.Slice[handoff.WorkflowEntry], error) {
	return core.Slice[handoff.WorkflowEntry]{Nodes: []handoff.WorkflowEntry{{
		Sequence: 1, Generation: 2, Kind: "run", Name: "argo.sync",
		Value: `{"ok":true}`,
	}}, HasNext: true, Cursors: []string{"h2"}}, nil
}

func (r *runs) WorkflowLogs(context.Context, int64, string, core.Page) (core.Slice[handoff.WorkflowLine], error) {
	return core.Slice[handoff.WorkflowLine]{Nodes: []handoff.WorkflowLine{{
		Sequence: 2, Branch: 1, Kind: "print", Text: "token [redacted]",
		Redacted: true,
	}}, Cursors: []string{"l3"}}, nil
}

// WorkflowTimeline checks the query that the engine receives; whether it shows inputs is decided there.
func (r *runs) WorkflowTimeline(
	_ context.Context, organization int64, id string, q handoff.TimelineQuery,
) (handoff.WorkflowTimeline, error) {
	step := handoff.WorkflowStep{Sequence: 4, Branch: 1, Kind: "run", Name: "argo.sync", Position: "main.star:3:5", Output: "{}"}
	next := time.Date(2026, 3, 2, 9, 30, 0, 0, time.UTC)
	step.RetriesCount, step.Retries = 24, []handoff.CallRetry{{Number: 1, EndedAt: next, Code: "busy", Message: "later", NextAt: &next}}
	if q.Inputs {
		step.Input = fmt.Sprintf("%d %s first %d before %d", organization, id, q.First, q.Before)
	}
	return handoff.WorkflowTimeline{
		Branches: []handoff.WorkflowBranch{{Branch: 1, Parent: 0}}, Steps: []handoff.WorkflowStep{step}, Earlier: true, Inputs: q.Inputs,
	}, nil
}

func (r *runs) RetryWorkflow(_ context.Context, organization int64, id, reason string, from int64) error {
	return r.note(organization, id, fmt.Sprintf("retry %s from %d: %s", id, from, reason))
}

func (r *runs) Cancel(_ context.Context, organization int64, id, reason string) error {
	return r.note(organization, id, fmt.Sprintf("cancel %s: %s", id, reason))
}

func (r *runs) note(organization int64, id, what string) error {
	if _, err := r.WorkflowByID(context.Background(), organization, id); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked = append(r.asked, what)
	return nil
}

func TestWorkflowsAreLookedAtInTheEngine(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	type run struct {
		WorkflowID, State, Error, Program, Subject string
		ViewerCan                                  []struct {
			Action, Reason string
			Allowed        bool
		}
	}
	list := func(args string) []string {
		var data struct {
			Workflows struct {
				Nodes    []run
				PageInfo struct{ HasNextPage bool }
			}
		}
		f.ask(ours, `{ workflows`+args+` { nodes { workflowId state error program subject } pageInfo { hasNextPage } } }`, nil).into(t, &data)
		var ids []string
		for _, w := range data.Workflows.Nodes {
			ids = append(ids, w.WorkflowID+" "+w.State)
		}
		if data.Workflows.PageInfo.HasNextPage {
			ids = append(ids, "…")
		}
		return ids
	}
	for args, want := range map[string][]string{
		"":                         {"rollout-2 PARKED", "environment-3-1 FAILED"},
		"(first: 1)":               {"rollout-2 PARKED", "…"},
		"(states: [FAILED])":       {"environment-3-1 FAILED"},
		`(program: "deploy")`:      {"rollout-2 PARKED"},
		`(subject: "rollout_999")`: nil,
	} {
		if diff := cmp.Diff(want, list(args)); diff != "" {
			t.Errorf("workflows%s: (-want +got)\n%s", args, diff)
		}
	}
	var one struct {
		Workflow struct {
			WaitingFor                     []string
			Generation, GenerationSequence int
			History                        struct {
				Nodes []struct {
					Name, Value string
					Generation  int
				}
				PageInfo struct{ EndCursor string }
			}
			Logs      struct{ Nodes []struct{ Text string } }
			ViewerCan []struct {
				Action, Reason string
				Allowed        bool
			}
		}
	}
	query := `query($id: String!) { workflow(workflowId: $id) { waitingFor generation generationSequence history { nodes { name value generation } edges { cursor node { sequence } } pageInfo { endCursor } } logs { nodes { text } } viewerCan { action allowed reason } } }`
	f.ask(ours, query, map[string]any{"id": "rollout-2"}).into(t, &one)
	if w := one.Workflow; len(w.WaitingFor) != 1 || w.History.Nodes[0].Name != "argo.sync" || w.History.PageInfo.EndCursor != "h2" ||
		w.Generation != 3 || w.GenerationSequence != 5 || w.History.Nodes[0].Generation != 2 || w.Logs.Nodes[0].Text != "token [redacted]" {
		t.Errorf("found %+v", one)
	}
	if can := one.Workflow.ViewerCan; can[0].Allowed || !strings.Contains(can[0].Reason, "rollout-2 is parked") || !can[1].Allowed {
		t.Errorf("a run that is parked: %+v; want it to be cancelled, not retried", can)
	}
}

// The arguments of calls are for those who may interfere with runs.
func TestATimelineShowsInputsToThoseWhoMayRetry(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	look := func() (input string, inputs bool) {
		var data struct {
			Workflow struct {
				Timeline struct {
					Steps []struct {
						Sequence, RetriesCount int
						Input, Position        string
						Retries                []struct {
							Number          int
							Code            string
							BeganAt, NextAt *string
						}
					}
					Branches        []struct{ Branch, Parent int }
					Earlier, Inputs bool
				}
			}
		}
		f.ask(ours, `{ workflow(workflowId: "rollout-2") { timeline(first: 7, beforeSequence: 9) {
			steps { sequence input position retriesCount retries { number beganAt endedAt code message nextAt } }
			branches { branch parent } earlier inputs } } }`, nil).into(t, &data)
		got := data.Workflow.Timeline
		if len(got.Steps) != 1 || got.Steps[0].Sequence != 4 || len(got.Branches) != 1 || got.Branches[0].Branch != 1 || !got.Earlier {
			t.Fatalf("found %+v", got)
		}
		r := got.Steps[0].Retries
		if got.Steps[0].RetriesCount != 24 || len(r) != 1 || r[0].Number != 1 || r[0].Code != "busy" ||
			r[0].BeganAt != nil || r[0].NextAt == nil {
			t.Errorf("found the failed attempts %+v", r)
		}
		return got.Steps[0].Input, got.Inputs
	}
	if input, inputs := look(); !inputs || !strings.HasSuffix(input, " rollout-2 first 7 before 9") {
		t.Errorf("an owner: found %q, %t", input, inputs)
	}
	f.as = core.RoleDeployer.Permissions()
	if input, inputs := look(); inputs || input != "" {
		t.Errorf("a deployer: found %q, %t", input, inputs)
	}
}

// What programs report, who has started whom, and conditions with a number.
func TestWorkflowsShowStatusAndFamilyAndMeetConditions(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	var data struct {
		Workflow struct {
			Parent   string
			Status   []struct{ Key, Value string }
			Children struct{ Nodes []struct{ WorkflowID string } }
		}
	}
	f.ask(ours, `{ workflow(workflowId: "rollout-2") { parent status { key value } children { nodes { workflowId } } } }`, nil).into(t, &data)
	if w := data.Workflow; w.Parent != "release-1" || len(w.Status) != 1 || w.Status[0].Value != `"soak"` || len(w.Children.Nodes) != 0 {
		t.Errorf("found %+v", w)
	}
	for filter, want := range map[string]int{
		`{}`:                    2,
		`{idContains: "ment-"}`: 1,
		`{status: [{key: "phase", value: "\"soak\""}]}`: 1,
		`{startedAfter: "2026-11-21T00:00:00Z"}`:        0,
	} {
		var found struct {
			Workflows     struct{ Nodes []struct{ WorkflowID string } }
			WorkflowCount struct {
				Count   int
				AtLeast bool
			}
		}
		f.ask(ours, `{ workflows(filter: `+filter+`) { nodes { workflowId } } workflowCount(filter: `+filter+`) { count atLeast } }`, nil).into(t, &found)
		if len(found.Workflows.Nodes) != want || found.WorkflowCount.Count != want {
			t.Errorf("%s: found %+v; want %d", filter, found, want)
		}
		f.ask(theirs, `{ workflowCount(filter: `+filter+`) { count } }`, nil).into(t, &found)
		if found.WorkflowCount.Count != 0 {
			t.Errorf("%s: another organization's are counted: %+v", filter, found)
		}
	}
}

func TestWorkflowsAreRetriedAndCancelledByThoseWhoConfigure(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	change := func(organization int64, mutation, input string) []userError {
		var data struct{ It struct{ Errors []userError } }
		f.ask(organization, `mutation { it: `+mutation+`(input: {`+input+`}) { workflow { state } errors { code message field } } }`,
			nil).into(t, &data)
		return data.It.Errors
	}
	if found := change(ours, "retryWorkflow", `workflowId: "environment-3-1", reason: "mended", fromSequence: 4`); len(found) > 0 {
		t.Errorf("found %+v", found)
	}
	if found := change(ours, "cancelWorkflow", `workflowId: "rollout-2"`); len(found) > 0 {
		t.Errorf("found %+v", found)
	}
	if diff := cmp.Diff([]string{"retry environment-3-1 from 4: mended", "cancel rollout-2: "}, f.runs.asked); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	for _, mutation := range []string{"retryWorkflow", "cancelWorkflow"} {
		if found := change(theirs, mutation, `workflowId: "rollout-2"`); len(found) != 1 || found[0].Code != "NOT_FOUND" {
			t.Errorf("%s of another organization's: found %+v", mutation, found)
		}
		f.as = core.RoleDeployer.Permissions()
		if found := change(ours, mutation, `workflowId: "rollout-2"`); len(found) != 1 || found[0].Code != "DENIED" {
			t.Errorf("%s by a deployer: found %+v", mutation, found)
		}
		f.as = core.RoleOwner.Permissions()
	}
}

func TestAPipelineIsCheckedAsItIsWritten(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.environment(ours, "staging", core.TierStaging)
	check := func(definition any) []string {
		var data struct {
			It []struct{ Pointer, Message string }
		}
		f.ask(ours, `query($d: JSON!) { it: validateFlowDefinition(definition: $d) { pointer message } }`,
			map[string]any{"d": definition}).into(t, &data)
		var pointers []string
		for _, p := range data.It {
			pointers = append(pointers, p.Pointer)
		}
		slices.Sort(pointers)
		return slices.Compact(pointers)
	}
	deploy := func(environment string, weights ...int) map[string]any {
		gates := []any{}
		for _, w := range weights {
			gates = append(gates, map[string]any{"weight": w})
		}
		return map[string]any{"type": "deploy", "environment": environment, "gates": gates, "config": map[string]any{
			"namespace": "argocd", "application": "shop", "rollout_strategy": "canary", "use_load_balancing": false,
			"repository_url": "https://git.example.com/shop.git",
			"path":           "x", "destination_namespace": "shop",
			"services": []any{map[string]any{"service": "api", "file": "x/api.yaml", "container": "api"}},
		}}
	}
	steps := func(all ...any) map[string]any { return map[string]any{"steps": all} }
	for name, c := range map[string]struct {
		definition any
		want       []string
	}{
		"right":                    {steps(deploy("staging", 25, 100)), nil},
		"weights that fall":        {steps(deploy("staging", 50, 25)), []string{"/steps/0/gates/1/weight"}},
		"no such environment":      {steps(deploy("nowhere", 25)), []string{"/steps/0/environment"}},
		"a step that nobody knows": {steps(deploy("staging", 25), map[string]any{"type": "dance"}), []string{"/steps/1/type"}},
		"the driver's own finding": {steps(map[string]any{
			"type": "deploy", "environment": "staging", "gates": []any{},
			"config": map[string]any{},
		}), nil},
		"something else than pipeline": {[]any{}, []string{""}},
	} {
		got := check(c.definition)
		if name == "the driver's own finding" {
			if len(got) == 0 || !strings.HasPrefix(got[0], "/steps/0/config") {
				t.Errorf("%s: found %v; want it located in the configuration", name, got)
			}
			continue
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", name, diff)
		}
	}
}
