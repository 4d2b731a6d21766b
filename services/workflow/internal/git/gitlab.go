package git

import (
	"context"
	"fmt"
	"net/http"
	"net/url"

	"github.com/lockstep-cd/lockstep/pkg/fault"
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
	var all []struct{ ID, Message string }
	if err := g.ask(ctx, http.MethodGet, fmt.Sprintf("/repository/commits?ref_name=%s&per_page=%d", url.QueryEscape(commit), most), nil,
		&all); err != nil {
		return nil, err
	}
	log := make([]logged, len(all))
	for i, c := range all {
		log[i] = logged{c.ID, c.Message}
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
