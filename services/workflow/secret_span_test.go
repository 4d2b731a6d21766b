package workflow_test

import (
	"bytes"
	"errors"
	"net"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
)

// exported are the bytes that a service has sent to a collector of traces. It is one that does not look at what it is sent: a
// secret would be there as it is, for strings in a protocol buffer are.
type exported struct {
	address string

	mu   sync.Mutex
	sent bytes.Buffer
}

// asIs is a codec that keeps messages as bytes.
type asIs struct{}

var _ encoding.CodecV2 = asIs{}

func (asIs) Name() string { return "proto" }

func (asIs) Marshal(v any) (mem.BufferSlice, error) {
	b, ok := v.([]byte)
	if !ok {
		return nil, errors.New("expected bytes")
	}
	return mem.BufferSlice{mem.SliceBuffer(b)}, nil
}

func (asIs) Unmarshal(data mem.BufferSlice, v any) error {
	to, ok := v.(*[]byte)
	if !ok {
		return errors.New("expected bytes")
	}
	*to = data.Materialize()
	return nil
}

func newExported(t *testing.T) *exported {
	t.Helper()
	var lc net.ListenConfig
	lis, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	e := &exported{address: lis.Addr().String()}
	server := grpc.NewServer(grpc.ForceServerCodecV2(asIs{}), grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		var message []byte
		if err := stream.RecvMsg(&message); err != nil {
			return err
		}
		e.mu.Lock()
		e.sent.Write(message)
		e.mu.Unlock()
		return stream.SendMsg([]byte{}) // the empty answer: all is well
	}))
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(lis) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return e
}

// TestASecretIsInNoSpan: what is exported of a run (OTLP) tells of the Function that failed, and not of the secret that it used and
// that the server said back (D27). It is not parallel: where traces go is the environment's to say.
func TestASecretIsInNoSpan(t *testing.T) {
	collector := newExported(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://"+collector.address)
	t.Setenv("OTEL_TRACES_SAMPLER", "always_on")
	s, w, canary, _ := use(t)
	s.down() // which sends what there is
	collector.mu.Lock()
	defer collector.mu.Unlock()
	sent := collector.sent.Bytes()
	for _, name := range []string{"git.read_file", "lockstep.autoflow.v1.AutoFlow/StartWorkflow", w.GetWorkflowRef()} {
		if !bytes.Contains(sent, []byte(name)) {
			t.Errorf("%d bytes of spans were sent, without %q: they do not tell of the run", len(sent), name)
		}
	}
	if bytes.Contains(sent, []byte(canary)) {
		t.Error("the spans have the secret")
	}
}
