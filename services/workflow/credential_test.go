package workflow_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
	"github.com/lockstep-cd/lockstep/services/workflow"
)

// TestACredentialForAllEndsWithTheSecondOrganization: a program of organization 2 was let in to organization 1's repositories. The first
// one that is started finds the credential unusable, nobody's password is sent any more, and the service does not start again until the
// configuration says whose it is.
func TestACredentialForAllEndsWithTheSecondOrganization(t *testing.T) {
	t.Setenv("LOCKSTEP_TEST_GIT_PASSWORD", "password-of-one")
	var loggedIn atomic.Int32
	forge := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, password, _ := r.BasicAuth(); password != "" {
			loggedIn.Add(1)
		}
		http.NotFound(w, r)
	}))
	t.Cleanup(forge.Close)
	s := startWith(t, func(c *workflow.Config) {
		c.GitCredentials = []workflow.GitCredential{{URLPrefix: forge.URL, Username: "u", PasswordRef: "env:LOCKSTEP_TEST_GIT_PASSWORD"}}
	})
	read := func(organization int64, id string) string {
		t.Helper()
		_, err := s.StartWorkflow(t.Context(), &autoflowv1.StartWorkflowRequest{
			OrganizationId: organization, WorkflowId: id,
			Starlark: []byte(`run("git.read_file", {"repo_url": "` + forge.URL + `/shop.git", "ref": "main", "path": "a"}, retry = False)`),
		})
		if err != nil {
			t.Fatal(err)
		}
		problem := ""
		s.eventually("workflow "+id+" ends", func(ctx context.Context) bool {
			resp, err := s.GetWorkflow(ctx, &autoflowv1.GetWorkflowRequest{OrganizationId: organization, WorkflowId: id})
			problem = resp.GetWorkflow().GetError()
			return err == nil && resp.GetWorkflow().GetFinishedAt() != nil
		})
		return problem
	}
	if problem := read(1, "alone"); !strings.Contains(problem, "not_found") || loggedIn.Load() == 0 {
		t.Errorf("one organization: found %q after %d logins, expected that the server was asked with the password", problem, loggedIn.Load())
	}
	loggedIn.Store(0)
	for organization := int64(2); organization > 0; organization-- {
		if problem := read(organization, "several"); !strings.Contains(problem, "does not say whose it is") || loggedIn.Load() != 0 {
			t.Errorf("organization %d of several: found %q after %d logins, expected the credential not to be used", organization,
				problem, loggedIn.Load())
		}
	}
	s.down()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	if err := workflow.Run(ctx, s.config); !fault.Is(err, fault.Invalid) ||
		!strings.Contains(err.Error(), "git_credentials[0].organizations") {
		t.Errorf("a start with several organizations: found %v, expected the credential to be refused", err)
	}
	s.config.GitCredentials[0].Organizations = []int64{1}
	s.up()
	if problem := read(2, "other"); strings.Contains(problem, "whose it is") || loggedIn.Load() != 0 {
		t.Errorf("organization 2: found %q after %d logins, expected to be let in as nobody", problem, loggedIn.Load())
	}
	if problem := read(1, "own"); !strings.Contains(problem, "not_found") || loggedIn.Load() == 0 {
		t.Errorf("organization 1: found %q after %d logins, expected that the server was asked with the password", problem, loggedIn.Load())
	}
}
