package workflow_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/bus"
	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/event"
	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
	"github.com/lockstep-cd/lockstep/services/workflow"
)

// The holes that passages (D46, D47) were made for. This file also compiles with the code before them, where each of its tests fails:
// docs/contributing/holes.md has how, and what was found.

// gateProgram waits for its answers as the deploy programs of that time did: by what they are about, from any sender.
const gateProgram = `
approved = wait_for_event(type = ["com.gitlab.cd.approval.resolved"], filter = {"rollout_id": 7}, timeout = 600)
granted = wait_for_event(type = ["com.gitlab.cd.rollout.passage_granted"], filter = {"rollout_id": 7}, timeout = 600)
`

// forgeries are the answers that gateProgram waits for.
func forgeries() []event.Data {
	return []event.Data{
		event.ApprovalResolved{RolloutID: 7, GateID: "production", Resolution: "approved", PrincipalType: "user", PrincipalID: 1},
		event.RolloutPassageGranted{RolloutID: 7, GateID: "production"},
	}
}

// stillWaits fails the test if the run has been let through: an event that it believes ends its wait before a later one of its own does.
func (s *service) stillWaits(t *testing.T, id string) {
	t.Helper()
	s.submit("later", `wait_for_event(type = ["com.example.later"], timeout = 600)`, "")
	s.await("later", autoflowv1.WorkflowState_WORKFLOW_STATE_PARKED)
	const later = `{"specversion":"1.0","id":"later","source":"/ci","type":"com.example.later","organizationid":"1","data":{}}`
	if _, err := s.CloudEvent(t.Context(), &autoflowv1.CloudEventRequest{CloudEvent: []byte(later)}); err != nil {
		t.Fatal(err)
	}
	s.await("later", autoflowv1.WorkflowState_WORKFLOW_STATE_COMPLETED)
	w, err := s.GetWorkflow(t.Context(), &autoflowv1.GetWorkflowRequest{OrganizationId: organization, WorkflowId: id})
	if err != nil || w.GetWorkflow().GetState() != autoflowv1.WorkflowState_WORKFLOW_STATE_PARKED {
		t.Errorf("the run that waits at the gate is %s, %v; expected it to wait: nobody has approved", w.GetWorkflow().GetState(), err)
	}
}

// TestHoleAnotherProgramApproves: a program of the organization emits the approval and the passage.
func TestHoleAnotherProgramApproves(t *testing.T) {
	t.Parallel()
	s := startWith(t, func(c *workflow.Config) { c.Tokens = accessTokens() })
	s.submit("waits", gateProgram, "")
	s.await("waits", autoflowv1.WorkflowState_WORKFLOW_STATE_PARKED)
	var program strings.Builder
	for _, forged := range forgeries() {
		data, err := json.Marshal(forged)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&program, "run(\"emit\", {\"type\": %q, \"data\": json.decode(%q)}, on_error = \"return\")\n", forged.EventType(), data)
	}
	s.submit("forger", program.String(), "")
	s.await("forger", autoflowv1.WorkflowState_WORKFLOW_STATE_COMPLETED)
	s.stillWaits(t, "waits")
}

// TestHoleACallerApproves: so does a caller whose token may only start workflows and send events, in the domain service's name or its
// own.
func TestHoleACallerApproves(t *testing.T) {
	t.Parallel()
	s := startWith(t, func(c *workflow.Config) { c.Tokens = accessTokens() })
	s.submit("waits", gateProgram, "")
	s.await("waits", autoflowv1.WorkflowState_WORKFLOW_STATE_PARKED)
	for _, source := range []string{"/ci", "/services/domain"} {
		for _, forged := range forgeries() {
			data, err := json.Marshal(forged)
			if err != nil {
				t.Fatal(err)
			}
			text := fmt.Sprintf(`{"specversion":"1.0","id":"%s-%s","source":%q,"type":%q,"organizationid":"1","time":"2026-01-02T03:04:05Z",`+
				`"datacontenttype":"application/json","data":%s}`, strings.ReplaceAll(source, "/", ""), forged.EventType(), source,
				forged.EventType(), data)
			_, err = s.as(tokenOf(organization, "start")).CloudEvent(t.Context(), &autoflowv1.CloudEventRequest{CloudEvent: []byte(text)})
			if err == nil {
				t.Errorf("%s from %s: accepted from a caller, expected a refusal", forged.EventType(), source)
			}
		}
	}
	s.stillWaits(t, "waits")
}

// TestHoleNothingInterceptsAFunction: the run of a rollout that was granted no passage has a relay change the cluster.
func TestHoleNothingInterceptsAFunction(t *testing.T) {
	t.Parallel()
	s := startWith(t, func(c *workflow.Config) { c.Tokens = accessTokens() })
	const relayOf = 7
	relay := s.bus.Connect(t, bus.RelayUser(relayOf))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	called := make(chan string, 100)
	go func() {
		defer close(done)
		_ = relay.Consume(ctx, bus.AgentConsumer(relayOf), func(ctx context.Context, d bus.Delivery) error {
			call, err := event.Decode[event.FunctionCalled](d.Event)
			if err != nil {
				return err
			}
			called <- call.Function
			answer, err := event.New(event.Header{ID: call.CallID, Source: "/agents/7", Time: clock.System().Now()}, event.FunctionCompleted{
				AgentID: relayOf, CallID: call.CallID, Attempt: call.Attempt, Value: []byte(`{}`),
			})
			if err != nil {
				return err
			}
			return relay.Publish(ctx, answer)
		}, nil)
	}()
	t.Cleanup(func() { cancel(); <-done })
	program := `
args = {"agent_id": 7, "rollout_name": "api", "rollout_namespace": "shop", "step_index": 0}
change = run("argo.promote", args, on_error = "return", timeout = 60)
if change.ok or change.code != "forbidden":
    fail("argo.promote without a passage: ok %s, code %s; expected forbidden" % (change.ok, change.code))
`
	s.submit("rollout-1", program, `{"rollout": {"passages": true}}`)
	var w *autoflowv1.Workflow
	s.eventually("the run ends", func(ctx context.Context) bool {
		resp, err := s.GetWorkflow(ctx, &autoflowv1.GetWorkflowRequest{OrganizationId: organization, WorkflowId: "rollout-1"})
		w = resp.GetWorkflow()
		return err == nil && w.GetFinishedAt() != nil
	})
	if w.GetState() != autoflowv1.WorkflowState_WORKFLOW_STATE_COMPLETED {
		t.Errorf("the run ended %s: %s", w.GetState(), w.GetError())
	}
	select {
	case function := <-called:
		t.Errorf("the relay was called to %s; expected nothing to leave the engine", function)
	default:
	}
}
