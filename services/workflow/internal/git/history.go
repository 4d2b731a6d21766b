package git

import (
	"context"
	"strings"

	"github.com/go-git/go-git/v5/plumbing/object"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/gitfetch"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/reconcile"
)

var _ reconcile.Forge = (*Forge)(nil)

// History reads the last commits of a branch, newest first, and answers those with trailers that Lockstep writes.
func (f *Forge) History(ctx context.Context, organization int64, b reconcile.Branch) (found []reconcile.Commit, err error) {
	err = f.within(ctx, organization, b.Repository, func(ctx context.Context, share *gitfetch.Share) error {
		messages, err := f.lastMessages(ctx, share, organization, b)
		found = nil
		for _, m := range messages {
			if t := gitfetch.Trailers(m.message); len(t) > 0 {
				found = append(found, reconcile.Commit{SHA: m.id, Trailers: t})
			}
		}
		return err
	})
	return found, err
}

func (f *Forge) lastMessages(ctx context.Context, share *gitfetch.Share, organization int64, b reconcile.Branch) ([]logged, error) {
	name := strings.TrimPrefix(b.Name, "refs/heads/")
	h, err := f.hosted(ctx, organization, b.Repository)
	if err != nil {
		return nil, err
	}
	if h != nil && !h.plain {
		head, err := h.headOf(ctx, name)
		if err != nil {
			return nil, err
		}
		return h.history(ctx, head, historyDepth)
	}
	r, err := f.open(ctx, share, organization, b.Repository)
	if err != nil {
		return nil, err
	}
	head, err := r.headOf(ctx, name)
	if err != nil {
		return nil, err
	}
	var all []logged
	for c := range recent(head) {
		if all = append(all, logged{id: c.Hash.String(), message: c.Message}); len(all) == historyDepth {
			break
		}
	}
	return all, nil
}

// headOf is the head of a branch; an empty name is the default branch.
func (h *hosted) headOf(ctx context.Context, name string) (string, error) {
	if name == "" {
		return h.resolve(ctx, "HEAD")
	}
	return h.head(ctx, name)
}

// headOf is the head of a branch, with some history; an empty name is the default branch.
func (r *repository) headOf(ctx context.Context, name string) (*object.Commit, error) {
	if name != "" {
		return r.branch(ctx, name)
	}
	hash, ok := r.lookup("HEAD")
	if !ok {
		return nil, fault.New(fault.NotFound, "ref %q does not exist in %s", "HEAD", r.url)
	}
	if err := r.fetch(ctx, historyDepth, hash); err != nil {
		return nil, err
	}
	return r.commit(hash)
}
