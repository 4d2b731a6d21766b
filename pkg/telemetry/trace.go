package telemetry

import (
	"context"
	"crypto/rand"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/lockstep-cd/lockstep/pkg/event"
)

const traceParent = event.ExtensionTraceParent

// InjectTrace writes the trace of ctx into e. An event that has one keeps it: it belongs to whoever made the event, not to
// whoever sends it again later.
func InjectTrace(ctx context.Context, e *event.Event) {
	if event.Extension(*e, traceParent) != "" {
		return
	}
	if tp := TraceParent(ctx); tp != "" {
		e.SetExtension(traceParent, tp)
	}
}

// ExtractTrace is ctx with the trace that e carries; ctx itself if that is none or is malformed.
func ExtractTrace(ctx context.Context, e event.Event) context.Context {
	return WithTraceParent(ctx, event.Extension(e, traceParent))
}

// TraceParent is the trace of ctx in W3C form; "" where it has none.
func TraceParent(ctx context.Context) string {
	if !trace.SpanContextFromContext(ctx).IsValid() {
		return ""
	}
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	return carrier.Get(traceParent)
}

// WithTraceParent is ctx with a trace in W3C form; ctx itself if value is malformed.
func WithTraceParent(ctx context.Context, value string) context.Context {
	return propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{traceParent: value})
}

// EnsureTrace is ctx with a trace: its own, or a new one that nobody records but that ties the log lines together.
func EnsureTrace(ctx context.Context) context.Context {
	if trace.SpanContextFromContext(ctx).IsValid() {
		return ctx
	}
	var t trace.TraceID
	var s trace.SpanID
	_, _ = rand.Read(t[:]) // never fails since Go 1.24
	_, _ = rand.Read(s[:])
	return trace.ContextWithSpanContext(ctx, trace.NewSpanContext(trace.SpanContextConfig{TraceID: t, SpanID: s}))
}
