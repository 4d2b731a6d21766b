package git

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing/object"

	"github.com/lockstep-cd/lockstep/pkg/gitfetch"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
)

// mostDifferent is how many files of a difference are read.
const mostDifferent = 50

// ReadDifference implements activity.Forge. It speaks Git's protocol to every server, also to those with a forge.
func (f *Forge) ReadDifference(ctx context.Context, r activity.DifferenceRequest) (found activity.Difference, err error) {
	if r.Under = strings.Trim(path.Clean("/"+r.Under), "/"); r.Under != "" {
		if err := checkPath("path", r.Under); err != nil {
			return found, err
		}
	}
	err = f.within(ctx, r.Organization, r.RepoURL, func(ctx context.Context, share *gitfetch.Share) error {
		found = activity.Difference{} // it may run twice
		remote, err := f.open(ctx, share, r.Organization, r.RepoURL)
		if err != nil {
			return err
		}
		base, err := remote.resolve(ctx, r.Base)
		if err != nil {
			return err
		}
		head, err := remote.resolve(ctx, r.Ref)
		if err != nil {
			return err
		}
		found.Base, found.Head = base.Hash.String(), head.Hash.String()
		return remote.difference(ctx, r, base, head, &found)
	})
	return found, err
}

// difference reads the files that differ.
func (r *repository) difference(
	ctx context.Context, q activity.DifferenceRequest, base, head *object.Commit, found *activity.Difference,
) error {
	var paths []string
	tooMany := false
	_, known, err := r.objects.Changed(base.Hash, head.Hash, func(file string) bool {
		if !below(file, q.Under) && !slices.Contains(q.Also, file) {
			return false
		}
		paths = append(paths, file)
		tooMany = len(paths) > mostDifferent
		return tooMany
	})
	if err != nil {
		return fmt.Errorf("compare %s and %s of %s: %w", base.Hash, head.Hash, r.url, err)
	}
	slices.Sort(paths)
	found.More = !known || tooMany
	paths = paths[:min(len(paths), mostDifferent)]
	total := 0
	for _, file := range paths {
		one := activity.ChangedFile{Path: file}
		before, err := r.shown(ctx, base.Hash.String(), file)
		if err != nil {
			return err
		}
		after, err := r.shown(ctx, head.Hash.String(), file)
		if err != nil {
			return err
		}
		size := len(before) + len(after)
		if one.Unread = len(before) > maxManifest || len(after) > maxManifest || total+size > maxTogether; !one.Unread {
			one.Before, one.After = before, after
			total += size
		}
		found.Files = append(found.Files, one)
	}
	return nil
}

// below reports whether a path is in a folder; everything is in the empty one.
func below(file, folder string) bool {
	return folder == "" || file == folder || strings.HasPrefix(file, folder+"/")
}
