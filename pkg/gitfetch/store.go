package gitfetch

import (
	"errors"
	"fmt"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/storer"
	"github.com/go-git/go-git/v5/storage/memory"
)

// Store holds the fetched objects of a repository, and those created locally. What is read from it counts against its share until the share
// ends, so it is for one operation. It is not safe for concurrent use.
type Store struct {
	// Created objects are in memory; there are never more than the caller itself writes.
	storer.EncodedObjectStorer

	share *Share
	packs []*pack
}

// NewStore returns an empty store.
func NewStore(share *Share) *Store {
	return &Store{EncodedObjectStorer: &memory.NewStorage().ObjectStorage, share: share}
}

// The memory of a decoded object per byte: the entries of a folder have names and a map.
const (
	treeFactor  = 6
	otherFactor = 3
)

// EncodedObject implements storer.EncodedObjectStorer.
func (s *Store) EncodedObject(kind plumbing.ObjectType, id plumbing.Hash) (plumbing.EncodedObject, error) {
	made, err := s.EncodedObjectStorer.EncodedObject(kind, id)
	if err == nil || !errors.Is(err, plumbing.ErrObjectNotFound) {
		return made, err // the Git library compares it by identity
	}
	p, i, err := s.find(kind, id)
	if err != nil {
		return nil, err
	}
	found := p.entries[i].kind
	if kind != plumbing.AnyObject && kind != found {
		return nil, plumbing.ErrObjectNotFound
	}
	content, use, err := p.read(i)
	if errors.Is(err, errTooLarge) {
		return nil, s.share.exceeded(otherFactor * p.entries[i].full)
	}
	if err != nil {
		return nil, err
	}
	factor := int64(otherFactor)
	if found == plumbing.TreeObject {
		factor = treeFactor
	}
	if err := s.share.Use(max(0, factor*int64(len(content))-use)); err != nil {
		return nil, err
	}
	o := &plumbing.MemoryObject{}
	o.SetType(found)
	o.SetSize(int64(len(content)))
	_, _ = o.Write(content) // in memory, cannot fail
	return o, nil
}

// HasEncodedObject implements storer.EncodedObjectStorer.
func (s *Store) HasEncodedObject(id plumbing.Hash) error {
	if s.EncodedObjectStorer.HasEncodedObject(id) == nil {
		return nil
	}
	for _, p := range s.packs {
		if _, ok := p.byID[id]; ok {
			return nil
		}
	}
	return plumbing.ErrObjectNotFound
}

// EncodedObjectSize implements storer.EncodedObjectStorer.
func (s *Store) EncodedObjectSize(id plumbing.Hash) (int64, error) {
	if n, err := s.EncodedObjectStorer.EncodedObjectSize(id); err == nil {
		return n, nil
	}
	p, i, err := s.find(plumbing.AnyObject, id)
	if err != nil {
		return 0, err
	}
	return p.entries[i].full, nil
}

// find returns where an object is.
func (s *Store) find(kind plumbing.ObjectType, id plumbing.Hash) (*pack, int32, error) {
	var tooLarge int64
	for _, p := range s.packs {
		if i, ok := p.byID[id]; ok {
			return p, i, nil
		}
	}
	for _, p := range s.packs {
		i, err := p.find(kind, id)
		if err != nil {
			return nil, 0, err
		}
		if i >= 0 {
			return p, i, nil
		}
		tooLarge = max(tooLarge, p.unnamed(kind))
	}
	if tooLarge > 0 { // it may be one of those
		return nil, 0, s.share.exceeded(tooLarge)
	}
	return nil, 0, plumbing.ErrObjectNotFound
}

// File returns the content of a file. The error is ErrObjectNotFound if the file was not fetched.
func (s *Store) File(id plumbing.Hash) ([]byte, error) {
	p, i, err := s.find(plumbing.BlobObject, id)
	if err != nil {
		return nil, err
	}
	if p.entries[i].kind != plumbing.BlobObject {
		return nil, plumbing.ErrObjectNotFound
	}
	content, _, err := p.read(i)
	if errors.Is(err, errTooLarge) {
		return nil, s.share.exceeded(p.entries[i].full)
	}
	return content, err
}

// Has reports whether an object was fetched, as far as that is known without assembling it.
func (s *Store) Has(id plumbing.Hash) bool { return s.HasEncodedObject(id) == nil }

// The bounds of a comparison: nesting of folders, length of a path, and entries compared. A repository with few objects can have an
// astronomical number of files.
const (
	deepest     = 256
	longestPath = 64 << 10
	mostEntries = 1_000_000
)

// Changed reports whether one of the files that differ between two commits is wanted. known is false if there are too many to compare. A
// moved file has changed in two places.
func (s *Store) Changed(before, after plumbing.Hash, wanted func(path string) bool) (found, known bool, err error) {
	c := comparison{store: s, wanted: wanted, left: mostEntries}
	var trees [2]plumbing.Hash
	for i, id := range []plumbing.Hash{before, after} {
		commit, err := object.GetCommit(s, id)
		if err != nil {
			return false, false, fmt.Errorf("commit %s: %w", id, err)
		}
		trees[i] = commit.TreeHash
	}
	found, err = c.trees(trees[0], trees[1], "", 0)
	if errors.Is(err, errTooMany) {
		return false, false, nil
	}
	return found, err == nil, err
}

// Differences are the wanted files that differ between two commits, in no order. known is false if there are more than most, or too many to
// compare. A moved file is in it twice.
func (s *Store) Differences(before, after plumbing.Hash, most int, wanted func(path string) bool) (paths []string, known bool, err error) {
	more, known, err := s.Changed(before, after, func(path string) bool {
		if wanted(path) {
			paths = append(paths, path)
		}
		return len(paths) > most
	})
	if err != nil || !known || more {
		return nil, false, err
	}
	return paths, true, nil
}

// comparison is the state of a comparison.
type comparison struct {
	store  *Store
	wanted func(path string) bool
	left   int
}

var errTooMany = errors.New("too many files")

// trees compares two folders; the zero hash is a missing one.
func (c *comparison) trees(before, after plumbing.Hash, under string, depth int) (bool, error) {
	if before == after {
		return false, nil
	}
	if depth > deepest || len(under) > longestPath {
		return false, errTooMany
	}
	old, release, err := c.entries(before)
	if err != nil {
		return false, err
	}
	defer release()
	now, release, err := c.entries(after)
	if err != nil {
		return false, err
	}
	defer release()
	for name, a := range old {
		if found, err := c.entry(a, now[name], under+name, depth); found || err != nil {
			return found, err
		}
	}
	for name, b := range now {
		if _, both := old[name]; both {
			continue
		}
		if found, err := c.entry(object.TreeEntry{}, b, under+name, depth); found || err != nil {
			return found, err
		}
	}
	return false, nil
}

// entry compares the entries at a path.
func (c *comparison) entry(a, b object.TreeEntry, path string, depth int) (bool, error) {
	if a.Hash == b.Hash && a.Mode == b.Mode {
		return false, nil
	}
	var folders [2]plumbing.Hash
	file := false
	for i, e := range []object.TreeEntry{a, b} {
		switch {
		case isFolder(e):
			folders[i] = e.Hash
		case !e.Hash.IsZero():
			file = true
		}
	}
	if file && c.wanted(path) {
		return true, nil
	}
	return c.trees(folders[0], folders[1], path+"/", depth+1)
}

// entries returns the entries of a folder, by name.
func (c *comparison) entries(id plumbing.Hash) (map[string]object.TreeEntry, func(), error) {
	if id.IsZero() {
		return nil, func() {}, nil
	}
	before := c.store.share.used.Load()
	t, err := object.GetTree(c.store, id)
	if err != nil {
		return nil, nil, fmt.Errorf("folder %s: %w", id, err)
	}
	use := c.store.share.used.Load() - before
	if c.left -= len(t.Entries); c.left < 0 {
		return nil, nil, errTooMany
	}
	byName := make(map[string]object.TreeEntry, len(t.Entries))
	for _, e := range t.Entries {
		byName[e.Name] = e
	}
	return byName, func() { c.store.share.Free(use) }, nil
}

func isFolder(e object.TreeEntry) bool { return e.Mode == filemode.Dir }
