package cli_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// D65: `organization export` keeps a file that is whole, and no other; it never writes over one.
func TestAnExportOfAnOrganizationIsKeptIfItIsWhole(t *testing.T) {
	t.Parallel()
	rows := `{"format":"lockstep-organization-1","organization":2}
{"table":"cd_organizations","row":{"id":2}}
{"table":"cd_applications","row":{"id":7}}
`
	whole := fmt.Sprintf("%s{\"end\":{\"rows\":2,\"sha256\":\"%x\"}}\n", rows, sha256.Sum256([]byte(rows)))
	answer := whole
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.RequestURI() != "/organization/export" || r.Header.Get("Authorization") != "Bearer secret" {
			http.Error(w, "found "+r.URL.RequestURI(), http.StatusForbidden)
			return
		}
		_, _ = w.Write([]byte(answer))
	}))
	t.Cleanup(server.Close)
	dir := t.TempDir()
	export := func(file, token string) (string, int) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "lockstep", "organization", "export", file)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "HOME="+dir, "LOCKSTEP_TOKEN="+token, "LOCKSTEP_ENDPOINT="+server.URL+"/graphql")
		text, _ := cmd.CombinedOutput() // the code says whether it failed
		return string(text), cmd.ProcessState.ExitCode()
	}
	if output, code := export("shop.jsonl", "secret"); code != 0 || !strings.Contains(output, "shop.jsonl has 2 rows") {
		t.Errorf("code %d, %s", code, output)
	}
	if kept, err := os.ReadFile(filepath.Join(dir, "shop.jsonl")); err != nil || !bytes.Equal(kept, []byte(whole)) {
		t.Errorf("found %s (%v)", kept, err)
	}
	if output, code := export("shop.jsonl", "secret"); code != 2 || !strings.Contains(output, "exist") {
		t.Errorf("over a file: code %d, %s", code, output)
	}
	for name, other := range map[string]string{
		"cut off": rows, "empty": "", "changed": strings.Replace(whole, `"id":7`, `"id":8`, 1),
		"short": strings.Replace(whole, `{"table":"cd_applications","row":{"id":7}}`+"\n", "", 1), "cut in a line": whole[:len(whole)-9],
	} {
		answer = other
		output, code := export("other.jsonl", "secret")
		if _, err := os.Stat(filepath.Join(dir, "other.jsonl")); code == 0 || err == nil {
			t.Errorf("%s: code %d, kept %t: %s", name, code, err == nil, output)
		}
	}
	if output, code := export("other.jsonl", "guessed"); code == 0 || !strings.Contains(output, "403") {
		t.Errorf("code %d, %s", code, output)
	}
}
