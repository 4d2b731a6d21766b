package rpc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/telemetry"
	"github.com/lockstep-cd/lockstep/pkg/throttle"
)

const traceHeader = "traceparent"

// interceptors does what is common to every call.
type interceptors struct {
	log     *slog.Logger
	clock   clock.Clock
	keyring *Keyring
	scopes  map[string]Scope
	guard   *throttle.Guard
}

func (i *interceptors) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, callWithin)
		defer cancel()
	}
	var resp any
	err := i.around(ctx, info.FullMethod, func(ctx context.Context) (err error) {
		resp, err = handler(ctx, req)
		return err
	})
	if err != nil {
		return nil, err
	}
	return resp, nil
}

func (i *interceptors) stream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	return i.around(ss.Context(), info.FullMethod, func(ctx context.Context) error {
		return handler(srv, &streamWithContext{ServerStream: ss, ctx: ctx})
	})
}

// streamWithContext is a stream whose context has the caller.
type streamWithContext struct {
	grpc.ServerStream
	ctx context.Context //nolint:containedctx // grpc.ServerStream is an interface that hands out a context
}

// Context is the stream's, with the caller and the trace.
func (s *streamWithContext) Context() context.Context { return s.ctx }

// callAttributes describes a call in a span; method is its full name, with a leading slash.
func callAttributes(method string) []slog.Attr {
	service, name, _ := strings.Cut(strings.TrimPrefix(method, "/"), "/")
	return []slog.Attr{
		telemetry.Text(telemetry.RPCSystem, "grpc"), telemetry.Text(telemetry.RPCService, service),
		telemetry.Text(telemetry.RPCMethod, name),
	}
}

// around authenticates the caller, makes the call, and logs it.
func (i *interceptors) around(ctx context.Context, method string, call func(context.Context) error) error {
	started := i.clock.Now()
	defer telemetry.RequestStarted(telemetry.ProtocolGRPC)()
	if tp := metadata.ValueFromIncomingContext(ctx, traceHeader); len(tp) == 1 {
		ctx = telemetry.WithTraceParent(ctx, tp[0])
	}
	var endSpan func(string)
	if endSpan = func(string) {}; !isPublic(method) {
		ctx, endSpan = telemetry.StartSpan(ctx, strings.TrimPrefix(method, "/"), telemetry.Server, callAttributes(method)...)
	}
	ctx = telemetry.EnsureTrace(ctx)
	var caller Caller
	err := error(nil)
	if !isPublic(method) {
		if caller, err = i.authenticate(ctx); err == nil {
			err = i.admit(caller, method)
		}
	}
	if err == nil {
		err = i.guarded(WithCaller(ctx, caller), method, call)
	}
	answer := toStatus(err)
	telemetry.Annotate(ctx, telemetry.Count(telemetry.RPCStatus, int(status.Code(answer))))
	endSpan(spanProblem(answer))
	took := i.clock.Now().Sub(started)
	if !isPublic(method) {
		telemetry.ObserveRequest(telemetry.ProtocolGRPC, method, status.Code(answer).String(), took)
	}
	i.logCall(ctx, method, caller, err, answer, took)
	return answer
}

// logCall logs one line about a call, at the level of its outcome.
func (i *interceptors) logCall(ctx context.Context, method string, caller Caller, err, answer error, took time.Duration) {
	level := slog.LevelInfo
	switch {
	case err != nil && ctx.Err() == nil: // otherwise the caller hung up, which is not our failure
		level = fault.Describe(fault.ClassOf(err)).Level
		if expected, is := errors.AsType[interface {
			error
			Level() slog.Level
		}](err); is {
			level = expected.Level()
		}
	case err == nil && isPublic(method):
		level = slog.LevelDebug
	}
	if !i.log.Enabled(ctx, level) {
		return
	}
	attrs := []slog.Attr{
		slog.String(telemetry.KeyMethod, method), slog.String(telemetry.KeyCaller, caller.Name),
		slog.String(telemetry.KeyStatus, status.Code(answer).String()), telemetry.Milliseconds(telemetry.KeyDuration, took),
	}
	if err != nil {
		attrs = append(attrs, slog.String(telemetry.KeyClass, fault.ClassOf(err).String()), slog.Any(telemetry.KeyError, err))
	}
	i.log.LogAttrs(ctx, level, "call handled", attrs...)
}

// spanProblem returns the problem in the span of a failed call; "" for success.
func spanProblem(answer error) string {
	if answer == nil {
		return ""
	}
	return status.Convert(answer).String()
}

// guarded converts a panic to an error: one call must not take down the process.
func (i *interceptors) guarded(ctx context.Context, method string, call func(context.Context) error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
			i.log.ErrorContext(ctx, "call panicked", telemetry.KeyMethod, method, telemetry.KeyError, err, telemetry.KeyStack, string(debug.Stack()))
		}
	}()
	return call(ctx)
}

// isPublic reports whether a method only exposes what is in our source code.
func isPublic(method string) bool {
	return strings.HasPrefix(method, "/grpc.health.v1.Health/") || strings.HasPrefix(method, "/grpc.reflection.")
}
