package git

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
)

// gitLab is GitLab's API, version 4: repository files, commits and branches. A commit goes on top of wherever the branch is
// by then: last_commit_id keeps every file of ours from replacing a change that we have not seen, and an action create
// one that appeared meanwhile. Other files' changes stay, as they do when a commit is built again on the newer head.
type gitLab struct{ rest }

var _ api = gitLab{}

func (g gitLab) head(ctx context.Context, branch string) (string, error) {
	var b struct{ Commit struct{ ID string } }
	err := g.ask(ctx, http.MethodGet, "/repository/branches/"+url.PathEscape(branch), nil, &b)
	return b.Commit.ID, missing(err, "branch %q does not exist in %s, or the repository does not", branch, g.url)
}

func (g gitLab) resolve(ctx context.Context, ref string) (string, error) {
	var c struct{ ID string }
	err := g.ask(ctx, http.MethodGet, "/repository/commits/"+url.PathEscape(ref), nil, &c)
	return c.ID, missing(err, "ref %q does not exist in %s", ref, g.url)
}

func (g gitLab) history(ctx context.Context, commit string, most int) ([]logged, error) {
	var all []struct {
		ID, Message string
		Name        string `json:"author_name"`
		Email       string `json:"author_email"`
	}
	if err := g.ask(ctx, http.MethodGet, fmt.Sprintf("/repository/commits?ref_name=%s&per_page=%d", url.QueryEscape(commit), most), nil,
		&all); err != nil {
		return nil, err
	}
	log := make([]logged, len(all))
	for i, c := range all {
		log[i] = logged{id: c.ID, message: c.Message, by: author{name: c.Name, email: c.Email}}
	}
	return log, nil
}

// gitLabFile is a file as GitLab shows it.
type gitLabFile struct {
	Content    string `json:"content"`
	Blob       string `json:"blob_id"`
	Last       string `json:"last_commit_id"`
	Executable bool   `json:"execute_filemode"`
}

func (g gitLab) file(ctx context.Context, commit, path string) (f gitLabFile, err error) {
	err = g.ask(ctx, http.MethodGet, "/repository/files/"+url.PathEscape(path)+"?ref="+url.QueryEscape(commit), nil, &f)
	return f, err
}

func (g gitLab) stat(ctx context.Context, commit, path string) (entry, error) {
	f, err := g.file(ctx, commit, path)
	if err == nil {
		return entry{kind: file, blob: f.Blob, last: f.Last, executable: f.Executable}, nil
	}
	if !fault.Is(err, fault.NotFound) {
		return entry{}, err
	}
	// A folder is no file to it, and an empty list, or no such tree, is no folder.
	var tree []struct{ ID string }
	err = g.ask(ctx, http.MethodGet, fmt.Sprintf("/repository/tree?ref=%s&path=%s&per_page=1", url.QueryEscape(commit),
		url.QueryEscape(path)), nil, &tree)
	if fault.Is(err, fault.NotFound) || err == nil && len(tree) == 0 {
		return entry{}, nil
	}
	return entry{kind: folder}, err
}

func (g gitLab) read(ctx context.Context, commit, path string, _ entry) ([]byte, error) {
	f, err := g.file(ctx, commit, path)
	if err != nil {
		return nil, err
	}
	return g.decode(f.Content)
}

func (g gitLab) add(ctx context.Context, a addition) (string, error) {
	actions := make([]map[string]string, len(a.files))
	for i, c := range a.files {
		actions[i] = map[string]string{"action": "create", "file_path": c.path, "content": encode(c.content), "encoding": "base64"}
		if c.old.kind == file { // its mode stays
			actions[i]["action"], actions[i]["last_commit_id"] = "update", c.old.last
		}
	}
	var made struct{ ID string }
	err := g.ask(ctx, http.MethodPost, "/repository/commits", map[string]any{
		"branch": a.branch, "commit_message": a.message, "author_name": a.author.name, "author_email": a.author.email, "actions": actions,
	}, &made)
	return made.ID, err
}

// gitLabMerge is a merge request.
type gitLabMerge struct {
	IID    int64
	State  string
	SHA    string
	WebURL string `json:"web_url"`
	Source string `json:"source_branch"`
	Target string `json:"target_branch"`
	// From and To are the numbers of projects: a merge request may come from a fork, whose branches anyone may name.
	From   int64  `json:"source_project_id"`
	To     int64  `json:"target_project_id"`
	Merge  string `json:"merge_commit_sha"`
	Squash string `json:"squash_commit_sha"`
	// MergeUser and ClosedBy are who did it. GitLab before 14.7 has MergedBy alone.
	MergeUser *gitLabUser `json:"merge_user"`
	MergedBy  *gitLabUser `json:"merged_by"`
	ClosedBy  *gitLabUser `json:"closed_by"`
}

// gitLabUser is a user of GitLab.
type gitLabUser struct {
	ID       int64
	Username string
}

func (u *gitLabUser) by(p *activity.Proposal) {
	if u != nil {
		p.By, p.ByID = u.Username, u.ID
	}
}

func (m gitLabMerge) proposal() activity.Proposal {
	found := activity.Proposal{Number: m.IID, URL: m.WebURL, State: activity.ProposalOpen, Branch: m.Source, Into: m.Target, Head: m.SHA}
	if m.From != m.To {
		found.Branch = fmt.Sprintf("%s of project %d", m.Source, m.From)
	}
	switch m.State {
	case "merged":
		// A fast-forward has no commit of its own.
		found.State, found.Commit = activity.ProposalMerged, cmp.Or(m.Merge, m.Squash, m.SHA)
		cmp.Or(m.MergeUser, m.MergedBy).by(&found)
	case "closed":
		found.State = activity.ProposalClosed
		m.ClosedBy.by(&found)
	}
	return found // opened, and locked: while it is being merged
}

func (g gitLab) proposal(ctx context.Context, number int64) (activity.Proposal, error) {
	var m gitLabMerge
	err := g.ask(ctx, http.MethodGet, fmt.Sprintf("/merge_requests/%d", number), nil, &m)
	return m.proposal(), missing(err, "merge request %d does not exist in %s", number, g.url)
}

func (g gitLab) proposed(ctx context.Context, branch, into string) (activity.Proposal, bool, error) {
	var all []gitLabMerge
	err := g.ask(ctx, http.MethodGet, fmt.Sprintf("/merge_requests?source_branch=%s&target_branch=%s&order_by=created_at&sort=desc&per_page=100",
		url.QueryEscape(branch), url.QueryEscape(into)), nil, &all)
	for _, m := range all {
		if m.From == m.To {
			return m.proposal(), true, nil
		}
	}
	return activity.Proposal{}, false, err
}

func (g gitLab) open(ctx context.Context, d draft) (activity.Proposal, error) {
	var made gitLabMerge
	err := g.ask(ctx, http.MethodPost, "/merge_requests", map[string]string{
		"title": d.title, "description": d.body, "source_branch": d.branch, "target_branch": d.into,
	}, &made)
	return made.proposal(), err
}

func (g gitLab) edit(ctx context.Context, number int64, d draft) error {
	return g.ask(ctx, http.MethodPut, fmt.Sprintf("/merge_requests/%d", number), map[string]string{"title": d.title, "description": d.body}, nil)
}

func (g gitLab) close(ctx context.Context, number int64) error {
	return g.ask(ctx, http.MethodPut, fmt.Sprintf("/merge_requests/%d", number), map[string]string{"state_event": "close"}, nil)
}

// merge merges as the project is configured: with a merge commit, or by fast-forward.
func (g gitLab) merge(ctx context.Context, m merging) error {
	in := map[string]any{"sha": m.head, "squash": m.method == activity.MergeSquash}
	text := m.title + "\n\n" + m.body
	in["merge_commit_message"] = text
	if m.method == activity.MergeSquash {
		in["squash_commit_message"] = text
	}
	return g.ask(ctx, http.MethodPut, fmt.Sprintf("/merge_requests/%d/merge", m.number), in, nil)
}

func (g gitLab) statuses(ctx context.Context, commit string) (all []activity.CommitStatus, err error) {
	err = g.pages(100, func(page int) (int, error) {
		var found []struct {
			Name, Status, Description string
			URL                       string `json:"target_url"`
			AllowFailure              bool   `json:"allow_failure"`
		}
		err := g.ask(ctx, http.MethodGet, fmt.Sprintf("/repository/commits/%s/statuses?per_page=100&page=%d", commit, page), nil, &found)
		for _, s := range found {
			state := statusOf(s.Status)
			if state == activity.StatusFailure && s.AllowFailure {
				state = activity.StatusSuccess
			}
			all = append(all, activity.CommitStatus{Name: s.Name, State: state, URL: s.URL, Description: s.Description})
		}
		return len(found), err
	})
	return all, err
}

func (g gitLab) commitStatuses(ctx context.Context, commit string) ([]activity.CommitStatus, error) {
	return g.statuses(ctx, commit)
}

func (g gitLab) setStatus(ctx context.Context, commit string, s activity.CommitStatus) error {
	state := s.State
	if state == activity.StatusFailure {
		state = "failed"
	}
	return g.ask(ctx, http.MethodPost, "/statuses/"+commit, statusDocument("name", state, s), nil)
}

// has takes a status that is pending for the same, whatever it says: GitLab refuses to change one that does not change its state.
func (gitLab) has(known, wanted activity.CommitStatus) bool {
	return same(known, wanted) || known.State == activity.StatusPending && wanted.State == activity.StatusPending
}
