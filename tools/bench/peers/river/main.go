// Command river works jobs on River, and prints one line of JSON: a peer that tools/bench compares with. A job is no workflow: it has
// no history and no steps, so what it takes is what a queue on PostgreSQL costs. It is a module of its own, outside of the workspace,
// so that nothing of ours depends on it. With -mode start the clients go on as soon as a job is stored; all have been worked before
// it prints.
package main

import (
	"context"
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

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// result is what tools/bench reads.
type result struct {
	PerSecond float64 `json:"per_second"`
	StartP50  float64 `json:"start_p50_ms"`
	P50       float64 `json:"p50_ms"`
	P99       float64 `json:"p99_ms"`
	// CPU is this process's processor time for each job, in milliseconds.
	CPU float64 `json:"cpu_ms"`
}

// job is known by its number.
type job struct {
	Number int `json:"number"`
}

// Kind is its name in the table.
func (job) Kind() string { return "bench" }

// worker tells whoever waits for a job that it was worked.
type worker struct {
	river.WorkerDefaults[job]

	worked []chan struct{}
}

// Work does nothing.
func (w *worker) Work(_ context.Context, j *river.Job[job]) error {
	close(w.worked[j.Args.Number])
	return nil
}

// warmUp is how many jobs come before those that count; tools/bench knows the number.
const warmUp = 100

func main() {
	flag.Int("steps", 1, "a job has one")
	n := flag.Int("n", 1000, "jobs")
	clients := flag.Int("c", 64, "clients")
	mode := flag.String("mode", "run", "run: a client waits until its job was worked; start: it does not")
	flag.Parse()
	if err := run(context.Background(), *n, *clients, *mode == "start"); err != nil {
		fmt.Fprintln(os.Stderr, "river:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, n, clients int, startOnly bool) error {
	config, err := pgxpool.ParseConfig(os.Getenv("DBURL"))
	if err != nil {
		return err
	}
	config.MaxConns = 40
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return err
	}
	defer pool.Close()
	quiet := slog.New(slog.NewTextHandler(io.Discard, nil))
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), &rivermigrate.Config{Logger: quiet})
	if err != nil {
		return err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return err
	}
	w := &worker{worked: make([]chan struct{}, warmUp+n)}
	for i := range w.worked {
		w.worked[i] = make(chan struct{})
	}
	workers := river.NewWorkers()
	river.AddWorker(workers, w)
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{
		Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 500}}, Workers: workers, FetchCooldown: time.Millisecond, Logger: quiet,
	})
	if err != nil {
		return err
	}
	if err := client.Start(ctx); err != nil {
		return err
	}
	drive := func(from, n int) (starts, ends []time.Duration, err error) {
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
					if _, err := client.Insert(ctx, job{Number: from + i}, nil); err != nil {
						failed <- err
						return
					}
					starts[i] = time.Since(began)
					if !startOnly {
						<-w.worked[from+i]
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
	if _, _, err := drive(0, warmUp); err != nil {
		return err
	}
	used, began := processorTime(), time.Now()
	starts, ends, err := drive(warmUp, n)
	if err != nil {
		return err
	}
	took := time.Since(began)
	for _, worked := range w.worked {
		<-worked
	}
	// It writes down what was worked before it ends: that is part of what a job costs.
	if err := client.Stop(ctx); err != nil {
		return err
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
