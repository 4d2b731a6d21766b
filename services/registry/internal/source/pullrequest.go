package source

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/lockstep-cd/lockstep/services/registry/internal/core"
)

// pullEvent reads what a delivery says about a pull request; false if it is about something else.
type pullEvent func(header http.Header, top node) (read func() (core.PullRequest, bool), about bool)

// withPulls parses a delivery about a pull request, or else about a status.
func withPulls(
	pull pullEvent, status func(http.Header, []byte) ([]core.CommitStatus, error),
) func(http.Header, []byte) (core.ForgeDelivery, error) {
	return func(header http.Header, body []byte) (d core.ForgeDelivery, err error) {
		top, err := openPush(body)
		if err != nil {
			return d, err
		}
		read, about := pull(header, top)
		if !about {
			d.Statuses, err = status(header, body)
			return d, err
		}
		p, counts := read()
		if err := top.err(); err != nil {
			return d, err
		}
		if counts {
			d.PullRequests = []core.PullRequest{p}
		}
		return d, nil
	}
}

// commands are what a comment begins with that asks for a plan.
func commands() []string { return []string{"/lockstep plan", "/lockstep preview"} }

// asks reports whether the first line of a comment is a command.
func asks(comment string) bool {
	line, _, _ := strings.Cut(strings.TrimSpace(comment), "\n")
	for _, c := range commands() {
		if strings.EqualFold(strings.TrimSpace(line), c) {
			return true
		}
	}
	return false
}

// gitHubPull reads the events pull_request and issue_comment of GitHub. What comes from a fork counts only once a member or a collaborator
// asks: outsiders must not be able to cause work.
func gitHubPull(header http.Header, top node) (func() (core.PullRequest, bool), bool) {
	switch header.Get("X-Github-Event") {
	case "pull_request":
		return func() (core.PullRequest, bool) { return likeGitHubPull(top, "synchronize") }, true
	case "issue_comment":
		return func() (core.PullRequest, bool) {
			p, counts := likeGitHubComment(top, top.in("issue").has("pull_request"))
			switch top.in("comment").text("author_association") {
			case "OWNER", "MEMBER", "COLLABORATOR":
				return p, counts
			default:
				return p, false
			}
		}, true
	default:
		return nil, false
	}
}

// giteaPull reads the events pull_request and issue_comment of Gitea and Forgejo. Who may ask is looked up at the forge.
func giteaPull(header http.Header, top node) (func() (core.PullRequest, bool), bool) {
	switch header.Get("X-Gitea-Event") {
	case "pull_request", "pull_request_sync":
		return func() (core.PullRequest, bool) { return likeGitHubPull(top, "synchronized") }, true
	case "issue_comment", "pull_request_comment":
		return func() (core.PullRequest, bool) { return likeGitHubComment(top, top.flag("is_pull")) }, true
	default:
		return nil, false
	}
}

// likeGitHubPull is a pull request as GitHub, and Gitea after it, report it. pushed is what they call a push to it.
func likeGitHubPull(top node, pushed string) (core.PullRequest, bool) {
	pull, repository, action := top.in("pull_request"), top.in("repository"), top.text("action")
	head := pull.in("head")
	p := core.PullRequest{
		Repository: repository.text("clone_url"), Cause: strings.Join([]string{action, head.text("sha"), pull.text("updated_at")}, " "),
		Names: core.PullRequestNames{Repository: repository.name("clone_url"), Number: pull.name("number")},
	}
	p.Number, _ = pull.number("number")
	from := head.in("repo").text("full_name")
	own := from != "" && from == pull.in("base").in("repo").text("full_name") // a fork that was deleted has no name
	return p, own && (action == "opened" || action == "reopened" || action == "edited" || action == pushed)
}

// likeGitHubComment is a comment as they report it.
func likeGitHubComment(top node, pull bool) (core.PullRequest, bool) {
	issue, comment, repository := top.in("issue"), top.in("comment"), top.in("repository")
	id, _ := comment.number("id")
	user := comment.in("user")
	p := core.PullRequest{
		Repository: repository.text("clone_url"), AskedBy: user.text("login"), Cause: "comment " + strconv.FormatInt(id, 10),
		Names: core.PullRequestNames{
			Repository: repository.name("clone_url"), Number: issue.name("number"), AskedBy: user.name("login"),
		},
	}
	p.Number, _ = issue.number("number")
	return p, pull && top.text("action") == "created" && asks(comment.text("body")) && p.AskedBy != ""
}

// gitLabPull reads the events of GitLab about merge requests, and about comments on them.
func gitLabPull(_ http.Header, top node) (func() (core.PullRequest, bool), bool) {
	switch top.text("object_kind") {
	case "merge_request":
		return func() (core.PullRequest, bool) { return gitLabMerge(top) }, true
	case "note":
		return func() (core.PullRequest, bool) { return gitLabNote(top) }, true
	default:
		return nil, false
	}
}

func gitLabMerge(top node) (core.PullRequest, bool) {
	merge, project := top.in("object_attributes"), top.in("project")
	action := merge.text("action")
	p := core.PullRequest{
		Repository: project.text("git_http_url"),
		Cause:      strings.Join([]string{action, merge.in("last_commit").text("id"), merge.text("updated_at")}, " "),
		Names:      core.PullRequestNames{Repository: project.name("git_http_url"), Number: merge.name("iid")},
	}
	p.Number, _ = merge.number("iid")
	from, known := merge.number("source_project_id")
	into, _ := merge.number("target_project_id")
	// An update without a push is about labels, a description or people, unless it is merged into another branch now.
	changed := action == "open" || action == "reopen" || action == "update" && (merge.has("oldrev") || top.in("changes").has("target_branch"))
	return p, known && from == into && changed
}

// noteOf is the field of a comment that says what it is on.
const noteOf = "noteable_type" //nolint:misspell // GitLab's

func gitLabNote(top node) (core.PullRequest, bool) {
	note, merge, project := top.in("object_attributes"), top.in("merge_request"), top.in("project")
	id, _ := note.number("id")
	author, _ := note.number("author_id")
	p := core.PullRequest{
		Repository: project.text("git_http_url"), AskedBy: strconv.FormatInt(author, 10), Cause: "comment " + strconv.FormatInt(id, 10),
		Names: core.PullRequestNames{Repository: project.name("git_http_url"), Number: merge.name("iid"), AskedBy: note.name("author_id")},
	}
	p.Number, _ = merge.number("iid")
	action := note.text("action") // of releases before 16.4 there is none
	return p, note.text(noteOf) == "MergeRequest" && !note.flag("system") && (action == "" || action == "create") && author > 0 &&
		asks(note.text("note"))
}
