package clock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/clock/clocktest"
)

func TestSleepEndsWhenTheClockReachesTheInstant(t *testing.T) {
	t.Parallel()
	c := clocktest.New(time.Unix(1_700_000_000, 0))
	done := make(chan error, 1)
	go func() { done <- clock.Sleep(t.Context(), c, time.Minute) }()
	c.AwaitTimers(1)
	c.Advance(59 * time.Second)
	select {
	case err := <-done:
		t.Fatalf("sleep ended a second early: %v", err)
	default:
	}
	c.Advance(time.Second)
	if err := <-done; err != nil {
		t.Fatalf("sleep: %v", err)
	}
}

func TestSleepEndsWithTheContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := clock.Sleep(ctx, clocktest.New(time.Unix(0, 0)), time.Hour)
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("sleep answered %v, want context.Canceled", err)
	}
}

func TestStoppedTimerNeverFires(t *testing.T) {
	t.Parallel()
	c := clocktest.New(time.Unix(0, 0))
	timer := c.NewTimer(time.Second)
	if !timer.Stop() {
		t.Fatal("stop before the instant reported that the timer had fired")
	}
	c.Advance(time.Hour)
	select {
	case at := <-timer.C():
		t.Fatalf("stopped timer fired at %v", at)
	default:
	}
}

func TestSystemClockFiresAtOnceForNoDuration(t *testing.T) {
	t.Parallel()
	before := clock.System().Now()
	if err := clock.Sleep(t.Context(), clock.System(), 0); err != nil {
		t.Fatalf("sleep: %v", err)
	}
	if clock.System().Now().Before(before) {
		t.Fatal("the system clock ran backwards")
	}
}
