// Package tracetest is an OpenTelemetry collector for tests: it receives what processes export by OTLP over gRPC.
//
// It is for tests only and does not inspect the spans: the test does.
package tracetest

import (
	"context"
	"net"
	"sync"
	"testing"

	collectorv1 "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"
)

// Collect runs a collector until the test ends, and returns its host:port. take is called with each request, one at a time.
func Collect(tb testing.TB, take func(*collectorv1.ExportTraceServiceRequest)) (address string) {
	tb.Helper()
	lis, err := (&net.ListenConfig{}).Listen(tb.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	server := grpc.NewServer()
	collectorv1.RegisterTraceServiceServer(server, &collector{take: take})
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(lis) }()
	tb.Cleanup(func() {
		server.Stop()
		if err := <-ended; err != nil {
			tb.Errorf("the collector ended with %v", err)
		}
	})
	return lis.Addr().String()
}

type collector struct {
	collectorv1.UnimplementedTraceServiceServer

	mu   sync.Mutex
	take func(*collectorv1.ExportTraceServiceRequest)
}

// Export implements the trace service.
func (c *collector) Export(_ context.Context, req *collectorv1.ExportTraceServiceRequest) (*collectorv1.ExportTraceServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.take(req)
	return &collectorv1.ExportTraceServiceResponse{}, nil
}
