package outbox_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/bus"
	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/outbox"
	"github.com/lockstep-cd/lockstep/pkg/testkit/bustest"
	"github.com/lockstep-cd/lockstep/pkg/testkit/natscluster"
	"github.com/lockstep-cd/lockstep/pkg/testkit/wait"
)

// The faults of a NATS cluster (D66), on three real servers with TLS and accounts, while all of our streams have traffic.

// nightly is set by make nightly, for what takes minutes.
const nightly = "LOCKSTEP_NIGHTLY"

// settled is how long a test waits for a cluster, on a machine that does much else.
const settled = 3 * time.Minute

// traffic goes over all streams of a cluster: events of an outbox to an inbox over DOMAIN, and events that are published until they are
// acknowledged over the others.
type traffic struct {
	*overNATS
	cluster *natscluster.Cluster
	conns   map[string]*bus.Conn
	lanes   []*lane
	outbox  *lane
	stop    func()

	mu sync.Mutex
	// unready is what a service reported while no quorum was missing.
	unready []string
	down    bool
}

// lane is one stream's traffic.
type lane struct {
	stream string

	mu sync.Mutex
	// acked are the ids that the stream has confirmed, or the outbox has stored; handled counts deliveries by id.
	acked    []string
	handled  map[string]int
	at       []time.Time // when something was confirmed, or handled for the outbox, and
	arrivals []time.Time // when something was handled
}

func (l *lane) ack(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.acked, l.at = append(l.acked, id), append(l.at, clock.System().Now())
}

func (l *lane) handle(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.handled[id]++
	l.arrivals = append(l.arrivals, clock.System().Now())
}

// lastAck is when something was last confirmed and something was last handled, the earlier of the two.
func (l *lane) lastAck() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.at) == 0 || len(l.arrivals) == 0 {
		return time.Time{}
	}
	return slices.MinFunc([]time.Time{l.at[len(l.at)-1], l.arrivals[len(l.arrivals)-1]}, time.Time.Compare)
}

// gap is the longest time after begun in which nothing was confirmed, or nothing was handled.
func (l *lane) gap(begun time.Time) (longest time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, times := range [][]time.Time{l.at, l.arrivals} {
		before := begun
		for _, at := range times {
			if at.After(begun) {
				longest, before = max(longest, at.Sub(before)), at
			}
		}
	}
	return longest
}

// missing are the ids that were confirmed and have not arrived.
func (l *lane) missing() (ids []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range l.acked {
		if l.handled[id] == 0 {
			ids = append(ids, id)
		}
	}
	return ids
}

// pace is how often each stream gets an event.
const pace = 20 * time.Millisecond

func newTraffic(t *testing.T) *traffic {
	t.Helper()
	f := &traffic{overNATS: &overNATS{stage: newStage(t)}, cluster: natscluster.Start(t, 3), conns: map[string]*bus.Conn{}}
	for _, user := range []string{bus.UserRegistry, bus.UserDomain, bus.UserWorkflow, bus.RelayUser(42)} {
		f.conns[user] = f.cluster.Connect(t, f.cluster.Config(user, bus.Layout{}))
	}
	domain := bus.Consumer{Stream: bus.StreamDomain, Durable: "domain"}
	registry := bus.Consumer{Stream: bus.StreamRegistry, Durable: "domain"}
	answers := bus.Consumer{Stream: bus.StreamCluster, Durable: "workflow"}
	calls := bus.AgentConsumer(42)
	f.must(f.conns[bus.UserWorkflow].Apply(t.Context(), bus.Topology{
		Streams:   []bus.Stream{bus.ClusterCallsStream(), bus.ClusterStream(), bus.DomainStream()},
		Consumers: []bus.Consumer{calls, answers},
	}))
	f.must(f.conns[bus.UserDomain].Apply(t.Context(), bus.Topology{
		Streams: []bus.Stream{bus.RegistryStream(), bus.DomainStream()}, Consumers: []bus.Consumer{registry, domain},
	}))
	f.must(f.conns[bus.UserRegistry].Apply(t.Context(), bus.Topology{Streams: []bus.Stream{bus.RegistryStream()}}))
	for _, stream := range []string{bus.StreamDomain, bus.StreamRegistry, bus.StreamCluster, bus.StreamClusterCalls} {
		wait.Within(t, settled, stream+" has three replicas", func() bool {
			info := f.cluster.Info(t, stream)
			return info != nil && info.Config.Replicas == 3 && f.cluster.Current(t, stream)
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	var producers sync.WaitGroup
	f.stop = sync.OnceFunc(func() { cancel(); producers.Wait() })
	t.Cleanup(f.stop)
	f.direct(ctx, &producers, bus.UserRegistry, bus.UserDomain, registry, artifactOf)
	f.direct(ctx, &producers, bus.UserWorkflow, bus.RelayUser(42), calls, callOf)
	f.direct(ctx, &producers, bus.RelayUser(42), bus.UserWorkflow, answers, answerOf)
	f.throughOutbox(ctx, &producers, domain)
	producers.Go(func() { f.watchReadiness(ctx) })
	for _, l := range f.lanes {
		wait.Within(t, settled, l.stream+" has traffic", func() bool { return !l.lastAck().IsZero() })
	}
	return f
}

func artifactOf(n int) (event.Header, event.Data) {
	return event.Header{ID: fmt.Sprintf("artifact-%d", n)}, event.ArtifactPublished{
		Image: "registry.example.com/shop/api", Digest: "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
	}
}

func callOf(n int) (event.Header, event.Data) {
	return event.Header{ID: fmt.Sprintf("call-%d", n), Organization: 1}, event.FunctionCalled{
		AgentID: 42, CallID: "1/7/0", Function: "k8s.get", Arguments: json.RawMessage(`{}`), Attempt: 1, Deadline: "2026-03-25T10:05:00Z",
	}
}

func answerOf(n int) (event.Header, event.Data) {
	return event.Header{ID: fmt.Sprintf("answer-%d", n), Organization: 1}, event.FunctionCompleted{
		AgentID: 42, CallID: "1/7/0", Attempt: 1, Value: json.RawMessage(`{"synced":true}`),
	}
}

// direct publishes events, each until it is acknowledged, and consumes them.
func (f *traffic) direct(
	ctx context.Context, producers *sync.WaitGroup, from, to string, consumer bus.Consumer, of func(int) (event.Header, event.Data),
) {
	l := &lane{stream: consumer.Stream, handled: map[string]int{}}
	f.lanes = append(f.lanes, l)
	f.run(func(ctx context.Context) error {
		return f.conns[to].Consume(ctx, consumer, func(_ context.Context, d bus.Delivery) error {
			l.handle(d.Event.ID())
			return nil
		}, nil)
	})
	producers.Go(func() {
		for n := 0; ctx.Err() == nil; n++ {
			h, data := of(n)
			h.Source, h.Time = "/services/"+from, time.Unix(1_800_000_000, 0)
			e, err := event.New(h, data)
			if err != nil {
				f.t.Error(err)
				return
			}
			for ctx.Err() == nil {
				err := f.conns[from].Publish(ctx, e)
				if err == nil {
					l.ack(e.ID())
					break
				}
				f.t.Log(err)
			}
			_ = clock.Sleep(ctx, clock.System(), pace)
		}
	})
}

// throughOutbox adds events to an outbox, whose sender publishes them, and applies them with an inbox.
func (f *traffic) throughOutbox(ctx context.Context, producers *sync.WaitGroup, consumer bus.Consumer) {
	l := &lane{stream: consumer.Stream, handled: map[string]int{}}
	f.outbox, f.lanes = l, append(f.lanes, l)
	to := f.conns[bus.UserDomain]
	inbox := outbox.NewInbox(outbox.InboxDeps{Pool: f.to, Bus: to, Clock: clock.System(), Log: bustest.Log(f.t), Name: "domain"})
	f.run(inbox.Run)
	f.run(func(ctx context.Context) error {
		return to.ConsumeInOrder(ctx, consumer, func(ctx context.Context, all []bus.Delivery) []error {
			errs := f.handle(ctx, inbox, all)
			l.mu.Lock()
			now := clock.System().Now()
			l.at, l.arrivals = append(l.at, now), append(l.arrivals, now)
			l.mu.Unlock()
			return errs
		}, nil)
	})
	sender := realSender(f.from, f.conns[bus.UserWorkflow], 5*time.Second, bustest.Log(f.t))
	f.run(sender.Run)
	producers.Go(func() {
		for n := 0; ctx.Err() == nil; n += 5 {
			added := f.addMany(n, 5)
			l.mu.Lock()
			l.acked = append(l.acked, added...)
			l.mu.Unlock()
			sender.Wake()
			_ = clock.Sleep(ctx, clock.System(), 5*pace)
		}
	})
}

// watchReadiness notes each service that is not ready while a quorum of the servers runs.
func (f *traffic) watchReadiness(ctx context.Context) {
	for clock.Sleep(ctx, clock.System(), 100*time.Millisecond) == nil {
		for user, conn := range f.conns {
			if err := conn.Ready(); err != nil {
				f.mu.Lock()
				if !f.down && len(f.unready) < 10 {
					f.unready = append(f.unready, fmt.Sprintf("%s: %v", user, err))
				}
				f.mu.Unlock()
			}
		}
	}
}

func (f *traffic) quorumIsGone(gone bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.down = gone
}

// election is longer than the cluster takes to miss a leader and agree on another one.
const election = 12 * time.Second

// recovery is the longest time after begun in which a stream took no event, of all streams. It returns when each takes events.
func (f *traffic) recovery(begun time.Time) (slowest time.Duration) {
	f.t.Helper()
	for _, l := range f.lanes {
		wait.Within(f.t, settled, l.stream+" takes events again", func() bool { return l.lastAck().After(begun.Add(election)) })
		took := l.gap(begun)
		f.t.Logf("%s: %.1f s", l.stream, took.Seconds())
		slowest = max(slowest, took)
	}
	return slowest
}

// whole waits until all servers have all of all streams.
func (f *traffic) whole() {
	f.t.Helper()
	for _, l := range f.lanes {
		wait.Within(f.t, settled, l.stream+" is whole on all servers", func() bool { return f.cluster.Current(f.t, l.stream) })
	}
}

// settle ends the traffic and checks that everything has arrived, and is applied once.
func (f *traffic) settle(fault string, recovered time.Duration) {
	f.t.Helper()
	f.stop()
	wait.Within(f.t, settled, "the outbox is confirmed", func() bool { return len(f.held()) == 0 })
	applied := f.arrived()
	f.outbox.mu.Lock()
	for _, id := range applied {
		f.outbox.handled[id]++
	}
	f.outbox.mu.Unlock()
	lost, doubled, again := 0, 0, 0
	for _, l := range f.lanes {
		if l != f.outbox {
			// What has not come by then would be a loss: nothing is published any more.
			deadline := clock.System().Now().Add(settled)
			for len(l.missing()) > 0 && clock.System().Now().Before(deadline) {
				_ = clock.Sleep(f.t.Context(), clock.System(), 50*time.Millisecond)
			}
		}
		if ids := l.missing(); len(ids) > 0 {
			lost += len(ids)
			f.t.Errorf("%s: %d of %d confirmed events were lost: %v", l.stream, len(ids), len(l.acked), ids[:min(5, len(ids))])
		}
		for id, n := range l.handled {
			switch {
			case n > 1 && l == f.outbox:
				doubled++
				f.t.Errorf("%s was applied %d times", id, n)
			case n > 1:
				again++
			}
		}
	}
	if !slices.IsSorted(numbers(applied)) {
		f.t.Error("the outbox's events were applied in another order than that of their commits")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.unready) > 0 {
		f.t.Errorf("a service was not ready although there was a quorum: %v", f.unready)
	}
	events := 0
	for _, l := range f.lanes {
		events += len(l.acked)
	}
	f.t.Logf("RESULT | %s | %d events, lost %d, doubled %d (delivered again, with the same id: %d) | all streams take events after %.1f s",
		fault, events, lost, doubled, again, recovered.Seconds())
}

func numbers(ids []string) []int {
	all := make([]int, len(ids))
	for i, id := range ids {
		if _, err := fmt.Sscanf(id, "e%d", &all[i]); err != nil {
			panic(err)
		}
	}
	return all
}

// One server of three dies as by kill -9, the one that leads most, and comes back with an empty disk (D66).
func TestANATSClusterLosesItsLeaderAndADisk(t *testing.T) {
	t.Parallel()
	f := newTraffic(t)
	now := clock.System().Now
	leader := f.cluster.Leader(t, bus.StreamDomain)
	begun := now()
	f.cluster.Kill(t, leader)
	recovered := f.recovery(begun)
	t.Logf("RESULT | server %d, leader of DOMAIN, killed | all streams take events after %.1f s", leader, recovered.Seconds())
	f.cluster.Wipe(t, leader)
	f.cluster.Run(t, leader)
	begun = now()
	f.whole()
	t.Logf("its disk emptied and started again: whole on all servers after %.1f s", now().Sub(begun).Seconds())
	f.settle("leader killed, then its disk emptied", recovered)
}

// The leader of each stream dies, one after the other; each is back, and has everything, before the next.
//
//nolint:paralleltest // one cluster at a time: what is measured is how long it takes
func TestANATSClusterLosesEachLeader(t *testing.T) {
	skipUnlessNightly(t)
	f := newTraffic(t)
	slowest := time.Duration(0)
	for _, stream := range []string{bus.StreamDomain, bus.StreamRegistry, bus.StreamCluster, bus.StreamClusterCalls} {
		leader := f.cluster.Leader(t, stream)
		begun := clock.System().Now()
		f.cluster.Kill(t, leader)
		slowest = max(slowest, f.recovery(begun))
		f.cluster.Run(t, leader)
		f.whole()
	}
	f.settle("the leader of each stream killed in turn", slowest)
}

// The servers are cut off from each other, two from one, that one being the leader; clients stay connected to any.
//
//nolint:paralleltest // one cluster at a time: what is measured is how long it takes
func TestANATSClusterIsSplitTwoToOne(t *testing.T) {
	skipUnlessNightly(t)
	f := newTraffic(t)
	leader := f.cluster.Leader(t, bus.StreamDomain)
	others := slices.DeleteFunc([]int{0, 1, 2}, func(i int) bool { return i == leader })
	begun := clock.System().Now()
	f.cluster.Split([]int{leader}, others)
	during := f.recovery(begun)
	t.Logf("RESULT | split 2:1, the leader alone | during the split all streams take events after %.1f s", during.Seconds())
	f.cluster.Heal()
	begun = clock.System().Now()
	healed := f.recovery(begun)
	f.settle("split 2:1 and healed", healed)
	f.whole()
}

// All are cut off from all: there is no quorum, and nothing is confirmed until there is one.
//
//nolint:paralleltest // one cluster at a time: what is measured is how long it takes
func TestANATSClusterIsSplitInThree(t *testing.T) {
	skipUnlessNightly(t)
	f := newTraffic(t)
	f.quorumIsGone(true)
	f.cluster.Split([]int{0}, []int{1}, []int{2})
	begun := clock.System().Now()
	_ = clock.Sleep(t.Context(), clock.System(), 20*time.Second) // longer than any election
	for _, l := range f.lanes {
		if last := l.lastAck(); last.After(begun.Add(election)) {
			t.Errorf("%s: confirmed something %v after the quorum was lost", l.stream, last.Sub(begun))
		}
	}
	f.cluster.Heal()
	begun = clock.System().Now()
	recovered := f.recovery(begun)
	f.quorumIsGone(false)
	f.settle("split 1:1:1 for 20 s and healed", recovered)
	f.whole()
}

func skipUnlessNightly(t *testing.T) {
	t.Helper()
	if os.Getenv(nightly) == "" {
		t.Skip("takes minutes: make nightly, or " + nightly + "=1")
	}
}
