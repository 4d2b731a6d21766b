// Command goworkflows runs workflows of trivial activities on cschleiden/go-workflows with its PostgreSQL backend, and prints one line
// of JSON: a peer that tools/bench compares with. It is a module of its own, outside of the workspace, so that nothing of ours
// depends on it. With -mode start the clients go on as soon as a workflow is stored; all have ended before it prints.
package main

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cschleiden/go-workflows/backend"
	"github.com/cschleiden/go-workflows/backend/postgres"
	"github.com/cschleiden/go-workflows/client"
	"github.com/cschleiden/go-workflows/worker"
	"github.com/cschleiden/go-workflows/workflow"
	"github.com/jackc/pgx/v5"
)

// result is what tools/bench reads.
type result struct {
	PerSecond float64 `json:"per_second"`
	StartP50  float64 `json:"start_p50_ms"`
	P50       float64 `json:"p50_ms"`
	P99       float64 `json:"p99_ms"`
	// CPU is this process's processor time for each workflow, in milliseconds.
	CPU float64 `json:"cpu_ms"`
}

const (
	// warmUp is how many workflows come before those that count; tools/bench knows the number.
	warmUp = 100
	// pollers is how many look for workflows, and as many for activities.
	pollers = 16
	// within bounds a workflow.
	within = 2 * time.Minute
)

func main() {
	steps := flag.Int("steps", 1, "activities of each workflow")
	n := flag.Int("n", 1000, "workflows")
	clients := flag.Int("c", 64, "clients")
	mode := flag.String("mode", "run", "run: a client waits for the end; start: it does not")
	flag.Parse()
	if err := run(context.Background(), *steps, *n, *clients, *mode == "start"); err != nil {
		fmt.Fprintln(os.Stderr, "goworkflows:", err)
		os.Exit(1)
	}
}

// answer is the activity.
func answer(_ context.Context, i int) (int, error) { return i, nil }

// counted is a workflow of so many activities.
func counted(ctx workflow.Context, steps int) (int, error) {
	for i := range steps {
		if _, err := workflow.ExecuteActivity[int](ctx, workflow.DefaultActivityOptions, answer, i).Get(ctx); err != nil {
			return 0, err
		}
	}
	return steps, nil
}

func run(ctx context.Context, steps, n, clients int, startOnly bool) error {
	config, err := pgx.ParseConfig(os.Getenv("DBURL"))
	if err != nil {
		return err
	}
	// The backend writes them one behind the other, and an empty password would take the next word for its value.
	password := cmp.Or(config.Password, "none")
	b := postgres.NewPostgresBackend(config.Host, int(config.Port), config.User, password, config.Database,
		postgres.WithBackendOptions(backend.WithLogger(slog.New(slog.NewTextHandler(io.Discard, nil)))),
		postgres.WithPostgresOptions(func(db *sql.DB) { db.SetMaxOpenConns(60); db.SetMaxIdleConns(60) }))
	options := worker.DefaultOptions
	options.WorkflowPollers, options.ActivityPollers = pollers, pollers
	w := worker.New(b, &options)
	if err := w.RegisterWorkflow(counted); err != nil {
		return err
	}
	if err := w.RegisterActivity(answer); err != nil {
		return err
	}
	if err := w.Start(ctx); err != nil {
		return err
	}
	starter := client.New(b)
	instances := make([]*workflow.Instance, max(n, warmUp))
	ended := func(i int) error {
		_, err := client.GetWorkflowResult[int](ctx, starter, instances[i], within)
		return err
	}
	drive := func(prefix string, n int) (starts, ends []time.Duration, err error) {
		starts, ends = make([]time.Duration, n), make([]time.Duration, n)
		var next atomic.Int64
		var group sync.WaitGroup
		failed := make(chan error, clients)
		for range clients {
			group.Go(func() {
				for {
					i := int(next.Add(1)) - 1
					if i >= n {
						return
					}
					began := time.Now()
					var err error
					instances[i], err = starter.CreateWorkflowInstance(ctx, client.WorkflowInstanceOptions{InstanceID: fmt.Sprintf("%s-%d-%d-%d", prefix, steps, clients, i)}, counted, steps)
					if err == nil {
						starts[i] = time.Since(began)
					}
					if err == nil && !startOnly {
						err = ended(i)
					}
					if err != nil {
						failed <- err
						return
					}
					ends[i] = time.Since(began)
				}
			})
		}
		group.Wait()
		select {
		case err = <-failed:
		default:
		}
		return starts, ends, err
	}
	if _, _, err := drive(fmt.Sprintf("warm-%d", time.Now().UnixNano()), warmUp); err != nil {
		return err
	}
	used, began := processorTime(), time.Now()
	starts, ends, err := drive(fmt.Sprintf("run-%d", time.Now().UnixNano()), n)
	if err != nil {
		return err
	}
	took := time.Since(began)
	for i := 0; startOnly && i < n; i++ {
		if err := ended(i); err != nil {
			return err
		}
	}
	return json.NewEncoder(os.Stdout).Encode(result{
		PerSecond: float64(n) / took.Seconds(), StartP50: at(starts, 0.5), P50: at(ends, 0.5), P99: at(ends, 0.99),
		CPU: float64((processorTime() - used).Microseconds()) / 1000 / float64(n),
	})
}

// at is the p-th part of durations, in milliseconds.
func at(all []time.Duration, p float64) float64 {
	slices.Sort(all)
	return float64(all[int(float64(len(all)-1)*p)].Microseconds()) / 1000
}

func processorTime() time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		return 0
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
