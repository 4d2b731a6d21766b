package workflow_test

import (
	"context"
	"crypto/rand"
	"encoding/pem"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
	"github.com/lockstep-cd/lockstep/services/workflow"
)

// use runs a program whose Function logs in to a server with a password that is known by reference (D27). The server says the
// password back in its refusal. It answers the service, the workflow as it ended, the password, and the file that has it.
func use(t *testing.T) (s *service, w *autoflowv1.Workflow, canary, file string) {
	t.Helper()
	canary = rand.Text()
	file = filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte(canary), 0o600); err != nil {
		t.Fatal(err)
	}
	var used atomic.Bool
	var flaky atomic.Int32
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, password, given := r.BasicAuth()
		if password == canary {
			used.Store(true)
		}
		if !given {
			w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		if strings.HasPrefix(r.URL.Path, "/flaky") && flaky.Add(1) < 3 {
			http.Error(w, "busy with "+password, http.StatusServiceUnavailable)
			return
		}
		http.Error(w, "no access with "+password, http.StatusForbidden)
	}))
	t.Cleanup(web.Close)
	s = startWith(t, func(c *workflow.Config) {
		c.GitCredentials = []workflow.GitCredential{{URLPrefix: web.URL, Username: "lockstep", PasswordRef: "file:" + file}}
	})
	_, err := s.StartWorkflow(t.Context(), &autoflowv1.StartWorkflowRequest{
		OrganizationId: organization, WorkflowId: "secret", Secrets: map[string]string{"git": "file:" + file},
		Starlark: []byte(`
r = run("git.read_file", {"repo_url": "` + web.URL + `/x.git", "ref": "main", "path": "a"}, retry = False, on_error = "return")
print(r.ok, r.code, r.error)
run("emit", {"type": "com.gitlab.cd.rollout.failed", "data": {"rollout_id": 5, "reason": r.error}}, on_error = "return")
tried = run("git.read_file", {"repo_url": "` + web.URL + `/flaky.git", "ref": "main", "path": "a"}, on_error = "return", retry = {"attempts": 2})
run("git.read_file", {"repo_url": "` + web.URL + `/x.git", "ref": "main", "path": "a"}, retry = False)
`),
	})
	if err != nil {
		t.Fatal(err)
	}
	w = s.await("secret", autoflowv1.WorkflowState_WORKFLOW_STATE_FAILED)
	if !used.Load() {
		t.Fatal("the password was never used")
	}
	return s, w, canary, file
}

// TestACredentialIsItsOrganizationsOwn: a program that names another organization's repository is not logged in there.
func TestACredentialIsItsOrganizationsOwn(t *testing.T) {
	t.Parallel()
	password := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(password, []byte("hunter2"), 0o600); err != nil {
		t.Fatal(err)
	}
	var asked, loggedIn atomic.Bool
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Store(true)
		if _, _, given := r.BasicAuth(); given {
			loggedIn.Store(true)
		}
		w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
		w.WriteHeader(http.StatusUnauthorized)
	}))
	t.Cleanup(web.Close)
	s := startWith(t, func(c *workflow.Config) {
		c.GitCredentials = []workflow.GitCredential{{
			URLPrefix: web.URL, Username: "lockstep", PasswordRef: "file:" + password,
			Organizations: []int64{organization + 1},
		}}
	})
	s.submit("thief", `
arguments = {"repo_url": "`+web.URL+`/x.git", "branch": "main", "path": "a", "content": "b", "message": "m"}
r = run("git.commit", arguments, retry = False, on_error = "return")
if r.ok or r.code != "unauthorized":
    fail("found %s, expected unauthorized" % r)
`, `{}`)
	s.await("thief", autoflowv1.WorkflowState_WORKFLOW_STATE_COMPLETED)
	if !asked.Load() || loggedIn.Load() {
		t.Errorf("the server was asked: %t, with the password: %t; expected to be asked without", asked.Load(), loggedIn.Load())
	}
}

// TestASecretLeavesNoTrace: a secret that was used, and said back by the server that it is for, is in no table, in no file of
// JetStream and in no answer.
func TestASecretLeavesNoTrace(t *testing.T) {
	t.Parallel()
	for name, use := range map[string]func(*testing.T) (*service, *autoflowv1.Workflow, string, string){
		"a password": use, "a GitHub App": useApp, "a key of SSH": useKey,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, w, canary, file := use(t)
			history, err := s.GetHistory(t.Context(), &autoflowv1.GetHistoryRequest{OrganizationId: organization, WorkflowId: "secret"})
			if err != nil || len(history.GetEntries()) < 3 {
				t.Fatal(history, err)
			}
			logs, err := s.GetLogs(t.Context(), &autoflowv1.GetLogsRequest{OrganizationId: organization, WorkflowId: "secret"})
			if err != nil {
				t.Fatal(err)
			}
			places := map[string]string{"the workflow": w.String(), "its history": history.String(), "its logs": logs.String()}
			tables(t, s, places)
			s.down()
			s.bus.Stop(t) // its files come and go no more
			files(t, filepath.Dir(filepath.Dir(file)), file, places)
			if len(places) < 20 || !strings.Contains(places["table entry"], "git.read_file") {
				t.Errorf("looked at %d places; the history is %q", len(places), places["table entry"])
			}
			for place, text := range places {
				for _, part := range secretsOf(canary) {
					if strings.Contains(text, part) {
						t.Errorf("%s has %s", place, part)
					}
				}
			}
		})
	}
}

// tables adds every row of every table.
func tables(t *testing.T, s *service, places map[string]string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), s.config.DatabaseURL)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	texts := func(sql string, args ...any) []string {
		rows, err := conn.Query(t.Context(), sql, args...)
		if err != nil {
			t.Fatal(err)
		}
		all, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	for _, table := range texts(`SELECT table_name::text FROM information_schema.tables WHERE table_schema = $1`, s.config.Schema) {
		name := pgx.Identifier{s.config.Schema, table}.Sanitize()
		places["table "+table] = strings.Join(texts(`SELECT t::text FROM `+name+` AS t`), "\n")
	}
}

// files adds every file below a folder, JetStream's among them, but the one that holds the secret.
func files(t *testing.T, folder, except string, places map[string]string) {
	t.Helper()
	root := os.DirFS(folder)
	err := fs.WalkDir(root, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Join(folder, path) == except {
			return err
		}
		content, err := fs.ReadFile(root, path)
		places["file "+path] = string(content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestAGitServerOfAnotherAuthority: a certificate of an authority of one's own is taken when the authority is named, and only then.
func TestAGitServerOfAnotherAuthority(t *testing.T) {
	t.Parallel()
	web := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }))
	web.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)
	t.Cleanup(web.Close)
	authority := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(authority, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: web.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct{ file, message string }{
		"named":     {authority, "wants credentials"},
		"not named": {"", "is not trusted: x509: certificate signed by unknown authority"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startWith(t, func(c *workflow.Config) {
				c.GitAllowNetworks, c.GitCAFile = []string{strings.TrimPrefix(web.URL, "https://")}, tt.file
			})
			s.submit("asks", `
r = run("git.read_file", {"repo_url": repository, "ref": "main", "path": "a"}, retry = False, on_error = "return")
if r.ok or says not in r.error:
    fail("found %s, expected an error that says %s" % (r, says))
`, fmt.Sprintf(`{"repository": %q, "says": %q}`, web.URL+"/a.git", tt.message))
			if w := s.await("asks", autoflowv1.WorkflowState_WORKFLOW_STATE_COMPLETED); w.GetError() != "" {
				t.Error(w.GetError())
			}
		})
	}
}
