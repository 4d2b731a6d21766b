package outbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/jackc/pgx/v5"

	"github.com/lockstep-cd/lockstep/pkg/outbox/internal/query"
	"github.com/lockstep-cd/lockstep/pkg/pg"
)

// Restored begins a new sequence of positions with everything that the outbox holds, for a database that was restored to an earlier time.
// Receivers know of positions that were given after that time: their receipts would confirm the events that get these positions now, before
// they have come. A sender finds that out by itself only as long as it has given fewer positions again. No service may run meanwhile; doing
// it again does no harm.
func Restored(ctx context.Context, c pg.Config) error {
	if c.DirectURL != "" {
		c.URL, c.DirectURL = c.DirectURL, ""
	}
	c.Role, c.MaxConns = "", 1
	pool, err := pg.Open(ctx, c)
	if err != nil {
		return err
	}
	defer pool.Close()
	return pg.Classify(pg.InTx(ctx, pool, func(tx pgx.Tx) error {
		q := query.New(tx)
		for lane := range int16(Lanes) {
			if _, err := q.LockLane(ctx, lane); err != nil {
				return err
			}
			if err := begin(ctx, q, lane); err != nil {
				return err
			}
		}
		return errors.Join(q.Former(ctx), q.FormerPositions(ctx), q.FormerMarks(ctx))
	}), "begin a new sequence of the outbox of schema %s", c.Schema)
}

// AfterRestore is what a service does once its database was restored to an earlier time, before the service runs on it: pg.Restored, then
// Restored.
func AfterRestore(ctx context.Context, c pg.Config, log *slog.Logger) error {
	sequences, err := pg.Restored(ctx, c)
	if err != nil {
		return err
	}
	if err := Restored(ctx, c); err != nil {
		return fmt.Errorf("outbox: %w", err)
	}
	log.InfoContext(ctx, "sequences were raised past the numbers given after the restored time", "sequences", sequences, "gap", int64(pg.RestoredGap))
	return nil
}

// begin begins a new sequence of a lane, which is locked.
func begin(ctx context.Context, q *query.Queries, lane int16) error {
	if err := q.NewEpoch(ctx, lane); err != nil {
		return err
	}
	if err := q.Unnumber(ctx, lane); err != nil {
		return err
	}
	return q.ForgetMarks(ctx, lane)
}
