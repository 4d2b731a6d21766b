package pg

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstep-cd/lockstep/pkg/clock"
)

// electAgain is how long a process waits before it tries again to become the leader.
const electAgain = time.Second

// AsLeader runs fn in one process at a time for each key and schema. It waits until this process is the leader, and runs fn again whenever
// fn has returned, until ctx ends. Leadership is an advisory lock of a session of its own: it ends, and fn's context with it, when the
// connection breaks or the process dies. For a moment two leaders may run: correctness must not depend on this alone.
func AsLeader(ctx context.Context, pool *pgxpool.Pool, key string, c clock.Clock, fn func(context.Context) error) error {
	for ctx.Err() == nil {
		conn, err := elect(ctx, pool, key)
		if err == nil && conn != nil {
			err = hold(ctx, conn, fn)
		}
		if err != nil || conn == nil {
			_ = clock.Sleep(ctx, c, electAgain) // if ctx ended, so does the loop
		}
	}
	return nil
}

// elect takes the lock on a connection of its own; the connection is nil while another process holds the lock.
func elect(ctx context.Context, pool *pgxpool.Pool, key string) (*pgx.Conn, error) {
	conn, err := Session(ctx, pool)
	if err != nil {
		return nil, err
	}
	var mine bool
	if err := conn.QueryRow(ctx, `SELECT pg_try_advisory_lock(hashtextextended(current_schema() || '/' || $1, 0))`,
		key).Scan(&mine); err != nil || !mine {
		conn.Release()
		return nil, Classify(err, "take the lock %q", key)
	}
	return conn.Hijack(), nil
}

// hold runs fn until it returns or the connection, and with it the lock, is lost.
func hold(ctx context.Context, conn *pgx.Conn, fn func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		defer cancel()
		// There are no notifications: this waits until the connection breaks or fn has returned.
		for {
			if _, err := conn.WaitForNotification(ctx); err != nil {
				return
			}
		}
	}()
	err := fn(ctx)
	cancel()
	<-watched
	_ = conn.Close(context.WithoutCancel(ctx)) // releases the lock, unless the connection was broken already
	return err
}
