package pg

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstep-cd/lockstep/pkg/clock"
)

// turnAgain is how soon whoever waits looks again whether the place is free.
const turnAgain = time.Second

// InTurn runs fn while nobody else does under the same key in the same schema, over all processes: it waits for its turn, and
// runs fn again whenever fn has ended, until ctx does. The turn is a lock of a session of its own, so it is over when the
// process dies or its connection breaks; fn's context ends then. For a moment two may run: what has to be true must not rest
// on this alone.
func InTurn(ctx context.Context, pool *pgxpool.Pool, key string, c clock.Clock, fn func(context.Context) error) error {
	for ctx.Err() == nil {
		conn, err := turn(ctx, pool, key)
		if err == nil && conn != nil {
			err = hold(ctx, conn, fn)
		}
		if err != nil || conn == nil {
			_ = clock.Sleep(ctx, c, turnAgain) // ended early, the loop sees it
		}
	}
	return nil
}

// turn takes the lock with a connection of its own; nil while somebody else has it.
func turn(ctx context.Context, pool *pgxpool.Pool, key string) (*pgx.Conn, error) {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return nil, Classify(err, "take a connection")
	}
	var mine bool
	if err := conn.QueryRow(ctx, `SELECT pg_try_advisory_lock(hashtextextended(current_schema() || '/' || $1, 0))`, key).Scan(&mine); err != nil || !mine {
		conn.Release()
		return nil, Classify(err, "take the lock %q", key)
	}
	return conn.Hijack(), nil
}

// hold runs fn as long as the connection, and with it the lock, is there.
func hold(ctx context.Context, conn *pgx.Conn, fn func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		defer cancel()
		// Nobody notifies: it waits for the connection to end, or for fn to.
		for {
			if _, err := conn.WaitForNotification(ctx); err != nil {
				return
			}
		}
	}()
	err := fn(ctx)
	cancel()
	<-watched
	_ = conn.Close(context.WithoutCancel(ctx)) // gives the lock back; a broken one has done so already
	return err
}
