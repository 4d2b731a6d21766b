package events

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/bus"
	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/id"
	"github.com/lockstep-cd/lockstep/pkg/telemetry"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/agent"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
)

const (
	// watchLease is how long a relay holds a set that nobody renews.
	watchLease = 5 * time.Minute
	// watchPause is the least time between two sets that heartbeats of one agent lead to: after a while away there may be
	// hundreds of them at once.
	watchPause = 2 * time.Second
)

// Sender publishes events.
type Sender interface {
	Publish(ctx context.Context, e event.Event) error
}

// Watches sends relays what they are to watch: the whole set, when it has changed, when a heartbeat shows that the relay
// holds another one (it has started, or a message was lost), and before the lease ends. It keeps no set: the store has the wanted
// one, and the relay reports the one that it holds (D20).
type Watches struct {
	store agent.WatchStore
	bus   Sender
	clock clock.Clock
	log   *slog.Logger

	wake chan struct{}
	mu   sync.Mutex
	// due are the agents to send to, sent when each was sent its set last.
	due  map[int64]bool
	sent map[int64]time.Time
}

// WatchesDeps are what Watches needs.
type WatchesDeps struct {
	Store agent.WatchStore
	Bus   Sender
	Clock clock.Clock
	Log   *slog.Logger
}

// NewWatches knows of nothing yet.
func NewWatches(d WatchesDeps) *Watches {
	return &Watches{
		store: d.Store, bus: d.Bus, clock: d.Clock, log: d.Log,
		wake: make(chan struct{}, 1), due: map[int64]bool{}, sent: map[int64]time.Time{},
	}
}

// Changed schedules sending an agent's set, which has changed.
func (w *Watches) Changed(agent int64) {
	w.mu.Lock()
	w.due[agent] = true
	w.mu.Unlock()
	select {
	case w.wake <- struct{}{}:
	default: // Run is notified already
	}
}

// Run sends to relays until ctx ends. A set that cannot be sent is not retried here: the next heartbeat leads to it again.
func (w *Watches) Run(ctx context.Context) error {
	for {
		select {
		case <-w.wake:
		case <-ctx.Done():
			return nil
		}
		for _, agent := range w.take() {
			if err := w.send(ctx, agent); err != nil && ctx.Err() == nil {
				w.log.WarnContext(ctx, "sending watches failed", telemetry.KeyAgent, agent, telemetry.KeyError, err)
			}
		}
	}
}

func (w *Watches) take() []int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	var agents []int64
	for agent := range w.due {
		agents = append(agents, agent)
		w.sent[agent] = w.clock.Now()
	}
	clear(w.due)
	slices.Sort(agents)
	return agents
}

// send sends an agent its whole set.
func (w *Watches) send(ctx context.Context, agent int64) error {
	now := w.clock.Now()
	wanted, err := w.store.WantedWatches(ctx, agent)
	if err != nil {
		return err
	}
	data := event.WatchesWanted{
		AgentID: agent, AsOf: now.UTC().Format(time.RFC3339Nano), LeaseSeconds: int(watchLease.Seconds()),
		Watches: make([]event.Watch, len(wanted)),
	}
	for i, each := range wanted {
		data.Watches[i] = event.Watch{
			Watch: each.ID, Kind: each.Spec.Kind, APIVersion: each.Spec.APIVersion, Namespace: each.Spec.Namespace,
			Name: each.Spec.Name, Labels: each.Spec.Labels, Fields: each.Spec.Fields,
			Report: each.Spec.Report, ExpectedRevision: each.Spec.Expected,
		}
	}
	e, err := event.New(event.Header{ID: id.New(now), Source: Source, Time: now}, data)
	if err != nil {
		return fmt.Errorf("watches of agent %d: %w", agent, err)
	}
	return w.bus.Publish(ctx, e)
}

// heard compares what relays hold with what is wanted of them.
func (w *Watches) heard(ctx context.Context, beats []beat) error {
	var agents []int64
	w.mu.Lock()
	beats = slices.DeleteFunc(slices.Clone(beats), func(b beat) bool { return w.clock.Now().Sub(w.sent[b.AgentID]) < watchPause })
	w.mu.Unlock()
	for _, b := range beats {
		agents = append(agents, b.AgentID)
	}
	if len(agents) == 0 {
		return nil
	}
	wanted, err := w.store.WantedIDs(ctx, agents)
	if err != nil {
		return err
	}
	for _, b := range beats {
		ids := wanted[b.AgentID]
		runsOut := len(ids) > 0 && time.Duration(b.LeaseSeconds)*time.Second < watchLease/2
		if runsOut || event.WatchDigest(ids) != b.Watching {
			w.Changed(b.AgentID)
		}
	}
	return nil
}

// observed hands on what a relay has seen under a watch.
func (c Cluster) observed(ctx context.Context, d bus.Delivery) error {
	if err := event.Validate(d.Event); err != nil {
		return err
	}
	if err := history.EventDoor.CheckField("data", d.Event.Data()); err != nil {
		return err
	}
	var seen struct {
		Agent int64  `json:"agent_id"`
		Watch string `json:"watch"`
	}
	if err := json.Unmarshal(d.Event.Data(), &seen); err != nil {
		return fault.Because(err, fault.Invalid, "data of %s is not the expected JSON", d.Event.Type())
	}
	if seen.Watch == "" {
		return nil // nobody asked for it
	}
	_, err := c.Observed.ReceiveObserved(ctx, seen.Watch, seen.Agent, history.Event{
		Source: d.Event.Source(), ID: d.Event.ID(), Type: d.Event.Type(), Data: d.Event.Data(), Time: d.Event.Time(),
	})
	return err
}
