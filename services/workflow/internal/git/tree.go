package git

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/gitfetch"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
)

// ReadTree implements activity.Forge. It speaks Git's protocol to every server, also to those with a forge.
func (f *Forge) ReadTree(ctx context.Context, q activity.TreeRequest) (files map[string][]byte, sha string, err error) {
	var paths []string
	for _, one := range q.Paths {
		one = strings.Trim(path.Clean("/"+one), "/")
		if one != "" {
			if err := checkPath(one); err != nil {
				return nil, "", err
			}
		}
		paths = append(paths, one)
	}
	err = f.within(ctx, q.Organization, q.RepoURL, func(ctx context.Context, share *gitfetch.Share) error {
		remote, err := f.open(ctx, share, q.Organization, q.RepoURL)
		if err != nil {
			return err
		}
		remote.alone = q.Alone
		commit, err := remote.resolve(ctx, q.Ref)
		if err != nil {
			return err
		}
		sha = commit.Hash.String()
		files, err = remote.tree(ctx, commit, paths, q)
		return err
	})
	return files, sha, err
}

// tree reads the files below some paths of a commit whose folders were fetched.
func (r *repository) tree(
	ctx context.Context, commit *object.Commit, paths []string, q activity.TreeRequest,
) (map[string][]byte, error) {
	root, err := commit.Tree()
	if err != nil {
		return nil, fmt.Errorf("read tree of %s: %w", commit.Hash, err)
	}
	l := &listing{repository: r, most: q.MaxFiles, left: mostEntries, found: map[string]plumbing.Hash{}}
	for _, one := range paths {
		if err := l.add(ctx, root, one); err != nil {
			return nil, err
		}
	}
	found := l.found
	if err := r.fetchFiles(ctx, commit, found); err != nil {
		return nil, err
	}
	files, total := make(map[string][]byte, len(found)), 0
	for name, hash := range found {
		content, err := r.objects.File(hash)
		if err != nil {
			return nil, fmt.Errorf("read %s of %s: %w", name, commit.Hash, err)
		}
		if total += len(content); total > q.MaxBytes {
			return nil, fault.New(fault.Refused, "the files have more than %d bytes; name a folder that has only what is needed", q.MaxBytes)
		}
		files[name] = content
	}
	return files, nil
}

// The bounds of a listing: nesting of folders, and entries of all folders together. A repository with few objects can have an astronomical
// number of folders.
const (
	deepest     = 64
	mostEntries = 50_000
)

// listing finds files of a commit.
type listing struct {
	*repository

	// most bounds files, and left the entries that are still looked at.
	most, left int
	found      map[string]plumbing.Hash
}

// add adds a file, or the files below a folder.
func (l *listing) add(ctx context.Context, root *object.Tree, at string) error {
	if at == "" {
		return l.folder(ctx, root, "", 0)
	}
	entry, err := root.FindEntry(at)
	switch {
	case errors.Is(err, object.ErrEntryNotFound), errors.Is(err, object.ErrDirectoryNotFound), err != nil && belowNoFolder(root, at):
		return fault.Because(activity.NoPathError{}, fault.NotFound, "path %q does not exist in %s", at, l.url)
	case err != nil:
		return fmt.Errorf("find %s: %w", at, err)
	case entry.Mode == filemode.Regular || entry.Mode == filemode.Executable:
		l.found[at] = entry.Hash
		return nil
	case entry.Mode != filemode.Dir:
		return invalid("path", "found %q, which is neither a file nor a folder", at)
	}
	folder, err := root.Tree(at)
	if err != nil {
		return fmt.Errorf("read the folder %s: %w", at, err)
	}
	return l.folder(ctx, folder, at, 0)
}

// folder adds the files below a folder. What stands for something elsewhere is refused: the rest would look as if it was all.
func (l *listing) folder(ctx context.Context, folder *object.Tree, at string, depth int) error {
	if l.left -= len(folder.Entries) + 1; l.left < 0 || depth > deepest {
		return fault.New(fault.Refused, "the folders have more than %d entries, or are nested more than %d deep; name a folder that has only what is needed",
			mostEntries, deepest)
	}
	if err := ctx.Err(); err != nil {
		return err //nolint:wrapcheck // the caller's own
	}
	for _, entry := range folder.Entries {
		below := path.Join(at, entry.Name)
		switch entry.Mode {
		case filemode.Dir:
			if !isTreePath(below) { // a name that no commit may have, such as .git
				continue
			}
			inner, err := object.GetTree(l.objects, entry.Hash)
			if err != nil {
				return fmt.Errorf("read the folder %s: %w", below, err)
			}
			if err := l.folder(ctx, inner, below, depth+1); err != nil {
				return err
			}
		case filemode.Regular, filemode.Executable, filemode.Deprecated:
			if l.found[below] = entry.Hash; len(l.found) > l.most {
				return fault.New(fault.Refused, "there are more than %d files; name a folder that has only what is needed", l.most)
			}
		case filemode.Submodule:
			return invalid("path", "found the submodule %q, which is in another repository; expected files, or a folder without it", below)
		default:
			return invalid("path", "found the link %q; expected the file or folder itself, or a folder without links", below)
		}
	}
	return nil
}

// fetchFiles gets files that were left out, all at once.
func (r *repository) fetchFiles(ctx context.Context, commit *object.Commit, files map[string]plumbing.Hash) error {
	if !gitfetch.CanFilter(r.refs) {
		return nil
	}
	var missing []plumbing.Hash
	asked := map[plumbing.Hash]bool{}
	for _, hash := range files {
		if !asked[hash] && !r.objects.Has(hash) {
			asked[hash] = true
			missing = append(missing, hash)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	if gitfetch.CanFetchFiles(r.refs) {
		err := r.get(ctx, gitfetch.Want{Objects: missing})
		if err == nil || fault.Is(err, fault.Unavailable) {
			return err
		}
	}
	return r.get(ctx, gitfetch.Want{Objects: []plumbing.Hash{commit.Hash}, Depth: 1})
}
