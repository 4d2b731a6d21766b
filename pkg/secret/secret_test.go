package secret_test

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/clock/clocktest"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/secret"
)

// fakeVault implements what Vault documents of its HTTP API: reading KV version 2, sign-in with Kubernetes accounts, namespaces, and error
// responses.
type fakeVault struct {
	mu      sync.Mutex
	tokens  map[string]bool
	logins  int
	entries map[string]map[string]any
	sealed  bool
}

func newFakeVault(t *testing.T) (*fakeVault, string) {
	t.Helper()
	f := &fakeVault{tokens: map[string]bool{"root": true}, entries: map[string]map[string]any{
		"secret/data/ci/git": {"token": "hunter2", "count": 3}, "secret/data/ci/empty": {"token": ""},
	}}
	s := httptest.NewServer(f)
	t.Cleanup(s.Close)
	return f, s.URL
}

func (f *fakeVault) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	answer := func(code int, body any) {
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(body)
	}
	refuse := func(code int, why string) { answer(code, map[string]any{"errors": []string{why}}) }
	path := strings.TrimPrefix(r.URL.Path, "/v1/")
	switch {
	case f.sealed:
		refuse(http.StatusServiceUnavailable, "Vault is sealed")
	case r.Header.Get("X-Vault-Request") != "true" || r.Header.Get("X-Vault-Namespace") != "team":
		refuse(http.StatusBadRequest, "missing header")
	case r.Method == http.MethodPost && path == "auth/kubernetes/login":
		var login struct{ Role, JWT string }
		if json.NewDecoder(r.Body).Decode(&login) != nil || login.Role != "lockstep" || login.JWT != "account" {
			refuse(http.StatusForbidden, "permission denied: "+login.JWT)
			return
		}
		f.logins++
		token := "s." + strings.Repeat("x", f.logins)
		f.tokens[token] = true
		answer(http.StatusOK, map[string]any{"auth": map[string]any{"client_token": token, "lease_duration": 3600, "renewable": true}})
	case !f.tokens[r.Header.Get("X-Vault-Token")]:
		refuse(http.StatusForbidden, "permission denied")
	case path == "secret/data/moved":
		http.Redirect(w, r, "http://elsewhere.example.com/", http.StatusTemporaryRedirect)
	case f.entries[path] == nil: // an entry whose last version was deleted is 404 with its metadata
		answer(http.StatusNotFound, map[string]any{"data": map[string]any{"data": nil, "metadata": map[string]any{"version": 2}}})
	default:
		answer(http.StatusOK, map[string]any{"data": map[string]any{"data": f.entries[path], "metadata": map[string]any{"version": 1}}})
	}
}

func (f *fakeVault) change(fn func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	fn()
}

func reader(t *testing.T, c secret.VaultConfig) *secret.Reader {
	t.Helper()
	r, err := secret.New(c, clock.System(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func write(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestEveryKindOfReference (D27).
func TestEveryKindOfReference(t *testing.T) {
	_, address := newFakeVault(t)
	t.Setenv("LOCKSTEP_TEST_SECRET", "from the environment")
	r := reader(t, secret.VaultConfig{Address: address, Namespace: "team", TokenRef: "file:" + write(t, "root\n")})
	for reference, want := range map[string]string{
		"env:LOCKSTEP_TEST_SECRET":              "from the environment",
		"file:" + write(t, " from a file \r\n"): " from a file ",
		"vault:secret/data/ci/git#token":        "hunter2",
	} {
		if got, err := r.Read(t.Context(), reference); got != want || err != nil {
			t.Errorf("%s: %q, %v; want %q", reference, got, err, want)
		}
	}
	for reference, want := range map[string]fault.Class{
		"env:LOCKSTEP_TEST_NO_SECRET": fault.NotFound, "file:/nonexistent": fault.NotFound,
		"vault:secret/data/ci/git#other": fault.NotFound, "vault:secret/data/other#token": fault.NotFound,
		"vault:secret/data/ci/empty#token": fault.NotFound,
		"vault:secret/data/ci/git#count":   fault.Invalid, "vault:secret/data/moved#token": fault.Unavailable,
		"hunter2": fault.Invalid, "env:A=hunter2": fault.Invalid, "file:hunter2": fault.Invalid, "vault:hunter2": fault.Invalid,
		"vault:secret/data/../../sys/raw#hunter2": fault.Invalid, "vault:secret/data/x?list=true#hunter2": fault.Invalid,
		"vault:/secret/x#hunter2": fault.Invalid,
	} {
		got, err := r.Read(t.Context(), reference)
		if got != "" || !fault.Is(err, want) {
			t.Errorf("%s: %q, %v; want %v", reference, got, err, want)
		} else if want == fault.Invalid && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: the error shows what may be a secret: %v", reference, err)
		}
	}
	if _, err := (*secret.Reader)(nil).Read(t.Context(), "vault:secret/data/ci/git#token"); !fault.Is(err, fault.Invalid) {
		t.Errorf("without a Vault: %v", err)
	}
}

// TestAKubernetesRoleSignsIn once for many reads, and again when Vault has revoked the token or it is about to expire.
func TestAKubernetesRoleSignsIn(t *testing.T) {
	t.Parallel()
	f, address := newFakeVault(t)
	wall := clocktest.New(time.Unix(1_700_000_000, 0))
	account := write(t, "account\n")
	r, err := secret.New(secret.VaultConfig{
		Address: address + "/", Namespace: "team", KubernetesRole: "lockstep",
		KubernetesTokenFile: account,
	}, wall, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	read := func(logins int) {
		t.Helper()
		if got, err := r.Read(t.Context(), "vault:secret/data/ci/git#token"); got != "hunter2" || err != nil {
			t.Errorf("%q, %v", got, err)
		}
		f.change(func() {
			if f.logins != logins {
				t.Errorf("signed in %d times, want %d", f.logins, logins)
			}
		})
	}
	read(1)
	read(1)
	f.change(func() { f.tokens = map[string]bool{} })
	read(2)
	wall.Advance(41 * time.Minute)
	read(3)
	f.change(func() { f.entries["secret/data/ci/git"]["token"] = "rotated" })
	if got, err := r.Read(t.Context(), "vault:secret/data/ci/git#token"); got != "rotated" || err != nil {
		t.Errorf("after the secret was replaced: %q, %v", got, err)
	}
	f.change(func() { f.sealed = true })
	if _, err := r.Read(t.Context(), "vault:secret/data/ci/git#token"); !fault.Is(err, fault.Unavailable) {
		t.Errorf("a sealed Vault: %v", err)
	}
	f.change(func() { f.sealed, f.tokens = false, map[string]bool{} })
	if err := os.WriteFile(account, []byte("stolen"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Read(t.Context(), "vault:secret/data/ci/git#token"); !fault.Is(err, fault.Denied) ||
		strings.Contains(err.Error(), "stolen") {
		t.Errorf("an account that Vault refuses: %v", err)
	}
}

func TestTheConfigurationIsChecked(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		config secret.VaultConfig
		wrong  string
	}{
		{secret.VaultConfig{}, ""},
		{secret.VaultConfig{Address: "https://vault:8200", TokenRef: "env:T"}, ""},
		{secret.VaultConfig{Address: "https://vault:8200", KubernetesRole: "r"}, ""},
		{secret.VaultConfig{TokenRef: "env:T"}, "vault.address"},
		{secret.VaultConfig{Address: "vault:8200", TokenRef: "env:T"}, "vault.address"},
		{secret.VaultConfig{Address: "https://vault:8200"}, "vault.token_ref"},
		{secret.VaultConfig{Address: "https://vault:8200", TokenRef: "env:T", KubernetesRole: "r"}, "vault.token_ref"},
		{secret.VaultConfig{Address: "https://vault:8200", TokenRef: "s.hunter2"}, "vault.token_ref"},
		{secret.VaultConfig{Address: "https://vault:8200", TokenRef: "vault:a/data/b#c"}, "vault.token_ref"},
		{secret.VaultConfig{Address: "https://vault:8200", TokenRef: "k8s:a/b#c"}, "vault.token_ref"},
	} {
		found := tt.config.Check()
		if (len(found) > 0) != (tt.wrong != "") || len(found) > 0 && found[0].Name != tt.wrong {
			t.Errorf("%+v: %v, want %q", tt.config, found, tt.wrong)
		}
	}
}
