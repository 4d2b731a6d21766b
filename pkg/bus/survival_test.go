package bus_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/bus"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/testkit/bustest"
	"github.com/lockstep-cd/lockstep/pkg/testkit/wait"
)

// hits are the ways in which the ground goes from under a consumer. After each, events published later arrive.
func hits() map[string]func(*testing.T, *bustest.TestServer, *bus.Conn) {
	return map[string]func(*testing.T, *bustest.TestServer, *bus.Conn){
		"restart":          func(t *testing.T, s *bustest.TestServer, _ *bus.Conn) { t.Helper(); s.Restart(t) },
		"wiped store":      func(t *testing.T, s *bustest.TestServer, _ *bus.Conn) { t.Helper(); s.Wipe(t) },
		"deleted consumer": func(t *testing.T, _ *bustest.TestServer, c *bus.Conn) { t.Helper(); deleteConsumer(t, c) },
		"deleted stream": func(t *testing.T, _ *bustest.TestServer, c *bus.Conn) {
			t.Helper()
			if err := bus.JetStream(c).DeleteStream(t.Context(), bus.StreamDomain); err != nil {
				t.Fatal(err)
			}
		},
	}
}

func deleteConsumer(t *testing.T, c *bus.Conn) {
	t.Helper()
	if err := bus.JetStream(c).DeleteConsumer(t.Context(), bus.StreamDomain, watcher().Durable); err != nil {
		t.Fatal(err)
	}
}

func TestAConsumerSurvives(t *testing.T) {
	t.Parallel()
	for name, hit := range hits() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := bustest.ServerWith(t, bustest.Unrestricted("admin"))
			conn, admin := server.Connect(t, bus.UserWorkflow), server.Connect(t, "admin")
			if err := conn.Apply(t.Context(), domainTopology()); err != nil {
				t.Fatal(err)
			}
			c := consume(t, conn, watcher(), accept)
			n := 0
			for range 3 {
				for range 5 {
					n++
					publish(t, conn, healthy(t, n))
				}
				awaitEvent(t, c, fmt.Sprintf("healthy-%d", n))
				hit(t, server, admin)
			}
			n++
			publish(t, conn, healthy(t, n))
			awaitEvent(t, c, fmt.Sprintf("healthy-%d", n))
			wait.For(t, "ready", func() bool { return conn.Ready() == nil })
			if len(c.rejected) > 0 {
				t.Errorf("rejected: %v", next(t, c.rejected).err)
			}
		})
	}
}

// awaitEvent reads deliveries until the event comes; earlier ones may come again.
func awaitEvent(t *testing.T, c *consumption, id string) {
	t.Helper()
	for {
		if next(t, c.handled).Event.ID() == id {
			return
		}
	}
}

// A relay may make nothing: it depends on the workflow service to notice that its consumer is gone.
func TestARelaySurvivesAWipedStore(t *testing.T) {
	t.Parallel()
	server := bustest.Server(t)
	workflow, relay := server.Connect(t, bus.UserWorkflow), server.Connect(t, bus.RelayUser(42))
	c := consume(t, relay, bus.AgentConsumer(42), accept)
	topology := bus.Topology{
		Streams:   []bus.Stream{bus.ClusterCallsStream(), bus.ClusterStream()},
		Consumers: []bus.Consumer{bus.AgentConsumer(42), bus.AgentConsumer(43)},
	}
	if err := workflow.Apply(t.Context(), topology); err != nil {
		t.Fatal(err)
	}
	publish(t, workflow, call(t, 42))
	next(t, c.handled)
	server.Wipe(t)
	publish(t, workflow, call(t, 42))
	next(t, c.handled)
	publish(t, relay, completed(t, 42))
	if err := relay.Ready(); err != nil {
		t.Errorf("relay: %v", err)
	}
}

func TestPublishWaitsForAServerThatIsAway(t *testing.T) {
	t.Parallel()
	server, conn := setup(t)
	server.Stop(t)
	wait.For(t, "disconnected", func() bool { return fault.Is(conn.Ready(), fault.Unavailable) })
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := conn.Publish(ctx, healthy(t, 1)); !fault.Is(err, fault.Unavailable) {
		t.Errorf("error = %v, want unavailable", err)
	}
	published := make(chan error, 1)
	go func() { published <- bustest.Publish(t.Context(), conn, healthy(t, 2)) }()
	none(t, published, 100*time.Millisecond)
	server.Start(t)
	if err := next(t, published); err != nil {
		t.Errorf("publish over a restart: %v", err)
	}
	c := consume(t, conn, watcher(), accept)
	if got := next(t, c.handled).Event.ID(); got != "healthy-2" {
		t.Errorf("got %s: what was given up was sent all the same", got)
	}
}

func TestPublishMakesTheStreamAgain(t *testing.T) {
	t.Parallel()
	server, conn := setup(t)
	server.Wipe(t)
	publish(t, conn, healthy(t, 1))
}

func TestPublishWithoutAStream(t *testing.T) {
	t.Parallel()
	server := bustest.Server(t)
	conn := server.Connect(t, bus.UserRegistry)
	for within := time.Second; ; within *= 4 { // a busy machine may take longer to say so
		ctx, cancel := context.WithTimeout(t.Context(), within)
		err := conn.Publish(ctx, artifact(t))
		cancel()
		if !fault.Is(err, fault.Unavailable) {
			t.Fatalf("error = %v, want unavailable", err)
		}
		if contains(err.Error(), "no stream takes it") {
			return
		}
		if within > patience {
			t.Fatalf("error = %v, want that no stream takes it", err)
		}
	}
}

func TestApply(t *testing.T) {
	t.Parallel()
	server := bustest.Server(t)
	conn := server.Connect(t, bus.UserDomain)
	topology := domainTopology()
	topology.Consumers = []bus.Consumer{watcher()}
	for range 2 { // it is idempotent
		if err := conn.Apply(t.Context(), topology); err != nil {
			t.Fatal(err)
		}
	}
	topology.Consumers[0].AckWait = time.Minute // may change
	if err := conn.Apply(t.Context(), topology); err != nil {
		t.Fatal(err)
	}
	info, err := bus.JetStream(conn).Consumer(t.Context(), bus.StreamDomain, watcher().Durable)
	if err != nil || info.CachedInfo().Config.AckWait != time.Minute {
		t.Errorf("consumer %+v, error %v", info, err)
	}
	overlap := bus.Topology{Streams: []bus.Stream{{Name: bus.StreamRegistry, Subjects: []string{"cd.domain.>"}}}}
	if err := conn.Apply(t.Context(), overlap); err == nil || !contains(err.Error(), "make stream REGISTRY") {
		t.Errorf("overlapping streams: %v", err)
	}
	if err := conn.Ready(); err != nil {
		t.Errorf("a refused topology is remembered: %v", err)
	}
	server.Stop(t)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := conn.Apply(ctx, topology); !fault.Is(err, fault.Unavailable) {
		t.Errorf("without a server: %v, want unavailable", err)
	}
}

func TestTwoServicesMakeTheSameStream(t *testing.T) {
	t.Parallel()
	server := bustest.Server(t)
	for _, user := range []string{bus.UserRegistry, bus.UserDomain} {
		if err := server.Connect(t, user).Apply(t.Context(), bus.Topology{Streams: []bus.Stream{bus.RegistryStream()}}); err != nil {
			t.Errorf("%s: %v", user, err)
		}
	}
}
