package events

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
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
	// comparedWithin bounds one comparison of what relays hold.
	comparedWithin = 10 * time.Second
)

// Agents stores the latest heartbeat of each agent, and notifies the environments that depend on an agent when it has gone offline
// or come back.
//
// A heartbeat is acknowledged before it is stored. If this process ends in between, the agent's next one follows within seconds, long
// before the agent counts as offline.
type Agents struct {
	deps AgentsDeps
	// unsaved are to be stored, uncompared to be compared with what is wanted of the relays: one does not wait for the other.
	unsaved, uncompared *newest
	// behind reports whether heartbeats could not be stored the last time.
	behind atomic.Bool
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
	return &Agents{deps: d, unsaved: newNewest(), uncompared: newNewest()}
}

// heard takes a heartbeat, for the loops of Run.
func (a *Agents) heard(b event.AgentHeartbeat) {
	one := beat{AgentHeartbeat: b, at: a.deps.Clock.Now()}
	a.unsaved.keep(one)
	a.uncompared.keep(one)
}

// Run does all of it until ctx ends.
func (a *Agents) Run(ctx context.Context) error {
	var loops sync.WaitGroup
	defer loops.Wait()
	loops.Go(func() { a.listen(ctx) })
	loops.Go(func() { a.compare(ctx) })
	a.report(ctx)
	return nil
}

// listen stores the heartbeats that have come until ctx ends. It does nothing while none come.
func (a *Agents) listen(ctx context.Context) {
	for a.unsaved.wait(ctx, a.deps.Clock) {
		beats := a.unsaved.take()
		err := a.save(ctx, beats)
		a.behind.Store(err != nil)
		if err == nil || ctx.Err() != nil {
			continue
		}
		a.deps.Log.WarnContext(ctx, "saving heartbeats failed; will retry", telemetry.KeyError, err)
		a.unsaved.keep(beats...)
		_ = clock.Sleep(ctx, a.deps.Clock, beatsAgain) // ended early, the loop sees it
	}
}

// save stores heartbeats together. If the database refuses one, they are stored one by one, so that it is the only one left out.
func (a *Agents) save(ctx context.Context, beats []beat) error {
	saved := make([]agent.Beat, len(beats))
	for i, b := range beats {
		saved[i] = agent.Beat{Agent: b.AgentID, At: b.at, Reachable: b.ClusterReachable, Message: b.Message}
	}
	err := a.deps.Store.SaveBeats(ctx, saved)
	if !fault.Is(err, fault.Invalid) {
		return err
	}
	for i := range saved {
		err := a.deps.Store.SaveBeats(ctx, saved[i:i+1])
		if fault.Is(err, fault.Invalid) {
			a.deps.Log.WarnContext(ctx, "a heartbeat cannot be stored", telemetry.KeyAgent, saved[i].Agent, telemetry.KeyError, err)
			continue
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// compare compares what relays say they hold with what is wanted of them, until ctx ends.
func (a *Agents) compare(ctx context.Context) {
	for a.uncompared.wait(ctx, a.deps.Clock) {
		within, cancel := context.WithTimeout(ctx, comparedWithin)
		err := a.deps.Watches.heard(within, a.uncompared.take())
		cancel()
		if err != nil && ctx.Err() == nil {
			a.deps.Log.WarnContext(ctx, "comparing watches failed; the next heartbeats lead to it again", telemetry.KeyError, err)
		}
	}
}

// report looks for what has changed until ctx ends. It begins late: after a start, the heartbeats of that time are still
// to be read, and nobody is offline because this service was. The same holds while the database is away, and after it.
func (a *Agents) report(ctx context.Context) {
	for pause := offlineAfter; clock.Sleep(ctx, a.deps.Clock, pause) == nil; {
		if pause = agentsPoll; a.behind.Load() {
			pause = offlineAfter
			continue
		}
		if err := a.deps.Store.ReportAgents(ctx, a.deps.Clock.Now(), offlineAfter); err != nil && ctx.Err() == nil {
			pause = offlineAfter
			a.deps.Log.WarnContext(ctx, "reporting agents failed; will retry", telemetry.KeyError, err)
		}
	}
}

// beat is a heartbeat, and when it was received by this service's clock: the agent's may differ.
type beat struct {
	event.AgentHeartbeat
	at time.Time
}

// newest are the newest heartbeats of agents that one of the loops has not taken yet.
type newest struct {
	received wake.Signal

	mu sync.Mutex
	of map[int64]beat
}

func newNewest() *newest { return &newest{received: wake.NewSignal(), of: map[int64]beat{}} }

// keep takes heartbeats, unless there are newer ones.
func (n *newest) keep(beats ...beat) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, b := range beats {
		if known, some := n.of[b.AgentID]; !some || !b.at.Before(known.at) {
			n.of[b.AgentID] = b
		}
	}
	n.received.Raise()
}

// wait returns a moment after some have come, so that those of many agents go together; false when ctx has ended.
func (n *newest) wait(ctx context.Context, c clock.Clock) bool {
	select {
	case <-n.received:
	case <-ctx.Done():
		return false
	}
	err := clock.Sleep(ctx, c, beatsTogether)
	n.received.Taken() // those of the meantime go along
	return err == nil
}

// take removes and returns all, by agent.
func (n *newest) take() []beat {
	n.mu.Lock()
	defer n.mu.Unlock()
	beats := make([]beat, 0, len(n.of))
	for _, number := range slices.Sorted(maps.Keys(n.of)) {
		beats = append(beats, n.of[number])
	}
	clear(n.of)
	return beats
}
