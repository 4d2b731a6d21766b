package workflow_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/bus"
	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/outbox"
	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/pkg/rpc"
	"github.com/lockstep-cd/lockstep/pkg/telemetry"
	"github.com/lockstep-cd/lockstep/pkg/testkit/bustest"
	"github.com/lockstep-cd/lockstep/pkg/testkit/pgtest"
	"github.com/lockstep-cd/lockstep/pkg/testkit/porttest"
	"github.com/lockstep-cd/lockstep/pkg/testkit/wait"
	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
	"github.com/lockstep-cd/lockstep/services/workflow"
)

const (
	token        = "token-of-the-domain"
	agentID      = 7
	organization = 1
	within       = time.Minute
)

// service is the whole service over a real database and a real bus, as its neighbours see it.
type service struct {
	autoflowv1.AutoFlowClient
	t   *testing.T
	bus *bustest.TestServer
	// config starts the service again, in the same place.
	config workflow.Config
	cancel context.CancelFunc
	done   chan error
}

func start(t *testing.T) *service {
	t.Helper()
	return startWith(t, func(*workflow.Config) {})
}

// startWith is start with another configuration.
func startWith(t *testing.T, change func(*workflow.Config)) *service {
	t.Helper()
	pool, database := pgtest.New(t, pgtest.Migration{Name: "outbox", FS: outbox.Migrations()})
	pool.Close()
	nats := bustest.ServerWith(t, bustest.Unrestricted(elsewhere))
	s := &service{t: t, bus: nats, config: workflow.Config{
		Database: pg.Database{DatabaseURL: database.URL}, Schema: database.Schema,
		NATS: bus.NATS{NATSURL: nats.URL(), NATSPassword: "workflow"}, NATSUser: "workflow",
		GRPCAddress: porttest.FreeAddress(t), Token: token, AgentOwners: []workflow.AgentOwner{{Agent: agentID, Organization: organization}},
		Instance: "test", Settings: telemetry.Settings{LogLevel: "error"},
	}}
	change(&s.config)
	conn, err := rpc.Dial(rpc.ClientConfig{Address: s.config.GRPCAddress, Token: token, Insecure: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	s.AutoFlowClient = autoflowv1.NewAutoFlowClient(conn)
	s.up()
	t.Cleanup(s.down)
	return s
}

func (s *service) up() {
	s.t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.t.Context()))
	s.cancel, s.done = cancel, make(chan error, 1)
	go func() { s.done <- workflow.Run(ctx, s.config) }()
	s.answers()
}

// answers waits until the service does.
func (s *service) answers() {
	s.t.Helper()
	s.eventually("the service answers", func(ctx context.Context) bool {
		_, err := s.GetWorkflow(ctx, &autoflowv1.GetWorkflowRequest{OrganizationId: organization, WorkflowId: "none"})
		return fault.Is(err, fault.NotFound)
	})
}

func (s *service) down() {
	s.t.Helper()
	if s.cancel == nil {
		return
	}
	s.cancel()
	s.cancel = nil
	if err := <-s.done; err != nil {
		s.t.Errorf("the service ended with %v", err)
	}
}

func (s *service) eventually(what string, holds func(context.Context) bool) {
	s.t.Helper()
	wait.For(s.t, what, func() bool {
		ctx, cancel := context.WithTimeout(s.t.Context(), 5*time.Second)
		defer cancel()
		return holds(ctx)
	})
}

func (s *service) submit(id, program, inputs string) *autoflowv1.StartWorkflowResponse {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), within)
	defer cancel()
	resp, err := s.StartWorkflow(ctx, &autoflowv1.StartWorkflowRequest{
		OrganizationId: organization, WorkflowId: id, Starlark: []byte(program), Inputs: []byte(inputs),
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return resp
}

func (s *service) await(id string, want autoflowv1.WorkflowState) *autoflowv1.Workflow {
	s.t.Helper()
	var w *autoflowv1.Workflow
	s.eventually("workflow "+id+" is "+want.String(), func(ctx context.Context) bool {
		resp, err := s.GetWorkflow(ctx, &autoflowv1.GetWorkflowRequest{OrganizationId: organization, WorkflowId: id})
		if err != nil {
			return false
		}
		w = resp.GetWorkflow()
		if w.GetState() != want && w.GetFinishedAt() != nil {
			s.t.Fatalf("workflow %s is %s: %s", id, w.GetState(), w.GetError())
		}
		return w.GetState() == want
	})
	return w
}

// relay answers the calls to the agent until the test ends.
func (s *service) relay(answer func(event.FunctionCalled) event.FunctionCompleted) {
	s.t.Helper()
	conn := s.bus.Connect(s.t, bus.RelayUser(agentID))
	ctx, cancel := context.WithCancel(s.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = conn.Consume(ctx, bus.AgentConsumer(agentID), func(ctx context.Context, d bus.Delivery) error {
			call, err := event.Decode[event.FunctionCalled](d.Event)
			if err != nil {
				return err
			}
			completed := answer(call)
			completed.AgentID, completed.CallID, completed.Attempt = agentID, call.CallID, call.Attempt
			e, err := event.New(event.Header{ID: "answer-" + call.CallID, Source: "/agents/7", Time: clock.System().Now()}, completed)
			if err != nil {
				return err
			}
			return conn.Publish(ctx, e)
		}, nil)
	}()
	s.t.Cleanup(func() { cancel(); <-done })
}

const approve = `
cr = run("k8s.get", {"agent_id": 7, "kind": "Deployment", "namespace": "argo", "name": "argo"})
if not cr.found:
    fail("not there")
run("emit", {"type": "com.gitlab.cd.approval.requested", "data": {"rollout_id": rollout.id, "gate_id": "production"}})
resolved = wait_for_event(type="com.gitlab.cd.approval.resolved", filter={"rollout_id": rollout["id"], "gate_id": "production"})
sleep(seconds=0.01)
print(resolved.data.resolution)
run("emit", {"type": "com.gitlab.cd.rollout.healthy", "data": {"rollout_id": rollout.id}})
`

func TestAProgramReachesAClusterAndWaitsForThePeople(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.relay(func(event.FunctionCalled) event.FunctionCompleted {
		return event.FunctionCompleted{Value: json.RawMessage(`{"found":true}`)}
	})
	domain := s.bus.Connect(t, "domain")
	received := make(chan event.Event, 100)
	listen(t, domain, received)

	if first := s.submit("rollout-1", approve, `{"rollout":{"id":12}}`); !first.GetCreated() {
		t.Error("the first start created nothing")
	}
	s.await("rollout-1", autoflowv1.WorkflowState_WORKFLOW_STATE_PARKED)
	if again := s.submit("rollout-1", approve, `{"rollout": {"id": 12}}`); again.GetCreated() {
		t.Error("the second start created another run")
	}
	next(t, received, "com.gitlab.cd.approval.requested")

	s.down()
	resolve(t, domain, 12, "production")
	s.up()
	s.await("rollout-1", autoflowv1.WorkflowState_WORKFLOW_STATE_COMPLETED)
	next(t, received, "com.gitlab.cd.rollout.healthy")
	next(t, received, "com.gitlab.cd.workflow.completed")
}

// elsewhere is an account of the operator's own: those of the services publish the events of their own emitters only.
const elsewhere = "elsewhere"

// listen collects the domain path.
func listen(t *testing.T, conn *bus.Conn, into chan<- event.Event) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = conn.Consume(ctx, bus.Consumer{Stream: bus.StreamDomain, Durable: "domain"}, func(_ context.Context, d bus.Delivery) error {
			into <- d.Event
			return nil
		}, nil)
	}()
	t.Cleanup(func() { cancel(); <-done })
}

func next(t *testing.T, received <-chan event.Event, want string) event.Event {
	t.Helper()
	timer := clock.System().NewTimer(within)
	defer timer.Stop()
	for {
		select {
		case e := <-received:
			if e.Type() == want {
				return e
			}
		case <-timer.C():
			t.Fatalf("no %s came", want)
		}
	}
}

func resolve(t *testing.T, conn *bus.Conn, rollout int64, gate string) {
	t.Helper()
	e, err := event.New(event.Header{
		ID: "resolved-" + strconv.FormatInt(rollout, 10), Source: "/services/domain", Organization: organization,
		Time: clock.System().Now(),
	},
		event.ApprovalResolved{RolloutID: rollout, GateID: gate, Resolution: "approved", PrincipalType: "user", PrincipalID: 3})
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.Publish(t.Context(), e); err != nil {
		t.Fatal(err)
	}
}

// TestTheServiceServesWhileTheBusIsAway starts without a bus: programs run, calls to a cluster wait, and continue when the bus is
// available.
func TestTheServiceServesWhileTheBusIsAway(t *testing.T) {
	t.Parallel()
	s := startWith(t, func(c *workflow.Config) { c.HealthAddress = porttest.FreeAddress(t) })
	s.down()
	s.bus.Stop(t)
	s.up()
	s.submit("alone", `print(1)
run("emit", {"type": "com.gitlab.cd.rollout.healthy", "data": {"rollout_id": 3}})`, "")
	s.await("alone", autoflowv1.WorkflowState_WORKFLOW_STATE_COMPLETED)
	s.submit("cluster", `run("k8s.get", {"agent_id": 7, "kind": "Pod", "name": "x"})`, "")
	s.await("cluster", autoflowv1.WorkflowState_WORKFLOW_STATE_PARKED)
	if status, report := s.readiness(); status != http.StatusServiceUnavailable || !strings.Contains(report, `"bus":"nats is not connected"`) {
		t.Errorf("while the bus is away: %d %s", status, report)
	}

	s.bus.Start(t)
	s.relay(func(event.FunctionCalled) event.FunctionCompleted {
		return event.FunctionCompleted{Value: json.RawMessage(`{"found":true}`)}
	})
	received := make(chan event.Event, 100)
	listen(t, s.bus.Connect(t, "domain"), received)
	s.await("cluster", autoflowv1.WorkflowState_WORKFLOW_STATE_COMPLETED)
	next(t, received, "com.gitlab.cd.rollout.healthy")
	s.eventually("the service is ready", func(context.Context) bool {
		status, _ := s.readiness()
		return status == http.StatusOK
	})
}

// readiness is the answer of /readyz.
func (s *service) readiness() (int, string) {
	s.t.Helper()
	request, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, "http://"+s.config.HealthAddress+"/readyz", nil)
	if err != nil {
		s.t.Fatal(err)
	}
	response, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(request)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return response.StatusCode, string(text)
}

// TestProgramsReachNoServerOfTheInside: a program names its repository, and the operator has allowed none (D41).
func TestProgramsReachNoServerOfTheInside(t *testing.T) {
	t.Parallel()
	s := start(t)
	inside := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the server was reached") }))
	t.Cleanup(inside.Close)
	s.submit("inside", `run("git.read_file", {"repo_url": repository, "ref": "main", "path": "a"})`, `{"repository": "`+inside.URL+`/a.git"}`)
	failed := s.await("inside", autoflowv1.WorkflowState_WORKFLOW_STATE_FAILED)
	if !strings.Contains(failed.GetError(), "refused: "+inside.URL+"/a.git may not be reached") {
		t.Errorf("failed with %q", failed.GetError())
	}
}
