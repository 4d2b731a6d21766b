package workflow_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/bus"
	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
	"github.com/lockstep-cd/lockstep/services/workflow"
)

// unowned is a configuration that knows of no agent: what there is comes from the domain service.
func unowned(c *workflow.Config) {
	c.AgentOwners, c.Tokens = nil, accessTokens()
}

// declare says whose an agent is, as the domain service does.
func (s *service) declare(number, organization int64, revoked bool) error {
	s.t.Helper()
	_, err := s.DeclareAgents(s.t.Context(), &autoflowv1.DeclareAgentsRequest{Agents: []*autoflowv1.DeclaredAgent{
		{AgentId: number, OrganizationId: organization, Revoked: revoked},
	}})
	return err
}

// ended waits for the end of another organization's run and answers why it ended; empty where it completed.
func (s *service) ended(client autoflowv1.AutoFlowClient, id string) string {
	s.t.Helper()
	var w *autoflowv1.Workflow
	s.eventually("workflow "+id+" ends", func(ctx context.Context) bool {
		resp, err := client.GetWorkflow(ctx, &autoflowv1.GetWorkflowRequest{WorkflowId: id})
		w = resp.GetWorkflow()
		return err == nil && w.GetFinishedAt() != nil
	})
	return w.GetError()
}

// TestAgentsOfOthersCannotBeCalled: whatever way a program of another organization tries, it gets an error that says which call
// and which argument, and nothing leaves for the agent's relay (R41).
func TestAgentsOfOthersCannotBeCalled(t *testing.T) {
	t.Parallel()
	s := startWith(t, unowned)
	if err := s.declare(agentID, organization, false); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var heard []string
	relay := s.bus.Connect(t, bus.RelayUser(agentID))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = relay.Consume(ctx, bus.AgentConsumer(agentID), func(ctx context.Context, d bus.Delivery) error {
			mu.Lock()
			defer mu.Unlock()
			heard = append(heard, d.Event.Type())
			call, err := event.Decode[event.FunctionCalled](d.Event)
			if err != nil {
				return err
			}
			answer, err := event.New(event.Header{ID: call.CallID, Source: "/agents/7", Time: clock.System().Now()}, event.FunctionCompleted{
				AgentID: agentID, CallID: call.CallID, Attempt: call.Attempt, Value: []byte(`{"found": false}`),
			})
			if err != nil {
				return err
			}
			return relay.Publish(ctx, answer)
		}, nil)
	}()
	t.Cleanup(func() { cancel(); <-done })

	stranger := s.as(tokenOf(2, "start"))
	for name, call := range map[string]string{
		"run":   `run("k8s.get", {"agent_id": 7, "kind": "Pod", "name": "x"})`,
		"poll":  `poll("k8s.get", {"agent_id": 7, "kind": "Pod", "name": "x"}, until = {"found": True}, interval = 1)`,
		"watch": `run("k8s.watch", {"agent_id": 7, "kind": "Pod", "name": "x", "fields": ["status"]})`,
		"spawn": `gather([spawn(lambda: run("argo.abort", {"agent_id": 7, "rollout_name": "a", "rollout_namespace": "b"}))])`,
	} {
		_, err := stranger.StartWorkflow(t.Context(), &autoflowv1.StartWorkflowRequest{WorkflowId: name, Starlark: []byte("x = 1\n" + call)})
		if err != nil {
			t.Fatal(err)
		}
		problem := s.ended(stranger, name)
		for _, want := range []string{"main.star:2", "agent_id: found 7, expected the number of an agent of the organization"} {
			if !strings.Contains(problem, want) {
				t.Errorf("%s: ended with %q, expected %q in it", name, problem, want)
			}
		}
	}
	// What left for the relay before comes before what leaves now.
	s.submit("own", `run("k8s.get", {"agent_id": 7, "kind": "Pod", "name": "x"})`, "")
	s.await("own", autoflowv1.WorkflowState_WORKFLOW_STATE_COMPLETED)
	mu.Lock()
	defer mu.Unlock()
	if others := slices.DeleteFunc(heard, func(eventType string) bool { return eventType == event.TypeFunctionCalled }); len(others) > 0 {
		t.Errorf("the relay was sent %v", others)
	}
	calls, err := s.GetLogs(t.Context(), &autoflowv1.GetLogsRequest{OrganizationId: organization, WorkflowId: "own"})
	if err != nil || len(calls.GetLines()) == 0 {
		t.Errorf("the owner's own call left no line: %v", err)
	}
}

// TestOnlyAdministratorsDeclareTheOwnersOfAgents: declarations add up, and only a token of all organizations may declare.
func TestOnlyAdministratorsDeclareTheOwnersOfAgents(t *testing.T) {
	t.Parallel()
	s := startWith(t, unowned)
	admin := s.as(tokenOf(2, "admin"))
	ask := &autoflowv1.DeclareAgentsRequest{Agents: []*autoflowv1.DeclaredAgent{{AgentId: agentID, OrganizationId: 2}}}
	if _, err := admin.DeclareAgents(t.Context(), ask); !fault.Is(err, fault.Denied) {
		t.Errorf("an organization's administrator declares: %v, expected a denial", err)
	}
	brings := &autoflowv1.StartWorkflowRequest{WorkflowId: "brings", Starlark: []byte("x = 1"), AgentIds: []int64{agentID}}
	if _, err := admin.StartWorkflow(t.Context(), brings); !fault.Is(err, fault.Denied) {
		t.Errorf("an organization's administrator brings an agent: %v, expected a denial", err)
	}
	// To start workflows of all organizations is not to say whose agents are.
	brings.OrganizationId = 2
	if _, err := s.as(tokenOf(0, "start")).StartWorkflow(t.Context(), brings); !fault.Is(err, fault.Denied) {
		t.Errorf("a token for starts brings an agent: %v, expected a denial", err)
	}
	if err := s.declare(agentID, organization, false); err != nil {
		t.Fatal(err)
	}
	if err := s.declare(agentID, 2, false); !fault.Is(err, fault.Conflict) {
		t.Errorf("an agent gets a second owner: %v, expected a conflict", err)
	}
	_, err := s.DeclareAgents(t.Context(), &autoflowv1.DeclareAgentsRequest{Agents: []*autoflowv1.DeclaredAgent{
		{OrganizationId: 1}, {AgentId: 3, OrganizationId: -1}, {AgentId: 4, OrganizationId: 1}, {AgentId: 4, OrganizationId: 2},
	}})
	var wrong []string
	for _, f := range fault.FieldsOf(err) {
		wrong = append(wrong, f.Name)
	}
	if want := []string{"agents[0].agent_id", "agents[1].organization_id", "agents[3].organization_id"}; !fault.Is(err, fault.Invalid) ||
		!slices.Equal(wrong, want) {
		t.Errorf("nonsense is declared: %v at %v, expected invalid at %v", err, wrong, want)
	}
	call := `run("k8s.get", {"agent_id": 7, "kind": "Pod", "name": "x"})`
	s.submit("parked", call, "")
	s.await("parked", autoflowv1.WorkflowState_WORKFLOW_STATE_PARKED)
	if err := s.declare(agentID, organization, true); err != nil {
		t.Fatal(err)
	}
	if err := s.declare(agentID, organization, false); err != nil {
		t.Fatal(err)
	}
	s.submit("late", call, "")
	if w := s.await("late", autoflowv1.WorkflowState_WORKFLOW_STATE_FAILED); !strings.Contains(w.GetError(), "found 7, which was revoked") {
		t.Errorf("a revoked agent is called: %q", w.GetError())
	}
}

// TestRunsWaitForThoseWhoKnowWhoseAgentsAre: after an update nobody has said it yet. A start that brings an agent is as good as a
// declaration, and survives a restart.
func TestRunsWaitForThoseWhoKnowWhoseAgentsAre(t *testing.T) {
	t.Parallel()
	s := startWith(t, unowned)
	s.relay(func(event.FunctionCalled) event.FunctionCompleted {
		return event.FunctionCompleted{Value: []byte(`{"found": false}`)}
	})
	call := []byte(`run("k8s.get", {"agent_id": 7, "kind": "Pod", "name": "x"})`)
	s.submit("early", string(call), "")
	_, err := s.StartWorkflow(t.Context(), &autoflowv1.StartWorkflowRequest{
		OrganizationId: organization, WorkflowId: "brings",
		Starlark: call, AgentIds: []int64{agentID},
	})
	if err != nil {
		t.Fatal(err)
	}
	s.await("brings", autoflowv1.WorkflowState_WORKFLOW_STATE_COMPLETED)
	s.await("early", autoflowv1.WorkflowState_WORKFLOW_STATE_COMPLETED)
	s.down()
	s.up()
	s.submit("again", string(call), "")
	s.await("again", autoflowv1.WorkflowState_WORKFLOW_STATE_COMPLETED)
}
