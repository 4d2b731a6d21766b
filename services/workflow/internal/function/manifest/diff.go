package manifest

import (
	"fmt"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	formatdiff "github.com/go-git/go-git/v5/plumbing/format/diff"
	"github.com/go-git/go-git/v5/utils/diff"
	"github.com/sergi/go-diff/diffmatchpatch"
)

// Revision is a file before and after a change.
type Revision struct {
	Path, Before, After string
	// Unread reports whether it is too large to be compared.
	Unread bool
	// redacted reports whether something was left out of the texts.
	redacted bool
}

// Change is what differs between the two, for people to read.
type Change struct {
	Path string
	// Diff is in the unified form, as Git writes it.
	Diff string
	// Truncated reports whether the rest of the diff was left out.
	Truncated bool
	// Redacted reports whether what looks like a secret was left out.
	Redacted bool
}

const (
	// contextLines is how many lines that stay the same are shown around those that do not; Git's own default.
	contextLines = 3
	// maxDiff and maxDiffs bound one diff and all of a call together, in bytes: they go into one event, which has at most a
	// megabyte, and a deploy changes a few lines of a file (D42).
	maxDiff  = 32 << 10
	maxDiffs = 256 << 10
)

// Diff is what differs, file by file in the order given; files that stay as they are are left out. All diffs together have
// at most so many bytes; 0 is as many as there may be.
func Diff(files []Revision, most int) ([]Change, error) {
	changes := []Change{}
	left := maxDiffs
	if most > 0 {
		left = min(left, most)
	}
	for _, f := range files {
		if f.Before == f.After {
			continue
		}
		var text strings.Builder
		if err := formatdiff.NewUnifiedEncoder(&text, contextLines).Encode(patch(f)); err != nil {
			return nil, fmt.Errorf("compare %s: %w", f.Path, err)
		}
		change := Change{Path: f.Path, Diff: text.String(), Redacted: f.redacted}
		if most := min(maxDiff, left); len(change.Diff) > most {
			// Whole lines only: half a line would be read as one that says something else.
			change.Diff, change.Truncated = change.Diff[:strings.LastIndexByte(change.Diff[:most], '\n')+1], true
		}
		left -= len(change.Diff)
		changes = append(changes, change)
	}
	return changes, nil
}

// DiffShown is Diff without what looks like a secret: in its place is whether it differs.
func DiffShown(files []Revision, most int) ([]Change, error) {
	h := newHider()
	shown := make([]Revision, len(files))
	for i, f := range files {
		before, after := strings.ToValidUTF8(f.Before, "\uFFFD"), strings.ToValidUTF8(f.After, "\uFFFD")
		was, is := settle(h.file(before), h.file(after))
		shown[i] = Revision{Path: f.Path, Before: was, After: is, redacted: was != before || is != after}
	}
	return Diff(shown, most)
}

// patch is a revision as go-git's encoder takes it.
type patch Revision

// FilePatches implements its Patch: this is the only one.
func (p patch) FilePatches() []formatdiff.FilePatch { return []formatdiff.FilePatch{p} }

// Message implements its Patch.
func (p patch) Message() string { return "" }

// IsBinary implements its FilePatch; manifests are text.
func (p patch) IsBinary() bool { return false }

// Files implements its FilePatch.
func (p patch) Files() (from, to formatdiff.File) {
	return side{p.Path, p.Before}, side{p.Path, p.After}
}

// Chunks implements its FilePatch.
func (p patch) Chunks() []formatdiff.Chunk {
	var chunks []formatdiff.Chunk
	for _, d := range diff.Do(p.Before, p.After) {
		operation := formatdiff.Equal
		switch d.Type {
		case diffmatchpatch.DiffInsert:
			operation = formatdiff.Add
		case diffmatchpatch.DiffDelete:
			operation = formatdiff.Delete
		case diffmatchpatch.DiffEqual:
		}
		chunks = append(chunks, chunk{d.Text, operation})
	}
	return chunks
}

// side is one of the two files of a patch.
type side struct{ path, content string }

// Hash implements its File.
func (f side) Hash() plumbing.Hash {
	return plumbing.ComputeHash(plumbing.BlobObject, []byte(f.content))
}

// Mode implements its File: what the mode is does not change, and is not known here.
func (f side) Mode() filemode.FileMode { return filemode.Regular }

// Path implements its File.
func (f side) Path() string { return f.path }

// chunk is a run of lines that stay, come or go. It has no embedded Diff: that has a field by the name of a method here.
type chunk struct {
	text      string
	operation formatdiff.Operation
}

// Content implements its Chunk.
func (c chunk) Content() string { return c.text }

// Type implements its Chunk.
func (c chunk) Type() formatdiff.Operation { return c.operation }
