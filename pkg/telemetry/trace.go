package telemetry

import (
	"context"
	"crypto/rand"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/lockstep-cd/lockstep/pkg/event"
)

const traceParent = event.ExtensionTraceParent

// InjectTrace writes the trace of ctx into e, unless the event has one: that is the producer's, not that of a later sender.
func InjectTrace(ctx context.Context, e *event.Event) {
	if event.Extension(*e, traceParent) != "" {
		return
	}
	if tp := TraceParent(ctx); tp != "" {
		e.SetExtension(traceParent, tp)
	}
}

// ExtractTrace returns ctx with the trace of e; ctx itself if e has none or a malformed one.
func ExtractTrace(ctx context.Context, e event.Event) context.Context {
	return WithTraceParent(ctx, event.Extension(e, traceParent))
}

// TraceParent returns the trace of ctx in W3C form; "" if it has none.
func TraceParent(ctx context.Context) string {
	if !trace.SpanContextFromContext(ctx).IsValid() {
		return ""
	}
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	return carrier.Get(traceParent)
}

// WithTraceParent returns ctx with a trace in W3C form; ctx itself if value is malformed.
func WithTraceParent(ctx context.Context, value string) context.Context {
	return propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{traceParent: value})
}

// EnsureTrace returns ctx with a trace: its own, or a new one that is not recorded but ties the log lines together.
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
