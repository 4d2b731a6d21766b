package workflow_test

import (
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

// The program with which the domain service sends notifications reports what came of a message, whatever the channel answers, and calls it
// once (D62). Secrets are in the request, and in nothing that is kept.
func TestTheProgramOfNotificationsReportsTheOutcome(t *testing.T) {
	t.Parallel()
	program, err := os.ReadFile(filepath.Join("..", "domain", "internal", "core", "notify", "send.star"))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, []byte("R0UT1NGK3Y"), 0o600); err != nil {
		t.Fatal(err)
	}
	var calls atomic.Int32
	var body atomic.Value
	ended := make(chan struct{})
	channel := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		sent, _ := io.ReadAll(r.Body)
		body.Store(string(sent))
		w.Header().Set("Content-Type", "application/json")
		switch strings.TrimPrefix(r.URL.Path, "/hook/") {
		case "fine":
			_, _ = io.WriteString(w, `{"ok": true, "ts": "17.5"}`)
		case "lies":
			_, _ = io.WriteString(w, `[{"ok": "R0UT1NGK3Y"}]`)
		case "denies":
			_, _ = io.WriteString(w, `{"ok": false, "error": "channel_not_found"}`)
		case "slow":
			_, _ = io.WriteString(w, `{"ok": false, "error": "ratelimited"}`)
		case "busy":
			w.Header().Set("Retry-After", "120")
			w.WriteHeader(http.StatusTooManyRequests)
		case "broken":
			w.WriteHeader(http.StatusInternalServerError)
		case "gone":
			w.WriteHeader(http.StatusNotFound)
		default: // it never answers
			<-ended
		}
	}))
	t.Cleanup(func() { close(ended); channel.Close() })
	s := startWith(t, func(c *workflow.Config) {
		c.HTTPAllowNetworks = []string{"127.0.0.1"}
		c.HTTPCredentials = []workflow.HTTPCredential{
			{Name: "key", URLPrefixes: []string{channel.URL + "/hook"}, Ref: "file:" + file, Organizations: []int64{organization}},
		}
	})
	run := 0
	for path, want := range map[string]string{
		"hook/fine":   `"sent" "17.5" `,
		"hook/lies":   `"refused" "" `,
		"hook/denies": `"refused" "" "the channel refused the message: channel_not_found"`,
		"hook/slow":   `"again" "" "the channel refused the message: ratelimited"`,
		"hook/busy":   `"again" "" "the channel answered with status 429" 120`,
		"hook/broken": `"again" "" "the channel answered with status 500"`,
		"hook/gone":   `"refused" "" "the channel answered with status 404`,
		"hook/never":  `"again" "" `,
		"elsewhere":   `"refused" "" `,
	} {
		calls.Store(0)
		run++
		id := fmt.Sprintf("notification-7-%d", run)
		_, err := s.StartWorkflow(t.Context(), &autoflowv1.StartWorkflowRequest{
			OrganizationId: organization, WorkflowId: id, Starlark: program,
			Inputs: fmt.Appendf(nil, `{"function": "http.request", "answer": {"ok": "ok", "ref": "ts"}, "request": {"url": %q, "method": "POST",
				"json": {"event_action": "trigger"}, "timeout": 1, "retry_status": [], "json_credentials": {"routing_key": "key"}}}`,
				channel.URL+"/"+path),
		})
		if err != nil {
			t.Fatal(err)
		}
		w := s.await(id, autoflowv1.WorkflowState_WORKFLOW_STATE_COMPLETED)
		status := w.GetStatus()
		got := strings.Join([]string{status["outcome"], status["ref"], status["why"], status["wait"]}, " ")
		if !strings.HasPrefix(got, want) || strings.Contains(got, "R0UT1NGK3Y") {
			t.Errorf("%s: found %s; want %s", path, got, want)
		}
		reached := int32(1)
		if path == "elsewhere" {
			reached = 0
		}
		if n := calls.Load(); n != reached {
			t.Errorf("%s: found %d requests; want %d", path, n, reached)
		}
		if sent, _ := body.Load().(string); reached == 1 && !strings.Contains(sent, `"routing_key":"R0UT1NGK3Y"`) {
			t.Errorf("%s: found the body %s; want the routing key in it", path, sent)
		}
	}
}
