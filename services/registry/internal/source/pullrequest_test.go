package source

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/id"
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

// D63: what each forge reports of a comment with a command, by the fields that its documentation has. Only a comment that was just made
// counts, with the number of who has written it, who is also who acts: no edited one, none that another has changed, none of a bot or an
// App.
func TestCommandsInCommentsOfForges(t *testing.T) {
	t.Parallel()
	like := func(action, body, user, more string) string {
		return fmt.Sprintf(`{"action":%q,"is_pull":true,"issue":{"number":7,"pull_request":{"url":"x"}},"comment":{"id":42,"created_at":"2026-03-25T10:00:00Z","body":%q,"user":%s,
			"author_association":"MEMBER","performed_via_github_app":null},"repository":{"clone_url":"https://git.test/shop/config.git"}%s}`, action, body, user, more)
	}
	note := func(text, more, user string) string {
		return fmt.Sprintf(`{"object_kind":"note","user":%s,"project":{"git_http_url":"https://git.test/shop/config.git"},"merge_request":{"iid":7},
			"object_attributes":{"id":42,"author_id":11,"created_at":"2026-03-25 10:00:00 UTC","note":%q,"%s":"MergeRequest"%s}}`, user, text, noteOf, more)
	}
	const ann, person = `{"id":11,"login":"ann","type":"User"}`, `{"id":11,"username":"ann"}`
	const want = "https://git.test/shop/config.git 7 42 by 11 ann at 2026-03-25T10:00:00Z: /lockstep approve 118 looks good"
	const command = "/lockstep approve 118 looks good\r\nand more"
	github, gitea := http.Header{"X-Github-Event": {"issue_comment"}}, http.Header{"X-Gitea-Event": {"issue_comment"}}
	for name, c := range map[string]struct {
		format, body string
		header       http.Header
		want         string
	}{
		"at GitHub":                    {"github", like("created", command, ann, `,"sender":{"id":11}`), github, want},
		"edited at GitHub":             {"github", like("edited", command, ann, `,"sender":{"id":11}`), github, ""},
		"deleted at GitHub":            {"github", like("deleted", command, ann, ""), github, ""},
		"by another sender":            {"github", like("created", command, ann, `,"sender":{"id":12}`), github, ""},
		"by a bot":                     {"github", like("created", command, `{"id":11,"login":"ci[bot]","type":"Bot"}`, ""), github, ""},
		"by what says no type":         {"github", like("created", command, `{"id":11,"login":"ann"}`, ""), github, ""},
		"by an App for a user":         {"github", strings.Replace(like("created", command, ann, ""), `"performed_via_github_app":null`, `"performed_via_github_app":{"id":1}`, 1), github, ""},
		"by an outsider":               {"github", strings.Replace(like("created", command, ann, ""), "MEMBER", "NONE", 1), github, ""},
		"on an issue":                  {"github", strings.Replace(like("created", command, ann, ""), `"pull_request":{"url":"x"}`, `"x":1`, 1), github, ""},
		"another event":                {"github", like("created", command, ann, ""), http.Header{"X-Github-Event": {"discussion_comment"}}, ""},
		"in the middle of a text":      {"github", like("created", "please /lockstep approve 118", ann, ""), github, ""},
		"in a quotation":               {"github", like("created", "> /lockstep approve 118", ann, ""), github, ""},
		"on the second line":           {"github", like("created", "so\n/lockstep approve 118", ann, ""), github, ""},
		"of another program":           {"github", like("created", "/lockstepped approve 118", ann, ""), github, ""},
		"a plan is none":               {"github", like("created", "/lockstep plan", ann, ""), github, ""},
		"at Gitea":                     {"gitea", like("created", command, `{"id":11,"login":"ann"}`, `,"sender":{"id":11}`), gitea, want},
		"edited at Gitea":              {"gitea", like("edited", command, `{"id":11,"login":"ann"}`, ""), gitea, ""},
		"on an issue at Gitea":         {"gitea", strings.Replace(like("created", command, ann, ""), `"is_pull":true`, `"is_pull":false`, 1), gitea, ""},
		"at GitLab":                    {"gitlab", note(command, `,"action":"create"`, person), nil, want},
		"edited at GitLab":             {"gitlab", note(command, `,"action":"update"`, person), nil, ""},
		"of an older GitLab":           {"gitlab", note(command, "", person), nil, ""},
		"by another at GitLab":         {"gitlab", note(command, `,"action":"create"`, `{"id":12,"username":"eve"}`), nil, ""},
		"by nobody at GitLab":          {"gitlab", note(command, `,"action":"create"`, `{}`), nil, ""},
		"an internal note":             {"gitlab", note(command, `,"action":"create","internal":true`, person), nil, ""},
		"a confidential note":          {"gitlab", note(command, `,"action":"create","confidential":true`, person), nil, ""},
		"by the system":                {"gitlab", note(command, `,"action":"create","system":true`, person), nil, ""},
		"by an access token at GitLab": {"gitlab", note(command, `,"action":"create"`, `{"id":11,"username":"project_3_bot_0a1b"}`), nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, err := statusFormat(c.format).Parse(c.header, []byte(c.body))
			if err != nil || len(d.Statuses) != 0 || len(d.PullRequests) != 0 && name != "a plan is none" {
				t.Fatalf("found %v, %v", d, err)
			}
			got := ""
			for _, one := range d.Comments {
				got += fmt.Sprintf("%s %d %d by %d %s at %s: %s", one.Repository, one.Number, one.CommentID, one.AuthorID, one.Author, one.MadeAt, one.Text)
			}
			if got != c.want {
				t.Errorf("found %q; want %q", got, c.want)
			}
		})
	}
}

// D63: a command in a review counts as one in a comment does: in its text, or in a comment of it. It has a number of its own, also where a
// forge counts reviews apart or gives them no number; where a forge does not say whether an App has written it, that is known.
func TestCommandsInReviewsOfForges(t *testing.T) {
	t.Parallel()
	const pull = `"pull_request":{"number":7,"updated_at":"2026-03-25T10:00:00Z"},"repository":{"clone_url":"https://git.test/shop/config.git"}`
	const command = "/lockstep why\r\nand more"
	inReview := func(action, body, user, association string) string {
		return fmt.Sprintf(`{"action":%q,"comment":{"id":42,"created_at":"2026-03-25T10:00:00Z","body":%q,"user":%s,"author_association":%q,"diff_hunk":"@@"},
			"sender":{"id":11},%s}`, action, body, user, association, pull)
	}
	review := func(action, body, user string) string {
		return fmt.Sprintf(`{"action":%q,"review":{"id":42,"submitted_at":"2026-03-25T10:00:00Z","state":"approved","body":%q,"user":%s,"author_association":"MEMBER"},
			"sender":{"id":11},%s}`, action, body, user, pull)
	}
	gitea := func(action, kind, content, sender string) string {
		return fmt.Sprintf(`{"action":%q,"review":{"type":%q,"content":%q},"sender":%s,%s}`, action, kind, content, sender, pull)
	}
	const ann = `{"id":11,"login":"ann","type":"User"}`
	header := func(name, kind string) http.Header { return http.Header{name: {kind}} }
	hub := func(kind string) http.Header { return header("X-Github-Event", kind) }
	tea := func(kind string) http.Header { return header("X-Gitea-Event", kind) }
	const by = "https://git.test/shop/config.git 7 by 11 ann at 2026-03-25T10:00:00Z: /lockstep why"
	for name, c := range map[string]struct {
		format, body string
		header       http.Header
		want, id     string
	}{
		"a comment of a review at GitHub": {"github", inReview("created", command, ann, "MEMBER"), hub("pull_request_review_comment"), by + " maybe", "review comment 42"},
		"one that was edited":             {"github", inReview("edited", command, ann, "MEMBER"), hub("pull_request_review_comment"), "", ""},
		"one of an outsider":              {"github", inReview("created", command, ann, "NONE"), hub("pull_request_review_comment"), "", ""},
		"one of a bot":                    {"github", inReview("created", command, `{"id":11,"login":"ci[bot]","type":"Bot"}`, "MEMBER"), hub("pull_request_review_comment"), "", ""},
		"one for another":                 {"github", inReview("created", command, `{"id":12,"login":"eve","type":"User"}`, "MEMBER"), hub("pull_request_review_comment"), "", ""},
		"one without a command":           {"github", inReview("created", "nice", ann, "MEMBER"), hub("pull_request_review_comment"), "", ""},
		"a review at GitHub":              {"github", review("submitted", command, ann), hub("pull_request_review"), by + " maybe", "review 42"},
		"a review without a text":         {"github", strings.Replace(review("submitted", command, ann), `"body":"/lockstep why\r\nand more"`, `"body":null`, 1), hub("pull_request_review"), "", ""},
		"a review that was edited":        {"github", review("edited", command, ann), hub("pull_request_review"), "", ""},
		"a review that was dismissed":     {"github", review("dismissed", command, ann), hub("pull_request_review"), "", ""},
		"a comment as a review":           {"github", inReview("created", command, ann, "MEMBER"), hub("pull_request_review"), "", ""},
		"a review at Gitea":               {"gitea", gitea("reviewed", "pull_request_review_comment", command, ann), tea("pull_request_comment"), by, "review"},
		"an approval at Gitea":            {"gitea", gitea("reviewed", "pull_request_review_approved", command, ann), tea("pull_request_approved"), by, "review"},
		"a rejection at Gitea":            {"gitea", gitea("reviewed", "pull_request_review_rejected", command, ann), tea("pull_request_rejected"), by, "review"},
		"something else at Gitea":         {"gitea", gitea("edited", "pull_request_review_comment", command, ann), tea("pull_request_comment"), "", ""},
		"by nobody at Gitea":              {"gitea", gitea("reviewed", "pull_request_review_comment", command, `{}`), tea("pull_request_comment"), "", ""},
		"a comment on a line at GitLab": {"gitlab", fmt.Sprintf(`{"object_kind":"note","user":{"id":11,"username":"ann"},"project":{"git_http_url":"https://git.test/shop/config.git"},
			"merge_request":{"iid":7},"object_attributes":{"id":42,"author_id":11,"created_at":"2026-03-25 10:00:00 UTC","note":%q,"%s":"MergeRequest","action":"create",
			"type":"DiffNote","position":{"new_path":"a.yaml","new_line":3}}}`, command, noteOf), nil, by, "comment 42"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, err := statusFormat(c.format).Parse(c.header, []byte(c.body))
			if err != nil || len(d.Statuses)+len(d.PullRequests) != 0 {
				t.Fatalf("found %v, %v", d, err)
			}
			got, name := "", ""
			for _, one := range d.Comments {
				got += fmt.Sprintf("%s %d by %d %s at %s: %s", one.Repository, one.Number, one.AuthorID, one.Author, one.MadeAt, one.Text)
				if one.MaybeApp {
					got += " maybe"
				}
				name = id.OfComment(one.CommentID)
			}
			if got != c.want || !strings.HasPrefix(name, c.id) || c.id == "" && name != "" {
				t.Errorf("found %q, %s; want %q, %s", got, name, c.want, c.id)
			}
		})
	}
	// Without numbers: the same review is the same, and any other one is another.
	numbers := map[int64]int{}
	for _, body := range []string{
		gitea("reviewed", "pull_request_review_comment", command, ann), gitea("reviewed", "pull_request_review_comment", command, ann),
		gitea("reviewed", "pull_request_review_approved", command, ann), gitea("reviewed", "pull_request_review_comment", command+"!", ann),
		strings.Replace(gitea("reviewed", "pull_request_review_comment", command, ann), "10:00:00Z", "10:00:01Z", 1),
		gitea("reviewed", "pull_request_review_comment", command, `{"id":12,"login":"bob"}`),
	} {
		d, err := statusFormat("gitea").Parse(tea("pull_request_comment"), []byte(body))
		if err != nil || len(d.Comments) != 1 {
			t.Fatalf("found %v, %v", d, err)
		}
		numbers[d.Comments[0].CommentID]++
	}
	if len(numbers) != 5 {
		t.Errorf("found the numbers %v; want 5, one of them twice", numbers)
	}
	// A plan may be asked for in a review, too.
	for want, c := range map[string]struct {
		format, body string
		header       http.Header
	}{
		"ann review 42": {"github", review("submitted", "/lockstep plan", ann), hub("pull_request_review")},
		"ann review ":   {"gitea", gitea("reviewed", "pull_request_review_comment", "/lockstep plan", ann), tea("pull_request_comment")},
	} {
		d, err := statusFormat(c.format).Parse(c.header, []byte(c.body))
		if err != nil || len(d.PullRequests) != 1 || !strings.HasPrefix(d.PullRequests[0].AskedBy+" "+d.PullRequests[0].Cause, want) {
			t.Errorf("found %+v, %v; want %s", d, err, want)
		}
	}
}
