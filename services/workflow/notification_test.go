package workflow_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
	"github.com/lockstep-cd/lockstep/services/workflow"
)

// A member of Mattermost is written to in the channel of the bot and the member, which is made or found first; what fails on the way is
// reported as what fails at the end (D62).
func TestTheProgramOfNotificationsWritesToAMemberOfMattermost(t *testing.T) {
	t.Parallel()
	program, err := os.ReadFile(filepath.Join("..", "domain", "internal", "core", "notify", "send.star"))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, []byte("R0UT1NGK3Y"), 0o600); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var calls []string
	fails := ""
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sent, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		path := strings.TrimPrefix(r.URL.Path, "/api/v4/")
		calls = append(calls, strings.TrimSpace(r.Method+" "+path+" "+string(sent)))
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.Header.Get("Authorization") != "Bearer R0UT1NGK3Y":
			w.WriteHeader(http.StatusUnauthorized)
		case fails == path:
			w.WriteHeader(http.StatusServiceUnavailable)
		case fails == "no id of "+path:
			_, _ = io.WriteString(w, `{}`)
		case path == "users/me":
			_, _ = io.WriteString(w, `{"id": "bot1"}`)
		case path == "channels/direct":
			w.WriteHeader(http.StatusCreated)
			_, _ = io.WriteString(w, `{"id": "direct1"}`)
		case path == "posts":
			w.WriteHeader(http.StatusCreated)
			_, _ = io.WriteString(w, `{"id": "post1"}`)
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	t.Cleanup(server.Close)
	s := startWith(t, func(c *workflow.Config) {
		c.HTTPAllowNetworks = []string{"127.0.0.1"}
		c.HTTPCredentials = []workflow.HTTPCredential{
			{Name: "bot", URLPrefixes: []string{server.URL}, Ref: "file:" + file, Organizations: []int64{organization}},
		}
	})
	all := []string{"GET users/me", `POST channels/direct ["bot1","user7"]`, `POST posts {"channel_id":"direct1","message":"","props":{"attachments":[]}}`}
	for i, one := range []struct {
		fails, want string
		calls       int
	}{
		{"", `"sent" "post1" ""`, 3},
		{"users/me", `"again" "" "the channel answered with status 503"`, 1},
		{"channels/direct", `"again" "" "the channel answered with status 503"`, 2},
		{"posts", `"again" "" "the channel answered with status 503"`, 3},
		{"no id of channels/direct", `"refused" "" "the channel answered without an id"`, 2},
	} {
		mu.Lock()
		calls, fails = nil, one.fails
		mu.Unlock()
		id := fmt.Sprintf("notification-9-%d", i+1)
		_, err := s.StartWorkflow(t.Context(), &autoflowv1.StartWorkflowRequest{
			OrganizationId: organization, WorkflowId: id, Starlark: program,
			Inputs: fmt.Appendf(nil, `{"function": "http.request", "direct": "user7", "answer": {"ok": "", "ref": "id"}, "request": {"url": "%s/api/v4/posts",
				"method": "POST", "credential": "bot", "json": {"message": "", "props": {"attachments": []}}, "timeout": 30, "retry_status": [],
				"repeatable": false, "max_body": 65536}}`, server.URL),
		})
		if err != nil {
			t.Fatal(err)
		}
		status := s.await(id, autoflowv1.WorkflowState_WORKFLOW_STATE_COMPLETED).GetStatus()
		if found := strings.Join([]string{status["outcome"], status["ref"], status["why"]}, " "); found != one.want {
			t.Errorf("%q fails: found %s; want %s", one.fails, found, one.want)
		}
		mu.Lock()
		if diff := cmp.Diff(all[:one.calls], calls); diff != "" {
			t.Errorf("%q fails: calls (-want +got):\n%s", one.fails, diff)
		}
		mu.Unlock()
	}
}

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

// A message of several requests was sent once the channel has accepted all of them, in order; where one fails, the later ones are not sent,
// and the message is sent again from the first one (D62).
func TestTheProgramOfNotificationsSendsSeveralRequests(t *testing.T) {
	t.Parallel()
	program, err := os.ReadFile(filepath.Join("..", "domain", "internal", "core", "notify", "send.star"))
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var calls []string
	fails := ""
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sent, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		calls = append(calls, string(sent))
		if string(sent) == fails {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	t.Cleanup(server.Close)
	s := startWith(t, func(c *workflow.Config) { c.HTTPAllowNetworks = []string{"127.0.0.1"} })
	request := func(n int) string {
		return fmt.Sprintf(`{"url": "%s/cd", "method": "POST", "json": {"n":%d}, "timeout": 30, "retry_status": [], "repeatable": false, "max_body": 65536}`,
			server.URL, n)
	}
	for i, one := range []struct {
		fails, want string
		calls       []string
	}{
		{"", `"sent"`, []string{`{"n":1}`, `{"n":2}`, `{"n":3}`}},
		{`{"n":2}`, `"again"`, []string{`{"n":1}`, `{"n":2}`}},
		{`{"n":1}`, `"again"`, []string{`{"n":1}`}},
	} {
		mu.Lock()
		calls, fails = nil, one.fails
		mu.Unlock()
		id := fmt.Sprintf("notification-10-%d", i+1)
		_, err := s.StartWorkflow(t.Context(), &autoflowv1.StartWorkflowRequest{
			OrganizationId: organization, WorkflowId: id, Starlark: program,
			Inputs: fmt.Appendf(nil, `{"function": "http.request", "answer": {"ok": "", "ref": ""}, "request": %s, "further": [%s, %s]}`,
				request(1), request(2), request(3)),
		})
		if err != nil {
			t.Fatal(err)
		}
		status := s.await(id, autoflowv1.WorkflowState_WORKFLOW_STATE_COMPLETED).GetStatus()
		mu.Lock()
		if diff := cmp.Diff(one.calls, calls); diff != "" || status["outcome"] != one.want {
			t.Errorf("%q fails: found %s; calls (-want +got):\n%s", one.fails, status["outcome"], diff)
		}
		mu.Unlock()
	}
}
