// Command dbos runs workflows of trivial steps on DBOS Transact for Go, and prints one line of JSON: a peer that
// tools/bench compares with. It is a module of its own, outside of the workspace, so that nothing of ours depends on it.
// With -mode start the clients go on as soon as a workflow is started; all have ended before it prints.
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

	"github.com/dbos-inc/dbos-transact-golang/dbos"
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

func main() {
	steps := flag.Int("steps", 1, "steps of each workflow")
	n := flag.Int("n", 1000, "workflows")
	clients := flag.Int("c", 64, "clients")
	mode := flag.String("mode", "run", "run: a client waits for the end; start: it does not")
	flag.Parse()
	if err := run(*steps, *n, *clients, *mode == "start"); err != nil {
		fmt.Fprintln(os.Stderr, "dbos:", err)
		os.Exit(1)
	}
}

// counted is a workflow of so many steps, each of which answers a number.
func counted(ctx dbos.DBOSContext, steps int) (int, error) {
	for i := range steps {
		if _, err := dbos.RunAsStep(ctx, func(context.Context) (int, error) { return i, nil }); err != nil {
			return 0, err
		}
	}
	return steps, nil
}

func run(steps, n, clients int, startOnly bool) error {
	ctx, err := dbos.NewDBOSContext(context.Background(), dbos.Config{
		DatabaseURL: os.Getenv("DBURL"), AppName: "bench", Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	if err != nil {
		return err
	}
	dbos.RegisterWorkflow(ctx, counted)
	if err := dbos.Launch(ctx); err != nil {
		return err
	}
	defer dbos.Shutdown(ctx, 2*time.Second)
	handles := make([]dbos.WorkflowHandle[int], max(n, 100))
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
					handles[i], err = dbos.RunWorkflow(ctx, counted, steps, dbos.WithWorkflowID(fmt.Sprintf("%s-%d", prefix, i)))
					if err == nil {
						starts[i] = time.Since(began)
					}
					if err == nil && !startOnly {
						_, err = handles[i].GetResult()
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
	if _, _, err := drive(unused("warm"), 100); err != nil {
		return err
	}
	used, began := processorTime(), time.Now()
	starts, ends, err := drive(unused("run"), n)
	if err != nil {
		return err
	}
	took := time.Since(began)
	for i := 0; startOnly && i < n; i++ {
		if _, err := handles[i].GetResult(); err != nil {
			return err
		}
	}
	return json.NewEncoder(os.Stdout).Encode(result{
		PerSecond: float64(n) / took.Seconds(), StartP50: at(starts, 0.5), P50: at(ends, 0.5), P99: at(ends, 0.99),
		CPU: float64((processorTime() - used).Microseconds()) / 1000 / float64(n),
	})
}

// unused is a prefix of ids that no earlier run on the same database has used.
func unused(what string) string { return fmt.Sprintf("%s-%d", what, time.Now().UnixNano()) }

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
