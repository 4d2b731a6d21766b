// Package wait polls for conditions that other goroutines or processes bring about, in tests. Code that can be notified, or whose clock is
// injected, does not need it.
package wait

import (
	"context"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
)

const (
	// patience is far longer than any condition takes on a busy machine; only a test that fails waits for so long.
	patience = time.Minute
	interval = 20 * time.Millisecond
)

// For polls until done returns true. The test fails if that takes longer than a minute.
func For(tb testing.TB, what string, done func() bool) {
	tb.Helper()
	Within(tb, patience, what, done)
}

// Within is For with another timeout.
func Within(tb testing.TB, timeout time.Duration, what string, done func() bool) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), timeout)
	defer cancel()
	for !done() {
		if clock.Sleep(ctx, clock.System(), interval) != nil {
			tb.Fatalf("not met within %s: %s", timeout, what)
		}
	}
}
