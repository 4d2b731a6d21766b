package pg_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/pkg/testkit/pgtest"
)

// TestAsLeader runs two candidates; when the connection of the first leader breaks, there is a leader again.
func TestAsLeader(t *testing.T) {
	t.Parallel()
	pool, _ := pgtest.New(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var inside atomic.Int32
	var broken atomic.Bool // from then on the first may not know yet that it is no longer the leader
	leaders := make(chan int, 10)
	var wg sync.WaitGroup
	for who := range 2 {
		wg.Go(func() {
			_ = pg.AsLeader(ctx, pool, "key", clock.System(), func(ctx context.Context) error {
				if inside.Add(1) != 1 && !broken.Load() {
					t.Error("two leaders at once")
				}
				leaders <- who
				<-ctx.Done()
				inside.Add(-1)
				return nil
			})
		})
	}
	first := <-leaders
	broken.Store(true)
	// The leader loses its connection. Either of the two may be the next leader.
	if _, err := pool.Exec(t.Context(), `SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted
		AND ((classid::bigint << 32) | objid::bigint) = hashtextextended(current_schema() || '/key', 0)`); err != nil {
		t.Fatal(err)
	}
	second := <-leaders
	t.Logf("%d, then %d", first, second)
	cancel()
	wg.Wait()
	if inside.Load() != 0 {
		t.Error("a leader is still running")
	}
}
