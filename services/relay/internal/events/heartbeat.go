package events

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/id"
	"github.com/lockstep-cd/lockstep/pkg/telemetry"
)

// HeartbeatDeps are the dependencies of a Heartbeat.
type HeartbeatDeps struct {
	Agent    int64
	Version  string
	Interval time.Duration
	// Reachable checks whether the cluster is reachable; its error is shown to people.
	Reachable func(context.Context) error
	// Watching returns the watches held and the end of their lease.
	Watching func() (ids []string, until time.Time)
	Bus      Publisher
	Clock    clock.Clock
	Log      *slog.Logger
}

// Heartbeat reports to the workflow service every few seconds that the relay is alive, whether its cluster is reachable, and its watches,
// so that a relay with a stale set of watches is sent the right one (D20).
type Heartbeat struct {
	deps HeartbeatDeps
	// last is the newest beat, for the readiness check, which must not query the cluster again.
	last atomic.Pointer[event.AgentHeartbeat]
}

// NewHeartbeat returns a Heartbeat.
func NewHeartbeat(d HeartbeatDeps) *Heartbeat { return &Heartbeat{deps: d} }

// Run beats until ctx ends.
func (h *Heartbeat) Run(ctx context.Context) error {
	started := h.deps.Clock.Now()
	for {
		if err := h.beat(ctx, started); err != nil && ctx.Err() == nil {
			h.deps.Log.WarnContext(ctx, "sending heartbeat failed", telemetry.KeyError, err)
		}
		if err := clock.Sleep(ctx, h.deps.Clock, h.deps.Interval); err != nil {
			return nil //nolint:nilerr // the end of ctx ends the heartbeat
		}
	}
}

// beat checks the cluster and publishes a heartbeat. A change is logged once, not with every beat.
func (h *Heartbeat) beat(ctx context.Context, started time.Time) error {
	reached := h.deps.Reachable(ctx)
	now := h.deps.Clock.Now()
	data := event.AgentHeartbeat{
		AgentID: h.deps.Agent, Version: h.deps.Version, ClusterReachable: reached == nil,
		StartedAt: started.UTC().Format(time.RFC3339Nano), ObservedAt: now.UTC().Format(time.RFC3339Nano),
	}
	if ids, until := h.deps.Watching(); len(ids) > 0 {
		data.Watching, data.LeaseSeconds = event.WatchDigest(ids), max(0, int(until.Sub(now).Seconds()))
	}
	if reached != nil {
		data.Message = fault.Public(reached)
	}
	if before := h.last.Swap(&data); before == nil || before.ClusterReachable != data.ClusterReachable {
		h.deps.Log.InfoContext(ctx, "cluster reachability changed", "reachable", data.ClusterReachable, telemetry.KeyError, data.Message)
	}
	e, err := event.New(event.Header{ID: id.New(now), Source: source(h.deps.Agent), Time: now}, data)
	if err != nil {
		return fmt.Errorf("heartbeat of agent %d: %w", h.deps.Agent, err)
	}
	// A late heartbeat is useless.
	ctx, cancel := context.WithTimeout(ctx, h.deps.Interval)
	defer cancel()
	return h.deps.Bus.Publish(ctx, e)
}

// Cluster returns nil if the cluster was reachable at the last heartbeat, for the readiness check.
func (h *Heartbeat) Cluster(context.Context) error {
	last := h.last.Load()
	switch {
	case last == nil:
		return fault.New(fault.Unavailable, "the cluster has not been checked yet")
	case !last.ClusterReachable:
		return fault.New(fault.Unavailable, "%s", last.Message)
	default:
		return nil
	}
}
