package git

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/fault"
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
	Commit struct{ Message string }
}

func logOf(all []gitHubLogged) []logged {
	log := make([]logged, len(all))
	for i, c := range all {
		log[i] = logged{c.SHA, c.Commit.Message}
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
