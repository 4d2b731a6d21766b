package web

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/httpx"
)

// An operator may have one secret under several names, one for URLs and one for workers.
func TestASecretIsTheCredentialThatCoversTheTarget(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, []byte("value"), 0o600); err != nil {
		t.Fatal(err)
	}
	transport, err := httpx.New(httpx.Config{MaxBody: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(transport.Close)
	ref := "file:" + file
	c, err := New(Deps{HTTP: transport, Credentials: []Credential{
		{Name: "bank", URLPrefixes: []string{"https://bank.example.com/"}, Ref: ref, Organizations: []int64{1}},
		{Name: "other", URLPrefixes: []string{"worker://shop.refund"}, Ref: ref, Organizations: []int64{2}},
		{Name: "workers", URLPrefixes: []string{"worker://shop.charge"}, Ref: ref, Organizations: []int64{1}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	secrets := map[string]string{"key": ref}
	value, err := c.SecretFor(t.Context(), 1, "shop.charge", "key", secrets)
	if err != nil || value != "value" {
		t.Errorf("found %q and %v, expected the value", value, err)
	}
	if _, err := c.SecretFor(t.Context(), 1, "shop.refund", "key", secrets); !fault.Is(err, fault.Denied) {
		t.Errorf("found %v for a Function that only a credential of another organization names, expected that it is denied", err)
	}
}
