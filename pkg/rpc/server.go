package rpc

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"log/slog"
	"net"
	"runtime/debug"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/reflection"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// MaxMessage is the largest message either side takes, in bytes: a program with its modules and inputs fits.
const MaxMessage = 16 << 20

// Caller is who makes a call, as its token says.
type Caller struct {
	// Organization limits the caller to one; 0 means any (another service of the control plane).
	Organization int64
	// Name is for the log.
	Name string
}

// ServerConfig says how a server answers.
type ServerConfig struct {
	Log *slog.Logger
	// Clock times the calls for the log; nil is the system's.
	Clock clock.Clock
	// Tokens are the bearer tokens accepted, and whose each is. Without any, no call is let in but health and
	// reflection: access is closed by default (D28).
	Tokens map[string]Caller
}

// NewServer is a gRPC server with authentication, logging, recovery, health and reflection. Register services on it,
// then Serve.
func NewServer(c ServerConfig) *grpc.Server {
	if c.Clock == nil {
		c.Clock = clock.System()
	}
	b := boundary{ServerConfig: c}
	s := grpc.NewServer(
		grpc.ChainUnaryInterceptor(b.unary),
		grpc.ChainStreamInterceptor(b.stream),
		grpc.MaxRecvMsgSize(MaxMessage),
		grpc.MaxSendMsgSize(MaxMessage),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 10 * time.Second, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: time.Minute, Timeout: 20 * time.Second}),
	)
	healthpb.RegisterHealthServer(s, health.NewServer())
	reflection.Register(s)
	return s
}

// Serve answers on listener until ctx ends, then lets the calls in flight finish, for ten seconds at most.
func Serve(ctx context.Context, s *grpc.Server, listener net.Listener) error {
	served := make(chan error, 1)
	go func() { served <- s.Serve(listener) }()
	select {
	case err := <-served:
		return fmt.Errorf("serve gRPC on %s: %w", listener.Addr(), err)
	case <-ctx.Done():
	}
	stopped := make(chan struct{})
	go func() { s.GracefulStop(); close(stopped) }()
	timer := clock.System().NewTimer(stopTimeout)
	defer timer.Stop()
	select {
	case <-stopped:
	case <-timer.C():
		s.Stop()
	}
	<-served
	return nil
}

// boundary is what stands between a caller and every method.
type boundary struct{ ServerConfig }

func (b boundary) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (resp any, err error) {
	err = b.call(ctx, info.FullMethod, func(ctx context.Context) error {
		resp, err = next(ctx, req)
		return err
	})
	return resp, err
}

func (b boundary) stream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	return b.call(ss.Context(), info.FullMethod, func(ctx context.Context) error {
		return next(srv, stream{ServerStream: ss, ctx: ctx})
	})
}

// call authenticates, runs one call, turns a panic into an error, logs one line and answers with a status.
func (b boundary) call(ctx context.Context, method string, fn func(context.Context) error) error {
	start := b.Clock.Now()
	caller, err := b.authenticate(ctx, method)
	if err == nil {
		err = b.recovered(ctx, method, func() error { return fn(context.WithValue(ctx, callerKey{}, caller)) })
	}
	row := fault.Describe(fault.ClassOf(err))
	level, outcome := slog.LevelDebug, "ok"
	if err != nil {
		level, outcome = row.Level, row.Name
	}
	b.Log.LogAttrs(ctx, level, "grpc call", slog.String("method", method), slog.String("caller", caller.Name),
		slog.Duration("duration", b.Clock.Now().Sub(start)), slog.String("outcome", outcome), slog.Any("error", err))
	if err != nil {
		return toStatus(err).Err()
	}
	return nil
}

func (b boundary) recovered(ctx context.Context, method string, fn func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			b.Log.ErrorContext(ctx, "grpc call panicked", "method", method, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			err = fmt.Errorf("%s panicked: %v", method, p)
		}
	}()
	return fn()
}

// open are the methods that anybody may call: probes and tools that ask what there is.
func open(method string) bool {
	return strings.HasPrefix(method, "/grpc.health.v1.") || strings.HasPrefix(method, "/grpc.reflection.")
}

func (b boundary) authenticate(ctx context.Context, method string) (Caller, error) {
	if open(method) {
		return Caller{}, nil
	}
	md, _ := metadata.FromIncomingContext(ctx)
	values := md.Get("authorization")
	if len(values) != 1 {
		return Caller{}, fault.New(fault.Unauthenticated, "authorization: expected one bearer token, found %d", len(values))
	}
	scheme, token, _ := strings.Cut(values[0], " ")
	if !strings.EqualFold(scheme, "bearer") {
		return Caller{}, fault.New(fault.Unauthenticated, "authorization: expected the scheme Bearer")
	}
	// Every token is compared, and in constant time: the time to answer tells nothing.
	found, caller := 0, Caller{}
	got := sha256.Sum256([]byte(token))
	for accepted, c := range b.Tokens {
		want := sha256.Sum256([]byte(accepted))
		if subtle.ConstantTimeCompare(got[:], want[:]) == 1 && accepted != "" {
			found, caller = 1, c
		}
	}
	if found == 0 {
		return Caller{}, fault.New(fault.Unauthenticated, "authorization: the token is not known")
	}
	return caller, nil
}

type callerKey struct{}

// CallerFrom is who makes the call that ctx belongs to.
func CallerFrom(ctx context.Context) (Caller, bool) {
	c, ok := ctx.Value(callerKey{}).(Caller)
	return c, ok
}

// stream is a stream whose context knows its caller.
type stream struct {
	grpc.ServerStream
	ctx context.Context //nolint:containedctx // grpc-go has no other way to pass it on
}

func (s stream) Context() context.Context { return s.ctx }
