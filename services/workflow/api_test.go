package workflow_test

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/rpc"
	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
)

const cloudEvent = `{"specversion": "1.0", "id": "ID", "source": "/test", "type": "com.example.tick", "organizationid": "1",
 "datacontenttype": "application/json", "data": {"n": 1}}`

// TestAPI asks one service everything a caller can ask.
func TestAPI(t *testing.T) {
	t.Parallel()
	s := start(t)

	t.Run("bad input is refused by field", func(t *testing.T) {
		t.Parallel()
		for name, tt := range map[string]struct {
			request *autoflowv1.StartWorkflowRequest
			want    []string
		}{
			"nothing": {&autoflowv1.StartWorkflowRequest{}, []string{"organization_id", "workflow_id", "starlark"}},
			"everything": {&autoflowv1.StartWorkflowRequest{
				OrganizationId: 1, WorkflowId: "a b", Starlark: []byte("\xff"), Secrets: map[string]string{"git": "hunter2"},
			}, []string{"workflow_id", "starlark", "secrets.git"}},
			"syntax": {&autoflowv1.StartWorkflowRequest{OrganizationId: 1, WorkflowId: "a", Starlark: []byte("def")}, []string{"starlark"}},
			"inputs": {
				&autoflowv1.StartWorkflowRequest{OrganizationId: 1, WorkflowId: "a", Starlark: []byte("x=1"), Inputs: []byte("{")},
				[]string{"inputs"},
			},
			"not text": {&autoflowv1.StartWorkflowRequest{
				OrganizationId: 1, WorkflowId: "a", Starlark: []byte("x=1"), Inputs: []byte("{\"a\":\"\xe9\"}"),
				Labels: map[string]string{"a": "b\x00"},
			}, []string{"inputs", "labels.a"}},
		} {
			_, err := s.StartWorkflow(t.Context(), tt.request)
			var fields []string
			for _, f := range fault.FieldsOf(err) {
				fields = append(fields, f.Name)
			}
			if diff := cmp.Diff(tt.want, fields); !fault.Is(err, fault.Invalid) || diff != "" {
				t.Errorf("%s: error %v, fields (-want +got):\n%s", name, err, diff)
			}
			if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("%s: the error shows a secret: %v", name, err)
			}
		}
	})

	t.Run("text that no database takes is refused, and nothing fails for ever", func(t *testing.T) {
		t.Parallel()
		for name, call := range map[string]func() error{
			"workflow_id": func() error {
				_, err := s.GetWorkflow(t.Context(), &autoflowv1.GetWorkflowRequest{OrganizationId: 1, WorkflowId: "a\x00b"})
				return err
			},
			"cloud_event.id": func() error {
				_, err := s.CloudEvent(t.Context(), &autoflowv1.CloudEventRequest{
					CloudEvent: []byte(`{"specversion":"1.0","id":"1\u0000","source":"/x","type":"a.b","organizationid":"1","data":{}}`),
				})
				return err
			},
		} {
			err := call()
			if fields := fault.FieldsOf(err); !fault.Is(err, fault.Invalid) || len(fields) != 1 || fields[0].Name != name {
				t.Errorf("%s: error %v, fields %v", name, err, fields)
			}
		}
		s.submit("nul", `fail("a\x00b")`, "")
		if w := s.await("nul", autoflowv1.WorkflowState_WORKFLOW_STATE_FAILED); !strings.Contains(w.GetError(), "fail: a") {
			t.Errorf("failed with %q", w.GetError())
		}
	})

	t.Run("the same id with something else says what differs", func(t *testing.T) {
		t.Parallel()
		request := func() *autoflowv1.StartWorkflowRequest {
			return &autoflowv1.StartWorkflowRequest{
				OrganizationId: organization, WorkflowId: "twice", Starlark: []byte("x = a"), Inputs: []byte(`{"a": 1, "b": 2}`),
				Secrets: map[string]string{"git": "env:GIT"}, Modules: map[string][]byte{"m.star": []byte("y = 1")},
			}
		}
		first, err := s.StartWorkflow(t.Context(), request())
		if err != nil || !first.GetCreated() {
			t.Fatal(first, err)
		}
		s.await("twice", autoflowv1.WorkflowState_WORKFLOW_STATE_COMPLETED)
		same := request()
		same.Inputs = []byte(` {"b":2,"a":1}`)
		again, err := s.StartWorkflow(t.Context(), same)
		if err != nil || again.GetCreated() || again.GetWorkflowRef() != first.GetWorkflowRef() {
			t.Error(again, err)
		}
		other := request()
		other.Inputs, other.Modules["m.star"], other.Secrets["git"] = []byte(`{"a": 2}`), []byte("y = 2"), "env:OTHER"
		_, err = s.StartWorkflow(t.Context(), other)
		if want := `workflow "twice" exists with different modules, inputs, secrets`; !fault.Is(err, fault.Conflict) || err.Error() != want {
			t.Errorf("found %v, expected %s", err, want)
		}
	})

	t.Run("an event is matched once, and a history is read by pages", func(t *testing.T) {
		t.Parallel()
		s.submit("ticks", `wait_for_event("com.example.tick", {"n": 1})
print("one")
wait_for_event("com.example.tick", {"n": 1})`, "")
		waiting := s.await("ticks", autoflowv1.WorkflowState_WORKFLOW_STATE_PARKED).GetWaitingFor()
		if len(waiting) != 1 || !strings.HasPrefix(waiting[0], "waits for event com.example.tick with n=1, at the longest until ") {
			t.Errorf("waiting for %q", waiting)
		}
		send := func(id string) *autoflowv1.CloudEventResponse {
			resp, err := s.CloudEvent(t.Context(), &autoflowv1.CloudEventRequest{CloudEvent: []byte(strings.Replace(cloudEvent, "ID", id, 1))})
			if err != nil {
				t.Fatal(err)
			}
			return resp
		}
		// The wait looks for earlier events after its own commit, so either side may be the one that finds the other.
		if got := send("first"); got.GetMatched() > 1 || got.GetDuplicate() {
			t.Errorf("first: %v", got)
		}
		if got := send("first"); got.GetMatched() != 0 || !got.GetDuplicate() {
			t.Errorf("first again: %v", got)
		}
		send("second")
		s.await("ticks", autoflowv1.WorkflowState_WORKFLOW_STATE_COMPLETED)
		var kinds []string
		for token := ""; ; {
			page, err := s.GetHistory(t.Context(), &autoflowv1.GetHistoryRequest{
				OrganizationId: organization, WorkflowId: "ticks",
				PageSize: 1, PageToken: token,
			})
			if err != nil || len(page.GetEntries()) > 1 {
				t.Fatal(page, err)
			}
			for _, e := range page.GetEntries() {
				kinds = append(kinds, e.GetKind()+" "+e.GetName())
			}
			if token = page.GetNextPageToken(); token == "" {
				break
			}
		}
		want := []string{"wait com.example.tick", "print ", "wait com.example.tick", "completed "}
		if diff := cmp.Diff(want, kinds); diff != "" {
			t.Errorf("history (-want +got):\n%s", diff)
		}
	})

	t.Run("malformed events are refused", func(t *testing.T) {
		t.Parallel()
		for name, text := range map[string]string{
			"empty":                  "",
			"no json":                "{",
			"no event":               "{}",
			"no organization":        strings.Replace(cloudEvent, "organizationid", "other", 1),
			"organization no number": strings.Replace(cloudEvent, `"1",`, `"one",`, 1),
			"known type, bad data":   strings.Replace(cloudEvent, "com.example.tick", "com.gitlab.cd.rollout.started", 1),
		} {
			if _, err := s.CloudEvent(t.Context(), &autoflowv1.CloudEventRequest{CloudEvent: []byte(text)}); !fault.Is(err, fault.Invalid) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})

	t.Run("a workflow is cancelled permanently", func(t *testing.T) {
		t.Parallel()
		s.submit("stop", `wait_for_event("com.example.never")`, "")
		s.await("stop", autoflowv1.WorkflowState_WORKFLOW_STATE_PARKED)
		for range 2 {
			if _, err := s.CancelWorkflow(t.Context(),
				&autoflowv1.CancelWorkflowRequest{OrganizationId: organization, WorkflowId: "stop", Reason: "superseded"}); err != nil {
				t.Fatal(err)
			}
		}
		if w := s.await("stop", autoflowv1.WorkflowState_WORKFLOW_STATE_CANCELLED); w.GetError() != "superseded" || w.GetFinishedAt() == nil {
			t.Errorf("%v", w)
		}
	})

	t.Run("what does not exist is not found", func(t *testing.T) {
		t.Parallel()
		s.submit("mine", "x = 1", "")
		for name, call := range map[string]func() error{
			"get": func() error {
				_, err := s.GetWorkflow(t.Context(), &autoflowv1.GetWorkflowRequest{OrganizationId: 2, WorkflowId: "mine"})
				return err
			},
			"history": func() error {
				_, err := s.GetHistory(t.Context(), &autoflowv1.GetHistoryRequest{OrganizationId: 2, WorkflowId: "mine"})
				return err
			},
			"cancel": func() error {
				_, err := s.CancelWorkflow(t.Context(), &autoflowv1.CancelWorkflowRequest{OrganizationId: 2, WorkflowId: "mine"})
				return err
			},
		} {
			if err := call(); !fault.Is(err, fault.NotFound) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})

	t.Run("nobody gets in without the token", func(t *testing.T) {
		t.Parallel()
		conn, err := rpc.Dial(rpc.ClientConfig{Address: s.config.GRPCAddress, Token: "guess", Insecure: true})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		stranger := autoflowv1.NewAutoFlowClient(conn)
		_, err = stranger.GetWorkflow(t.Context(), &autoflowv1.GetWorkflowRequest{OrganizationId: 1, WorkflowId: "x"}, grpc.WaitForReady(true))
		if !fault.Is(err, fault.Unauthenticated) {
			t.Error(err)
		}
	})
}

// TestCancelReachesARunningWorkflow cancels a workflow whose call nobody answers, beside one that calls an agent nobody
// knows.
func TestCancelReachesARunningWorkflow(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.submit("busy", `run("k8s.get", {"agent_id": 7, "kind": "Pod", "name": "x"})`, "") // nobody answers
	s.await("busy", autoflowv1.WorkflowState_WORKFLOW_STATE_PARKED)
	s.submit("agentless", `run("k8s.get", {"agent_id": 8, "kind": "Pod", "name": "x"})`, "")
	failed := s.await("agentless", autoflowv1.WorkflowState_WORKFLOW_STATE_FAILED)
	if want := `agent_id: found 8, expected the number of an agent of the organization`; !strings.Contains(failed.GetError(), want) {
		t.Errorf("failed with %q, expected %q", failed.GetError(), want)
	}
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	if _, err := s.CancelWorkflow(ctx, &autoflowv1.CancelWorkflowRequest{OrganizationId: organization, WorkflowId: "busy"}); err != nil {
		t.Fatal(err)
	}
	// It has ended when the call returns: the program does nothing more.
	resp, err := s.GetWorkflow(ctx, &autoflowv1.GetWorkflowRequest{OrganizationId: organization, WorkflowId: "busy"})
	if err != nil || resp.GetWorkflow().GetState() != autoflowv1.WorkflowState_WORKFLOW_STATE_CANCELLED {
		t.Errorf("behind the call it is %s (%v), expected cancelled", resp.GetWorkflow().GetState(), err)
	}
}
