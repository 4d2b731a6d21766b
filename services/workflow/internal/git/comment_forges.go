package git

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
)

// likeGitHub is what GitHub, and Gitea after it, have in common.
type likeGitHub struct {
	rest
	// size is how many entries a page has, and per the parameter that says so.
	size int
	per  string
}

func (g gitHub) like() likeGitHub { return likeGitHub{g.rest, 100, "per_page"} }

func (g gitea) like() likeGitHub { return likeGitHub{g.rest, 50, "limit"} }

func (g likeGitHub) reading(ctx context.Context, number int64) (reading, error) {
	var p struct {
		gitHubPull
		MergeBase string `json:"merge_base"`
		Head      struct {
			Ref, SHA string
			Label    *string
			Repo     *struct{ ID int64 }
		}
		Base struct {
			Ref, SHA string
			Repo     struct{ ID int64 }
		}
	}
	err := g.ask(ctx, http.MethodGet, fmt.Sprintf("/pulls/%d", number), nil, &p)
	p.gitHubPull.Head.Ref, p.gitHubPull.Head.SHA, p.gitHubPull.Base.Ref = p.Head.Ref, p.Head.SHA, p.Base.Ref
	// Gitea and Forgejo let everybody who may read push to refs/for/main. What is made of it has no branch, and is in the repository itself.
	loose := p.Head.Ref == "" || strings.HasPrefix(p.Head.Ref, "refs/") || p.Head.Label != nil && *p.Head.Label == ""
	return reading{
		Proposal: p.proposal(), base: cmp.Or(p.MergeBase, p.Base.SHA), ref: fmt.Sprintf("refs/pull/%d/head", number),
		fork: loose || p.Head.Repo == nil || p.Head.Repo.ID != p.Base.Repo.ID, loose: loose,
	}, err
}

func (g likeGitHub) changed(ctx context.Context, number int64, page int) (paths []string, entries, size int, err error) {
	var all []struct {
		Filename string
		Previous string `json:"previous_filename"`
	}
	err = g.ask(ctx, http.MethodGet, fmt.Sprintf("/pulls/%d/files?%s=%d&page=%d", number, g.per, g.size, page), nil, &all)
	for _, f := range all {
		if paths = append(paths, f.Filename); f.Previous != "" {
			paths = append(paths, f.Previous)
		}
	}
	return paths, len(all), g.size, err
}

func (g likeGitHub) mayWrite(ctx context.Context, who string) (bool, error) {
	var found struct{ Permission string }
	err := g.ask(ctx, http.MethodGet, "/collaborators/"+url.PathEscape(who)+"/permission", nil, &found)
	return slices.Contains([]string{"owner", "admin", "maintain", "write"}, found.Permission), err
}

// gitHubComment is a comment as they show it.
type gitHubComment struct {
	ID   int64
	Body string
	URL  string `json:"html_url"`
	User struct{ ID int64 }
}

func (c gitHubComment) comment() comment {
	return comment{id: c.ID, author: c.User.ID, body: c.Body, url: c.URL}
}

func (g likeGitHub) addComment(ctx context.Context, number int64, body string) (comment, error) {
	var made gitHubComment
	err := g.ask(ctx, http.MethodPost, fmt.Sprintf("/issues/%d/comments", number), map[string]string{"body": body}, &made)
	return made.comment(), err
}

func (g likeGitHub) editComment(ctx context.Context, id int64, body string) error {
	return g.ask(ctx, http.MethodPatch, fmt.Sprintf("/issues/comments/%d", id), map[string]string{"body": body}, nil)
}

func (g likeGitHub) removeComment(ctx context.Context, id int64) error {
	return g.ask(ctx, http.MethodDelete, fmt.Sprintf("/issues/comments/%d", id), nil, nil)
}

// me is the account of the credential.
func (r rest) me(ctx context.Context) (int64, error) {
	var found struct{ ID int64 }
	r.base = r.user
	err := r.ask(ctx, http.MethodGet, "", nil, &found)
	if err == nil && found.ID == 0 {
		err = fault.New(fault.NotFound, "%s does not answer like %s", r.url, r.forge)
	}
	return found.ID, err
}

// reading compares it with the merge base, as its list of files does: the branch may have newer commits. Files are on the first
// page of a comparison only.
func (g gitHub) reading(ctx context.Context, number int64) (reading, error) {
	p, err := g.like().reading(ctx, number)
	if err != nil || p.State != activity.ProposalOpen {
		return p, err
	}
	var compared struct {
		Base struct{ SHA string } `json:"merge_base_commit"`
	}
	path := fmt.Sprintf("/compare/%s...%s?per_page=1&page=2", url.PathEscape(p.base), url.PathEscape(p.Head))
	err = g.ask(ctx, http.MethodGet, path, nil, &compared)
	if fault.Is(err, fault.NotFound) { // they have nothing in common
		err = nil
	}
	p.base = compared.Base.SHA
	return p, err
}

func (g gitHub) changed(ctx context.Context, number int64, page int) ([]string, int, int, error) {
	return g.like().changed(ctx, number, page)
}

func (g gitHub) message(ctx context.Context, _ int64, head string) (string, error) {
	var c struct{ Message string }
	err := g.ask(ctx, http.MethodGet, "/git/commits/"+url.PathEscape(head), nil, &c)
	return c.Message, err
}

func (g gitHub) mayWrite(ctx context.Context, who string) (bool, error) {
	return g.like().mayWrite(ctx, who)
}

// account is that of its bot for the token of an App, to which GitHub refuses it elsewhere. Every App has another one.
func (g gitHub) account(ctx context.Context) (int64, error) {
	id, err := g.me(ctx)
	if !fault.Is(err, fault.Denied) {
		return id, err
	}
	var found struct {
		Data struct {
			Viewer struct {
				ID int64 `json:"databaseId"`
			}
		}
	}
	r := g.rest
	r.base = r.graph
	err = r.ask(ctx, http.MethodPost, "", map[string]string{"query": "query { viewer { databaseId } }"}, &found)
	if fault.Is(err, fault.Denied) || fault.Is(err, fault.NotFound) || fault.Is(err, fault.Refused) {
		return 0, nil
	}
	return found.Data.Viewer.ID, err
}

func (g gitHub) comments(ctx context.Context, number int64) (all []comment, err error) {
	err = g.pages(100, func(page int) (int, error) {
		var found []gitHubComment
		err := g.ask(ctx, http.MethodGet, fmt.Sprintf("/issues/%d/comments?per_page=100&page=%d", number, page), nil, &found)
		for _, c := range found {
			all = append(all, c.comment())
		}
		return len(found), err
	})
	return all, err
}

func (g gitHub) addComment(ctx context.Context, number int64, body string) (comment, error) {
	return g.like().addComment(ctx, number, body)
}

func (g gitHub) editComment(ctx context.Context, _, id int64, body string) error {
	return g.like().editComment(ctx, id, body)
}

func (g gitHub) removeComment(ctx context.Context, _, id int64) error {
	return g.like().removeComment(ctx, id)
}

func (g gitea) reading(ctx context.Context, number int64) (reading, error) {
	return g.like().reading(ctx, number)
}

// changed ends with an empty page: a server may be set up to send fewer entries than it is asked for.
func (g gitea) changed(ctx context.Context, number int64, page int) ([]string, int, int, error) {
	paths, entries, _, err := g.like().changed(ctx, number, page)
	return paths, entries, 1, err
}

func (g gitea) message(ctx context.Context, number int64, _ string) (string, error) {
	var all []gitHubLogged
	err := g.ask(ctx, http.MethodGet, fmt.Sprintf("/pulls/%d/commits?limit=1&page=1&verification=false&files=false", number), nil, &all)
	if err != nil || len(all) == 0 {
		return "", err
	}
	return all[0].Commit.Message, nil
}

func (g gitea) mayWrite(ctx context.Context, who string) (bool, error) {
	return g.like().mayWrite(ctx, who)
}

func (g gitea) account(ctx context.Context) (int64, error) { return g.me(ctx) }

// comments are all at once: Gitea has no pages of them.
func (g gitea) comments(ctx context.Context, number int64) ([]comment, error) {
	var found []gitHubComment
	err := g.ask(ctx, http.MethodGet, fmt.Sprintf("/issues/%d/comments", number), nil, &found)
	all := make([]comment, len(found))
	for i, c := range found {
		all[i] = c.comment()
	}
	return all, err
}

func (g gitea) addComment(ctx context.Context, number int64, body string) (comment, error) {
	return g.like().addComment(ctx, number, body)
}

func (g gitea) editComment(ctx context.Context, _, id int64, body string) error {
	return g.like().editComment(ctx, id, body)
}

func (g gitea) removeComment(ctx context.Context, _, id int64) error {
	return g.like().removeComment(ctx, id)
}

func (g gitLab) reading(ctx context.Context, number int64) (reading, error) {
	var m struct {
		gitLabMerge
		Refs struct {
			Base string `json:"base_sha"`
		} `json:"diff_refs"`
	}
	err := g.ask(ctx, http.MethodGet, fmt.Sprintf("/merge_requests/%d", number), nil, &m)
	p := m.proposal()
	return reading{
		Proposal: p, base: m.Refs.Base, ref: fmt.Sprintf("refs/merge-requests/%d/head", number), fork: m.From != m.To,
		preparing: p.State == activity.ProposalOpen && m.Refs.Base == "",
	}, err
}

func (g gitLab) changed(ctx context.Context, number int64, page int) (paths []string, entries, size int, err error) {
	var all []struct {
		Old string `json:"old_path"`
		New string `json:"new_path"`
	}
	err = g.ask(ctx, http.MethodGet, fmt.Sprintf("/merge_requests/%d/diffs?per_page=100&page=%d", number, page), nil, &all)
	for _, f := range all {
		if paths = append(paths, f.New); f.Old != f.New {
			paths = append(paths, f.Old)
		}
	}
	return paths, len(all), 100, err
}

func (g gitLab) message(ctx context.Context, number int64, _ string) (string, error) {
	var all []struct{ Message string }
	err := g.ask(ctx, http.MethodGet, fmt.Sprintf("/merge_requests/%d/commits?per_page=1", number), nil, &all)
	if err != nil || len(all) == 0 {
		return "", err
	}
	return all[0].Message, nil
}

// mayWrite takes the number of a user. Developers may push, from 30 on.
func (g gitLab) mayWrite(ctx context.Context, who string) (bool, error) {
	var found struct {
		Level int `json:"access_level"`
	}
	err := g.ask(ctx, http.MethodGet, "/members/all/"+url.PathEscape(who), nil, &found)
	return found.Level >= 30, err
}

func (g gitLab) account(ctx context.Context) (int64, error) { return g.me(ctx) }

// gitLabNote is a comment as GitLab has it. It says nothing about an address.
type gitLabNote struct {
	ID     int64
	Body   string
	System bool
	Author struct{ ID int64 }
}

func (g gitLab) comments(ctx context.Context, number int64) (all []comment, err error) {
	m, err := g.reading(ctx, number)
	if err != nil {
		return nil, err
	}
	err = g.pages(100, func(page int) (int, error) {
		var found []gitLabNote
		err := g.ask(ctx, http.MethodGet, fmt.Sprintf("/merge_requests/%d/notes?sort=asc&order_by=created_at&per_page=100&page=%d", number, page), nil, &found)
		for _, n := range found {
			if !n.System {
				all = append(all, comment{id: n.ID, author: n.Author.ID, body: n.Body, url: fmt.Sprintf("%s#note_%d", m.URL, n.ID)})
			}
		}
		return len(found), err
	})
	return all, err
}

func (g gitLab) addComment(ctx context.Context, number int64, body string) (comment, error) {
	var made gitLabNote
	err := g.ask(ctx, http.MethodPost, fmt.Sprintf("/merge_requests/%d/notes", number), map[string]string{"body": body}, &made)
	return comment{id: made.ID, author: made.Author.ID, body: made.Body}, err
}

func (g gitLab) editComment(ctx context.Context, number, id int64, body string) error {
	return g.ask(ctx, http.MethodPut, fmt.Sprintf("/merge_requests/%d/notes/%d", number, id), map[string]string{"body": body}, nil)
}

func (g gitLab) removeComment(ctx context.Context, number, id int64) error {
	return g.ask(ctx, http.MethodDelete, fmt.Sprintf("/merge_requests/%d/notes/%d", number, id), nil, nil)
}
