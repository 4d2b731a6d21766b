package workflow_test

import (
	"context"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
)

// A program that nobody here vouches for runs in a process of its own; it is cancelled while it waits, in the middle of its calls its
// service is replaced, and the calls that are left are made once. Terminate leaves them out.
func TestACancelledRunMakesItsDeferredCallsOverARestart(t *testing.T) {
	t.Parallel()
	s := start(t)
	const source = `
def release(n):
    print("release", run("checkpoint", {"state": {"n": n}}).n)
    if n == 2:
        wait_for_event("com.example.released", timeout = 600)

defer(release, 1)
defer(release, 2)
on_cancel(print, "cancelled")
wait_for_event("com.example.never", timeout = 600)
`
	cancel := func(id string) {
		if _, err := s.CancelWorkflow(t.Context(), &autoflowv1.CancelWorkflowRequest{
			OrganizationId: organization, WorkflowId: id, Reason: "enough",
		}); err != nil {
			t.Fatal(err)
		}
	}
	kinds := func(id string) (all []string) {
		history, err := s.GetHistory(t.Context(), &autoflowv1.GetHistoryRequest{OrganizationId: organization, WorkflowId: id})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range history.GetEntries() {
			all = append(all, e.GetKind())
		}
		return all
	}
	s.submit("cancelled", source, "")
	s.submit("terminated", source, "")
	s.await("cancelled", autoflowv1.WorkflowState_WORKFLOW_STATE_PARKED)
	s.await("terminated", autoflowv1.WorkflowState_WORKFLOW_STATE_PARKED)
	cancel("cancelled")
	cancel("terminated")
	for _, id := range []string{"cancelled", "terminated"} { // the first of its calls waits
		s.eventually(id+" makes its calls", func(context.Context) bool {
			return len(kinds(id)) >= 8 && s.await(id, autoflowv1.WorkflowState_WORKFLOW_STATE_PARKED) != nil
		})
	}
	if _, err := s.TerminateWorkflow(t.Context(), &autoflowv1.TerminateWorkflowRequest{
		OrganizationId: organization, WorkflowId: "terminated", Reason: "at once",
	}); err != nil {
		t.Fatal(err)
	}
	s.down()
	s.up()
	cancel("cancelled") // again, which changes nothing
	if _, err := s.CloudEvent(t.Context(), &autoflowv1.CloudEventRequest{CloudEvent: []byte(
		`{"specversion": "1.0", "id": "1", "source": "/test", "type": "com.example.released", "organizationid": 1, "data": {}}`)}); err != nil {
		t.Fatal(err)
	}
	w := s.await("cancelled", autoflowv1.WorkflowState_WORKFLOW_STATE_CANCELLED)
	if w.GetError() != "enough" {
		t.Errorf("it was cancelled with %q", w.GetError())
	}
	want := []string{
		"defer", "defer", "defer", "ending", "print", "deferred", "run", "print", "wait", "deferred", "run", "print", "deferred", "cancelled",
	}
	if diff := cmp.Diff(want, kinds("cancelled")); diff != "" {
		t.Errorf("history (-want +got):\n%s", diff)
	}
	s.await("terminated", autoflowv1.WorkflowState_WORKFLOW_STATE_TERMINATED)
	if left := kinds("terminated"); left[len(left)-1] != "terminated" || slices.Contains(left, "wait") {
		t.Errorf("a terminated run has made its calls: %v", left)
	}
}
