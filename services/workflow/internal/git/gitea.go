package git

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
)

// gitea is the API of Gitea, from 1.20, and Forgejo. A commit goes on top of wherever the branch is by then: the sha of each
// file that is updated keeps it from replacing a change that we have not seen, and an operation create one that appeared
// meanwhile. Other files' changes stay.
type gitea struct{ rest }

var _ api = gitea{}

func (g gitea) head(ctx context.Context, branch string) (string, error) {
	var b struct{ Commit struct{ ID string } }
	err := g.ask(ctx, http.MethodGet, "/branches/"+escape(branch), nil, &b)
	return b.Commit.ID, missing(err, "branch %q does not exist in %s, or the repository does not", branch, g.url)
}

func (g gitea) resolve(ctx context.Context, ref string) (string, error) {
	var c struct{ SHA string }
	err := g.ask(ctx, http.MethodGet, "/git/commits/"+escape(ref)+"?stat=false&verification=false&files=false", nil, &c)
	if fault.Is(err, fault.Refused) { // 422: no ref of that form
		err = fault.New(fault.NotFound, "%w", err)
	}
	return c.SHA, missing(err, "ref %q does not exist in %s", ref, g.url)
}

func (g gitea) history(ctx context.Context, commit string, most int) ([]logged, error) {
	var all []gitHubLogged
	err := g.ask(ctx, http.MethodGet, fmt.Sprintf("/commits?sha=%s&limit=%d&stat=false&verification=false&files=false",
		url.QueryEscape(commit), most), nil, &all)
	return logOf(all), err
}

// giteaContents is a file; of a folder Gitea answers with a list.
type giteaContents struct{ Type, SHA, Content string }

func (g gitea) stat(ctx context.Context, commit, path string) (entry, error) {
	var found oneOrMany
	err := g.ask(ctx, http.MethodGet, "/contents/"+escape(path)+"?ref="+url.QueryEscape(commit), nil, &found)
	switch {
	case fault.Is(err, fault.NotFound):
		return entry{}, nil
	case err != nil:
		return entry{}, err
	case found.many:
		return entry{kind: folder}, nil
	}
	return entry{kind: file, blob: found.one.SHA}, nil
}

func (g gitea) read(ctx context.Context, commit, path string, _ entry) ([]byte, error) {
	var found oneOrMany
	if err := g.ask(ctx, http.MethodGet, "/contents/"+escape(path)+"?ref="+url.QueryEscape(commit), nil, &found); err != nil {
		return nil, err
	}
	return g.decode(found.one.Content)
}

func (g gitea) add(ctx context.Context, a addition) (string, error) {
	files := make([]map[string]string, len(a.files))
	for i, c := range a.files {
		files[i] = map[string]string{"operation": "create", "path": c.path, "content": encode(c.content)}
		if c.old.kind == file { // its mode stays
			files[i]["operation"], files[i]["sha"] = "update", c.old.blob
		}
	}
	by := map[string]string{"name": a.author.name, "email": a.author.email}
	var made struct{ Commit struct{ SHA string } }
	err := g.ask(ctx, http.MethodPost, "/contents",
		map[string]any{"branch": a.branch, "message": a.message, "author": by, "committer": by, "files": files}, &made)
	return made.Commit.SHA, err
}

// oneOrMany is an object, or a list.
type oneOrMany struct {
	one  giteaContents
	many bool
}

// UnmarshalJSON accepts both.
func (o *oneOrMany) UnmarshalJSON(raw []byte) error {
	if o.many = len(raw) > 0 && raw[0] == '['; o.many {
		return nil
	}
	return json.Unmarshal(raw, &o.one) //nolint:wrapcheck // json hands it to its caller
}

func (g gitea) proposal(ctx context.Context, number int64) (activity.Proposal, error) {
	var p gitHubPull
	err := g.ask(ctx, http.MethodGet, fmt.Sprintf("/pulls/%d", number), nil, &p)
	return p.proposal(), missing(err, "pull request %d does not exist in %s", number, g.url)
}

// proposed is the one that Gitea finds by both branches. It has one for each pair of ours: another is never opened.
func (g gitea) proposed(ctx context.Context, branch, into string) (activity.Proposal, bool, error) {
	var p gitHubPull
	err := g.ask(ctx, http.MethodGet, "/pulls/"+url.PathEscape(into)+"/"+escape(branch), nil, &p)
	if fault.Is(err, fault.NotFound) {
		return activity.Proposal{}, false, nil
	}
	return p.proposal(), err == nil, err
}

func (g gitea) open(ctx context.Context, d draft) (activity.Proposal, error) {
	var made gitHubPull
	err := g.ask(ctx, http.MethodPost, "/pulls", map[string]string{"title": d.title, "body": d.body, "head": d.branch, "base": d.into}, &made)
	return made.proposal(), err
}

func (g gitea) edit(ctx context.Context, number int64, d draft) error {
	return g.ask(ctx, http.MethodPatch, fmt.Sprintf("/pulls/%d", number), map[string]string{"title": d.title, "body": d.body}, nil)
}

func (g gitea) close(ctx context.Context, number int64) error {
	return g.ask(ctx, http.MethodPatch, fmt.Sprintf("/pulls/%d", number), map[string]string{"state": "closed"}, nil)
}

func (g gitea) merge(ctx context.Context, m merging) error {
	return g.ask(ctx, http.MethodPost, fmt.Sprintf("/pulls/%d/merge", m.number), map[string]string{
		"Do": m.method, "head_commit_id": m.head, "MergeTitleField": m.title, "MergeMessageField": m.body,
	}, nil)
}

func (g gitea) statuses(ctx context.Context, commit string) (all []activity.CommitStatus, err error) {
	err = g.pages(50, func(page int) (int, error) {
		var combined struct {
			Statuses []struct {
				Context, Status, Description string
				URL                          string `json:"target_url"`
			}
		}
		err := g.ask(ctx, http.MethodGet, fmt.Sprintf("/commits/%s/status?limit=50&page=%d", commit, page), nil, &combined)
		for _, s := range combined.Statuses {
			all = append(all, activity.CommitStatus{Name: s.Context, State: statusOf(s.Status), URL: s.URL, Description: s.Description})
		}
		return len(combined.Statuses), err
	})
	return all, err
}

func (g gitea) commitStatuses(ctx context.Context, commit string) ([]activity.CommitStatus, error) {
	return g.statuses(ctx, commit)
}

func (g gitea) setStatus(ctx context.Context, commit string, s activity.CommitStatus) error {
	return g.ask(ctx, http.MethodPost, "/statuses/"+commit, statusDocument("context", s.State, s), nil)
}

func (gitea) has(known, wanted activity.CommitStatus) bool { return same(known, wanted) }
