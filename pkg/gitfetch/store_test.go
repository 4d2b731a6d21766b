package gitfetch_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-git/go-git/v5/plumbing"

	"github.com/lockstep-cd/lockstep/pkg/gitfetch"
)

// history adds commits that change a line of a large file and of many small ones, so that a server sends almost everything as deltas.
func (r remote) history(t *testing.T) {
	t.Helper()
	work := filepath.Join(r.root, "work")
	for i := range 12 {
		var large strings.Builder
		for line := range 4000 {
			n := 0
			if line == i*300 {
				n = i
			}
			fmt.Fprintf(&large, "line %d of %d: %x\n", line, n, line*line*7919)
		}
		write(t, filepath.Join(work, "large"), large.String())
		for n := range 40 {
			write(t, filepath.Join(work, "dir", fmt.Sprint(n)), fmt.Sprintf("%d %s", max(i-n, 0), strings.Repeat("same ", 100)))
		}
		run(t, work, "add", "--all")
		run(t, work, "commit", "--quiet", "-m", fmt.Sprint(i))
	}
	run(t, work, "push", "--quiet", "origin", "HEAD:main")
	run(t, filepath.Join(r.root, "shop.git"), "repack", "-adfq", "--depth=40")
}

func write(t *testing.T, name, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestEveryObjectEqualsGits, also those sent as deltas, read from memory and from a temporary file.
func TestEveryObjectEqualsGits(t *testing.T) {
	t.Parallel()
	r := setup(t, "false", false)
	r.history(t)
	bare := filepath.Join(r.root, "shop.git")
	bases := run(t, bare, "cat-file", "--batch-all-objects", "--batch-check=%(deltabase)")
	if n := strings.Count(bases, "\n") - strings.Count(bases, strings.Repeat("0", 40)); n < 20 {
		t.Fatalf("the repository has %d deltas, expected more", n)
	}
	for name, before := range map[string]int64{"from memory": 0, "from a file": 5 << 20} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			attempts := 0
			err := within(t, gitfetch.Limits{}, func(ctx context.Context, share *gitfetch.Share) error {
				attempts++
				if err := share.Use(before); err != nil {
					return err
				}
				refs, err := r.session.AdvertisedReferencesContext(ctx)
				if err != nil {
					return err
				}
				objects := gitfetch.NewStore(share)
				if err := objects.Fetch(ctx, r.session, refs, gitfetch.Want{Objects: []plumbing.Hash{refs.References["refs/heads/main"]}}); err != nil {
					return err
				}
				n := 0
				for line := range strings.Lines(run(t, bare, "cat-file", "--batch-all-objects", "--batch-check")) {
					var id, kind string
					var size int
					if _, err := fmt.Sscan(line, &id, &kind, &size); err != nil {
						return err
					}
					if err := same(objects, plumbing.NewHash(id), kind, size); err != nil {
						return err
					}
					n++
				}
				if n < 60 {
					t.Errorf("found %d objects, expected more", n)
				}
				if _, err := objects.File(plumbing.NewHash(strings.Repeat("1",
					40))); err != plumbing.ErrObjectNotFound { //nolint:errorlint // the Git library compares it by identity
					t.Errorf("a file that is not there: found %v", err)
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if attempts != 1+min(1, int(before)) {
				t.Errorf("found %d attempts", attempts)
			}
		})
	}
}

func same(objects *gitfetch.Store, id plumbing.Hash, kind string, size int) error {
	var content []byte
	if kind == "blob" {
		var err error
		if content, err = objects.File(id); err != nil {
			return fmt.Errorf("file %s of %d bytes: %w", id, size, err)
		}
	} else {
		o, err := objects.EncodedObject(plumbing.AnyObject, id)
		if err != nil {
			return fmt.Errorf("%s %s of %d bytes: %w", kind, id, size, err)
		}
		r, err := o.Reader()
		if err != nil {
			return err
		}
		var b bytes.Buffer
		if _, err := b.ReadFrom(r); err != nil {
			return err
		}
		content = b.Bytes()
	}
	typ, err := plumbing.ParseObjectType(kind)
	if err != nil {
		return err
	}
	if len(content) != size || plumbing.ComputeHash(typ, content) != id {
		return fmt.Errorf("%s %s: found %d other bytes, expected %d", kind, id, len(content), size)
	}
	return nil
}

// TestLimitsOfOneFetch: the error names the limit.
func TestLimitsOfOneFetch(t *testing.T) {
	t.Parallel()
	r := setup(t, "true", false)
	r.history(t)
	for limit, limits := range map[string]gitfetch.Limits{
		"objects":  {Objects: 10},
		"inflated": {InflatedBytes: 100_000},
		"transfer": {TransferBytes: 20_000},
	} {
		t.Run(limit, func(t *testing.T) {
			t.Parallel()
			err := within(t, limits, func(ctx context.Context, share *gitfetch.Share) error {
				refs, err := r.session.AdvertisedReferencesContext(ctx)
				if err != nil {
					return err
				}
				return gitfetch.NewStore(share).Fetch(ctx, r.session, refs, gitfetch.Want{Objects: []plumbing.Hash{refs.References["refs/heads/main"]}})
			})
			if found, ok := err.(*gitfetch.LimitError); !ok || found.Limit != limit || //nolint:errorlint // Do returns it unwrapped
				!strings.Contains(err.Error(), "git_limits."+limit) {
				t.Errorf("found %v, expected the limit of %s", err, limit)
			}
		})
	}
}

// TestChanged: the difference between two commits; a repository with more files than can be counted is no trap.
func TestChanged(t *testing.T) {
	t.Parallel()
	r := setup(t, "true", false)
	bare := filepath.Join(r.root, "shop.git")
	parent := run(t, bare, "rev-parse", "main")
	commit := func(tree, parent string) string {
		return run(t, bare, "commit-tree", "-m", "x", "-p", parent, tree)
	}
	folder := func(entries string) string { return runIn(t, bare, entries, "mktree", "--missing") }
	blob := run(t, bare, "rev-parse", "main:file")
	inner := folder("100644 blob " + blob + "\ta\n100644 blob " + blob + "\tb\n")
	changed := commit(folder("100644 blob "+blob+"\tfile\n040000 tree "+inner+"\tdir\n"), parent)
	// Ten folders in each of ten folders, and so on: 10^10 files of twelve objects.
	for range 10 {
		var entries strings.Builder
		for i := range 10 {
			fmt.Fprintf(&entries, "040000 tree %s\t%d\n", inner, i)
		}
		inner = folder(entries.String())
	}
	bomb := commit(inner, changed)
	run(t, bare, "update-ref", "refs/heads/main", bomb)
	for _, tt := range []struct {
		name, from, to, wanted string
		found, known           bool
	}{
		{"a file in a new folder", parent, changed, "dir/b", true, true},
		{"one that is the same", parent, changed, "file", false, true},
		{"one that is gone", changed, parent, "dir/a", true, true},
		{"nothing", parent, parent, "", false, true},
		{"too many to look at", changed, bomb, "nope", false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			err := within(t, gitfetch.Limits{}, func(ctx context.Context, share *gitfetch.Share) error {
				refs, err := r.session.AdvertisedReferencesContext(ctx)
				if err != nil {
					return err
				}
				objects := gitfetch.NewStore(share)
				want := gitfetch.Want{Objects: []plumbing.Hash{refs.References["refs/heads/main"]}, TreesAlone: true}
				if err := objects.Fetch(ctx, r.session, refs, want); err != nil {
					return err
				}
				found, known, err := objects.Changed(plumbing.NewHash(tt.from), plumbing.NewHash(tt.to),
					func(path string) bool { return path == tt.wanted })
				if found != tt.found || known != tt.known {
					t.Errorf("found %v, known %v, expected %v and %v", found, known, tt.found, tt.known)
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		})
	}
}
