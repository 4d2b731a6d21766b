package gitfetch

import (
	"bytes"
	"context"
	"os/exec"
	"strings"
	"testing"

	"github.com/go-git/go-git/v5/plumbing"
)

// FuzzPack: whatever a server sends in place of a pack, reading it ends with an error or a pack, within the memory of its share.
func FuzzPack(f *testing.F) {
	dir := f.TempDir()
	git := func(stdin string, args ...string) []byte {
		cmd := exec.CommandContext(f.Context(), "git", args...)
		cmd.Dir, cmd.Stdin = dir, strings.NewReader(stdin)
		out, err := cmd.Output()
		if err != nil {
			f.Fatalf("git %s: %v", args[0], err)
		}
		return out
	}
	git("", "init", "--quiet", "--bare", ".")
	long := strings.Repeat("some text that is long enough for a delta\n", 50)
	var ids strings.Builder
	for _, content := range []string{long, long + "x", "y" + long, "", "a"} {
		ids.Write(git(content, "hash-object", "-w", "--stdin"))
	}
	for _, arguments := range [][]string{{"pack-objects", "--stdout", "-q"}, {"pack-objects", "--stdout", "-q", "--delta-base-offset"}} {
		f.Add(git(ids.String(), arguments...))
	}
	f.Add([]byte("PACK\x00\x00\x00\x02\xff\xff\xff\xff"))
	f.Add([]byte("PACK\x00\x00\x00\x02\x00\x00\x00\x01\xbf\xff\xff\xff\xff\xff\xff\xff\x7f"))
	f.Fuzz(func(t *testing.T, b []byte) {
		budget := NewBudget(Limits{MemoryBytes: minMemory, Objects: 1000, InflatedBytes: 16 << 20})
		err := budget.Do(t.Context(), 1, func(_ context.Context, s *Share) error {
			p, err := readPack(s, bytes.NewReader(b))
			if err != nil {
				return err
			}
			store := NewStore(s)
			store.packs = append(store.packs, p)
			for i := range p.entries {
				if e := p.entries[i]; e.known {
					content, err := store.EncodedObject(plumbing.AnyObject, e.id)
					if err == nil && content.Hash() != e.id {
						t.Errorf("object %d is %s, and called %s", i, content.Hash(), e.id)
					}
				}
			}
			_, err = store.File(plumbing.NewHash(strings.Repeat("1", 40)))
			return err
		})
		if err == nil {
			t.Error("a file was found that cannot be there")
		}
		if n := budget.metrics.inUse.Load(); n != 0 {
			t.Errorf("%d bytes are in use at the end", n)
		}
	})
}
