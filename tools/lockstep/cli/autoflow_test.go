package cli_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
)

// autoflow answers a call of <Method> with the file <Method>.<n>.json for the nth, or <Method>.json for all; a stream with
// one message for each line. A file that begins with "error" is a refusal: error <class> <text>. What was sent is in
// <Method>.sent.
type autoflow struct {
	autoflowv1.UnimplementedAutoFlowServer
	dir   string
	mu    sync.Mutex
	asked map[string]int
}

// serveAutoflow serves a fake until stop is called.
func serveAutoflow(dir string) (address string, stop func(), err error) {
	lis, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	a := &autoflow{dir: dir, asked: map[string]int{}}
	server := grpc.NewServer(grpc.UnaryInterceptor(a.unary), grpc.StreamInterceptor(a.stream))
	autoflowv1.RegisterAutoFlowServer(server, a)
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(lis) }()
	return lis.Addr().String(), func() { server.Stop(); <-done }, nil
}

func (a *autoflow) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, _ grpc.UnaryHandler) (any, error) {
	lines, answer, err := a.answer(ctx, info.FullMethod, req)
	if err != nil {
		return nil, err
	}
	return answer, protojson.Unmarshal([]byte(strings.Join(lines, "\n")), answer)
}

func (a *autoflow) stream(_ any, s grpc.ServerStream, info *grpc.StreamServerInfo, _ grpc.StreamHandler) error {
	req := &autoflowv1.WatchWorkflowRequest{}
	if err := s.RecvMsg(req); err != nil {
		return err
	}
	lines, answer, err := a.answer(s.Context(), info.FullMethod, req)
	if err != nil {
		return err
	}
	for _, line := range lines {
		message := answer.ProtoReflect().New().Interface()
		if err := protojson.Unmarshal([]byte(line), message); err != nil {
			return err
		}
		if err := s.SendMsg(message); err != nil {
			return err
		}
	}
	return nil
}

// answer is the lines of the answer to a request, and an empty message of its type.
func (a *autoflow) answer(ctx context.Context, fullMethod string, req any) ([]string, proto.Message, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if token := metadata.ValueFromIncomingContext(ctx, "authorization"); len(token) != 1 || token[0] != "Bearer secret" {
		return nil, nil, refusal(fault.Unauthenticated, "the token is not known")
	}
	method := path.Base(fullMethod)
	a.asked[method]++
	sent, err := protojson.Marshal(req.(proto.Message))
	if err != nil {
		return nil, nil, err
	}
	sent = []byte(strings.ReplaceAll(string(sent), `": `, `":`) + "\n") // protojson varies its spaces on purpose
	_ = os.WriteFile(filepath.Join(a.dir, method+".sent"), []byte(strings.ReplaceAll(string(sent), `, "`, `,"`)), 0o600)
	text, err := os.ReadFile(filepath.Join(a.dir, fmt.Sprintf("%s.%d.json", method, a.asked[method])))
	if err != nil {
		text, err = os.ReadFile(filepath.Join(a.dir, method+".json"))
	}
	if err != nil {
		return nil, nil, status.Error(codes.Unimplemented, err.Error())
	}
	answer := strings.TrimSpace(string(text))
	if rest, refused := strings.CutPrefix(answer, "error "); refused {
		name, message, _ := strings.Cut(rest, " ")
		for _, class := range fault.Classes() {
			if class.String() == name {
				return nil, nil, refusal(class, message)
			}
		}
	}
	service := autoflowv1.File_lockstep_autoflow_v1_autoflow_proto.Services().ByName("AutoFlow")
	output, err := protoregistry.GlobalTypes.FindMessageByName(service.Methods().ByName(protoreflect.Name(method)).Output().FullName())
	if err != nil {
		return nil, nil, err
	}
	return strings.Split(answer, "\n"), output.New().Interface(), nil
}

// refusal is a status as our servers make it, without its details: the code is enough for a class.
func refusal(class fault.Class, message string) error {
	return status.Error(codes.Code(fault.Describe(class).GRPC), message)
}
