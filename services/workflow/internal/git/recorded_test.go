package git

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
)

// documented serves answers in the form that forges document, by the end of their paths.
func documented(t *testing.T, forge string, status int, files map[string]string) rest {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for end, file := range files {
			if strings.HasSuffix(r.URL.Path, end) {
				text, err := os.ReadFile(filepath.Join("testdata", "documented", file))
				if err != nil {
					t.Error(err)
				}
				w.Header().Set("Content-Type", "application/json; charset=utf-8")
				w.WriteHeader(status)
				_, _ = w.Write(text)
				return
			}
		}
		t.Errorf("asked for %s", r.URL.Path)
	}))
	t.Cleanup(server.Close)
	return rest{
		client: server.Client(), forge: forge, url: "https://forge/team/shop", project: "team/shop", base: server.URL, user: server.URL + "/user",
		now: clock.System().Now, seen: &allowance{},
	}
}

// What GitHub and GitLab document of requests that are open, merged and closed, and of those that they refuse, is read as it is meant: the
// fakes of the other tests have fewer members, and were written by the same hands as what they test.
func TestDocumentedAnswersAreRead(t *testing.T) {
	t.Parallel()
	const pull, head = "https://github.com/octocat/Hello-World/pull/1347", "6dcb09b5b57875f334f61aebed695e2e4193db5e"
	request, sha := "http://gitlab.example.com/my-group/my-project/merge_requests/1", strings.Repeat("8", 40)
	for name, test := range map[string]struct {
		forge string
		files map[string]string
		want  activity.Proposal
	}{
		"GitHub, open": {GitHub, map[string]string{"/pulls/7": "github-pull-open.json"}, activity.Proposal{
			Number: 1347, URL: pull, State: "open", Branch: "new-topic", Into: "master", Head: head,
		}},
		"GitHub, merged": {GitHub, map[string]string{"/pulls/7": "github-pull-merged.json"}, activity.Proposal{
			Number: 1347, URL: pull, State: "merged", Branch: "new-topic", Into: "master", Head: head,
			Commit: "e5bd3914e2e596debea16f433f57875b5b90bcd6", By: "octocat", ByID: 1,
		}},
		"GitHub, closed": {GitHub, map[string]string{"/pulls/7": "github-pull-closed.json", "/issues/7": "github-issue-closed.json"}, activity.Proposal{
			Number: 1347, URL: pull, State: "closed", Branch: "new-topic", Into: "master", Head: head, By: "octocat", ByID: 1,
		}},
		"GitLab, fast-forward, before 14.7": {GitLab, map[string]string{"/merge_requests/7": "gitlab-merged-12.json"}, activity.Proposal{
			Number: 1, URL: request, State: "merged", Branch: "test1", Into: "master", Head: sha, Commit: sha, By: "DouweM", ByID: 87854,
		}},
		"GitLab, merged": {GitLab, map[string]string{"/merge_requests/7": "gitlab-merged.json"}, activity.Proposal{
			Number: 1, URL: request, State: "merged", Branch: "test1", Into: "master", Head: sha, Commit: strings.Repeat("9", 40), By: "DouweM", ByID: 87854,
		}},
		"GitLab, closed": {GitLab, map[string]string{"/merge_requests/7": "gitlab-closed.json"}, activity.Proposal{
			Number: 1, URL: request, State: "closed", Branch: "test1", Into: "master", Head: sha, By: "axel.block", ByID: 12,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := documented(t, test.forge, http.StatusOK, test.files)
			var forge proposer = gitHub{r}
			if test.forge == GitLab {
				forge = gitLab{r}
			}
			got, err := forge.proposal(t.Context(), 7)
			if diff := cmp.Diff(test.want, got); diff != "" || err != nil {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
		})
	}
}

// A request that exists already is Refused at each forge, with the sentence that says so: GitHub has it among the errors of "Validation
// Failed", and GitLab has a list.
func TestDocumentedRefusalsAreShown(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		forge, path, file, want string
		status                  int
	}{
		"GitHub": {
			GitHub, "/pulls", "github-refused.json", "Validation Failed: A pull request already exists for octocat:new-topic.", http.StatusUnprocessableEntity,
		},
		"GitLab": {
			GitLab, "/merge_requests", "gitlab-refused.json", "409: Another open merge request already exists for this source branch: !1", http.StatusConflict,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := documented(t, test.forge, test.status, map[string]string{test.path: test.file})
			var forge proposer = gitHub{r}
			if test.forge == GitLab {
				forge = gitLab{r}
			}
			_, err := forge.open(t.Context(), draft{branch: "new-topic", into: "master", title: "x"})
			if !fault.Is(err, fault.Refused) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("found %v; want %q, refused", err, test.want)
			}
		})
	}
}
