package pg

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// InPipeline is InTx with fewer journeys to the server, for transactions that many wait for. An Exec only notes its
// statement: it travels with the next Query or QueryRow, or with the commit. So Exec answers an empty CommandTag and no
// error. What the server has against the statement comes out at that journey, and statements behind it are not done.
//
// Where all of it is one journey, neither BEGIN nor COMMIT is sent: the statements between two Syncs are one transaction, which the Sync
// commits (PostgreSQL, "Message Flow", Pipelining). SET LOCAL, which asks for a BEGIN, is set_config there.
//
// fn may use Exec, Query and QueryRow, and has to read the rows of one to the end before it asks for the next. All else of
// pgx.Tx is refused.
func InPipeline(ctx context.Context, pool *pgxpool.Pool, fn func(pgx.Tx) error) error {
	return repeated(ctx, func() error { return piped(ctx, pool, fn) })
}

// Last says that the next Query or QueryRow of a pipelined transaction is its last statement: the commit travels with it. Whether it was
// committed is known when its rows are closed, and is the error of the rows; an error in reading them undoes nothing any more. In any other
// transaction it does nothing.
func Last(tx pgx.Tx) {
	if p, ok := tx.(*pipeline); ok {
		p.last = true
	}
}

func piped(ctx context.Context, pool *pgxpool.Pool, fn func(pgx.Tx) error) error {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return Classify(err, "begin transaction")
	}
	return pipedOn(ctx, conn, fn)
}

// pipedOn is piped on a connection, which it gives back.
func pipedOn(ctx context.Context, conn *pgxpool.Conn, fn func(pgx.Tx) error) error {
	// A connection that is still in a transaction then, or broken, does not go back into the pool.
	defer conn.Release()
	p := &pipeline{conn: conn.Conn()}
	err := fn(p)
	if err == nil {
		err = Classify(p.commit(ctx), "commit transaction")
	}
	if err != nil && p.conn.PgConn().TxStatus() != 'I' {
		_, _ = p.conn.Exec(ctx, "ROLLBACK") // where it fails, Release ends the connection and with it the transaction
	}
	return err
}

// pipeline is the transaction that InPipeline hands out.
type pipeline struct {
	conn  *pgx.Conn
	batch pgx.Batch
	// begun is set after the first round trip of a transaction that continues.
	begun bool
	// last is set once the next statement that is asked for is the last one, and ending is its answer.
	last   bool
	ending *pipelineRows
}

var _ pgx.Tx = (*pipeline)(nil)

// errDone refuses what comes behind the last statement.
var errDone = errors.New("found a statement behind the last one of a pipelined transaction, expected none")

// errPipeline refuses what cannot wait for others, or would end the transaction.
var errPipeline = errors.New("found a call that a pipelined transaction does not have, expected Exec, Query or QueryRow")

// send takes everything noted to the server and reads the answers of all statements but so many. The results are to be
// closed, also after an error.
func (p *pipeline) send(ctx context.Context, but int) (pgx.BatchResults, error) {
	batch := p.batch
	p.batch = pgx.Batch{}
	results := p.conn.SendBatch(ctx, &batch)
	for range batch.Len() - but {
		if _, err := results.Exec(); err != nil {
			return results, err
		}
	}
	return results, nil
}

// commit sends what is left, and answers once it is committed. Whether it was, the last answer of all says: Close reads it.
func (p *pipeline) commit(ctx context.Context) error {
	if p.ending != nil {
		p.ending.Close()
		if err := p.ending.Err(); err != nil { // also one that fn has dropped
			return err
		}
		if p.batch.Len() > 0 {
			return errDone
		}
		return nil
	}
	if p.begun {
		p.batch.Queue("COMMIT")
	} else if p.batch.Len() == 0 {
		return nil
	}
	results, err := p.send(ctx, 1)
	if err == nil {
		err = committed(results)
	}
	if closeErr := results.Close(); err == nil {
		err = closeErr
	}
	return err
}

// committed reads the answer to the last statement of a transaction.
func committed(results pgx.BatchResults) error {
	tag, err := results.Exec()
	if err == nil && tag.String() == "ROLLBACK" {
		return pgx.ErrTxCommitRollback // a statement had failed, and fn continued
	}
	return err
}

func (p *pipeline) Exec(_ context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	p.batch.Queue(sql, args...)
	return pgconn.CommandTag{}, nil
}

func (p *pipeline) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if p.ending != nil {
		return nil, errDone
	}
	if !p.begun && !p.last {
		p.begun = true
		noted := p.batch.QueuedQueries
		p.batch = pgx.Batch{}
		p.batch.Queue("BEGIN")
		p.batch.QueuedQueries = append(p.batch.QueuedQueries, noted...)
	}
	p.batch.Queue(sql, args...)
	commit := p.begun && p.last
	answers := 1
	if commit {
		p.batch.Queue("COMMIT")
		answers = 2
	}
	results, err := p.send(ctx, answers)
	var rows pgx.Rows
	if err == nil {
		rows, err = results.Query()
	}
	if err != nil {
		_ = results.Close() // says the same
		if p.last {
			p.ending = &pipelineRows{Rows: failedRows{rows, err}}
		}
		return nil, err
	}
	answer := &pipelineRows{Rows: rows, results: results, commit: commit}
	if p.last {
		p.ending = answer
	}
	return answer, nil
}

func (p *pipeline) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	rows, err := p.Query(ctx, sql, args...)
	return &pipelineRow{rows: rows, err: err}
}

func (*pipeline) Begin(context.Context) (pgx.Tx, error) { return nil, errPipeline }
func (*pipeline) Commit(context.Context) error          { return errPipeline }
func (*pipeline) Rollback(context.Context) error        { return errPipeline }
func (*pipeline) LargeObjects() pgx.LargeObjects        { return pgx.LargeObjects{} }
func (p *pipeline) Conn() *pgx.Conn                     { return p.conn }

func (*pipeline) CopyFrom(context.Context, pgx.Identifier, []string, pgx.CopyFromSource) (int64, error) {
	return 0, errPipeline
}

func (*pipeline) Prepare(context.Context, string, string) (*pgconn.StatementDescription, error) {
	return nil, errPipeline
}

func (*pipeline) SendBatch(context.Context, *pgx.Batch) pgx.BatchResults { return refusedBatch{} }

// refusedBatch is a batch that was not sent.
type refusedBatch struct{}

func (refusedBatch) Exec() (pgconn.CommandTag, error) { return pgconn.CommandTag{}, errPipeline }
func (refusedBatch) Query() (pgx.Rows, error)         { return nil, errPipeline }
func (refusedBatch) QueryRow() pgx.Row                { return &pipelineRow{err: errPipeline} }
func (refusedBatch) Close() error                     { return errPipeline }
func (refusedBatch) Tx() pgx.Tx                       { return nil }

// pipelineRows are the answer to the last statement of a journey. The connection is free again once they are closed.
type pipelineRows struct {
	pgx.Rows
	results pgx.BatchResults
	// commit is whether the answer to a COMMIT follows.
	commit bool
	err    error
}

// Next closes the rows behind the last one, as those of a Query do.
func (r *pipelineRows) Next() bool {
	if r.Rows.Next() {
		return true
	}
	r.Close()
	return false
}

func (r *pipelineRows) Close() {
	r.Rows.Close()
	if r.results == nil {
		return
	}
	if r.commit && r.Rows.Err() == nil {
		r.err = committed(r.results)
	}
	if err := r.results.Close(); r.err == nil {
		r.err = err
	}
	r.results = nil
}

func (r *pipelineRows) Err() error {
	if err := r.Rows.Err(); err != nil {
		return err
	}
	return r.err
}

// failedRows are those of a statement that was answered with an error.
type failedRows struct {
	pgx.Rows
	err error
}

func (failedRows) Close()       {}
func (f failedRows) Err() error { return f.err }

// pipelineRow is the first row of an answer.
type pipelineRow struct {
	rows pgx.Rows
	err  error
}

func (r *pipelineRow) Scan(into ...any) error {
	if r.err != nil {
		return r.err
	}
	defer r.rows.Close()
	if !r.rows.Next() {
		if err := r.rows.Err(); err != nil {
			return err
		}
		return pgx.ErrNoRows
	}
	if err := r.rows.Scan(into...); err != nil {
		return err
	}
	r.rows.Close()
	return r.rows.Err()
}
