package crash

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
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

// fleetCost is what a rollout costs for each target: transactions and changed rows of the services, and requests to its cluster that change
// something. Looks are left out, which depend on how long it takes.
type fleetCost struct{ transactions, rows, changes float64 }

// mostGrowth is how many times as much a target may cost in the largest fleet as in the smallest.
const mostGrowth = 1.3

// D61: one rollout goes to as many simulated clusters as LOCKSTEP_FLEET_TARGETS says, such as 50,500, each with a relay of its own. A
// target costs no more in a larger fleet; what it costs is logged.
//
//nolint:tparallel,paralleltest // it is measured: one fleet after the other
func TestARolloutGoesToAFleet(t *testing.T) {
	t.Parallel()
	sizes := []int{3}
	if given := os.Getenv("LOCKSTEP_FLEET_TARGETS"); given != "" {
		sizes = nil
		for text := range strings.SplitSeq(given, ",") {
			n, err := strconv.Atoi(text)
			if err != nil || n < 1 {
				t.Fatalf("found LOCKSTEP_FLEET_TARGETS=%s; expected numbers of targets such as 50,500", given)
			}
			sizes = append(sizes, n)
		}
	}
	costs := map[int]fleetCost{}
	for _, targets := range sizes {
		t.Run(strconv.Itoa(targets), func(t *testing.T) { costs[targets] = rollToFleet(t, targets) })
	}
	few, many := costs[sizes[0]], costs[sizes[len(sizes)-1]]
	for what, of := range map[string][2]float64{
		"transactions": {few.transactions, many.transactions}, "changed rows": {few.rows, many.rows}, "changes of the cluster": {few.changes, many.changes},
	} {
		if of[1] > mostGrowth*of[0] {
			t.Errorf("%.1f %s for each of %d targets, and %.1f of %d; expected at most %.1f times as many", of[0], what, sizes[0], of[1],
				sizes[len(sizes)-1], mostGrowth)
		}
	}
	if many.changes < 1 {
		t.Errorf("found %.2f changes of each cluster; expected a deployment", many.changes)
	}
}

// rollToFleet is one rollout to so many targets.
func rollToFleet(t *testing.T, targets int) fleetCost {
	t.Helper()
	database := pgtest.URL(t)
	scenario := oneStage()
	scenario.Services, scenario.Stages[0].Gates = []string{"api"}, nil
	ctx, w := startIn(t, stack.Config{Dir: t.TempDir(), DatabaseURL: database, Fast: true}, scenario)
	changes := w.addTargets(ctx, t, targets)
	for _, do := range []func(context.Context) error{w.CreateRepository, w.CreateApplication, w.createFleet, w.CreatePipeline} {
		if err := do(ctx); err != nil {
			t.Fatal(err)
		}
	}
	set, err := w.Push(ctx, "1.0.0", nil)
	if err != nil {
		t.Fatal(err)
	}
	before, rows := written(t, database)
	changed, worked, began := changes.Load(), processors(t), w.Clock.Now()
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
	took, used, changed := w.Clock.Now().Sub(began), processors(t)-worked, changes.Load()-changed
	transactions, after := written(t, database)
	each := func(n int64) float64 { return float64(n) / float64(targets) }
	cost := fleetCost{transactions: each(transactions - before), rows: each(after - rows), changes: each(changed)}
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
	t.Logf("%d targets in %s: %.1f transactions, %.1f changed rows, %.1f changes of its cluster and %s of processor time of the services for each",
		targets, took.Round(time.Millisecond), cost.transactions, cost.rows, cost.changes,
		(used / time.Duration(targets)).Round(time.Millisecond))
	return cost
}

// addTargets starts so many simulated clusters, and registers the relay of each with the label fleet=test. changes counts the requests of
// relays that change something.
func (w *world) addTargets(ctx context.Context, t *testing.T, targets int) (changes *atomic.Int64) {
	t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	endpoints := w.stack.Endpoints()
	changes = &atomic.Int64{}
	for i := range targets {
		made, err := w.API.RegisterAgent(ctx, fmt.Sprintf("target-%d", i+1))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.API.SetAgentLabels(ctx, made.ID, map[string]string{"fleet": "test"}); err != nil {
			t.Fatal(err)
		}
		address, folder, up := porttest.FreeAddress(t), t.TempDir(), make(chan struct{})
		counted := &httputil.ReverseProxy{
			FlushInterval: -1, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo),
			Rewrite: func(r *httputil.ProxyRequest) {
				r.SetURL(&url.URL{Scheme: "http", Host: address})
				if r.In.Method != http.MethodGet {
					changes.Add(1)
				}
			},
		}
		front := httptest.NewServer(counted)
		t.Cleanup(front.CloseClientConnections)
		config := map[string]any{
			"apiVersion": "v1", "kind": "Config", "current-context": "simulated",
			"clusters": []any{map[string]any{"name": "simulated", "cluster": map[string]any{"server": front.URL}}},
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
	return changes
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

// written are the transactions of the database so far, and the rows that they have changed, of all services.
func written(t *testing.T, url string) (transactions, rows int64) {
	t.Helper()
	connection, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = connection.Close(t.Context()) }()
	const query = `SELECT xact_commit, tup_inserted + tup_updated + tup_deleted FROM pg_stat_database WHERE datname = current_database()`
	if err := connection.QueryRow(t.Context(), query).Scan(&transactions, &rows); err != nil {
		t.Fatal(err)
	}
	return transactions, rows
}
