package wake

import (
	"context"
	"sync"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
)

// Alarm is a signal for a loop that sleeps until something is due, and is to know of what is due before that.
type Alarm struct {
	Signal

	mu sync.Mutex
	// until is when the loop looks again by itself; zero while it looks, or is about to.
	until time.Time
}

// NewAlarm makes an Alarm that is not raised.
func NewAlarm() *Alarm { return &Alarm{Signal: NewSignal()} }

// Due raises the alarm for something that is due at t, unless the loop sleeps, and looks again by then.
func (a *Alarm) Due(t time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if t.Before(a.until) || a.until.IsZero() {
		a.Raise()
	}
}

// Until is when the loop looks again by itself, as far as is known; zero: it is looking.
func (a *Alarm) Until() time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.until
}

func (a *Alarm) set(until time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.until = until
}

// Sleep returns when the alarm is raised, at until, or with ctx. It reads the clock itself: a loop that measured from when its last look
// began would sleep on by as long as that look took, past the time that Until and Due answer with.
func (a *Alarm) Sleep(ctx context.Context, c clock.Clock, until time.Time) {
	a.set(until)
	a.Wait(ctx, c, until.Sub(c.Now()))
	a.set(time.Time{})
}
