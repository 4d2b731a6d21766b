package graph

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
)

func TestLoaderJoinsWhatIsAskedForTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var reads [][]int
		l := &loader[int, string]{
			clock: clock.System(), window: time.Millisecond,
			fetch: func(_ context.Context, keys []int) (map[int]string, error) {
				slices.Sort(keys)
				reads = append(reads, keys)
				return map[int]string{1: "one", 2: "two"}, nil
			},
		}
		var wg sync.WaitGroup
		for _, key := range []int{1, 2, 3, 1} {
			wg.Go(func() {
				value, found, err := l.load(t.Context(), key)
				if want := map[int]string{1: "one", 2: "two"}[key]; value != want || found != (key < 3) || err != nil {
					t.Errorf("load(%d) = %q, %v, %v", key, value, found, err)
				}
			})
		}
		wg.Wait()
		if len(reads) != 1 || !slices.Equal(reads[0], []int{1, 2, 3}) {
			t.Errorf("reads are %v, want one of three keys", reads)
		}
		if _, _, err := l.load(t.Context(), 1); err != nil || len(reads) != 2 {
			t.Errorf("a later read was not made again: %v, %v", reads, err)
		}
	})
}

func TestLoaderErrors(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("broken")
		l := &loader[int, int]{clock: clock.System(), window: time.Millisecond, fetch: func(_ context.Context, keys []int) (map[int]int, error) {
			if keys[0] == 0 {
				panic("no key")
			}
			return nil, broken
		}}
		if _, _, err := l.load(t.Context(), 1); !errors.Is(err, broken) {
			t.Errorf("error = %v", err)
		}
		if _, _, err := l.load(t.Context(), 0); err == nil {
			t.Error("a panic was no error")
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, _, err := l.load(ctx, 1); err == nil {
			t.Error("a request that is over was answered")
		}
	})
}
