package wake

import (
	"context"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
)

// MaxIdle is how long a loop waits that has nothing to do: the lookout wakes it when there is something. A loop that is
// never woken runs once in a while all the same.
const MaxIdle = time.Hour

// Signal is a wake-up that is not lost between two waits, and does not pile up.
type Signal chan struct{}

// NewSignal makes a Signal that is not raised.
func NewSignal() Signal { return make(Signal, 1) }

// Raise never blocks. A signal that is raised already covers this one, too, since the waiter looks at
// everything.
func (s Signal) Raise() {
	select {
	case s <- struct{}{}:
	default:
	}
}

// Taken reports whether the signal was raised, and lowers it.
func (s Signal) Taken() bool {
	select {
	case <-s:
		return true
	default:
		return false
	}
}

// Wait returns when the signal is raised, after d, or with ctx. The signal is lowered in each case where the loop looks next: of a signal
// and the end of d that come together, select would take either, and the loop would look once or twice by chance.
func (s Signal) Wait(ctx context.Context, c clock.Clock, d time.Duration) {
	t := c.NewTimer(d)
	defer t.Stop()
	select {
	case <-s:
	case <-t.C():
		s.Taken()
	case <-ctx.Done():
	}
}
