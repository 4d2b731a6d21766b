package rpc

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/throttle"
)

const (
	// MaxMessage is the largest request and answer; a program with its modules fits well.
	MaxMessage = 16 << 20
	// callWithin bounds a call whose caller has set no deadline.
	callWithin = 30 * time.Second
	// stopWithin is how long calls in progress may go on once the server is told to stop.
	stopWithin = 5 * time.Second
	// keepaliveTime is how often an idle connection is probed; a client that probes faster than keepaliveEvery is refused.
	keepaliveTime    = 30 * time.Second
	keepaliveTimeout = 10 * time.Second
	keepaliveEvery   = 10 * time.Second
	// connectionAge is how long a connection takes new calls, give or take a tenth. A client then connects again, to the addresses that the
	// server's name has by then: that is how replicas that an autoscaler adds get their share. Calls in progress end when they end.
	connectionAge = 5 * time.Minute
)

// ServerConfig is what a gRPC server needs.
type ServerConfig struct {
	Log *slog.Logger
	// Clock times the calls for the log; nil is the system's.
	Clock clock.Clock
	// Tokens are the bearer tokens that callers show, and who they are. Without a token of these only health and
	// reflection can be called.
	Tokens map[string]Caller
	// Keyring has further tokens, which may be known by their digests only; nil is none.
	Keyring *Keyring
	// Scopes are what each method needs, by its full name (/package.Service/Method); methods that are not named need
	// ScopeAdmin. nil asks for no scope.
	Scopes map[string]Scope
	// Guard slows down callers whose tokens prove nothing; nil lets them try as often as they like.
	Guard *throttle.Guard
	// TLS is the server's certificate (certs.Files.Server for h2); nil is plain text.
	TLS *tls.Config
}

// Caller is who makes a call.
type Caller struct {
	// Organization is the only one the caller may act for; 0 is any.
	Organization int64
	// Scope is what the caller may do there.
	Scope Scope
	// Name is for logs.
	Name string
}

// streamWorkers are goroutines that are kept for calls, so that their stacks need not grow anew with each. A call that finds
// none free has a goroutine of its own: those that last cost nobody anything. With 32, which 64 clients that wait for the disk keep busy,
// growing stacks was 8 % of a service's processor time; idle ones take 2 KiB each.
const streamWorkers = 256

// window is how many bytes a peer may send before they are taken, on a stream and on a connection. Where it is not given, the library
// finds one by sending a ping with what it receives, which for calls as small as ours costs more than it gains.
const window = 1 << 20

// NewServer is a server without services. Register them, then Serve.
func NewServer(c ServerConfig) *grpc.Server {
	if c.Clock == nil {
		c.Clock = clock.System()
	}
	i := &interceptors{log: c.Log, clock: c.Clock, keyring: c.Keyring.with(c.Tokens), scopes: c.Scopes, guard: c.Guard}
	options := []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(i.unary), grpc.ChainStreamInterceptor(i.stream),
		grpc.MaxRecvMsgSize(MaxMessage), grpc.MaxSendMsgSize(MaxMessage),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: keepaliveTime, Timeout: keepaliveTimeout, MaxConnectionAge: connectionAge}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: keepaliveEvery, PermitWithoutStream: true}),
		grpc.ConnectionTimeout(10 * time.Second),
		grpc.NumStreamWorkers(streamWorkers),
		grpc.InitialWindowSize(window), grpc.InitialConnWindowSize(window),
	}
	if c.TLS != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(c.TLS)))
	}
	return grpc.NewServer(options...)
}

// Serve adds health (for the whole and for each service) and reflection to s and serves on lis until ctx ends. Then
// health says so, and calls in progress may end within five seconds.
func Serve(ctx context.Context, s *grpc.Server, lis net.Listener) error {
	h := health.NewServer()
	for name := range s.GetServiceInfo() {
		h.SetServingStatus(name, healthv1.HealthCheckResponse_SERVING)
	}
	healthv1.RegisterHealthServer(s, h)
	reflection.Register(s)

	stopped := make(chan struct{})
	unhook := context.AfterFunc(ctx, func() {
		defer close(stopped)
		h.Shutdown()
		stop(s)
	})
	err := s.Serve(lis)
	if !unhook() { // the stop has begun: it ends before we do
		<-stopped
	}
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("serve grpc on %s: %w", lis.Addr(), err)
	}
	return nil
}

// stop is a graceful stop that runs out of patience.
func stop(s *grpc.Server) {
	done := make(chan struct{})
	go func() {
		s.GracefulStop()
		close(done)
	}()
	timer := clock.System().NewTimer(stopWithin)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C():
		s.Stop()
		<-done
	}
}
