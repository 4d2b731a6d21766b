package workflow_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
	"github.com/lockstep-cd/lockstep/services/workflow"
)

// The program with which the domain service publishes a status of a commit reports what came of it, whatever the forge answers, and sends
// it once (R3-09). No other run publishes one: a forge may require it for a merge.
func TestTheProgramOfStatusesReportsTheOutcome(t *testing.T) {
	t.Parallel()
	program, err := os.ReadFile(filepath.Join("..", "domain", "internal", "core", "forge", "set.star"))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("S3CR3T"), 0o600); err != nil {
		t.Fatal(err)
	}
	var posts atomic.Int32
	forge := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path := strings.TrimPrefix(r.URL.Path, "/api/v1/repos/team/")
		if r.Header.Get("Authorization") != "token S3CR3T" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		w.Header().Set("RateLimit-Limit", "60")
		w.Header().Set("RateLimit-Remaining", "7")
		w.Header().Set("RateLimit-Reset", "1800000000")
		if r.Method == http.MethodPost {
			posts.Add(1)
			switch {
			case strings.HasPrefix(path, "busy/"):
				w.Header().Set("Retry-After", "120")
				w.WriteHeader(http.StatusTooManyRequests)
				return
			case strings.HasPrefix(path, "away/"):
				w.WriteHeader(http.StatusBadGateway)
				return
			case strings.HasPrefix(path, "denies/"):
				w.WriteHeader(http.StatusForbidden)
				return
			}
			w.WriteHeader(http.StatusCreated)
		}
		_, _ = io.WriteString(w, `{"statuses": []}`)
	}))
	t.Cleanup(forge.Close)
	s := startWith(t, func(c *workflow.Config) {
		c.GitAllowNetworks = []string{"127.0.0.1"}
		c.GitCredentials = []workflow.GitCredential{
			{URLPrefix: forge.URL, Username: "u", PasswordRef: "file:" + file, Forge: "gitea", Organizations: []int64{organization}},
		}
	})
	const quota = ` 60 7 "2027-01-15T08:00:00Z"`
	n := 0
	for name, tt := range map[string]struct {
		run, repository, want string
		posts                 int32
		shared                string
	}{
		"set":                  {repository: "fine", want: `"sent" "" 0` + quota, posts: 1, shared: "true"},
		"too many":             {repository: "busy", want: `"limited" "`, posts: 1, shared: "true"},
		"away":                 {repository: "away", want: `"away" "unreachable: `, posts: 1},
		"denied":               {repository: "denies", want: `"refused" "unauthorized: `, posts: 1},
		"no forge":             {repository: "https://plain.test/team/shop", want: `"refused" "not_configured: no forge is configured`, shared: "false"},
		"another run":          {run: "nightly", repository: "fine", want: `"refused" "forbidden: `, shared: "false"},
		"the run of a rollout": {run: "rollout-7", repository: "fine", want: `"refused" "forbidden: `, shared: "false"},
	} {
		posts.Store(0)
		n++
		run := tt.run
		if run == "" {
			run = fmt.Sprintf("forge-status-7-%d", n)
		}
		repository := tt.repository
		if !strings.HasPrefix(repository, "https://") {
			repository = forge.URL + "/team/" + repository
		}
		_, err := s.StartWorkflow(t.Context(), &autoflowv1.StartWorkflowRequest{
			OrganizationId: organization, WorkflowId: run, Starlark: program,
			Inputs: fmt.Appendf(nil, `{"status": {"repo_url": "%s", "commit": "%s", "name": "lockstep/dev/e2e", "state": "success", "description": "", "url": ""}}`,
				repository, strings.Repeat("c", 40)),
		})
		if err != nil {
			t.Fatal(err)
		}
		status := s.await(run, autoflowv1.WorkflowState_WORKFLOW_STATE_COMPLETED).GetStatus()
		got := strings.Join([]string{status["outcome"], status["why"], status["wait"], status["limit"], status["remaining"], status["resets_at"]}, " ")
		if !strings.HasPrefix(got, tt.want) || strings.Contains(got, "S3CR3T") || tt.repository == "busy" && status["wait"] != "120" {
			t.Errorf("%s: found %s; want %s", name, got, tt.want)
		}
		if status["shared"] != tt.shared { // what is false spends nothing of what all organizations share
			t.Errorf("%s: found shared %q; want %q", name, status["shared"], tt.shared)
		}
		if found := posts.Load(); found != tt.posts {
			t.Errorf("%s: found %d statuses; want %d", name, found, tt.posts)
		}
	}
}

// The program publishes a deployment with as many calls as it takes, and reports its number with the first one, so that it is made once
// (D64).
func TestTheProgramOfDeploymentsReportsTheNumber(t *testing.T) {
	t.Parallel()
	program, err := os.ReadFile(filepath.Join("..", "domain", "internal", "core", "forge", "set.star"))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("S3CR3T"), 0o600); err != nil {
		t.Fatal(err)
	}
	var made, states atomic.Int32
	forge := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path := strings.TrimPrefix(r.URL.Path, "/api/v3/repos/team/")
		switch {
		case r.Method == http.MethodPost && strings.HasSuffix(path, "/deployments"):
			made.Add(1)
			w.WriteHeader(http.StatusCreated)
			_, _ = io.WriteString(w, `{"id": 41}`)
		case r.Method == http.MethodPost && strings.HasPrefix(path, "busy/"):
			w.Header().Set("Retry-After", "120")
			w.WriteHeader(http.StatusTooManyRequests)
		case r.Method == http.MethodPost:
			states.Add(1)
			w.WriteHeader(http.StatusCreated)
		default:
			_, _ = io.WriteString(w, `[]`)
		}
	}))
	t.Cleanup(forge.Close)
	s := startWith(t, func(c *workflow.Config) {
		c.GitAllowNetworks = []string{"127.0.0.1"}
		c.GitCredentials = []workflow.GitCredential{
			{URLPrefix: forge.URL + "/team", Username: "u", PasswordRef: "file:" + file, Forge: "github", Organizations: []int64{organization}},
			{URLPrefix: forge.URL + "/tea", Username: "u", PasswordRef: "file:" + file, Forge: "gitea", Organizations: []int64{organization}},
		}
	})
	n := 0
	for name, tt := range map[string]struct {
		run, repository, state, want string
		made, states                 int32
	}{
		"under way":            {repository: "team/fine", state: "in_progress", want: `"sent" "" 41`, made: 1, states: 1},
		"over":                 {repository: "team/fine", state: "success", want: `"sent" "" 41`, made: 1, states: 1},
		"too many":             {repository: "team/busy", state: "success", want: `"limited" "`, made: 1},
		"no deployments":       {repository: "tea/fine", state: "success", want: `"unsupported" "found http`},
		"the run of a rollout": {run: "rollout-7", repository: "team/fine", state: "success", want: `"refused" "forbidden: `},
	} {
		made.Store(0)
		states.Store(0)
		n++
		run := tt.run
		if run == "" {
			run = fmt.Sprintf("forge-status-7-%d", n)
		}
		_, err := s.StartWorkflow(t.Context(), &autoflowv1.StartWorkflowRequest{
			OrganizationId: organization, WorkflowId: run, Starlark: program,
			Inputs: fmt.Appendf(nil, `{"deployment": {"repo_url": "%s/%s", "commit": "%s", "environment": "shop/dev", "key": "o1/rollout_7", "number": 0, "state": "%s",
				"description": "", "url": "", "production": false}}`, forge.URL, tt.repository, strings.Repeat("c", 40), tt.state),
		})
		if err != nil {
			t.Fatal(err)
		}
		status := s.await(run, autoflowv1.WorkflowState_WORKFLOW_STATE_COMPLETED).GetStatus()
		got := strings.Join([]string{status["outcome"], status["why"], status["number"]}, " ")
		if !strings.HasPrefix(got, tt.want) || tt.made > 0 && status["number"] != "41" {
			t.Errorf("%s: found %s; want %s", name, got, tt.want)
		}
		if made.Load() != tt.made || states.Load() != tt.states {
			t.Errorf("%s: found %d deployments and %d states; want %d and %d", name, made.Load(), states.Load(), tt.made, tt.states)
		}
	}
}
