package git

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
)

// D53: folders and files of one commit are read together, and within bounds. What stands for something elsewhere is not left out in
// silence.
func TestReadTree(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.add(t, "main", map[string]string{
		"base/a.yaml": "a\n", "overlays/x/k.yaml": "k\n", "overlays/x/more/b.yaml": "b\n", "values.yaml": "v\n", "basement/c": "c\n", "rest/r.yaml": "r\n",
	})
	head := s.add(t, "main", map[string]string{"120000 linked/link": "../values.yaml", "linked/d.yaml": "d\n"})
	for name, c := range map[string]struct {
		paths []string
		files int
		bytes int
		want  string
		class fault.Class
		text  string
	}{
		"everything":           {paths: []string{""}, class: fault.Invalid, text: `found the link "linked/link"`},
		"folders and a file":   {paths: []string{"base", "/overlays/x/more/", "values.yaml"}, want: "base/a.yaml=a overlays/x/more/b.yaml=b values.yaml=v"},
		"one that is missing":  {paths: []string{"none"}, class: fault.NotFound},
		"below a file":         {paths: []string{"values.yaml/x"}, class: fault.NotFound},
		"a link":               {paths: []string{"linked/link"}, class: fault.Invalid},
		"a folder with a link": {paths: []string{"base", "linked"}, class: fault.Invalid, text: `found the link "linked/link"`},
		"too many files":       {paths: []string{"base", "overlays", "basement", "rest"}, files: 4, class: fault.Refused},
		"too many bytes":       {paths: []string{"base", "overlays", "basement", "rest"}, bytes: 9, class: fault.Refused},
	} {
		if c.files == 0 {
			c.files = 100
		}
		if c.bytes == 0 {
			c.bytes = 100
		}
		found, sha, err := s.forge.ReadTree(t.Context(), activity.TreeRequest{
			Organization: 1, RepoURL: s.url, Ref: "main", Paths: c.paths, MaxFiles: c.files, MaxBytes: c.bytes,
		})
		if c.want == "" {
			if !fault.Is(err, c.class) || !strings.Contains(err.Error(), c.text) {
				t.Errorf("%s: found %v, expected class %v with %q", name, err, c.class, c.text)
			}
			continue
		}
		var all []string
		for _, path := range slices.Sorted(maps.Keys(found)) {
			all = append(all, path+"="+strings.TrimSpace(string(found[path])))
		}
		if got := strings.Join(all, " "); err != nil || got != c.want || sha != head {
			t.Errorf("%s: found %q at %s, %v; expected %q at %s", name, got, sha, err, c.want, head)
		}
	}
}

// R4-27, D60: for a preview a server is not asked for its whole history: a commit that it does not serve by its id is not found, which
// is not the same as a path that is not in a commit which was read.
func TestATreeIsReadAlone(t *testing.T) {
	t.Parallel()
	s := setup(t)
	old := s.add(t, "main", map[string]string{"a.yaml": "1\n"})
	head := s.add(t, "main", map[string]string{"a.yaml": "2\n"})
	read := func(ref, at string, alone bool) (string, error) {
		files, _, err := s.forge.ReadTree(t.Context(), activity.TreeRequest{
			Organization: 1, RepoURL: s.url, Ref: ref, Paths: []string{at}, MaxFiles: 9, MaxBytes: 99, Alone: alone,
		})
		return string(files["a.yaml"]), err
	}
	noPath := func(err error) bool {
		_, is := errors.AsType[activity.NoPathError](err)
		return is && fault.Is(err, fault.NotFound)
	}
	if text, err := read(old, "a.yaml", true); !fault.Is(err, fault.NotFound) || noPath(err) || !strings.Contains(err.Error(), "does not serve commit "+old) {
		t.Errorf("found %q, %v; want the history left alone", text, err)
	}
	if _, err := read(strings.Repeat("a", 40), "a.yaml", false); !fault.Is(err, fault.NotFound) || noPath(err) {
		t.Errorf("found %v; want that there is no such commit", err)
	}
	if text, err := read(old, "a.yaml", false); err != nil || text != "1\n" { // a deploy needs it
		t.Errorf("found %q, %v", text, err)
	}
	if text, err := read(head, "a.yaml", true); err != nil || text != "2\n" {
		t.Errorf("the head of a branch: found %q, %v", text, err)
	}
	for _, at := range []string{"b.yaml", "b/c.yaml", "a.yaml/c"} {
		if _, err := read(head, at, true); !noPath(err) {
			t.Errorf("%s: found %v; want that the commit has no such path", at, err)
		}
	}
	s.git(t, s.dir, "config", "uploadpack.allowReachableSHA1InWant", "true")
	if text, err := read(old, "a.yaml", true); err != nil || text != "1\n" {
		t.Errorf("of a server that serves it: found %q, %v", text, err)
	}
}

// D45: few objects can be an astronomical number of folders without a single file, and a submodule is somewhere else.
func TestATreeIsBounded(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		entry         string
		levels, width int
		class         fault.Class
	}{
		"many folders":  {"", 9, 10, fault.Refused},
		"deep folders":  {"", 80, 1, fault.Refused},
		"few folders":   {"", 3, 3, 0},
		"no repository": {"160000 commit 1234567890123456789012345678901234567890\tsub\n", 1, 1, fault.Invalid},
	} {
		s := setup(t)
		tree := strings.TrimSpace(s.gitIn(t, s.dir, c.entry, "mktree", "--missing"))
		for range c.levels {
			var folders strings.Builder
			for i := range c.width {
				fmt.Fprintf(&folders, "040000 tree %s\td%d\n", tree, i)
			}
			tree = strings.TrimSpace(s.gitIn(t, s.dir, folders.String(), "mktree"))
		}
		commit := strings.TrimSpace(s.git(t, s.dir, "-c", "user.name=x", "-c", "user.email=x@example.com", "commit-tree", "-m", "x", tree))
		s.git(t, s.dir, "update-ref", "refs/heads/main", commit)
		files, _, err := s.forge.ReadTree(t.Context(), activity.TreeRequest{
			Organization: 1, RepoURL: s.url, Ref: "main", Paths: []string{""}, MaxFiles: 2000, MaxBytes: 8 << 20,
		})
		if c.class == 0 && err != nil || c.class != 0 && !fault.Is(err, c.class) {
			t.Errorf("%s: found %d files, %v; expected class %v", name, len(files), err, c.class)
		}
	}
}
