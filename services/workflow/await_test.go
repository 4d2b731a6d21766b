package workflow_test

import (
	"context"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
)

func TestGetWorkflowWaitsForTheEnd(t *testing.T) {
	t.Parallel()
	s := start(t)
	get := func(wait time.Duration) (*autoflowv1.Workflow, error) {
		ctx, cancel := context.WithTimeout(t.Context(), within)
		defer cancel()
		resp, err := s.GetWorkflow(ctx, &autoflowv1.GetWorkflowRequest{OrganizationId: organization, WorkflowId: "w", Wait: durationpb.New(wait)})
		return resp.GetWorkflow(), err
	}
	if _, err := get(time.Minute); !fault.Is(err, fault.NotFound) {
		t.Errorf("a workflow that is not there: %v", err)
	}
	s.submit("w", `wait_for_event("com.example.go")`, "{}")
	s.await("w", autoflowv1.WorkflowState_WORKFLOW_STATE_PARKED)
	if w, err := get(10 * time.Millisecond); err != nil || w.GetState() != autoflowv1.WorkflowState_WORKFLOW_STATE_PARKED {
		t.Errorf("after the time: %v, error %v", w, err)
	}
	if _, err := get(2 * time.Minute); !fault.Is(err, fault.Invalid) {
		t.Errorf("too long a wait: %v", err)
	}
	answered := make(chan *autoflowv1.Workflow)
	go func() {
		w, _ := get(50 * time.Second) // nil for an error, which is no completed workflow
		answered <- w
	}()
	_, err := s.CloudEvent(t.Context(), &autoflowv1.CloudEventRequest{
		CloudEvent: []byte(`{"specversion":"1.0","id":"1","source":"/x","type":"com.example.go","organizationid":"1","data":{}}`),
	})
	if err != nil {
		t.Fatal(err)
	}
	w := <-answered
	if w.GetState() != autoflowv1.WorkflowState_WORKFLOW_STATE_COMPLETED || w.GetFinishedAt() == nil || w.GetLastSequence() != 2 {
		t.Errorf("at the end: %v", w)
	}
}
