package workflow_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
)

var (
	manyChildren = flag.Int("children", 1200, "how many children one parent starts; the goal is 10000 in 4 s, undisturbed")
	undisturbed  = flag.Bool("undisturbed", false, "do not kill the service while they run")
)

// One parent has more children than it could have branches, each with a result of its own; the service is killed (signal 9) in the middle,
// when some have started and some have ended, and every child has run once. `make nightly` has 10,000.
func TestAParentOfManyChildren(t *testing.T) {
	t.Parallel()
	s := start(t)
	const source = `
def leaf(n):
    return {"n": n}

def main(many = 0, n = None):
    if n != None:
        return leaf(n)
    children = [start_workflow("main.star", {"n": i}) for i in range(many)]
    print(sum([await_workflow(child).n for child in children]))

def sum(numbers):
    total = 0
    for n in numbers:
        total += n
    return total
`
	kill := func() {}
	if !*undisturbed {
		s.config.LeaseDuration = time.Second
		s.down()
		kill = s.spawn()
	}
	began := clock.System().Now()
	s.submit("parent", source, fmt.Sprintf(`{"many": %d}`, *manyChildren))
	if !*undisturbed {
		s.eventually("some children have ended", func(ctx context.Context) bool {
			list, err := s.ListWorkflows(ctx, &autoflowv1.ListWorkflowsRequest{
				OrganizationId: organization, Labels: map[string]string{"lockstep.parent": "parent"}, PageSize: 100,
				States: []autoflowv1.WorkflowState{autoflowv1.WorkflowState_WORKFLOW_STATE_COMPLETED},
			})
			return err == nil && len(list.GetWorkflows()) == 100
		})
		kill()
		if w, err := s.GetWorkflow(t.Context(), &autoflowv1.GetWorkflowRequest{OrganizationId: organization, WorkflowId: "parent"}); err == nil {
			t.Errorf("the service answers after its death: %v", w)
		}
		s.spawn()
	}
	s.await("parent", autoflowv1.WorkflowState_WORKFLOW_STATE_COMPLETED)
	t.Logf("%d children in %s", *manyChildren, clock.System().Now().Sub(began))
	n := *manyChildren
	if lines := s.lines("parent"); len(lines) != 1 || lines[0] != fmt.Sprint(n*(n-1)/2) {
		t.Errorf("found %v, expected the sum of all results", lines)
	}
	list, err := s.ListWorkflows(t.Context(), &autoflowv1.ListWorkflowsRequest{
		OrganizationId: organization, Labels: map[string]string{"lockstep.parent": "parent"}, PageSize: 100,
	})
	if err != nil || len(list.GetWorkflows()) == 0 {
		t.Errorf("listed %v, error %v", list, err)
	}
}

// What a run reports of itself is shown to those who look at it or list it, over a replacement of the service and after its end.
func TestTheStatusOfARunIsReadWithoutIt(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.submit("reports", `
def again(n):
    set_status("step", n)
    set_status("gone", None)
    wait_for_event("com.example.go", timeout = 600)
    set_status("healthy", True)

def main():
    set_status("step", 1)
    set_status("step", "two")
    set_status("gone", 1.5)
    continue_with(again, 3)
`, "")
	s.eventually("a status", func(context.Context) bool {
		w, err := s.GetWorkflow(t.Context(), &autoflowv1.GetWorkflowRequest{OrganizationId: organization, WorkflowId: "reports"})
		return err == nil && len(w.GetWorkflow().GetStatus()) == 1 && w.GetWorkflow().GetStatus()["step"] == "3"
	})
	s.down()
	s.up()
	if _, err := s.CloudEvent(t.Context(), &autoflowv1.CloudEventRequest{CloudEvent: []byte(
		`{"specversion": "1.0", "id": "1", "source": "/test", "type": "com.example.go", "organizationid": 1, "data": {}}`)}); err != nil {
		t.Fatal(err)
	}
	s.await("reports", autoflowv1.WorkflowState_WORKFLOW_STATE_COMPLETED)
	list, err := s.ListWorkflows(t.Context(), &autoflowv1.ListWorkflowsRequest{OrganizationId: organization})
	if err != nil || len(list.GetWorkflows()) != 1 || list.GetWorkflows()[0].GetStatus()["healthy"] != "true" ||
		list.GetWorkflows()[0].GetStatus()["step"] != "3" {
		t.Errorf("listed %v, %v", list, err)
	}
}

// What a run has started ends with it, however it ends; what is detached does not.
func TestChildrenEndWithTheirParent(t *testing.T) {
	t.Parallel()
	s := start(t)
	const source = `
def main(end, nested = False):
    if nested:
        start_workflow("main.star", {"end": "waits"}, id = "grandchild")
    if end != "waits":
        start_workflow("main.star", {"end": "waits", "nested": True}, id = "child")
        print(start_workflow("main.star", {"end": "waits"}, id = "detached", detached = True).id)
    if end == "fails":
        sleep(0.1)
        fail("the end")
    if end != "completes":
        receive(channel(), timeout = 3600)
`
	type ends func(id string) error
	for end, how := range map[string]ends{
		"fails": nil, "completes": nil,
		"cancelled": func(id string) error {
			_, err := s.CancelWorkflow(t.Context(), &autoflowv1.CancelWorkflowRequest{OrganizationId: organization, WorkflowId: id})
			return err
		},
		"terminated": func(id string) error {
			_, err := s.TerminateWorkflow(t.Context(), &autoflowv1.TerminateWorkflowRequest{
				OrganizationId: organization, WorkflowId: id, Reason: "enough",
			})
			return err
		},
	} {
		s.submit(end, source, `{"end": "`+end+`"}`)
		s.awaitStarts(end)
		if how != nil {
			if err := how(end); err != nil {
				t.Fatal(err)
			}
		}
		for _, child := range s.childrenOf(end) {
			want := autoflowv1.WorkflowState_WORKFLOW_STATE_CANCELLED
			if child.detached {
				want = autoflowv1.WorkflowState_WORKFLOW_STATE_PARKED
			} else if end == "cancelled" {
				for _, grandchild := range s.childrenOf(child.id) {
					s.await(grandchild.id, want)
				}
			}
			s.await(child.id, want)
		}
	}
}

// started is a child as its parent's history has it.
type started struct {
	id       string
	detached bool
}

func (s *service) childrenOf(id string) (children []started) {
	history, err := s.GetHistory(s.t.Context(), &autoflowv1.GetHistoryRequest{OrganizationId: organization, WorkflowId: id})
	if err != nil {
		s.t.Fatal(err)
	}
	for _, e := range history.GetEntries() {
		var child struct {
			Workflow string `json:"workflow_id"`
			Detached bool
		}
		if e.GetKind() == "start" && json.Unmarshal([]byte(e.GetValue()), &child) == nil {
			children = append(children, started{child.Workflow, child.Detached})
		}
	}
	return children
}

// awaitStarts waits until a run has started children.
func (s *service) awaitStarts(id string) {
	s.t.Helper()
	s.eventually("children of "+id, func(context.Context) bool { return len(s.childrenOf(id)) > 0 })
}
