package sandbox

import (
	"context"
	"os"
	"runtime"
	"runtime/metrics"
	"sync"
	"syscall"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
)

// The exit codes by which a child says what was exceeded.
const (
	exitMemory = 70
	exitCPU    = 71
)

// watchEvery is how often a child looks at itself while it works. A program allocates at most a few megabytes in that
// time, except in one large piece, which the operating system's limit is for.
const watchEvery = 5 * time.Millisecond

// watchdog ends the process when the program that is being run takes more than it may.
type watchdog struct {
	limits Limits

	// woken signals that work has begun: a child that has none does not look at itself.
	woken chan struct{}

	mu sync.Mutex
	// working is set if a request is being carried out, and since is the CPU time when it began.
	working bool
	since   time.Duration
}

func startWatchdog(ctx context.Context, l Limits) *watchdog {
	w := &watchdog{limits: l, woken: make(chan struct{}, 1)}
	go w.run(context.WithoutCancel(ctx)) // it watches as long as the process lives
	return w
}

func (w *watchdog) begin() {
	w.mu.Lock()
	w.working, w.since = true, cpuTime()
	w.mu.Unlock()
	select {
	case w.woken <- struct{}{}:
	default: // it has not slept since the last time
	}
}

func (w *watchdog) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.working = false
}

// used is the CPU time of the work at hand.
func (w *watchdog) used() (used time.Duration, working bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return cpuTime() - w.since, w.working
}

// run looks until the process ends.
func (w *watchdog) run(ctx context.Context) {
	for range w.woken {
		for used, working := w.used(); working; used, working = w.used() {
			if used > w.limits.CPU {
				exit(exitCPU)
			}
			if heap() > w.limits.Memory {
				runtime.GC() // what is garbage does not count
				if heap() > w.limits.Memory {
					exit(exitMemory)
				}
			}
			_ = clock.Sleep(ctx, clock.System(), watchEvery) // never ends early
		}
	}
}

// exit ends the process. It is a child, and its end is an answer: it never happens in the service.
func exit(code int) {
	os.Exit(code) //nolint:forbidigo // the package that leaves the process is this child's main
}

// heap is the memory of objects, dead ones that were not collected yet included.
func heap() int64 {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	return int64(sample[0].Value.Uint64())
}

// cpuTime is what this process has used.
func cpuTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0 // it only fails for arguments that this is not
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
