package crash

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.yaml.in/yaml/v4"

	"github.com/lockstep-cd/lockstep/pkg/bus"
	"github.com/lockstep-cd/lockstep/pkg/telemetry"
	"github.com/lockstep-cd/lockstep/pkg/testkit/pgtest"
	"github.com/lockstep-cd/lockstep/pkg/testkit/porttest"
	"github.com/lockstep-cd/lockstep/services/relay"
	"github.com/lockstep-cd/lockstep/tools/lockstep/client"
	"github.com/lockstep-cd/lockstep/tools/lockstep/simcluster"
	"github.com/lockstep-cd/lockstep/tools/lockstep/stack"
)

// D61: one rollout goes to as many simulated clusters as LOCKSTEP_FLEET_TARGETS says, each with a relay of its own. What it costs for each
// target is logged.
func TestARolloutGoesToAFleet(t *testing.T) {
	t.Parallel()
	targets := 3
	if given, err := strconv.Atoi(os.Getenv("LOCKSTEP_FLEET_TARGETS")); err == nil && given > 0 {
		targets = given
	}
	database := pgtest.URL(t)
	scenario := oneStage()
	scenario.Services, scenario.Stages[0].Gates = []string{"api"}, nil
	ctx, w := startIn(t, stack.Config{Dir: t.TempDir(), DatabaseURL: database, Fast: true}, scenario)
	w.addTargets(ctx, t, targets)
	for _, do := range []func(context.Context) error{w.CreateRepository, w.CreateApplication, w.createFleet, w.CreatePipeline} {
		if err := do(ctx); err != nil {
			t.Fatal(err)
		}
	}
	set, err := w.Push(ctx, "1.0.0", nil)
	if err != nil {
		t.Fatal(err)
	}
	before, worked, began := commits(t, database), processors(t), w.Clock.Now()
	r, err := w.Roll(ctx, set.ID, "a fleet")
	if err != nil {
		t.Fatal(err)
	}
	err = w.Await(ctx, "the rollout to end", func() (string, bool, error) {
		now, err := w.API.Rollout(ctx, r.ID)
		return now.State, now.Over(), err
	})
	if err != nil {
		t.Fatal(err)
	}
	took, made, used := w.Clock.Now().Sub(began), commits(t, database)-before, processors(t)-worked
	found, err := w.API.Targets(ctx, client.TargetFilter{Rollout: r.ID, Environment: scenario.Stages[0].Environment})
	if err != nil {
		t.Fatal(err)
	}
	healthy := 0
	for _, target := range found {
		if target.State == "HEALTHY" {
			healthy++
			continue
		}
		t.Logf("%s: %s: %s", target.Name, target.State, target.Reason)
	}
	if healthy != targets {
		t.Errorf("%d of %d targets are healthy", healthy, targets)
	}
	t.Logf("%d targets in %s: %.1f transactions and %s of processor time of the services for each", targets, took.Round(time.Millisecond),
		float64(made)/float64(targets), (used / time.Duration(targets)).Round(time.Millisecond))
}

// addTargets starts so many simulated clusters, and registers the relay of each with the label fleet=test.
func (w *world) addTargets(ctx context.Context, t *testing.T, targets int) {
	t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	endpoints := w.stack.Endpoints()
	for i := range targets {
		made, err := w.API.RegisterAgent(ctx, fmt.Sprintf("target-%d", i+1))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.API.SetAgentLabels(ctx, made.ID, map[string]string{"fleet": "test"}); err != nil {
			t.Fatal(err)
		}
		address, folder, up := porttest.FreeAddress(t), t.TempDir(), make(chan struct{})
		config := map[string]any{
			"apiVersion": "v1", "kind": "Config", "current-context": "simulated",
			"clusters": []any{map[string]any{"name": "simulated", "cluster": map[string]any{"server": "http://" + address}}},
			"users":    []any{map[string]any{"name": "relay", "user": map[string]any{}}},
			"contexts": []any{map[string]any{"name": "simulated", "context": map[string]any{"cluster": "simulated", "user": "relay"}}},
		}
		text, err := yaml.Marshal(config)
		if err != nil {
			t.Fatal(err)
		}
		kubeconfig, seed := filepath.Join(folder, "kubeconfig"), filepath.Join(folder, "seed")
		for name, content := range map[string][]byte{kubeconfig: text, seed: []byte(made.Seed)} {
			if err := os.WriteFile(name, content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		running.Go(func() {
			c := simcluster.Config{Address: address, GitUsername: "lockstep", GitPassword: endpoints.Token, Speed: 2}
			if err := simcluster.Run(ctx, c, slog.New(slog.DiscardHandler), func() { close(up) }); err != nil && ctx.Err() == nil {
				t.Errorf("the cluster of %s: %v", made.Name, err)
			}
		})
		running.Go(func() {
			<-up
			err := relay.Run(ctx, relay.Config{
				AgentID: made.Number, NATS: bus.NATS{NATSURL: endpoints.NATS}, NATSNKeySeedFile: seed, Kubeconfig: kubeconfig,
				PollInterval: time.Second, Settings: telemetry.Settings{LogLevel: "error"},
			})
			if err != nil && ctx.Err() == nil {
				t.Errorf("the relay of %s: %v", made.Name, err)
			}
		})
	}
}

// createFleet makes the environment: its own cluster is the reference, and the targets come in two waves and the rest.
func (w *world) createFleet(ctx context.Context) error {
	stage := w.Scenario.Stages[0]
	_, err := w.API.CreateEnvironment(ctx, client.EnvironmentInput{
		Name: stage.Environment, Tier: stage.Tier, DriverRef: "argo-rollouts@1", DriverConfig: map[string]any{"cluster_agent_id": stack.AgentID},
		Fleet: map[string]any{
			"selector": map[string]any{"fleet": "test"},
			"waves":    []any{map[string]any{"targets": 1}, map[string]any{"percent": 20}},
		},
	})
	if err != nil {
		return err
	}
	return w.AwaitEnvironments(ctx)
}

// processors is the processor time of the processes that this one has started: those of the stack, without PostgreSQL. The clusters and
// relays of the targets are a part of this process. It is 0 where there is no /proc.
func processors(t *testing.T) (sum time.Duration) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	const tick = 10 * time.Millisecond
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		_, after, _ := strings.Cut(string(text), ") ")
		fields := strings.Fields(after)
		if len(fields) < 13 || fields[1] != strconv.Itoa(os.Getpid()) {
			continue
		}
		for _, field := range fields[11:13] {
			ticks, err := strconv.ParseInt(field, 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			sum += time.Duration(ticks) * tick
		}
	}
	return sum
}

// commits are those of the database so far, of all services.
func commits(t *testing.T, url string) (n int64) {
	t.Helper()
	connection, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = connection.Close(t.Context()) }()
	if err := connection.QueryRow(t.Context(), `SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}
