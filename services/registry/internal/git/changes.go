package git

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/transport"

	"github.com/lockstep-cd/lockstep/pkg/gitfetch"
	"github.com/lockstep-cd/lockstep/pkg/source"
	"github.com/lockstep-cd/lockstep/services/registry/internal/core"
)

// depth is how many commits are fetched to find the previously seen one.
const depth = 200

// change is a pair of commits of a branch.
type change struct{ from, to string }

// matters reports whether the changes between the commits count: if a commit that Lockstep has not made itself changes one of the wanted
// files. known is false if the older commit is not among the last commits of the newer one, because the branch was rewritten or has many
// new commits, or if there are too many files to compare. Without filters every commit of others counts.
func (c change) matters(
	ctx context.Context, objects *gitfetch.Store, session transport.UploadPackSession, refs *packp.AdvRefs, s *source.Repository,
) (matters, known bool, err error) {
	// Servers that cannot omit files send them, too.
	want := gitfetch.Want{Objects: []plumbing.Hash{plumbing.NewHash(c.to)}, Depth: depth, TreesAlone: true}
	if err := objects.Fetch(ctx, session, refs, want); err != nil {
		return false, false, fmt.Errorf("fetch %s: %w", c.to, err)
	}
	wanted := func(path string) bool { return s.Wants([]string{path}) }
	if s.Filtered() {
		matters, known, err = objects.Changed(plumbing.NewHash(c.from), plumbing.NewHash(c.to), wanted)
	} else {
		matters, known = true, true
	}
	if err == nil && known && matters {
		matters, known, err = c.others(objects, s.Filtered(), wanted)
	}
	if errors.Is(err, plumbing.ErrObjectNotFound) {
		return false, false, nil
	}
	if err != nil {
		return false, false, fmt.Errorf("compare %s with %s: %w", c.from, c.to, err)
	}
	return matters, known, nil
}

// others reports whether one of the commits counts that Lockstep has not made for a rollout: those with its trailers would begin a
// rollout that commits again. A merge counts by what it changes in the branch.
func (c change) others(objects *gitfetch.Store, filtered bool, wanted func(path string) bool) (matters, known bool, err error) {
	from := plumbing.NewHash(c.from)
	for at := plumbing.NewHash(c.to); at != from; {
		commit, err := object.GetCommit(objects, at)
		if err != nil {
			return false, false, fmt.Errorf("read commit %s: %w", at, err)
		}
		if len(commit.ParentHashes) == 0 {
			return false, false, nil
		}
		before := commit.ParentHashes[0]
		if !gitfetch.Own(commit.Message) {
			changed, known := true, true
			if filtered {
				changed, known, err = objects.Changed(before, at, wanted)
			}
			if err != nil || !known || changed {
				return changed, known, err
			}
		}
		at = before
	}
	return false, true, nil
}

// maxMessage is how many bytes of a message are kept.
const maxMessage = 4096

// message returns the beginning of the message of a commit, which is fetched alone if it is not there yet. Where it cannot be read it is
// empty: a commit is an artifact also without it.
func message(
	ctx context.Context, objects *gitfetch.Store, session transport.UploadPackSession, refs *packp.AdvRefs, found core.Notification,
) (string, error) {
	id := plumbing.NewHash(found.Digest)
	if !objects.Has(id) {
		want := id
		if found.Tag != "" { // servers send what refs name: an annotated tag, and its commit with it
			want = refs.References[string(plumbing.NewTagReferenceName(found.Tag))]
		}
		err := objects.Fetch(ctx, session, refs, gitfetch.Want{Objects: []plumbing.Hash{want}, Depth: 1, TreesAlone: true})
		if err != nil {
			return "", stopped(ctx)
		}
	}
	commit, err := object.GetCommit(objects, id)
	if err != nil {
		return "", stopped(ctx)
	}
	return beginning(commit.Message, maxMessage), nil
}

// fill adds to an artifact what has changed, as far as that is known.
func (c change) fill(ctx context.Context, objects *gitfetch.Store, s *source.Repository, found *core.Notification) error {
	files, known, err := c.files(ctx, objects, s)
	if err != nil || !known {
		return err
	}
	found.Since, found.Files = c.from, files
	found.Messages, err = c.messages(ctx, objects)
	return err
}

// The bounds of the changed files that an artifact has: how many, and the bytes of all.
const (
	mostFiles     = 500
	mostFileBytes = 32 << 10
)

// files returns the wanted files that differ between the artifact reported last and a commit, in order, one a line; known is false where
// that is not known: a branch was rewritten, or too much has changed.
func (c change) files(ctx context.Context, objects *gitfetch.Store, s *source.Repository) (files string, known bool, err error) {
	paths, known, err := objects.Differences(plumbing.NewHash(c.from), plumbing.NewHash(c.to), mostFiles, func(path string) bool {
		return s.Wants([]string{path})
	})
	if err != nil || !known {
		return "", false, stopped(ctx)
	}
	slices.Sort(paths)
	files = strings.Join(paths, "\n")
	ambiguous := slices.ContainsFunc(paths, func(p string) bool { return strings.ContainsAny(p, "\n\x00") })
	if ambiguous || len(files) > mostFileBytes || !utf8.ValidString(files) {
		return "", false, nil
	}
	return files, true, nil
}

// The bounds of the messages that an artifact has: how many, the bytes of one, longer than any beginning that a pipeline may name, and
// those of all; and how many older commits are looked at to know which are new.
const (
	mostMessages     = 100
	mostBeginning    = 1000
	mostMessageBytes = 32 << 10
	mostOlder        = 500
)

// messages returns the beginnings of the messages of all commits that came after the artifact reported last, with those of merged branches,
// NUL between them; empty where not all are known: a branch was rewritten, one lies deeper than what was fetched, or there are too many.
func (c change) messages(ctx context.Context, objects *gitfetch.Store) (string, error) {
	from, older := plumbing.NewHash(c.from), map[plumbing.Hash]bool{}
	for next := []plumbing.Hash{from}; len(next) > 0 && len(older) < mostOlder; next = next[1:] {
		commit, err := object.GetCommit(objects, next[0])
		switch {
		case errors.Is(err, plumbing.ErrObjectNotFound), err == nil && older[next[0]]:
			continue
		case err != nil:
			return "", stopped(ctx)
		}
		older[next[0]], next = true, append(next, commit.ParentHashes...)
	}
	var all []string
	seen, reached := map[plumbing.Hash]bool{}, false
	for next := []plumbing.Hash{plumbing.NewHash(c.to)}; len(next) > 0; next = next[1:] {
		reached = reached || next[0] == from
		if older[next[0]] || seen[next[0]] {
			continue
		}
		commit, err := object.GetCommit(objects, next[0])
		if err != nil || len(all) == mostMessages {
			return "", stopped(ctx)
		}
		all = append(all, beginning(commit.Message, mostBeginning))
		seen[next[0]], next = true, append(next, commit.ParentHashes...)
	}
	joined := strings.Join(all, "\x00")
	if !reached || len(joined) > mostMessageBytes {
		return "", nil
	}
	return joined, nil
}

// stopped is the error of a poll that has been stopped. Nothing else keeps an artifact from being reported without its message.
func stopped(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("read a commit: %w", err)
	}
	return nil
}

// beginning is as much of a text as is kept, without what cannot be stored.
func beginning(text string, most int) string {
	text = strings.ToValidUTF8(strings.ReplaceAll(text, "\x00", ""), "\uFFFD")
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "")
}
