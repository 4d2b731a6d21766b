package source

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/id"
	"github.com/lockstep-cd/lockstep/services/registry/internal/core"
)

// pullEvent reads what a delivery says about a pull request; false if it is about something else.
type pullEvent func(header http.Header, top node) (read func() core.ForgeDelivery, about bool)

// pulls is a delivery of a pull request, if it counts.
func pulls(p core.PullRequest, counts bool) (d core.ForgeDelivery) {
	if counts {
		d.PullRequests = []core.PullRequest{p}
	}
	return d
}

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
		d = read()
		if err := top.err(); err != nil {
			return core.ForgeDelivery{}, err
		}
		return d, nil
	}
}

// commands are what a comment begins with that asks for a plan.
func commands() []string { return []string{"/lockstep plan", "/lockstep preview"} }

// firstLine is that of a comment.
func firstLine(comment string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(comment), "\n")
	return strings.TrimSpace(line)
}

// asks reports whether the first line of a comment asks for a plan.
func asks(comment string) bool {
	for _, c := range commands() {
		if strings.EqualFold(firstLine(comment), c) {
			return true
		}
	}
	return false
}

// orders reports whether the first line of a comment is another command.
func orders(comment string) bool {
	words := strings.Fields(firstLine(comment))
	return len(words) > 0 && strings.EqualFold(words[0], "/lockstep") && !asks(comment)
}

// gitHubPull reads the events pull_request, issue_comment, pull_request_review and pull_request_review_comment of GitHub. What comes from
// a fork counts only once a member or a collaborator asks: outsiders must not be able to cause work. A bot, and an App that writes for a
// user, give no commands.
func gitHubPull(header http.Header, top node) (func() core.ForgeDelivery, bool) {
	switch header.Get("X-Github-Event") {
	case "pull_request":
		return func() core.ForgeDelivery { return pulls(likeGitHubPull(top, "synchronize")) }, true
	case "issue_comment":
		return func() core.ForgeDelivery {
			comment := top.in("comment")
			switch comment.text("author_association") {
			case "OWNER", "MEMBER", "COLLABORATOR":
			default:
				return core.ForgeDelivery{}
			}
			d := likeGitHubComment(top, top.in("issue").has("pull_request"))
			if comment.in("user").text("type") != "User" || comment.has("performed_via_github_app") {
				d.Comments = nil
			}
			return d
		}, true
	case "pull_request_review_comment":
		return func() core.ForgeDelivery {
			return gitHubReview(top, top.in("comment"), "created", "created_at", id.ReviewComments)
		}, true
	case "pull_request_review":
		return func() core.ForgeDelivery {
			return gitHubReview(top, top.in("review"), "submitted", "submitted_at", id.Reviews)
		}, true
	default:
		return nil, false
	}
}

// gitHubReview is a review, or a comment in one, as GitHub reports it: made by an action, at the time in a field, with numbers that begin
// somewhere. GitHub does not say of them whether an App has written them for a user.
func gitHubReview(top, of node, made, at string, first int64) core.ForgeDelivery {
	switch of.text("author_association") {
	case "OWNER", "MEMBER", "COLLABORATOR":
	default:
		return core.ForgeDelivery{}
	}
	d := likeComment(top, top.in("pull_request"), of, of.in("user"), likeFields{made: made, at: of, time: at, body: "body", first: first})
	if of.in("user").text("type") != "User" {
		d.Comments = nil
	}
	for i := range d.Comments {
		d.Comments[i].MaybeApp = true
	}
	return d
}

// giteaPull reads the events pull_request and issue_comment of Gitea and Forgejo, and those of reviews. Who may ask is looked up at the
// forge.
func giteaPull(header http.Header, top node) (func() core.ForgeDelivery, bool) {
	switch header.Get("X-Gitea-Event") {
	case "pull_request", "pull_request_sync":
		return func() core.ForgeDelivery { return pulls(likeGitHubPull(top, "synchronized")) }, true
	case "issue_comment", "pull_request_comment", "pull_request_approved", "pull_request_rejected":
		return func() core.ForgeDelivery {
			if top.has("review") {
				return giteaReview(top)
			}
			return likeGitHubComment(top, top.flag("is_pull"))
		}, true
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

// giteaReview is a review as Gitea and Forgejo report it: with its text, and without a number and a time of its own. Its number is made
// of all that identifies it, and its time is that of the pull request, which it has changed.
func giteaReview(top node) core.ForgeDelivery {
	pull, review, sender := top.in("pull_request"), top.in("review"), top.in("sender")
	number, _ := pull.number("number")
	author, _ := sender.number("id")
	sum := sha256.Sum256(fmt.Appendf(nil, "%d %d %q %q %q", number, author, pull.text("updated_at"), review.text("type"), review.text("content")))
	return likeComment(top, pull, review, sender, likeFields{
		made: "reviewed", at: pull, time: "updated_at", body: "content",
		number: id.Reviews + int64(binary.BigEndian.Uint64(sum[:])>>16),
	})
}

// likeGitHubComment is a comment as they report it. Only a comment that was just made counts, and only with who has written it as the one
// who acts: who may edit comments must not be able to speak for others.
func likeGitHubComment(top node, pull bool) core.ForgeDelivery {
	comment := top.in("comment")
	if !pull {
		return core.ForgeDelivery{}
	}
	return likeComment(top, top.in("issue"), comment, comment.in("user"), likeFields{made: "created", at: comment, time: "created_at", body: "body"})
}

// likeFields are the fields in which one kind of comment differs from others: the action by which it is made, where its time is and its
// text, and where its numbers begin, or its number.
type likeFields struct {
	made       string
	at         node
	time, body string

	first, number int64
}

// likeComment is a comment of any kind on a pull request.
func likeComment(top, on, comment, user node, f likeFields) core.ForgeDelivery {
	repository, body := top.in("repository"), comment.text(f.body)
	c := core.PullComment{
		Repository: repository.text("clone_url"), Author: user.text("login"), MadeAt: stamp(f.at.text(f.time)), Text: firstLine(body),
		Names: core.PullCommentNames{
			Repository: repository.name("clone_url"), Number: on.name("number"), CommentID: comment.name("id"), AuthorID: user.name("id"),
			Author: user.name("login"), MadeAt: f.at.name(f.time), Text: comment.name(f.body),
		},
	}
	c.Number, _ = on.number("number")
	if c.CommentID = f.number; c.CommentID == 0 {
		if n, _ := comment.number("id"); n > 0 && n < id.ReviewComments {
			c.CommentID = f.first + n
		}
	}
	if top.text("action") != f.made || c.Author == "" {
		return core.ForgeDelivery{}
	}
	if asks(body) {
		return plan(c, c.Author, c.Names.Author)
	}
	c.AuthorID, _ = user.number("id")
	if sender, known := top.in("sender").number("id"); !orders(body) || known && sender != c.AuthorID {
		return core.ForgeDelivery{}
	}
	return core.ForgeDelivery{Comments: []core.PullComment{c}}
}

// plan is a comment that asks for a plan, by who the forge knows as that.
func plan(c core.PullComment, askedBy, name string) core.ForgeDelivery {
	return core.ForgeDelivery{PullRequests: []core.PullRequest{{
		Repository: c.Repository, Number: c.Number, AskedBy: askedBy, Cause: id.OfComment(c.CommentID),
		Names: core.PullRequestNames{Repository: c.Names.Repository, Number: c.Names.Number, AskedBy: name},
	}}}
}

// gitLabPull reads the events of GitLab about merge requests, and about comments on them.
func gitLabPull(_ http.Header, top node) (func() core.ForgeDelivery, bool) {
	switch top.text("object_kind") {
	case "merge_request":
		return func() core.ForgeDelivery { return pulls(gitLabMerge(top)) }, true
	case "note":
		return func() core.ForgeDelivery { return gitLabNote(top) }, true
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

// accessTokens are the names of the accounts that GitLab makes for the access tokens of projects and groups.
var accessTokens = regexp.MustCompile(`^(project|group)_\d+_bot`)

// gitLabNote is a comment as GitLab reports it.
func gitLabNote(top node) core.ForgeDelivery {
	note, merge, project, user := top.in("object_attributes"), top.in("merge_request"), top.in("project"), top.in("user")
	body, action := note.text("note"), note.text("action") // of releases before 16.4 there is no action, and none of edited comments is known
	c := core.PullComment{
		Repository: project.text("git_http_url"), Author: user.text("username"), MadeAt: stamp(note.text("created_at")),
		Text: firstLine(body),
		Names: core.PullCommentNames{
			Repository: project.name("git_http_url"), Number: merge.name("iid"), CommentID: note.name("id"), AuthorID: note.name("author_id"),
			Author: user.name("username"), MadeAt: note.name("created_at"), Text: note.name("note"),
		},
	}
	c.Number, _ = merge.number("iid")
	c.CommentID, _ = note.number("id")
	c.AuthorID, _ = note.number("author_id")
	if note.flag("internal") || note.flag("confidential") { // not everybody sees it who sees the answers
		return core.ForgeDelivery{}
	}
	if note.text(noteOf) != "MergeRequest" || note.flag("system") || action != "" && action != "create" || c.AuthorID <= 0 {
		return core.ForgeDelivery{}
	}
	if asks(body) {
		return plan(c, strconv.FormatInt(c.AuthorID, 10), c.Names.AuthorID)
	}
	// A command decides something, so it has to be known that the comment was not edited, and who acts.
	if actor, known := user.number("id"); !orders(body) || action == "" || !known || actor != c.AuthorID || accessTokens.MatchString(c.Author) {
		return core.ForgeDelivery{}
	}
	return core.ForgeDelivery{Comments: []core.PullComment{c}}
}
