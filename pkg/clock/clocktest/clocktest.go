// Package clocktest is a clock that a test moves by hand. It is not for production code.
package clocktest

import (
	"sync"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
)

// Clock stands still until it is advanced. It is safe for concurrent use.
type Clock struct {
	mu      sync.Mutex
	now     time.Time
	timers  map[*timer]struct{}
	changed chan struct{}
}

var _ clock.Clock = (*Clock)(nil)

// New returns a clock that shows start.
func New(start time.Time) *Clock {
	return &Clock{now: start, timers: map[*timer]struct{}{}, changed: make(chan struct{})}
}

// Now returns the time that the clock shows.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// NewTimer fires when the clock has been advanced by d or more.
func (c *Clock) NewTimer(d time.Duration) clock.Timer {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := &timer{clock: c, due: c.now.Add(d), c: make(chan time.Time, 1)}
	if d <= 0 {
		t.c <- c.now
		return t
	}
	c.timers[t] = struct{}{}
	close(c.changed)
	c.changed = make(chan struct{})
	return t
}

// Advance moves the clock by d and fires every timer that has come due.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
	for t := range c.timers {
		if !t.due.After(c.now) {
			delete(c.timers, t)
			t.c <- c.now
		}
	}
}

// AwaitTimers returns once at least n timers are pending, so that a test advances only when the code under test waits.
func (c *Clock) AwaitTimers(n int) {
	for {
		c.mu.Lock()
		pending, changed := len(c.timers), c.changed
		c.mu.Unlock()
		if pending >= n {
			return
		}
		<-changed
	}
}

type timer struct {
	clock *Clock
	due   time.Time
	c     chan time.Time
}

// C delivers the time that the clock shows once it has been advanced far enough.
func (t *timer) C() <-chan time.Time { return t.c }

// Stop cancels the timer. It reports whether the timer had not fired yet.
func (t *timer) Stop() bool {
	t.clock.mu.Lock()
	defer t.clock.mu.Unlock()
	_, pending := t.clock.timers[t]
	delete(t.clock.timers, t)
	return pending
}
