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
	// MaxMessage is the largest request and answer; a program with its modules fits easily.
	MaxMessage = 16 << 20
	// callWithin bounds a call without a deadline.
	callWithin = 30 * time.Second
	// stopWithin is how long calls in progress may continue after the server begins to stop.
	stopWithin = 5 * time.Second
	// keepaliveTime is how often an idle connection is probed; a client that probes faster than keepaliveEvery is refused.
	keepaliveTime    = 30 * time.Second
	keepaliveTimeout = 10 * time.Second
	keepaliveEvery   = 10 * time.Second
	// connectionAge is how long a connection accepts new calls, plus or minus a tenth. The client then reconnects, to the current addresses
	// of the server's name: so replicas added by an autoscaler get their share. Calls in progress are not interrupted.
	connectionAge = 5 * time.Minute
)

// ServerConfig configures a gRPC server.
type ServerConfig struct {
	Log *slog.Logger
	// Clock times the calls for the log; nil means the system's.
	Clock clock.Clock
	// Tokens maps bearer tokens to callers. Without a known token only health and reflection can be called.
	Tokens map[string]Caller
	// Keyring has further tokens, of which only the digests may be known; nil means none.
	Keyring *Keyring
	// Scopes maps the full name of a method (/package.Service/Method) to the scope that it requires; unlisted methods require ScopeAdmin.
	// nil requires no scope.
	Scopes map[string]Scope
	// Guard slows down callers whose tokens are unknown; nil means no limit.
	Guard *throttle.Guard
	// TLS is the server's certificate (certs.Files.Server for h2); nil means plain text.
	TLS *tls.Config
}

// Caller is the authenticated caller of a call.
type Caller struct {
	// Organization is the only one that the caller may act for; 0 means any.
	Organization int64
	// Scope is what the caller may do.
	Scope Scope
	// Name is for logs.
	Name string
	// Prefix is what the names that a caller of ScopeWork registers begin with.
	Prefix string
	// Redeclare reports whether a caller of ScopeWork may declare its Functions less strictly than before.
	Redeclare bool
}

// streamWorkers is the number of goroutines kept for calls, so that their stacks need not grow anew for each. A call that finds none free
// gets a goroutine of its own, so long calls block nobody. With 32, which 64 clients that wait for the disk keep busy, growing stacks took
// 8 % of a service's processor time; idle ones take 2 KiB each.
const streamWorkers = 256

// window is how many bytes a peer may send ahead, per stream and per connection. Without it, the library measures the bandwidth with a ping
// for received data, which for calls as small as ours costs more than it gains.
const window = 1 << 20

// NewServer returns a server without services. Register them, then call Serve.
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

// Serve adds health (for the whole and for each service) and reflection to s, and serves on lis until ctx ends. Then health reports it, and
// calls in progress have five seconds to end.
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
	if !unhook() { // the stop has begun: wait for it
		<-stopped
	}
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("serve grpc on %s: %w", lis.Addr(), err)
	}
	return nil
}

// stop stops gracefully, and forcibly after stopWithin.
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
