package workflow_test

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/sealing"
	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
	"github.com/lockstep-cd/lockstep/services/workflow"
)

// secretsOf is what must be nowhere: a secret, what an App signs, and private keys.
func secretsOf(canary string) []string {
	return []string{canary, "eyJhbGciOiJSUzI1NiIs", "PRIVATE KEY", "b3BlbnNzaC1rZXktdjE"}
}

// useApp runs a program that logs in as a GitHub App (D56). The server says back all that it was sent: what the App signs, and the token,
// which it takes back meanwhile.
func useApp(t *testing.T) (s *service, w *autoflowv1.Workflow, canary, file string) {
	t.Helper()
	canary = rand.Text()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var issued, sent int
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		message := "no access with " + r.Header.Get("Authorization")
		if strings.HasSuffix(r.URL.Path, "/access_tokens") {
			if issued++; issued == 1 {
				http.Error(w, message, http.StatusForbidden)
				return
			}
			w.WriteHeader(http.StatusCreated)
			end := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
			_, _ = fmt.Fprintf(w, `{"token":"%s","expires_at":"%s","message":%q}`, canary, end, message)
			return
		}
		if strings.Contains(r.Header.Get("Authorization"), canary) {
			sent++
		}
		if strings.Contains(r.URL.Path, "/branches/gone") || strings.Contains(r.URL.Path, "/commits/gone") {
			http.Error(w, message, http.StatusUnauthorized)
			return
		}
		w.WriteHeader(http.StatusForbidden)
		_ = json.NewEncoder(w).Encode(map[string]string{"message": message})
	}))
	t.Cleanup(web.Close)
	v := newVault(t, func(*vault, *workflow.Config) {})
	terms := sealing.Terms{
		Organization: organization, Name: "app", Version: 1, Kind: sealing.Git, URLPrefixes: []string{web.URL + "/team"}, Forge: "github",
		Proof: sealing.Proof{GitHubApp: sealing.GitHubApp{ID: "7", Installation: "42"}},
	}
	e := v.sealed(terms, string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})), 1)
	if e.Proof, err = json.Marshal(terms.Proof); err != nil {
		t.Fatal(err)
	}
	v.report(organization, e)
	read := func(ref string) string {
		return `{"repo_url": "` + web.URL + `/team/x.git", "ref": "` + ref + `", "path": "a", "credential": "app"}`
	}
	_, err = v.StartWorkflow(t.Context(), &autoflowv1.StartWorkflowRequest{
		OrganizationId: organization, WorkflowId: "secret", Starlark: []byte(`
for ref in ["main", "main", "gone", "gone"]:
    r = run("git.read_file", ` + strings.Replace(read("REF"), `"REF"`, "ref", 1) + `, retry = False, on_error = "return")
    print(r.ok, r.code, r.error)
run("git.read_file", ` + read("main") + `, retry = False)
`),
	})
	if err != nil {
		t.Fatal(err)
	}
	w = v.await("secret", autoflowv1.WorkflowState_WORKFLOW_STATE_FAILED)
	mu.Lock()
	defer mu.Unlock()
	if issued < 3 || sent < 4 || !strings.Contains(w.GetError(), "may not use") {
		t.Fatalf("found %d tokens, %d uses and %s; want the App used", issued, sent, w.GetError())
	}
	return v.service, w, canary, v.file
}
