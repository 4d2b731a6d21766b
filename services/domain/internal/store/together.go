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
)

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
	for _, q := range a.asked {
		p.kept.Queue(q.sql, q.args...).Query(func(rows pgx.Rows) error {
			q.fields = slices.Clone(rows.FieldDescriptions())
			for rows.Next() {
				row := make([][]byte, len(q.fields))
				for i, value := range rows.RawValues() {
					row[i] = bytes.Clone(value)
				}
				q.rows = append(q.rows, row)
			}
			refused = rows.Err()
			return refused
		})
	}
	a.known = true
	if err := p.flush(ctx); refused == nil {
		return err
	}
	return refused
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
	return r.err //nolint:wrapcheck // the caller wraps it
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
	o.line.kept.Queue(sql, args...)
	return pgconn.CommandTag{}, nil
}
