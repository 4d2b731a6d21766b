package workflow_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
)

// drain reads a watch to its end.
func drain(stream autoflowv1.AutoFlow_WatchWorkflowClient, err error) (entries []string, states []autoflowv1.WorkflowState, last error) {
	if err != nil {
		return nil, nil, err
	}
	for {
		news, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return entries, states, nil
		case err != nil:
			return entries, states, err
		case news.GetEntry() != nil:
			entries = append(entries, fmt.Sprintf("%d %s", news.GetEntry().GetSequence(), news.GetEntry().GetKind()))
		default:
			states = append(states, news.GetWorkflow().GetState())
		}
	}
}

func TestWatchWorkflow(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.submit("w", `print("one")
wait_for_event("com.example.tick", {"n": 1})
print("two")`, "")
	s.await("w", autoflowv1.WorkflowState_WORKFLOW_STATE_PARKED)

	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	watch := func(after int64) autoflowv1.AutoFlow_WatchWorkflowClient {
		stream, err := s.WatchWorkflow(ctx, &autoflowv1.WatchWorkflowRequest{OrganizationId: 1, WorkflowId: "w", AfterSequence: after})
		if err != nil {
			t.Fatal(err)
		}
		return stream
	}
	whole, late := watch(0), watch(1)
	for i, want := range []string{"PARKED", "print"} {
		news, err := whole.Recv()
		if got := news.GetWorkflow().GetState().String() + news.GetEntry().GetKind(); err != nil || !strings.HasSuffix(got, want) {
			t.Errorf("news %d: %v, error %v; expected %s", i, news, err, want)
		}
	}
	if _, err := s.CloudEvent(ctx, &autoflowv1.CloudEventRequest{CloudEvent: []byte(strings.Replace(cloudEvent, "ID", "1", 1))}); err != nil {
		t.Fatal(err)
	}
	rest := []string{"2 wait", "3 print", "4 completed"}
	for name, stream := range map[string]autoflowv1.AutoFlow_WatchWorkflowClient{
		"from the beginning": whole, "from the first entry": late,
		"after the end": watch(1),
	} {
		entries, states, err := drain(stream, nil)
		if diff := cmp.Diff(rest, entries); diff != "" || err != nil ||
			states[len(states)-1] != autoflowv1.WorkflowState_WORKFLOW_STATE_COMPLETED {
			t.Errorf("%s: states %v, error %v, entries (-want +got):\n%s", name, states, err, diff)
		}
	}

	// A service that stops reports it; the client continues where it was.
	s.submit("long", `wait_for_event("com.example.never")`, "")
	stream, err := s.WatchWorkflow(ctx, &autoflowv1.WatchWorkflowRequest{OrganizationId: 1, WorkflowId: "long"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	s.down()
	if _, _, err := drain(stream, nil); !fault.Is(err, fault.Unavailable) {
		t.Errorf("while the service stops: %v", err)
	}
}

// A watcher receives what a workflow waits for whenever that changes, once, after the entries that led there.
func TestAWatcherSeesEachWait(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.submit("w", `wait_for_event("com.example.tick", {"n": 1})
wait_for_event("com.example.never")`, "")
	s.await("w", autoflowv1.WorkflowState_WORKFLOW_STATE_PARKED)
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	stream, err := s.WatchWorkflow(ctx, &autoflowv1.WatchWorkflowRequest{OrganizationId: 1, WorkflowId: "w"})
	if err != nil {
		t.Fatal(err)
	}
	first, err := stream.Recv()
	if err != nil || len(first.GetWorkflow().GetWaits()) != 1 {
		t.Fatalf("received first %v, error %v", first, err)
	}
	if _, err := s.CloudEvent(ctx, &autoflowv1.CloudEventRequest{CloudEvent: []byte(strings.Replace(cloudEvent, "ID", "1", 1))}); err != nil {
		t.Fatal(err)
	}
	entered := false
	for {
		news, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		w := news.GetWorkflow()
		switch {
		case w == nil:
			entered = true
		case w.GetState() == autoflowv1.WorkflowState_WORKFLOW_STATE_PARKED && len(w.GetWaits()) == 1 &&
			w.GetWaits()[0].GetEventTypes()[0] == "com.example.never":
			if !entered {
				t.Error("received what it waits for before the entry that led there")
			}
			return
		}
	}
}
