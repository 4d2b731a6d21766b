package git

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/secret"
)

// TestAPasswordInVault: it is read for each operation, and a Vault that is away is a fault that passes, not a password that is
// refused (D27).
func TestAPasswordInVault(t *testing.T) {
	t.Setenv("LOCKSTEP_TEST_VAULT_TOKEN", "root")
	var password atomic.Value
	password.Store("first")
	vault := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/secret/data/ci/git" || r.Header.Get("X-Vault-Token") != "root" {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"data": map[string]any{"data": map[string]any{"password": password.Load()}}})
	}))
	defer vault.Close()
	secrets, err := secret.New(secret.VaultConfig{Address: vault.URL, TokenRef: "env:LOCKSTEP_TEST_VAULT_TOKEN"}, clock.System(),
		slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	u, err := parseURL("repo_url", "https://git.example.com/shop", false)
	if err != nil {
		t.Fatal(err)
	}
	stored := func(path string) []Credential {
		return []Credential{{URLPrefix: "https://git.example.com", Username: "u", PasswordRef: "vault:" + path + "#password"}}
	}
	for _, want := range []string{"first", "second"} {
		password.Store(want)
		if got, err := (credentials{all: stored("secret/data/ci/git"), secrets: secrets}).login(t.Context(), 1, u); err != nil ||
			got.Password != want {
			t.Errorf("%v, %v; want %s", got, err, want)
		}
	}
	if _, err := (credentials{all: stored("secret/data/other"), secrets: secrets}).login(t.Context(), 1, u); !fault.Is(err,
		fault.Unauthenticated) || strings.Contains(err.Error(), "second") {
		t.Errorf("an entry that may not be read: %v", err)
	}
	vault.Close()
	if _, err := (credentials{all: stored("secret/data/ci/git"), secrets: secrets}).login(t.Context(), 1, u); !fault.Is(err,
		fault.Unavailable) {
		t.Errorf("a Vault that is away: %v", err)
	}
}
