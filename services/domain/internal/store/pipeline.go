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
	// answers are those of the queries that were asked together, while they are read.
	answers *answers
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
	if p.answers != nil {
		return pgconn.CommandTag{}, errTogether
	}
	if err := p.flush(ctx); err != nil {
		return pgconn.CommandTag{}, err
	}
	return p.tx.Exec(ctx, sql, args...) //nolint:wrapcheck // the caller wraps it
}

// Query implements query.DBTX.
func (p *pipeline) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	rows, err := p.ask(ctx, sql, args)
	if rows != nil || err != nil {
		return rows, err
	}
	return p.tx.Query(ctx, sql, args...) //nolint:wrapcheck // the caller wraps it
}

// QueryRow implements query.DBTX.
func (p *pipeline) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	rows, err := p.ask(ctx, sql, args)
	switch {
	case err != nil:
		return noRow{err}
	case rows != nil:
		return oneRow{rows}
	default:
		return p.tx.QueryRow(ctx, sql, args...)
	}
}

// ask is the answer to a query that is asked together with others, or with what was kept back; nil for any other one.
func (p *pipeline) ask(ctx context.Context, sql string, args []any) (pgx.Rows, error) {
	if rows := p.answers.take(sql, args); rows != nil {
		return rows, nil
	}
	if p.kept.Len() == 0 {
		return nil, nil //nolint:nilnil // see above
	}
	alone := answers{conn: p.tx.Conn()}
	alone.take(sql, args)
	if err := alone.ask(ctx, p); err != nil {
		return nil, err
	}
	return alone.take(sql, args), nil
}

// together asks the queries of several reads on one journey: each of these costs more than most of the queries. A read is run twice, first
// with no rows, to learn what it asks. What it asks only because of an answer is then asked by itself. Reads write nothing, and none
// of them needs another one.
func (p *pipeline) together(ctx context.Context, reads ...func(context.Context) error) error {
	asking := &answers{conn: p.tx.Conn()}
	p.answers = asking
	for _, read := range reads {
		_ = read(ctx) // nothing has been found yet
	}
	p.answers = nil
	if err := asking.ask(ctx, p); err != nil {
		return pg.Classify(err, "read together")
	}
	p.answers = asking
	defer func() { p.answers = nil }()
	for _, read := range reads {
		if err := read(ctx); err != nil {
			return err
		}
	}
	return nil
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
