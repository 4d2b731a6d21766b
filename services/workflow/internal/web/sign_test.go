package web

import (
	"context"
	"encoding/base64"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	standard "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/httpx"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
)

// received is what a receiver of webhooks was sent.
type received struct {
	path   string
	header http.Header
	body   []byte
}

// receiver is a server of webhooks, and a client with credentials for it: each a file with a secret.
func receiver(t *testing.T, secrets map[string]string) (*Client, string, chan received) {
	t.Helper()
	got := make(chan received, 10)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- received{r.URL.RequestURI(), r.Header, body}
		_, _ = io.WriteString(w, "thanks for "+r.URL.RequestURI())
	}))
	t.Cleanup(server.Close)
	transport, err := httpx.New(httpx.Config{Allow: []string{"127.0.0.1"}, MaxBody: 1 << 40})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(transport.Close)
	var all []Credential
	for name, value := range secrets {
		file := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(file, []byte(strings.ReplaceAll(value, "SERVER", server.URL)), 0o600); err != nil {
			t.Fatal(err)
		}
		all = append(all, Credential{Name: name, URLPrefixes: []string{server.URL + "/hooks", server.URL + "/team"}, Ref: "file:" + file})
	}
	c, err := New(Deps{HTTP: transport, Credentials: all})
	if err != nil {
		t.Fatal(err)
	}
	return c, server.URL, got
}

const (
	oldSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	newSecret = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
)

// A receiver that knows either of two secrets accepts what is signed with both, and nothing that was changed (D62).
func TestSignedRequestsPassTheLibraryOfStandardWebhooks(t *testing.T) {
	t.Parallel()
	c, url, got := receiver(t, map[string]string{"old": oldSecret, "new": newSecret + "\n"})
	r := activity.WebRequest{
		Organization: 1, Method: http.MethodPost, URL: url + "/hooks/a", Body: []byte(`{"a":"<ü>"}`), Timeout: 10 * time.Second, Keep: 1000,
		Sign: []string{"new", "old"}, SignID: "message_7",
	}
	if _, err := c.Send(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	one := <-got
	for name, secret := range map[string]string{"old": oldSecret, "new": newSecret} {
		hook, err := standard.NewWebhook(secret)
		if err != nil {
			t.Fatal(err)
		}
		if err := hook.Verify(one.body, one.header); err != nil {
			t.Errorf("%s secret: %v; headers %v", name, err, one.header)
		}
		if err := hook.Verify([]byte(`{"a":"b"}`), one.header); err == nil {
			t.Errorf("%s secret: another body is accepted", name)
		}
	}
	other, err := standard.NewWebhook("whsec_" + base64.StdEncoding.EncodeToString([]byte(strings.Repeat("x", 24))))
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Verify(one.body, one.header); err == nil {
		t.Error("a third secret is accepted")
	}
	if id := one.header.Get("webhook-id"); id != "message_7" {
		t.Errorf("found id %q", id)
	}
}

// The address of an incoming webhook is a secret: it is in no error and in no answer.
func TestTheURLMayBeASecret(t *testing.T) {
	t.Parallel()
	c, url, got := receiver(t, map[string]string{
		"hook": "SERVER/hooks/T0/B0/canary-of-url?k=canary-of-query", "elsewhere": "https://example.com/hooks/canary",
		"above": "SERVER/other/canary", "text": "canary without a URL", "short": "whsec_YQ==",
	})
	send := func(hook string, sign ...string) error {
		ctx, _ := activity.WithConcealed(t.Context())
		_, err := c.Send(ctx, activity.WebRequest{
			Organization: 1, Method: http.MethodPost, URL: url + "/hooks", URLCredential: hook, Timeout: 10 * time.Second, Keep: 1000, Sign: sign,
		})
		return err
	}
	ctx, _ := activity.WithConcealed(t.Context())
	answer, err := c.Send(ctx, activity.WebRequest{
		Organization: 1, Method: http.MethodPost, URL: url + "/hooks", URLCredential: "hook", Timeout: 10 * time.Second, Keep: 1000,
	})
	if err != nil {
		t.Fatal(err)
	}
	if one := <-got; one.path != "/hooks/T0/B0/canary-of-url?k=canary-of-query" {
		t.Errorf("found %s", one.path)
	}
	if shown, _ := activity.Clean(ctx, string(answer.Body)).(string); strings.Contains(shown, "canary") {
		t.Errorf("the answer shows the URL: %s", shown)
	}
	for name, class := range map[string]fault.Class{
		"elsewhere": fault.Denied, "above": fault.Denied, "text": fault.Unauthenticated, "unknown": fault.Denied,
	} {
		err := send(name)
		if !fault.Is(err, class) || strings.Contains(err.Error(), "canary") {
			t.Errorf("%s: found %v", name, err)
		}
	}
	if err := send("", "short"); !fault.Is(err, fault.Unauthenticated) {
		t.Errorf("a secret of one byte: found %v", err)
	}
	if len(got) != 0 {
		t.Errorf("found %d more requests", len(got))
	}
}

// A server that never answers is Unavailable or Conflict when the time is over, and its URL stays unknown.
func TestAWebhookThatNeverAnswers(t *testing.T) {
	t.Parallel()
	c, url, _ := receiver(t, map[string]string{"hook": "SERVER/hooks/canary"})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := c.Send(ctx, activity.WebRequest{
		Organization: 1, Method: http.MethodPost, URL: url + "/hooks", URLCredential: "hook", Timeout: time.Second, Keep: 10, Repeatable: true,
	})
	if !fault.Is(err, fault.Unavailable) || strings.Contains(err.Error(), "canary") {
		t.Errorf("found %v", err)
	}
}

// A secret that is a member of the body reaches the server and is in no answer, and is sent to no URL but its own (D62).
func TestASecretIsAMemberOfTheBody(t *testing.T) {
	t.Parallel()
	c, url, got := receiver(t, map[string]string{"key": "R0UT1NG\n"})
	r := activity.WebRequest{
		Organization: 1, Method: http.MethodPost, URL: url + "/hooks/a", Body: []byte(`{"a":"<ü>"}`), Timeout: 10 * time.Second, Keep: 1000,
		JSONCredentials: map[string]string{"routing_key": "key"},
	}
	if _, err := c.Send(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if one := <-got; string(one.body) != `{"a":"<ü>","routing_key":"R0UT1NG"}` {
		t.Errorf("found %s", one.body)
	}
	inside := r
	inside.Body = []byte(`{"n":12345678901234567890,"list":[{"a/b":{}},7]}`)
	inside.JSONCredentials = map[string]string{"/list/0/a~1b/token": "key"}
	if _, err := c.Send(t.Context(), inside); err != nil {
		t.Fatal(err)
	}
	if one := <-got; string(one.body) != `{"list":[{"a/b":{"token":"R0UT1NG"}},7],"n":12345678901234567890}` {
		t.Errorf("found %s", one.body)
	}
	for name, change := range map[string]func(*activity.WebRequest){
		"no list at a pointer":   func(r *activity.WebRequest) { r.JSONCredentials = map[string]string{"/list/0/x": "key"} },
		"no object at a pointer": func(r *activity.WebRequest) { r.JSONCredentials = map[string]string{"/a/x": "key"} },
		"another place":          func(r *activity.WebRequest) { r.URL = url + "/elsewhere" },
		"another credential":     func(r *activity.WebRequest) { r.JSONCredentials = map[string]string{"routing_key": "other"} },
		"a body without one":     func(r *activity.WebRequest) { r.Body = []byte(`[1]`) },
		"a member that exists":   func(r *activity.WebRequest) { r.Body = []byte(`{"routing_key":"x"}`) },
	} {
		wrong := r
		change(&wrong)
		if _, err := c.Send(t.Context(), wrong); err == nil || strings.Contains(err.Error(), "R0UT1NG") {
			t.Errorf("%s: found %v; expected an error without the secret", name, err)
		}
	}
}
