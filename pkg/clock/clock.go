// Package clock is the source of time. Every part of Lockstep takes a Clock, so that tests control the time and never
// sleep.
//
// It is not a scheduler: it knows nothing of cron, time zones or deadlines that outlive the process.
package clock

import (
	"context"
	"time"
)

// A Clock returns the current time and wakes its callers. Implementations are safe for concurrent use.
type Clock interface {
	// Now returns the current time, with a monotonic reading where the platform has one.
	Now() time.Time
	// NewTimer fires once on its channel after d; d ≤ 0 fires at once.
	NewTimer(d time.Duration) Timer
}

// A Timer is a pending wake-up.
type Timer interface {
	// C delivers the instant at which the timer fired.
	C() <-chan time.Time
	// Stop cancels the timer. It reports whether the timer had not fired yet.
	Stop() bool
}

// System returns the machine's clock.
func System() Clock { return system{} }

type system struct{}

// Now returns the machine's time.
func (system) Now() time.Time { return time.Now() }

// NewTimer returns a timer of the runtime.
func (system) NewTimer(d time.Duration) Timer { return systemTimer{time.NewTimer(d)} }

type systemTimer struct{ t *time.Timer }

// C delivers the instant at which the timer fired.
func (s systemTimer) C() <-chan time.Time { return s.t.C }

// Stop cancels the timer. It reports whether the timer had not fired yet.
func (s systemTimer) Stop() bool { return s.t.Stop() }

// Sleep waits for d on c. If ctx ends first, it returns the error of ctx.
func Sleep(ctx context.Context, c Clock, d time.Duration) error {
	t := c.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C():
		return nil
	}
}

// Rest waits on c for as long as work in the background leaves to others: nine times as long as it took since began, so that it takes a
// tenth of one processor however much there is of it, and at most a second, so that it gets on where the machine is overloaded. If ctx ends
// first, it returns the error of ctx.
func Rest(ctx context.Context, c Clock, began time.Time) error {
	return Sleep(ctx, c, min(9*c.Now().Sub(began), time.Second))
}
