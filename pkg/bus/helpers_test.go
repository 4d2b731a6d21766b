package bus_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/lockstep-cd/lockstep/pkg/bus"
	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/testkit/bustest"
	"github.com/lockstep-cd/lockstep/pkg/testkit/natscluster"
)

func TestMain(m *testing.M) {
	natscluster.Main()
	goleak.VerifyTestMain(m, bustest.Leftovers()...)
}

// patience bounds every wait of these tests; it is reached only when a test fails.
const patience = time.Minute

func makeEvent(t *testing.T, id string, organization int64, data event.Data) event.Event {
	t.Helper()
	e, err := event.New(event.Header{ID: id, Source: "/services/test", Organization: organization, Time: time.Unix(1_700_000_000, 0).UTC()},
		data)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// healthy is an event of the domain path that the workflow service publishes for a program.
func healthy(t *testing.T, n int) event.Event {
	t.Helper()
	return makeEvent(t, fmt.Sprintf("healthy-%d", n), 1, event.DeploymentHealthy{DeploymentID: int64(n)})
}

// resolved is an event of the domain path that the domain service emits.
func resolved(t *testing.T) event.Event {
	t.Helper()
	return makeEvent(t, "resolved", 1, event.ApprovalResolved{RolloutID: 7, GateID: "production", Resolution: "approved", PrincipalType: "user", PrincipalID: 3})
}

func artifact(t *testing.T) event.Event {
	t.Helper()
	return makeEvent(t, "artifact", 0, event.ArtifactPublished{
		Image: "registry.example.com/shop/api", Digest: "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
	})
}

func call(t *testing.T, agent int64) event.Event {
	t.Helper()
	return makeEvent(t, fmt.Sprintf("call-%d", agent), 1, event.FunctionCalled{
		AgentID: agent, CallID: "1/7/0", Function: "k8s.get", Arguments: json.RawMessage(`{}`), Attempt: 1, Deadline: "2026-03-25T10:05:00Z",
	})
}

func completed(t *testing.T, agent int64) event.Event {
	t.Helper()
	return makeEvent(t, fmt.Sprintf("completed-%d", agent), 1, event.FunctionCompleted{
		AgentID: agent, CallID: "1/7/0", Attempt: 1, Value: json.RawMessage(`{"synced":true}`),
	})
}

func heartbeat(t *testing.T, agent int64) event.Event {
	t.Helper()
	return makeEvent(t, fmt.Sprintf("heartbeat-%d", agent), 0, event.AgentHeartbeat{
		AgentID: agent, Version: "0.1.0", StartedAt: "2026-03-25T09:00:00Z", ObservedAt: "2026-03-25T09:00:00Z", ClusterReachable: true,
	})
}

func statusChanged(t *testing.T, agent int64) event.Event {
	t.Helper()
	return makeEvent(t, fmt.Sprintf("status-%d", agent), 0, event.ArgoRolloutStatusChanged{
		AgentID: agent, RolloutName: "api", Namespace: "shop", PauseConditions: []event.PauseCondition{},
	})
}

func domainTopology() bus.Topology { return bus.Topology{Streams: []bus.Stream{bus.DomainStream()}} }

// watcher is the consumer of most tests: quick to try again.
func watcher() bus.Consumer {
	return bus.Consumer{
		Stream: bus.StreamDomain, Durable: "domain-test", Filters: []string{"cd.domain.>"}, MaxDeliver: 3, Workers: 2,
		Backoff: []time.Duration{10 * time.Millisecond, 20 * time.Millisecond},
	}
}

// setup is a server and a connection of the workflow service, which publishes healthy, with the domain's stream.
func setup(t *testing.T) (*bustest.TestServer, *bus.Conn) {
	t.Helper()
	server := bustest.Server(t)
	conn := server.Connect(t, bus.UserWorkflow)
	if err := conn.Apply(t.Context(), domainTopology()); err != nil {
		t.Fatal(err)
	}
	return server, conn
}

// consumption is a Consume call that runs until its test ends.
type consumption struct {
	handled  chan bus.Delivery
	rejected chan rejection
	stop     func()
	calls    atomic.Int64
}

type rejection struct {
	bus.Delivery
	err error
}

// consume starts to consume; h decides about each delivery, which is also sent to handled.
func consume(t *testing.T, conn *bus.Conn, consumer bus.Consumer, h func(context.Context, bus.Delivery) error) *consumption {
	t.Helper()
	c := &consumption{handled: make(chan bus.Delivery, 1000), rejected: make(chan rejection, 1000)}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		err := conn.Consume(ctx, consumer, func(ctx context.Context, d bus.Delivery) error {
			c.calls.Add(1)
			err := h(ctx, d)
			c.handled <- d
			return err
		}, func(_ context.Context, d bus.Delivery, err error) { c.rejected <- rejection{d, err} })
		if err != nil {
			t.Errorf("consume: %v", err)
		}
	})
	c.stop = func() { cancel(); wg.Wait() }
	t.Cleanup(c.stop)
	return c
}

func accept(context.Context, bus.Delivery) error { return nil }

// next is the next value on a channel.
func next[T any](t *testing.T, c <-chan T) T {
	t.Helper()
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	select {
	case v := <-c:
		return v
	case <-timeout.C:
		t.Fatalf("nothing came within %v", patience)
		panic("unreachable")
	}
}

// none checks that nothing comes for a while.
func none[T any](t *testing.T, c <-chan T, within time.Duration) {
	t.Helper()
	timeout := time.NewTimer(within)
	defer timeout.Stop()
	select {
	case v := <-c:
		t.Errorf("got %v, want nothing", v)
	case <-timeout.C:
	}
}

func publish(t *testing.T, conn *bus.Conn, events ...event.Event) {
	t.Helper()
	for _, e := range events {
		if err := bustest.Publish(t.Context(), conn, e); err != nil {
			t.Fatalf("publish %s: %v", e.ID(), err)
		}
	}
}

func contains(s, part string) bool { return strings.Contains(s, part) }
