package crash

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/rpc"
	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
	"github.com/lockstep-cd/lockstep/tools/lockstep/client"
	"github.com/lockstep-cd/lockstep/tools/lockstep/demo"
)

// Wrong input at each boundary is refused with an error that names the field and the reason, and leaves nothing behind.
func TestWrongInputs(t *testing.T) { //nolint:tparallel // its subtests share one stack, in order
	t.Parallel()
	ctx, w := start(t, demo.Story())
	for _, step := range []func(context.Context) error{w.CreateRepository, w.CreateApplication, w.CreateEnvironments} {
		if err := step(ctx); err != nil {
			t.Fatal(err)
		}
	}
	// One after the other: the last needs what the one before it leaves, and they share one stack.
	t.Run("a CloudEvent without digest", func(t *testing.T) { w.eventWithoutDigest(ctx, t) }) //nolint:paralleltest // see above
	t.Run("an unknown agent", func(t *testing.T) { w.unknownAgent(ctx, t) })                  //nolint:paralleltest // see above
	t.Run("a program with a syntax error", func(t *testing.T) { w.syntaxError(ctx, t) })      //nolint:paralleltest // see above
	t.Run("an unsupported step", func(t *testing.T) { w.unsupportedStep(ctx, t) })            //nolint:paralleltest // see above
	t.Run("a second rollout", func(t *testing.T) { w.secondRollout(ctx, t) })                 //nolint:paralleltest // see above
}

// announce posts a CloudEvent about an image as a CI job does, and returns the status and the text of the answer.
func (w *world) announce(ctx context.Context, t *testing.T, id string, data map[string]any) (status int, answer string) {
	t.Helper()
	e := w.stack.Endpoints()
	body, err := json.Marshal(map[string]any{
		"specversion": "1.0", "id": id, "source": "/ci",
		"type": "com.gitlab.cd.artifact.published", "data": data,
	})
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, e.Registry+"/v1/events", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/cloudevents+json")
	r.Header.Set("Authorization", "Bearer "+e.Token)
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	text, _ := io.ReadAll(response.Body)
	return response.StatusCode, string(text)
}

func (w *world) eventWithoutDigest(ctx context.Context, t *testing.T) {
	t.Helper()
	status, text := w.announce(ctx, t, "1", map[string]any{"image": w.Scenario.Image(w.stack.Endpoints().OCI, "api"), "tag": "9.9.9"})
	if status != http.StatusBadRequest || !strings.Contains(text, "digest") {
		t.Errorf("got %d: %s; want 400 with the field digest", status, text)
	}
	sets, err := w.API.VersionSets(ctx, w.Scenario.Application, 0)
	if err != nil || len(sets) > 0 {
		t.Errorf("version sets: got %v, %v; want none", sets, err)
	}
}

func (w *world) unknownAgent(ctx context.Context, t *testing.T) {
	t.Helper()
	_, err := w.API.CreateEnvironment(ctx, client.EnvironmentInput{
		Name: "elsewhere", Tier: "STAGING", DriverRef: "argo-rollouts@1", DriverConfig: map[string]any{"cluster_agent_id": 99},
	})
	if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "agent 99 does not exist") {
		t.Errorf("got %v; want that agent 99 does not exist", err)
	}
}

func (w *world) syntaxError(ctx context.Context, t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	e := w.stack.Endpoints()
	conn, err := rpc.Dial(rpc.ClientConfig{Address: e.GRPC, Token: e.Token, Insecure: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	workflows := autoflowv1.NewAutoFlowClient(conn)
	_, err = workflows.StartWorkflow(ctx, &autoflowv1.StartWorkflowRequest{
		WorkflowId: "broken", OrganizationId: 1, Starlark: []byte("x = 1\nif x =\n"),
	})
	if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "starlark") || !strings.Contains(err.Error(), ":2:") {
		t.Errorf("got %v (%v), want Invalid with the field starlark and line 2", err, fault.ClassOf(err))
	}
	_, err = workflows.GetWorkflow(ctx, &autoflowv1.GetWorkflowRequest{OrganizationId: 1, WorkflowId: "broken"})
	if !fault.Is(err, fault.NotFound) && status.Code(err) != codes.NotFound {
		t.Errorf("workflow after the refusal: got %v, want NotFound", err)
	}
}

func (w *world) unsupportedStep(ctx context.Context, t *testing.T) {
	t.Helper()
	flow := w.Scenario.Flow(w.stack.RepositoryURL(w.Scenario.Application))
	steps, _ := flow["steps"].([]any)
	flow["steps"] = append(steps, map[string]any{"type": "analysis", "name": "errors"})
	_, err := w.API.CreateFlowDefinition(ctx, w.Scenario.Application, flow)
	if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "steps.3.type") || !strings.Contains(err.Error(), "analysis") {
		t.Errorf("got %v (%v), want Invalid with definition.steps.3.type and analysis", err, fault.ClassOf(err))
	}
	a, err := w.API.Application(ctx, w.Scenario.Application)
	if err != nil || len(a.Environments) > 0 {
		t.Errorf("environments of the application: got %v, %v; want none", a.Environments, err)
	}
}

func (w *world) secondRollout(ctx context.Context, t *testing.T) {
	t.Helper()
	if err := w.CreatePipeline(ctx); err != nil {
		t.Fatal(err)
	}
	set, err := w.Push(ctx, "1.0.0", nil)
	if err != nil {
		t.Fatal(err)
	}
	first, err := w.API.CreateRollout(ctx, client.NewRollout{VersionSet: set.ID, Reason: "first"})
	if err != nil {
		t.Fatal(err)
	}
	_, err = w.API.CreateRollout(ctx, client.NewRollout{VersionSet: set.ID, Reason: "second", Again: true})
	if class := fault.ClassOf(err); (class != fault.Refused && class != fault.Conflict) || !strings.Contains(err.Error(), first.ID) {
		t.Errorf("got %v (%v), want Refused or Conflict that names %s", err, class, first.ID)
	}
	all, err := w.API.Rollouts(ctx, client.Filter{})
	if err != nil || len(all) != 1 {
		t.Errorf("rollouts: got %v, %v; want the first one only", all, err)
	}
}
