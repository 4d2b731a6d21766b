package workflow_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
)

func TestConcurrentStartsOfOneIDStartOneRun(t *testing.T) {
	t.Parallel()
	s := start(t)
	var mu sync.Mutex
	created, refs := 0, map[string]bool{}
	var callers sync.WaitGroup
	for range 32 {
		callers.Go(func() {
			resp := s.submit("one", "x = 1", "")
			mu.Lock()
			defer mu.Unlock()
			refs[resp.GetWorkflowRef()] = true
			if resp.GetCreated() {
				created++
			}
		})
	}
	callers.Wait()
	if created != 1 || len(refs) != 1 {
		t.Errorf("%d starts created a run, and there are %d handles; expected one of each", created, len(refs))
	}
}

func TestStartWorkflows(t *testing.T) {
	t.Parallel()
	s := start(t)
	request := &autoflowv1.StartWorkflowsRequest{}
	for i := range 40 {
		request.Workflows = append(request.Workflows,
			&autoflowv1.StartWorkflowRequest{OrganizationId: 1, WorkflowId: fmt.Sprintf("w%d", i%39), Starlark: []byte("x = 1")})
	}
	request.Workflows[7].Starlark = []byte("def")
	resp, err := s.StartWorkflows(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	created := 0
	for i, r := range resp.GetResults() {
		switch {
		case i == 7:
			if r.GetRefused().GetCode() != int32(codes.InvalidArgument) ||
				!strings.Contains(r.GetRefused().GetFields()["starlark"], "main.star:1:") {
				t.Errorf("the seventh: %v", r)
			}
		case r.GetStarted().GetCreated():
			created++
		}
	}
	if created != 38 {
		t.Errorf("%d were created, expected 38", created)
	}
}

func TestListWorkflows(t *testing.T) {
	t.Parallel()
	s := start(t)
	for i, program := range []string{"x = 1", `wait_for_event("a.b")`, `fail("no")`, "x = 1", `wait_for_event("a.b")`} {
		_, err := s.StartWorkflow(t.Context(), &autoflowv1.StartWorkflowRequest{
			OrganizationId: 1, WorkflowId: fmt.Sprintf("w%d", i), Starlark: []byte(program),
			Labels: map[string]string{"parity": fmt.Sprint(i % 2), "all": "yes"},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	s.submit("unlabelled", "x = 1", "")
	const completed, parked, failed = autoflowv1.WorkflowState_WORKFLOW_STATE_COMPLETED, autoflowv1.WorkflowState_WORKFLOW_STATE_PARKED,
		autoflowv1.WorkflowState_WORKFLOW_STATE_FAILED
	for id, state := range map[string]autoflowv1.WorkflowState{
		"w0": completed, "w1": parked, "w2": failed, "w3": completed, "w4": parked,
		"unlabelled": completed,
	} {
		s.await(id, state)
	}
	sum := sha256.Sum256([]byte("x = 1"))
	for name, tt := range map[string]struct {
		request *autoflowv1.ListWorkflowsRequest
		want    string
	}{
		"all":       {&autoflowv1.ListWorkflowsRequest{}, "unlabelled w4 w3 w2 w1 w0"},
		"by state":  {&autoflowv1.ListWorkflowsRequest{States: []autoflowv1.WorkflowState{parked, failed}}, "w4 w2 w1"},
		"failed":    {&autoflowv1.ListWorkflowsRequest{States: []autoflowv1.WorkflowState{failed}}, "w2"},
		"by label":  {&autoflowv1.ListWorkflowsRequest{Labels: map[string]string{"parity": "0"}}, "w4 w2 w0"},
		"by labels": {&autoflowv1.ListWorkflowsRequest{Labels: map[string]string{"parity": "1", "all": "yes"}}, "w3 w1"},
		"by label and state": {&autoflowv1.ListWorkflowsRequest{
			Labels: map[string]string{"all": "yes"},
			States: []autoflowv1.WorkflowState{completed},
		}, "w3 w0"},
		"by program": {&autoflowv1.ListWorkflowsRequest{ProgramDigest: hex.EncodeToString(sum[:])}, "unlabelled w3 w0"},
		"none":       {&autoflowv1.ListWorkflowsRequest{Labels: map[string]string{"all": "no"}}, ""},
	} {
		for _, size := range []int32{0, 1, 2} {
			tt.request.OrganizationId, tt.request.PageSize, tt.request.PageToken = 1, size, ""
			var found []string
			for {
				page, err := s.ListWorkflows(t.Context(), tt.request)
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				for _, w := range page.GetWorkflows() {
					found = append(found, w.GetWorkflowId())
				}
				if tt.request.PageToken = page.GetNextPageToken(); page.GetNextPageToken() == "" {
					break
				}
			}
			if got := strings.Join(found, " "); got != tt.want {
				t.Errorf("%s, %d a page: found %q, expected %q", name, size, got, tt.want)
			}
		}
	}
	page, err := s.ListWorkflows(t.Context(), &autoflowv1.ListWorkflowsRequest{OrganizationId: 1, PageSize: 1})
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.ListWorkflows(t.Context(), &autoflowv1.ListWorkflowsRequest{
		OrganizationId: 1, PageToken: page.GetNextPageToken(),
		Labels: map[string]string{"all": "yes"},
	})
	if !fault.Is(err, fault.Invalid) {
		t.Errorf("the token of another list: %v", err)
	}
}

func TestGetWorkflowShowsWhatItWaitsFor(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.submit("w", `spawn(lambda: sleep(seconds = 600))
spawn(lambda: run("k8s.get", {"agent_id": 7, "kind": "Pod", "name": "x"}))
wait_for_event(["a.b", "c.d"], {"n": 1, "s": "x"})`, "")
	w := s.await("w", autoflowv1.WorkflowState_WORKFLOW_STATE_PARKED)
	var found []string
	for _, wait := range w.GetWaits() {
		if !wait.GetUntil().AsTime().After(wait.GetSince().AsTime()) {
			t.Errorf("since %s until %s", wait.GetSince().AsTime(), wait.GetUntil().AsTime())
		}
		found = append(found, strings.TrimSpace(fmt.Sprintf("%d %s %s%v %d", wait.GetBranch(), wait.GetKind(), wait.GetName(),
			wait.GetEventTypes(), wait.GetAgentId())))
	}
	want := []string{"0 wait [a.b c.d] 0", "1 sleep [] 0", "2 run k8s.get[] 7"}
	if diff := cmp.Diff(want, found); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]string{"n": "1", "s": `"x"`}, w.GetWaits()[0].GetFilter()); diff != "" || len(w.GetWaitingFor()) != 3 {
		t.Errorf("%d sentences; filter (-want +got):\n%s", len(w.GetWaitingFor()), diff)
	}
}

func TestGetLogs(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.relay(func(event.FunctionCalled) event.FunctionCompleted {
		return event.FunctionCompleted{Error: &event.CallError{Code: "forbidden", Message: "no, with token=hunter2"}}
	})
	s.submit("w", `print("one", now())
def other():
    print("https://me:hunter2@git.example.com and Bearer abcdefgh1234")
    print("x" * 5000)
gather(spawn(other))
run("k8s.get", {"agent_id": 7, "kind": "Pod", "name": "x"})`, "")
	s.await("w", autoflowv1.WorkflowState_WORKFLOW_STATE_FAILED)
	read := func(branch *int32) (lines []string) {
		for token := ""; ; {
			page, err := s.GetLogs(t.Context(), &autoflowv1.GetLogsRequest{
				OrganizationId: 1, WorkflowId: "w", Branch: branch,
				PageSize: 2, PageToken: token,
			})
			if err != nil {
				t.Fatal(err)
			}
			for _, l := range page.GetLines() {
				if strings.Contains(l.GetText(), "hunter2") {
					t.Errorf("a secret in the log: %s", l.GetText())
				}
				text := l.GetText()
				if len(text) > 70 {
					text = fmt.Sprintf("%d bytes", len(text))
				}
				lines = append(lines, fmt.Sprintf("%d %s %s %s %s%t %t", l.GetBranch(), l.GetKind(), l.GetName(), l.GetCode(), text,
					l.GetTruncated(), l.GetRedacted()))
			}
			if token = page.GetNextPageToken(); token == "" {
				return lines
			}
		}
	}
	one := int32(1)
	want := []string{
		"1 print   https://[redacted]@git.example.com and Bearer [redacted]false true",
		"1 print   4103 bytestrue false",
	}
	if diff := cmp.Diff(want, read(&one)); diff != "" {
		t.Errorf("branch 1 (-want +got):\n%s", diff)
	}
	all := read(nil)
	if len(all) != 5 || !strings.HasPrefix(all[3], "0 run k8s.get forbidden no, with token=[redacted]") ||
		!strings.HasPrefix(all[4], "-1 failed ") {
		t.Errorf("all:\n%s", strings.Join(all, "\n"))
	}
}

func TestThePollsOfAWorkflowAreInItsLog(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.relay(func(event.FunctionCalled) event.FunctionCompleted {
		return event.FunctionCompleted{Value: json.RawMessage(`{"found":true}`)}
	})
	s.submit("w", `poll("k8s.get", {"agent_id": 7, "kind": "Pod", "name": "x"}, until = lambda seen: seen.found, interval = 1)`, "")
	s.await("w", autoflowv1.WorkflowState_WORKFLOW_STATE_COMPLETED)
	page, err := s.GetLogs(t.Context(), &autoflowv1.GetLogsRequest{OrganizationId: 1, WorkflowId: "w"})
	if err != nil || len(page.GetLines()) != 2 || page.GetLines()[0].GetKind() != "poll" || page.GetLines()[0].GetName() != "k8s.get" {
		t.Errorf("lines %v, error %v", page.GetLines(), err)
	}
}

// The caller sees where a program has failed, as positions and names only: a value may be a secret.
func TestAFailedRunShowsItsCalls(t *testing.T) {
	t.Parallel()
	s := start(t)
	received := make(chan event.Event, 100)
	listen(t, s.bus.Connect(t, "domain"), received)
	request := &autoflowv1.StartWorkflowRequest{
		OrganizationId: 1, WorkflowId: "w", Inputs: []byte(`{"password": "hunter2hunter2"}`),
		Starlark: []byte("load('lib.star', 'call')\ndef deploy(secret):\n    sleep(0.01)\n    call(secret)\ngather(spawn(deploy, password))"),
		Modules:  map[string][]byte{"lib.star": []byte("def call(value):\n    fail('refused')\n")},
	}
	if _, err := s.StartWorkflow(t.Context(), request); err != nil {
		t.Fatal(err)
	}
	s.await("w", autoflowv1.WorkflowState_WORKFLOW_STATE_FAILED)
	got, err := s.GetWorkflow(t.Context(), &autoflowv1.GetWorkflowRequest{OrganizationId: 1, WorkflowId: "w"})
	if err != nil {
		t.Fatal(err)
	}
	want := []*autoflowv1.StackFrame{
		{Branch: 1, Function: "call", Position: "lib.star:2:9"},
		{Branch: 1, Function: "deploy", Position: "main.star:4:9"},
		{Function: "<toplevel>", Position: "main.star:5:13"},
	}
	if diff := cmp.Diff(want, got.GetWorkflow().GetStack(), protocmp.Transform()); diff != "" {
		t.Errorf("stack (-want +got):\n%s", diff)
	}
	history, err := s.GetHistory(t.Context(), &autoflowv1.GetHistoryRequest{OrganizationId: 1, WorkflowId: "w"})
	if err != nil {
		t.Fatal(err)
	}
	if all := protojson.Format(history) + protojson.Format(got); strings.Contains(all, "hunter2") {
		t.Errorf("a value is shown: %s", all)
	}
	// The event reports what has failed, without a position in a program.
	failed, err := event.Decode[event.WorkflowFailed](next(t, received, event.TypeWorkflowFailed))
	if want := (event.WorkflowFailed{WorkflowID: "w", Error: "lib.star:2:9: fail: refused"}); err != nil || failed != want {
		t.Errorf("received %+v, error %v", failed, err)
	}
}

func TestTerminateWorkflow(t *testing.T) {
	t.Parallel()
	s := start(t)
	received := make(chan event.Event, 100)
	listen(t, s.bus.Connect(t, "domain"), received)
	s.submit("w", `wait_for_event("com.example.never")`, "")
	s.await("w", autoflowv1.WorkflowState_WORKFLOW_STATE_PARKED)
	for range 2 {
		resp, err := s.TerminateWorkflow(t.Context(), &autoflowv1.TerminateWorkflowRequest{OrganizationId: 1, WorkflowId: "w", Reason: "stuck"})
		if w := resp.GetWorkflow(); err != nil || w.GetState() != autoflowv1.WorkflowState_WORKFLOW_STATE_TERMINATED ||
			w.GetError() != "terminated: stuck" {
			t.Errorf("%v, error %v", w, err)
		}
	}
	failed, err := event.Decode[event.WorkflowFailed](next(t, received, event.TypeWorkflowFailed))
	if want := (event.WorkflowFailed{WorkflowID: "w", Error: "terminated: stuck"}); err != nil || failed != want {
		t.Errorf("received %+v, error %v", failed, err)
	}
	if _, err := s.RetryWorkflow(t.Context(), &autoflowv1.RetryWorkflowRequest{OrganizationId: 1, WorkflowId: "w"}); !fault.Is(err,
		fault.Refused) {
		t.Errorf("retry of a terminated workflow: %v", err)
	}
}

// TestRetryContinuesFromTheFailedStep is E29: the first step is not run again, the second is, under a new id, and every end
// of the run is published.
func TestRetryContinuesFromTheFailedStep(t *testing.T) {
	t.Parallel()
	s := start(t)
	received := make(chan event.Event, 100)
	listen(t, s.bus.Connect(t, "domain"), received)
	var mu sync.Mutex
	var calls []string
	mended := false
	s.relay(func(call event.FunctionCalled) event.FunctionCompleted {
		mu.Lock()
		defer mu.Unlock()
		_, op, _ := strings.Cut(call.CallID, "/")
		attempt := ""
		if strings.Contains(call.CallID, "~") {
			attempt = call.CallID[strings.Index(call.CallID, "~"):strings.Index(call.CallID, "/")] + "/"
		}
		if id := attempt + op; !slices.Contains(calls, id) { // one that is answered late is sent again
			calls = append(calls, id)
		}
		if strings.HasSuffix(call.CallID, "/0.2") && !mended {
			return event.FunctionCompleted{Error: &event.CallError{Code: "forbidden", Message: "not yet"}}
		}
		return event.FunctionCompleted{Value: json.RawMessage(`{"found":true}`)}
	})
	s.submit("w", `def get(name):
    return run("k8s.get", {"agent_id": 7, "kind": "Pod", "name": name})
get("a")
wait_for_event("com.example.tick", {"n": 1})
second = get("b")
print(second.found)
wait_for_event("com.example.tick", {"n": 1})`, "")
	send := func(id string) {
		t.Helper()
		if _, err := s.CloudEvent(t.Context(), &autoflowv1.CloudEventRequest{CloudEvent: []byte(strings.Replace(cloudEvent, "ID", id,
			1))}); err != nil {
			t.Fatal(err)
		}
	}
	retry := func(from int64) *autoflowv1.Workflow {
		t.Helper()
		resp, err := s.RetryWorkflow(t.Context(), &autoflowv1.RetryWorkflowRequest{
			OrganizationId: 1, WorkflowId: "w", Reason: "mended",
			FromSequence: from,
		})
		if err != nil {
			t.Fatal(err)
		}
		return resp.GetWorkflow()
	}
	send("1")
	failed := s.await("w", autoflowv1.WorkflowState_WORKFLOW_STATE_FAILED)
	first := next(t, received, event.TypeWorkflowFailed)

	retry(0) // nothing was mended: it fails at the same place, and says so again
	s.eventually("it has failed again", func(ctx context.Context) bool {
		resp, err := s.GetWorkflow(ctx, &autoflowv1.GetWorkflowRequest{OrganizationId: 1, WorkflowId: "w"})
		return err == nil && resp.GetWorkflow().GetState() == autoflowv1.WorkflowState_WORKFLOW_STATE_FAILED &&
			len(resp.GetWorkflow().GetRetries()) == 1
	})
	// Nobody confirms, so the first failure may come again meanwhile.
	deadline := clock.System().Now().Add(within)
	for second := first; second.ID() == first.ID(); second = next(t, received, event.TypeWorkflowFailed) {
		if clock.System().Now().After(deadline) {
			t.Fatalf("both failures have the event %s", first.ID())
		}
	}
	if _, err := s.RetryWorkflow(t.Context(), &autoflowv1.RetryWorkflowRequest{
		OrganizationId: 1, WorkflowId: "w",
		FromSequence: 9,
	}); fault.FieldsOf(err)[0].Name != "from_sequence" {
		t.Errorf("from beyond the end: %v", err)
	}

	mu.Lock()
	mended = true
	mu.Unlock()
	w := retry(2) // also the wait: it is for another event than the one it had
	if w.GetFinishedAt() != nil || w.GetError() != "" || w.GetLastSequence() > 2 {
		t.Errorf("after the retry: %v", w)
	}
	s.eventually("it waits for the first event again", func(ctx context.Context) bool {
		resp, err := s.GetWorkflow(ctx, &autoflowv1.GetWorkflowRequest{OrganizationId: 1, WorkflowId: "w"})
		return err == nil && resp.GetWorkflow().GetState() == autoflowv1.WorkflowState_WORKFLOW_STATE_PARKED &&
			resp.GetWorkflow().GetLastSequence() == 1
	})
	send("2")
	send("3")
	w = s.await("w", autoflowv1.WorkflowState_WORKFLOW_STATE_COMPLETED)
	next(t, received, event.TypeWorkflowCompleted)
	var retries []string
	for _, r := range w.GetRetries() {
		retries = append(retries, fmt.Sprintf("%d %s %t", r.GetFromSequence(), r.GetReason(), r.GetError() == failed.GetError()))
	}
	if diff := cmp.Diff([]string{"3 mended true", "2 mended true"}, retries); diff != "" {
		t.Errorf("retries (-want +got):\n%s", diff)
	}
	mu.Lock()
	defer mu.Unlock()
	if diff := cmp.Diff([]string{"0.0", "0.2", "~2/0.2", "~3/0.2"}, calls); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
}
