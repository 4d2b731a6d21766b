package git

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
)

// R4-19: the files that differ between two commits, below a folder, with both texts; also from servers that serve heads only.
func TestReadDifference(t *testing.T) {
	t.Parallel()
	s := setup(t)
	first := s.add(t, "main", map[string]string{"apps/a.yaml": "one\n", "apps/b.yaml": "same\n", "other/c.yaml": "x\n", "values.yaml": "v\n"})
	s.add(t, "main", map[string]string{"apps/a.yaml": "two\n", "apps/new.yaml": "n\n", "other/c.yaml": "y\n", "values.yaml": "w\n", "appsx/d": "z"})
	large := strings.Repeat("x", maxManifest+1)
	head := s.add(t, "main", map[string]string{"apps/large.yaml": large})
	for name, c := range map[string]struct {
		under string
		also  []string
		want  string
	}{
		"a folder":            {"apps", nil, "apps/a.yaml one→two;apps/large.yaml →!;apps/new.yaml →n"},
		"a folder and a file": {"apps/", []string{"values.yaml"}, "apps/a.yaml one→two;apps/large.yaml →!;apps/new.yaml →n;values.yaml v→w"},
		"another folder":      {"other", nil, "other/c.yaml x→y"},
		"one that is missing": {"none", nil, ""},
	} {
		found, err := s.forge.ReadDifference(t.Context(), activity.DifferenceRequest{
			Organization: 1, RepoURL: s.url, Base: first, Ref: "main", Under: c.under, Also: c.also,
		})
		if err != nil {
			t.Fatal(err)
		}
		var all []string
		for _, f := range found.Files {
			text := fmt.Sprintf("%s %s→%s", f.Path, strings.TrimSpace(string(f.Before)), strings.TrimSpace(string(f.After)))
			if f.Unread {
				text = f.Path + " →!"
			}
			all = append(all, text)
		}
		if got := strings.Join(all, ";"); got != c.want || found.Base != first || found.Head != head || found.More {
			t.Errorf("%s: found %q of %s..%s, more %t; want %q", name, got, found.Base, found.Head, found.More, c.want)
		}
	}
	if _, err := s.forge.ReadDifference(t.Context(), activity.DifferenceRequest{
		Organization: 1, RepoURL: s.url, Base: strings.Repeat("a", 40), Ref: "main",
	}); !fault.Is(err, fault.NotFound) {
		t.Errorf("a commit that does not exist: %v", err)
	}
	plain := s.add(t, "main", map[string]string{"links/a": "x"})
	s.add(t, "main", map[string]string{"120000 links/a": "../apps", "120000 links/b": "../apps/a.yaml"})
	s.gitIn(t, s.dir, fmt.Sprintf("commit refs/heads/main\ncommitter Ann <ann@example.com> now\ndata 1\nx\nfrom refs/heads/main^0\nM 160000 %s links/sub\n",
		first), "fast-import", "--quiet", "--date-format=now")
	links, err := s.forge.ReadDifference(t.Context(), activity.DifferenceRequest{Organization: 1, RepoURL: s.url, Base: plain, Ref: "main"})
	if err != nil || len(links.Files) != 3 || slices.ContainsFunc(links.Files, func(f activity.ChangedFile) bool { return !f.Unread }) {
		t.Errorf("links and submodules: found %+v, %v; want none of them read", links.Files, err)
	}
	many := map[string]string{}
	for i := range mostDifferent + 10 {
		many[fmt.Sprintf("many/%03d.yaml", i)] = "x"
	}
	s.add(t, "main", many)
	found, err := s.forge.ReadDifference(t.Context(), activity.DifferenceRequest{Organization: 1, RepoURL: s.url, Base: head, Ref: "main"})
	if err != nil || len(found.Files) != mostDifferent || !found.More {
		t.Errorf("many files: found %d, more %t, %v", len(found.Files), found.More, err)
	}
}
