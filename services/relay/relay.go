// Package relay is the service beside a cluster: it receives its agent's calls from the control plane, executes them through the Kubernetes
// API, and answers. It only dials out; it has no database and keeps no state.
package relay

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/build"
	"github.com/lockstep-cd/lockstep/pkg/bus"
	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/config"
	"github.com/lockstep-cd/lockstep/pkg/rpc"
	"github.com/lockstep-cd/lockstep/pkg/run"
	"github.com/lockstep-cd/lockstep/pkg/telemetry"
	"github.com/lockstep-cd/lockstep/services/relay/internal/cluster"
	"github.com/lockstep-cd/lockstep/services/relay/internal/core"
	"github.com/lockstep-cd/lockstep/services/relay/internal/events"
)

// name is the service's name in logs, traces and on the bus.
const name = "relay"

// stopWithin is how long calls in flight may take to stop. They are not answered: the engine repeats them, and the next relay decides them
// anew from the cluster (E24).
const stopWithin = 10 * time.Second

// watchInterval is the minimum time between two observations under one watch. An update of a Rollout changes its status with every pod;
// only the last status matters.
const watchInterval = 250 * time.Millisecond

// Program is the service's program. It has no subcommands that need its configuration.
func Program() config.Program[Config] { return config.Program[Config]{Service: name, Run: Run} }

// Run serves the agent until ctx ends.
func Run(ctx context.Context, c Config) error {
	c = c.withDefaults()
	if err := c.Validate(); err != nil {
		return fmt.Errorf("configuration of relay: %w", err)
	}
	clk := clock.System()
	log := telemetry.Logger(os.Stderr, c.LogLevel).With(telemetry.KeyService, name, telemetry.KeyAgent, c.AgentID)
	log.InfoContext(ctx, "starting", telemetry.KeyConfiguration, config.Redacted(c))
	stopTracing, err := telemetry.StartTracing(ctx, name, log)
	if err != nil {
		return err
	}
	defer stopTracing()

	kube, err := cluster.Open(cluster.Config{Kubeconfig: c.Kubeconfig, Context: c.KubeContext, RequestTimeout: c.KubeTimeout}, clk)
	if err != nil {
		return fmt.Errorf("open the cluster: %w", err)
	}
	nats := c.Config(name, c.NATSUser)
	// The control plane authorizes agents: while it is unreachable, the connection is refused, and retried.
	nats.NKeySeedFile, nats.Background = c.NATSNKeySeedFile, true
	conn, err := bus.Connect(ctx, nats, log)
	if err != nil {
		return fmt.Errorf("connect to the bus: %w", err)
	}
	defer conn.Close()

	requests, err := c.requests(clk, log)
	if err != nil {
		return err
	}
	runner := core.NewRunner(core.RunnerDeps{
		Cluster: kube, Objects: kube, Web: requests, Clock: clk, Log: log, Poll: c.PollInterval, Limits: c.limits(),
	})
	watcher := core.NewWatcher(core.WatcherDeps{
		Follower: kube, Observer: events.Observer{Agent: c.AgentID, Bus: conn}, Clock: clk, Log: log, Interval: watchInterval,
	})
	receiver := events.NewReceiver(events.ReceiverDeps{
		Agent: c.AgentID, Runner: runner, Bus: conn, Clock: clk, Log: log, Limit: c.Concurrency, Watch: watcher.Replace,
	})
	// It reports the relay and the cluster separately: calls can be accepted while the cluster is unreachable.
	heartbeat := events.NewHeartbeat(events.HeartbeatDeps{
		Agent: c.AgentID, Version: build.Read().Version, Interval: c.HeartbeatInterval,
		Reachable: kube.Reachable, Watching: watcher.Held, Bus: conn, Clock: clk, Log: log,
	})
	parts := []run.Part{
		run.Loop("heartbeat", heartbeat.Run),
		run.Loop("watches", watcher.Run),
		run.Loop("calls", func(ctx context.Context) error {
			// The workflow service creates the consumer, perhaps later: Consume waits for it.
			return receiver.Serve(ctx, func(ctx context.Context, accept events.Accept) error {
				return conn.Consume(ctx, bus.AgentConsumer(c.AgentID),
					func(ctx context.Context, d bus.Delivery) error { return accept(ctx, d.Event) }, nil)
			})
		}),
	}
	if c.HealthAddress != "" {
		checks := map[string]func(context.Context) error{
			"bus":     func(context.Context) error { return conn.Ready() },
			"cluster": heartbeat.Cluster,
		}
		parts = append(parts, rpc.PlainHTTPPart("health", c.HealthAddress, log,
			telemetry.Health(checks, Exposed(func() *bus.Conn { return conn })...)))
	}
	return run.Parts(ctx, log, stopWithin, parts...)
}
