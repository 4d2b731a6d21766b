package source

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/lockstep-cd/lockstep/services/registry/internal/core"
)

// D48: what each forge reports of a commit, by the fields that its documentation has.
func TestStatusesOfForges(t *testing.T) {
	t.Parallel()
	const sha = "9fceb02d0ae598e95dc970b74767f19372d61af8"
	github := func(kind string) http.Header { return http.Header{"X-Github-Event": {kind}} }
	run := func(status, conclusion string) string {
		return fmt.Sprintf(`{"action":"completed","check_run":{"id":42,"name":"build","head_sha":%q,"status":%q,"conclusion":%s,
			"html_url":"https://github.com/shop/api/runs/42","started_at":"2026-03-25T10:00:00Z","completed_at":"2026-03-25T10:05:00Z",
			"output":{"title":"all is well","summary":"long"}},"repository":{"clone_url":"https://github.com/shop/api.git"}}`, sha, status, conclusion)
	}
	queued := func(suite, status string) string {
		return fmt.Sprintf(`{"action":"created","check_run":{"id":42,"name":"build","head_sha":%q,"status":%q,"conclusion":null,"started_at":null,
			"completed_at":null,"html_url":"https://github.com/shop/api/runs/42","output":{"title":null},"check_suite":{"id":7%s}},
			"repository":{"clone_url":"https://github.com/shop/api.git"}}`, sha, status, suite)
	}
	gitea := func(state, updated string) string {
		return fmt.Sprintf(`{"commit":{"id":%q},"context":"ci/e2e","created_at":"2026-03-25T10:00:00Z","description":"tests","id":7,
			"repository":{"clone_url":"https://git.example.com/shop/api.git"},"sha":%q,"state":%q,"target_url":"https://ci.example.com/7","updated_at":%s}`,
			sha, sha, state, updated)
	}
	job := func(status, times string) string {
		return fmt.Sprintf(`{"object_kind":"build","sha":%q,"build_id":1977,"build_name":"test","build_stage":"test","build_status":%q,
			"build_created_at":"2026-03-25 10:00:00 UTC",%s"build_failure_reason":"script_failure","pipeline_id":2366,
			"project":{"git_http_url":"https://gitlab.com/shop/api.git"}}`, sha, status, times)
	}
	for name, c := range map[string]struct {
		format, body string
		header       http.Header
		want         string
	}{
		"status": {
			"github", fmt.Sprintf(`{"id":7,"sha":%q,"context":"ci","state":"error","description":null,"target_url":null,
				"updated_at":"2026-03-25T10:00:00+00:00","repository":{"clone_url":"https://github.com/shop/api.git"}}`, sha), github("status"),
			"https://github.com/shop/api.git status ci failure 2026-03-25T10:00:00Z 7 []",
		},
		"run that succeeded": {
			"github", run("completed", `"success"`), github("check_run"), "https://github.com/shop/api.git run build success 2026-03-25T10:05:00Z 42 [all is well]",
		},
		"run that began again": {
			"github", run("in_progress", `null`), github("check_run"), "https://github.com/shop/api.git run build pending 2026-03-25T10:00:00Z 42 [all is well]",
		},
		"run that is queued": {
			"github", queued(`,"created_at":"2026-03-25T09:59:00Z"`, "queued"), github("check_run"),
			"https://github.com/shop/api.git run build pending 2026-03-25T09:59:00Z 42 []",
		},
		"run that is queued in a suite without a time": {
			"github", queued("", "queued"), github("check_run"), "https://github.com/shop/api.git run build pending 1970-01-01T00:00:00Z 42 []",
		},
		"run that has ended, without a time": {
			"github", strings.Replace(queued("", "completed"), `"conclusion":null`, `"conclusion":"success"`, 1), github("check_run"),
			"https://github.com/shop/api.git run build success  42 []", // refused by the intake
		},
		"run that was skipped": {
			"github", run("completed", `"skipped"`), github("check_run"),
			"https://github.com/shop/api.git run build pending 2026-03-25T10:05:00Z 42 [it has ended as skipped]",
		},
		"run that is neutral": {
			"github", run("completed", `"neutral"`), github("check_run"),
			"https://github.com/shop/api.git run build pending 2026-03-25T10:05:00Z 42 [it has ended as neutral]",
		},
		"run that took too long": {
			"github", run("completed", `"timed_out"`), github("check_run"), "https://github.com/shop/api.git run build failure 2026-03-25T10:05:00Z 42 [all is well]",
		},
		"run with a conclusion that nobody knows": {
			"github", run("completed", `"perfect"`), github("check_run"), "https://github.com/shop/api.git run build  2026-03-25T10:05:00Z 42 [all is well]",
		},
		"push of GitHub": {"github", `{"ref":"refs/heads/main"}`, github("push"), ""},
		"status of Gitea": {
			"gitea", gitea("success", "null"), http.Header{"X-Gitea-Event": {"status"}}, "https://git.example.com/shop/api.git status ci/e2e success 2026-03-25T10:00:00Z 7 [tests]",
		},
		"status of Gitea that was changed": {
			"gitea", gitea("warning", `"2026-03-25T11:00:00Z"`),
			http.Header{"X-Gitea-Event": {"status"}},
			"https://git.example.com/shop/api.git status ci/e2e failure 2026-03-25T11:00:00Z 7 [tests]",
		},
		"push of Gitea":  {"gitea", gitea("success", "null"), http.Header{"X-Gitea-Event": {"push"}}, ""},
		"job that waits": {"gitlab", job("created", ""), nil, "https://gitlab.com/shop/api.git run test pending 2026-03-25T10:00:00Z 1977 [the job is created]"},
		"job that failed": {
			"gitlab", job("failed", `"build_started_at":"2026-03-25 10:01:00 UTC","build_finished_at":"2026-03-25 10:02:00 UTC",`), nil,
			"https://gitlab.com/shop/api.git run test failure 2026-03-25T10:02:00Z 1977 [script_failure]",
		},
		"job with times by ISO 8601": {
			"gitlab", job("success", `"build_finished_at":"2026-03-25 12:02:00 +0200","build_finished_at_iso":"2026-03-25T10:02:00Z",`), nil,
			"https://gitlab.com/shop/api.git run test success 2026-03-25T10:02:00Z 1977 [the job is success]",
		},
		"pipeline": {"gitlab", fmt.Sprintf(`{"object_kind":"pipeline","object_attributes":{"sha":%q,"status":"success"}}`, sha), nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all, err := statusFormat(c.format).Parse(c.header, []byte(c.body))
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			for _, s := range all.Statuses {
				got += fmt.Sprintf("%s %s %s %s %s %d [%s]", s.Repository, s.Kind, s.Context, s.Phase, s.ObservedAt, s.Sequence, s.Description)
				if s.Commit != sha {
					t.Errorf("found commit %s; want %s", s.Commit, sha)
				}
			}
			if got != c.want {
				t.Errorf("found %q; want %q", got, c.want)
			}
		})
	}
}

func statusFormat(name string) StatusFormat {
	for _, f := range StatusFormats() {
		if f.Name == name {
			return f
		}
	}
	panic("no format " + name)
}

// Whatever a body is, a parser reports it or names the field.
func FuzzStatusesOfForges(f *testing.F) {
	for _, body := range []string{
		`{"object_kind":"build","sha":"a","build_name":1}`, `{"check_run":{"id":"x","output":[]},"repository":null}`, `{"sha":{},"state":"success"}`, `[`,
		`{"action":"opened","pull_request":{"number":"x","head":[]}}`, `{"object_kind":"note","object_attributes":{"id":{}},"merge_request":7}`,
	} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, format := range StatusFormats() {
			for _, kind := range []string{"status", "check_run", "pull_request", "issue_comment"} {
				all, err := format.Parse(http.Header{"X-Github-Event": {kind}, "X-Gitea-Event": {kind}}, body)
				if err == nil {
					continue
				}
				if len(all.Statuses)+len(all.PullRequests) != 0 || !strings.Contains(err.Error(), ":") {
					t.Errorf("%s: found %v with %v; want an error that names the field, and nothing else", format.Name, all, err)
				}
				if refusals := core.Unreadable(err); len(refusals) == 0 {
					t.Errorf("%s: found no refusal for %v", format.Name, err)
				}
			}
		}
	})
}
