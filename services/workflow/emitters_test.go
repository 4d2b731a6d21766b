package workflow_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/testkit/emitters"
	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
	"github.com/lockstep-cd/lockstep/services/workflow"
)

// wireOf is an event of the catalogue in JSON.
func wireOf(t *testing.T, id, source string, data event.Data) []byte {
	t.Helper()
	e, err := event.New(event.Header{ID: id, Source: source, Organization: organization, Time: time.Unix(1_800_000_000, 0)}, data)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestCallersSendOnlyWhatIsTheirs (D47) walks the catalogue at CloudEvent with tokens of every scope, the domain service's
// among them: each of them is a caller.
func TestCallersSendOnlyWhatIsTheirs(t *testing.T) {
	t.Parallel()
	s := startWith(t, func(c *workflow.Config) { c.Tokens = accessTokens() })
	clients := map[string]autoflowv1.AutoFlowClient{"domain": s}
	for _, scope := range []string{"start", "operate", "admin"} {
		clients[scope] = s.as(tokenOf(organization, scope))
	}
	emitters.Walk(t, func(d event.Definition, by event.Emitter, may bool) {
		for name, client := range clients {
			_, err := client.CloudEvent(t.Context(), &autoflowv1.CloudEventRequest{CloudEvent: wireOf(t, name+string(by)+d.Type,
				emitters.Source(by), d.Example)})
			callers := by == event.EmitterCaller && may
			if callers != (err == nil) || err != nil && refusedFor(err) != "type" && refusedFor(err) != "source" {
				t.Errorf("%s from %s with the token %s: %v, expected that it may is %t", d.Type, emitters.Source(by), name, err, callers)
			}
		}
	})
}

// TestNobodyButTheDomainServiceAnswersAnApproval (D47): another program, a caller, a message to a channel and an event of the
// caller's own with the same data do not resolve the wait; the domain service does.
func TestNobodyButTheDomainServiceAnswersAnApproval(t *testing.T) {
	t.Parallel()
	s := startWith(t, func(c *workflow.Config) { c.Tokens = accessTokens() })
	s.submit("waits", `
reply = channel()
print(reply.token)
event = wait_for_event(["com.gitlab.cd.approval.resolved", "com.gitlab.cd.rollout.passage_granted"], {"rollout_id": 7}, timeout = 600)
print(event.source)
`, "")
	s.await("waits", autoflowv1.WorkflowState_WORKFLOW_STATE_PARKED)
	approved := event.ApprovalResolved{RolloutID: 7, GateID: "production", Resolution: "approved", PrincipalType: "user", PrincipalID: 1}

	s.submit("forger", `
answer = {"rollout_id": 7, "gate_id": "production", "resolution": "approved", "principal_type": "user", "principal_id": 1}
for each in [("com.gitlab.cd.approval.resolved", answer), ("com.gitlab.cd.rollout.passage_granted", {"rollout_id": 7, "gate_id": "production"})]:
    result = run("emit", {"type": each[0], "data": each[1]}, on_error = "return")
    print(result.code, result.error)
`, "")
	s.await("forger", autoflowv1.WorkflowState_WORKFLOW_STATE_COMPLETED)
	for _, line := range s.lines("forger") {
		if !strings.Contains(line, "from a program, expected it from the domain service") {
			t.Errorf("a program emits an answer: found %q, expected a refusal that names both", line)
		}
	}
	for _, source := range []string{"/ci", event.SourceDomain} {
		_, err := s.as(tokenOf(organization, "start")).CloudEvent(t.Context(),
			&autoflowv1.CloudEventRequest{CloudEvent: wireOf(t, "forged"+source, source, approved)})
		if !fault.Is(err, fault.Invalid) {
			t.Errorf("a caller answers as %s: %v, expected a refusal", source, err)
		}
	}
	body, err := json.Marshal(map[string]any{
		"type": event.TypeApprovalResolved, "source": event.SourceDomain,
		"rollout_id": 7, "data": approved,
	})
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.SendToChannel(t.Context(), &autoflowv1.SendToChannelRequest{
		OrganizationId: organization, Token: s.lines("waits")[0],
		MessageId: "1", Data: body,
	})
	if err != nil {
		t.Fatal(err)
	}
	w, err := s.GetWorkflow(t.Context(), &autoflowv1.GetWorkflowRequest{OrganizationId: organization, WorkflowId: "waits"})
	if err != nil || w.GetWorkflow().GetState() != autoflowv1.WorkflowState_WORKFLOW_STATE_PARKED {
		t.Fatalf("the wait is over: the run is %s, %v", w.GetWorkflow().GetState(), err)
	}

	// An account may be allowed to publish there; the source still has to be the domain's.
	js := s.bus.JetStream(t, "domain")
	for i, source := range []string{"/ci", event.SourceRegistry, event.SourceWorkflow, event.SourceDomain} {
		_, err := js.PublishMsg(t.Context(), &nats.Msg{
			Subject: "cd.domain.1.approval.resolved",
			Data:    wireOf(t, fmt.Sprint("bus-", i), source, approved),
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	s.await("waits", autoflowv1.WorkflowState_WORKFLOW_STATE_COMPLETED)
	if lines := s.lines("waits"); lines[len(lines)-1] != event.SourceDomain {
		t.Errorf("the wait was resolved by %s, expected %s", lines[len(lines)-1], event.SourceDomain)
	}
}

// TestNobodyTakesTheIDsOfOurRuns (D47): with every scope, one by one and in a batch; the domain service's own token may.
func TestNobodyTakesTheIDsOfOurRuns(t *testing.T) {
	t.Parallel()
	s := startWith(t, func(c *workflow.Config) { c.Tokens = accessTokens() })
	for _, id := range []string{
		"rollout-78", "preview-5", "environment-3-onboarding-1", "application-environment-4-setup-2",
		"mine-rollout-78",
	} {
		reserved := id != "mine-rollout-78"
		for _, scope := range []string{"start", "operate", "admin"} {
			calls := methods(organization, id)
			for _, method := range []string{"StartWorkflow", "StartWorkflows"} {
				if err := calls[method](t.Context(), s.as(tokenOf(organization, scope))); reserved != fault.Is(err, fault.Denied) {
					t.Errorf("%s of %s with scope %s: %v, expected that it is denied is %t", method, id, scope, err, reserved)
				}
			}
		}
		if err := methods(organization, id)["StartWorkflow"](t.Context(), s); err != nil {
			t.Errorf("the domain service starts %s: %v", id, err)
		}
	}
	// A child's nobody starts but its parent, not even the domain service.
	for _, method := range []string{"StartWorkflow", "StartWorkflows"} {
		if err := methods(organization, "child:1:rollout-78/0123456789abcdef01234567")[method](t.Context(), s); !fault.Is(err, fault.Denied) {
			t.Errorf("%s of a child: %v, expected that it is denied", method, err)
		}
	}
}
