package bus_test

import (
	"context"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/lockstep-cd/lockstep/pkg/bus"
	"github.com/lockstep-cd/lockstep/pkg/testkit/bustest"
	"github.com/lockstep-cd/lockstep/pkg/testkit/natscluster"
	"github.com/lockstep-cd/lockstep/pkg/testkit/wait"
)

// D66: a start never takes away what an operator has given.
func TestAStartKeepsWhatAnOperatorMadeLarger(t *testing.T) {
	t.Parallel()
	server := bustest.ServerWith(t, bustest.Unrestricted("admin"))
	js := server.JetStream(t, "admin")
	large := jetstream.StreamConfig{
		Name: bus.StreamDomain, Subjects: []string{"cd.domain.>"}, Storage: jetstream.FileStorage, Description: "ours",
		MaxAge: 30 * 24 * time.Hour, MaxBytes: 1 << 30, Duplicates: time.Hour, Compression: jetstream.S2Compression,
	}
	if _, err := js.CreateStream(t.Context(), large); err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: bus.StreamRegistry, Subjects: []string{"cd.registry.>"}, MaxAge: time.Hour, MaxBytes: 1 << 20, Duplicates: time.Minute,
	}); err != nil {
		t.Fatal(err)
	}
	topology := bus.Topology{Streams: []bus.Stream{bus.DomainStream(), bus.RegistryStream()}}
	for range 2 {
		if err := server.Connect(t, bus.UserDomain).Apply(t.Context(), topology); err != nil {
			t.Fatal(err)
		}
	}
	got := configOf(t, js, bus.StreamDomain)
	if got.MaxAge != large.MaxAge || got.MaxBytes != large.MaxBytes || got.Duplicates != large.Duplicates ||
		got.Compression != large.Compression || got.Description != large.Description {
		t.Errorf("a start changed the stream to %+v", got)
	}
	if !got.AllowAtomicPublish {
		t.Error("the stream takes no batches, which it needs")
	}
	want := bus.RegistryStream()
	got = configOf(t, js, bus.StreamRegistry)
	if got.MaxAge != want.MaxAge || got.MaxBytes != want.MaxBytes || got.Duplicates != 2*time.Minute {
		t.Errorf("what is smaller than needed is not made larger: %+v", got)
	}
}

func configOf(t *testing.T, js jetstream.JetStream, stream string) jetstream.StreamConfig {
	t.Helper()
	found, err := js.Stream(t.Context(), stream)
	if err != nil {
		t.Fatal(err)
	}
	return found.CachedInfo().Config
}

func TestReplicasThatASingleServerCannotHave(t *testing.T) {
	t.Parallel()
	server := bustest.Server(t)
	c := server.Config(bus.UserDomain)
	c.Layout.NATSReplicas = 3
	logged := warnings{texts: make(chan string, 16)}
	conn, err := bus.Connect(t.Context(), c, slog.New(logged))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	applied := make(chan error, 1)
	go func() { applied <- conn.Apply(ctx, domainTopology()) }()
	for text := ""; !contains(text, "make stream DOMAIN: found no room for 3 replicas"); {
		text = next(t, logged.texts)
	}
	cancel()
	if err := next(t, applied); err == nil {
		t.Error("a single server is taken to have room for three replicas")
	}
	if problems := (bus.Layout{NATSReplicas: 2, NATSMirrorTags: []string{""}}).Check(); len(problems) != 2 {
		t.Errorf("two replicas and an empty tag: %v", problems)
	}
}

// D66: in a cluster each stream has three replicas and each consumer as well, an operator's one becomes three, five would stay five, and a
// start with one keeps three. Placement and mirrors are as configured.
func TestStreamsOfACluster(t *testing.T) {
	t.Parallel()
	cluster := natscluster.Start(t, 3)
	js := cluster.JetStream()
	small := jetstream.StreamConfig{Name: bus.StreamRegistry, Subjects: []string{"cd.registry.>"}}
	wait.For(t, "the stream of an operator exists", func() bool { // a leader of it has to be found first
		_, err := js.CreateStream(t.Context(), small)
		return err == nil
	})
	topology := bus.Topology{
		Streams: []bus.Stream{bus.RegistryStream(), bus.DomainStream()}, Consumers: []bus.Consumer{{Stream: bus.StreamDomain, Durable: "domain"}},
	}
	apply := func(layout bus.Layout) {
		t.Helper()
		if err := cluster.Connect(t, cluster.Config(bus.UserDomain, layout)).Apply(t.Context(), topology); err != nil {
			t.Fatal(err)
		}
	}
	replicas := func(what string, want int) {
		t.Helper()
		for _, stream := range []string{bus.StreamDomain, bus.StreamRegistry} {
			wait.For(t, stream+" is whole "+what, func() bool {
				info := cluster.Info(t, stream)
				return info != nil && info.Config.Replicas == want && cluster.Current(t, stream)
			})
		}
	}
	apply(bus.Layout{})
	replicas("by default", 3)
	apply(bus.Layout{NATSReplicas: 1})
	replicas("after a start with one replica", 3)
	consumer, err := js.Consumer(t.Context(), bus.StreamDomain, "domain")
	if err != nil {
		t.Fatal(err)
	}
	if info := consumer.CachedInfo(); info.Cluster == nil || len(info.Cluster.Replicas) != 2 {
		t.Errorf("the consumer is on %+v, want on three servers", info.Cluster)
	}
	apply(bus.Layout{NATSMirrorTags: []string{"server:2"}})
	wait.For(t, "the mirrors are on server 2", func() bool {
		return slices.IndexFunc([]string{"DOMAIN_MIRROR", "REGISTRY_MIRROR"}, func(name string) bool {
			info := cluster.Info(t, name)
			return info == nil || info.Cluster == nil || info.Cluster.Leader != "server-2" || info.Mirror == nil
		}) < 0
	})
	// A later start without tags leaves both where they are.
	apply(bus.Layout{})
	if config := configOf(t, js, "DOMAIN_MIRROR"); config.Placement == nil || config.Placement.Tags[0] != "server:2" {
		t.Errorf("the mirror's placement is %+v", config.Placement)
	}
}

// D66: a stream whose replicas found no room gets them as soon as there is some; tags that no server has give none.
func TestPlacementInACluster(t *testing.T) {
	t.Parallel()
	cluster := natscluster.Start(t, 3)
	conn := cluster.Connect(t, cluster.Config(bus.UserDomain, bus.Layout{NATSReplicas: 1, NATSPlacementTags: []string{"server:1"}}))
	if err := conn.Apply(t.Context(), domainTopology()); err != nil {
		t.Fatal(err)
	}
	if leader := cluster.Leader(t, bus.StreamDomain); leader != 1 {
		t.Errorf("the stream is on server %d, want 1, whose tag it has", leader)
	}
	// Three replicas on one server are impossible: the stream stays as it is, and the start succeeds.
	again := cluster.Connect(t, cluster.Config(bus.UserDomain, bus.Layout{NATSReplicas: 3, NATSPlacementTags: []string{"server:1"}}))
	if err := again.Apply(t.Context(), domainTopology()); err != nil {
		t.Fatal(err)
	}
	if err := again.Ready(); err != nil {
		t.Errorf("not ready for want of replicas: %v", err)
	}
	if got := configOf(t, cluster.JetStream(), bus.StreamDomain).Replicas; got != 1 {
		t.Errorf("%d replicas, want 1", got)
	}
}
