package git

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
)

// gitHub is GitHub's REST API, of github.com and of GitHub Enterprise Server: the Git database. A commit is made as an object
// with the head just read as its parent, and the branch moved to it with force off, which GitHub does only if that is a
// fast-forward. Modes of files stay, which its GraphQL mutation for commits cannot say.
type gitHub struct{ rest }

var _ api = gitHub{}

func (g gitHub) head(ctx context.Context, branch string) (string, error) {
	var ref struct{ Object struct{ SHA string } }
	err := g.ask(ctx, http.MethodGet, "/git/ref/heads/"+escape(branch), nil, &ref)
	return ref.Object.SHA, missing(err, "branch %q does not exist in %s, or the repository does not", branch, g.url)
}

func (g gitHub) resolve(ctx context.Context, ref string) (string, error) {
	var c struct{ SHA string }
	err := g.ask(ctx, http.MethodGet, "/commits/"+url.PathEscape(ref), nil, &c)
	if fault.Is(err, fault.Refused) { // 422: no commit of that id
		err = fault.New(fault.NotFound, "%w", err)
	}
	return c.SHA, missing(err, "ref %q does not exist in %s", ref, g.url)
}

// gitHubLogged is a commit as GitHub, and Gitea after it, list it.
type gitHubLogged struct {
	SHA    string
	Commit struct {
		Message string
		Author  struct{ Name, Email string }
	}
}

func logOf(all []gitHubLogged) []logged {
	log := make([]logged, len(all))
	for i, c := range all {
		log[i] = logged{id: c.SHA, message: c.Commit.Message, by: author{name: c.Commit.Author.Name, email: c.Commit.Author.Email}}
	}
	return log
}

func (g gitHub) history(ctx context.Context, commit string, most int) ([]logged, error) {
	var all []gitHubLogged
	err := g.ask(ctx, http.MethodGet, fmt.Sprintf("/commits?sha=%s&per_page=%d", url.QueryEscape(commit), most), nil, &all)
	return logOf(all), err
}

// stat walks down the trees, which have what the contents of a file do not say: its mode.
func (g gitHub) stat(ctx context.Context, commit, path string) (entry, error) {
	tree := commit
	parts := strings.Split(path, "/")
	for i, part := range parts {
		var t struct {
			Tree []struct{ Path, Mode, Type, SHA string }
		}
		if err := g.ask(ctx, http.MethodGet, "/git/trees/"+tree, nil, &t); err != nil {
			return entry{}, err
		}
		found := entry{}
		for _, e := range t.Tree {
			switch {
			case e.Path != part:
			case e.Type == "blob":
				found = entry{kind: file, blob: e.SHA, executable: e.Mode == "100755"}
			default:
				found, tree = entry{kind: folder}, e.SHA
			}
		}
		if i == len(parts)-1 {
			return found, nil
		}
		if found.kind != folder {
			return entry{}, nil
		}
	}
	return entry{}, nil
}

func (g gitHub) read(ctx context.Context, _, _ string, e entry) ([]byte, error) {
	var blob struct{ Content string }
	if err := g.ask(ctx, http.MethodGet, "/git/blobs/"+e.blob, nil, &blob); err != nil {
		return nil, err
	}
	return g.decode(blob.Content)
}

func (g gitHub) add(ctx context.Context, a addition) (string, error) {
	entries := make([]map[string]string, len(a.files))
	for i, c := range a.files {
		var blob struct{ SHA string }
		if err := g.ask(ctx, http.MethodPost, "/git/blobs", map[string]string{"content": encode(c.content), "encoding": "base64"},
			&blob); err != nil {
			return "", err
		}
		mode := "100644"
		if c.old.executable {
			mode = "100755"
		}
		entries[i] = map[string]string{"path": c.path, "mode": mode, "type": "blob", "sha": blob.SHA}
	}
	var tree, commit struct{ SHA string }
	if err := g.ask(ctx, http.MethodPost, "/git/trees", map[string]any{"base_tree": a.base, "tree": entries}, &tree); err != nil {
		return "", err
	}
	err := g.ask(ctx, http.MethodPost, "/git/commits", map[string]any{
		"message": a.message, "tree": tree.SHA, "parents": []string{a.base},
		"author": map[string]string{"name": a.author.name, "email": a.author.email},
	}, &commit)
	if err != nil {
		return "", err
	}
	return commit.SHA, g.ask(ctx, http.MethodPatch, "/git/refs/heads/"+escape(a.branch),
		map[string]any{"sha": commit.SHA, "force": false}, nil)
}

// gitHubPull is a pull request as GitHub, and Gitea after it, show it.
type gitHubPull struct {
	Number     int64
	State      string
	HTMLURL    string      `json:"html_url"`
	MergedAt   *string     `json:"merged_at"`
	Merge      string      `json:"merge_commit_sha"`
	MergedBy   *gitHubUser `json:"merged_by"`
	Head, Base struct{ Ref, SHA string }
}

// gitHubUser is a user of GitHub, or of Gitea, which has no types.
type gitHubUser struct {
	ID    int64
	Login string
	Type  string
}

// by says who has ended a proposal. What is no person's account has no number: nobody is linked to it.
func (u *gitHubUser) by(p *activity.Proposal) {
	if u == nil {
		return
	}
	p.By = u.Login
	if u.Type == "" || u.Type == "User" {
		p.ByID = u.ID
	}
}

func (p gitHubPull) proposal() activity.Proposal {
	found := activity.Proposal{
		Number: p.Number, URL: p.HTMLURL, State: activity.ProposalOpen, Branch: p.Head.Ref, Into: p.Base.Ref, Head: p.Head.SHA,
	}
	switch {
	case p.MergedAt != nil:
		found.State, found.Commit = activity.ProposalMerged, p.Merge
		p.MergedBy.by(&found)
	case p.State != "open":
		found.State = activity.ProposalClosed
	}
	return found
}

func (g gitHub) proposal(ctx context.Context, number int64) (activity.Proposal, error) {
	var p gitHubPull
	if err := g.ask(ctx, http.MethodGet, fmt.Sprintf("/pulls/%d", number), nil, &p); err != nil {
		return activity.Proposal{}, missing(err, "pull request %d does not exist in %s", number, g.url)
	}
	found := p.proposal()
	if found.State != activity.ProposalClosed {
		return found, nil
	}
	var issue struct {
		ClosedBy *gitHubUser `json:"closed_by"`
	}
	if err := g.ask(ctx, http.MethodGet, fmt.Sprintf("/issues/%d", number), nil, &issue); err != nil {
		return activity.Proposal{}, err
	}
	issue.ClosedBy.by(&found)
	return found, nil
}

func (g gitHub) proposed(ctx context.Context, branch, into string) (activity.Proposal, bool, error) {
	owner, _, _ := strings.Cut(g.project, "/")
	var all []gitHubPull
	err := g.ask(ctx, http.MethodGet, fmt.Sprintf("/pulls?state=all&sort=created&direction=desc&per_page=1&head=%s&base=%s",
		url.QueryEscape(owner+":"+branch), url.QueryEscape(into)), nil, &all)
	if err != nil || len(all) == 0 {
		return activity.Proposal{}, false, err
	}
	p, err := g.proposal(ctx, all[0].Number)
	return p, err == nil, err
}

func (g gitHub) open(ctx context.Context, d draft) (activity.Proposal, error) {
	var made gitHubPull
	err := g.ask(ctx, http.MethodPost, "/pulls", map[string]string{"title": d.title, "body": d.body, "head": d.branch, "base": d.into}, &made)
	return made.proposal(), err
}

func (g gitHub) edit(ctx context.Context, number int64, d draft) error {
	return g.ask(ctx, http.MethodPatch, fmt.Sprintf("/pulls/%d", number), map[string]string{"title": d.title, "body": d.body}, nil)
}

func (g gitHub) close(ctx context.Context, number int64) error {
	return g.ask(ctx, http.MethodPatch, fmt.Sprintf("/pulls/%d", number), map[string]string{"state": "closed"}, nil)
}

func (g gitHub) merge(ctx context.Context, m merging) error {
	return g.ask(ctx, http.MethodPut, fmt.Sprintf("/pulls/%d/merge", m.number), map[string]string{
		"sha": m.head, "merge_method": m.method, "commit_title": m.title, "commit_message": m.body,
	}, nil)
}

// statuses are commit statuses, and the check runs of GitHub Apps and Actions.
func (g gitHub) statuses(ctx context.Context, commit string) ([]activity.CommitStatus, error) {
	all, err := g.commitStatuses(ctx, commit)
	if err != nil {
		return nil, err
	}
	err = g.pages(100, func(page int) (int, error) {
		var runs struct {
			Runs []struct {
				Name, Status, Conclusion string
				URL                      string `json:"html_url"`
			} `json:"check_runs"`
		}
		err := g.ask(ctx, http.MethodGet, fmt.Sprintf("/commits/%s/check-runs?per_page=100&page=%d", commit, page), nil, &runs)
		for _, r := range runs.Runs {
			state := activity.StatusPending
			if r.Status == "completed" {
				state = statusOf(r.Conclusion)
			}
			all = append(all, activity.CommitStatus{Name: r.Name, State: state, URL: r.URL})
		}
		return len(runs.Runs), err
	})
	return all, err
}

func (g gitHub) commitStatuses(ctx context.Context, commit string) (all []activity.CommitStatus, err error) {
	err = g.pages(100, func(page int) (int, error) {
		var combined struct {
			Statuses []struct {
				Context, State, Description string
				URL                         string `json:"target_url"`
			}
		}
		err := g.ask(ctx, http.MethodGet, fmt.Sprintf("/commits/%s/status?per_page=100&page=%d", commit, page), nil, &combined)
		for _, s := range combined.Statuses {
			all = append(all, activity.CommitStatus{Name: s.Context, State: statusOf(s.State), URL: s.URL, Description: s.Description})
		}
		return len(combined.Statuses), err
	})
	return all, err
}

func (g gitHub) setStatus(ctx context.Context, commit string, s activity.CommitStatus) error {
	return g.ask(ctx, http.MethodPost, "/statuses/"+commit, statusDocument("context", s.State, s), nil)
}

func (gitHub) has(known, wanted activity.CommitStatus) bool { return same(known, wanted) }

// statusDocument is a status as forges are given it.
func statusDocument(name, state string, s activity.CommitStatus) map[string]string {
	d := map[string]string{"state": state, name: s.Name, "description": s.Description}
	if s.URL != "" {
		d["target_url"] = s.URL
	}
	return d
}

// statusOf is a forge's state of a status. What is not known has failed: it must not let anything pass.
func statusOf(state string) string {
	switch state {
	case "success", "neutral", "skipped":
		return activity.StatusSuccess
	case "pending", "created", "running", "waiting_for_resource", "preparing", "scheduled", "manual":
		return activity.StatusPending
	default:
		return activity.StatusFailure
	}
}
