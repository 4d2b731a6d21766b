package workflow_test

import (
	"bytes"
	"context"
	"sync"
	"testing"

	collectorv1 "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/lockstep-cd/lockstep/pkg/telemetry/tracetest"
	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
)

// TestASecretIsInNoSpan: the exported spans of a run (OTLP) contain the Function that failed, and not the secret that it used and that
// the server echoed (D27); nor one that a worker was sent. It is not parallel, because the exporter is configured by environment variables.
func TestASecretIsInNoSpan(t *testing.T) {
	for name, tt := range map[string]struct {
		use      func(*testing.T) (*service, *autoflowv1.Workflow, string, string)
		function string
	}{
		"of a function here": {use, "git.read_file"}, "of a worker": {useWorker, "AutoFlow/StartWorkflow"}, "of a GitHub App": {useApp, "git.read_file"},
		"of a key of SSH": {useKey, "git.read_file"},
	} {
		t.Run(name, func(t *testing.T) {
			var (
				mu   sync.Mutex
				sent bytes.Buffer // as it was sent: strings in a protocol buffer are as they are
			)
			address := tracetest.Collect(t, func(req *collectorv1.ExportTraceServiceRequest) {
				message, err := proto.Marshal(req)
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				sent.Write(message)
			})
			t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://"+address)
			t.Setenv("OTEL_TRACES_SAMPLER", "always_on")
			t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "100") // milliseconds
			s, w, canary, _ := tt.use(t)
			wanted := []string{tt.function, "lockstep.autoflow.v1.AutoFlow/StartWorkflow"}
			if tt.function == "git.read_file" {
				wanted = append(wanted, w.GetWorkflowRef())
			}
			// Before the service ends, which waits for what is still to be sent, but not for long.
			for _, name := range wanted {
				s.eventually("the spans contain the run: "+name, func(context.Context) bool {
					mu.Lock()
					defer mu.Unlock()
					return bytes.Contains(sent.Bytes(), []byte(name))
				})
			}
			s.down()
			mu.Lock()
			defer mu.Unlock()
			for _, part := range secretsOf(canary) {
				if bytes.Contains(sent.Bytes(), []byte(part)) {
					t.Errorf("the spans have %s", part)
				}
			}
		})
	}
}
