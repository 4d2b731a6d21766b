package events

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/telemetry"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/agent"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/wake"
)

const (
	// offlineAfter is how long an agent may be silent; heartbeats come every five seconds.
	offlineAfter = 20 * time.Second
	// agentsPoll is how often agents are checked for silence.
	agentsPoll = 5 * time.Second
	// beatsTogether is how long heartbeats are collected, so that those of many agents are stored together.
	beatsTogether = 200 * time.Millisecond
	// beatsAgain is the pause after they could not be stored.
	beatsAgain = time.Second
)

// Agents stores the latest heartbeat of each agent, and notifies the environments that depend on an agent when it has gone offline
// or come back.
//
// A heartbeat is acknowledged before it is stored. If this process ends in between, the agent's next one follows within seconds, long before
// the agent counts as offline.
type Agents struct {
	deps AgentsDeps
	received wake.Signal

	mu sync.Mutex
	// beats are the newest that are not stored yet, by agent.
	beats map[int64]beat
}

// beat is a heartbeat, and when it was received by this service's clock: the agent's may differ.
type beat struct {
	event.AgentHeartbeat
	at time.Time
}

// AgentsDeps are what Agents needs.
type AgentsDeps struct {
	Store   agent.ReportStore
	Watches *Watches
	Clock   clock.Clock
	Log     *slog.Logger
}

// NewAgents has heard of no agent yet.
func NewAgents(d AgentsDeps) *Agents {
	return &Agents{deps: d, received: wake.NewSignal(), beats: map[int64]beat{}}
}

// heard takes a heartbeat, for Listen.
func (a *Agents) heard(b event.AgentHeartbeat) {
	a.keep(beat{AgentHeartbeat: b, at: a.deps.Clock.Now()})
}

// keep takes heartbeats, unless there are newer ones.
func (a *Agents) keep(beats ...beat) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, b := range beats {
		if known, some := a.beats[b.AgentID]; !some || !b.at.Before(known.at) {
			a.beats[b.AgentID] = b
		}
	}
	a.received.Raise()
}

// take returns the heartbeats that are not stored yet, by agent.
func (a *Agents) take() []beat {
	a.mu.Lock()
	defer a.mu.Unlock()
	beats := make([]beat, 0, len(a.beats))
	for _, number := range slices.Sorted(maps.Keys(a.beats)) {
		beats = append(beats, a.beats[number])
	}
	clear(a.beats)
	return beats
}

// Listen stores the heartbeats that have come, and compares what the relays hold with what is wanted of them, until ctx ends. It does
// nothing while none come.
func (a *Agents) Listen(ctx context.Context) error {
	for {
		select {
		case <-a.received:
		case <-ctx.Done():
			return nil
		}
		if clock.Sleep(ctx, a.deps.Clock, beatsTogether) != nil {
			return nil //nolint:nilerr // the end of ctx ends it
		}
		beats := a.take()
		if err := a.save(ctx, beats); err != nil {
			if ctx.Err() == nil {
				a.deps.Log.WarnContext(ctx, "saving heartbeats failed; will retry", telemetry.KeyError, err)
			}
			a.keep(beats...)
			_ = clock.Sleep(ctx, a.deps.Clock, beatsAgain) // ended early, the loop sees it
			continue
		}
		if err := a.deps.Watches.heard(ctx, beats); err != nil && ctx.Err() == nil {
			a.deps.Log.WarnContext(ctx, "comparing watches failed; the next heartbeats lead to it again", telemetry.KeyError, err)
		}
	}
}

func (a *Agents) save(ctx context.Context, beats []beat) error {
	saved := make([]agent.Beat, len(beats))
	for i, b := range beats {
		saved[i] = agent.Beat{Agent: b.AgentID, At: b.at, Reachable: b.ClusterReachable, Message: b.Message}
	}
	return a.deps.Store.SaveBeats(ctx, saved)
}

// Run looks for what has changed until ctx ends. It begins late: after a start, the heartbeats of that time are still
// to be read, and nobody is offline because this service was.
func (a *Agents) Run(ctx context.Context) error {
	for pause := offlineAfter; clock.Sleep(ctx, a.deps.Clock, pause) == nil; pause = agentsPoll {
		if err := a.deps.Store.ReportAgents(ctx, a.deps.Clock.Now(), offlineAfter); err != nil && ctx.Err() == nil {
			a.deps.Log.WarnContext(ctx, "reporting agents failed; will retry", telemetry.KeyError, err)
		}
	}
	return nil
}
