package store

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/services/domain/internal/store/query"
)

// pipeline is a transaction in which writes without a result are kept back, and sent together with the next statement whose result is
// needed: the journal of a change is several rows, and the round trip to the database costs more than most of them. Later statements see
// them, in order; an error is returned by the next statement, or the commit, and undoes the transaction as it would have at once.
type pipeline struct {
	tx   pgx.Tx
	kept pgx.Batch
}

var _ query.DBTX = (*pipeline)(nil)

// flush sends what is kept back.
func (p *pipeline) flush(ctx context.Context) error {
	if p.kept.Len() == 0 {
		return nil
	}
	kept := p.kept
	p.kept = pgx.Batch{}
	return pg.Classify(p.tx.SendBatch(ctx, &kept).Close(), "write what was kept back")
}

// Exec implements query.DBTX.
func (p *pipeline) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	if err := p.flush(ctx); err != nil {
		return pgconn.CommandTag{}, err
	}
	return p.tx.Exec(ctx, sql, args...) //nolint:wrapcheck // the caller wraps it
}

// Query implements query.DBTX.
func (p *pipeline) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if err := p.flush(ctx); err != nil {
		return nil, err
	}
	return p.tx.Query(ctx, sql, args...) //nolint:wrapcheck // the caller wraps it
}

// QueryRow implements query.DBTX.
func (p *pipeline) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	if err := p.flush(ctx); err != nil {
		return noRow{err}
	}
	return p.tx.QueryRow(ctx, sql, args...)
}

// noRow is the row of a query that could not be asked.
type noRow struct{ err error }

// Scan implements pgx.Row.
func (r noRow) Scan(...any) error { return r.err }

// later keeps statements back. What they answer is known when they are sent: then looks at it.
type later struct {
	*pipeline
	then func(pgconn.CommandTag) error
}

// Exec implements query.DBTX. The tag that it answers says nothing.
func (l later) Exec(_ context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	l.kept.Queue(sql, args...).Exec(l.then)
	return pgconn.CommandTag{}, nil
}

// whatever is for statements of which any answer will do.
func whatever(pgconn.CommandTag) error { return nil }
