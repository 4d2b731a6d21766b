package cli_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// D65: `admin retention archived --rows` writes what the server sends, never over a file, and fails where the answer is cut off or names
// objects that cannot be used.
func TestArchivedRowsAreWritten(t *testing.T) {
	t.Parallel()
	const rows = `{"id": 1}` + "\n" + `{"id": 2}` + "\n"
	answers := map[string]string{
		"whole":   rows + `{"end":{"rows":2,"problems":[]}}` + "\n",
		"cut":     rows,
		"fewer":   rows + `{"end":{"rows":3,"problems":[]}}` + "\n",
		"changed": rows + `{"end":{"rows":2,"problems":["settled/1/x: expected gzip"]}}` + "\n",
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/retention/archived" || r.Header.Get("Authorization") != "Bearer secret" {
			http.Error(w, "no", http.StatusUnauthorized)
			return
		}
		_, _ = w.Write([]byte(answers[r.URL.Query().Get("kind")]))
	}))
	t.Cleanup(server.Close)
	dir := t.TempDir()
	for _, tt := range []struct {
		kind, words string
		whole       bool
	}{{"whole", "2 rows", true}, {"cut", "cut off", false}, {"fewer", "cut off", false}, {"changed", "expected gzip", false}} {
		for i, words := range []string{tt.words, "exist"} {
			cmd := exec.CommandContext(t.Context(), "lockstep", "admin", "retention", "archived", tt.kind, "--rows", tt.kind)
			cmd.Dir = dir
			cmd.Env = append(os.Environ(), "HOME="+dir, "LOCKSTEP_TOKEN=secret", "LOCKSTEP_ENDPOINT="+server.URL+"/graphql")
			text, _ := cmd.CombinedOutput() // the code says whether it failed
			if code := cmd.ProcessState.ExitCode(); (code == 0) != (i == 0 && tt.whole) || !strings.Contains(string(text), words) {
				t.Errorf("%s: code %d, %s; expected %q", tt.kind, code, text, words)
			}
		}
		if kept, err := os.ReadFile(filepath.Join(dir, tt.kind)); err != nil || string(kept) != rows {
			t.Errorf("%s: kept %q, %v", tt.kind, kept, err)
		}
	}
}
