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
	found := map[string]plumbing.Hash{}
	for _, one := range paths {
		if err := r.list(root, one, q.MaxFiles, found); err != nil {
			return nil, err
		}
	}
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

// list adds a file, or the files below a folder.
func (r *repository) list(root *object.Tree, at string, most int, found map[string]plumbing.Hash) error {
	folder := root
	if at != "" {
		entry, err := root.FindEntry(at)
		switch {
		case errors.Is(err, object.ErrEntryNotFound), errors.Is(err, object.ErrDirectoryNotFound), err != nil && belowNoFolder(root, at):
			return fault.New(fault.NotFound, "path %q does not exist in %s", at, r.url)
		case err != nil:
			return fmt.Errorf("find %s: %w", at, err)
		case entry.Mode == filemode.Regular || entry.Mode == filemode.Executable:
			found[at] = entry.Hash
			return nil
		case entry.Mode != filemode.Dir:
			return invalid("path", "found %q, which is neither a file nor a folder", at)
		}
		if folder, err = root.Tree(at); err != nil {
			return fmt.Errorf("read the folder %s: %w", at, err)
		}
	}
	for _, entry := range folder.Entries {
		below := path.Join(at, entry.Name)
		switch entry.Mode {
		case filemode.Dir:
			if !isTreePath(below) { // a name that no commit may have, such as .git
				continue
			}
			if err := r.list(root, below, most, found); err != nil {
				return err
			}
		case filemode.Regular, filemode.Executable, filemode.Deprecated:
			if found[below] = entry.Hash; len(found) > most {
				return fault.New(fault.Refused, "there are more than %d files; name a folder that has only what is needed", most)
			}
		default: // links and submodules stand for what is elsewhere
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
