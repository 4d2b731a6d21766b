package workflow_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/testkit/bustest"
	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/control"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/execution"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/flow"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/program"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/script"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/store"
)

// ticking has two handlers for one type; one of them wants a certain value.
const ticking = `
def every(event):
    print("every", event.data.n)
def two(event):
    print("two", event.data.n)
on_event(type = "com.example.tick", handler = every)
on_event(type = "com.example.tick", filter = {"n": 2}, handler = two)
`

// tick sends an event, twice: the second time changes nothing.
func (s *service) tick(id string, n int) {
	s.t.Helper()
	text := strings.Replace(strings.Replace(cloudEvent, "ID", id, 1), `"n": 1`, fmt.Sprintf(`"n": %d`, n), 1)
	for range 2 {
		if _, err := s.CloudEvent(s.t.Context(), &autoflowv1.CloudEventRequest{CloudEvent: []byte(text)}); err != nil {
			s.t.Fatal(err)
		}
	}
}

// printed is what the runs of a flow have printed, the oldest run first.
func (s *service) printed(name string) (lines []string) {
	s.t.Helper()
	page, err := s.ListWorkflows(s.t.Context(), &autoflowv1.ListWorkflowsRequest{
		OrganizationId: organization,
		Labels:         map[string]string{"flow": name},
	})
	if err != nil {
		s.t.Fatal(err)
	}
	for _, w := range page.GetWorkflows() {
		log, err := s.GetLogs(s.t.Context(), &autoflowv1.GetLogsRequest{OrganizationId: organization, WorkflowId: w.GetWorkflowId()})
		if err != nil {
			s.t.Fatal(err)
		}
		for _, l := range log.GetLines() {
			if l.GetKind() == "print" {
				lines = append([]string{w.GetLabels()["handler"] + ": " + l.GetText()}, lines...)
			}
		}
	}
	return lines
}

func TestAnEventStartsARunForEachHandler(t *testing.T) {
	t.Parallel()
	s := start(t)
	register := func(program string) *autoflowv1.RegisterFlowResponse {
		t.Helper()
		resp, err := s.RegisterFlow(t.Context(), &autoflowv1.RegisterFlowRequest{
			OrganizationId: organization, Name: "ticks",
			Starlark: []byte(program),
		})
		if err != nil {
			t.Fatal(err)
		}
		return resp
	}
	runs := func(want ...string) {
		t.Helper()
		var found []string
		s.eventually(fmt.Sprintf("%d runs have printed", len(want)), func(context.Context) bool {
			found = s.printed("ticks")
			return len(found) >= len(want)
		})
		if diff := cmp.Diff(want, found); diff != "" {
			t.Errorf("runs (-want +got):\n%s", diff)
		}
	}
	s.tick("before", 2) // no flow handled it when it arrived, and none is started for it later
	if first := register(ticking); !first.GetCreated() || first.GetFlow().GetVersion() != 1 || len(first.GetFlow().GetHandlers()) != 2 {
		t.Errorf("first: %v", first)
	}
	if again := register(ticking); again.GetCreated() || again.GetFlow().GetVersion() != 1 {
		t.Errorf("the same again: %v", again)
	}
	s.tick("a", 1)
	runs("every: every 1")
	s.tick("b", 2)
	runs("every: every 1", "every: every 2", "two: two 2")
	if next := register(strings.ReplaceAll(ticking, `"every"`, `"each"`)); !next.GetCreated() || next.GetFlow().GetVersion() != 2 {
		t.Errorf("another version: %v", next)
	}
	s.tick("c", 1)
	runs("every: every 1", "every: every 2", "two: two 2", "every: each 1")
	// A run exists before it is counted.
	s.eventually("each run is counted", func(ctx context.Context) bool {
		list, err := s.ListFlows(ctx, &autoflowv1.ListFlowsRequest{OrganizationId: organization})
		return err == nil && len(list.GetFlows()) == 1 && list.GetFlows()[0].GetVersion() == 2 && list.GetFlows()[0].GetStarted() == 4 &&
			list.GetFlows()[0].GetRefused() == 0
	})
	if _, err := s.DeleteFlow(t.Context(), &autoflowv1.DeleteFlowRequest{OrganizationId: organization, Name: "ticks"}); err != nil {
		t.Fatal(err)
	}
	s.tick("d", 1)
	register(ticking) // its events come after d: if d still started a run, it would be there before theirs
	s.tick("e", 1)
	runs("every: every 1", "every: every 2", "two: two 2", "every: each 1", "every: every 1")
	if _, err := s.DeleteFlow(t.Context(), &autoflowv1.DeleteFlowRequest{OrganizationId: organization, Name: "none"}); !fault.Is(err,
		fault.NotFound) {
		t.Errorf("delete what is not there: %v", err)
	}
}

func TestListFlowsByPages(t *testing.T) {
	t.Parallel()
	s := start(t)
	for _, name := range []string{"b", "c", "a"} {
		if _, err := s.RegisterFlow(t.Context(), &autoflowv1.RegisterFlowRequest{
			OrganizationId: organization, Name: name,
			Starlark: []byte(ticking),
		}); err != nil {
			t.Fatal(err)
		}
	}
	var names []string
	for token := ""; ; {
		page, err := s.ListFlows(t.Context(), &autoflowv1.ListFlowsRequest{OrganizationId: organization, PageSize: 1, PageToken: token})
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range page.GetFlows() {
			names = append(names, f.GetName())
		}
		if token = page.GetNextPageToken(); token == "" {
			break
		}
	}
	if diff := cmp.Diff([]string{"a", "b", "c"}, names); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// dying is a store whose process dies between the start of a run and the record of it, every other time.
type dying struct {
	*store.Store
	deaths atomic.Int64
}

func (d *dying) FlowWorkDone(ctx context.Context, w flow.Work, o flow.Outcome) error {
	if d.deaths.Add(1)%2 == 1 {
		return errors.New("died")
	}
	return d.Store.FlowWorkDone(ctx, w, o)
}

// TestFlowsStartEachRunOnce has two processes start runs that die in the middle, from events that come twice.
func TestFlowsStartEachRunOnce(t *testing.T) {
	t.Parallel()
	e := newEngines(t)
	ctx := t.Context()
	kept := &dying{Store: e.store}
	var created atomic.Int64
	var ahead atomic.Int64 // the wait for another attempt is not waited for
	flows := func() *flow.Flows {
		return flow.NewFlows(flow.Deps{
			Store: kept, Scripts: script.New(script.Limits{}), Clock: shifted{clock.System(), &ahead}, Log: bustest.Log(t),
			Start: func(ctx context.Context, s execution.Start) (execution.Started, error) {
				started, err := e.service.Start(ctx, s)
				if err == nil && started.Created {
					created.Add(1)
				}
				return started, err
			},
		})
	}
	first, second := flows(), flows()
	if _, _, err := first.Register(ctx, flow.Flow{
		Organization: 1, Name: "ticks",
		Program: program.Program{Source: []byte(ticking)},
	}); err != nil {
		t.Fatal(err)
	}
	const ticks = 20
	for i := range ticks {
		event := history.Event{
			Organization: 1, Source: "/test", ID: fmt.Sprint(i), Type: "com.example.tick",
			Data: []byte(fmt.Sprintf(`{"n": %d}`, i%2+1)), Time: clock.System().Now(),
		}
		for range 2 {
			if _, _, err := e.service.Receive(ctx, event); err != nil {
				t.Fatal(err)
			}
		}
	}
	running, stop := context.WithCancel(ctx)
	var processes sync.WaitGroup
	for _, f := range []*flow.Flows{first, second} {
		processes.Go(func() { _ = f.Run(running) })
	}
	deadline := clock.System().Now().Add(within)
	for {
		list, err := e.store.ListFlows(ctx, 1, 0, 10)
		if err != nil {
			t.Fatal(err)
		}
		// What the filters leave out is gone through as well, before or after.
		var left int
		if err := e.store.Pool.QueryRow(ctx, "SELECT count(*) FROM flow_work").Scan(&left); err != nil {
			t.Fatal(err)
		}
		if list[0].Started == ticks*3/2 && left == 0 {
			break
		}
		if clock.System().Now().After(deadline) {
			t.Fatalf("%d runs were recorded, expected %d; %d events are left", list[0].Started, ticks*3/2, left)
		}
		ahead.Add(int64(time.Second))
		first.Wake() // as the lookout of its process would
		second.Wake()
		_ = clock.Sleep(ctx, clock.System(), 10*time.Millisecond)
	}
	stop()
	processes.Wait()
	if created.Load() != ticks*3/2 {
		t.Errorf("%d runs were started, expected %d", created.Load(), ticks*3/2)
	}
}

// shifted is a clock that is ahead.
type shifted struct {
	clock.Clock
	by *atomic.Int64
}

func (s shifted) Now() time.Time { return s.Clock.Now().Add(time.Duration(s.by.Load())) }

// A flow that was registered before the names of its modules were looked at starts its runs as ever. A caller's start is refused.
func TestARunOfAnOlderFlowBegins(t *testing.T) {
	t.Parallel()
	e := newEngines(t)
	older := execution.Start{
		Organization: 1, Workflow: "flow/older/0/1",
		Program: program.Program{Source: []byte("x = 1"), Modules: map[string][]byte{"a\nb": []byte("y = 1")}},
	}
	if _, err := e.service.Start(t.Context(), older); !fault.Is(err, fault.Invalid) {
		t.Errorf("found %v, expected a refusal", err)
	}
	if started, err := e.service.StartOfFlow(t.Context(), older); err != nil || !started.Created {
		t.Errorf("started %v, error %v", started, err)
	}
}

// TestARefusedRunIsCounted has a flow whose runs cannot be started: their inputs are too large.
func TestARefusedRunIsCounted(t *testing.T) {
	t.Parallel()
	e := newEngines(t)
	flows := flow.NewFlows(flow.Deps{
		Store: e.store, Scripts: script.New(script.Limits{}), Clock: clock.System(), Log: bustest.Log(t),
		Start: func(context.Context, execution.Start) (execution.Started, error) {
			return execution.Started{}, fault.New(fault.Invalid, "no")
		},
	})
	if _, _, err := flows.Register(t.Context(), flow.Flow{
		Organization: 1, Name: "ticks",
		Program: program.Program{Source: []byte(ticking)},
	}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := e.service.Receive(t.Context(), history.Event{
		Organization: 1, Source: "/test", ID: "1", Type: "com.example.tick",
		Data: []byte(`{"n": 1}`), Time: clock.System().Now(),
	}); err != nil {
		t.Fatal(err)
	}
	running, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = flows.Run(running) }()
	t.Cleanup(func() { stop(); <-done })
	for deadline := clock.System().Now().Add(within); ; {
		list, err := flows.List(t.Context(), 1, 0, 10)
		if err != nil || clock.System().Now().After(deadline) {
			t.Fatal("no refusal was counted", err)
		}
		if list[0].Refused == 1 && list[0].LastRefusal == "no" && list[0].Started == 0 {
			return
		}
		_ = clock.Sleep(t.Context(), clock.System(), 10*time.Millisecond)
	}
}

func TestCheckProgram(t *testing.T) {
	t.Parallel()
	s := start(t)
	check := func(program, inputs string) *autoflowv1.CheckProgramResponse {
		t.Helper()
		resp, err := s.CheckProgram(t.Context(), &autoflowv1.CheckProgramRequest{Starlark: []byte(program), Inputs: []byte(inputs)})
		if err != nil {
			t.Fatal(err)
		}
		return resp
	}
	good := check(`def main(rollout):
    run("k8s.get", {"agent_id": 7})
    run("emit", {"type": "com.gitlab.cd.rollout.started", "data": {"rollout_id": rollout}})
    wait_for_event("a.b")
    run("k8s." + verb, {})`, `{"rollout": 1, "verb": "get"}`)
	var found []string
	for _, list := range [][]*autoflowv1.Use{good.GetFunctions(), good.GetWaits(), good.GetEmits()} {
		for _, use := range list {
			found = append(found, use.GetName()+" "+use.GetPosition())
		}
	}
	found = append(append(found, good.GetInputs()...), good.GetDynamic()...)
	want := []string{
		"k8s.get main.star:2:8", "a.b main.star:4:19", "com.gitlab.cd.rollout.started main.star:3:8", "rollout",
		"verb", "main.star:5:8",
	}
	if diff := cmp.Diff(want, found); diff != "" || len(good.GetProblems()) > 0 {
		t.Errorf("problems %v, uses (-want +got):\n%s", good.GetProblems(), diff)
	}
	for program, want := range map[string]string{
		"x = ":                                   "starlark main.star:1:5: got end of file, want primary expression",
		`run("no.such")`:                         `starlark main.star:1:4: there is no function "no.such", expected one of emit, argo.abort, argo.analyze, argo.check, argo.end_analysis, argo.promote, argo.retry, argo.sync, argo.terminate, checkpoint, expression.evaluate, git.comment, git.commit, git.compare, git.merge, git.propose, git.read_change, git.read_commit, git.read_file, git.read_proposal, git.read_status, git.set_deployment, git.set_status, git.withdraw, http.request, job.logs, job.run, job.stop, k8s.apply, k8s.delete, k8s.get, k8s.health, k8s.list, k8s.logs, k8s.observe, k8s.patch, k8s.unwatch, k8s.watch, mail.send, manifest.compare, manifest.compare_rendered, manifest.diff, manifest.edit, manifest.helm, manifest.kustomize, manifest.pin, manifest.pin_kustomization, manifest.pin_values, manifest.redact, nats.publish, template.render, workflow.logs, workflow.stop, workflow.submit, workflow.terminate`,
		`run("emit", {"type": "com.example.x"})`: `starlark main.star:1:4: emit: type: found "com.example.x", expected an event type of the domain path, such as com.gitlab.cd.rollout.started, or one that the organization has declared`,
		`load("m.star", "x")`:                    `starlark main.star:1:6: load of "m.star", which is not among the modules: found none`,
		`on_event("a.b", handler = nobody)`:      "starlark main.star:1:9: on_event: nobody is no function of the main file",
		"def main(a):\n    pass":                 "inputs.a missing; main takes it at main.star:1:10",
	} {
		problems := check(program, "{}").GetProblems()
		if len(problems) != 1 || problems[0].GetField()+" "+problems[0].GetDescription() != want {
			t.Errorf("%s: found %v, expected %s", program, problems, want)
		}
	}
}

// FuzzCheckProgram: whatever is submitted is answered, and never run.
func FuzzCheckProgram(f *testing.F) {
	functions, err := activity.NewFunctions()
	if err != nil {
		f.Fatal(err)
	}
	checker := control.ProgramChecker{
		Scripts: script.New(script.Limits{}), Functions: functions,
		CheckType: func(context.Context, int64, string) *history.FunctionError { return nil },
	}
	f.Add(ticking, "", "{}")
	f.Add(`load("m.star", "x")`, "x = 1", `{"a": 1}`)
	f.Add("def main(a, *b, c = 1, **d):\n    return [x for x in a if x]", "", `{"a": [1]}`)
	f.Add(`run("emit", {"type": "t", "data": {}}); wait_for_event(["a"] * 3)`, "while True: pass", "")
	f.Add("\xff", "\x00", "[")
	f.Fuzz(func(t *testing.T, source, module, inputs string) {
		p := program.Program{Source: []byte(source), Modules: map[string][]byte{"m.star": []byte(module)}}
		found, err := checker.Check(t.Context(), organization, p, []byte(inputs))
		if err != nil && (source != "" || !fault.Is(err, fault.Invalid)) {
			t.Errorf("an error instead of problems: %v", err)
		}
		for _, problem := range found.Problems {
			if problem.Name == "" || problem.Problem == "" {
				t.Errorf("a problem that says nothing: %+v", problem)
			}
		}
	})
}
