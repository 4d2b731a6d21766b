package workflow_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/engine"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/execution"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/program"
)

// TestGenerationsAreOneRun runs three generations, of which the last fails: callers see one workflow with one history, relays see a
// distinct id for each call, and a retry continues in the last generation.
func TestGenerationsAreOneRun(t *testing.T) {
	t.Parallel()
	s := start(t)
	var mu sync.Mutex
	var calls []string
	mended := false
	s.relay(func(call event.FunctionCalled) event.FunctionCompleted {
		mu.Lock()
		defer mu.Unlock()
		if !slices.Contains(calls, call.CallID) { // one that is answered late is sent again
			calls = append(calls, call.CallID)
		}
		if strings.Contains(call.CallID, ".3/") && !mended {
			return event.FunctionCompleted{Error: &event.CallError{Code: "forbidden", Message: "not yet"}}
		}
		return event.FunctionCompleted{Value: json.RawMessage(`{"found":true}`)}
	})
	const program = `
def step(n, reply):
    wait_for_event("com.example.tick", {"n": 1})
    run("k8s.get", {"agent_id": 7, "kind": "Pod", "name": "pod-%d" % n})
    print("step", n)
    if n < 3:
        continue_with(step, n + 1, reply)

def main(first):
    step(first, channel())
`
	request := &autoflowv1.StartWorkflowRequest{
		OrganizationId: organization, WorkflowId: "w", Starlark: []byte(program), Inputs: []byte(`{"first": 1}`),
		Labels: map[string]string{"team": "shop"},
	}
	started, err := s.StartWorkflow(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	watching, err := s.WatchWorkflow(ctx, &autoflowv1.WatchWorkflowRequest{OrganizationId: organization, WorkflowId: "w"})
	if err != nil {
		t.Fatal(err)
	}
	for n := range 3 { // all at once: two of them wait for a generation that is not there yet
		s.tick(fmt.Sprint(n), 1)
	}
	failed := s.await("w", autoflowv1.WorkflowState_WORKFLOW_STATE_FAILED)
	if failed.GetGeneration() != 3 || failed.GetGenerationSequence() != 10 || failed.GetWorkflowRef() != started.GetWorkflowRef() ||
		failed.GetLabels()["team"] != "shop" {
		t.Errorf("failed as %v", failed)
	}
	entries, _, err := drain(watching, nil)
	want := []string{
		"1 channel", "2 wait", "3 run", "4 print", "5 continue", "6 wait", "7 run", "8 print", "9 continue", "10 wait", "11 run", "12 failed",
	}
	if diff := cmp.Diff(want, entries); diff != "" || err != nil {
		t.Errorf("watched, error %v (-want +got):\n%s", err, diff)
	}

	// The history spans all generations; its pages do not depend on them.
	var history []string
	for pageToken := ""; ; {
		page, err := s.GetHistory(t.Context(), &autoflowv1.GetHistoryRequest{
			OrganizationId: organization, WorkflowId: "w", PageSize: 4,
			PageToken: pageToken,
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range page.GetEntries() {
			history = append(history, fmt.Sprintf("%d %d", e.GetGeneration(), e.GetSequence()))
			if strings.Contains(e.GetValue(), "ch_") {
				t.Errorf("entry %d shows the token of a channel: %s", e.GetSequence(), e.GetValue())
			}
			if e.GetSequence() == 5 && e.GetValue() != `{"args":[2,"[redacted]"],"function":"step","kwargs":{}}` {
				t.Errorf("the end of a generation is %s", e.GetValue())
			}
		}
		if pageToken = page.GetNextPageToken(); pageToken == "" {
			break
		}
	}
	if diff := cmp.Diff(strings.Split("1 1,1 2,1 3,1 4,1 5,2 6,2 7,2 8,2 9,3 10,3 11,3 12", ","), history); diff != "" {
		t.Errorf("history (-want +got):\n%s", diff)
	}
	log, err := s.GetLogs(t.Context(), &autoflowv1.GetLogsRequest{OrganizationId: organization, WorkflowId: "w"})
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, l := range log.GetLines() {
		if l.GetKind() != "run" {
			lines = append(lines, fmt.Sprintf("%d %s %s%s", l.GetGeneration(), l.GetKind(), l.GetName(), l.GetText()))
		}
	}
	if want := []string{"1 print step 1", "1 continue step", "2 print step 2", "2 continue step"}; !slices.Equal(want,
		lines[:min(len(lines), 4)]) {
		t.Errorf("the log is %q, expected it to begin with %q", lines, want)
	}

	_, err = s.RetryWorkflow(t.Context(), &autoflowv1.RetryWorkflowRequest{OrganizationId: organization, WorkflowId: "w", FromSequence: 9})
	if fields := fault.FieldsOf(err); len(fields) != 1 || fields[0].Name != "from_sequence" ||
		!strings.Contains(fields[0].Problem, "the beginning of generation 3") {
		t.Errorf("a retry from the second generation: %v", err)
	}
	mu.Lock()
	mended = true
	mu.Unlock()
	if _, err := s.RetryWorkflow(t.Context(), &autoflowv1.RetryWorkflowRequest{OrganizationId: organization, WorkflowId: "w"}); err != nil {
		t.Fatal(err)
	}
	done := s.await("w", autoflowv1.WorkflowState_WORKFLOW_STATE_COMPLETED)
	if done.GetGeneration() != 3 || len(done.GetRetries()) != 1 {
		t.Errorf("completed as %v", done)
	}
	mu.Lock()
	defer mu.Unlock()
	ref := started.GetWorkflowRef()
	if diff := cmp.Diff([]string{ref + "/0.2", ref + "~1.2/0.1", ref + "~1.3/0.1", ref + "~2.3/0.1"}, calls); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
	if again, err := s.StartWorkflow(t.Context(), request); err != nil || again.GetCreated() || again.GetWorkflowRef() != ref {
		t.Errorf("started again: %v, %v", again, err)
	}
}

// TestAStandingFlow is the example of a program that never ends: pushes come in any number while generations end and the service
// is restarted, and each of them is built once, in order.
func TestAStandingFlow(t *testing.T) {
	t.Parallel()
	s := start(t)
	program, err := os.ReadFile("../../docs/examples/flow/builds.star")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.RegisterFlow(t.Context(), &autoflowv1.RegisterFlowRequest{
		OrganizationId: organization, Name: "standing",
		Starlark: program,
	}); err != nil {
		t.Fatal(err)
	}
	push := func(n int) {
		t.Helper()
		text := fmt.Sprintf(`{"specversion":"1.0","id":"push-%d","source":"/ci","type":"com.example.pushed","organizationid":"%d","data":{"service":"web","sha":"sha-%d","first":%t}}`, n, organization, n, n == 1)
		for range 2 {
			if _, err := s.CloudEvent(t.Context(), &autoflowv1.CloudEventRequest{CloudEvent: []byte(text)}); err != nil {
				t.Fatal(err)
			}
		}
	}
	const pushes = 20
	run := func(ctx context.Context) *autoflowv1.Workflow {
		page, err := s.ListWorkflows(ctx, &autoflowv1.ListWorkflowsRequest{
			OrganizationId: organization,
			Labels:         map[string]string{"flow": "standing"},
		})
		if err != nil || len(page.GetWorkflows()) != 1 {
			return nil
		}
		return page.GetWorkflows()[0]
	}
	for n := 1; n <= pushes; n++ {
		if n == 2 { // a push counts for a run that it did not start once that has begun
			s.eventually("the first push has started a run", func(ctx context.Context) bool { return run(ctx) != nil })
		}
		push(n)
		if n == pushes/2 {
			s.down()
			s.up()
		}
	}
	var built []string
	s.eventually("all pushes are built", func(ctx context.Context) bool {
		w := run(ctx)
		if w == nil {
			return false
		}
		log, err := s.GetLogs(ctx, &autoflowv1.GetLogsRequest{OrganizationId: organization, WorkflowId: w.GetWorkflowId(), PageSize: 1000})
		if err != nil {
			return false
		}
		built = nil
		for _, l := range log.GetLines() {
			if l.GetKind() == "print" {
				built = append(built, l.GetText())
			}
		}
		return len(built) >= pushes
	})
	for i, line := range built {
		if want := fmt.Sprintf("built sha-%d as number %d", i+1, i+1); line != want {
			t.Errorf("line %d is %q, expected %q", i, line, want)
		}
	}
	w := run(t.Context())
	if w.GetGeneration() < 3 || w.GetLastSequence()-w.GetGenerationSequence() > 10 {
		t.Errorf("after %d pushes it is in generation %d, whose history has the entries %d to %d", pushes, w.GetGeneration(),
			w.GetGenerationSequence(), w.GetLastSequence())
	}
	if _, err := s.CancelWorkflow(t.Context(), &autoflowv1.CancelWorkflowRequest{
		OrganizationId: organization, WorkflowId: w.GetWorkflowId(),
		Reason: "enough",
	}); err != nil {
		t.Fatal(err)
	}
	if w := run(t.Context()); w.GetState() != autoflowv1.WorkflowState_WORKFLOW_STATE_CANCELLED {
		t.Errorf("after its cancellation it is %v", w)
	}
}

// TestGenerationsBoundReplay counts what is loaded to continue a run of many activities: the entries of its generation, however
// many generations there were.
func TestGenerationsBoundReplay(t *testing.T) {
	t.Parallel()
	e := newEngines(t)
	loads := &loaded{Store: e.store}
	var mu sync.Mutex
	keys := map[string]int{}
	secrets := map[string]int{}
	stop := e.run("one", loads, func(_ context.Context, c activity.Call) (any, error) {
		mu.Lock()
		defer mu.Unlock()
		keys[c.ID]++
		secrets[c.Secrets["canary"]]++
		return true, nil
	})
	const source = `
def many(generation):
    for _ in range(50):
        run("act", {"generation": generation})
    if generation < 40:
        continue_with(many, generation + 1)
    wait_for_event("com.example.tick")

def main():
    many(1)
`
	_, err := e.service.Start(t.Context(), execution.Start{
		Organization: 1, Workflow: "w", Program: program.Program{Source: []byte(source)},
		Secrets: map[string]string{"canary": "env:CANARY"},
	})
	if err != nil {
		t.Fatal(err)
	}
	parked := e.await(execution.Parked)
	stop()
	if parked.Generation != 40 || parked.LastSeq != 40*51-1 || len(keys) != 40*50 {
		t.Errorf("generation %d with %d entries and %d activities, expected 40, %d and %d", parked.Generation, parked.LastSeq,
			len(keys), 40*51-1, 40*50)
	}
	if len(secrets) != 1 || secrets["env:CANARY"] != 40*50 {
		t.Errorf("the references of secrets were %v, expected the run's in each generation", secrets)
	}
	for key, n := range keys {
		if n != 1 {
			t.Errorf("activity %s was done %d times", key, n)
		}
	}
	l, err := e.store.Load(t.Context(), parked.ID)
	if err != nil || len(l.History) != 50 {
		t.Errorf("%d entries are loaded after 2000 activities (%v), expected 50", len(l.History), err)
	}
	if most := loads.most(); most > 51 {
		t.Errorf("%d entries were loaded at once, expected at most those of a generation", most)
	}
}

// loaded notes the longest history that was loaded.
type loaded struct {
	Store

	mu      sync.Mutex
	longest int
}

func (l *loaded) Load(ctx context.Context, execution int64) (engine.Loaded, error) {
	found, err := l.Store.Load(ctx, execution)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.longest = max(l.longest, len(found.History))
	return found, err
}

func (l *loaded) most() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.longest
}
