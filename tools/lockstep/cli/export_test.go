package cli_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/proof"
)

// exported is an export of one block of two rows, and the key that has signed it.
func exported(t *testing.T) (file []byte, public ed25519.PublicKey) {
	t.Helper()
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	w, err := proof.NewWriter(&out, proof.Header{
		Organization: 1, OrganizationName: "shop", FirstBlock: 1, Key: base64.StdEncoding.EncodeToString(public),
	})
	if err != nil {
		t.Fatal(err)
	}
	rows := [][]byte{[]byte(`{"journal":"change","row":{"id":9,"principal_id":7}}`), []byte(`{"journal":"rollout","row":{"id":10}}`)}
	b := proof.Block{Number: 1, UpTo: 10, Rows: 2, SealedAt: time.Unix(1, 0).UTC()}
	b.Digest = proof.Digest(1, b, [][sha256.Size]byte{sha256.Sum256(rows[0]), sha256.Sum256(rows[1])})
	if err := w.Block(b, rows); err != nil {
		t.Fatal(err)
	}
	if err := w.Sign(private); err != nil {
		t.Fatal(err)
	}
	return out.Bytes(), public
}

// D50: `journal export` writes what the server signs and verifies it, never over a file; `journal verify` finds, without a server, a row
// that was changed, removed or added, a file that was cut off, and a key that is another's. Each ends with an exit code of its own.
func TestAnExportIsWrittenAndVerified(t *testing.T) {
	t.Parallel()
	good, public := exported(t)
	answer := good
	var asked []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.RequestURI())
		if r.Header.Get("Authorization") != "Bearer secret" {
			http.Error(w, "token: found another, expected ours", http.StatusUnauthorized)
			return
		}
		_, _ = w.Write(answer)
	}))
	t.Cleanup(server.Close)
	dir := t.TempDir()
	lockstep := func(args ...string) (output string, code int) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "lockstep", args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "HOME="+dir, "LOCKSTEP_TOKEN=secret", "LOCKSTEP_ENDPOINT="+server.URL+"/graphql")
		text, _ := cmd.CombinedOutput() // the code says whether it failed
		return string(text), cmd.ProcessState.ExitCode()
	}
	write := func(name string, content []byte) string {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	key := func(name string, public ed25519.PublicKey) string {
		t.Helper()
		der, err := x509.MarshalPKIXPublicKey(public)
		if err != nil {
			t.Fatal(err)
		}
		return write(name, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
	}
	expect := func(wantCode int, words string, args ...string) {
		t.Helper()
		output, code := lockstep(args...)
		if code != wantCode || !strings.Contains(output, words) {
			t.Errorf("lockstep %s: code %d, %q; expected %d and %q", strings.Join(args, " "), code, output, wantCode, words)
		}
	}

	expect(0, "2 rows", "journal", "export", "all.jsonl", "--since", "2026-11-01", "--until", "2026-12-01")
	if got := fmt.Sprint(asked); !strings.Contains(got, "/journal/export?since=2026-11-01T00%3A00%3A00Z&until=2026-12-01T00%3A00%3A00Z") {
		t.Errorf("asked %s", got)
	}
	if kept, err := os.ReadFile(filepath.Join(dir, "all.jsonl")); err != nil || !bytes.Equal(kept, good) {
		t.Errorf("the file is not what the server has sent: %v", err)
	}
	expect(2, "exist", "journal", "export", "all.jsonl")
	expect(2, "--since", "journal", "export", "b.jsonl", "--since", "yesterday")

	ours, _, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	expect(0, "2 rows", "journal", "verify", "all.jsonl")
	expect(0, "2 rows", "journal", "verify", "all.jsonl", "--key", key("good.pem", public))
	expect(1, "", "journal", "verify", "all.jsonl", "--key", key("other.pem", ours))
	lines := bytes.SplitAfter(good, []byte("\n"))
	for name, tampered := range map[string][]byte{
		"changed": bytes.Replace(good, []byte(`"principal_id":7`), []byte(`"principal_id":8`), 1),
		"removed": bytes.Join(append(append([][]byte{}, lines[:2]...), lines[3:]...), nil),
		"added":   bytes.Join(append(append(append([][]byte{}, lines[:3]...), lines[2]), lines[3:]...), nil),
		"cut off": bytes.Join(lines[:len(lines)-2], nil),
		"empty":   {},
	} {
		if output, code := lockstep("journal", "verify", write("tampered.jsonl", tampered)); code == 0 {
			t.Errorf("%s: nothing was found: %s", name, output)
		}
		answer = tampered
		if output, code := lockstep("journal", "export", strings.ReplaceAll(name, " ", "")+".jsonl"); code == 0 {
			t.Errorf("%s, exported: nothing was found: %s", name, output)
		}
	}
	expect(2, "file", "journal", "verify", "missing.jsonl")
}
