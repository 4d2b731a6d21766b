package trigger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// prefixes are sources whose reference is the filter: what their files begin with.
type prefixes struct {
	Repositories
	compared map[string]int
}

func (p prefixes) Filter(ref string, _ json.RawMessage, _ string) (string, func(string) bool) {
	if ref == "tags" {
		return "", nil
	}
	return ref, func(file string) bool {
		p.compared[ref]++
		return strings.HasPrefix(file, ref)
	}
}

func sourceOf(application int64, ref string) core.ServiceSource {
	return core.ServiceSource{ApplicationID: application, Ref: ref}
}

// D60: files are compared once with each filter, and each counts once for an application.
func TestTouching(t *testing.T) {
	t.Parallel()
	p := prefixes{compared: map[string]int{}}
	u := &UseCases{sources: p}
	var paths []string
	for i := range 700 {
		paths = append(paths, fmt.Sprintf("a/%03d", i))
	}
	paths = append(paths, "b/1")
	all, more, err := u.touching(t.Context(), Change{Paths: paths}, []core.ServiceSource{
		sourceOf(1, "a/"), sourceOf(1, "a/0"), sourceOf(1, "tags"), sourceOf(2, "c/"), sourceOf(3, "b/"), sourceOf(4, "a/"),
	})
	if err != nil || more || len(all) != 3 {
		t.Fatalf("found %d applications, more %v, %v; expected 3", len(all), more, err)
	}
	for i, want := range []struct{ sources, shown, count int }{{2, foreseenFiles, 700}, {1, 1, 1}, {1, foreseenFiles, 700}} {
		shown, count := all[i].shown(paths)
		if len(all[i].sources) != want.sources || len(shown) != want.shown || count != want.count || !slices.IsSorted(shown) {
			t.Errorf("application %d: found %d sources, %d of %d files; expected %+v", i, len(all[i].sources), len(shown), count, want)
		}
	}
	for filter, n := range p.compared {
		if n != len(paths) {
			t.Errorf("filter %s: compared with %d files; expected %d", filter, n, len(paths))
		}
	}
}

// D60: no more applications are looked at than are shown, and nothing once nobody waits.
func TestTouchingEnds(t *testing.T) {
	t.Parallel()
	p := prefixes{compared: map[string]int{}}
	u := &UseCases{sources: p}
	var sources []core.ServiceSource
	for i := range int64(maxForeseen + 5) {
		sources = append(sources, sourceOf(i+1, "a"))
	}
	all, more, err := u.touching(t.Context(), Change{Paths: []string{"a"}}, sources)
	if err != nil || !more || len(all) != maxForeseen {
		t.Errorf("found %d applications, more %v, %v; expected %d and more", len(all), more, err, maxForeseen)
	}
	clear(p.compared)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := u.touching(ctx, Change{Paths: []string{"a"}}, sources); !errors.Is(err, context.Canceled) || len(p.compared) > 0 {
		t.Errorf("found %v after %v; expected nothing to be compared", err, p.compared)
	}
}
