// Package peer is what the programs of the peers have in common: flags, clients, clocks, and the line of JSON that tools/bench reads. It
// knows no engine; each program says how its own starts a workflow and waits for the end of it. Like them it is a module outside of the
// workspace.
package peer

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// The modes. In those of Parts, a workflow has as many children, calls or messages as others have steps.
const (
	// Run has a client wait for the end of a workflow before it starts another one.
	Run = "run"
	// Start has it continue as soon as a workflow is started.
	Start = "start"
	// Children are of workflows that start children, all at once, and wait for each.
	Children = "children"
	// Calls are of workflows that call a service in another process again and again, each answer durable before the next.
	Calls = "calls"
	// Messages has a client send messages to a workflow and wait for its answer to each before the next.
	Messages = "messages"
	// Schedules are due once a minute, spread over its seconds.
	Schedules = "schedules"
)

// Order is what is asked for.
type Order struct {
	// Mode is one of the above.
	Mode string
	// Steps are those of each workflow, Clients how many are driven at a time.
	Steps, Clients int
	// Numbers is how many numbers there are: workflows that warm up come first, then those that count.
	Numbers int
	n       int
}

// Size is how many steps, or parts, the workflow of a number has: one of many is no good for warming up.
func (o Order) Size(number int) int {
	if o.parts() && number < warmUp {
		return 1
	}
	return o.Steps
}

// Schedules is how many schedules there are in that mode.
func (o Order) Schedules() int { return o.n }

// parts reports whether what is counted are parts of workflows.
func (o Order) parts() bool { return o.Mode == Children || o.Mode == Calls || o.Mode == Messages }

func (o Order) startOnly() bool { return o.Mode == Start }

// warmUp is how many workflows come before those that count; tools/bench knows the number.
const warmUp = 100

// Engine is one that has been started. Its functions are called with numbers from 0 to below Order.Numbers, by many at a time, each number
// once.
type Engine struct {
	// Start begins a workflow; Await returns when it has ended.
	Start, Await func(number int) error
	// Run is both in one call; nil: there is none.
	Run func(number int) error
	// Ask sends a message to a workflow that has been started, and returns with its answer; nil: the engine has no answers.
	Ask func(number, message int) error
	// Late waits through a minute of the schedules, and answers how late their workflows began; nil: there are no schedules.
	Late func() ([]time.Duration, error)
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
	flag.StringVar(&o.Mode, "mode", Run, "run: a client waits for the end; start: it continues as soon as a workflow is started, and all have ended before the figures are printed; children, calls, messages: of each workflow, as many as -steps; schedules: -n of them")
	flag.Parse()
	o.Numbers = warmUp + o.n
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
	// CPU is Used for each workflow, or part.
	CPU float64 `json:"cpu_ms"`
}

// asked are how long the answers to messages took.
var asked struct {
	sync.Mutex
	all []time.Duration
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
	if o.Mode == Schedules {
		return schedules(e, o)
	}
	warm := o
	if o.startOnly() {
		warm.Mode = Run
	}
	if _, _, err := drive(e, warm, 0, warmUp); err != nil {
		return err
	}
	asked.all = nil
	used, began := e.Used(), time.Now()
	starts, ends, err := drive(e, o, warmUp, o.n)
	if err != nil {
		return err
	}
	took := time.Since(began)
	for i := 0; o.startOnly() && i < o.n; i++ {
		if err := e.Await(warmUp + i); err != nil {
			return err
		}
	}
	if e.Finish != nil {
		if err := e.Finish(); err != nil {
			return err
		}
	}
	counted := o.n
	if o.parts() {
		counted *= o.Steps
	}
	if o.Mode == Messages {
		starts, ends = make([]time.Duration, 1), asked.all
	}
	return json.NewEncoder(os.Stdout).Encode(result{
		PerSecond: float64(counted) / took.Seconds(), StartP50: at(starts, 0.5), P50: at(ends, 0.5), P99: at(ends, 0.99),
		CPU: float64((e.Used() - used).Microseconds()) / 1000 / float64(counted),
	})
}

func schedules(e Engine, o Order) error {
	if e.Late == nil {
		return errors.New("found no schedules in this engine")
	}
	used, began := e.Used(), time.Now()
	late, err := e.Late()
	if err != nil {
		return err
	}
	if len(late) != o.n {
		return fmt.Errorf("found %d workflows of a minute, expected one of each of %d schedules", len(late), o.n)
	}
	return json.NewEncoder(os.Stdout).Encode(result{
		PerSecond: float64(len(late)) / time.Since(began).Seconds(), P50: at(late, 0.5), P99: at(late, 0.99),
		CPU: float64((e.Used() - used).Microseconds()) / 1000 / float64(len(late)),
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
				if err := one(e, o, first+i, func() { starts[i] = time.Since(began) }); err != nil {
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

func one(e Engine, o Order, number int, started func()) error {
	if e.Run != nil && !o.startOnly() && o.Mode != Messages {
		return e.Run(number)
	}
	if err := e.Start(number); err != nil {
		return err
	}
	started()
	if o.startOnly() {
		return nil
	}
	for message := 0; o.Mode == Messages && message < o.Size(number); message++ {
		began := time.Now()
		if err := e.Ask(number, message); err != nil {
			return err
		}
		took := time.Since(began)
		asked.Lock()
		asked.all = append(asked.all, took)
		asked.Unlock()
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
