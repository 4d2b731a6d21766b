package bus_test

import (
	"context"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/bus"
	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/testkit/bustest"
	"github.com/lockstep-cd/lockstep/pkg/testkit/wait"
)

// everything makes all streams, each by a service that may.
func everything(t *testing.T, server *bustest.TestServer) {
	t.Helper()
	for user, topology := range map[string]bus.Topology{
		bus.UserDomain: {Streams: []bus.Stream{bus.RegistryStream(), bus.DomainStream()}},
		bus.UserWorkflow: {
			Streams:   []bus.Stream{bus.ClusterCallsStream(), bus.ClusterStream()},
			Consumers: []bus.Consumer{bus.AgentConsumer(42), bus.AgentConsumer(43)},
		},
	} {
		if err := server.Connect(t, user).Apply(t.Context(), topology); err != nil {
			t.Fatal(err)
		}
	}
}

func TestWhoMayPublishWhat(t *testing.T) {
	t.Parallel()
	server := bustest.Server(t)
	everything(t, server)
	events := map[string]event.Event{
		"artifact": artifact(t), "call 42": call(t, 42), "result 42": completed(t, 42), "event 42": statusChanged(t, 42),
		"heartbeat 42": heartbeat(t, 42),
		"call 43":      call(t, 43), "result 43": completed(t, 43), "event 43": statusChanged(t, 43), "heartbeat 43": heartbeat(t, 43),
		"healthy": healthy(t, 1), "resolved": resolved(t),
	}
	allowed := map[string][]string{
		bus.UserRegistry:  {"artifact"},
		bus.UserDomain:    {"resolved"},
		bus.UserWorkflow:  {"call 42", "call 43", "healthy"},
		bus.RelayUser(42): {"result 42", "event 42", "heartbeat 42"},
	}
	for user, may := range allowed {
		conn := server.Connect(t, user)
		for name, e := range events {
			want := false
			for _, m := range may {
				want = want || m == name
			}
			switch err := conn.Publish(t.Context(), e); {
			case want && err != nil:
				t.Errorf("%s publishes %s: %v, want success", user, name, err)
			case !want && !fault.Is(err, fault.Denied):
				t.Errorf("%s publishes %s: %v, want a denial", user, name, err)
			}
		}
		if !fault.Is(conn.Ready(), fault.Denied) {
			t.Errorf("%s: the denials do not show in Ready", user)
		}
	}
}

func TestWhoMayReadAndMakeWhat(t *testing.T) {
	t.Parallel()
	server := bustest.Server(t)
	everything(t, server)
	streams := map[string]bus.Stream{
		bus.StreamRegistry: bus.RegistryStream(), bus.StreamClusterCalls: bus.ClusterCallsStream(), bus.StreamCluster: bus.ClusterStream(),
		bus.StreamDomain: bus.DomainStream(),
	}
	type rights struct{ make, consume, read []string }
	table := map[string]rights{
		bus.UserRegistry: {make: []string{bus.StreamRegistry}},
		bus.UserDomain: {
			make: []string{bus.StreamRegistry, bus.StreamDomain}, consume: []string{bus.StreamRegistry, bus.StreamDomain},
			read: []string{bus.StreamRegistry, bus.StreamDomain},
		},
		bus.UserWorkflow: {
			make:    []string{bus.StreamClusterCalls, bus.StreamCluster, bus.StreamDomain},
			consume: []string{bus.StreamClusterCalls, bus.StreamCluster, bus.StreamDomain}, read: []string{bus.StreamCluster, bus.StreamDomain},
		},
		bus.RelayUser(42): {},
	}
	for user, can := range table {
		conn := server.Connect(t, user)
		for name, stream := range streams {
			probe := bus.Consumer{Stream: name, Durable: "probe", Filters: []string{stream.Subjects[0]}}
			if name == bus.StreamClusterCalls { // a work queue takes no second consumer of the same subject
				probe.Filters = []string{"cd.cluster.99.call"}
			}
			check(t, user+" makes stream "+name, has(can.make, name), conn.Apply(t.Context(), bus.Topology{Streams: []bus.Stream{stream}}))
			check(t, user+" makes a consumer of "+name, has(can.consume, name),
				conn.Apply(t.Context(), bus.Topology{Consumers: []bus.Consumer{probe}}))
			check(t, user+" reads "+name, has(can.read, name), pull(t, server, user, name, "probe"))
		}
	}
}

func has(list []string, s string) bool {
	for _, l := range list {
		if l == s {
			return true
		}
	}
	return false
}

func check(t *testing.T, what string, want bool, err error) {
	t.Helper()
	if want && err != nil {
		t.Errorf("%s: %v, want success", what, err)
	}
	if !want && !fault.Is(err, fault.Denied) {
		t.Errorf("%s: %v, want a denial", what, err)
	}
}

// pull asks for a message of a consumer the way a client would that knows no scruples. The error is Denied if the server
// said so.
func pull(t *testing.T, server *bustest.TestServer, user, stream, durable string) error {
	t.Helper()
	nc := server.Raw(t, user)
	reply := nc.NewRespInbox()
	if _, err := nc.SubscribeSync(reply); err != nil {
		t.Fatal(err)
	}
	if err := nc.PublishRequest("$JS.API.CONSUMER.MSG.NEXT."+stream+"."+durable, reply, []byte(`{"no_wait":true,"batch":1}`)); err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := nc.LastError(); err != nil {
		return fault.New(fault.Denied, "%w", err)
	}
	return nil
}

func TestARelayReachesOnlyItsOwnAgent(t *testing.T) {
	t.Parallel()
	server := bustest.Server(t)
	everything(t, server)
	workflow := server.Connect(t, bus.UserWorkflow)
	publish(t, workflow, call(t, 42), call(t, 43))

	own := consume(t, server.Connect(t, bus.RelayUser(42)), bus.AgentConsumer(42), accept)
	if got := next(t, own.handled).Subject; got != "cd.cluster.42.call" {
		t.Errorf("relay 42 got %s", got)
	}
	wait.For(t, "the call is acknowledged", func() bool {
		c, err := bus.JetStream(workflow).Consumer(t.Context(), bus.StreamClusterCalls, "agent-42")
		return err == nil && c.CachedInfo().NumAckPending == 0
	})

	thief := server.Connect(t, bus.RelayUser(42))
	robbing, stop := context.WithCancel(t.Context())
	robbed := make(chan error, 1)
	go func() {
		robbed <- thief.Consume(robbing, bus.AgentConsumer(43), func(context.Context, bus.Delivery) error {
			t.Error("relay 42 got a call to agent 43")
			return nil
		}, nil)
	}()
	wait.For(t, "relay 42 is denied the calls to agent 43", func() bool { return fault.Is(thief.Ready(), fault.Denied) })
	stop()
	if err := <-robbed; err != nil {
		t.Errorf("consume: %v", err)
	}
	check(t, "relay 42 pulls the calls to agent 43", false, pull(t, server, bus.RelayUser(42), bus.StreamClusterCalls, "agent-43"))
	for _, subject := range []string{"cd.cluster.>", "cd.cluster.43.call", "cd.domain.>", "cd.registry.>", "_INBOX_workflow.>", ">"} {
		check(t, "relay 42 subscribes to "+subject, false, thief.OnHint(t.Context(), subject, func([]byte) {}))
	}
	js := bus.JetStream(thief)
	deleting, cancel := context.WithTimeout(t.Context(), time.Second) // nobody answers
	defer cancel()
	_ = js.DeleteStream(deleting, bus.StreamClusterCalls)
	if _, err := bus.JetStream(workflow).Stream(t.Context(), bus.StreamClusterCalls); err != nil {
		t.Errorf("relay 42 deleted the calls: %v", err)
	}
}

// A reply subject is not checked against the permissions of the user that names it: the server's own answer can be led anywhere.
// What gets onto a path that way is refused by its consumers.
func TestAReplyLedOntoAnotherPathIsRefused(t *testing.T) {
	t.Parallel()
	server := bustest.Server(t)
	everything(t, server)
	domain := server.Connect(t, bus.UserDomain)
	c := consume(t, domain, watcher(), accept)
	publish(t, server.Connect(t, bus.UserWorkflow), call(t, 42))
	nc := server.Raw(t, bus.RelayUser(42))
	if err := nc.PublishRequest("$JS.API.CONSUMER.MSG.NEXT.CLUSTER_CALLS.agent-42", "cd.domain.1.deployment.healthy",
		[]byte(`{"batch":1}`)); err != nil {
		t.Fatal(err)
	}
	publish(t, server.Connect(t, bus.UserWorkflow), healthy(t, 1))
	if got := next(t, c.handled).Event.ID(); got != "healthy-1" {
		t.Errorf("handled %s", got)
	}
	if len(c.handled) > 0 {
		t.Error("the strayed call was handled as an event of the domain")
	}
}

func TestPermissionsOfStrangers(t *testing.T) {
	t.Parallel()
	for _, user := range []string{"", "admin", "relay-", "relay-0", "relay--1", "relay-x", "relay-042", "relay-1.2", "relay-*"} {
		if publish, subscribe := bus.Permissions(user); publish != nil || subscribe != nil {
			t.Errorf("%q may publish %v and subscribe %v", user, publish, subscribe)
		}
	}
}
