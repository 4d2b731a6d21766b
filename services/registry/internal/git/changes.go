package git

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/transport"
	"github.com/go-git/go-git/v5/storage/memory"

	"github.com/lockstep-cd/lockstep/pkg/gitfetch"
)

// depth is how many commits are fetched to find the one where the branch was at the last look.
const depth = 200

// changes are the files that differ between two commits of a branch. They are not known when the older one is no longer
// among the last commits of the newer: the branch was rewritten, or has gone far.
func changes(ctx context.Context, session transport.UploadPackSession, refs *packp.AdvRefs, from, to string) (files []string, known bool, err error) {
	objects := memory.NewStorage()
	// Files come too from servers that cannot leave them out.
	want := gitfetch.Want{Commits: []plumbing.Hash{plumbing.NewHash(to)}, Depth: depth, TreesAlone: true}
	if err := gitfetch.Into(ctx, session, refs, objects, want); err != nil {
		return nil, false, fmt.Errorf("fetch %s: %w", to, err)
	}
	before, err := tree(objects, from)
	if errors.Is(err, plumbing.ErrObjectNotFound) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	after, err := tree(objects, to)
	if err != nil {
		return nil, false, err
	}
	// Without looking for renames, which would read files: a file that was moved has changed in two places.
	diff, err := object.DiffTreeContext(ctx, before, after)
	if err != nil {
		return nil, false, fmt.Errorf("compare %s with %s: %w", from, to, err)
	}
	for _, c := range diff {
		for _, name := range []string{c.From.Name, c.To.Name} {
			if name != "" && (len(files) == 0 || files[len(files)-1] != name) {
				files = append(files, name)
			}
		}
	}
	return files, true, nil
}

func tree(objects *memory.Storage, commit string) (*object.Tree, error) {
	c, err := object.GetCommit(objects, plumbing.NewHash(commit))
	if err != nil {
		return nil, fmt.Errorf("commit %s: %w", commit, err)
	}
	t, err := c.Tree()
	if err != nil {
		return nil, fmt.Errorf("tree of %s: %w", commit, err)
	}
	return t, nil
}
