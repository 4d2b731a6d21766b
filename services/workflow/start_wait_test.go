package workflow_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
	"github.com/lockstep-cd/lockstep/services/workflow"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/control"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/execution"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/program"
)

const parks = `wait_for_event("com.example.go")`

// waiting is a start that waits, of a run with the program's name for its id.
func waiting(id, program string, wait time.Duration) *autoflowv1.StartWorkflowRequest {
	return &autoflowv1.StartWorkflowRequest{
		OrganizationId: organization, WorkflowId: id, Starlark: []byte(program), Labels: map[string]string{"team": "shop"},
		Wait: durationpb.New(wait),
	}
}

// startAnswer is the outcome of a start.
type startAnswer struct {
	resp *autoflowv1.StartWorkflowResponse
	err  error
}

// wait sends a start that waits, and returns its outcome.
func (s *service) wait(ctx context.Context, request *autoflowv1.StartWorkflowRequest) <-chan startAnswer {
	answered := make(chan startAnswer, 1)
	ctx, cancel := context.WithTimeout(ctx, within)
	go func() {
		defer cancel()
		resp, err := s.StartWorkflow(ctx, request)
		answered <- startAnswer{resp, err}
	}()
	return answered
}

// resume sends the event that parked runs wait for here.
func (s *service) resume() {
	s.t.Helper()
	_, err := s.CloudEvent(s.t.Context(), &autoflowv1.CloudEventRequest{
		CloudEvent: []byte(`{"specversion":"1.0","id":"1","source":"/x","type":"com.example.go","organizationid":"1","data":{}}`),
	})
	if err != nil {
		s.t.Fatal(err)
	}
}

// However a run ends, the answer of its start says so, as GetWorkflow does, and is no error. The second of each program is stored with
// its first turn.
func TestAStartThatWaitsAnswersTheEnd(t *testing.T) {
	t.Parallel()
	s := start(t)
	for name, tt := range map[string]struct {
		program string
		wait    time.Duration
		want    autoflowv1.WorkflowState
	}{
		"completes": {"x = 1", time.Minute, autoflowv1.WorkflowState_WORKFLOW_STATE_COMPLETED},
		"steps": {
			"[run('checkpoint', {'state': {'n': n}}) for n in range(3)]", time.Minute,
			autoflowv1.WorkflowState_WORKFLOW_STATE_COMPLETED,
		},
		"sleeps":     {"sleep(seconds = 0.01)", time.Minute, autoflowv1.WorkflowState_WORKFLOW_STATE_COMPLETED},
		"fails":      {"fail('no more')", time.Minute, autoflowv1.WorkflowState_WORKFLOW_STATE_FAILED},
		"fails late": {"sleep(seconds = 0.01)\nfail('no more')", time.Minute, autoflowv1.WorkflowState_WORKFLOW_STATE_FAILED},
		"fails deep": {"def f():\n    fail('no more')\nf()", time.Minute, autoflowv1.WorkflowState_WORKFLOW_STATE_FAILED},
		"continues": {
			"def again(n):\n    if n:\n        continue_with(again, n - 1)\ndef main():\n    continue_with(again, 1)", time.Minute,
			autoflowv1.WorkflowState_WORKFLOW_STATE_COMPLETED,
		},
	} {
		for i := range 2 {
			id := fmt.Sprintf("%d-%x", i, name)
			answer := <-s.wait(t.Context(), waiting(id, tt.program, tt.wait))
			if answer.err != nil {
				t.Fatalf("%s: %v", name, answer.err)
			}
			got := answer.resp.GetWorkflow()
			if got.GetState() != tt.want || got.GetWorkflowRef() != answer.resp.GetWorkflowRef() || !answer.resp.GetCreated() {
				t.Errorf("%s: answered %v, expected it %s", name, answer.resp, tt.want)
			}
			stored, err := s.GetWorkflow(t.Context(), &autoflowv1.GetWorkflowRequest{OrganizationId: organization, WorkflowId: id})
			if err != nil {
				t.Fatal(err)
			}
			// PostgreSQL keeps microseconds, so what never went there has times that are more exact.
			if diff := cmp.Diff(stored.GetWorkflow(), got, protocmp.Transform(),
				protocmp.IgnoreFields(&autoflowv1.Workflow{}, "created_at", "updated_at", "finished_at")); diff != "" {
				t.Errorf("%s: GetWorkflow and the start's answer differ (-get +start):\n%s", name, diff)
			}
			if got.GetFinishedAt() == nil || got.GetCreatedAt() == nil || got.GetUpdatedAt() == nil {
				t.Errorf("%s: times are missing: %v", name, got)
			}
		}
	}
	if resp := s.submit("without", "x = 1", ""); resp.GetWorkflow() != nil {
		t.Errorf("a start that does not wait was answered with %v", resp)
	}
}

func TestAStartWhoseWaitIsOverAnswersWhereTheRunStands(t *testing.T) {
	t.Parallel()
	s := start(t)
	// Nobody knows how far it has come at once.
	if answer := <-s.wait(t.Context(), waiting("w", parks, 0)); answer.err != nil || answer.resp.GetWorkflow().GetWorkflowId() != "w" ||
		answer.resp.GetWorkflow().GetFinishedAt() != nil {
		t.Errorf("at once: %v (%v)", answer.resp, answer.err)
	}
	s.await("w", autoflowv1.WorkflowState_WORKFLOW_STATE_PARKED)
	answer := <-s.wait(t.Context(), waiting("w", parks, 10*time.Millisecond))
	w := answer.resp.GetWorkflow()
	if answer.err != nil || answer.resp.GetCreated() || w.GetState() != autoflowv1.WorkflowState_WORKFLOW_STATE_PARKED ||
		len(w.GetWaits()) != 1 {
		t.Errorf("after the time: %v (%v)", answer.resp, answer.err)
	}
}

// Several who start one run wait for its one end, also one who comes when it has parked, and who may do no more than start.
func TestSeveralWaitForOneRun(t *testing.T) {
	t.Parallel()
	s := startWith(t, func(c *workflow.Config) { c.Tokens = accessTokens() })
	first, second := s.wait(t.Context(), waiting("w", parks, time.Minute)), s.wait(t.Context(), waiting("w", parks, time.Minute))
	s.await("w", autoflowv1.WorkflowState_WORKFLOW_STATE_PARKED)
	starter := *s
	starter.AutoFlowClient = s.as(tokenOf(organization, "start"))
	third := starter.wait(t.Context(), waiting("w", parks, time.Minute))
	if answer := <-s.wait(t.Context(), waiting("w", "x = 1", time.Minute)); !fault.Is(answer.err, fault.Conflict) {
		t.Errorf("another program under the same id: %v (%v)", answer.resp, answer.err)
	}
	s.resume()
	created := 0
	for _, answered := range []<-chan startAnswer{first, second, third} {
		answer := <-answered
		if answer.err != nil || answer.resp.GetWorkflow().GetState() != autoflowv1.WorkflowState_WORKFLOW_STATE_COMPLETED {
			t.Errorf("at the end: %v (%v)", answer.resp, answer.err)
		}
		if answer.resp.GetCreated() {
			created++
		}
	}
	if created != 1 {
		t.Errorf("%d of three have created the run, expected one", created)
	}
	if answer := <-s.wait(t.Context(), waiting("w", parks, time.Minute)); answer.err != nil || answer.resp.GetCreated() ||
		answer.resp.GetWorkflow().GetFinishedAt() == nil {
		t.Errorf("after the end: %v (%v)", answer.resp, answer.err)
	}
}

func TestAWaitingStartSeesACancellation(t *testing.T) {
	t.Parallel()
	s := start(t)
	answered := s.wait(t.Context(), waiting("w", parks, time.Minute))
	s.await("w", autoflowv1.WorkflowState_WORKFLOW_STATE_PARKED)
	if _, err := s.CancelWorkflow(t.Context(), &autoflowv1.CancelWorkflowRequest{
		OrganizationId: organization, WorkflowId: "w",
		Reason: "superseded",
	}); err != nil {
		t.Fatal(err)
	}
	if answer := <-answered; answer.err != nil || answer.resp.GetWorkflow().GetState() != autoflowv1.WorkflowState_WORKFLOW_STATE_CANCELLED ||
		answer.resp.GetWorkflow().GetError() != "superseded" {
		t.Errorf("answered %v (%v)", answer.resp, answer.err)
	}
}

// A wait that is refused refuses the start, with nothing stored; so does a refused start, however it would wait.
func TestARefusedWaitStartsNothing(t *testing.T) {
	t.Parallel()
	s := start(t)
	for name, request := range map[string]*autoflowv1.StartWorkflowRequest{
		"long":     waiting("w", "x = 1", 61*time.Second),
		"negative": waiting("w", "x = 1", -time.Second),
		"odd":      {OrganizationId: organization, WorkflowId: "w", Starlark: []byte("x = 1"), Wait: &durationpb.Duration{Seconds: 1, Nanos: -1}},
		"program":  waiting("w", "def", time.Minute),
	} {
		if answer := <-s.wait(t.Context(), request); !fault.Is(answer.err, fault.Invalid) {
			t.Errorf("%s: %v (%v)", name, answer.resp, answer.err)
		}
	}
	resp, err := s.StartWorkflows(t.Context(), &autoflowv1.StartWorkflowsRequest{Workflows: []*autoflowv1.StartWorkflowRequest{
		waiting("w", "x = 1", 0), {OrganizationId: organization, WorkflowId: "other", Starlark: []byte("x = 1")},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if results := resp.GetResults(); results[0].GetRefused().GetFields()["wait"] == "" || !results[1].GetStarted().GetCreated() {
		t.Errorf("of several: %v", results)
	}
	if _, err := s.GetWorkflow(t.Context(), &autoflowv1.GetWorkflowRequest{OrganizationId: organization, WorkflowId: "w"}); !fault.Is(err,
		fault.NotFound) {
		t.Errorf("a refused start exists: %v", err)
	}
}

// Who leaves while waiting, or waits beyond the call's deadline, has started the run.
func TestACallerThatLeavesHasStartedItsRun(t *testing.T) {
	t.Parallel()
	s := start(t)
	ctx, leave := context.WithCancel(t.Context())
	answered := s.wait(ctx, waiting("leaves", parks, time.Minute))
	s.await("leaves", autoflowv1.WorkflowState_WORKFLOW_STATE_PARKED)
	leave()
	if answer := <-answered; !errors.Is(answer.err, context.Canceled) {
		t.Errorf("who has left was answered %v (%v)", answer.resp, answer.err)
	}
	// However short it is, the call has been made: the deadline passes in the wait, or the run has not been started, and is then.
	short, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if answer := <-s.wait(short, waiting("late", parks, time.Minute)); !errors.Is(answer.err, context.DeadlineExceeded) {
		t.Errorf("beyond its deadline a call was answered %v (%v)", answer.resp, answer.err)
	}
	late := s.wait(t.Context(), waiting("late", parks, time.Minute))
	s.await("late", autoflowv1.WorkflowState_WORKFLOW_STATE_PARKED)
	again := s.wait(t.Context(), waiting("leaves", parks, time.Minute))
	s.resume()
	for _, answered := range []<-chan startAnswer{late, again} {
		if answer := <-answered; answer.err != nil || answer.resp.GetWorkflow().GetState() != autoflowv1.WorkflowState_WORKFLOW_STATE_COMPLETED {
			t.Errorf("at the end: %v (%v)", answer.resp, answer.err)
		}
	}
}

// again is what happens to a start that waits, where its request is made again whenever the service is away.
func (s *service) again(answered <-chan startAnswer, request *autoflowv1.StartWorkflowRequest) startAnswer {
	s.t.Helper()
	for {
		answer := <-answered // the client has tried it again by itself, for about a second
		if !fault.Is(answer.err, fault.Unavailable) || s.t.Context().Err() != nil {
			return answer
		}
		answered = s.wait(s.t.Context(), request)
	}
}

// serviceCommand makes the test's binary a process with the whole service, whose configuration it reads.
const serviceCommand = "service"

func serviceProcess() int {
	var c workflow.Config
	err := json.NewDecoder(os.Stdin).Decode(&c)
	if err == nil {
		err = workflow.Run(context.Background(), c)
	}
	_, _ = fmt.Fprintln(os.Stderr, "the service has ended:", err)
	return 1
}

// spawn has the service run in a process of its own, until kill ends that with signal 9.
func (s *service) spawn() (kill func()) {
	s.t.Helper()
	return s.spawnTo(os.Stderr)
}

// spawnTo is spawn with a place for the log.
func (s *service) spawnTo(log io.Writer) (kill func()) {
	s.t.Helper()
	config, err := json.Marshal(s.config)
	if err != nil {
		s.t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		s.t.Fatal(err)
	}
	cmd := exec.CommandContext(s.t.Context(), self, serviceCommand)
	cmd.Stdin, cmd.Stderr = bytes.NewReader(config), log
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	kill = sync.OnceFunc(func() {
		_ = cmd.Process.Kill() // it may have gone by itself, which the test notices
		_ = cmd.Wait()         // with the signal for an error
	})
	s.t.Cleanup(kill)
	s.answers()
	return kill
}

// A run that was started with a wait survives a kill of the service during it, and the same request joins the wait again.
func TestAStartSurvivesAKillDuringItsWait(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.down()
	kill := s.spawn()
	request := waiting("w", parks, time.Minute)
	answered := s.wait(t.Context(), request)
	parked := s.await("w", autoflowv1.WorkflowState_WORKFLOW_STATE_PARKED)
	kill()
	s.up()
	s.resume()
	answer := s.again(answered, request)
	if w := answer.resp.GetWorkflow(); answer.err != nil || answer.resp.GetCreated() ||
		w.GetState() != autoflowv1.WorkflowState_WORKFLOW_STATE_COMPLETED || w.GetWorkflowRef() != parked.GetWorkflowRef() {
		t.Errorf("after the kill: %v (%v), expected the end of %s", answer.resp, answer.err, parked.GetWorkflowRef())
	}
}

// A service that stops ends all waits at once, with an error that asks callers to retry: the same request joins the wait again.
func TestAWaitContinuesOverARestart(t *testing.T) {
	t.Parallel()
	s := start(t)
	request := waiting("w", parks, time.Minute)
	answered, looking := s.wait(t.Context(), request), make(chan error, 1)
	s.await("w", autoflowv1.WorkflowState_WORKFLOW_STATE_PARKED)
	go func() {
		ctx, cancel := context.WithTimeout(t.Context(), within)
		defer cancel()
		_, err := s.GetWorkflow(ctx, &autoflowv1.GetWorkflowRequest{
			OrganizationId: organization, WorkflowId: "w",
			Wait: durationpb.New(time.Minute),
		})
		looking <- err
	}()
	s.down()
	s.up()
	s.resume()
	if answer := s.again(answered, request); answer.err != nil || answer.resp.GetCreated() ||
		answer.resp.GetWorkflow().GetState() != autoflowv1.WorkflowState_WORKFLOW_STATE_COMPLETED {
		t.Errorf("after the restart: %v (%v)", answer.resp, answer.err)
	}
	if err := <-looking; err != nil && !fault.Is(err, fault.Unavailable) {
		t.Errorf("who only looked: %v", err)
	}
}

// A run that ends in this process is known there: the store is not asked how, whether the run was stored before its first turn or with
// it, and whether it ended before anybody could wait.
func TestAnEndThatIsKnownIsNotAskedFor(t *testing.T) {
	t.Parallel()
	e, c, service := alone(t, func(context.Context, activity.Call) (any, error) { return "done", nil })
	operator := control.NewOperator(service, e.store, nil)
	for source, want := range map[string]execution.State{
		"x = 1": execution.Completed, "run('act', {})": execution.Completed, "fail('no')": execution.Failed,
		"run('act', {})\nfail('no')": execution.Failed,
	} {
		for i := range 3 {
			_, v, err := operator.StartAndAwait(t.Context(), execution.Start{
				Organization: 1, Workflow: fmt.Sprintf("%x-%d", source, i), Program: program.Program{Source: []byte(source)},
				Labels: map[string]string{"n": "1"},
			}, control.Wait{For: time.Minute})
			if err != nil || v.State != want || v.Labels["n"] != "1" || v.EndedAt.IsZero() {
				t.Errorf("%q, run %d: %+v (%v), expected it %s", source, i, v, err, want)
			}
		}
	}
	// The claim loop may be faster than the hand that begins a run which is stored already: it loads the run, and knows less of it.
	if asked, loaded := c.asked.Load(), c.loaded.Load(); asked > loaded {
		t.Errorf("the store was asked %d times, expected at most once for each of %d runs that were loaded", asked, loaded)
	}
}

// A service that stops says so to those who wait, and nothing of the run, which is stored.
func TestNobodyWaitsForAServiceThatStops(t *testing.T) {
	t.Parallel()
	e, _, service := alone(t, func(context.Context, activity.Call) (any, error) { return "done", nil })
	operator := control.NewOperator(service, e.store, nil)
	stopping := make(chan struct{})
	close(stopping)
	started, _, err := operator.StartAndAwait(t.Context(),
		execution.Start{Organization: 1, Workflow: "w", Program: program.Program{Source: []byte(parks)}},
		control.Wait{For: time.Minute, Stopping: stopping})
	if !errors.Is(err, control.ErrStopping) || !started.Created {
		t.Errorf("started %+v (%v)", started, err)
	}
	if _, err := operator.Await(t.Context(), 1, "w", control.Wait{For: time.Minute, Stopping: stopping}); !errors.Is(err,
		control.ErrStopping) {
		t.Errorf("who only looks: %v", err)
	}
}
