package store

import (
	"bytes"
	"context"
	"errors"
	"reflect"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/store/query"
)

// pipeline is a transaction in which writes without a result are kept back, and sent together with the next statement whose result is
// needed: the journal of a change is several rows, and the round trip to the database costs more than most of them. Later statements see
// them, in order; an error is returned by the next statement, or the commit, and undoes the transaction as it would have at once.
type pipeline struct {
	tx   pgx.Tx
	kept pgx.Batch
	// gathered are rows of the deployments' journal that are not kept back yet: they become one statement, as a batch of events has hundreds.
	gathered *query.InsertDeploymentTransitionsParams
	// answers are those of the queries that were asked together, while they are read.
	answers *answers
}

var _ query.DBTX = (*pipeline)(nil)

// flush sends what is kept back.
func (p *pipeline) flush(ctx context.Context) error {
	p.keepGathered(ctx)
	if p.kept.Len() == 0 {
		return nil
	}
	kept := p.kept
	p.kept = pgx.Batch{}
	return pg.Classify(p.tx.SendBatch(ctx, &kept).Close(), "write what was kept back")
}

// gather adds a row to the journal of a deployment.
func (p *pipeline) gather(organization int64, r core.Transition) error {
	if p.answers != nil {
		return errTogether
	}
	if p.gathered == nil {
		p.gathered = &query.InsertDeploymentTransitionsParams{OrganizationID: organization}
	}
	g := p.gathered
	g.DeploymentIds = append(g.DeploymentIds, r.Subject.ID)
	g.FromStates, g.ToStates = append(g.FromStates, string(r.From)), append(g.ToStates, string(r.To))
	g.Events, g.GateIds = append(g.Events, string(r.Verb)), append(g.GateIds, r.GateID)
	g.PrincipalTypes, g.PrincipalIds = append(g.PrincipalTypes, string(r.PrincipalType)), append(g.PrincipalIds, r.PrincipalID)
	g.Reasons, g.TriggeredBy = append(g.Reasons, r.Reason), append(g.TriggeredBy, r.TriggeredBy)
	g.CreatedAt = append(g.CreatedAt, r.CreatedAt)
	return nil
}

// keepGathered keeps the gathered rows back, before a row that the journals show behind them.
func (p *pipeline) keepGathered(ctx context.Context) {
	if p.gathered == nil {
		return
	}
	rows := *p.gathered
	p.gathered = nil
	// It only fails while reads are asked together, when nothing is gathered.
	_ = query.New(later{p, whatever}).InsertDeploymentTransitions(ctx, rows)
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
	if p.kept.Len() == 0 && p.gathered == nil {
		return nil, nil //nolint:nilnil // see above
	}
	alone := answers{conn: p.tx.Conn()}
	alone.take(sql, args)
	if err := alone.ask(ctx, p); err != nil {
		return nil, err
	}
	return alone.take(sql, args), nil
}

// together asks the queries of several reads in one round trip, which costs more than most of the queries. A read is run twice, first
// with no rows, to learn what it asks. What it asks only because of an answer is then asked by itself. Reads write nothing, and none
// of them needs another one.
func (p *pipeline) together(ctx context.Context, reads ...func(context.Context) error) error {
	if p.answers != nil {
		return errTogether
	}
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
	if l.answers != nil {
		return pgconn.CommandTag{}, errTogether
	}
	l.kept.Queue(sql, args...).Exec(l.then)
	return pgconn.CommandTag{}, nil
}

// whatever is for statements of which any answer will do.
func whatever(pgconn.CommandTag) error { return nil }

// errTogether is for what cannot be done while reads are asked together.
var errTogether = errors.New("found something other than a query whose rows are scanned among reads that are asked together")

// answers are the queries of several reads, and what was found.
type answers struct {
	conn  *pgx.Conn
	asked []*question
	// known is set once the server has answered.
	known bool
}

// question is a query, and its rows as the server has sent them.
type question struct {
	sql    string
	args   []any
	fields []pgconn.FieldDescription
	rows   [][][]byte
}

// take is the answer to a query: no rows while questions are collected, and nil for one that was not asked.
func (a *answers) take(sql string, args []any) pgx.Rows {
	if a == nil {
		return nil
	}
	if !a.known {
		q := &question{sql: sql, args: args}
		a.asked = append(a.asked, q)
		return &foundRows{question: q, conn: a.conn}
	}
	for _, q := range a.asked {
		if q.sql == sql && reflect.DeepEqual(q.args, args) {
			return &foundRows{question: q, conn: a.conn}
		}
	}
	return nil
}

// ask sends what a transaction has kept back, and all questions behind it. An error is what the server has against a question, or has its
// class already.
func (a *answers) ask(ctx context.Context, p *pipeline) error {
	var refused error
	p.keepGathered(ctx)
	for _, q := range a.asked {
		p.kept.Queue(q.sql, q.args...).Query(func(rows pgx.Rows) error {
			if refused = rows.Err(); refused != nil { // then it has no descriptions either
				return refused //nolint:wrapcheck // see above
			}
			q.fields = slices.Clone(rows.FieldDescriptions())
			for rows.Next() {
				row := make([][]byte, len(q.fields))
				for i, value := range rows.RawValues() {
					row[i] = bytes.Clone(value)
				}
				q.rows = append(q.rows, row)
			}
			refused = rows.Err()
			return refused //nolint:wrapcheck // see above
		})
	}
	a.known = true
	if err := p.flush(ctx); refused == nil {
		return err
	}
	return refused //nolint:wrapcheck // see above
}

// foundRows are rows that have been read.
type foundRows struct {
	*question
	conn *pgx.Conn
	next int
	err  error
}

var _ pgx.Rows = (*foundRows)(nil)

// Next implements pgx.Rows.
func (r *foundRows) Next() bool {
	r.next++
	return r.err == nil && r.next <= len(r.rows)
}

// Scan implements pgx.Rows.
func (r *foundRows) Scan(dest ...any) error {
	r.err = pgx.ScanRow(r.conn.TypeMap(), r.fields, r.RawValues(), dest...)
	return r.err
}

// Values implements pgx.Rows. Generated code scans.
func (*foundRows) Values() ([]any, error) { return nil, errTogether }

// Err implements pgx.Rows.
func (r *foundRows) Err() error { return r.err }

// RawValues implements pgx.Rows.
func (r *foundRows) RawValues() [][]byte { return r.rows[r.next-1] }

// FieldDescriptions implements pgx.Rows.
func (r *foundRows) FieldDescriptions() []pgconn.FieldDescription { return r.fields }

// CommandTag implements pgx.Rows.
func (*foundRows) CommandTag() pgconn.CommandTag { return pgconn.CommandTag{} }

// TypeMap implements pgx.Rows.
func (r *foundRows) TypeMap() *pgtype.Map { return r.conn.TypeMap() }

// Conn implements pgx.Rows.
func (r *foundRows) Conn() *pgx.Conn { return r.conn }

// Close implements pgx.Rows.
func (*foundRows) Close() {}

// oneRow is the first of rows that have been read.
type oneRow struct{ rows pgx.Rows }

// Scan implements pgx.Row.
func (r oneRow) Scan(dest ...any) error {
	if !r.rows.Next() {
		return pgx.ErrNoRows
	}
	return r.rows.Scan(dest...) //nolint:wrapcheck // the caller wraps it
}

// outgoing is a transaction whose events are kept back with the rows that they are about.
type outgoing struct {
	pgx.Tx
	line *pipeline
}

// Exec implements pgx.Tx. The tag that it answers says nothing.
func (o outgoing) Exec(_ context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	if o.line.answers != nil {
		return pgconn.CommandTag{}, errTogether
	}
	o.line.kept.Queue(sql, args...)
	return pgconn.CommandTag{}, nil
}
