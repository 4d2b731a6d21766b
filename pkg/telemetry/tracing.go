package telemetry

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/lockstep-cd/lockstep/pkg/build"
)

const (
	// tracerName is the instrumentation scope of our spans.
	tracerName = "github.com/lockstep-cd/lockstep"
	// flushWithin bounds the export of the last spans when a process stops: an unreachable collector must not delay it.
	flushWithin = 3 * time.Second
)

// The kinds of spans defined by OpenTelemetry.
const (
	Internal = trace.SpanKindInternal
	Server   = trace.SpanKindServer
	Client   = trace.SpanKindClient
	Producer = trace.SpanKindProducer
	Consumer = trace.SpanKindConsumer
)

// The attributes of spans about events: OpenTelemetry's semantic conventions for messaging.
const (
	attributeSystem      = "messaging.system"
	attributeDestination = "messaging.destination.name"
	attributeMessageID   = "messaging.message.id"
	attributeOperation   = "messaging.operation.type"
	attributeGroup       = "messaging.consumer.group.name"
)

// The attributes of spans about requests, calls and databases: OpenTelemetry's semantic conventions for HTTP, RPC and databases. None
// contains a path, a query or a statement's arguments: those may hold secrets.
const (
	HTTPMethod    = "http.request.method"
	HTTPStatus    = "http.response.status_code"
	HTTPRoute     = "http.route"
	URLScheme     = "url.scheme"
	ServerAddress = "server.address"
	RPCSystem     = "rpc.system"
	RPCService    = "rpc.service"
	RPCMethod     = "rpc.method"
	RPCStatus     = "rpc.grpc.status_code"
	DBSystem      = "db.system.name"
	DBNamespace   = "db.namespace"
	DBSummary     = "db.query.summary"
	DBStatus      = "db.response.status_code"
	// GitObjects is how many objects a Git operation requests or sends; OpenTelemetry has no name for it.
	GitObjects = "lockstep.git.objects"
)

// StartTracing records the process's spans and exports them by OTLP over gRPC, if the environment configures a collector
// (OTEL_EXPORTER_OTLP_TRACES_ENDPOINT or OTEL_EXPORTER_OTLP_ENDPOINT); otherwise no spans are created, at no cost. Sampling, headers,
// certificates and batches follow the other variables of OpenTelemetry's specification; OTEL_SDK_DISABLED turns all of it off. stop exports
// the remaining spans; if the collector is unreachable, spans are lost, and nothing is delayed.
func StartTracing(ctx context.Context, service string, log *slog.Logger) (stop func(), err error) {
	nothing := func() {}
	if os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") == "" && os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") == "" ||
		strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") {
		return nothing, nil
	}
	exporter, err := otlptracegrpc.New(ctx)
	if err != nil {
		return nothing, fmt.Errorf("start tracing: %w", err)
	}
	about, err := resource.New(ctx, resource.WithFromEnv(), resource.WithTelemetrySDK(), resource.WithHost(), resource.WithAttributes(
		attribute.String("service.namespace", "lockstep"), attribute.String("service.name", service),
		attribute.String("service.version", build.Read().Version),
	))
	if err != nil { // spans with fewer attributes are better than none
		log.WarnContext(ctx, "detecting attributes of this process failed; traces lack some", KeyError, err)
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		log.LogAttrs(context.WithoutCancel(ctx), slog.LevelWarn, "exporting spans failed", slog.Any(KeyError, err))
	}))
	provider := sdk.NewTracerProvider(sdk.WithBatcher(exporter), sdk.WithResource(about))
	otel.SetTracerProvider(provider)
	return func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushWithin)
		defer cancel()
		if err := provider.Shutdown(ctx); err != nil {
			log.WarnContext(ctx, "exporting spans failed", KeyError, err)
		}
	}, nil
}

// Tracing reports whether this process creates spans, so that callers can skip computing attributes that nobody records.
func Tracing() bool {
	_, on := otel.GetTracerProvider().(*sdk.TracerProvider)
	return on
}

// StartSpan starts a child of the span in ctx. end ends it, as failed if given a problem. The text of the problem is exported, so it has to
// be one that may leave the process (fault.Public).
func StartSpan(
	ctx context.Context, name string, kind trace.SpanKind, attributes ...slog.Attr,
) (inside context.Context, end func(problem string)) {
	return startSpan(ctx, name, kind, nil, attributes)
}

// StartChildSpan is StartSpan if the span in ctx is recorded, and a no-op otherwise: for the parts of a request, such as statements and
// calls. Polling loops would otherwise create a trace per poll.
func StartChildSpan(
	ctx context.Context, name string, kind trace.SpanKind, attributes ...slog.Attr,
) (inside context.Context, end func(problem string)) {
	if !Recorded(ctx) {
		return ctx, func(string) {}
	}
	return startSpan(ctx, name, kind, nil, attributes)
}

// Recorded reports whether the span in ctx is recorded in this process, so that attributes of child spans are worth computing.
func Recorded(ctx context.Context) bool {
	return Tracing() && trace.SpanContextFromContext(ctx).IsSampled()
}

// Annotate adds attributes to the span in ctx that are known only later, such as the status of a response.
func Annotate(ctx context.Context, attributes ...slog.Attr) {
	describe(trace.SpanFromContext(ctx), attributes, "")
}

// Sending is the span of a message that is being sent. The zero value has no span.
type Sending struct {
	span   trace.Span
	parent string
}

// StartSending starts the span of an event that is being sent, in the event's own trace (W3C form, "" for a new one). It costs nothing if
// no spans are created.
func StartSending(ctx context.Context, eventTrace, name string, began time.Time, attributes ...slog.Attr) Sending {
	if !Tracing() {
		return Sending{}
	}
	//nolint:spancheck // Sending.End ends it
	ctx, span := otel.Tracer(tracerName).Start(WithTraceParent(ctx, eventTrace), name, trace.WithSpanKind(Producer),
		trace.WithTimestamp(began))
	describe(span, attributes, "")
	return Sending{span: span, parent: TraceParent(ctx)} //nolint:spancheck // Sending.End ends it
}

// TraceParent is what the message carries so that the span of its processing can link to this span; "" for none.
func (s Sending) TraceParent() string { return s.parent }

// Started reports whether there is a span.
func (s Sending) Started() bool { return s.span != nil }

// End ends the span, as failed if it is given a problem.
func (s Sending) End(at time.Time, problem string) {
	if s.span == nil {
		return
	}
	describe(s.span, nil, problem)
	s.span.End(trace.WithTimestamp(at))
}

// StartProcessing starts the span of a message that is being processed: in the event's own trace, linked to the span that sent the message;
// or below that span if the event has no trace. sent is the value of Sending.TraceParent.
func StartProcessing(ctx context.Context, sent, name string, attributes ...slog.Attr) (inside context.Context, end func(problem string)) {
	ctx, links := processing(ctx, sent)
	return startSpan(ctx, name, Consumer, links, attributes)
}

// RecordProcessing is StartProcessing for a finished message, such as one of many that were processed together.
func RecordProcessing(ctx context.Context, sent, name string, began, ended time.Time, problem string, attributes ...slog.Attr) {
	if !Tracing() {
		return
	}
	ctx, links := processing(ctx, sent)
	_, span := otel.Tracer(tracerName).Start(ctx, name, trace.WithSpanKind(Consumer), trace.WithLinks(links...), trace.WithTimestamp(began))
	describe(span, attributes, problem)
	span.End(trace.WithTimestamp(ended))
}

// processing returns the parent of the span of a message, and the spans to link it to.
func processing(ctx context.Context, sent string) (context.Context, []trace.Link) {
	if !trace.SpanContextFromContext(ctx).IsValid() {
		return WithTraceParent(ctx, sent), nil
	}
	cause := trace.SpanContextFromContext(WithTraceParent(context.Background(), sent))
	if !cause.IsValid() {
		return ctx, nil
	}
	return ctx, []trace.Link{{SpanContext: cause}}
}

// LinkSpan creates a span without duration, below the trace named by parent (W3C form) and linked to the span in ctx, and returns ctx with
// it. It shows that something that waited in one trace continues because of an event in another. Without a parent it returns ctx unchanged.
func LinkSpan(ctx context.Context, parent, name string, attributes ...slog.Attr) context.Context {
	if parent == "" {
		return ctx
	}
	var links []trace.Link
	inside := WithTraceParent(ctx, parent)
	if cause := trace.SpanContextFromContext(ctx); cause.IsValid() && cause.TraceID() != trace.SpanContextFromContext(inside).TraceID() {
		links = []trace.Link{{SpanContext: cause}}
	}
	inside, end := startSpan(inside, name, Internal, links, attributes)
	end("")
	return inside
}

func startSpan(
	ctx context.Context, name string, kind trace.SpanKind, links []trace.Link, attributes []slog.Attr,
) (context.Context, func(string)) {
	ctx, span := otel.Tracer(tracerName).Start(ctx, name, trace.WithSpanKind(kind), trace.WithLinks(links...))
	describe(span, attributes, "")
	return ctx, func(problem string) {
		describe(span, nil, problem)
		span.End()
	}
}

func describe(span trace.Span, attributes []slog.Attr, problem string) {
	if !span.IsRecording() {
		return
	}
	for _, a := range attributes {
		span.SetAttributes(spanAttribute(a))
	}
	if problem != "" {
		span.SetStatus(codes.Error, problem)
	}
}

// spanAttribute converts a log attribute to a span attribute. It keeps the name, with a prefix for our own ones.
func spanAttribute(a slog.Attr) attribute.KeyValue {
	key := a.Key
	if !strings.Contains(key, ".") {
		key = "lockstep." + key
	}
	if a.Value.Kind() == slog.KindInt64 {
		return attribute.Int64(key, a.Value.Int64())
	}
	return attribute.String(key, a.Value.String())
}

// Text returns a span attribute with a text, such as telemetry.Text(telemetry.HTTPMethod, "GET").
func Text(key, value string) slog.Attr { return slog.Attr{Key: key, Value: slog.StringValue(value)} }

// Count returns a span attribute with a whole number.
func Count(key string, value int) slog.Attr { return slog.Attr{Key: key, Value: slog.IntValue(value)} }

// EventAttributes describes an event in a span, by the semantic conventions for messaging. operation is send or process.
func EventAttributes(operation, subject, id string) []slog.Attr {
	return []slog.Attr{
		Text(attributeSystem, "nats"), Text(attributeOperation, operation), Text(attributeDestination, subject), Text(attributeMessageID, id),
	}
}

// ConsumerAttribute names the durable consumer that an event was received by.
func ConsumerAttribute(name string) slog.Attr { return Text(attributeGroup, name) }

// RecordedTrace returns TraceParent if the span of ctx is recorded, and "" otherwise. It is stored with a row, so that later work on the
// row continues the trace.
func RecordedTrace(ctx context.Context) string {
	if !trace.SpanContextFromContext(ctx).IsSampled() {
		return ""
	}
	return TraceParent(ctx)
}
