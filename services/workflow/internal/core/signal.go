package core

import (
	"context"
	"sync"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
)

// signal is a wake-up that is not lost between two waits, and does not pile up.
type signal chan struct{}

func newSignal() signal { return make(signal, 1) }

// raise never blocks. A signal that is raised already stands for this one too, since whoever waits looks at
// everything.
func (s signal) raise() {
	select {
	case s <- struct{}{}:
	default:
	}
}

// taken reports whether the signal was raised, and lowers it.
func (s signal) taken() bool {
	select {
	case <-s:
		return true
	default:
		return false
	}
}

// wait returns when the signal is raised, after d, or with ctx.
func (s signal) wait(ctx context.Context, c clock.Clock, d time.Duration) {
	t := c.NewTimer(d)
	defer t.Stop()
	select {
	case <-s:
	case <-t.C():
	case <-ctx.Done():
	}
}

// endings tells those who wait for the end of an execution that it has come. It knows only what ends in this process:
// whoever waits looks at the store now and then as well.
type endings struct {
	mu      sync.Mutex
	waiting map[int64]map[chan struct{}]struct{}
}

// tell wakes everybody who waits for the execution.
func (e *endings) tell(execution int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for told := range e.waiting[execution] {
		close(told)
	}
	delete(e.waiting, execution)
}

func (e *endings) watch(execution int64) (ended <-chan struct{}, forget func()) {
	mine := make(chan struct{})
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.waiting == nil {
		e.waiting = map[int64]map[chan struct{}]struct{}{}
	}
	if e.waiting[execution] == nil {
		e.waiting[execution] = map[chan struct{}]struct{}{}
	}
	e.waiting[execution][mine] = struct{}{}
	return mine, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		delete(e.waiting[execution], mine)
		if len(e.waiting[execution]) == 0 {
			delete(e.waiting, execution)
		}
	}
}
