package rpc_test

import (
	"context"
	"testing"

	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"

	"github.com/lockstep-cd/lockstep/pkg/rpc"
)

// TestCallsAreSpreadOverAllAddresses: two replicas behind one name, and a third that an autoscaler adds, each receive calls. With gRPC's
// own default, pick_first, the first replica receives all of them.
func TestCallsAreSpreadOverAllAddresses(t *testing.T) {
	t.Parallel()
	counts := make(chan string, 1)
	var addresses []resolver.Address
	for _, name := range []string{"first", "second", "third"} {
		f := serve(t, func(context.Context, string) (string, error) {
			counts <- name
			return name, nil
		})
		addresses = append(addresses, resolver.Address{Addr: f.address, ServerName: "127.0.0.1"})
	}
	names := manual.NewBuilderWithScheme("replicas")
	names.InitialState(resolver.State{Addresses: addresses[:2]})
	resolver.Register(names)
	conn, err := rpc.Dial(rpc.ClientConfig{Address: "replicas:///engine", Token: token, Insecure: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })

	// A connection that is not established gets no call, so each replica is polled until it has answered.
	until := func(want ...string) {
		answered := map[string]bool{}
		for range 20000 {
			if _, err := callEcho(t.Context(), conn, "hello"); err != nil {
				t.Fatal(err)
			}
			answered[<-counts] = true
			if len(answered) == len(want) {
				break
			}
		}
		for _, name := range want {
			if !answered[name] {
				t.Errorf("replica %q got no call", name)
			}
		}
	}
	until("first", "second")
	names.UpdateState(resolver.State{Addresses: addresses})
	until("first", "second", "third")
}
