package events

import (
	"context"
	"log/slog"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/telemetry"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/agent"
)

const (
	// offlineAfter is how long an agent may be silent; heartbeats come every five seconds.
	offlineAfter = 20 * time.Second
	// agentsPoll is how often agents are checked for silence.
	agentsPoll = 5 * time.Second
)

// Agents stores the latest heartbeat of each agent, and notifies the environments that depend on an agent when it has gone offline
// or come back.
type Agents struct {
	Store agent.ReportStore
	Clock clock.Clock
	Log   *slog.Logger
}

// heard keeps a heartbeat. Its time is this service's: the agent's clock may differ.
func (a Agents) heard(ctx context.Context, beat event.AgentHeartbeat) error {
	return a.Store.SaveBeat(ctx, beat.AgentID, a.Clock.Now(), beat.ClusterReachable, beat.Message)
}

// Run looks for what has changed until ctx ends. It begins late: after a start, the heartbeats that came meanwhile are still
// to be read, and nobody is offline because this service was.
func (a Agents) Run(ctx context.Context) error {
	for pause := offlineAfter; clock.Sleep(ctx, a.Clock, pause) == nil; pause = agentsPoll {
		if err := a.Store.ReportAgents(ctx, a.Clock.Now(), offlineAfter); err != nil && ctx.Err() == nil {
			a.Log.WarnContext(ctx, "reporting agents failed; will retry", telemetry.KeyError, err)
		}
	}
	return nil
}
