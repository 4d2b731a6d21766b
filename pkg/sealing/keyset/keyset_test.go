package keyset_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/sealing"
	"github.com/lockstep-cd/lockstep/pkg/sealing/keyset"
)

func terms() sealing.Terms {
	return sealing.Terms{
		Organization: 7, Name: "api", Version: 2, Kind: sealing.HTTP, URLPrefixes: []string{"https://api.example.com/v1"}, Username: "u",
	}
}

// stored is a keyset in a file, and how to replace it.
func stored(t *testing.T, text string) (*keyset.Keyset, func(string)) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "keyset.json")
	put := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put(text)
	return keyset.New(nil, "file:"+file), put
}

func must(t *testing.T) func(string, error) string {
	t.Helper()
	return func(text string, err error) string {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
}

func TestAValueOpensWithItsTermsOnly(t *testing.T) {
	t.Parallel()
	k, _ := stored(t, must(t)(keyset.Create()))
	sealed, key, err := k.Seal(t.Context(), "hunter2", terms())
	if err != nil || strings.Contains(string(sealed), "hunter2") {
		t.Fatal(err)
	}
	if of, ok := keyset.KeyOf(sealed); !ok || of != key {
		t.Errorf("sealed with key %d, %t; expected %d", of, ok, key)
	}
	if value, err := k.Open(t.Context(), sealed, terms()); err != nil || value != "hunter2" {
		t.Errorf("opened: %q, %v", value, err)
	}
	for name, change := range map[string]func(*sealing.Terms){
		"another organization": func(s *sealing.Terms) { s.Organization = 8 },
		"another name":         func(s *sealing.Terms) { s.Name = "other" },
		"another version":      func(s *sealing.Terms) { s.Version = 1 },
		"another kind":         func(s *sealing.Terms) { s.Kind = sealing.Git },
		"another place":        func(s *sealing.Terms) { s.URLPrefixes = []string{"https://evil.example/"} },
		"one more place":       func(s *sealing.Terms) { s.URLPrefixes = append(s.URLPrefixes, "https://evil.example/") },
		"another user":         func(s *sealing.Terms) { s.Username = "root" },
		"a header":             func(s *sealing.Terms) { s.Header = "X-Api-Key" },
		"a forge":              func(s *sealing.Terms) { s.Forge = "gitlab" },
	} {
		changed := terms()
		change(&changed)
		if value, err := k.Open(t.Context(), sealed, changed); !fault.Is(err, fault.Unauthenticated) || value != "" {
			t.Errorf("%s: %q, %v; expected it not to open", name, value, err)
		}
	}
	for i := range sealed {
		damaged := append([]byte{}, sealed...)
		damaged[i] ^= 1
		if _, err := k.Open(t.Context(), damaged, terms()); err == nil {
			t.Errorf("byte %d was changed, and the value opens", i)
		}
	}
	for _, short := range [][]byte{nil, {}, sealed[:5], sealed[:20]} {
		if _, err := k.Open(t.Context(), short, terms()); err == nil {
			t.Errorf("%d bytes open", len(short))
		}
	}
}

// D63: what was sealed for one use opens for no other, and not as the value of a credential.
func TestATextOpensForItsUseOnly(t *testing.T) {
	t.Parallel()
	k, _ := stored(t, must(t)(keyset.Create()))
	sealed, err := k.SealFor(t.Context(), sealing.UseLink, "rollout 7")
	if err != nil {
		t.Fatal(err)
	}
	if text, err := k.OpenFor(t.Context(), sealing.UseLink, sealed); err != nil || text != "rollout 7" {
		t.Errorf("opened: %q, %v", text, err)
	}
	if text, err := k.OpenFor(t.Context(), sealing.UseChatAccount, sealed); !fault.Is(err, fault.Unauthenticated) || text != "" {
		t.Errorf("for another use: %q, %v; expected it not to open", text, err)
	}
	if text, err := k.Open(t.Context(), sealed, terms()); !fault.Is(err, fault.Unauthenticated) || text != "" {
		t.Errorf("as a credential: %q, %v; expected it not to open", text, err)
	}
}

func TestAKeysetIsRotatedWithoutAGap(t *testing.T) {
	t.Parallel()
	first := must(t)(keyset.Create())
	k, put := stored(t, first)
	sealed, old, err := k.Seal(t.Context(), "hunter2", terms())
	if err != nil {
		t.Fatal(err)
	}
	second := must(t)(keyset.Add(first))
	all, err := keyset.List(second)
	if err != nil || len(all) != 2 || !all[0].Primary || all[0].ID != old || all[1].Primary {
		t.Fatalf("found %v, %v; expected the old key to be primary still", all, err)
	}
	put(second)
	if _, key, err := k.Seal(t.Context(), "x", terms()); err != nil || key != old {
		t.Errorf("sealed with %d, %v; expected %d, which every service has", key, err, old)
	}
	third := must(t)(keyset.Promote(second, all[1].ID))
	put(third)
	again, key, err := k.Seal(t.Context(), "hunter2", terms())
	if err != nil || key != all[1].ID {
		t.Errorf("sealed with %d, %v; expected %d", key, err, all[1].ID)
	}
	if value, err := k.Open(t.Context(), sealed, terms()); err != nil || value != "hunter2" {
		t.Errorf("what the old key has sealed: %q, %v", value, err)
	}
	put(must(t)(keyset.Remove(third, old)))
	if value, err := k.Open(t.Context(), again, terms()); err != nil || value != "hunter2" {
		t.Errorf("what the new key has sealed: %q, %v", value, err)
	}
	if _, err := k.Open(t.Context(), sealed, terms()); !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), "does not have") {
		t.Errorf("without the old key: %v", err)
	}
	if _, err := keyset.Remove(first, old); !fault.Is(err, fault.Invalid) {
		t.Errorf("removing the primary key: %v", err)
	}
	if _, err := keyset.Promote(first, old+1); !fault.Is(err, fault.Invalid) {
		t.Errorf("promoting a key that is not there: %v", err)
	}
}

func TestAnotherKeysetOpensNothing(t *testing.T) {
	t.Parallel()
	k, put := stored(t, must(t)(keyset.Create()))
	sealed, _, err := k.Seal(t.Context(), "hunter2", terms())
	if err != nil {
		t.Fatal(err)
	}
	put(must(t)(keyset.Create()))
	if _, err := k.Open(t.Context(), sealed, terms()); !fault.Is(err, fault.Unavailable) {
		t.Errorf("found %v, expected it to wait for the keyset", err)
	}
	put(`{"primaryKeyId":4,"key":"hunter3"}`)
	if _, err := k.Open(t.Context(), sealed, terms()); !fault.Is(err, fault.Unavailable) || strings.Contains(err.Error(), "hunter3") {
		t.Errorf("found %v, expected an error without the text of the keyset", err)
	}
	var none *keyset.Keyset
	if _, _, err := none.Seal(t.Context(), "hunter2", terms()); !fault.Is(err, fault.Refused) || none.Configured() {
		t.Errorf("without a keyset: %v", err)
	}
	if _, err := keyset.New(nil, "").Open(t.Context(), sealed, terms()); !fault.Is(err, fault.Refused) {
		t.Errorf("without a keyset: %v", err)
	}
}

// FuzzOpen: whatever is stored, it opens only if it was sealed so.
func FuzzOpen(f *testing.F) {
	text, err := keyset.Create()
	if err != nil {
		f.Fatal(err)
	}
	file := filepath.Join(f.TempDir(), "keyset.json")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		f.Fatal(err)
	}
	k := keyset.New(nil, "file:"+file)
	sealed, _, err := k.Seal(f.Context(), "hunter2", terms())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(sealed[:len(sealed)-1])
	f.Add([]byte{0, 0, 0, 1, 1, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, stored []byte) {
		if _, err := k.Open(t.Context(), stored, terms()); err == nil && string(stored) != string(sealed) {
			t.Errorf("%x opens", stored)
		}
	})
}
