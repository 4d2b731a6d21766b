package workflow_test

import (
	"context"
	"strings"
	"testing"

	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
)

func timeline(t *testing.T, s *service, req *autoflowv1.GetTimelineRequest) *autoflowv1.GetTimelineResponse {
	t.Helper()
	req.OrganizationId = organization
	got, err := s.GetTimeline(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// Branches, what is open, children, errors, inputs and outputs, of a run that waits and of one that has ended.
func TestTheTimelineOfARun(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.submit("lanes", `
def part(n):
    run("checkpoint", {"state": {"name": "part %d" % n, "password": "hunter2hunter2"}})
    return receive(inbox)

inbox = channel()
def main(leaf = False):
    if leaf:
        return 7
    child = start_workflow("main.star", {"leaf": True})
    attempt(run, "checkpoint", {"other": 1})
    parts = [spawn(part, n) for n in range(2)]
    await_workflow(child)
    gather(parts)
`, "")
	s.eventually("both branches wait", func(ctx context.Context) bool {
		got, err := s.GetWorkflow(ctx, &autoflowv1.GetWorkflowRequest{OrganizationId: organization, WorkflowId: "lanes"})
		return err == nil && len(got.GetWorkflow().GetWaits()) == 2
	})
	got := timeline(t, s, &autoflowv1.GetTimelineRequest{WorkflowId: "lanes"})
	if got.GetGap() != "" || got.GetEarlier() || !got.GetInputs() || len(got.GetBranches()) != 3 {
		t.Fatalf("found %v", got)
	}
	for i, parent := range []int32{-1, 0, 0} {
		b := got.GetBranches()[i]
		if b.GetBranch() != int32(i) || b.GetParent() != parent || (b.GetEndedAt() == nil) != (i > 0) {
			t.Errorf("branch %d: %v", i, b)
		}
	}
	steps := map[string]*autoflowv1.TimelineStep{}
	for _, step := range got.GetSteps() {
		key := step.GetKind()
		if step.GetBranch() > 0 || step.GetCode() != "" {
			key += " " + strings.Repeat("I", int(step.GetBranch()))
		}
		steps[key] = step
		if step.GetPosition() == "" || step.GetBeganAt() == nil || step.GetEndedAt() != nil && step.GetEndedAt().AsTime().Before(step.GetBeganAt().AsTime()) {
			t.Errorf("step without a place or with a wrong time: %v", step)
		}
		if text := step.String(); strings.Contains(text, "hunter2") || strings.Contains(text, "ch_") {
			t.Errorf("a step shows a secret or the token of a channel: %s", text)
		}
	}
	if child := steps["start"]; child.GetChild() == "" || !strings.Contains(child.GetInput(), `"leaf":true`) {
		t.Errorf("the child: %v", child)
	}
	if failed := steps["run "]; failed.GetCode() == "" || failed.GetInput() != `{"other":1}` {
		t.Errorf("the call that failed: %v", failed)
	}
	if part := steps["run II"]; !strings.Contains(part.GetInput(), "part 1") || part.GetSequence() == 0 {
		t.Errorf("the call of the second branch: %v", part)
	}
	if open := steps["receive I"]; open.GetSequence() != 0 || open.GetEndedAt() != nil || open.GetUntil() == nil {
		t.Errorf("what is open: %v", open)
	}
	all := len(got.GetSteps()) - 2
	page := timeline(t, s, &autoflowv1.GetTimelineRequest{WorkflowId: "lanes", PageSize: 2, BeforeSequence: int64(all)})
	if len(page.GetSteps()) != 2 || page.GetSteps()[1].GetSequence() != int64(all-1) || !page.GetEarlier() {
		t.Errorf("the page before entry %d: %v", all, page)
	}
	bare := timeline(t, s, &autoflowv1.GetTimelineRequest{WorkflowId: "lanes", WithoutInputs: true})
	for _, step := range bare.GetSteps() {
		if step.GetInput() != "" || bare.GetInputs() {
			t.Errorf("asked for none: %v", step)
		}
	}
	s.submit("broken", "print(1)\nfail('as it says')", "")
	s.await("broken", autoflowv1.WorkflowState_WORKFLOW_STATE_FAILED)
	ended := timeline(t, s, &autoflowv1.GetTimelineRequest{WorkflowId: "broken"})
	if n := len(ended.GetSteps()); ended.GetGap() != "" || n != 2 || ended.GetSteps()[1].GetKind() != "failed" || ended.GetSteps()[1].GetBranch() != -1 {
		t.Errorf("a run that has failed: %v", ended)
	}
}
