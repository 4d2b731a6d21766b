package rpc_test

import (
	"bytes"
	"context"
	"net"
	"sync"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/lockstep-cd/lockstep/pkg/rpc"
	"github.com/lockstep-cd/lockstep/pkg/telemetry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// reply is the handler of the test service.
type reply func(ctx context.Context, text string) (string, error)

// echo describes a service with one call and one stream, without generated code.
func echo(handle reply) *grpc.ServiceDesc {
	return &grpc.ServiceDesc{
		ServiceName: "lockstep.test.Echo", HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{{
			MethodName: "Say",
			Handler: func(_ any, ctx context.Context, decode func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error) {
				in := &wrapperspb.StringValue{}
				if err := decode(in); err != nil {
					return nil, err
				}
				run := func(ctx context.Context, req any) (any, error) {
					text, err := handle(ctx, req.(*wrapperspb.StringValue).GetValue())
					return wrapperspb.String(text), err
				}
				return interceptor(ctx, in, &grpc.UnaryServerInfo{FullMethod: echoMethod}, run)
			},
		}},
		Streams: []grpc.StreamDesc{{StreamName: "Repeat", ServerStreams: true, Handler: func(_ any, s grpc.ServerStream) error {
			in := &wrapperspb.StringValue{}
			if err := s.RecvMsg(in); err != nil {
				return err
			}
			for range 2 {
				text, err := handle(s.Context(), in.GetValue())
				if err != nil {
					return err
				}
				if err := s.SendMsg(wrapperspb.String(text)); err != nil {
					return err
				}
			}
			return nil
		}}},
	}
}

// fixture is a server that runs until its test ends.
type fixture struct {
	address string
	log     *syncBuffer
	stop    func() error
}

// serve runs the test service on a free port, for the callers of defaultConfig.
func serve(t *testing.T, handle reply) *fixture {
	t.Helper()
	return serveEcho(t, defaultConfig(), handle)
}

// serveWith runs a service that returns what it is given.
func serveWith(t *testing.T, c rpc.ServerConfig) *fixture {
	t.Helper()
	return serveEcho(t, c, func(_ context.Context, text string) (string, error) { return text, nil })
}

func serveEcho(t *testing.T, c rpc.ServerConfig, handle reply) *fixture {
	t.Helper()
	lis, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return serveOn(t, lis, c, handle)
}

// defaultConfig accepts token. The empty token, also configured, must not be accepted.
func defaultConfig() rpc.ServerConfig {
	return rpc.ServerConfig{Tokens: map[string]rpc.Caller{token: {Organization: 7, Name: "domain"}, "": {Name: "nobody"}}}
}

func serveOn(t *testing.T, lis net.Listener, c rpc.ServerConfig, handle reply) *fixture {
	t.Helper()
	f := &fixture{address: lis.Addr().String(), log: &syncBuffer{}}
	c.Log = telemetry.Logger(f.log, "debug")
	s := rpc.NewServer(c)
	s.RegisterService(echo(handle), nil)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- rpc.Serve(ctx, s, lis) }()
	f.stop = sync.OnceValue(func() error { cancel(); return <-done })
	t.Cleanup(func() {
		if err := f.stop(); err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return f
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func dial(t *testing.T, address, token string) *grpc.ClientConn {
	t.Helper()
	conn, err := rpc.Dial(rpc.ClientConfig{Address: address, Token: token, Insecure: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func callEcho(ctx context.Context, conn *grpc.ClientConn, text string) (string, error) {
	out := &wrapperspb.StringValue{}
	err := conn.Invoke(ctx, echoMethod, wrapperspb.String(text), out)
	return out.GetValue(), err
}
