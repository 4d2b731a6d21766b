package source

import (
	"fmt"
	"net/http"
	"testing"
)

// R4-27, D60: what each forge reports of a pull request, by the fields that its documentation has. A fork counts only once its plan is
// asked for, and at GitHub only members and collaborators may ask.
func TestPullRequestsOfForges(t *testing.T) {
	t.Parallel()
	like := func(host, action, from string) string {
		return fmt.Sprintf(`{"action":%q,"number":7,"pull_request":{"number":7,"updated_at":"2026-03-25T10:00:00Z","head":{"ref":"two","sha":"9fce",
			"repo":{"full_name":%q}},"base":{"ref":"main","repo":{"full_name":"shop/config"}}},"repository":{"full_name":"shop/config",
			"clone_url":"https://%s/shop/config.git"}}`, action, from, host)
	}
	comment := func(host, action, body, more string) string {
		return fmt.Sprintf(`{"action":%q,"issue":{"number":7%s},"comment":{"id":42,"body":%q,"user":{"login":"ann"},"author_association":"MEMBER"},
			"repository":{"clone_url":"https://%s/shop/config.git"}}`, action, more, body, host)
	}
	merge := func(action, more string, from int) string {
		return fmt.Sprintf(`{"object_kind":"merge_request","project":{"git_http_url":"https://gitlab.com/shop/config.git"},"object_attributes":{"iid":7,
			"action":%q,"updated_at":"2026-03-25 10:00:00 UTC","source_project_id":%d,"target_project_id":3,"last_commit":{"id":"9fce"}%s}}`, action, from, more)
	}
	note := func(kind, text, more string) string {
		return fmt.Sprintf(`{"object_kind":"note","project":{"git_http_url":"https://gitlab.com/shop/config.git"},"merge_request":{"iid":7},
			"object_attributes":{"id":42,"author_id":11,"note":%q,"%s":%q%s}}`, text, noteOf, kind, more)
	}
	github := func(kind string) http.Header { return http.Header{"X-Github-Event": {kind}} }
	gitea := func(kind string) http.Header { return http.Header{"X-Gitea-Event": {kind}} }
	const pull = `,"pull_request":{"url":"https://api.github.com/repos/shop/config/pulls/7"}`
	for name, c := range map[string]struct {
		format, body string
		header       http.Header
		want         string
	}{
		"opened at GitHub":    {"github", like("github.com", "opened", "shop/config"), github("pull_request"), "https://github.com/shop/config.git 7 by  opened 9fce 2026-03-25T10:00:00Z"},
		"pushed at GitHub":    {"github", like("github.com", "synchronize", "shop/config"), github("pull_request"), "https://github.com/shop/config.git 7 by  synchronize 9fce 2026-03-25T10:00:00Z"},
		"labelled at GitHub":  {"github", like("github.com", "labeled", "shop/config"), github("pull_request"), ""},
		"closed at GitHub":    {"github", like("github.com", "closed", "shop/config"), github("pull_request"), ""},
		"a fork at GitHub":    {"github", like("github.com", "opened", "eve/config"), github("pull_request"), ""},
		"a fork that is gone": {"github", `{"action":"opened","pull_request":{"number":7,"head":{"repo":null},"base":{"repo":{"full_name":"a/b"}}}}`, github("pull_request"), ""},
		"asked at GitHub":     {"github", comment("github.com", "created", "/lockstep plan\r\nplease", pull), github("issue_comment"), "https://github.com/shop/config.git 7 by ann comment 42"},
		"asked differently":   {"github", comment("github.com", "created", " /Lockstep Preview ", pull), github("issue_comment"), "https://github.com/shop/config.git 7 by ann comment 42"},
		"asked by an outsider": {
			"github", `{"action":"created","issue":{"number":7,"pull_request":{}},"comment":{"id":42,"body":"/lockstep plan","user":{"login":"eve"},
				"author_association":"NONE"},"repository":{"clone_url":"https://github.com/shop/config.git"}}`, github("issue_comment"), "",
		},
		"another comment":           {"github", comment("github.com", "created", "I said /lockstep plan", pull), github("issue_comment"), ""},
		"a longer command":          {"github", comment("github.com", "created", "/lockstep planned", pull), github("issue_comment"), ""},
		"a comment that was edited": {"github", comment("github.com", "edited", "/lockstep plan", pull), github("issue_comment"), ""},
		"a comment on an issue":     {"github", comment("github.com", "created", "/lockstep plan", ""), github("issue_comment"), ""},
		"opened at Gitea":           {"gitea", like("git.test", "opened", "shop/config"), gitea("pull_request"), "https://git.test/shop/config.git 7 by  opened 9fce 2026-03-25T10:00:00Z"},
		"pushed at Gitea":           {"gitea", like("git.test", "synchronized", "shop/config"), gitea("pull_request"), "https://git.test/shop/config.git 7 by  synchronized 9fce 2026-03-25T10:00:00Z"},
		"a fork at Gitea":           {"gitea", like("git.test", "opened", "eve/config"), gitea("pull_request"), ""},
		"asked at Gitea":            {"gitea", `{"is_pull":true,` + comment("git.test", "created", "/lockstep plan", "")[1:], gitea("issue_comment"), "https://git.test/shop/config.git 7 by ann comment 42"},
		"an issue at Gitea":         {"gitea", comment("git.test", "created", "/lockstep plan", ""), gitea("issue_comment"), ""},
		"opened at GitLab":          {"gitlab", merge("open", "", 3), nil, "https://gitlab.com/shop/config.git 7 by  open 9fce 2026-03-25 10:00:00 UTC"},
		"pushed at GitLab":          {"gitlab", merge("update", `,"oldrev":"1234"`, 3), nil, "https://gitlab.com/shop/config.git 7 by  update 9fce 2026-03-25 10:00:00 UTC"},
		"described at GitLab":       {"gitlab", merge("update", "", 3), nil, ""},
		"a fork at GitLab":          {"gitlab", merge("open", "", 4), nil, ""},
		"asked at GitLab":           {"gitlab", note("MergeRequest", "/lockstep plan", `,"action":"create"`), nil, "https://gitlab.com/shop/config.git 7 by 11 comment 42"},
		"asked at an older GitLab":  {"gitlab", note("MergeRequest", "/lockstep plan", ""), nil, "https://gitlab.com/shop/config.git 7 by 11 comment 42"},
		"a note that was edited":    {"gitlab", note("MergeRequest", "/lockstep plan", `,"action":"update"`), nil, ""},
		"a note on an issue":        {"gitlab", note("Issue", "/lockstep plan", ""), nil, ""},
		"a note of the system":      {"gitlab", note("MergeRequest", "/lockstep plan", `,"system":true`), nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, err := statusFormat(c.format).Parse(c.header, []byte(c.body))
			if err != nil || len(d.Statuses) != 0 {
				t.Fatalf("found %v, %v", d, err)
			}
			got := ""
			for _, p := range d.PullRequests {
				got += fmt.Sprintf("%s %d by %s %s", p.Repository, p.Number, p.AskedBy, p.Cause)
			}
			if got != c.want {
				t.Errorf("found %q; want %q", got, c.want)
			}
		})
	}
}
