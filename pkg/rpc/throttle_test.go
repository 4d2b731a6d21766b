package rpc_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/lockstep-cd/lockstep/pkg/rpc"
	"github.com/lockstep-cd/lockstep/pkg/throttle"
)

// TestGuessingTokensIsSlow tries three hundred tokens over one connection, with a caller with a valid one behind the same address.
func TestGuessingTokensIsSlow(t *testing.T) {
	t.Parallel()
	server := rpc.NewServer(rpc.ServerConfig{
		Log: slog.New(slog.DiscardHandler), Tokens: map[string]rpc.Caller{"good": {Name: "domain"}}, Guard: throttle.New(nil),
	})
	empty := func(_ any, ctx context.Context, _ func(any) error, intercept grpc.UnaryServerInterceptor) (any, error) {
		handle := func(context.Context, any) (any, error) { return &emptypb.Empty{}, nil }
		return intercept(ctx, &emptypb.Empty{}, &grpc.UnaryServerInfo{FullMethod: "/test.S/Do"}, handle)
	}
	server.RegisterService(&grpc.ServiceDesc{
		ServiceName: "test.S", HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{{MethodName: "Do", Handler: empty}},
	}, struct{}{})
	lis, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(lis) }()
	t.Cleanup(func() { server.Stop(); <-done })
	conn, err := grpc.NewClient(lis.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	call := func(token string) codes.Code {
		ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+token)
		return status.Code(conn.Invoke(ctx, "/test.S/Do", &emptypb.Empty{}, &emptypb.Empty{}))
	}
	if code := call("good"); code != codes.OK {
		t.Fatalf("found %s", code)
	}
	found := map[codes.Code]int{}
	for n := range 300 {
		found[call(fmt.Sprintf("guess-%d", n))]++
	}
	// On a slow machine more than 20 pass: one more every two seconds.
	if found[codes.Unauthenticated] < 20 || found[codes.Unauthenticated] > 60 ||
		found[codes.Unauthenticated]+found[codes.ResourceExhausted] != 300 {
		t.Errorf("found %v; want about 20 refused and the rest throttled", found)
	}
	if code := call("good"); code != codes.OK {
		t.Errorf("a good token behind the same address: found %s", code)
	}
}
