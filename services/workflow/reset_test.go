package workflow_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
)

// reset resets a run of organization 1.
func (s *service) reset(id, to string, sequence int64) (*autoflowv1.ResetWorkflowResponse, error) {
	return s.ResetWorkflow(s.t.Context(), &autoflowv1.ResetWorkflowRequest{
		OrganizationId: organization, WorkflowId: id, NewWorkflowId: to, ToSequence: sequence, Reason: "mended",
	})
}

// tickNumber sends an event that programs here wait for.
func (s *service) tickNumber(id string) {
	s.t.Helper()
	if _, err := s.CloudEvent(s.t.Context(), &autoflowv1.CloudEventRequest{
		CloudEvent: []byte(strings.Replace(cloudEvent, "ID", id, 1)),
	}); err != nil {
		s.t.Fatal(err)
	}
}

// TestAnEndedRunIsResetToAnEntry covers what a new run has of one that has ended: what lies before the entry, which is not done again, its
// status and its channels; and what it has not: what lies behind the entry, and the events that were received there.
func TestAnEndedRunIsResetToAnEntry(t *testing.T) { // issue 18
	t.Parallel()
	s := start(t)
	var mu sync.Mutex
	calls := map[string]int{}
	s.relay(func(call event.FunctionCalled) event.FunctionCompleted {
		mu.Lock()
		defer mu.Unlock()
		calls[call.CallID]++
		return event.FunctionCompleted{Value: json.RawMessage(`{"found":true}`)}
	})
	s.submit("w", `c = channel()
print(c.token)
set_status("step", "begun")
run("k8s.get", {"agent_id": 7, "kind": "Pod", "name": "a"})
set_status("step", "got")
wait_for_event("com.example.tick", {"n": 1})
receive(c, inbox())
run("k8s.get", {"agent_id": 7, "kind": "Pod", "name": "b"})
fail("not yet")`, "")
	waits := func(id, kind string, last int64) {
		t.Helper()
		s.eventually(id+" waits for "+kind, func(ctx context.Context) bool {
			got, err := s.GetWorkflow(ctx, &autoflowv1.GetWorkflowRequest{OrganizationId: organization, WorkflowId: id})
			w := got.GetWorkflow().GetWaits()
			return err == nil && len(w) == 1 && w[0].GetKind() == kind && got.GetWorkflow().GetLastSequence() == last
		})
	}
	message := func(id, text string) {
		t.Helper()
		if _, err := s.SendToChannel(t.Context(), &autoflowv1.SendToChannelRequest{
			OrganizationId: organization, WorkflowId: id, MessageId: text, Data: []byte(`1`),
		}); err != nil {
			t.Fatal(err)
		}
	}
	waits("w", "wait", 5)
	if _, err := s.reset("w", "early", 3); !fault.Is(err, fault.Refused) {
		t.Errorf("a run that waits: %v", err)
	}
	s.tickNumber("1")
	waits("w", "receive", 6)
	message("w", "m1")
	s.await("w", autoflowv1.WorkflowState_WORKFLOW_STATE_FAILED)

	for n, created := range []bool{true, false} {
		done, err := s.reset("w", "again", 6)
		if err != nil || done.GetCreated() != created || done.GetWorkflow().GetLabels()["lockstep.reset_of"] != "w" ||
			done.GetWorkflow().GetLabels()["lockstep.reset_to"] != "6" || done.GetWorkflow().GetLabels()["lockstep.reset_reason"] != "mended" {
			t.Fatalf("reset %d: %v, error %v", n, done, err)
		}
	}
	waits("again", "wait", 5) // the event that the other one received is spent
	got, err := s.GetWorkflow(t.Context(), &autoflowv1.GetWorkflowRequest{OrganizationId: organization, WorkflowId: "again"})
	if err != nil || got.GetWorkflow().GetStatus()["step"] != `"got"` {
		t.Errorf("status: %v, error %v", got.GetWorkflow().GetStatus(), err)
	}
	s.tickNumber("2")
	waits("again", "receive", 6)
	if _, err := s.SendToChannel(t.Context(), &autoflowv1.SendToChannelRequest{
		OrganizationId: organization, Token: s.lines("again")[0], MessageId: "m2", Data: []byte(`1`),
	}); err != nil {
		t.Fatal(err)
	}
	s.await("again", autoflowv1.WorkflowState_WORKFLOW_STATE_FAILED)

	mu.Lock()
	var ops []string
	for id := range calls {
		ref, op, _ := strings.Cut(id, "/")
		ops = append(ops, op+fmt.Sprint(ref == got.GetWorkflow().GetWorkflowRef()))
	}
	mu.Unlock()
	slices.Sort(ops)
	if want := []string{"0.3false", "0.7false", "0.7true"}; !slices.Equal(ops, want) {
		t.Errorf("calls: %v, expected %v", ops, want)
	}
	for name, tt := range map[string]struct {
		id, to   string
		sequence int64
		want     fault.Class
	}{
		"an entry beyond the end":       {"w", "x", 99, fault.Invalid},
		"a negative entry":              {"w", "x", -1, fault.Invalid},
		"another content of the new id": {"w", "again", 4, fault.Conflict},
		"an id that is taken":           {"again", "w", 4, fault.Conflict},
		"the domain service's run":      {"rollout-7", "x", 1, fault.Refused},
		"a child":                       {"child:1:w/0123456789abcdef01234567", "x", 1, fault.Refused},
		"an unknown run":                {"nothing", "x", 1, fault.NotFound},
		"a run's id that is too long":   {"w", strings.Repeat("x", 300), 1, fault.Invalid},
	} {
		if _, err := s.reset(tt.id, tt.to, tt.sequence); !fault.Is(err, tt.want) {
			t.Errorf("%s: %v, expected %v", name, err, tt.want)
		}
	}
	if _, err := s.as(tokenOf(1, "operate")).ResetWorkflow(t.Context(), &autoflowv1.ResetWorkflowRequest{
		OrganizationId: organization, WorkflowId: "w", NewWorkflowId: "rollout-7", ToSequence: 1,
	}); err == nil {
		t.Error("a run was reset to an id of the domain service")
	}
}

// TestTwoRunsCannotHaveOneChannel: a second reset, and a retry, are refused while the channels are another run's.
func TestTwoRunsCannotHaveOneChannel(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.submit("w", `c = channel()
def main():
    wait_for_event("com.example.tick", {"n": 1})
    if now().year > 2000:
        fail("late")`, "")
	s.tickNumber("1")
	s.await("w", autoflowv1.WorkflowState_WORKFLOW_STATE_FAILED)
	if _, err := s.reset("w", "one", 2); err != nil {
		t.Fatal(err)
	}
	s.await("one", autoflowv1.WorkflowState_WORKFLOW_STATE_PARKED)
	if _, err := s.reset("w", "two", 2); !fault.Is(err, fault.Refused) {
		t.Errorf("a second reset: %v", err)
	}
	if _, err := s.RetryWorkflow(t.Context(), &autoflowv1.RetryWorkflowRequest{OrganizationId: organization, WorkflowId: "w"}); !fault.Is(err,
		fault.Refused) {
		t.Errorf("a retry: %v", err)
	}
	if _, err := s.CancelWorkflow(t.Context(), &autoflowv1.CancelWorkflowRequest{
		OrganizationId: organization, WorkflowId: "one",
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.reset("w", "two", 2); err != nil {
		t.Errorf("a second reset, when the first one has ended: %v", err)
	}
}

// TestALaterGenerationIsReset keeps the generation, and forgets nothing that earlier ones have received.
func TestALaterGenerationIsReset(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.submit("w", `def again(n):
    wait_for_event("com.example.tick", {"n": 1})
    if n == 2:
        fail("two")
    continue_with(again, n + 1)
def main():
    again(0)`, "")
	for n := range 3 {
		s.tickNumber(fmt.Sprint(n))
	}
	s.await("w", autoflowv1.WorkflowState_WORKFLOW_STATE_FAILED)
	if _, err := s.reset("w", "again", 1); !fault.Is(err, fault.Invalid) {
		t.Errorf("an entry of an earlier generation: %v", err)
	}
	done, err := s.reset("w", "again", 0)
	if err != nil || done.GetWorkflow().GetGeneration() != 3 {
		t.Fatalf("%v, error %v", done, err)
	}
	s.await("again", autoflowv1.WorkflowState_WORKFLOW_STATE_PARKED)
	s.tickNumber("4")
	if w := s.await("again", autoflowv1.WorkflowState_WORKFLOW_STATE_FAILED); !strings.Contains(w.GetError(), "two") {
		t.Errorf("%v", w)
	}
}

const parked = `def main():
    wait_for_event("com.example.tick", {"n": 1})
    print("old")`

// changeProgram gives the run w another program.
func (s *service) changeProgram(source string, dry bool) (*autoflowv1.Workflow, error) {
	done, err := s.ChangeProgram(s.t.Context(), &autoflowv1.ChangeProgramRequest{
		OrganizationId: organization, WorkflowId: "w", Starlark: []byte(source), Reason: "a bug", DryRun: dry,
	})
	return done.GetWorkflow(), err
}

func TestAWaitingRunIsGivenAnotherProgram(t *testing.T) { // issue 18
	t.Parallel()
	s := start(t)
	s.submit("w", "now()\n"+parked, "")
	before := s.await("w", autoflowv1.WorkflowState_WORKFLOW_STATE_PARKED)
	for what, c := range map[string]struct{ source, want string }{
		"another entry":    {"uuid()\n" + parked, `does not fit entry 1 of the history of workflow "w"`},
		"another wait":     {"now()\n" + strings.Replace(parked, `"n": 1`, `"n": 2`, 1), "after entry 1 of its history: at main.star:3:19, call 0.1 of"},
		"more before it":   {"now()\n" + strings.Replace(parked, "main():\n", "main():\n    print(1)\n", 1), "after entry 1 of its history: it would first record print"},
		"a further branch": {"now()\nspawn(lambda: sleep(60))\n" + parked, "after entry 1 of its history: at main.star:2:20, call 1.0 of"},
		"an end":           {"now()", "after entry 1 of its history: it would end"},
		"a failure":        {"now()\nfail('x')", "after entry 1 of its history: it would fail: main.star:2:5: fail: x"},
	} {
		if _, err := s.changeProgram(c.source, false); !fault.Is(err, fault.Refused) || !strings.Contains(err.Error(), "does not fit") ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, expected %q", what, err, c.want)
		}
	}
	if _, err := s.changeProgram("def", false); !fault.Is(err, fault.Invalid) {
		t.Errorf("no program: %v", err)
	}
	next := "now()\n" + strings.Replace(parked, "old", "new", 1)
	if w, err := s.changeProgram(next, true); err != nil || w.GetProgramDigest() != before.GetProgramDigest() {
		t.Errorf("a dry run: %v, error %v", w, err)
	}
	w, err := s.changeProgram(next, false)
	if err != nil || w.GetProgramDigest() == before.GetProgramDigest() || len(w.GetProgramChanges()) != 1 ||
		w.GetProgramChanges()[0].GetReplacedDigest() != before.GetProgramDigest() || w.GetProgramChanges()[0].GetReason() != "a bug" {
		t.Fatalf("%v, error %v", w, err)
	}
	// A caller that does not know whether it was done asks again.
	again, err := s.changeProgram(next, false)
	if err != nil || len(again.GetProgramChanges()) != 1 || again.GetProgramDigest() != w.GetProgramDigest() {
		t.Errorf("the same program again: %v, error %v, expected the one change", again, err)
	}
	s.tickNumber("1")
	s.await("w", autoflowv1.WorkflowState_WORKFLOW_STATE_COMPLETED)
	if lines := s.lines("w"); !slices.Equal(lines, []string{"new"}) {
		t.Errorf("printed %v, expected what the new program prints", lines)
	}
	if _, err := s.changeProgram(next, false); !fault.Is(err, fault.Refused) {
		t.Errorf("a run that has ended: %v", err)
	}
}
