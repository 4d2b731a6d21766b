// Package telemetry makes a service observable: structured logs with one set of keys, health and metrics over HTTP, and traces: the W3C
// trace context that events and calls propagate from one service to the next, and spans if the environment configures a collector.
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

// Logger writes JSON lines of the given level and above: debug, info, warn or error; any other text means info. A line logged with a
// context that carries a trace includes it. Terminal control characters are escaped, which does not change the JSON.
func Logger(w io.Writer, level string) *slog.Logger {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		l = slog.LevelInfo
	}
	return slog.New(traced{slog.NewJSONHandler(text.NewWriter(w), &slog.HandlerOptions{Level: l})})
}

// CheckLevel returns what is wrong with the log level in a configuration, if anything; an empty level is the default.
func CheckLevel(member, level string) []fault.Field {
	var l slog.Level
	if level == "" || l.UnmarshalText([]byte(level)) == nil {
		return nil
	}
	return []fault.Field{{Name: member, Problem: fmt.Sprintf("found %q, expected debug, info, warn or error", level)}}
}

// Milliseconds returns a log attribute with a duration as a number, so that values can be compared.
func Milliseconds(key string, d time.Duration) slog.Attr {
	return slog.Float64(key, float64(d.Microseconds())/1000)
}

// traced adds the trace of the context to each record.
type traced struct{ slog.Handler }

// Handle adds the trace of the context to the record.
func (h traced) Handle(ctx context.Context, r slog.Record) error {
	if sc := trace.SpanContextFromContext(ctx); sc.IsValid() {
		r.AddAttrs(slog.String(KeyTrace, sc.TraceID().String()), slog.String(KeySpan, sc.SpanID().String()))
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs keeps the trace in derived loggers.
func (h traced) WithAttrs(attrs []slog.Attr) slog.Handler { return traced{h.Handler.WithAttrs(attrs)} }

// WithGroup keeps the trace in derived loggers.
func (h traced) WithGroup(name string) slog.Handler { return traced{h.Handler.WithGroup(name)} }
