package rpc_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/rpc"
	"github.com/lockstep-cd/lockstep/pkg/telemetry"
)

const (
	token      = "correct-horse"
	echoMethod = "/lockstep.test.Echo/Say"
	echoStream = "/lockstep.test.Echo/Repeat"
)

func TestErrorsKeepTheirClass(t *testing.T) {
	t.Parallel()
	fields := []fault.Field{{Name: "inputs.digest", Problem: "missing"}, {Name: "starlark", Problem: "found 3, expected text"}}
	tests := []struct {
		name    string
		err     error
		class   fault.Class
		message string
		fields  []fault.Field
		code    codes.Code
	}{
		{
			name: "fields", err: fmt.Errorf("start: %w", fault.InvalidFields(fields...)), class: fault.Invalid,
			message: "start: inputs.digest: missing; starlark: found 3, expected text", fields: fields, code: codes.InvalidArgument,
		},
		{
			name: "internal", err: errors.New("password hunter2"), class: fault.Internal,
			message: "call /lockstep.test.Echo/Say: rpc error: code = Internal desc = internal error", code: codes.Internal,
		},
		{
			name: "cause", err: fault.Because(errors.New("hunter2"), fault.NotFound, "no run 7"), class: fault.NotFound, message: "no run 7",
			code: codes.NotFound,
		},
		{name: "terminal", err: fault.New(fault.Terminal, "over"), class: fault.Terminal, message: "over", code: codes.Internal},
		{
			name: "unavailable", err: fault.New(fault.Unavailable, "the database is away"), class: fault.Unavailable,
			message: "the database is away", code: codes.Unavailable,
		},
		{
			name: "panic", err: nil, class: fault.Internal,
			message: "call /lockstep.test.Echo/Say: rpc error: code = Internal desc = internal error", code: codes.Internal,
		},
		{
			name: "status", err: status.Error(codes.Unimplemented, "later"), class: fault.Internal,
			message: "call /lockstep.test.Echo/Say: rpc error: code = Unimplemented desc = later", code: codes.Unimplemented,
		},
		{
			name: "deadline", err: context.DeadlineExceeded, class: fault.Unavailable, message: "lockstep.test.Echo has not answered in time",
			code: codes.DeadlineExceeded,
		},
	}
	for _, c := range []fault.Class{fault.Conflict, fault.Refused, fault.Unauthenticated, fault.Denied} {
		tests = append(tests, struct {
			name    string
			err     error
			class   fault.Class
			message string
			fields  []fault.Field
			code    codes.Code
		}{name: c.String(), err: fault.New(c, "why"), class: c, message: "why", code: codes.Code(fault.Describe(c).GRPC)})
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := serve(t, func(context.Context, string) (string, error) {
				if tt.name == "panic" {
					panic("hunter2")
				}
				return "", tt.err
			})
			conn := dial(t, f.address, token)
			_, err := callEcho(t.Context(), conn, "x")
			if fault.ClassOf(err) != tt.class || err.Error() != tt.message || status.Code(err) != tt.code {
				t.Errorf("error %q of class %v and code %v; want %q, %v, %v", err, fault.ClassOf(err), status.Code(err), tt.message, tt.class, tt.code)
			}
			if diff := cmp.Diff(tt.fields, fault.FieldsOf(err)); diff != "" {
				t.Errorf("fields (-want +got):\n%s", diff)
			}
			if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("the error leaks: %v", err)
			}
			out, err := conn.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true}, echoStream)
			if err == nil {
				err = errors.Join(out.SendMsg(wrapperspb.String("x")), out.CloseSend(), out.RecvMsg(&wrapperspb.StringValue{}))
			}
			if fault.ClassOf(err) != tt.class {
				t.Errorf("as a stream: class %v of %v, want %v", fault.ClassOf(err), err, tt.class)
			}
		})
	}
}

func TestAuthentication(t *testing.T) {
	t.Parallel()
	callers := make(chan rpc.Caller, 10)
	f := serve(t, func(ctx context.Context, text string) (string, error) {
		c, ok := rpc.CallerFrom(ctx)
		if !ok {
			return "", errors.New("no caller")
		}
		callers <- c
		return text, nil
	})
	if got, err := callEcho(t.Context(), dial(t, f.address, token), "hello"); got != "hello" || err != nil {
		t.Errorf("answer %q, error %v", got, err)
	}
	if diff := cmp.Diff(rpc.Caller{Organization: 7, Name: "domain"}, <-callers); diff != "" {
		t.Errorf("caller (-want +got):\n%s", diff)
	}
	for _, wrong := range []string{"", "wrong", token + "x", token[1:], " "} {
		if _, err := callEcho(t.Context(), dial(t, f.address, wrong), "hello"); !fault.Is(err, fault.Unauthenticated) {
			t.Errorf("token %q: %v, want unauthenticated", wrong, err)
		}
	}
	if len(callers) > 0 {
		t.Error("a handler ran for a stranger")
	}
	if strings.Contains(f.log.String(), token) {
		t.Error("the token is in the log")
	}
}

func TestHealthAndReflectionNeedNoToken(t *testing.T) {
	t.Parallel()
	f := serve(t, nil)
	conn := dial(t, f.address, "")
	for _, service := range []string{"", "lockstep.test.Echo"} {
		r, err := healthv1.NewHealthClient(conn).Check(t.Context(), &healthv1.HealthCheckRequest{Service: service})
		if err != nil || r.GetStatus() != healthv1.HealthCheckResponse_SERVING {
			t.Errorf("health of %q: %v, error %v", service, r, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s, err := reflectionv1.NewServerReflectionClient(conn).ServerReflectionInfo(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Send(&reflectionv1.ServerReflectionRequest{MessageRequest: &reflectionv1.ServerReflectionRequest_ListServices{}}); err != nil {
		t.Fatal(err)
	}
	r, err := s.Recv()
	if err != nil || !strings.Contains(r.String(), "lockstep.test.Echo") {
		t.Errorf("reflection: %v, error %v", r, err)
	}
}

func TestOneLinePerCall(t *testing.T) {
	t.Parallel()
	f := serve(t, func(_ context.Context, text string) (string, error) {
		if text == "bad" {
			return "", fault.New(fault.Refused, "not now")
		}
		return text, nil
	})
	conn := dial(t, f.address, token)
	trace := "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	_, _ = callEcho(telemetry.WithTraceParent(t.Context(), trace), conn, "good")
	_, _ = callEcho(t.Context(), conn, "bad")
	lines := strings.Split(strings.TrimSpace(f.log.String()), "\n")
	if len(lines) != 2 {
		t.Fatalf("%d lines, want 2:\n%s", len(lines), f.log)
	}
	want := []map[string]any{
		{"level": "INFO", "msg": "call handled", "method": echoMethod, "caller": "domain", "status": "OK", "trace_id": trace[3:35]},
		{
			"level": "INFO", "msg": "call handled", "method": echoMethod, "caller": "domain", "status": "FailedPrecondition", "class": "refused",
			"error": "not now",
		},
	}
	for i, line := range lines {
		var got map[string]any
		if err := json.Unmarshal([]byte(line), &got); err != nil {
			t.Fatal(err)
		}
		for k, v := range want[i] {
			if got[k] != v {
				t.Errorf("line %d: %s is %v, want %v", i, k, got[k], v)
			}
		}
	}
}

func TestUnavailableIsRetried(t *testing.T) {
	t.Parallel()
	var calls atomic.Int64
	f := serve(t, func(_ context.Context, text string) (string, error) {
		if calls.Add(1) < 3 {
			return "", fault.New(fault.Unavailable, "starting")
		}
		return text, nil
	})
	if got, err := callEcho(t.Context(), dial(t, f.address, token), "hello"); got != "hello" || err != nil {
		t.Errorf("answer %q, error %v", got, err)
	}
}

func TestAServerThatIsAwayIsUnavailable(t *testing.T) {
	t.Parallel()
	f := serve(t, func(_ context.Context, text string) (string, error) { return text, nil })
	conn := dial(t, f.address, token)
	if _, err := callEcho(t.Context(), conn, "x"); err != nil {
		t.Fatal(err)
	}
	if err := f.stop(); err != nil {
		t.Fatal(err)
	}
	_, err := callEcho(t.Context(), conn, "x")
	if !fault.Is(err, fault.Unavailable) || err.Error() != "lockstep.test.Echo is not available" {
		t.Errorf("error %v of class %v", err, fault.ClassOf(err))
	}
	lis, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", f.address)
	if err != nil {
		t.Skipf("the port is taken: %v", err)
	}
	serveOn(t, lis, defaultConfig(), func(_ context.Context, text string) (string, error) { return text, nil })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		if _, err := callEcho(ctx, conn, "x"); err == nil {
			return
		}
		if ctx.Err() != nil {
			t.Fatal("the connection does not come back")
		}
	}
}

func TestCallsHaveDeadlines(t *testing.T) {
	t.Parallel()
	f := serve(t, func(ctx context.Context, _ string) (string, error) {
		d, ok := ctx.Deadline()
		return fmt.Sprint(ok && time.Until(d) <= 10*time.Second), nil
	})
	if got, err := callEcho(context.Background(), dial(t, f.address, token), "x"); got != "true" || //nolint:usetesting // must have no deadline
		err != nil {
		t.Errorf("bounded: %s, error %v", got, err)
	}
}

func TestACallerWhoGivesUpSeesThat(t *testing.T) {
	t.Parallel()
	started := make(chan struct{})
	f := serve(t, func(ctx context.Context, _ string) (string, error) {
		close(started)
		<-ctx.Done()
		return "", ctx.Err()
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-started; cancel() }()
	if _, err := callEcho(ctx, dial(t, f.address, token), "x"); !errors.Is(err, context.Canceled) {
		t.Errorf("error = %v, want canceled", err)
	}
}

// The server's clock may be ahead of the caller's: then the server ends the call before the caller's context expires.
func TestADeadlineIsReportedAlikeByBothSides(t *testing.T) {
	t.Parallel()
	f := serve(t, func(context.Context, string) (string, error) { return "", context.DeadlineExceeded })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := callEcho(ctx, dial(t, f.address, token), "x"); !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
		t.Errorf("error = %v (the context's: %v), want the deadline's", err, ctx.Err())
	}
}

func TestLargeMessages(t *testing.T) {
	t.Parallel()
	f := serve(t, func(_ context.Context, text string) (string, error) { return fmt.Sprint(len(text)), nil })
	conn := dial(t, f.address, token)
	if got, err := callEcho(t.Context(), conn, strings.Repeat("x", rpc.MaxMessage-100)); err != nil || got != fmt.Sprint(rpc.MaxMessage-100) {
		t.Errorf("answer %q, error %v", got, err)
	}
	if _, err := callEcho(t.Context(), conn, strings.Repeat("x", rpc.MaxMessage+1)); status.Code(err) != codes.ResourceExhausted ||
		!fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "too large") {
		t.Errorf("error = %v of class %v, want resource exhausted, which is no absence of the server", err, fault.ClassOf(err))
	}
}

func TestStopLetsCallsEnd(t *testing.T) {
	t.Parallel()
	started, release := make(chan struct{}), make(chan struct{})
	f := serve(t, func(_ context.Context, text string) (string, error) {
		close(started)
		<-release
		return text, nil
	})
	conn := dial(t, f.address, token)
	answer := make(chan error, 1)
	go func() { _, err := callEcho(t.Context(), conn, "x"); answer <- err }()
	<-started
	stopped := make(chan error, 1)
	go func() { stopped <- f.stop() }()
	select {
	case err := <-stopped:
		t.Errorf("stopped (%v) while a call ran", err)
	case <-time.After(100 * time.Millisecond):
	}
	close(release)
	if err := <-answer; err != nil {
		t.Errorf("the call in progress: %v", err)
	}
	if err := <-stopped; err != nil {
		t.Errorf("stop: %v", err)
	}
}

func TestDialRefuses(t *testing.T) {
	t.Parallel()
	for _, c := range []rpc.ClientConfig{
		{},
		{Address: "x:1", CAFile: "/nonexistent"},
		{Address: "x:1", CAFile: "rpc_test.go"},
		{Address: "dns://%zz/x", Insecure: true},
	} {
		if _, err := rpc.Dial(c); !fault.Is(err, fault.Invalid) {
			t.Errorf("%+v: %v, want invalid", c, err)
		}
	}
}
