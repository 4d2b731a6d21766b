package secret_test

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/secret"
)

// TestASecretOfKubernetes (D27): a reference is resolved with the pod's own account, anew each time, and no error contains the secret or
// the token.
func TestASecretOfKubernetes(t *testing.T) {
	t.Parallel()
	value, good := atomic.Pointer[string]{}, atomic.Pointer[string]{}
	set := func(p *atomic.Pointer[string], s string) { p.Store(&s) }
	set(&value, "hunter2")
	set(&good, "account-1")
	api := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		shown := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		switch {
		case r.Method != http.MethodGet || shown != *good.Load():
			http.Error(w, "unauthorized: "+shown, http.StatusUnauthorized)
		case r.URL.Path == "/api/v1/namespaces/delivery/secrets/git.example.com":
			_ = json.NewEncoder(w).Encode(map[string]any{"kind": "Secret", "data": map[string][]byte{"token": []byte(*value.Load()), "empty": {}}})
		case r.URL.Path == "/api/v1/namespaces/delivery/secrets/moved":
			http.Redirect(w, r, "https://elsewhere.example.com/", http.StatusTemporaryRedirect)
		case r.URL.Path == "/api/v1/namespaces/delivery/secrets/page":
			fmt.Fprint(w, "<html>hunter2")
		case r.URL.Path == "/api/v1/namespaces/delivery/secrets/away":
			http.Error(w, "hunter2", http.StatusServiceUnavailable)
		case strings.HasPrefix(r.URL.Path, "/api/v1/namespaces/delivery/"):
			http.NotFound(w, r)
		default:
			http.Error(w, "forbidden", http.StatusForbidden)
		}
	}))
	t.Cleanup(api.Close)
	dir := t.TempDir()
	put := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("ca.crt", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: api.Certificate().Raw})))
	put("token", "account-1\n")
	host, port, err := net.SplitHostPort(api.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	r, err := secret.InCluster(host, port, dir)
	if err != nil {
		t.Fatal(err)
	}
	read := func(want string) {
		t.Helper()
		if got, err := r.Read(t.Context(), "k8s:delivery/git.example.com#token"); got != want || err != nil {
			t.Errorf("got %q, %v; want %q", got, err, want)
		}
	}
	read("hunter2")
	set(&value, "rotated")
	read("rotated")
	set(&good, "account-2")
	put("token", "account-2\n")
	read("rotated")
	for ref, want := range map[string]fault.Class{
		"k8s:delivery/git.example.com#other": fault.NotFound, "k8s:delivery/git.example.com#empty": fault.NotFound,
		"k8s:delivery/none#token":     fault.NotFound,
		"k8s:kube-system/admin#token": fault.Denied, "k8s:delivery/moved#token": fault.Unavailable, "k8s:delivery/page#token": fault.Unavailable,
		"k8s:delivery/away#token": fault.Unavailable, "k8s:delivery#token": fault.Invalid, "k8s:delivery/../x#token": fault.Invalid,
		"k8s:Delivery/x#token": fault.Invalid,
	} {
		got, err := r.Read(t.Context(), ref)
		if got != "" || !fault.Is(err, want) || strings.Contains(fmt.Sprint(err), "hunter2") || strings.Contains(fmt.Sprint(err), "account-2") {
			t.Errorf("%s: %q, %v; want %v", ref, got, err, want)
		}
	}
	put("token", "stolen")
	if _, err := r.Read(t.Context(), "k8s:delivery/git.example.com#token"); !fault.Is(err, fault.Denied) ||
		strings.Contains(err.Error(), "stolen") {
		t.Errorf("an account that Kubernetes refuses: %v", err)
	}
}

// TestNoCluster: outside a cluster, and in a pod without a token, the error for a reference to a Secret says so.
func TestNoCluster(t *testing.T) {
	t.Parallel()
	outside, err := secret.InCluster("", "", t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	without, err := secret.InCluster("10.0.0.1", "443", t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for name, r := range map[string]*secret.Reader{"outside": outside, "without a token": without, "nobody's": nil} {
		if _, err := r.Read(t.Context(), "k8s:delivery/git#token"); !fault.Is(err, fault.Invalid) ||
			!strings.Contains(err.Error(), "kubernetesSecrets") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
