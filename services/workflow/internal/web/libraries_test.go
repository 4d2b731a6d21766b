package web

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
)

// D62: what is signed with two secrets passes the libraries that Standard Webhooks publishes for other languages, in the receivers of
// docs/examples/webhook, by either secret; another body, another id, an older time and a third secret do not. What is missing on a
// machine is left out; `make clients` installs it.
func TestSignedRequestsPassTheLibrariesOfOtherLanguages(t *testing.T) {
	t.Parallel()
	examples, err := filepath.Abs("../../../../docs/examples/webhook")
	if err != nil {
		t.Fatal(err)
	}
	c, url, got := receiver(t, map[string]string{"old": oldSecret, "new": newSecret})
	const body = `{"specversion":"1.0","type":"com.lockstep.notification.v1","data":{"title":"a <ü> \"b\""}}`
	_, err = c.Send(t.Context(), activity.WebRequest{
		Organization: 1, Method: http.MethodPost, URL: url + "/hooks/a", Body: []byte(body), Timeout: 10 * time.Second, Keep: 1000,
		Sign: []string{"new", "old"}, SignID: "message_7",
	})
	if err != nil {
		t.Fatal(err)
	}
	sent := <-got
	for name, start := range map[string]func(t *testing.T) *exec.Cmd{
		"JavaScript": func(t *testing.T) *exec.Cmd {
			t.Helper()
			if _, err := os.Stat(filepath.Join(examples, "javascript", "node_modules", "standardwebhooks")); err != nil {
				t.Skip("found no library of Standard Webhooks for JavaScript: run npm ci in docs/examples/webhook/javascript, or make clients")
			}
			return exec.CommandContext(t.Context(), "node", filepath.Join(examples, "javascript", "verify.mjs"))
		},
		"Python": func(t *testing.T) *exec.Cmd {
			t.Helper()
			command := exec.CommandContext(t.Context(), "python3", filepath.Join(examples, "python", "verify.py"))
			command.Env = append(os.Environ(), "PYTHONPATH="+filepath.Join(examples, "python", "libraries"))
			found := exec.CommandContext(t.Context(), "python3", "-c", "import standardwebhooks")
			if found.Env = command.Env; found.Run() != nil {
				t.Skip("found no library of Standard Webhooks for Python: install docs/examples/webhook/python/requirements.txt, or make clients")
			}
			return command
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			verify := func(secret string, change func(headers map[string]string, body *string)) (string, error) {
				headers, text := map[string]string{}, string(sent.body)
				for name := range sent.header {
					headers[strings.ToLower(name)] = sent.header.Get(name)
				}
				change(headers, &text)
				request, err := json.Marshal(map[string]any{"headers": headers, "body": text})
				if err != nil {
					t.Fatal(err)
				}
				command := start(t)
				if command.Env == nil {
					command.Env = os.Environ()
				}
				command.Env, command.Stdin, command.Stderr = append(command.Env, "WEBHOOK_SECRET="+secret), bytes.NewReader(request), os.Stderr
				out, err := command.Output()
				return strings.TrimSpace(string(out)), err
			}
			as := func(map[string]string, *string) {}
			for which, secret := range map[string]string{"old": oldSecret, "new": newSecret} {
				if out, err := verify(secret, as); err != nil || out != "valid message_7 com.lockstep.notification.v1" {
					t.Errorf("the %s secret: found %q, %v", which, out, err)
				}
			}
			for what, change := range map[string]func(map[string]string, *string){
				"another body": func(_ map[string]string, body *string) { *body = strings.Replace(*body, "title", "name", 1) },
				"another id":   func(h map[string]string, _ *string) { h["webhook-id"] = "message_8" },
				"an older time": func(h map[string]string, _ *string) {
					h["webhook-timestamp"] = fmt.Sprint(time.Unix(1_700_000_000, 0).Unix())
				},
			} {
				if out, err := verify(newSecret, change); err == nil || !strings.HasPrefix(out, "invalid") {
					t.Errorf("%s: found %q, %v; want it refused", what, out, err)
				}
			}
			if out, err := verify("whsec_"+strings.Repeat("eHh4", 8), as); err == nil || !strings.HasPrefix(out, "invalid") {
				t.Errorf("a third secret: found %q, %v; want it refused", out, err)
			}
		})
	}
}
