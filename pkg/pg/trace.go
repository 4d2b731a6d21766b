package pg

import (
	"context"
	"errors"
	"regexp"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstep-cd/lockstep/pkg/telemetry"
)

// tracer makes a span of each statement below a recorded span, and none of those that loops run by themselves. A span names the query,
// as sqlc does, and on failure its SQLSTATE: neither a statement's arguments nor the server's texts, which may quote them, leave the
// process.
type tracer struct {
	schema string
	// sessions are the connections past the pooler, if the pool is behind one (Session).
	sessions *pgxpool.Pool
}

var (
	_ pgx.QueryTracer = tracer{}
	_ pgx.BatchTracer = tracer{}
)

// spanEnd is the key under which a statement's context holds what ends its span.
type spanEnd struct{}

// TraceQueryStart implements pgx.QueryTracer.
func (t tracer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	if !telemetry.Recorded(ctx) {
		return ctx
	}
	return t.start(ctx, queryName(data.SQL))
}

// TraceQueryEnd implements pgx.QueryTracer.
func (tracer) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryEndData) {
	finish(ctx, data.Err)
}

// TraceBatchStart implements pgx.BatchTracer.
func (t tracer) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	if !telemetry.Recorded(ctx) {
		return ctx
	}
	return t.start(ctx, "batch")
}

// TraceBatchQuery implements pgx.BatchTracer: a batch is one span.
func (tracer) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

// TraceBatchEnd implements pgx.BatchTracer.
func (tracer) TraceBatchEnd(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchEndData) {
	finish(ctx, data.Err)
}

func (t tracer) start(ctx context.Context, name string) context.Context {
	ctx, end := telemetry.StartChildSpan(ctx, "SQL "+name, telemetry.Client,
		telemetry.Text(telemetry.DBSystem, "postgresql"), telemetry.Text(telemetry.DBNamespace, t.schema),
		telemetry.Text(telemetry.DBSummary, name))
	return context.WithValue(ctx, spanEnd{}, end)
}

func finish(ctx context.Context, err error) {
	end, ok := ctx.Value(spanEnd{}).(func(string))
	if !ok {
		return
	}
	problem := ""
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		problem = "no answer"
		if refused, ok := errors.AsType[*pgconn.PgError](err); ok {
			problem = "SQLSTATE " + refused.Code
			telemetry.Annotate(ctx, telemetry.Text(telemetry.DBStatus, refused.Code))
		}
	}
	end(problem)
}

// named finds the name that sqlc writes before each query; keyword the first word of a statement that has none.
var (
	named   = regexp.MustCompile(`^-- name: (\w+)`)
	keyword = regexp.MustCompile(`^\s*([A-Za-z]+)`)
)

// queryName is what a statement is called: by sqlc, or else by its first word, such as begin.
func queryName(sql string) string {
	for _, pattern := range []*regexp.Regexp{named, keyword} {
		if found := pattern.FindStringSubmatch(sql); found != nil {
			return found[1]
		}
	}
	return "statement"
}
