package domain

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/bus"
	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/pkg/rpc"
	"github.com/lockstep-cd/lockstep/pkg/telemetry"
	"github.com/lockstep-cd/lockstep/pkg/testkit/bustest"
	"github.com/lockstep-cd/lockstep/pkg/testkit/pgtest"
	"github.com/lockstep-cd/lockstep/pkg/testkit/porttest"
	"github.com/lockstep-cd/lockstep/pkg/testkit/wait"
	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/rollout"
)

const token = "a-token-for-tests-only"

// flow is the AutoFlow service: it takes notes.
type flow struct {
	autoflowv1.UnimplementedAutoFlowServer
	mu      sync.Mutex
	started []string
}

func (f *flow) StartWorkflow(_ context.Context, r *autoflowv1.StartWorkflowRequest) (*autoflowv1.StartWorkflowResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.started = append(f.started, r.GetWorkflowId())
	return &autoflowv1.StartWorkflowResponse{WorkflowId: r.GetWorkflowId(), WorkflowRef: "run-1", Created: true}, nil
}

func (f *flow) has(id string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.started {
		if s == id {
			return true
		}
	}
	return false
}

// running is the whole service, as Run starts it.
type running struct {
	t    *testing.T
	url  string
	flow *flow
	nats *bustest.TestServer
}

func start(t *testing.T, db pg.Config, settings ...func(*Config)) *running {
	t.Helper()
	r := &running{t: t, flow: &flow{}, nats: bustest.Server(t)}
	grpcServer := rpc.NewServer(rpc.ServerConfig{Log: slog.New(slog.DiscardHandler), Tokens: map[string]rpc.Caller{token: {Name: "domain"}}})
	autoflowv1.RegisterAutoFlowServer(grpcServer, r.flow)
	lis := listen(t)
	serve(t, func(ctx context.Context) error { return rpc.Serve(ctx, grpcServer, lis) })
	address := porttest.FreeAddress(t)
	c := r.nats.Config(bus.UserDomain)
	config := Config{
		Database: pg.Database{DatabaseURL: db.URL}, Schema: db.Schema, NATS: bus.NATS{NATSURL: c.URL, NATSPassword: c.Password},
		NATSUser: c.User, HTTPAddress: address,
		WorkflowAddress: lis.Addr().String(), WorkflowToken: token, BootstrapToken: token, DriverDir: "testdata/drivers",
		Settings: telemetry.Settings{LogLevel: "error"},
	}
	for _, set := range settings {
		set(&config)
	}
	serve(t, func(ctx context.Context) error { return Run(ctx, config) })
	r.url = "http://" + address
	wait.For(r.t, "the service answers", func() bool {
		res, err := r.request(http0(t, "GET", r.url+"/", "", ""))
		return err == nil && strings.Contains(res, "Lockstep")
	})
	return r
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	var lc net.ListenConfig
	lis, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return lis
}

// serve runs fn until the test ends, and waits for it.
func serve(t *testing.T, fn func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- fn(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("ended with %v", err)
		}
	})
}

func http0(t *testing.T, method, url, body, bearer string) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	if bearer != "" {
		req.Header.Set("Authorization", "Bearer "+bearer)
	}
	return req
}

func (r *running) request(req *http.Request) (string, error) {
	transport := &http.Transport{DisableKeepAlives: true}
	res, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	return res.Status + " " + string(body), err
}

// graphql asks, and unmarshals the data.
func (r *running) graphql(query string, variables map[string]any, into any) {
	r.t.Helper()
	body, err := json.Marshal(map[string]any{"query": query, "variables": variables})
	if err != nil {
		r.t.Fatal(err)
	}
	answer, err := r.request(http0(r.t, "POST", r.url+"/graphql", string(body), token))
	if err != nil {
		r.t.Fatal(err)
	}
	_, text, _ := strings.Cut(answer, "{")
	var res struct {
		Data   json.RawMessage
		Errors []struct{ Message string }
	}
	if err := json.NewDecoder(bytes.NewBufferString("{" + text)).Decode(&res); err != nil || len(res.Errors) > 0 {
		r.t.Fatalf("%s: %v\n%s", query, err, answer)
	}
	if err := json.Unmarshal(res.Data, into); err != nil {
		r.t.Fatalf("%s: %v", res.Data, err)
	}
}

// publish publishes an event as a service would, of a run if it is the workflow service's.
func (r *running) publish(conn *bus.Conn, id, source, run string, organization int64, data event.Data) {
	r.t.Helper()
	e, err := event.New(event.Header{ID: id, Source: source, Correlation: run, Organization: organization, Time: time.Unix(1_700_000_000, 0)},
		data)
	if err != nil {
		r.t.Fatal(err)
	}
	if err := bustest.Publish(r.t.Context(), conn, e); err != nil {
		r.t.Fatal(err)
	}
}

func TestTheServiceFromEndToEnd(t *testing.T) {
	t.Parallel()
	_, db := pgtest.New(t)
	r := start(t, db)
	registry, workflow := r.nats.Connect(t, bus.UserRegistry), r.nats.Connect(t, bus.UserWorkflow)

	var made struct {
		CreateApplication struct{ Errors []struct{ Message string } }
		CreateEnvironment struct {
			Environment struct{ ID string }
			Errors      []struct{ Message string }
		}
	}
	r.graphql(`mutation($source: JSON!, $config: JSON!) {
		createApplication(input: {name: "shop", services: [{name: "api", artifactSources: [{sourceRef: "oci-image@1", sourceConfig: $source}]}]}) { errors { message } }
		createEnvironment(input: {name: "staging", tier: STAGING, driverRef: "paper@1", driverConfig: $config}) { environment { id } errors { message } }
	}`, map[string]any{"source": map[string]any{"image": "registry.test/shop/api"}, "config": map[string]any{"drawer": 1}}, &made)
	if made.CreateEnvironment.Environment.ID != "environment_1" {
		t.Fatalf("made %+v", made)
	}
	wait.For(r.t, "the onboarding is handed over", func() bool { return r.flow.has("environment-1-onboarding-1") })
	r.publish(workflow, "w1", "/services/workflow", "environment-1-onboarding-1", 1, event.EnvironmentReady{EnvironmentID: 1})
	var flowMade struct {
		CreateFlowDefinition struct{ Errors []struct{ Message string } }
	}
	r.graphql(`mutation($d: JSON!) { createFlowDefinition(input: {application: "shop", definition: $d}) { errors { message } } }`,
		map[string]any{"d": pipeline("staging")}, &flowMade)
	if len(flowMade.CreateFlowDefinition.Errors) > 0 {
		t.Fatalf("pipeline: %+v", flowMade)
	}
	wait.For(r.t, "the setup is handed over", func() bool { return r.flow.has("application-environment-1-setup-1") })
	r.publish(workflow, "w2", "/services/workflow", "application-environment-1-setup-1",
		1, event.ApplicationEnvironmentReady{ApplicationEnvironmentID: 1})
	r.publish(registry, "r1", "/services/registry", "", 0,
		event.ArtifactPublished{Image: "registry.test/shop/api", Digest: digestOf(1), Tag: "1.0"})

	set := ""
	wait.For(r.t, "a version set appears", func() bool {
		var seen struct {
			Application struct {
				VersionSets  struct{ Nodes []struct{ ID string } }
				Environments []struct{ Readiness string }
			}
		}
		r.graphql(`{ application(name: "shop") { versionSets { nodes { id } } environments { readiness } } }`, nil, &seen)
		if len(seen.Application.VersionSets.Nodes) == 0 || seen.Application.Environments[0].Readiness != "READY" {
			return false
		}
		set = seen.Application.VersionSets.Nodes[0].ID
		return true
	})
	var rollout struct {
		CreateRollout struct {
			Rollout struct{ ID string }
			Errors  []struct{ Message string }
		}
	}
	r.graphql(fmt.Sprintf(`mutation { createRollout(input: {versionSetId: %q}) { rollout { id } errors { message } } }`, set), nil, &rollout)
	if rollout.CreateRollout.Rollout.ID != "rollout_1" {
		t.Fatalf("rollout: %+v", rollout)
	}
	wait.For(r.t, "the rollout is handed over", func() bool { return r.flow.has("rollout-1") })
	// nothing depends on the streams for the record (D44)
	r.nats.Wipe(t)
	r.publish(workflow, "w2b", "/services/workflow", "rollout-1", 1, event.RolloutPassageRequested{RolloutID: 1, GateID: "staging"}) // D46
	r.publish(workflow, "w3", "/services/workflow", "rollout-1", 1, event.DeploymentHealthy{DeploymentID: 1})
	r.publish(workflow, "w4", "/services/workflow", "rollout-1", 1, event.RolloutEnvironmentHealthy{RolloutID: 1, EnvironmentID: 1})
	r.publish(workflow, "w5", "/services/workflow", "rollout-1", 1, event.RolloutHealthy{RolloutID: 1})
	wait.For(r.t, "the rollout is completed", func() bool {
		var seen struct{ Rollout struct{ State string } }
		r.graphql(`{ rollout(id: "rollout_1") { state } }`, nil, &seen)
		return seen.Rollout.State == "COMPLETED"
	})
}

func TestNobodyGetsInWithoutAToken(t *testing.T) {
	t.Parallel()
	_, db := pgtest.New(t)
	r := start(t, db)
	for _, bearer := range []string{"", "wrong", token + "x"} {
		answer, err := r.request(http0(t, "POST", r.url+"/graphql", `{"query":"{ viewer { principalId } }"}`, bearer))
		if err != nil || !strings.HasPrefix(answer, "401 ") || !strings.Contains(answer, "UNAUTHENTICATED") {
			t.Errorf("with token %q: %s, %v", bearer, answer, err)
		}
	}
	var seen struct {
		Viewer struct {
			PrincipalID  int
			Organization struct{ Name string }
		}
	}
	r.graphql(`{ viewer { principalId organization { name } } }`, nil, &seen)
	if seen.Viewer.PrincipalID != 1 || seen.Viewer.Organization.Name != "default" {
		t.Errorf("viewer = %+v", seen)
	}
}

// TestWhatWasCommittedIsPublishedByTheNextProcess resolves a gate and starts a rollout in a process that does no more than
// commit, and starts the service over the same tables.
func TestWhatWasCommittedIsPublishedByTheNextProcess(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	r := s.rollout(s.set)
	s.report(event.ApprovalRequested{RolloutID: r.ID, GateID: "production", Reason: "release"})
	_, err := s.rollouts.ApproveGate(t.Context(), person(2), rollout.Resolution{RolloutID: r.ID, GateID: "production"})
	s.ok(err)

	next := start(t, s.db)
	wait.For(next.t, "the rollout is handed over", func() bool { return next.flow.has("rollout-1") })
	resolved := make(chan event.Event, 8)
	workflow := next.nats.Connect(t, bus.UserWorkflow)
	serve(t, func(ctx context.Context) error {
		return workflow.Consume(ctx, bus.Consumer{Stream: bus.StreamDomain, Durable: "workflow"}, func(_ context.Context, d bus.Delivery) error {
			if d.Event.Type() == event.TypeApprovalResolved {
				resolved <- d.Event
			}
			return nil
		}, nil)
	})
	late, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	select {
	case e := <-resolved:
		data, err := event.Decode[event.ApprovalResolved](e)
		s.ok(err)
		if data.GateID != "production" || data.Resolution != "approved" {
			t.Errorf("published %+v", data)
		}
	case <-late.Done():
		t.Error("not published in time")
	}
}
