package turn

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
		var keys Keys
		var inside [2]atomic.Int32
		var wg sync.WaitGroup
		start := time.Now()
		for i := range 20 {
			wg.Go(func() {
				key := i % 2
				leave, err := keys.Enter(t.Context(), []string{"a", "b"}[key])
				if err != nil {
					t.Error(err)
					return
				}
				defer leave()
				if n := inside[key].Add(1); n != 1 {
					t.Errorf("%d at once", n)
				}
				time.Sleep(time.Second)
				inside[key].Add(-1)
			})
		}
		wg.Wait()
		// Ten turns of a second for each key, and the two keys side by side.
		if took := time.Since(start); took != 10*time.Second {
			t.Errorf("took %s, want 10s", took)
		}
		if len(keys.held) != 0 {
			t.Errorf("%d keys are left behind", len(keys.held))
		}
	})
}

func TestWhoeverGivesUpGetsNoTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var keys Keys
		leave, err := keys.Enter(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := keys.Enter(ctx, "a"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v", err)
		}
		leave()
		if leave, err = keys.Enter(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		leave()
	})
}
