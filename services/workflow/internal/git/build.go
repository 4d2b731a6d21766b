package git

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
)

// trailerActivity names the call that a commit was made for.
const trailerActivity = activity.TrailerActivity

// built is a commit that is not pushed yet, and the objects that the remote does not have.
type built struct {
	commit, tree plumbing.Hash
	objects      []plumbing.Hash
}

// findActivity looks for the commit of the activity in the history that was fetched. The whole line has to be equal:
// <execution>/0.1 is also how <execution>/0.12 begins. A commit that lies deeper than what was fetched is not found,
// and a repeat that late may make a second one.
func findActivity(head *object.Commit, wanted activity.CommitRequest, by author) (*object.Commit, bool) {
	if len(wanted.Found(true)) == 0 {
		return nil, false
	}
	for c := range recent(head) {
		lines := wanted.Found(by.is(author{name: c.Author.Name, email: c.Author.Email}))
		if slices.ContainsFunc(lines, func(line string) bool { return endsWith(c.Message, line) }) {
			return c, true
		}
	}
	return nil, false
}

// endsWith reports whether a line is in the last paragraph of a message, where the trailers are. What comes before was written by others.
func endsWith(message, line string) bool {
	message = strings.TrimRight(message, "\n")
	return slices.Contains(strings.Split(message[strings.LastIndex(message, "\n\n")+1:], "\n"), line)
}

// recent are the commits of the history that was fetched, down to historyDepth, those of one depth before the deeper ones. A server that
// cannot leave out what lies deeper has sent all of it.
func recent(head *object.Commit) iter.Seq[*object.Commit] {
	return func(yield func(*object.Commit) bool) {
		seen := map[plumbing.Hash]bool{}
		level := []*object.Commit{head}
		for range historyDepth {
			var deeper []*object.Commit
			for _, c := range level {
				if !yield(c) {
					return
				}
				for i := range c.NumParents() {
					p, err := c.Parent(i)
					if err != nil || seen[p.Hash] { // beyond what was fetched
						continue
					}
					seen[p.Hash] = true
					deeper = append(deeper, p)
				}
			}
			level = deeper
		}
	}
}

// unchangedSince refuses to replace files that others have changed after the commit that the new contents were made from. Changes to
// other files do not matter.
func (r *repository) unchangedSince(head *object.Commit, c activity.CommitRequest) error {
	if c.Base == "" || c.Base == head.Hash.String() {
		return nil
	}
	// Without the base commit it is not known what has changed since: the program has to read the files again.
	base, err := object.GetCommit(r.objects, plumbing.NewHash(c.Base))
	if err != nil {
		return fault.New(fault.Conflict, "base %s is not among the last %d commits of branch %q of %s", c.Base, historyDepth, c.Branch, r.url)
	}
	before, err := base.Tree()
	if err != nil {
		return fmt.Errorf("read tree of %s: %w", base.Hash, err)
	}
	now, err := head.Tree()
	if err != nil {
		return fmt.Errorf("read tree of %s: %w", head.Hash, err)
	}
	for _, path := range slices.Sorted(maps.Keys(c.Files)) {
		if hashAt(before, path) != hashAt(now, path) {
			return fault.New(fault.Conflict, "%s has changed on branch %q of %s since %s", path, c.Branch, r.url, c.Base)
		}
	}
	return nil
}

// hashAt is the hash of the entry at the path, zero for none.
func hashAt(t *object.Tree, path string) plumbing.Hash {
	entry, err := t.FindEntry(path)
	if err != nil {
		return plumbing.ZeroHash
	}
	return entry.Hash
}

// modeAt is the mode of the file at a path; filemode.Empty for none.
func modeAt(t *object.Tree, path string) filemode.FileMode {
	entry, err := t.FindEntry(path)
	if err != nil {
		return filemode.Empty
	}
	return entry.Mode
}

// build makes the commit in memory, on top of head, and of what it merges.
func (r *repository) build(
	head *object.Commit, c activity.CommitRequest, by author, now time.Time, merges ...plumbing.Hash,
) (built, error) {
	b := &builder{repository: r}
	base, err := head.Tree()
	if err != nil {
		return built{}, fmt.Errorf("read tree of %s: %w", head.Hash, err)
	}
	tree, err := b.tree(base, c.Files, "")
	if err != nil {
		return built{}, err
	}
	signature := object.Signature{Name: by.name, Email: by.email, When: now.UTC()}
	commit, err := b.put(&object.Commit{
		Author: signature, Committer: signature, Message: message(c), TreeHash: tree,
		ParentHashes: append([]plumbing.Hash{head.Hash}, merges...),
	})
	if err != nil {
		return built{}, err
	}
	return built{commit: commit, tree: tree, objects: b.unsent}, nil
}

// builder stores objects and remembers those that the remote does not have.
type builder struct {
	*repository
	unsent []plumbing.Hash
}

// tree is base with the files put into it; base is nil for a folder that does not exist yet. under is the path of the
// folder with a slash, for errors.
func (b *builder) tree(base *object.Tree, files map[string][]byte, under string) (plumbing.Hash, error) {
	entries := map[string]object.TreeEntry{}
	if base != nil {
		for _, e := range base.Entries {
			entries[e.Name] = e
		}
	}
	folders := map[string]map[string][]byte{}
	for _, path := range slices.Sorted(maps.Keys(files)) {
		name, rest, nested := strings.Cut(path, "/")
		if nested {
			if folders[name] == nil {
				folders[name] = map[string][]byte{}
			}
			folders[name][rest] = files[path]
			continue
		}
		old, exists := entries[name]
		if exists && !old.Mode.IsFile() {
			return plumbing.ZeroHash, invalid("path", "found %q, which is no file in the repository", under+path)
		}
		blob, err := b.blob(files[path])
		if err != nil {
			return plumbing.ZeroHash, err
		}
		// A script stays executable; a symbolic link becomes the file that was asked for.
		mode := filemode.Regular
		if exists && old.Mode == filemode.Executable {
			mode = old.Mode
		}
		entries[name] = object.TreeEntry{Name: name, Mode: mode, Hash: blob}
	}
	for _, name := range slices.Sorted(maps.Keys(folders)) {
		var inner *object.Tree
		if old, exists := entries[name]; exists {
			var err error
			if inner, err = object.GetTree(b.objects, old.Hash); err != nil || old.Mode != filemode.Dir {
				return plumbing.ZeroHash, invalid("path", "found %q, which is no folder in the repository", under+name)
			}
		}
		hash, err := b.tree(inner, folders[name], under+name+"/")
		if err != nil {
			return plumbing.ZeroHash, err
		}
		entries[name] = object.TreeEntry{Name: name, Mode: filemode.Dir, Hash: hash}
	}
	t := &object.Tree{Entries: slices.Collect(maps.Values(entries))}
	sort.Sort(object.TreeEntrySorter(t.Entries))
	return b.put(t)
}

// blob stores a file's content.
func (b *builder) blob(content []byte) (plumbing.Hash, error) {
	o := b.objects.NewEncodedObject()
	o.SetType(plumbing.BlobObject)
	w, err := o.Writer()
	if err != nil {
		return plumbing.ZeroHash, fmt.Errorf("store file: %w", err)
	}
	if _, err := w.Write(content); err != nil {
		return plumbing.ZeroHash, fmt.Errorf("store file: %w", err)
	}
	if err := w.Close(); err != nil {
		return plumbing.ZeroHash, fmt.Errorf("store file: %w", err)
	}
	return b.store(o)
}

// put stores a tree or a commit.
func (b *builder) put(encodable interface {
	Encode(plumbing.EncodedObject) error
},
) (plumbing.Hash, error) {
	o := b.objects.NewEncodedObject()
	if err := encodable.Encode(o); err != nil {
		return plumbing.ZeroHash, fmt.Errorf("encode object: %w", err)
	}
	return b.store(o)
}

// store keeps an object, and remembers to send it if the remote does not have it. What was fetched came from there.
// Objects the remote has beyond that are sent needlessly, which does no harm.
func (b *builder) store(o plumbing.EncodedObject) (plumbing.Hash, error) {
	if b.objects.HasEncodedObject(o.Hash()) == nil {
		return o.Hash(), nil
	}
	hash, err := b.objects.SetEncodedObject(o)
	if err != nil {
		return plumbing.ZeroHash, fmt.Errorf("store object: %w", err)
	}
	b.unsent = append(b.unsent, hash)
	return hash, nil
}

// message ends with the trailers, sorted, the activity's last. The order is fixed and line ends are LF, so that
// findActivity can compare lines.
func message(c activity.CommitRequest) string {
	var m strings.Builder
	m.WriteString(strings.TrimSpace(strings.ReplaceAll(c.Message, "\r\n", "\n")))
	m.WriteString("\n\n")
	for _, key := range slices.Sorted(maps.Keys(c.Trailers)) {
		fmt.Fprintf(&m, "%s: %s\n", key, c.Trailers[key])
	}
	if c.Activity != "" {
		fmt.Fprintf(&m, "%s: %s\n", trailerActivity, c.Activity)
	}
	return strings.TrimRight(m.String(), "\n") + "\n"
}
