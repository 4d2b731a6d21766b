package events

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-cd/lockstep/pkg/bus"
	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/agent"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
)

// wanted is what the workflows of an installation want watched: of agent 42.
type wanted struct {
	agent.WatchStore
	mu       sync.Mutex
	ids      []string
	observed []string
}

func (w *wanted) WantedWatches(_ context.Context, agentID int64) ([]agent.Watch, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []agent.Watch
	if agentID == 42 {
		for _, id := range w.ids {
			all = append(all, agent.Watch{
				ID: id, Agent: agentID,
				Spec: agent.WatchSpec{Kind: "Rollout", Name: "api", Fields: []string{"status.phase"}},
			})
		}
	}
	return all, nil
}

func (w *wanted) WantedIDs(_ context.Context, agents []int64) (map[int64][]string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !slices.Contains(agents, 42) {
		return nil, nil
	}
	return map[int64][]string{42: w.ids}, nil
}

func (w *wanted) ReceiveObserved(_ context.Context, watch string, agent int64, e history.Event) (int, error) {
	if agent != 42 {
		return 0, fault.New(fault.Denied, "not its own")
	}
	w.observed = append(w.observed, watch+" "+e.ID+" "+e.Type)
	return 1, nil
}

// sets keeps the ids of every set that was sent.
type sets struct {
	mu   sync.Mutex
	sent []string
}

func (s *sets) Publish(_ context.Context, e event.Event) error {
	data, err := event.Decode[event.WatchesWanted](e)
	if err != nil {
		return err
	}
	ids := ""
	for _, w := range data.Watches {
		ids += w.Watch + " "
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent = append(s.sent, ids)
	return nil
}

func (s *sets) take() []string {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	sent := s.sent
	s.sent = nil
	return sent
}

// D20: the whole set, when it has changed, to a relay that holds another one, and before the lease ends.
func TestARelayGetsTheWholeSet(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, out := &wanted{}, &sets{}
		w := NewWatches(WatchesDeps{Store: store, Bus: out, Clock: clock.System(), Log: slog.New(slog.DiscardHandler)})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); _ = w.Run(ctx) }()
		defer func() { cancel(); <-ended }()

		heard := func(b event.AgentHeartbeat) {
			t.Helper()
			if err := w.heard(ctx, []beat{{AgentHeartbeat: b, at: clock.System().Now()}}); err != nil {
				t.Fatal(err)
			}
		}
		holds := func(lease int, ids ...string) {
			t.Helper()
			time.Sleep(5 * time.Second)
			heard(event.AgentHeartbeat{AgentID: 42, Watching: event.WatchDigest(ids), LeaseSeconds: lease})
		}
		expect := func(when string, want ...string) {
			t.Helper()
			if got := out.take(); !slices.Equal(got, want) {
				t.Errorf("%s: sent %q, want %q", when, got, want)
			}
		}
		holds(0)
		expect("nothing wanted, nothing held")
		store.ids = []string{"a", "b"}
		w.Changed(42)
		expect("it has changed", "a b ")
		holds(290, "b", "a")
		expect("the relay holds it")
		holds(0)
		expect("the relay has started anew", "a b ")
		holds(140, "a", "b")
		expect("the lease runs out", "a b ")
		store.ids = nil
		holds(290, "a", "b")
		expect("the workflows have ended", "")
		holds(0)
		expect("the relay has heard")
		holds(0, "x")
		heard(event.AgentHeartbeat{AgentID: 42, Watching: "old"})
		expect("a backlog of heartbeats", "")
	})
}

func TestObservationsGoToTheirWorkflow(t *testing.T) {
	t.Parallel()
	store := &wanted{}
	cluster := Cluster{Observed: store, Log: slog.New(slog.DiscardHandler)}
	handle := func(agent int64, watch, subject string) error {
		e, err := event.New(event.Header{ID: "1", Source: "/agents/42", Time: noon}, event.ObjectChanged{
			AgentID: agent, Watch: watch, Kind: "Pod", Found: true, Object: json.RawMessage(`{}`), ObservedAt: "2026-03-25T12:00:00Z",
		})
		if err != nil {
			t.Fatal(err)
		}
		return cluster.Handle(t.Context(), bus.Delivery{Event: e, Subject: subject})
	}
	if err := handle(42, "r/0.1", "cd.cluster.42.event"); err != nil {
		t.Error(err)
	}
	if err := handle(43, "r/0.1", "cd.cluster.43.event"); !fault.Is(err, fault.Denied) {
		t.Errorf("an agent observes under another one's watch: %v", err)
	}
	if err := handle(42, "r/0.1", "cd.cluster.43.event"); !fault.Is(err, fault.Invalid) {
		t.Errorf("an agent speaks for another one: %v", err)
	}
	if diff := cmp.Diff([]string{"r/0.1 1 com.gitlab.cd.object.changed"}, store.observed); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
