package domain

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/intake"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/rollout"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/setup"
)

// sourceNamed is the source of a service that was not removed.
func (f *fixture) sourceNamed(a core.Application, service string) core.ArtifactSource {
	f.t.Helper()
	sources, err := f.view.ArtifactSourcesByService(f.t.Context(), org, []int64{f.serviceNamed(a, service).ID})
	f.ok(err)
	for _, all := range sources {
		return all[0]
	}
	f.t.Fatalf("service %q has no source", service)
	return core.ArtifactSource{}
}

func (f *fixture) serviceNamed(a core.Application, name string) core.Service {
	f.t.Helper()
	services, err := f.view.ServicesByApplication(f.t.Context(), org, []int64{a.ID})
	f.ok(err)
	for _, s := range services[a.ID] {
		if s.Name == name {
			return s
		}
	}
	f.t.Fatalf("no service %q", name)
	return core.Service{}
}

// lacks are the sources that the next set goes without, as "service reason", with an exclamation mark where it waits for them.
func (f *fixture) lacks(a core.Application) string {
	f.t.Helper()
	found, err := f.view.Compositions(f.t.Context(), org, []int64{a.ID})
	f.ok(err)
	var all []string
	for _, m := range found[a.ID].Missing {
		services, err := f.view.ServicesByID(f.t.Context(), org, []int64{m.ServiceID})
		f.ok(err)
		line := services[m.ServiceID].Name + " " + string(m.Reason)
		if m.Blocks {
			line += "!"
		}
		all = append(all, line)
	}
	return strings.Join(all, ", ")
}

func (f *fixture) image(a core.Application, service string, digest, minute int) event.Event {
	f.t.Helper()
	return f.pushed("registry.test/"+a.Name+"/"+service, push{tag: fmt.Sprintf("1.%d", digest), digest: digest, minute: minute})
}

// D57: a source that never counted a version holds up the first set of its application, and says so, until it is disabled.
func TestAMisconfiguredSourceDoesNotHoldUpAnApplication(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	a := f.application("shop", "api", "web")
	f.publish(f.image(a, "api", 1, 1))
	f.rankAll()
	if got, lacks := f.newestOf(a), f.lacks(a); got != "none" || lacks != "web no_version_yet!" {
		t.Fatalf("newest %q, lacks %q; want none, waiting for web", got, lacks)
	}
	web := f.sourceNamed(a, "web")
	for range 2 { // it is idempotent
		_, err := f.setup.DisableArtifactSource(t.Context(), user(), web.ID, "typo")
		f.ok(err)
	}
	f.rankAll()
	if got, lacks := f.newestOf(a), f.lacks(a); got != "1" || lacks != "web disabled" {
		t.Errorf("after the source was disabled: newest %q, lacks %q", got, lacks)
	}
	f.publish(f.image(a, "web", 2, 2)) // nobody takes it
	if got := f.newestOf(a); got != "1" {
		t.Errorf("a disabled source has taken a version: %q", got)
	}
	_, err := f.setup.EnableArtifactSource(t.Context(), user(), web.ID, "")
	f.ok(err)
	f.rankAll()
	if got, lacks := f.newestOf(a), f.lacks(a); got != "1" || lacks != "web no_version_yet" {
		t.Errorf("enabled, in an application that has sets: newest %q, lacks %q", got, lacks)
	}
	f.publish(f.image(a, "web", 2, 2)) // the same event once more: it was claimed, and only adds what is missing
	if got, lacks := f.newestOf(a), f.lacks(a); got != "1 2" || lacks != "" {
		t.Errorf("after its first version: newest %q, lacks %q", got, lacks)
	}
	var n int
	f.ok(f.pool.QueryRow(t.Context(), `SELECT count(*) FROM cd_changes WHERE action = 'disableArtifactSource' AND reason = 'typo'`).Scan(&n))
	if n != 1 {
		t.Errorf("found %d records of disabling, want 1", n)
	}
}

// D57: sets keep the last version of a disabled source, also when events come twice and out of order.
func TestADisabledSourceKeepsItsLastVersion(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	a := f.application("shop", "api", "web")
	f.publish(f.image(a, "api", 1, 1), f.image(a, "web", 2, 1))
	web := f.sourceNamed(a, "web")
	_, err := f.setup.DisableArtifactSource(t.Context(), user(), web.ID, "")
	f.ok(err)
	late, again := f.image(a, "web", 3, 3), f.image(a, "web", 2, 1)
	f.publish(late, again, f.image(a, "api", 4, 4), late)
	f.rankAll()
	if got := f.newestOf(a); got != "4 2" {
		t.Errorf("newest %q, want the last version of web with the new one of api", got)
	}
	_, err = f.setup.LookAtArtifactSource(t.Context(), user(), web.ID)
	if !fault.Is(err, fault.Refused) || !strings.Contains(err.Error(), "is disabled") {
		t.Errorf("a poll of a disabled source: %v", err)
	}
	pulled, err := f.setup.SourcesAfter(t.Context(), 0, 10)
	f.ok(err)
	if len(pulled) != 1 || pulled[0].ID == web.ID {
		t.Errorf("the registry service pulls %+v, want the source of api alone", pulled)
	}
	_, err = f.setup.EnableArtifactSource(t.Context(), user(), web.ID, "")
	f.ok(err)
	f.publish(late) // redelivered
	f.rankAll()
	if got := f.newestOf(a); got != "4 3" {
		t.Errorf("newest after it was enabled: %q", got)
	}
}

// D57: what is removed is in no new set, and its sets and versions stay.
func TestARemovedSourceIsInNoNewSet(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	a := f.application("shop", "api")
	only := f.sourceNamed(a, "api")
	_, err := f.setup.RemoveArtifactSource(t.Context(), user(), only.ID, "")
	if !fault.Is(err, fault.Refused) || !strings.Contains(err.Error(), "only source") {
		t.Fatalf("removing the only source: %v", err)
	}
	f.publish(f.image(a, "api", 1, 1))
	extra, err := f.setup.AddArtifactSource(t.Context(), user(), only.ServiceID, ociSource("registry.test/shop/extra"))
	f.ok(err)
	f.publish(f.image(a, "api", 2, 2)) // not held up by the source that was added
	if got := f.newestOf(a); got != "2" {
		t.Fatalf("newest beside a source without a version: %q", got)
	}
	f.publish(f.pushed("registry.test/shop/extra", push{tag: "x", digest: 9, minute: 3}))
	if got := f.newestOf(a); got != "2 9" {
		t.Fatalf("newest with both: %q", got)
	}
	for range 2 {
		_, err = f.setup.RemoveArtifactSource(t.Context(), user(), extra.ID, "moved")
		f.ok(err)
	}
	f.rankAll()
	if got := f.newestOf(a); got != "2" {
		t.Errorf("newest after it was removed: %q", got)
	}
	f.publish(f.pushed("registry.test/shop/extra", push{tag: "y", digest: 10, minute: 4}), f.image(a, "api", 3, 5))
	if got := f.newestOf(a); got != "3" {
		t.Errorf("a removed source is in %q", got)
	}
	for what, change := range map[string]func() error{
		"enable": func() error { _, err := f.setup.EnableArtifactSource(t.Context(), user(), extra.ID, ""); return err },
		"configure": func() error {
			_, err := f.setup.SetArtifactSourceConfig(t.Context(), user(), extra.ID, ociSource("registry.test/shop/extra").Config)
			return err
		},
		"poll": func() error { _, err := f.setup.LookAtArtifactSource(t.Context(), user(), extra.ID); return err },
	} {
		if err := change(); !fault.Is(err, fault.Refused) || !strings.Contains(err.Error(), "was removed") {
			t.Errorf("%s a removed source: %v", what, err)
		}
	}
	// The same artifacts may have a source again, which is another one.
	_, err = f.setup.AddArtifactSource(t.Context(), user(), only.ServiceID, ociSource("registry.test/shop/extra"))
	f.ok(err)
	// Of another organization it does not exist.
	stranger := user()
	stranger.Organization = 2
	if _, err := f.setup.DisableArtifactSource(t.Context(), stranger, only.ID, ""); !fault.Is(err, fault.NotFound) {
		t.Errorf("a stranger: %v", err)
	}
	_, err = f.setup.DisableArtifactSource(t.Context(), user(), only.ID, strings.Repeat("x", core.MaxReason+1))
	if !fault.Is(err, fault.Invalid) {
		t.Errorf("an endless reason: %v", err)
	}
}

// D57: another repository takes the place of a source when it has a version.
func TestASourceIsReplaced(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	a := f.application("shop", "api", "web")
	f.publish(f.image(a, "api", 1, 1), f.image(a, "web", 2, 1))
	old := f.sourceNamed(a, "web")
	_, err := f.setup.ReplaceArtifactSource(t.Context(), user(), old.ID, ociSource("registry.test/shop/web"), "")
	if !fault.Is(err, fault.Invalid) {
		t.Fatalf("by the same artifacts: %v", err)
	}
	middle, err := f.setup.ReplaceArtifactSource(t.Context(), user(), old.ID, ociSource("elsewhere.test/web"), "moved")
	f.ok(err)
	_, err = f.setup.ReplaceArtifactSource(t.Context(), user(), old.ID, ociSource("third.test/web"), "")
	if !fault.Is(err, fault.Refused) {
		t.Errorf("a removed source was replaced: %v", err)
	}
	// Once more before the second one has a version.
	_, err = f.setup.ReplaceArtifactSource(t.Context(), user(), middle.ID, ociSource("third.test/web"), "moved again")
	f.ok(err)
	f.rankAll()
	f.publish(f.image(a, "web", 3, 2), f.image(a, "api", 4, 4)) // the old repository counts no longer
	if got := f.newestOf(a); got != "4 2" && got != "2 4" {
		t.Errorf("newest before the new one has a version: %q", got)
	}
	f.publish(f.pushed("third.test/web", push{tag: "2", digest: 5, minute: 0}))
	if got := f.newestOf(a); got != "4 5" {
		t.Errorf("newest with its first version: %q", got)
	}
}

// D57: a service is added to an application, which goes without it until it has a version; rollouts under way are not touched.
func TestAServiceIsAddedAndRetired(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	under := s.rollout(s.set)
	worker, err := s.setup.AddService(t.Context(), user(), s.application.ID, setup.NewService{
		Name: "worker", ArtifactSources: []setup.NewArtifactSource{ociSource("registry.test/shop/worker")},
	}, "split off")
	s.ok(err)
	places, err := s.view.ApplicationEnvironmentsByApplication(t.Context(), org, []int64{s.application.ID})
	s.ok(err)
	for _, ae := range places[s.application.ID] {
		if ae.Readiness != core.ReadinessReady || ae.SetupAttempt != 2 {
			t.Errorf("environment %d is %s after setup %d, want it ready while it is set up again", ae.EnvironmentID, ae.Readiness, ae.SetupAttempt)
		}
	}
	s.succeed(under) // with what it has pinned
	if got := s.reload(under).State; got != core.RolloutCompleted {
		t.Fatalf("the rollout under way: %s", got)
	}
	s.makeReadyAgain()
	s.release(2)
	if got, lacks := s.newestOf(s.application), s.lacks(s.application); got != "14 15" || lacks != "worker no_version_yet" {
		t.Errorf("newest %q, lacks %q", got, lacks)
	}
	s.publish(s.artifact("registry.test/shop/worker", "1.0", 77, time.Unix(1_700_000_100, 0)))
	with := s.sets()[0]
	if got := s.newestOf(s.application); got != "14 15 4d" {
		t.Fatalf("newest with it: %q", got)
	}
	next := s.rollout(with)
	s.want(s.deployed(next), []string{"api", "web", "worker"})

	for range 2 {
		_, err = s.setup.RetireService(t.Context(), user(), worker.ID, "merged")
		s.ok(err)
	}
	s.succeed(next)
	if got := s.reload(next).State; got != core.RolloutCompleted {
		t.Errorf("the rollout that deploys a service which was retired meanwhile: %s", got)
	}
	s.rankAll()
	if got := s.newestOf(s.application); got != "14 15" {
		t.Errorf("newest without it: %q", got)
	}
	s.publish(s.artifact("registry.test/shop/worker", "1.1", 78, time.Unix(1_700_000_200, 0)))
	if got := s.newestOf(s.application); got != "14 15" {
		t.Errorf("a retired service is in %q", got)
	}
	s.want(s.deployed(s.rollout(with)), []string{"api", "web"}) // also where the set has it
	_, err = s.setup.RestoreService(t.Context(), user(), worker.ID, "")
	s.ok(err)
	s.rankAll()
	if got := s.newestOf(s.application); got != "14 15 4d" {
		t.Errorf("newest with it again: %q", got)
	}
}

// makeReadyAgain reports that what was set up again is ready.
func (s *shop) makeReadyAgain() {
	s.t.Helper()
	known, err := s.view.ApplicationEnvironmentsByApplication(s.t.Context(), org, []int64{s.application.ID})
	s.ok(err)
	for _, ae := range known[s.application.ID] {
		s.report(event.ApplicationEnvironmentReady{ApplicationEnvironmentID: ae.ID, RolloutName: "api", RolloutNamespace: "shop"})
	}
}

// deployed are the services that a rollout deploys in its first environment.
func (s *shop) deployed(r core.Rollout) []string {
	s.t.Helper()
	var names []string
	for _, d := range s.deployments(s.stops(r)[0]) {
		services, err := s.view.ServicesByID(s.t.Context(), org, []int64{d.ServiceID})
		s.ok(err)
		names = append(names, services[d.ServiceID].Name)
	}
	return names
}

// D57: what cannot be added or retired is refused, with the reason.
func TestServicesThatCannotBeAddedOrRetired(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	a := f.application("shop", "api")
	add := func(n setup.NewService) error {
		_, err := f.setup.AddService(t.Context(), user(), a.ID, n, "")
		return err
	}
	one := []setup.NewArtifactSource{ociSource("registry.test/x")}
	if err := add(setup.NewService{Name: "api", ArtifactSources: one}); !fault.Is(err, fault.Conflict) {
		t.Errorf("a name that is taken: %v", err)
	}
	if err := add(setup.NewService{Name: "../x", ArtifactSources: one}); !fault.Is(err, fault.Invalid) {
		t.Errorf("a hostile name: %v", err)
	}
	if err := add(setup.NewService{Name: "web"}); !fault.Is(err, fault.Invalid) {
		t.Errorf("without a source: %v", err)
	}
	_, err := f.setup.RetireService(t.Context(), user(), f.serviceNamed(a, "api").ID, "")
	if !fault.Is(err, fault.Refused) || !strings.Contains(err.Error(), "archive the application") {
		t.Errorf("the only service: %v", err)
	}
	viewer := user()
	viewer.Permissions = core.RoleDeployer.Permissions()
	if _, err := f.setup.RetireService(t.Context(), viewer, f.serviceNamed(a, "api").ID, ""); !fault.Is(err, fault.Denied) {
		t.Errorf("by a deployer: %v", err)
	}
	if err := add(setup.NewService{Name: "web", ArtifactSources: one}); err != nil {
		t.Error(err)
	}
	_, err = f.setup.RetireService(t.Context(), user(), f.serviceNamed(a, "api").ID, "")
	f.ok(err)
	err = add(setup.NewService{Name: "api", ArtifactSources: one})
	if !fault.Is(err, fault.Conflict) || !strings.Contains(err.Error(), "retired") {
		t.Errorf("the name of a retired service: %v", err)
	}
}

// D57: a service that is retired where nothing else changes begins nothing, and a set that a source was holding up is decided about.
func TestARetiredServiceBeginsNoRollout(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	signals := func() (n int) {
		s.ok(s.pool.QueryRow(t.Context(), `SELECT count(*) FROM cd_trigger_signals`).Scan(&n))
		return n
	}
	_, err := s.pool.Exec(t.Context(), `INSERT INTO cd_triggers (organization_id, application_id, name, kind, config, enabled,
		principal_type, principal_id, principal_name, changed_at)
		VALUES (1, $1, 'sets', 'version', '{}', true, 'user', 1, 'ann', now())`, s.application.ID)
	s.ok(err)
	_, err = s.setup.RetireService(t.Context(), user(), s.serviceNamed(s.application, "web").ID, "")
	s.ok(err)
	s.rankAll()
	if got, n := s.newestOf(s.application), signals(); got != "a" || n != 0 {
		t.Errorf("newest %q with %d signals, want a set without web that triggers nothing", got, n)
	}
	s.publish(s.artifact("registry.test/shop/api", "9", 99, time.Unix(1_700_000_900, 0)))
	if n := signals(); n != 1 {
		t.Errorf("found %d signals for a new version, want 1", n)
	}
}

// D57: a person puts a set together of recorded versions.
func TestACuratedVersionSet(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	first := s.set
	second := s.release(2)
	other := s.application2()
	curate := func(n intake.NewCurated) (core.VersionSet, error) {
		if n.Application == 0 {
			n.Application = s.application.ID
		}
		return s.intake.CreateVersionSet(t.Context(), user(), n)
	}
	made, err := curate(intake.NewCurated{
		From: first.ID, Name: "2.0", Reason: "hotfix", Choices: []intake.Choice{{Service: "web", Version: "1.2"}},
	})
	s.ok(err)
	entries, err := s.view.EntriesByVersionSet(t.Context(), org, []int64{made.ID})
	s.ok(err)
	var versions []string
	for _, e := range entries[made.ID] {
		known, err := s.view.VersionsByID(t.Context(), org, []int64{e.VersionID})
		s.ok(err)
		versions = append(versions, known[e.VersionID].Name)
	}
	s.want(versions, []string{"1.1", "1.2"})
	if got := s.newestOf(s.application); got != "14 15" {
		t.Errorf("a curated set is the newest: %q", got)
	}
	s.ok(func() error {
		_, err := s.rollouts.CreateRollout(t.Context(), user(), rollout.NewRollout{VersionSetID: made.ID, Reason: "x"})
		return err
	}())
	// Of the same versions: the same set, with another name.
	same, err := curate(intake.NewCurated{From: second.ID, Name: "stable"})
	s.ok(err)
	curated, err := s.view.CuratedVersionSets(t.Context(), org, []int64{made.ID, second.ID})
	s.ok(err)
	mine := curated[made.ID][0]
	if same.ID != second.ID || len(curated[second.ID]) != 1 || mine.Reason != "hotfix" || mine.FromSetID != first.ID {
		t.Errorf("found %+v, and %+v", same, curated)
	}
	refused := []struct {
		name, problem string
		class         fault.Class
		n             intake.NewCurated
	}{
		{"a name that is taken", "is called", fault.Conflict, intake.NewCurated{From: first.ID, Name: "2.0"}},
		{"the beginning of sets' own names", "own name", fault.Invalid, intake.NewCurated{From: first.ID, Name: "set-9"}},
		{"a hostile name", "expected 1 to 63", fault.Invalid, intake.NewCurated{From: first.ID, Name: "a\nb"}},
		{"nothing", "found none", fault.Invalid, intake.NewCurated{}},
		{"a service that is missing", `no version of service "web"`, fault.Invalid, intake.NewCurated{
			Choices: []intake.Choice{{Service: "api", Version: "1.1"}},
		}},
		{"an unknown service", "does not have", fault.Invalid, intake.NewCurated{
			From: first.ID, Choices: []intake.Choice{{Service: "nobody", Version: "1.1"}},
		}},
		{"an unknown version", "expected a recorded version", fault.Invalid, intake.NewCurated{
			From: first.ID, Choices: []intake.Choice{{Service: "api", Version: "9"}},
		}},
		{"a version of another service", "expected a recorded version", fault.Invalid, intake.NewCurated{
			From: first.ID, Choices: []intake.Choice{{Service: "api", VersionID: entries[made.ID][1].VersionID}},
		}},
		{"a version of another application", "expected a recorded version", fault.Invalid, intake.NewCurated{
			From: first.ID, Choices: []intake.Choice{{Service: "api", VersionID: other.version}},
		}},
		{"a set of another application", "no version set", fault.Invalid, intake.NewCurated{From: other.set}},
		{"a service twice", "second version", fault.Invalid, intake.NewCurated{
			From: first.ID, Choices: []intake.Choice{{Service: "api", Version: "1.1"}, {Service: "api", Version: "1.2"}},
		}},
	}
	before := len(s.sets())
	for _, tt := range refused {
		if _, err := curate(tt.n); !fault.Is(err, tt.class) || !strings.Contains(problems(err), tt.problem) {
			t.Errorf("%s: %v (%s)", tt.name, err, problems(err))
		}
	}
	if n := len(s.sets()); n != before {
		t.Errorf("refused requests have made %d sets", n-before)
	}
	viewer := user()
	viewer.Permissions = core.RoleViewer.Permissions()
	_, err = s.intake.CreateVersionSet(t.Context(), viewer, intake.NewCurated{Application: s.application.ID, From: first.ID})
	if !fault.Is(err, fault.Denied) {
		t.Errorf("by a viewer: %v", err)
	}
	// What is published continues beside it, and sets keep their numbers.
	s.release(3)
	if got := s.newestOf(s.application); got != "1e 1f" {
		t.Errorf("newest after it: %q", got)
	}
	_, err = s.setup.RetireService(t.Context(), user(), s.serviceNamed(s.application, "web").ID, "")
	s.ok(err)
	_, err = curate(intake.NewCurated{From: first.ID, Choices: []intake.Choice{{Service: "web", Version: "1.2"}}})
	if !fault.Is(err, fault.Invalid) || !strings.Contains(problems(err), "is retired") {
		t.Errorf("a version of a retired service: %v", err)
	}
	without, err := curate(intake.NewCurated{From: first.ID})
	s.ok(err)
	if entries, err = s.view.EntriesByVersionSet(t.Context(), org, []int64{without.ID}); err != nil || len(entries[without.ID]) != 1 {
		t.Errorf("begun with a set that has a retired service: %+v, %v", entries, err)
	}
}

// D57: a set that a person has put together is no first set and has no place in the order of sets, and putting it together is idempotent.
func TestACuratedSetIsNeitherOlderNorNewer(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	a := f.application("shop", "api", "web")
	f.publish(f.image(a, "api", 1, 1))
	curate := func(reason string) core.VersionSet {
		made, err := f.intake.CreateVersionSet(t.Context(), user(), intake.NewCurated{
			Application: a.ID, Reason: reason, Choices: []intake.Choice{{Service: "api", Version: "1.1"}},
		})
		f.ok(err)
		return made
	}
	made := curate("early")
	for range 3 {
		if again := curate("early"); again.ID != made.ID {
			t.Errorf("once more it is set %d, want %d", again.ID, made.ID)
		}
	}
	curate("for another reason")
	curated, err := f.view.CuratedVersionSets(t.Context(), org, []int64{made.ID})
	f.ok(err)
	if n := len(curated[made.ID]); n != 2 {
		t.Errorf("found %d rows, want one for each reason", n)
	}
	f.rankAll()
	if got, lacks := f.newestOf(a), f.lacks(a); got != "none" || lacks != "web no_version_yet!" {
		t.Errorf("newest %q, lacks %q; want none: a curated set is no first set", got, lacks)
	}
	if !made.Curated {
		t.Errorf("found %+v, want it curated", made)
	}
	for _, c := range []struct {
		a, b core.VersionSet
		want bool
	}{
		{core.VersionSet{ID: 1}, core.VersionSet{ID: 2}, true},
		{core.VersionSet{ID: 2}, core.VersionSet{ID: 1}, false},
		{core.VersionSet{ID: 1}, core.VersionSet{ID: 2, Curated: true}, false},
		{core.VersionSet{ID: 1, Curated: true}, core.VersionSet{ID: 2}, false},
	} {
		if got := c.a.OlderThan(c.b); got != c.want {
			t.Errorf("%+v older than %+v: %t", c.a, c.b, got)
		}
	}
}

// problems are an error and everything that it finds.
func problems(err error) string {
	all := fmt.Sprint(err)
	for _, f := range fault.FieldsOf(err) {
		all += "; " + f.Name + " " + f.Problem
	}
	return all
}

// foreign is a version and a set of another application.
type foreign struct{ version, set int64 }

func (s *shop) application2() foreign {
	s.t.Helper()
	blog := s.application3("blog")
	var f foreign
	s.ok(s.pool.QueryRow(s.t.Context(), `SELECT e.version_id, e.version_set_id FROM cd_version_set_entries e
		JOIN cd_version_sets v ON v.id = e.version_set_id WHERE v.application_id = $1`, blog.ID).Scan(&f.version, &f.set))
	return f
}

func (s *shop) application3(name string) core.Application {
	s.t.Helper()
	a := s.fixture.application(name, "api")
	s.publish(s.image(a, "api", 500, 1))
	return a
}

// TestCompose is the rule of what a version set consists of, by itself (D57).
func TestCompose(t *testing.T) {
	t.Parallel()
	source := func(id, newest int64, change func(*core.SourceInSet)) core.SourceInSet {
		s := core.SourceInSet{ServiceID: id, SourceID: id, Newest: newest, HasVersions: newest != 0}
		if change != nil {
			change(&s)
		}
		return s
	}
	disabled := func(s *core.SourceInSet) { s.Disabled = true }
	counted := func(s *core.SourceInSet) { s.HasVersions = true }
	disabledSince := func(s *core.SourceInSet) { s.HasVersions, s.Disabled = true, true }
	replaced := func(by int64) func(*core.SourceInSet) {
		return func(s *core.SourceInSet) { s.Removed, s.ReplacedBy = true, by }
	}
	tests := []struct {
		name    string
		sources []core.SourceInSet
		hasSets bool
		want    string
	}{
		{"all have one", []core.SourceInSet{source(1, 11, nil), source(2, 12, nil)}, false, "11 12 whole"},
		{"the first set waits", []core.SourceInSet{source(1, 11, nil), source(2, 0, nil)}, false, "11"},
		{"later ones do not", []core.SourceInSet{source(1, 11, nil), source(2, 0, nil)}, true, "11 whole"},
		{"one whose versions do not count", []core.SourceInSet{source(1, 11, nil), source(2, 0, counted)}, true, "11"},
		{"unless it is disabled", []core.SourceInSet{source(1, 11, nil), source(2, 0, disabledSince)}, true, "11 whole"},
		{"a disabled one keeps its last", []core.SourceInSet{source(1, 11, disabled)}, false, "11 whole"},
		{"nothing is no set", []core.SourceInSet{source(1, 0, disabled)}, true, ""},
		{
			"a chain of replacements",
			[]core.SourceInSet{source(1, 11, replaced(2)), source(2, 0, replaced(3)), source(3, 0, nil)},
			false,
			"11 whole",
		},
		{
			"whose last has one",
			[]core.SourceInSet{source(1, 11, replaced(2)), source(2, 12, replaced(3)), source(3, 13, nil)},
			false,
			"13 whole",
		},
		{"replaced by one that was removed", []core.SourceInSet{source(1, 11, replaced(2)), source(3, 13, nil)}, false, "13 whole"},
	}
	for _, tt := range tests {
		c := core.Compose(tt.sources, tt.hasSets)
		var got []string
		for _, e := range c.Entries {
			got = append(got, fmt.Sprint(e.VersionID))
		}
		if c.Whole() {
			got = append(got, "whole")
		}
		if diff := cmp.Diff(tt.want, strings.Join(got, " ")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}
