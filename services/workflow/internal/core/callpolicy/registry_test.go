package callpolicy

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/clock/clocktest"
	"github.com/lockstep-cd/lockstep/pkg/policy"
)

// stored is a store in memory.
type stored []Set

func (s stored) PolicyVersions(context.Context) (all []Version, err error) {
	for _, one := range s {
		all = append(all, Version{one.Organization, one.Name, one.Version, one.Labels != nil})
	}
	return all, nil
}

func (s stored) PolicySets(context.Context, []int64) ([]Set, error) { return s, nil }

func (stored) Origin(_ context.Context, _ int64, workflow string) (string, []byte, error) {
	return workflow, []byte(`{"rollout": {"application": {"id": 3, "name": "shop"}, "application_labels": {"tier": "critical", "team": "web"}, "environments": [{"id": 5, "name": "prod", "tier": "production"}]}}`), nil
}

const forbids = `@id("base") permit (principal, action == Action::"function.call", resource);
@id("no") forbid (principal, action == Action::"function.call", resource);`

// A set concerns its scope: the organization, an application, or the rollouts that go to an environment. One in dry run, and one that is
// off, denies nothing; a mode that is not known here denies.
func TestASetConcernsItsScope(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		set  Set
		run  string
		want policy.Verdict
	}{
		{"the organization's", Set{}, "nightly", policy.Deny},
		{"the application's", Set{Application: 3}, "rollout-1", policy.Deny},
		{"another application's", Set{Application: 4}, "rollout-1", policy.Allow},
		{"an application's, and a run of none", Set{Application: 3}, "nightly", policy.Allow},
		{"the environment's", Set{Environment: 5}, "rollout-1", policy.Deny},
		{"another environment's", Set{Environment: 6}, "rollout-1", policy.Allow},
		{"that of its group", Set{Labels: map[string]string{"tier": "critical"}}, "rollout-1", policy.Deny},
		{"that of a group that it is not in", Set{Labels: map[string]string{"tier": "critical", "team": "shop"}}, "rollout-1", policy.Allow},
		{"a group's, and a run of no application", Set{Labels: map[string]string{"tier": "critical"}}, "nightly", policy.Allow},
		{"in dry run", Set{Mode: "dry_run"}, "nightly", policy.Allow},
		{"off", Set{Mode: "off"}, "nightly", policy.Allow},
		{"in a mode of a later release", Set{Mode: "shadow"}, "nightly", policy.Deny},
		{"in a zone that is not known", Set{TimeZone: "Mars/Olympus"}, "nightly", policy.Deny},
	} {
		s := tt.set
		s.Organization, s.Name, s.Version, s.Text = 1, "calls", 1, forbids
		if s.Mode == "" {
			s.Mode = "enforce"
		}
		if s.TimeZone == "" {
			s.TimeZone = "UTC"
		}
		r := NewRegistry(stored{s}, clock.System(), slog.New(slog.DiscardHandler))
		run, err := r.Find(t.Context(), 1, tt.run)
		if err != nil {
			t.Fatal(err)
		}
		d, _, err := r.Decide(t.Context(), run, "act", nil, nil)
		if err != nil || d.Verdict != tt.want {
			t.Errorf("%s: %s %v: %s", tt.name, d.Verdict, err, d.Sentence())
		}
	}
}

// Before the first read nothing is known, so every organization is concerned; afterwards only one that has policies.
func TestOrganizationsWithoutPoliciesAreNotAsked(t *testing.T) {
	t.Parallel()
	r := NewRegistry(stored{{Organization: 1, Name: "calls", Version: 1, Mode: "enforce", TimeZone: "UTC", Text: forbids}}, clock.System(),
		slog.New(slog.DiscardHandler))
	if !r.Concerned(1) || !r.Concerned(2) {
		t.Error("an organization is not concerned although nothing is known")
	}
	if err := r.Read(t.Context()); err != nil || !r.Concerned(1) || r.Concerned(2) {
		t.Errorf("after the first read: %t %t %v", r.Concerned(1), r.Concerned(2), err)
	}
}

// An organization has few calls sampled, whatever its programs do, and its neighbour as many.
func TestEachOrganizationHasFewCallsSampled(t *testing.T) {
	t.Parallel()
	wall := clocktest.New(time.Date(2026, 11, 29, 10, 0, 0, 0, time.UTC))
	r := NewRegistry(stored{}, wall, slog.New(slog.DiscardHandler))
	taken := func(organization int64) (n int) {
		for range 1000 {
			if r.Sample(organization) {
				n++
			}
		}
		return n
	}
	if n := taken(1); n != 0 {
		t.Errorf("found %d calls sampled; expected none until it is asked for", n)
	}
	r.SampleCalls(10)
	for i, want := range []int{sampledAtOnce, 0, 10, 10} {
		if i > 1 {
			wall.Advance(time.Hour)
		}
		if n := taken(1); n != want {
			t.Errorf("step %d: found %d calls sampled; expected %d", i, n, want)
		}
	}
	if n := taken(2); n != sampledAtOnce {
		t.Errorf("found %d calls of the neighbour sampled; expected %d", n, sampledAtOnce)
	}
	if r.SampleCalls(0); taken(3) != 0 {
		t.Error("calls are sampled although that is switched off")
	}
}

// What was decided before a set was changed is not remembered after that, and a decision is remembered for its run's principal only.
func TestARememberedDecisionIsOfTheLatestPolicies(t *testing.T) {
	t.Parallel()
	set := Set{Organization: 1, Name: "calls", Version: 1, Mode: "enforce", TimeZone: "UTC", Text: `@id("all") permit (principal, action == Action::"function.call", resource);`}
	kept := stored{set}
	r := NewRegistry(kept, clock.System(), slog.New(slog.DiscardHandler))
	run, err := r.Find(t.Context(), 1, "nightly")
	if err != nil {
		t.Fatal(err)
	}
	decide := func() policy.Verdict {
		d, asked, err := r.Decide(t.Context(), run, "act", []byte(`{"n": 1, "token": "abc"}`), nil)
		if err != nil || strings.Contains(string(asked.Call().Arguments), "abc") {
			t.Fatalf("%v, asked %s", err, asked.Call().Arguments)
		}
		return d.Verdict
	}
	for range 3 {
		if v := decide(); v != policy.Allow {
			t.Fatalf("found %s; expected allow", v)
		}
	}
	set.Version, set.Text = 2, forbids
	kept[0] = set
	if err := r.Read(t.Context()); err != nil {
		t.Fatal(err)
	}
	if v := decide(); v != policy.Deny {
		t.Errorf("found %s after the set was changed; expected deny", v)
	}
}

// BenchmarkConcerned is what a call costs in an organization without policies about calls.
func BenchmarkConcerned(b *testing.B) {
	r := NewRegistry(stored{{Organization: 1, Name: "calls", Version: 1, Mode: "enforce", TimeZone: "UTC", Text: forbids}}, clock.System(),
		slog.New(slog.DiscardHandler))
	if err := r.Read(b.Context()); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if r.Concerned(2) {
			b.Fatal("concerned")
		}
	}
}

// D51: sets of the installation decide in every organization, also in one that has none of its own and of which nothing was reported, and
// no set of an organization makes them weaker. One that cannot be read denies.
func TestSetsOfTheInstallationAreInherited(t *testing.T) {
	t.Parallel()
	permits := Set{
		Organization: 1, Name: "calls", Version: 1, Mode: "enforce", TimeZone: "UTC",
		Text: `@id("base") permit (principal, action == Action::"function.call", resource);`,
	}
	base := Set{Name: "installation.base", Mode: "enforce", TimeZone: "UTC", Text: forbids}
	for _, tt := range []struct {
		name   string
		change func(*Set)
		want   policy.Verdict
	}{
		{"enforced", func(*Set) {}, policy.Deny},
		{"tried out", func(s *Set) { s.Mode = "dry_run" }, policy.Allow},
		{"off", func(s *Set) { s.Mode = "off" }, policy.Allow},
		{"not readable", func(s *Set) { s.Text = "permit (" }, policy.Deny},
	} {
		set := base
		tt.change(&set)
		r := NewRegistry(stored{permits}, clock.System(), slog.New(slog.DiscardHandler), set)
		if err := r.Read(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, organization := range []int64{1, 2} { // the second one has reported nothing
			run, err := r.Find(t.Context(), organization, "nightly")
			if err != nil {
				t.Fatal(err)
			}
			d, _, err := r.Decide(t.Context(), run, "act", nil, nil)
			if err != nil || d.Verdict != tt.want {
				t.Errorf("%s, organization %d: %s %v: %s; want %s", tt.name, organization, d.Verdict, err, d.Sentence(), tt.want)
			}
			if concerned := r.Concerned(organization); tt.want == policy.Deny && !concerned {
				t.Errorf("%s: organization %d is not concerned", tt.name, organization)
			}
		}
	}
}

// D51: runs of one application that were created before and after it got a label are decided by their own labels, on one registry.
func TestRunsOfOneApplicationHaveTheirOwnLabels(t *testing.T) {
	t.Parallel()
	r := NewRegistry(stored{{
		Organization: 1, Name: "critical", Version: 1, Mode: "enforce", TimeZone: "UTC", Text: forbids, Labels: map[string]string{"tier": "critical"},
	}}, clock.System(), slog.New(slog.DiscardHandler))
	for _, tt := range []struct {
		labels map[string]string
		want   policy.Verdict
	}{
		{nil, policy.Allow},
		{map[string]string{"tier": "critical"}, policy.Deny},
		{map[string]string{"tier": "low"}, policy.Allow},
		{map[string]string{"tier": "critical", "team": "web"}, policy.Deny},
	} {
		run := Run{Organization: 1, Workflow: "rollout-1", Application: 3, Name: "shop", Labels: tt.labels}.ready()
		d, _, err := r.Decide(t.Context(), run, "act", nil, nil)
		if err != nil || d.Verdict != tt.want {
			t.Errorf("%v: found %s %v: %s; want %s", tt.labels, d.Verdict, err, d.Sentence(), tt.want)
		}
	}
}
