package git

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/gitfetch"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
)

// mostDifferent is how many files of a difference are read.
const mostDifferent = 50

// ReadDifference implements activity.Forge. It speaks Git's protocol to every server, also to those with a forge.
func (f *Forge) ReadDifference(ctx context.Context, r activity.DifferenceRequest) (found activity.Difference, err error) {
	if r.Under = strings.Trim(path.Clean("/"+r.Under), "/"); r.Under != "" {
		if err := checkPath(r.Under); err != nil {
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
		before, was, plainBefore, err := r.side(ctx, base, file)
		if err != nil {
			return err
		}
		after, is, plainAfter, err := r.side(ctx, head, file)
		if err != nil {
			return err
		}
		size := len(before) + len(after)
		large := len(before) > maxManifest || len(after) > maxManifest || total+size > maxTogether
		if one.Unread = large || !plainBefore || !plainAfter || !was && !is; !one.Unread {
			one.Before, one.After = before, after
			total += size
		}
		found.Files = append(found.Files, one)
	}
	return nil
}

// side is the text of an entry of a commit: whether there is one, and whether it is a plain file. Links and submodules stand for what is
// elsewhere.
func (r *repository) side(ctx context.Context, commit *object.Commit, file string) (text []byte, exists, plain bool, err error) {
	text, err = r.file(ctx, commit, file)
	switch {
	case fault.Is(err, fault.NotFound):
		return nil, false, true, nil
	case fault.Is(err, fault.Invalid):
		return nil, true, false, nil
	case err != nil:
		return nil, false, false, err
	}
	tree, err := commit.Tree()
	if err != nil {
		return nil, false, false, fmt.Errorf("read tree of %s: %w", commit.Hash, err)
	}
	entry, err := tree.FindEntry(file)
	if err != nil {
		return nil, false, false, fmt.Errorf("find %s in %s: %w", file, commit.Hash, err)
	}
	return text, true, entry.Mode != filemode.Symlink, nil
}

// below reports whether a path is in a folder; everything is in the empty one.
func below(file, folder string) bool {
	return folder == "" || file == folder || strings.HasPrefix(file, folder+"/")
}
