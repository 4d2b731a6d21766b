package pg_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/pkg/pg/pgtest"
)

// TestOneIsAloneAndTheOtherFollows has two wait for the same turn; the second gets it when the connection of the first breaks.
func TestOneIsAloneAndTheOtherFollows(t *testing.T) {
	t.Parallel()
	pool, _ := pgtest.New(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var inside atomic.Int32
	var broken atomic.Bool // then the first may not know yet that its turn is over
	turns := make(chan int, 10)
	var wg sync.WaitGroup
	for who := range 2 {
		wg.Go(func() {
			_ = pg.InTurn(ctx, pool, "turn", clock.System(), func(ctx context.Context) error {
				if inside.Add(1) != 1 && !broken.Load() {
					t.Error("two at once")
				}
				turns <- who
				<-ctx.Done()
				inside.Add(-1)
				return nil
			})
		})
	}
	first := <-turns
	broken.Store(true)
	// Whoever holds the lock loses its connection, and may be quicker to come back than the other to look: either is right.
	if _, err := pool.Exec(t.Context(), `SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted
		AND ((classid::bigint << 32) | objid::bigint) = hashtextextended(current_schema() || '/turn', 0)`); err != nil {
		t.Fatal(err)
	}
	second := <-turns
	t.Logf("%d, then %d", first, second)
	cancel()
	wg.Wait()
	if inside.Load() != 0 {
		t.Error("somebody is still inside")
	}
}
