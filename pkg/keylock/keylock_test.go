package keylock

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestOneAtATimeForEachKey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var locks Locks
		var inside [2]atomic.Int32
		var wg sync.WaitGroup
		start := time.Now()
		for i := range 20 {
			wg.Go(func() {
				key := i % 2
				unlock, err := locks.Lock(t.Context(), []string{"a", "b"}[key])
				if err != nil {
					t.Error(err)
					return
				}
				defer unlock()
				if n := inside[key].Add(1); n != 1 {
					t.Errorf("%d at once", n)
				}
				time.Sleep(time.Second)
				inside[key].Add(-1)
			})
		}
		wg.Wait()
		// Each key is locked ten times for a second, both keys at the same time.
		if took := time.Since(start); took != 10*time.Second {
			t.Errorf("took %s, want 10s", took)
		}
		if len(locks.held) != 0 {
			t.Errorf("%d keys are still held", len(locks.held))
		}
	})
}

func TestACallerThatGivesUpGetsNoLock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var locks Locks
		unlock, err := locks.Lock(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := locks.Lock(ctx, "a"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v", err)
		}
		unlock()
		if unlock, err = locks.Lock(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		unlock()
	})
}
