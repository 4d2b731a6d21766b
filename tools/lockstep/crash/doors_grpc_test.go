package crash

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/lockstep-cd/lockstep/pkg/bus"
	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/testkit/bustest"
	"github.com/lockstep-cd/lockstep/tools/lockstep/stack"
)

// public are the methods that say nothing but what is in our source: whether a server is up, and what can be called there.
func public() []string {
	return []string{
		"/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/List", "/grpc.health.v1.Health/Watch",
		"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
	}
}

// TestNobodyGetsInByGRPC calls every method of every service that the running server has, as it says itself, with nothing and with every
// kind of token that is not good there.
func TestNobodyGetsInByGRPC(t *testing.T) {
	t.Parallel()
	ctx, w := start(t, oneStage())
	canary := rand.Text()
	revoked := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(revoked, []byte("revoked-"+canary), 0o600); err != nil {
		t.Fatal(err)
	}
	w.configure(ctx, t, map[string]map[string]any{
		"workflow": {
			"failed_authentication": map[string]any{"off": true}, // each probe is one, and there are hundreds
			"token":                 "engine-" + canary,
			"tokens":                []map[string]any{{"name": "ci", "organization": 2, "scope": "admin", "ref": "file:" + revoked}},
		},
		"domain": {"workflow_token": "engine-" + canary},
	})
	conn, err := grpc.NewClient(w.stack.Endpoints().GRPC, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	methods := methodsOf(ctx, t, conn)
	if len(methods) < 15+len(public()) {
		t.Fatalf("%d methods: the server was not understood", len(methods))
	}
	call := func(m protoreflect.MethodDescriptor, authorization string) error {
		ctx := ctx
		if authorization != "" {
			ctx = metadata.AppendToOutgoingContext(ctx, "authorization", authorization)
		}
		stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true},
			"/"+string(m.Parent().FullName())+"/"+string(m.Name()))
		if err != nil {
			return err
		}
		if err := stream.SendMsg(&emptypb.Empty{}); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		_ = stream.CloseSend() // what the server says is read below
		return stream.RecvMsg(&emptypb.Empty{})
	}
	good := "Bearer revoked-" + canary
	for name, m := range methods {
		if slices.Contains(public(), name) {
			continue
		}
		if err := call(m, good); status.Code(err) == codes.Unauthenticated {
			t.Errorf("%s with a token that is good yet: %v", name, err)
		}
	}
	if err := os.Remove(revoked); err != nil {
		t.Fatal(err)
	}
	for name, m := range methods {
		if slices.Contains(public(), name) {
			continue
		}
		refusals := map[string]bool{}
		for _, wrong := range []string{
			"", "Basic " + w.stack.Endpoints().Token, "Bearer", "Bearer ", good,
			"Bearer " + w.stack.Endpoints().Token, "Bearer made-up-" + canary,
		} {
			err := call(m, wrong)
			if status.Code(err) != codes.Unauthenticated {
				t.Errorf("%s with %q: %v, want that nobody is let in", name, wrong, err)
			}
			if strings.HasPrefix(wrong, "Bearer ") {
				refusals[fmt.Sprint(err)] = true
			}
		}
		if len(refusals) != 1 {
			t.Errorf("%s: the answers to wrong tokens differ: %v", name, refusals)
		}
	}
	for _, name := range public() {
		if methods[name] == nil {
			t.Errorf("%s is open to anybody, and there is none", name)
		}
	}
}

// methodsOf are the methods that a server has, by their full names, as it describes them.
func methodsOf(ctx context.Context, t *testing.T, conn *grpc.ClientConn) map[string]protoreflect.MethodDescriptor {
	t.Helper()
	stream, err := reflectionv1.NewServerReflectionClient(conn).ServerReflectionInfo(ctx)
	if err != nil {
		t.Fatal(err)
	}
	ask := func(r *reflectionv1.ServerReflectionRequest) *reflectionv1.ServerReflectionResponse {
		t.Helper()
		if err := stream.Send(r); err != nil {
			t.Fatal(err)
		}
		answer, err := stream.Recv()
		if err != nil || answer.GetErrorResponse() != nil {
			t.Fatalf("%v: %v, %v", r, answer, err)
		}
		return answer
	}
	files := map[string]*descriptorpb.FileDescriptorProto{}
	services := ask(&reflectionv1.ServerReflectionRequest{MessageRequest: &reflectionv1.ServerReflectionRequest_ListServices{}}).GetListServicesResponse().GetService()
	for _, s := range services {
		symbol := &reflectionv1.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: s.GetName()}
		for _, text := range ask(&reflectionv1.ServerReflectionRequest{MessageRequest: symbol}).GetFileDescriptorResponse().GetFileDescriptorProto() {
			f := &descriptorpb.FileDescriptorProto{}
			if err := proto.Unmarshal(text, f); err != nil {
				t.Fatal(err)
			}
			files[f.GetName()] = f
		}
	}
	set := &descriptorpb.FileDescriptorSet{}
	for _, f := range files {
		set.File = append(set.File, f)
	}
	described, err := (protodesc.FileOptions{AllowUnresolvable: true}).NewFiles(set)
	if err != nil {
		t.Fatal(err)
	}
	methods := map[string]protoreflect.MethodDescriptor{}
	for _, s := range services {
		d, err := described.FindDescriptorByName(protoreflect.FullName(s.GetName()))
		if errors.Is(err, protoregistry.NotFound) {
			t.Fatalf("service %s is not described", s.GetName())
		}
		service, ok := d.(protoreflect.ServiceDescriptor)
		if !ok {
			t.Fatalf("%s is a %T", s.GetName(), d)
		}
		for i := range service.Methods().Len() {
			m := service.Methods().Get(i)
			methods["/"+s.GetName()+"/"+string(m.Name())] = m
		}
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	return methods
}

// errNotYet is that of a connection which nobody has tried to make.
var errNotYet = errors.New("not tried yet")

// TestNobodyGetsInByNATS has two agents of a running installation, with the keys that the domain service has given them, try every subject
// that exists. A revoked key, or any other credential, opens nothing.
func TestNobodyGetsInByNATS(t *testing.T) {
	t.Parallel()
	ctx, w := start(t, oneStage())
	other, err := w.API.RegisterAgent(ctx, "other")
	if err != nil {
		t.Fatal(err)
	}
	own, err := os.ReadFile(filepath.Join(w.dir(), "config", "relay-key"))
	if err != nil {
		t.Fatal(err)
	}
	files := map[int64]string{}
	for number, seed := range map[int64]string{stack.AgentID: string(own), other.Number: other.Seed} {
		files[number] = filepath.Join(t.TempDir(), "seed")
		if err := os.WriteFile(files[number], []byte(seed), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	server := w.stack.Endpoints().NATS
	by := func(number int64) nats.Option {
		option, err := nats.NkeyOptionFromSeed(files[number])
		if err != nil {
			t.Fatal(err)
		}
		return option
	}
	subjects := bustest.Doors(t, stack.AgentID, other.Number)
	for number := range files {
		var nc *nats.Conn
		for err = errNotYet; err != nil && ctx.Err() == nil; { // a refusal without an answer of the authority is not final either
			nc, err = signIn(ctx, server, by(number))
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		bustest.Try(t, nc, bus.RelayUser(number), subjects)
	}
	if _, err := w.API.RevokeAgent(ctx, other.ID); err != nil {
		t.Fatal(err)
	}
	_, _, password := w.stack.Account(bus.UserDomain)
	for name, option := range map[string]nats.Option{
		"nothing": nats.Name("nobody"), "a revoked key": by(other.Number), "a service's name": nats.UserInfo(bus.UserDomain, "guessed"),
		"an agent's name":            nats.UserInfo(bus.RelayUser(stack.AgentID), password),
		"another service's password": nats.UserInfo(bus.UserWorkflow, password),
		"the API's token":            nats.Token(w.stack.Endpoints().Token),
	} {
		nc, err := signIn(ctx, server, option)
		if err == nil {
			nc.Close()
			t.Errorf("%s: let in", name)
		} else if !errors.Is(err, nats.ErrAuthorization) {
			t.Errorf("%s: %v, want that it is refused like any other", name, err)
		}
	}
}

// signIn connects to NATS once. On a busy machine a server may run out of time before the authority has answered: that is not final, and
// tried again.
func signIn(ctx context.Context, server string, option nats.Option) (nc *nats.Conn, err error) {
	for {
		nc, err = nats.Connect(server, option, nats.Timeout(time.Minute), nats.NoReconnect())
		if err == nil || errors.Is(err, nats.ErrAuthorization) || clock.Sleep(ctx, clock.System(), 50*time.Millisecond) != nil {
			return nc, err
		}
	}
}
