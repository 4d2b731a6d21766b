package pg

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// RestoredGap is how many numbers Restored leaves out of each sequence: more than are given between two backups.
const RestoredGap = 1_000_000

// Restored raises every sequence of the schema by RestoredGap, for a database that was restored to an earlier time: the numbers that it
// gave after that time are known elsewhere, in Git, in events and in clusters, and must not be given again. It answers how many sequences
// there are. No service may run meanwhile; doing it again leaves out as many again, which does no harm.
//
// A sequence without room for the gap is Refused, and none is changed.
func Restored(ctx context.Context, c Config) (sequences int, err error) {
	c = c.directly()
	c.Role, c.MaxConns = "", 1 // sequences belong to the account
	pool, err := Open(ctx, c)
	if err != nil {
		return 0, err
	}
	defer pool.Close()
	err = InTx(ctx, pool, func(tx pgx.Tx) error {
		var full string
		const room = `SELECT coalesce(min(sequencename), '') FROM pg_sequences WHERE schemaname = $1 AND max_value - coalesce(last_value, start_value) <= $2`
		if err := tx.QueryRow(ctx, room, c.Schema, int64(RestoredGap)).Scan(&full); err != nil {
			return Classify(err, "look for sequences without room")
		}
		if full != "" {
			return fault.New(fault.Refused, "sequence %s.%s: found fewer than %d numbers that are left, expected room for a gap", c.Schema, full, RestoredGap)
		}
		// setval is not undone by a rollback; it comes last.
		const raise = `SELECT count(setval(format('%I.%I', schemaname, sequencename)::regclass, coalesce(last_value, start_value) + $2))
			FROM pg_sequences WHERE schemaname = $1`
		return Classify(tx.QueryRow(ctx, raise, c.Schema, int64(RestoredGap)).Scan(&sequences), "raise the sequences of schema %s", c.Schema)
	})
	if err != nil {
		return 0, fmt.Errorf("after a restore: %w", err)
	}
	return sequences, nil
}
