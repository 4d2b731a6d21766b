package workflow_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
	"github.com/lockstep-cd/lockstep/services/workflow"
)

// buffer is a log that is written and read at the same time.
type buffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.String()
}

// What http.request sends as a credential is in no table, no file of JetStream, no log and no answer, although the server sends it back in
// every part of its answer, and although the run passes it by a name of its own (issue 18, item 2; D27).
func TestACredentialOfARequestLeavesNoTrace(t *testing.T) {
	t.Parallel()
	canary := rand.Text() + `"<`
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(canary), 0o600); err != nil {
		t.Fatal(err)
	}
	var seen sync.Map
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sent := r.Header.Get("Authorization") + r.Header.Get("X-Key")
		seen.Store(r.URL.Path, sent)
		w.Header().Set("Etag", sent)
		switch r.URL.Path {
		case "/token": // R3-41: the token has the secret in it, so that it is searched for as well
			_, secret, _ := r.BasicAuth()
			secret, _ = url.QueryUnescape(secret)
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(map[string]any{"access_token": secret + "-issued", "token_type": "bearer", "expires_in": 300})
		case "/api/json":
			w.Header().Set("Content-Type", "application/json")
			_, _ = fmt.Fprintf(w, `{"n": 1, %q: [%q, %q]}`, sent, sent, base64.StdEncoding.EncodeToString([]byte(sent)))
		case "/api/broken":
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = io.WriteString(w, sent)
		default:
			_, _ = io.WriteString(w, "you are "+sent)
		}
	}))
	t.Cleanup(web.Close)
	s := startWith(t, func(c *workflow.Config) {
		c.HTTPAllowNetworks = []string{"127.0.0.1"}
		c.LogLevel = "debug"
		c.HTTPCredentials = []workflow.HTTPCredential{
			{Name: "bearer", URLPrefixes: []string{web.URL + "/api"}, Ref: "file:" + file, Organizations: []int64{organization}},
			{Name: "basic", URLPrefixes: []string{web.URL + "/api"}, Ref: "file:" + file, Username: "u", Organizations: []int64{organization}},
			{Name: "header", URLPrefixes: []string{web.URL + "/api"}, Ref: "file:" + file, Header: "X-Key", Organizations: []int64{organization}},
			{
				Name: "client", URLPrefixes: []string{web.URL + "/api"}, Ref: "file:" + file, Organizations: []int64{organization},
				OAuth2: workflow.OAuth2Client{TokenURL: web.URL + "/token", ClientID: "u", Scopes: []string{"read"}},
			},
			{Name: "theirs", URLPrefixes: []string{web.URL + "/api"}, Ref: "file:" + file + "2", Organizations: []int64{organization + 1}},
		}
	})
	s.down()
	var log buffer
	kill := s.spawnTo(&log)
	_, err := s.StartWorkflow(t.Context(), &autoflowv1.StartWorkflowRequest{
		OrganizationId: organization, WorkflowId: "requests",
		Secrets: map[string]string{"own": "file:" + file, "other": "file:" + file + "2"},
		Inputs:  []byte(`{"server": "` + web.URL + `"}`),
		Starlark: []byte(`
def ask(path, credential, **more):
    args = {"url": server + path, "credential": credential}
    args.update(more)
    answer = run("http.request", args, on_error = "return", retry = {"attempts": 2, "initial": 1})
    print(path, credential, answer)
    run("emit", {"type": "com.gitlab.cd.rollout.failed", "data": {"rollout_id": 5, "reason": str(answer)[:900]}}, on_error = "return")
    return answer

for credential in ["bearer", "basic", "header", "own", "client"]:
    for path in ["/api/text", "/api/json"]:
        answer = ask(path, credential, method = "POST", json = {"a": 1})
        if not answer.ok or answer.value.status != 200 or "[redacted]" not in str(answer.value.headers):
            fail("%s with %s: %s" % (path, credential, answer))
if ask("/api/broken", "bearer").code != "status":
    fail("expected status")
for path, credential in [("/elsewhere", "bearer"), ("/api", "theirs"), ("/api", "other"), ("/api", "none")]:
    if ask(path, credential).code != "unauthorized":
        fail("%s with %s was not refused" % (path, credential))
run("http.request", {"url": server + "/api/broken", "credential": "basic"}, retry = False)
`),
	})
	if err != nil {
		t.Fatal(err)
	}
	w := s.await("requests", autoflowv1.WorkflowState_WORKFLOW_STATE_FAILED)
	if !strings.Contains(w.GetError(), "answered 503") {
		t.Fatal(w.GetError())
	}
	for path, want := range map[string]bool{"/token": true, "/api/text": true, "/api/json": true, "/api/broken": true, "/elsewhere": false, "/api": false} {
		if _, was := seen.Load(path); was != want {
			t.Errorf("%s was requested: %t, expected %t", path, was, want)
		}
	}
	history, err := s.GetHistory(t.Context(), &autoflowv1.GetHistoryRequest{OrganizationId: organization, WorkflowId: "requests"})
	if err != nil {
		t.Fatal(err)
	}
	logs, err := s.GetLogs(t.Context(), &autoflowv1.GetLogsRequest{OrganizationId: organization, WorkflowId: "requests"})
	if err != nil {
		t.Fatal(err)
	}
	places := map[string]string{"the workflow": w.String(), "its history": history.String(), "its logs": logs.String()}
	tables(t, s, places)
	kill()
	places["the log of the service"] = log.String()
	s.bus.Stop(t)
	files(t, filepath.Dir(filepath.Dir(file)), file, places)
	if !strings.Contains(places["table entry"], "http.request") || !strings.Contains(places["the log of the service"], "function refused") {
		t.Errorf("looked at %d places", len(places))
	}
	bare := strings.TrimSuffix(canary, `"<`)
	for place, text := range places {
		for _, form := range []string{bare, base64.StdEncoding.EncodeToString([]byte("u:" + canary)), base64.StdEncoding.EncodeToString([]byte(canary))} {
			if strings.Contains(text, form) {
				t.Errorf("%s has the secret", place)
			}
		}
	}
}

// A request whose service is killed while it waits for the answer is sent again under the same key: the server executes it once (E24).
func TestARequestIsExecutedOnceAlthoughItsServiceIsKilled(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	attempts, effects := 0, map[string]int{}
	arrived := make(chan struct{}, 10)
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		attempts++
		first := attempts == 1
		body, _ := io.ReadAll(r.Body)
		effects[r.Header.Get("Idempotency-Key")+" "+string(body)]++
		mu.Unlock()
		arrived <- struct{}{}
		if first {
			<-r.Context().Done() // the killed process closes its connection
			return
		}
		_, _ = io.WriteString(w, "done")
	}))
	t.Cleanup(web.Close)
	s := startWith(t, func(c *workflow.Config) { c.HTTPAllowNetworks = []string{"127.0.0.1"} })
	s.down()
	kill := s.spawn()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	s.submit("once", `
answer = run("http.request", {"url": url, "method": "POST", "body": "deploy"})
if answer.body != "done":
    fail(str(answer))
`, `{"url": "`+web.URL+`"}`)
	select {
	case <-arrived:
	case <-ctx.Done():
		t.Fatal("no request")
	}
	kill()
	s.up()
	s.await("once", autoflowv1.WorkflowState_WORKFLOW_STATE_COMPLETED)
	mu.Lock()
	defer mu.Unlock()
	if attempts != 2 || len(effects) != 1 {
		t.Errorf("found %d attempts with the keys %v, expected 2 with one", attempts, effects)
	}
	for key := range effects {
		if !strings.Contains(key, "/0.0 deploy") {
			t.Errorf("found the key %q, expected the id of the call", key)
		}
	}
}
