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

// The program with which the domain service reads a pull request, and comments on it and sets the status of its commit, reports what came
// of it, whatever the forge answers (R4-27, D60). No other run comments: people believe what Lockstep says.
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
	var comments, statuses []string
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
			_, _ = fmt.Fprintf(w, `{"number": 3, "state": "open", "html_url": "https://forge/3", "merge_base": "%[1]s", "head": {"sha": "%[1]s",
				"repo": {"id": 1}},
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
		case strings.HasPrefix(rest, "commits/"):
			_, _ = io.WriteString(w, `{"statuses": []}`)
		case strings.HasPrefix(rest, "statuses/b"):
			w.WriteHeader(http.StatusForbidden)
		case strings.HasPrefix(rest, "statuses/d"):
			w.Header().Set("Retry-After", "120")
			w.WriteHeader(http.StatusTooManyRequests)
		case strings.HasPrefix(rest, "statuses/e"):
			w.WriteHeader(http.StatusBadGateway)
		case strings.HasPrefix(rest, "statuses/"):
			var in map[string]any
			_ = json.NewDecoder(r.Body).Decode(&in)
			statuses = append(statuses, fmt.Sprint(in["context"], " ", in["state"], " ", in["target_url"], " ", in["description"]))
			w.WriteHeader(http.StatusCreated)
			_, _ = io.WriteString(w, `{}`)
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
		return fmt.Sprintf(`"comment": {"repo_url": "%s/team/%s", "number": 3, "marker": "<!-- x -->", "body": "plan", "only_known": false}`,
			forge.URL, project)
	}
	status := func(commit string) string {
		return fmt.Sprintf(`, "status": {"repo_url": "%s/team/fine", "commit": "%s", "name": "lockstep/plan", "state": "success", "description":
			"shop (pipeline)"}`,
			forge.URL, strings.Repeat(commit, 40))
	}
	const refused = `"refused" `
	n := 0
	for name, tt := range map[string]struct{ run, inputs, want, shared, unset string }{
		"read":       {inputs: change("fine"), want: `"read" "" `},
		"read, busy": {inputs: change("busy"), want: `"limited" "`},
		"read, away": {inputs: change("away"), want: `"away" "unreachable: `},
		"read, gone": {inputs: strings.Replace(change("fine"), `"number": 3`, `"number": 4`, 1), want: refused + `"not_found: `},
		"read, no forge": {
			inputs: strings.Replace(change("fine"), forge.URL, "https://plain.test", 1), want: refused + `"not_configured: `,
			shared: "false",
		},
		"write, no forge": {
			inputs: strings.Replace(comment("fine"), forge.URL, "https://plain.test", 1), want: refused + `"not_configured: `,
			shared: "false",
		},
		"write":                             {inputs: comment("fine"), want: `"sent" "" "https://forge/3#1"`},
		"write, busy":                       {inputs: comment("busy"), want: `"limited" "`},
		"write, away":                       {inputs: comment("away"), want: `"away" "unreachable: `},
		"write, with a status":              {inputs: comment("fine") + status("c"), want: `"sent" "" "https://forge/3#1"`},
		"write, a status that is refused":   {inputs: comment("fine") + status("b"), want: `"sent" "" "https://forge/3#1"`, unset: `"unauthorized: `},
		"write, with a status that is busy": {inputs: comment("fine") + status("d"), want: `"sent" "" "https://forge/3#1"`, unset: `"limited: `},
		"write, a status that is away":      {inputs: comment("fine") + status("e"), want: `"sent" "" "https://forge/3#1"`, unset: `"unreachable: `},
		"by another run":                    {run: "nightly", inputs: comment("fine"), want: `"refused" "forbidden: `, shared: "false"},
		"by a run of a set":                 {run: "rollout-7", inputs: comment("fine"), want: `"refused" "forbidden: `, shared: "false"},
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
		if !strings.HasPrefix(status["unset"], tt.unset) || tt.unset == "" && status["unset"] != "" {
			t.Errorf("%s: found unset %q; want %q", name, status["unset"], tt.unset)
		}
		if tt.shared != "" && status["shared"] != tt.shared {
			t.Errorf("%s: found shared %q; want %q", name, status["shared"], tt.shared)
		}
	}
	if len(comments) != 1 || comments[0] != "<!-- x -->\nplan" {
		t.Errorf("found the comments %q; want one", comments)
	}
	if len(statuses) != 1 || statuses[0] != "lockstep/plan success https://forge/3#1 shop (pipeline)" {
		t.Errorf("found the statuses %q; want one, with a link to the comment", statuses)
	}
}
