package domain

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/Masterminds/semver/v3"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/source"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/setup"
)

// push is a publication of an image.
type push struct {
	tag    string
	digest int
	// minute is when it was published; announced when the registry service reported it.
	minute, announced int
	seen              *bool
}

// pushed is the event of a publication of registry.test/shop/api, which is the same event whenever it comes.
func (f *fixture) pushed(image string, p push) event.Event {
	f.t.Helper()
	at := time.Unix(1_600_000_000, 0).UTC()
	e, err := event.New(event.Header{
		ID: fmt.Sprintf("%s %s %d %d", image, p.tag, p.digest, p.minute), Source: "/services/registry",
		Time: at.Add(time.Duration(p.announced) * time.Minute),
	}, event.ArtifactPublished{
		Image: image, Digest: digestOf(p.digest), Tag: p.tag, PublishedAt: at.Add(time.Duration(p.minute) * time.Minute).Format(time.RFC3339),
		DigestSeen: p.seen,
	})
	f.ok(err)
	return e
}

// newestOf is the newest set of an application, as the digests of its versions.
func (f *fixture) newestOf(a core.Application) string {
	f.t.Helper()
	sets, err := f.view.NewestVersionSets(f.t.Context(), org, []int64{a.ID})
	f.ok(err)
	set, ok := sets[a.ID]
	if !ok {
		return "none"
	}
	entries, err := f.view.EntriesByVersionSet(f.t.Context(), org, []int64{set.ID})
	f.ok(err)
	var line []string
	for _, e := range entries[set.ID] {
		versions, err := f.view.VersionsByID(f.t.Context(), org, []int64{e.VersionID})
		f.ok(err)
		line = append(line, strings.TrimLeft(strings.TrimPrefix(versions[e.VersionID].Digest, "sha256:"), "0"))
	}
	return strings.Join(line, " ")
}

func (f *fixture) selecting(name, config string) core.Application {
	f.t.Helper()
	a, err := f.setup.CreateApplication(f.t.Context(), user(), setup.NewApplication{Name: name, Services: []setup.NewService{{
		Name: "api", ArtifactSources: []setup.NewArtifactSource{{Ref: source.OCIImage, Config: json.RawMessage(config)}},
	}}})
	f.ok(err)
	return a
}

func truth(b bool) *bool { return &b }

// TestTheNewestSetFollowsTheSelection, whatever came last.
func TestTheNewestSetFollowsTheSelection(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, config string
		pushes       []push
		newest       []string // after each
	}{
		{
			"a backport is no upgrade", `"selection":"semver"`,
			[]push{
				{tag: "2.0.0", digest: 1, minute: 1},
				{tag: "1.9.5", digest: 2, minute: 2},
				{tag: "2.0.1", digest: 3, minute: 3},
				{tag: "1.9.4", digest: 4, minute: 0},
			},
			[]string{"1", "1", "3", "3"},
		},
		{
			"an older date is no upgrade", `"selection":"lexical"`,
			[]push{{tag: "2026-02-01", digest: 1, minute: 1}, {tag: "2026-01-31", digest: 2, minute: 2}, {tag: "2026-02-02", digest: 3, minute: 3}},
			[]string{"1", "1", "3"},
		},
		{
			"a version that is built again", `"selection":"semver"`,
			[]push{{tag: "1.0.0", digest: 1, minute: 1}, {tag: "1.0.0", digest: 2, minute: 2}, {tag: "1.0.0", digest: 1, minute: 3}},
			[]string{"1", "2", "1"},
		},
		{
			"a digest under a higher version", `"selection":"semver"`,
			[]push{
				{tag: "1.0.0", digest: 1, minute: 1},
				{tag: "1.1.0", digest: 2, minute: 2},
				{tag: "2.0.0", digest: 1, minute: 3},
				{tag: "1.2.0", digest: 3, minute: 4},
			},
			[]string{"1", "2", "1", "1"},
		},
		{
			"a tag that moves back, and what comes late or again", `"selection":"mutable_tag","tag":"stable"`,
			[]push{
				{tag: "stable", digest: 1, minute: 1},
				{tag: "stable", digest: 2, minute: 2},
				{tag: "stable", digest: 1, minute: 1, announced: 9}, // delivered again: the same event
				{tag: "stable", digest: 1, minute: 3},
				{tag: "stable", digest: 2, minute: 2, announced: 9},
				{tag: "stable", digest: 3, minute: 2}, // late
				{tag: "other", digest: 4, minute: 4},
			},
			[]string{"1", "2", "2", "1", "1", "1", "1"},
		},
		{
			"any: what was published last", `"selection":"any"`,
			[]push{
				{tag: "b", digest: 1, minute: 1},
				{tag: "a", digest: 2, minute: 2},
				{tag: "b", digest: 1, minute: 3},
				{tag: "c", digest: 3, minute: 0},
			},
			[]string{"1", "2", "1", "1"},
		},
		{
			"an image is not newer under another tag", `"selection":"newest_build"`,
			[]push{
				{tag: "b", digest: 1, minute: 1},
				{tag: "a", digest: 2, minute: 2},
				{tag: "b", digest: 1, minute: 3},
				{tag: "c", digest: 2, minute: 0},
			},
			[]string{"1", "2", "2", "2"},
		},
		{
			"what nobody has seen waits until it is seen", `"selection":"semver"`,
			[]push{
				{tag: "1.0.0", digest: 1, minute: 1},
				{tag: "9.9.9", digest: 2, minute: 2, seen: truth(false)},
				{tag: "1.1.0", digest: 3, minute: 3, seen: truth(true)},
				{tag: "9.9.9", digest: 2, minute: 2, announced: 1},                    // from a sender who does not say
				{tag: "9.9.9", digest: 2, minute: 2, announced: 2, seen: truth(true)}, // the same event, after a look
				{tag: "9.9.9", digest: 2, minute: 4, seen: truth(false)},              // once seen is seen
			},
			[]string{"1", "1", "3", "3", "2", "2"},
		},
		{
			"the first version of all that nobody has seen", `"selection":"any"`,
			[]push{{tag: "1", digest: 1, minute: 1, seen: truth(false)}, {tag: "1", digest: 1, minute: 2, seen: truth(true)}},
			[]string{"none", "1"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			a := f.selecting("shop", `{"image":"registry.test/shop/api",`+tt.config+`}`)
			var got []string
			for _, p := range tt.pushes {
				f.publish(f.pushed("registry.test/shop/api", p))
				got = append(got, f.newestOf(a))
			}
			if diff := cmp.Diff(tt.newest, got); diff != "" {
				t.Errorf("the newest after each publication (-want +got):\n%s", diff)
			}
		})
	}
}

// TestTheNewestSetDoesNotDependOnTheOrderOfArrival: any publications, in any order, many of them again, in batches of any size, lead to
// what a model of the selection says of all of them.
func TestTheNewestSetDoesNotDependOnTheOrderOfArrival(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	selections := []string{
		`"selection":"any"`, `"selection":"newest_build"`, `"selection":"lexical"`, `"selection":"semver"`,
		`"selection":"mutable_tag","tag":"1.0.0"`,
	}
	round := 0
	rapid.Check(t, func(r *rapid.T) {
		round++
		image := fmt.Sprintf("registry.test/shop/api%d", round)
		selection := rapid.SampledFrom(selections).Draw(r, "selection")
		a := f.selecting(fmt.Sprintf("shop-%d", round), `{"image":"`+image+`",`+selection+`}`)
		var pushes []push
		for i := range rapid.IntRange(1, 8).Draw(r, "publications") {
			p := push{
				tag:    rapid.SampledFrom([]string{"1.0.0", "v1.0.1", "1.10.0", "1.9.0", "2.0.0-rc.1", "latest"}).Draw(r, "tag"),
				digest: rapid.IntRange(1, 4).Draw(r, "digest"), minute: rapid.IntRange(0, 5).Draw(r, "minute"), announced: 10 + i,
			}
			if s := rapid.IntRange(0, 5).Draw(r, "seen"); s < 2 {
				p.seen = truth(s == 1)
			}
			// One digest is published once in an instant under a tag.
			if !slices.ContainsFunc(pushes, func(o push) bool { return o.tag == p.tag && o.digest == p.digest && o.minute == p.minute }) {
				pushes = append(pushes, p)
			}
		}
		order := rapid.Permutation(append(slices.Clone(pushes), rapid.SliceOfN(rapid.SampledFrom(pushes), 0, 6).Draw(r, "again")...)).Draw(r,
			"order")
		for rest := order; len(rest) > 0; {
			n := rapid.IntRange(1, len(rest)).Draw(r, "batch")
			var batch []event.Event
			for _, p := range rest[:n] {
				batch = append(batch, f.pushed(image, p))
			}
			for _, err := range f.receive(batch...) {
				if err != nil {
					r.Fatal(err)
				}
			}
			rest = rest[n:]
		}
		want, got := modelled(selection, pushes), f.newestOf(a)
		// Where nothing counts any more, because a look has not found what others said nothing about, the set stays that was the newest.
		stays := want == "none" && slices.ContainsFunc(pushes, func(p push) bool { return p.seen == nil })
		if got != want && !stays {
			r.Fatalf("%s: the newest is %s, of %+v in the order %+v; expected %s", selection, got, pushes, order, want)
		}
	})
}

// modelled is the digest that a selection leads to, worked out from all publications at once.
func modelled(selection string, all []push) string {
	kind := strings.Split(selection, `"`)[3]
	all = slices.DeleteFunc(slices.Clone(all), func(p push) bool { // the source ignores what it does not select
		v, err := semver.NewVersion(p.tag)
		return kind == "semver" && (err != nil || v.Prerelease() != "") || kind == "mutable_tag" && p.tag != "1.0.0"
	})
	// A digest counts unless the registry was asked for it and never had it.
	counts := func(digest int) bool {
		checked, seen := false, false
		for _, p := range all {
			if p.digest == digest && p.seen != nil {
				checked, seen = true, seen || *p.seen
			}
		}
		return seen || !checked
	}
	first := func(p push) push {
		for _, o := range all {
			if o.digest == p.digest && o.tag == p.tag && (o.minute < p.minute || o.minute == p.minute && o.announced < p.announced) {
				p = o
			}
		}
		return p
	}
	left := slices.DeleteFunc(slices.Clone(all), func(p push) bool { return !counts(p.digest) })
	if len(left) == 0 {
		return "none"
	}
	newest := slices.MaxFunc(left, func(a, b push) int {
		switch kind {
		case "semver":
			if c := semver.MustParse(a.tag).Compare(semver.MustParse(b.tag)); c != 0 {
				return c
			}
		case "lexical":
			if c := strings.Compare(a.tag, b.tag); c != 0 {
				return c
			}
		case "newest_build":
			a, b = first(a), first(b)
		}
		return (a.minute-b.minute)*1000 + a.announced - b.announced
	})
	return fmt.Sprintf("%x", newest.digest)
}
