package git

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/transport"

	"github.com/lockstep-cd/lockstep/pkg/gitfetch"
)

// depth is how many commits are fetched to find the previously seen one.
const depth = 200

// change is a pair of commits of a branch.
type change struct{ from, to string }

// matters reports whether one of the files that differ between the commits is wanted. known is false if the older commit is not among the
// last commits of the newer one, because the branch was rewritten or has many new commits, or if there are too many files to compare.
func (c change) matters(
	ctx context.Context, share *gitfetch.Share, session transport.UploadPackSession, refs *packp.AdvRefs, wanted func([]string) bool,
) (matters, known bool, err error) {
	objects := gitfetch.NewStore(share)
	// Servers that cannot omit files send them, too.
	want := gitfetch.Want{Objects: []plumbing.Hash{plumbing.NewHash(c.to)}, Depth: depth, TreesAlone: true}
	if err := objects.Fetch(ctx, session, refs, want); err != nil {
		return false, false, fmt.Errorf("fetch %s: %w", c.to, err)
	}
	matters, known, err = objects.Changed(plumbing.NewHash(c.from), plumbing.NewHash(c.to),
		func(path string) bool { return wanted([]string{path}) })
	if errors.Is(err, plumbing.ErrObjectNotFound) {
		return false, false, nil
	}
	if err != nil {
		return false, false, fmt.Errorf("compare %s with %s: %w", c.from, c.to, err)
	}
	return matters, known, nil
}
