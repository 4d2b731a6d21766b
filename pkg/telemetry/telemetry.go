// Package telemetry makes a service observable: structured logs with one set of keys, health and metrics over HTTP, and traces, that
// is the W3C trace context that events and calls propagate from one service to the next, and spans if the environment names a
// collector.
//
// It has no influence on behaviour: with metrics, logs and traces switched off a service does the same.
package telemetry

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/text"
)

// Logger writes JSON lines of the level and above: debug, info, warn or error, and info for any other text. A line logged
// with a context that carries a trace names it. What would act on a terminal that shows the log is escaped, which leaves the JSON the same.
func Logger(w io.Writer, level string) *slog.Logger {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		l = slog.LevelInfo
	}
	return slog.New(traced{slog.NewJSONHandler(text.NewWriter(w), &slog.HandlerOptions{Level: l})})
}

// CheckLevel is what is wrong with the member of a configuration that says what Logger writes, none for nothing; without a text it
// writes what it does by default.
func CheckLevel(member, level string) []fault.Field {
	var l slog.Level
	if level == "" || l.UnmarshalText([]byte(level)) == nil {
		return nil
	}
	return []fault.Field{{Name: member, Problem: fmt.Sprintf("found %q, expected debug, info, warn or error", level)}}
}

// Milliseconds is how durations are logged: as a number, so that they can be compared.
func Milliseconds(key string, d time.Duration) slog.Attr {
	return slog.Float64(key, float64(d.Microseconds())/1000)
}

// traced adds the trace of the context to each record.
type traced struct{ slog.Handler }

// Handle adds what the context knows and passes the record on.
func (h traced) Handle(ctx context.Context, r slog.Record) error {
	if sc := trace.SpanContextFromContext(ctx); sc.IsValid() {
		r.AddAttrs(slog.String(KeyTrace, sc.TraceID().String()), slog.String(KeySpan, sc.SpanID().String()))
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs keeps the trace on loggers made from this one.
func (h traced) WithAttrs(attrs []slog.Attr) slog.Handler { return traced{h.Handler.WithAttrs(attrs)} }

// WithGroup keeps the trace on loggers made from this one.
func (h traced) WithGroup(name string) slog.Handler { return traced{h.Handler.WithGroup(name)} }
