package registry

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock/clocktest"
	"github.com/lockstep-cd/lockstep/pkg/testkit/bustest"
)

func TestSecretsAreReadAgain(t *testing.T) {
	t.Parallel()
	reference := secretFile(t, oldSecret)
	config := HookConfig{Name: "a", Source: "quay", Secrets: []string{reference}}
	c := clocktest.New(time.Date(2026, 3, 25, 10, 0, 0, 0, time.UTC))
	set, err := newHookSet(Config{Hooks: []HookConfig{config}}, hookDeps{clock: c, log: bustest.Log(t)})
	if err != nil {
		t.Fatal(err)
	}
	found := func(hookSecret string) bool {
		return set.Find("quay", filepath.Base(hookPath(config, hookSecret))).Name == "a"
	}
	write := func(content string) {
		if err := os.WriteFile(strings.TrimPrefix(reference, "file:"), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		c.Advance(rereads)
	}
	if !found(oldSecret) || found(hookSecret) {
		t.Fatal("the hook is not at the path of its secret")
	}
	write(hookSecret)
	if found(oldSecret) || !found(hookSecret) {
		t.Error("the hook is not at the path of its new secret")
	}
	write("")
	if !found(hookSecret) {
		t.Error("the hook is gone with a hookSecret that cannot be read")
	}
	var list strings.Builder
	if err := ListHooks(t.Context(), &list, Config{Hooks: []HookConfig{config}}); err == nil {
		t.Error("a hookSecret that cannot be read is listed")
	}
	write(hookSecret)
	if err := ListHooks(t.Context(), &list, Config{Hooks: []HookConfig{config}}); err != nil ||
		!strings.Contains(list.String(), hookPath(config, hookSecret)) {
		t.Errorf("list is %q, %v", list.String(), err)
	}
}

// TestAnUnreadableSecretDoesNotKeepOthers: while one sender's secret is missing, the leaked secret of another is still revoked.
func TestAnUnreadableSecretDoesNotKeepOthers(t *testing.T) {
	t.Parallel()
	const gone, old, replaced = "a-secret-that-is-gone", "a-secret-that-has-leaked", "a-secret-in-its-place"
	broken, leaked := secretFile(t, gone), secretFile(t, old)
	c := clocktest.New(time.Date(2026, 3, 25, 10, 0, 0, 0, time.UTC))
	config := Config{
		Hooks: []HookConfig{{Name: "a", Source: "quay", Secrets: []string{broken}}, {Name: "b", Source: "quay", Secrets: []string{leaked}}},
		ScopedTokens: []TokenConfig{
			{Name: "a", Secrets: []string{broken}, Organization: 1, Repositories: []string{"r.example.com/a/**"}, Expires: "2999-12-31"},
			{Name: "b", Secrets: []string{leaked}, Organization: 2, Repositories: []string{"r.example.com/b/**"}, Expires: "2999-12-31"},
		},
	}
	hooks, err := newHookSet(config, hookDeps{clock: c, log: bustest.Log(t)})
	if err != nil {
		t.Fatal(err)
	}
	tokens, err := newTokenSet(config, nil, c, bustest.Log(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(strings.TrimPrefix(broken, "file:")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(strings.TrimPrefix(leaked, "file:"), []byte(replaced), 0o600); err != nil {
		t.Fatal(err)
	}
	c.Advance(rereads)
	for _, tt := range []struct {
		sender int
		secret string
		known  bool
	}{{0, gone, true}, {1, old, false}, {1, replaced, true}} {
		h := config.Hooks[tt.sender]
		if found := hooks.Find("quay", filepath.Base(hookPath(h, tt.secret))).Name == h.Name; found != tt.known {
			t.Errorf("hook %s with %s: found %t", h.Name, tt.secret, found)
		}
		if token, err := tokens.Find(t.Context(), tt.secret); (err == nil) != tt.known || tt.known && token.Name != h.Name {
			t.Errorf("token %s with %s: found %+v, %v", h.Name, tt.secret, token, err)
		}
	}
}

func TestWrongHooksAreRefusedByName(t *testing.T) {
	t.Parallel()
	good := HookConfig{Name: "a", Source: "quay", Secrets: []string{"env:A"}}
	for field, c := range map[string]Config{
		"hooks[0].name":          {Hooks: []HookConfig{{Name: "A b", Source: "quay", Secrets: []string{"env:A"}}}},
		"hooks[1].name":          {Hooks: []HookConfig{good, good}},
		"hooks[0].source":        {Hooks: []HookConfig{{Name: "a", Source: "quai", Secrets: []string{"env:A"}}}},
		"hooks[0].secrets":       {Hooks: []HookConfig{{Name: "a", Source: "quay", Secrets: []string{"s3cret"}}}},
		"hooks[0].host":          {Hooks: []HookConfig{{Name: "a", Source: "nexus", Secrets: []string{"env:A"}}}},
		"hooks[0].rate":          {Hooks: []HookConfig{{Name: "a", Source: "quay", Secrets: []string{"env:A"}, Rate: -1}}},
		"hooks[0].audience":      {Hooks: []HookConfig{{Name: "a", Source: "google", Secrets: []string{"env:A"}}}},
		"registries[0].password": {Registries: []AccountConfig{{Host: "r.example.com", Password: "s3cret"}}},
		"allow_networks[0]":      {AllowNetworks: []string{"10.0.0.0/33"}},
	} {
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), field) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v", field, err)
		}
	}
	missing := Config{Hooks: []HookConfig{{Name: "a", Source: "quay", Secrets: []string{"file:/nowhere"}}}}
	if _, err := newIntake(missing, nil, nil, nil); err == nil || !strings.Contains(err.Error(), "hooks[0].secrets[0]") {
		t.Errorf("a hookSecret that cannot be read: %v", err)
	}
	short := Config{Hooks: []HookConfig{{Name: "a", Source: "quay", Secrets: []string{secretFile(t, "short")}}}}
	if _, err := newIntake(short, nil, nil, nil); err == nil || !strings.Contains(err.Error(), "found 5 characters") ||
		strings.Contains(fmt.Sprint(err), "short)") {
		t.Errorf("a short hookSecret: %v", err)
	}
}
