package domain

import (
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-cd/lockstep/pkg/bus"
	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/source"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/setup"
)

// sets shows version sets as their names and the names of their versions.
func describeSets(f *fixture, application core.Application) []string {
	f.t.Helper()
	sets, err := f.view.VersionSetsByApplication(f.t.Context(), org, []int64{application.ID}, core.Page{})
	f.ok(err)
	var lines []string
	for _, set := range sets[application.ID].Nodes {
		entries, err := f.view.EntriesByVersionSet(f.t.Context(), org, []int64{set.ID})
		f.ok(err)
		line := set.Name + ":"
		for _, e := range entries[set.ID] {
			versions, err := f.view.VersionsByID(f.t.Context(), org, []int64{e.VersionID})
			f.ok(err)
			line += " " + versions[e.VersionID].Name
		}
		lines = append(lines, line)
	}
	return lines
}

func TestVersionSetsFollowArtifacts(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	a := f.application("shop", "api", "web")
	at := time.Unix(1_700_000_000, 0)

	api := f.artifact("registry.test/shop/api:1.0", "1.0", 1, at)
	f.publish(api)
	if got := describeSets(f, a); len(got) != 0 {
		t.Fatalf("sets before every source has a version: %q", got)
	}
	web := f.artifact("registry.test/shop/web", "2.0", 2, at)
	f.publish(web, api, web, api) // and everything again
	if diff := cmp.Diff([]string{"set-1: 1.0 2.0"}, describeSets(f, a)); diff != "" {
		t.Fatalf("sets (-want +got):\n%s", diff)
	}
	late := f.artifact("registry.test/shop/api", "0.9", 3, at.Add(-time.Hour)) // older than the present one
	f.publish(late)
	newer := f.artifact("registry.test/shop/api", "1.1", 4, at.Add(time.Hour))
	f.publish(newer, late, api)
	if diff := cmp.Diff([]string{"set-2: 1.1 2.0", "set-1: 1.0 2.0"}, describeSets(f, a)); diff != "" {
		t.Errorf("sets (-want +got):\n%s", diff)
	}
}

func TestVersionNamesStayUnique(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.application("shop", "api")
	at := time.Unix(1_700_000_000, 0)
	for i, tag := range []string{"latest", "latest", "", "latest-" + strings.Repeat("0", 12)} {
		f.publish(f.artifact("registry.test/shop/api", tag, i+1, at.Add(time.Duration(i)*time.Minute)))
	}
	f.publish(f.artifact("registry.test/shop/api", "another-tag", 1, at)) // the same digest again
	sources, err := f.store.OrganizationsWithSources(t.Context(),
		[]string{"oci-image:registry.test/shop/api", "oci-image:registry.test/nobody"})
	f.ok(err)
	if diff := cmp.Diff(map[string][]int64{"oci-image:registry.test/shop/api": {org}}, sources); diff != "" {
		t.Fatalf("organizations (-want +got):\n%s", diff)
	}
	versions, err := f.view.VersionsBySource(t.Context(), org, []int64{1}, core.Page{})
	f.ok(err)
	var names []string
	for _, v := range versions[1].Nodes {
		names = append(names, v.Name)
	}
	zeros := strings.Repeat("0", 12)
	want := []string{"latest-" + zeros + "-" + zeros, zeros, "latest-" + zeros, "latest"}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("names, newest first (-want +got):\n%s", diff)
	}
}

func TestArtifactsReachEveryOwnerOfTheImage(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	mine := f.application("shop", "api")
	other := core.Actor{Organization: 2, Type: core.PrincipalUser, ID: 7, Permissions: core.RoleOwner.Permissions()}
	theirs, err := f.setup.CreateApplication(t.Context(), other, setup.NewApplication{Name: "shop", Services: []setup.NewService{{
		Name: "proxy", ArtifactSources: []setup.NewArtifactSource{ociSource("REGISTRY.test/shop/api:latest")},
	}}})
	f.ok(err)
	f.publish(f.artifact("registry.test/shop/api", "1", 1, time.Time{}))
	got, err := f.view.VersionSetsByApplication(t.Context(), 2, []int64{theirs.ID}, core.Page{})
	f.ok(err)
	if len(got[theirs.ID].Nodes) != 1 || len(describeSets(f, mine)) != 1 {
		t.Errorf("sets of the other organization: %v, of ours: %q; want one each", got, describeSets(f, mine))
	}
}

// TestASourceTakesOnlyItsOwnTags: two sources of one image, each with what it selects (R7, E61).
func TestASourceTakesOnlyItsOwnTags(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	a, err := f.setup.CreateApplication(t.Context(), user(), setup.NewApplication{Name: "shop", Services: []setup.NewService{
		{Name: "api", ArtifactSources: []setup.NewArtifactSource{{
			Ref:    source.OCIImage,
			Config: json.RawMessage(`{"image":"registry.test/shop/api","selection":"semver","range":"^1"}`),
		}}},
		{Name: "edge", ArtifactSources: []setup.NewArtifactSource{{
			Ref:    source.OCIImage,
			Config: json.RawMessage(`{"image":"registry.test/shop/api","selection":"mutable_tag","tag":"edge"}`),
		}}},
		{Name: "config", ArtifactSources: []setup.NewArtifactSource{{
			Ref:    source.Git,
			Config: json.RawMessage(`{"repository":"https://git.test/shop/config.git","branch":"main","paths":"deploy/**"}`),
		}}},
	}})
	f.ok(err)
	at := time.Unix(1_700_000_000, 0)
	for i, tag := range []string{"1.0.0", "edge", "2.0.0", "latest", ""} {
		f.publish(f.artifact("registry.test/shop/api", tag, i+1, at.Add(time.Duration(i)*time.Minute)))
	}
	repository, wrong := source.Parse(source.Git,
		json.RawMessage(`{"repository":"https://git.test/shop/config","branch":"main","paths":"deploy/**"}`))
	if wrong != nil {
		t.Fatal(wrong)
	}
	commit, err := event.New(event.Header{ID: t.Name(), Source: "/services/registry", Time: at}, event.ArtifactPublished{
		Image: repository.(*source.Repository).Artifact(), Digest: "9d8ecd27c1b5bd0b0c4b18ad0b2b5a8e2a2b6b5f",
	})
	f.ok(err)
	f.publish(commit)
	if diff := cmp.Diff([]string{"set-1: 1.0.0 edge 9d8ecd27c1b5"}, describeSets(f, a)); diff != "" {
		t.Errorf("sets (-want +got):\n%s", diff)
	}
}

func TestAnyOrderOfArtifactsEndsWithTheSameLatestSet(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	a := f.application("shop", "api", "web")
	at := time.Unix(1_700_000_000, 0)
	var all []event.Event
	for i := range 6 {
		all = append(all,
			f.artifact("registry.test/shop/api", string(rune('a'+i)), 100+i, at.Add(time.Duration(i)*time.Minute)),
			f.artifact("registry.test/shop/web", string(rune('A'+i)), 200+i, at.Add(time.Duration(i)*time.Minute)))
	}
	for range 3 {
		rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] }) //nolint:gosec // any order will do
		f.publish(all...)
	}
	sets := describeSets(f, a)
	found := 0
	for _, line := range sets {
		if strings.HasSuffix(line, ": f F") {
			found++
		}
	}
	if found != 1 {
		t.Errorf("the set of the latest versions appears %d times in %q, want once", found, sets)
	}
}

// TestArtifactsAnnouncedTogetherEndAsIfOneByOne: the intake works in memory what the tables would say in between (R48, E61).
func TestArtifactsAnnouncedTogetherEndAsIfOneByOne(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // the same events at every run
	single, together := newFixture(t), newFixture(t)
	var applications []core.Application
	for _, f := range []*fixture{single, together} {
		applications = []core.Application{f.application("shop", "api", "web"), f.application("blog", "api")}
		// Two sources of one application that point at one image, which another application has as well.
		twice, err := f.setup.CreateApplication(t.Context(), user(), setup.NewApplication{Name: "twice", Services: []setup.NewService{
			{Name: "a", ArtifactSources: []setup.NewArtifactSource{ociSource("registry.test/blog/api")}},
			{Name: "b", ArtifactSources: []setup.NewArtifactSource{ociSource("registry.test/blog/api")}},
		}})
		f.ok(err)
		applications = append(applications, twice)
	}
	at := time.Unix(1_700_000_000, 0)
	images := []string{"registry.test/shop/api", "registry.test/shop/web", "registry.test/blog/api", "registry.test/nobody"}
	var all []event.Event
	for range 60 {
		if len(all) > 0 && r.IntN(6) == 0 {
			all = append(all, all[r.IntN(len(all))]) // comes again
			continue
		}
		// Few tags, digests and instants, so that each comes with others.
		all = append(all, single.artifact(images[r.IntN(len(images))], []string{"", "latest", "1.0"}[r.IntN(3)], 1+r.IntN(12),
			at.Add(time.Duration(r.IntN(4))*time.Minute)))
	}
	single.publish(all...)
	for rest := all; len(rest) > 0; {
		n := min(len(rest), 1+r.IntN(25))
		for i, err := range together.receive(rest[:n]...) {
			if err != nil {
				t.Fatalf("event %d of %d: %v", i, n, err)
			}
		}
		rest = rest[n:]
	}
	for _, a := range applications {
		want, got := describeSets(single, a), describeSets(together, a)
		if diff := cmp.Diff(want, got); diff != "" || len(want) < 2 {
			t.Errorf("%s: %d sets (-one by one +together):\n%s", a.Name, len(want), diff)
		}
	}
}

// TestABadArtifactDoesNotHoldUpOthers that came with it.
func TestABadArtifactDoesNotHoldUpOthers(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	a := f.application("shop", "api")
	at := time.Unix(1_700_000_000, 0)
	errs := f.receive(
		f.artifact("registry.test/shop/api", "1", 1, at),
		f.artifact("http://registry.test/shop/api", "2", 2, at),
		f.artifact("registry.test/shop/api", "3", 3, at.Add(time.Minute)),
	)
	if len(errs) != 3 || errs[0] != nil || !fault.Is(errs[1], fault.Invalid) || errs[2] != nil {
		t.Errorf("answered %v, want nil, Invalid, nil", errs)
	}
	if diff := cmp.Diff([]string{"set-2: 3", "set-1: 1"}, describeSets(f, a)); diff != "" {
		t.Errorf("sets (-want +got):\n%s", diff)
	}
}

func TestBadArtifactsAreRejectedAndRecorded(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	bad := f.artifact("http://registry.test/shop/api", "1", 1, time.Time{})
	err := f.receive(bad)[0]
	if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "data.image") {
		t.Fatalf("error = %v, want Invalid about data.image", err)
	}
	f.on.Rejected(t.Context(), bus.Delivery{Event: bad}, err)
	var reason string
	f.ok(f.pool.QueryRow(t.Context(), `SELECT rejected_reason FROM inbox WHERE event_id = $1`, bad.ID()).Scan(&reason))
	if !strings.Contains(reason, "http://registry.test/shop/api") {
		t.Errorf("recorded reason = %q", reason)
	}
}
