package git

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/format/packfile"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/sideband"
	"github.com/go-git/go-git/v5/plumbing/transport"
	"github.com/go-git/go-git/v5/storage/memory"
)

// depth is how many commits are fetched to find the one where the branch was at the last look.
const depth = 200

// changes are the files that differ between two commits of a branch. They are not known when the older one is no longer
// among the last commits of the newer: the branch was rewritten, or has gone far.
func changes(ctx context.Context, session transport.UploadPackSession, refs *packp.AdvRefs, from, to string) (files []string, known bool, err error) {
	objects := memory.NewStorage()
	if err := fetch(ctx, session, refs, objects, plumbing.NewHash(to)); err != nil {
		return nil, false, err
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

// fetch gets the last commits of a head and their trees; files too from servers that cannot leave them out.
func fetch(ctx context.Context, session transport.UploadPackSession, refs *packp.AdvRefs, objects *memory.Storage, head plumbing.Hash) error {
	req := packp.NewUploadPackRequestFromCapabilities(refs.Capabilities)
	req.Wants = []plumbing.Hash{head}
	if refs.Capabilities.Supports(capability.Shallow) {
		if err := req.Capabilities.Set(capability.Shallow); err != nil {
			return fmt.Errorf("ask for few commits: %w", err)
		}
		req.Depth = packp.DepthCommits(depth)
	}
	if refs.Capabilities.Supports(capability.Filter) {
		if err := req.Capabilities.Set(capability.Filter); err != nil {
			return fmt.Errorf("ask for trees alone: %w", err)
		}
		req.Filter = packp.FilterBlobNone()
	}
	res, err := session.UploadPack(ctx, req)
	if err != nil {
		return fmt.Errorf("fetch %s: %w", head, err)
	}
	defer res.Close() //nolint:errcheck // everything of interest has been read
	var pack io.Reader = res
	switch {
	case req.Capabilities.Supports(capability.Sideband64k):
		pack = sideband.NewDemuxer(sideband.Sideband64k, res)
	case req.Capabilities.Supports(capability.Sideband):
		pack = sideband.NewDemuxer(sideband.Sideband, res)
	}
	if err := packfile.UpdateObjectStorage(objects, pack); err != nil {
		return fmt.Errorf("read the pack of %s: %w", head, err)
	}
	return nil
}
