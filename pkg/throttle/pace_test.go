package throttle_test

import (
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/throttle"
)

// TestPace: each client has an allowance of its own, which comes back with time.
func TestPace(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 25, 12, 0, 0, 0, time.UTC)
	p := throttle.NewPace[int64](2, time.Second)
	for i, want := range []bool{true, true, false} {
		if got := p.Take(now, 1); got != want {
			t.Errorf("attempt %d: found %t, expected %t", i, got, want)
		}
	}
	if !p.Take(now, 2) {
		t.Error("found that another client has no allowance of its own")
	}
	if !p.Take(now.Add(time.Second), 1) || p.Take(now.Add(time.Second), 1) {
		t.Error("expected one more after a second")
	}
}
