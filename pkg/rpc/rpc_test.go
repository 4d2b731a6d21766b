package rpc_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/rpc"
	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
)

// engine answers every call with what a test put in.
type engine struct {
	autoflowv1.UnimplementedAutoFlowServer
	answer func(context.Context) error
}

func (e engine) GetWorkflow(ctx context.Context, _ *autoflowv1.GetWorkflowRequest) (*autoflowv1.GetWorkflowResponse, error) {
	return &autoflowv1.GetWorkflowResponse{}, e.answer(ctx)
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// setup serves answer and dials it with the token given.
func setup(t *testing.T, token string, answer func(context.Context) error) autoflowv1.AutoFlowClient {
	t.Helper()
	s := rpc.NewServer(rpc.ServerConfig{Log: slog.New(slog.DiscardHandler), Tokens: map[string]rpc.Caller{"t0ken": {Organization: 7, Name: "domain"}}})
	autoflowv1.RegisterAutoFlowServer(s, engine{answer: answer})
	l := listen(t)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- rpc.Serve(ctx, s, l) }()
	conn, err := rpc.Dial(rpc.ClientConfig{Address: l.Addr().String(), Token: token, Insecure: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		cancel()
		if err := <-done; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	if _, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{}); err != nil {
		t.Fatalf("health needs no token, but answered %v", err)
	}
	return autoflowv1.NewAutoFlowClient(conn)
}

func TestEveryClassCrossesTheWire(t *testing.T) {
	t.Parallel()
	for _, class := range fault.Classes() {
		t.Run(class.String(), func(t *testing.T) {
			t.Parallel()
			client := setup(t, "t0ken", func(context.Context) error { return fault.New(class, "the text for callers") })
			_, err := client.GetWorkflow(t.Context(), &autoflowv1.GetWorkflowRequest{})
			want, text := class, "the text for callers"
			switch class {
			case fault.Terminal:
				want = fault.Internal
			case fault.Internal:
				text = "internal error"
			}
			if got := fault.ClassOf(err); got != want {
				t.Errorf("class %v came back as %v", class, got)
			}
			if s, _ := status.FromError(errors.Unwrap(err)); !strings.HasSuffix(s.Message(), text) {
				t.Errorf("message = %q, want %q", s.Message(), text)
			}
		})
	}
}

func TestFieldsCrossTheWire(t *testing.T) {
	t.Parallel()
	want := []fault.Field{{Name: "starlark", Problem: "3:1: found newline, expected an expression"}}
	client := setup(t, "t0ken", func(context.Context) error { return fault.InvalidFields(want...) })
	_, err := client.GetWorkflow(t.Context(), &autoflowv1.GetWorkflowRequest{})
	if diff := cmp.Diff(want, fault.FieldsOf(err)); diff != "" {
		t.Errorf("fields (-want +got):\n%s", diff)
	}
}

func TestUnclassedErrorsAndPanicsTellNothing(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]func(context.Context) error{
		"error": func(context.Context) error { return errors.New("dial postgres://cd:hunter2@db") },
		"panic": func(context.Context) error { panic("hunter2") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := setup(t, "t0ken", answer)
			_, err := client.GetWorkflow(t.Context(), &autoflowv1.GetWorkflowRequest{})
			s, _ := status.FromError(errors.Unwrap(err))
			if s.Code() != codes.Internal || s.Message() != "internal error" {
				t.Errorf("answered %v %q, want INTERNAL and nothing else", s.Code(), s.Message())
			}
		})
	}
}

func TestTheCallerIsWhomTheTokenNames(t *testing.T) {
	t.Parallel()
	client := setup(t, "t0ken", func(ctx context.Context) error {
		if c, ok := rpc.CallerFrom(ctx); !ok || c.Organization != 7 || c.Name != "domain" {
			return fault.New(fault.Terminal, "caller = %+v, %t", c, ok)
		}
		return nil
	})
	if _, err := client.GetWorkflow(t.Context(), &autoflowv1.GetWorkflowRequest{}); err != nil {
		t.Error(err)
	}
}

func TestWithoutAKnownTokenNothingIsAnswered(t *testing.T) {
	t.Parallel()
	for _, token := range []string{"", "t0kem", "t0ken2"} {
		t.Run(token, func(t *testing.T) {
			t.Parallel()
			client := setup(t, token, func(context.Context) error { return nil })
			if _, err := client.GetWorkflow(t.Context(), &autoflowv1.GetWorkflowRequest{}); !fault.Is(err, fault.Unauthenticated) {
				t.Errorf("token %q answered %v, want unauthenticated", token, err)
			}
		})
	}
}

func TestServeHTTPLetsRequestsInFlightFinish(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	entered, release := make(chan struct{}), make(chan struct{})
	l, done := listen(t), make(chan error, 1)
	go func() {
		done <- rpc.ServeHTTP(ctx, slog.New(slog.DiscardHandler), l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			close(entered)
			<-release
			if r.Context().Err() != nil {
				http.Error(w, "cancelled", http.StatusInternalServerError)
			}
		}))
	}()
	answered := make(chan string, 1)
	go func() {
		req, _ := http.NewRequestWithContext(context.WithoutCancel(ctx), http.MethodGet, "http://"+l.Addr().String(), http.NoBody)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			answered <- err.Error()
			return
		}
		defer func() { _ = resp.Body.Close() }()
		_, _ = io.Copy(io.Discard, resp.Body)
		answered <- resp.Status
	}()
	<-entered
	cancel()
	close(release)
	if got := <-answered; got != "200 OK" {
		t.Errorf("request in flight answered %s", got)
	}
	if err := <-done; err != nil {
		t.Errorf("serve: %v", err)
	}
}
