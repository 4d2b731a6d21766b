package workflow_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
	"github.com/lockstep-cd/lockstep/services/workflow"
)

// A broken channel never delays a rollout (D62): while more messages are sent to a channel that never answers than there are places for
// Functions and for requests of an organization, a rollout's request is made at once, and a message to another channel arrives.
func TestAChannelThatNeverAnswersDelaysNoRollout(t *testing.T) {
	t.Parallel()
	program, err := os.ReadFile(filepath.Join("..", "domain", "internal", "core", "notify", "send.star"))
	if err != nil {
		t.Fatal(err)
	}
	var silent atomic.Int32
	ended := make(chan struct{})
	never := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		silent.Add(1)
		<-ended
	}))
	t.Cleanup(func() { close(ended); never.Close() })
	fine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "fine") }))
	t.Cleanup(fine.Close)
	s := startWith(t, func(c *workflow.Config) {
		c.HTTPAllowNetworks = []string{"127.0.0.1"}
		c.MaxActivities = 24 // so 12 for deliveries, of which one server has 8
	})
	start := func(id, source, inputs string) {
		t.Helper()
		_, err := s.StartWorkflow(t.Context(), &autoflowv1.StartWorkflowRequest{
			OrganizationId: organization, WorkflowId: id, Starlark: []byte(source), Inputs: []byte(inputs),
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	message := func(url string) string {
		return fmt.Sprintf(`{"function": "http.request", "answer": {"ok": "", "ref": ""}, "request": {"url": "%s/hook", "method": "POST",
			"json": {"text": "hello"}, "timeout": 300, "retry_status": [], "repeatable": false, "max_body": 65536}}`, url)
	}
	const sent = 40
	for i := range sent {
		start(fmt.Sprintf("notification-%d-1", i+1), string(program), message(never.URL))
	}
	s.eventually("the channel is silent to as many as there may be", func(context.Context) bool { return silent.Load() == 8 })
	for i := range 20 {
		id := fmt.Sprintf("rollout-%d", i+1)
		start(id, `
def main():
    set_status("found", run("http.request", {"url": "`+fine.URL+`", "method": "GET"}, timeout = 20).body)
`, "{}")
		if w := s.await(id, autoflowv1.WorkflowState_WORKFLOW_STATE_COMPLETED); w.GetStatus()["found"] != `"fine"` {
			t.Fatalf("%s: found %v; want what the server answers, at once", id, w.GetStatus())
		}
	}
	start("notification-1000-1", string(program), message(fine.URL))
	if w := s.await("notification-1000-1", autoflowv1.WorkflowState_WORKFLOW_STATE_COMPLETED); w.GetStatus()["outcome"] != `"sent"` {
		t.Errorf("another channel: found %v; want that it has its message", w.GetStatus())
	}
	if n := silent.Load(); n != 8 {
		t.Errorf("found %d requests to the channel that never answers; want 8", n)
	}
	refused := s.await("notification-40-1", autoflowv1.WorkflowState_WORKFLOW_STATE_COMPLETED).GetStatus()
	if refused["outcome"] != `"again"` || !strings.Contains(refused["why"], "8 messages in progress") {
		t.Errorf("one message more: found %v; want that it is sent again, and why", refused)
	}
}
