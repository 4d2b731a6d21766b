package git

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
)

// D53: folders and files of one commit are read together, without links, and within bounds.
func TestReadTree(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.add(t, "main", map[string]string{
		"base/a.yaml": "a\n", "overlays/x/k.yaml": "k\n", "overlays/x/more/b.yaml": "b\n", "values.yaml": "v\n", "basement/c": "c\n",
	})
	head := s.add(t, "main", map[string]string{"120000 base/link": "../values.yaml"})
	for name, c := range map[string]struct {
		paths []string
		files int
		bytes int
		want  string
		class fault.Class
	}{
		"everything":          {paths: []string{""}, want: "base/a.yaml=a basement/c=c overlays/x/k.yaml=k overlays/x/more/b.yaml=b values.yaml=v"},
		"folders and a file":  {paths: []string{"base", "/overlays/x/more/", "values.yaml"}, want: "base/a.yaml=a overlays/x/more/b.yaml=b values.yaml=v"},
		"one that is missing": {paths: []string{"none"}, class: fault.NotFound},
		"below a file":        {paths: []string{"values.yaml/x"}, class: fault.NotFound},
		"a link":              {paths: []string{"base/link"}, class: fault.Invalid},
		"too many files":      {paths: []string{""}, files: 4, class: fault.Refused},
		"too many bytes":      {paths: []string{""}, bytes: 9, class: fault.Refused},
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
			if !fault.Is(err, c.class) {
				t.Errorf("%s: found %v, expected class %v", name, err, c.class)
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
