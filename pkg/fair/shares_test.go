package fair

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
)

// A holder that has its share waits, in the order of the calls, and nobody else does; who gives up leaves nothing behind.
func TestHoldersWaitForTheirOwnShareOnly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var s Shares[string]
		take := func(ctx context.Context, holder string) func() {
			release, err := s.Acquire(ctx, holder, 2)
			if err != nil {
				t.Errorf("%s: %v", holder, err)
			}
			return release
		}
		first, second := take(t.Context(), "a"), take(t.Context(), "a")
		var order []int
		for i := range 2 {
			go func() {
				release := take(t.Context(), "a")
				order = append(order, i)
				release()
			}()
			synctest.Wait()
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := s.Acquire(ctx, "a", 2); !errors.Is(err, context.Canceled) {
			t.Errorf("the one that gives up: found %v", err)
		}
		take(t.Context(), "b")()
		if len(order) != 0 {
			t.Errorf("found %d that did not wait", len(order))
		}
		first()
		synctest.Wait()
		second()
		if !slices.Equal(order, []int{0, 1}) || len(s.of) != 0 {
			t.Errorf("order %v, %d holders kept; expected 0, 1 and none", order, len(s.of))
		}
	})
}
