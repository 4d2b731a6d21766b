package workflow_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
	"github.com/lockstep-cd/lockstep/services/workflow"
)

// The program with which the domain service reads a pull request, and comments on it, reports what came of it, whatever the forge answers
// (R4-27). No other run comments: people believe what Lockstep says.
func TestTheProgramOfPullRequestsReportsTheOutcome(t *testing.T) {
	t.Parallel()
	program, err := os.ReadFile(filepath.Join("..", "domain", "internal", "core", "forge", "pull.star"))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("S3CR3T"), 0o600); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var comments []string
	forge := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		path := strings.TrimPrefix(r.URL.Path, "/api/v1/repos/team/")
		project, rest, _ := strings.Cut(path, "/")
		switch {
		case r.Header.Get("Authorization") != "token S3CR3T":
			w.WriteHeader(http.StatusUnauthorized)
		case project == "busy":
			w.Header().Set("Retry-After", "120")
			w.WriteHeader(http.StatusTooManyRequests)
		case project == "away":
			w.WriteHeader(http.StatusBadGateway)
		case r.URL.Path == "/api/v1/user":
			_, _ = io.WriteString(w, `{"id": 7}`)
		case rest == "pulls/3":
			_, _ = fmt.Fprintf(w, `{"number": 3, "state": "open", "html_url": "https://forge/3", "merge_base": "%[1]s", "head": {"sha": "%[1]s", "repo": {"id": 1}},
				"base": {"ref": "main", "sha": "%[1]s", "repo": {"id": 1}}}`, strings.Repeat("c", 40))
		case rest == "pulls/3/commits":
			_, _ = io.WriteString(w, `[{"sha": "c", "commit": {"message": "Two replicas"}}]`)
		case rest == "pulls/3/files":
			_, _ = io.WriteString(w, `[{"filename": "README.md"}]`)
		case rest == "issues/3/comments" && r.Method == http.MethodPost:
			var in struct{ Body string }
			_ = json.NewDecoder(r.Body).Decode(&in)
			comments = append(comments, in.Body)
			fallthrough
		case rest == "issues/3/comments":
			all := []map[string]any{}
			for i, body := range comments {
				all = append(all, map[string]any{"id": i + 1, "body": body, "html_url": "https://forge/3#1", "user": map[string]int{"id": 7}})
			}
			if r.Method == http.MethodPost {
				_ = json.NewEncoder(w).Encode(all[len(all)-1])
				return
			}
			_ = json.NewEncoder(w).Encode(all)
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	t.Cleanup(forge.Close)
	s := startWith(t, func(c *workflow.Config) {
		c.GitAllowNetworks = []string{"127.0.0.1"}
		c.GitCredentials = []workflow.GitCredential{
			{URLPrefix: forge.URL, Username: "u", PasswordRef: "file:" + file, Forge: "gitea", Organizations: []int64{organization}},
		}
	})
	change := func(project string) string {
		return fmt.Sprintf(`"change": {"repo_url": "%s/team/%s", "number": 3}`, forge.URL, project)
	}
	comment := func(project string) string {
		return fmt.Sprintf(`"comment": {"repo_url": "%s/team/%s", "number": 3, "marker": "<!-- x -->", "body": "plan", "only_known": false}`, forge.URL, project)
	}
	n := 0
	for name, tt := range map[string]struct{ run, inputs, want, shared string }{
		"read":              {inputs: change("fine"), want: `"read" "" `},
		"read, busy":        {inputs: change("busy"), want: `"limited" "`},
		"read, away":        {inputs: change("away"), want: `"away" "unreachable: `},
		"read, gone":        {inputs: strings.Replace(change("fine"), `"number": 3`, `"number": 4`, 1), want: `"refused" "not_found: `},
		"read, no forge":    {inputs: strings.Replace(change("fine"), forge.URL, "https://plain.test", 1), want: `"refused" "not_configured: `, shared: "false"},
		"write, no forge":   {inputs: strings.Replace(comment("fine"), forge.URL, "https://plain.test", 1), want: `"refused" "not_configured: `, shared: "false"},
		"write":             {inputs: comment("fine"), want: `"sent" "" "https://forge/3#1"`},
		"write, busy":       {inputs: comment("busy"), want: `"limited" "`},
		"write, away":       {inputs: comment("away"), want: `"away" "unreachable: `},
		"by another run":    {run: "nightly", inputs: comment("fine"), want: `"refused" "forbidden: `, shared: "false"},
		"by a run of a set": {run: "rollout-7", inputs: comment("fine"), want: `"refused" "forbidden: `, shared: "false"},
	} {
		n++
		run := tt.run
		if run == "" {
			run = fmt.Sprintf("forge-pull-7-%d", n)
		}
		_, err := s.StartWorkflow(t.Context(), &autoflowv1.StartWorkflowRequest{
			OrganizationId: organization, WorkflowId: run, Starlark: program,
			Inputs: fmt.Appendf(nil, `{"pull": {"id": 7, "run": %d}, %s}`, n, tt.inputs),
		})
		if err != nil {
			t.Fatal(err)
		}
		status := s.await(run, autoflowv1.WorkflowState_WORKFLOW_STATE_COMPLETED).GetStatus()
		got := strings.Join([]string{status["outcome"], status["why"], status["link"]}, " ")
		if !strings.HasPrefix(got, tt.want) || strings.Contains(got, "S3CR3T") || strings.HasSuffix(name, "busy") && status["wait"] != "120" {
			t.Errorf("%s: found %s; want %s", name, got, tt.want)
		}
		if tt.shared != "" && status["shared"] != tt.shared {
			t.Errorf("%s: found shared %q; want %q", name, status["shared"], tt.shared)
		}
	}
	if len(comments) != 1 || comments[0] != "<!-- x -->\nplan" {
		t.Errorf("found the comments %q; want one", comments)
	}
}
