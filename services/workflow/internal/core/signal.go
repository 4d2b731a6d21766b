package core

import (
	"context"
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
