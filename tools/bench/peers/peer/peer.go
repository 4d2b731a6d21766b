// Package peer is what the programs of the peers have in common: flags, clients, clocks, and the line of JSON that tools/bench reads. It
// knows no engine; each program says how its own starts a workflow and waits for the end of it. Like them it is a module outside of the
// workspace.
package peer

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Order is what is asked for.
type Order struct {
	// Steps are those of each workflow, Clients how many are driven at a time.
	Steps, Clients int
	// Numbers is how many numbers there are: workflows that warm up come first, then those that count.
	Numbers int
	n       int
	// startOnly makes the clients continue as soon as a workflow is started.
	startOnly bool
}

// warmUp is how many workflows come before those that count; tools/bench knows the number.
const warmUp = 100

// Engine is one that has been started. Its functions are called with numbers from 0 to below Order.Numbers, by many at a time, each number
// once.
type Engine struct {
	// Start begins a workflow; Await returns when it has ended.
	Start, Await func(number int) error
	// Run is both in one call; nil: there is none.
	Run func(number int) error
	// Finish does what belongs to the work and is left when all have ended; nil: nothing.
	Finish func() error
	// Close ends what would outlive the process; nil: nothing would.
	Close func()
	// Used is the processor time so far, of whatever is not PostgreSQL; nil: this process's.
	Used func() time.Duration
}

// Main is the program: it has open start the engine, drives it, and ends the process.
func Main(name string, open func(Order) (Engine, error)) {
	var o Order
	flag.IntVar(&o.Steps, "steps", 1, "steps of each workflow")
	flag.IntVar(&o.n, "n", 1000, "workflows")
	flag.IntVar(&o.Clients, "c", 64, "clients")
	mode := flag.String("mode", "run", "run: a client waits for the end; start: it continues as soon as a workflow is started, and all have ended before the figures are printed")
	flag.Parse()
	o.startOnly, o.Numbers = *mode == "start", warmUp+o.n
	if err := run(o, open); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}

// result is what tools/bench reads. Times are in milliseconds.
type result struct {
	PerSecond float64 `json:"per_second"`
	// StartP50 is 0 where starting and waiting are one call.
	StartP50 float64 `json:"start_p50_ms"`
	P50      float64 `json:"p50_ms"`
	P99      float64 `json:"p99_ms"`
	// CPU is Used for each workflow.
	CPU float64 `json:"cpu_ms"`
}

func run(o Order, open func(Order) (Engine, error)) error {
	e, err := open(o)
	if err != nil {
		return err
	}
	if e.Close != nil {
		defer e.Close()
	}
	if e.Used == nil {
		e.Used = OwnTime
	}
	warm := o
	warm.startOnly = false
	if _, _, err := drive(e, warm, 0, warmUp); err != nil {
		return err
	}
	used, began := e.Used(), time.Now()
	starts, ends, err := drive(e, o, warmUp, o.n)
	if err != nil {
		return err
	}
	took := time.Since(began)
	for i := 0; o.startOnly && i < o.n; i++ {
		if err := e.Await(warmUp + i); err != nil {
			return err
		}
	}
	if e.Finish != nil {
		if err := e.Finish(); err != nil {
			return err
		}
	}
	return json.NewEncoder(os.Stdout).Encode(result{
		PerSecond: float64(o.n) / took.Seconds(), StartP50: at(starts, 0.5), P50: at(ends, 0.5), P99: at(ends, 0.99),
		CPU: float64((e.Used() - used).Microseconds()) / 1000 / float64(o.n),
	})
}

// drive has the clients do n workflows, each the next one that nobody has begun, and answers when each was started and ended.
func drive(e Engine, o Order, first, n int) (starts, ends []time.Duration, err error) {
	starts, ends = make([]time.Duration, n), make([]time.Duration, n)
	var next atomic.Int64
	var group sync.WaitGroup
	failed := make(chan error, o.Clients)
	for range o.Clients {
		group.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				began := time.Now()
				if err := one(e, first+i, o.startOnly, func() { starts[i] = time.Since(began) }); err != nil {
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

func one(e Engine, number int, startOnly bool, started func()) error {
	if e.Run != nil && !startOnly {
		return e.Run(number)
	}
	if err := e.Start(number); err != nil {
		return err
	}
	started()
	if startOnly {
		return nil
	}
	return e.Await(number)
}

// at is the p-th part of durations, in milliseconds.
func at(all []time.Duration, p float64) float64 {
	slices.Sort(all)
	return float64(all[int(float64(len(all)-1)*p)].Microseconds()) / 1000
}

// OwnTime is the processor time of this process so far.
func OwnTime() time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		return 0
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
