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

// alarm is a signal for a loop that sleeps until something is due, and is to know of what is due before that.
type alarm struct {
	signal

	mu sync.Mutex
	// until is when the loop looks again by itself; zero while it looks, or is about to.
	until time.Time
}

func newAlarm() *alarm { return &alarm{signal: newSignal()} }

// due raises the alarm for something that is due at t, unless the loop sleeps, and looks again by then.
func (a *alarm) due(t time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if t.Before(a.until) || a.until.IsZero() {
		a.raise()
	}
}

// sleeps is when the loop looks again by itself, as far as is known; zero: it is looking.
func (a *alarm) sleeps() time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.until
}

func (a *alarm) set(until time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.until = until
}

// sleep returns when the alarm is raised, at until, or with ctx.
func (a *alarm) sleep(ctx context.Context, c clock.Clock, now, until time.Time) {
	a.set(until)
	a.wait(ctx, c, until.Sub(now))
	a.set(time.Time{})
}
