package domain

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/intake"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/rollout"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/setup"
)

// atGate is a rollout that waits for the approval of its last environment, and what its run was given.
func (s *shop) atGate() (core.Rollout, string) {
	s.t.Helper()
	r := s.rollout(s.set)
	given := s.inputsOf("rollout-" + itoa(r.ID))
	s.report(event.RolloutStarted{RolloutID: r.ID})
	s.report(event.ApprovalRequested{RolloutID: r.ID, GateID: "production", EnvironmentID: s.production.ID})
	if _, open := s.gates(r)["production"]; !open {
		s.t.Fatalf("the gate is not open: %+v", s.gates(r))
	}
	return s.reload(r), given
}

// kept is what a rollout goes by: the pipeline, the version set, and the binding and the services of each environment.
type kept struct {
	Flow, Set int64
	Bindings  []int64
	Digests   []string
	Services  []string
	Entries   []core.VersionSetEntry
}

func (s *shop) keeps(r core.Rollout) kept {
	s.t.Helper()
	r = s.reload(r)
	k := kept{Flow: r.FlowDefinitionID, Set: r.VersionSetID, Services: s.deployed(r)}
	for _, stop := range s.stops(r) {
		k.Bindings, k.Digests = append(k.Bindings, stop.DriverBindingID), append(k.Digests, stop.DriverDigest)
	}
	entries, err := s.view.EntriesByVersionSet(s.t.Context(), org, []int64{k.Set})
	s.ok(err)
	k.Entries = entries[k.Set]
	return k
}

// continues approves the gate of a rollout and takes it to its end, which it reaches with all that it had.
func (s *shop) continues(r core.Rollout, before kept) {
	s.t.Helper()
	s.want(s.keeps(r), before)
	if _, open := s.gates(r)["production"]; !open {
		s.t.Errorf("the gate is not open any more: %+v", s.gates(r))
	}
	s.ok(s.approve(person(2), r, "production"))
	s.want(s.resolved(), []string{"production approved by user"})
	s.succeed(r)
	if got := s.reload(r); got.State != core.RolloutCompleted {
		s.t.Errorf("the rollout has ended as %s", got.State)
	}
	s.want(s.keeps(r), before)
	s.verifyJournal(r)
}

// D57: each edit that docs/how-to/change-what-exists.md lists, made while a rollout waits at a gate: the rollout keeps what it began
// with and continues to its end; what comes after it has the edit.
func TestEachEditLeavesARolloutUnderWayAsItIs(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		// before is done before the rollout begins, after looks at what comes after it; either may be nil.
		before, edit, after func(t *testing.T, s *shop)
	}{
		"a source is disabled": {
			edit: func(t *testing.T, s *shop) {
				t.Helper()
				_, err := s.setup.DisableArtifactSource(t.Context(), user(), s.sourceNamed(s.application, "web").ID, "broken tags")
				s.ok(err)
			},
			after: func(t *testing.T, s *shop) { t.Helper(); s.want(s.versionsOf(s.release(3)), []string{"1.3", "1.1"}) },
		},
		"a source is removed": {
			before: func(t *testing.T, s *shop) {
				t.Helper()
				_, err := s.setup.AddArtifactSource(t.Context(), user(), s.serviceNamed(s.application, "web").ID, ociSource("registry.test/shop/extra"))
				s.ok(err)
			},
			edit: func(t *testing.T, s *shop) {
				t.Helper()
				_, err := s.setup.RemoveArtifactSource(t.Context(), user(), s.sourceNamed(s.application, "web").ID, "merged")
				s.ok(err)
			},
		},
		"a source is replaced": {
			edit: func(t *testing.T, s *shop) {
				t.Helper()
				_, err := s.setup.ReplaceArtifactSource(
					t.Context(), user(), s.sourceNamed(s.application, "web").ID, ociSource("elsewhere.test/web"), "moved",
				)
				s.ok(err)
			},
			after: func(t *testing.T, s *shop) { t.Helper(); s.want(s.versionsOf(s.release(3)), []string{"1.3", "1.1"}) },
		},
		"a source selects otherwise": {
			edit: func(t *testing.T, s *shop) {
				t.Helper()
				_, err := s.setup.SetArtifactSourceConfig(t.Context(), user(), s.sourceNamed(s.application, "web").ID,
					json.RawMessage(`{"image":"registry.test/shop/web","ignore_tags":"^1[.]1$"}`))
				s.ok(err)
			},
		},
		"a pipeline is saved": {
			edit: func(t *testing.T, s *shop) {
				t.Helper()
				_, err := s.setup.CreateFlowDefinition(
					t.Context(), user(), setup.NewFlowDefinition{ApplicationID: s.application.ID, Definition: pipeline("staging")},
				)
				s.ok(err)
			},
			after: func(t *testing.T, s *shop) { t.Helper(); s.makeReady(); s.want(len(s.stops(s.rollout(s.set))), 1) },
		},
		"labels are set": {
			edit: func(t *testing.T, s *shop) {
				t.Helper()
				for _, of := range s.things() {
					s.ok(s.label(of, map[string]string{"team": "payments"}))
				}
			},
			after: func(t *testing.T, s *shop) {
				t.Helper()
				for _, of := range s.things() {
					s.want(s.detailsOf(of).Labels, map[string]string{"team": "payments"})
				}
			},
		},
		"an owner is set": {
			edit: func(t *testing.T, s *shop) {
				t.Helper()
				owner := "payments"
				for _, of := range s.things() {
					s.ok(s.setup.SetDetails(t.Context(), user(), setup.ChangedDetails{Of: of, Owner: &owner}))
				}
			},
			after: func(t *testing.T, s *shop) {
				t.Helper()
				for _, of := range s.things() {
					s.want(s.detailsOf(of).Owner, "payments")
				}
			},
		},
		"a version set is put together": {
			before: func(_ *testing.T, s *shop) { s.release(2) },
			edit: func(t *testing.T, s *shop) {
				t.Helper()
				_, err := s.intake.CreateVersionSet(t.Context(), user(), intake.NewCurated{
					Application: s.application.ID, From: s.set.ID, Name: "2.0", Choices: []intake.Choice{{Service: "web", Version: "1.2"}},
				})
				s.ok(err)
			},
		},
		"the application is renamed": {
			edit: func(t *testing.T, s *shop) { t.Helper(); s.ok(s.rename(user(), s.application.ID, "store")) },
			after: func(t *testing.T, s *shop) {
				t.Helper()
				r := s.rollout(s.set)
				if in := s.inputsOf("rollout-" + itoa(r.ID)); !strings.Contains(in, `"store"`) {
					t.Errorf("the next rollout is given %s; want the new name", in)
				}
			},
		},
		"a service is retired": {
			edit: func(t *testing.T, s *shop) {
				t.Helper()
				_, err := s.setup.RetireService(t.Context(), user(), s.serviceNamed(s.application, "web").ID, "merged")
				s.ok(err)
			},
			after: func(t *testing.T, s *shop) {
				t.Helper()
				s.makeReady()
				s.want(s.deployed(s.rollout(s.set)), []string{"api"})
			},
		},
		"another rollout is asked for": {
			edit: func(t *testing.T, s *shop) {
				t.Helper()
				_, err := s.rollouts.CreateRollout(t.Context(), user(), rollout.NewRollout{
					VersionSetID: s.set.ID, Again: true, Scope: rollout.Scope{Only: []string{"staging"}},
				})
				if !fault.Is(err, fault.Refused) {
					t.Errorf("found %v; want it refused", err)
				}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			if test.before != nil {
				test.before(t, s)
			}
			r, given := s.atGate()
			before := s.keeps(r)
			test.edit(t, s)
			if again := s.inputsOf("rollout-" + itoa(r.ID)); again != given {
				t.Errorf("the rollout under way is given %s; want %s", again, given)
			}
			s.continues(r, before)
			if test.after != nil {
				test.after(t, s)
			}
		})
	}
}

// things are what has labels and an owner.
func (s *shop) things() []core.Detailed {
	s.t.Helper()
	return []core.Detailed{
		{Kind: core.ChangedApplication, ID: s.application.ID},
		{Kind: core.ChangedEnvironment, ID: s.production.ID},
		{Kind: core.ChangedService, ID: s.serviceNamed(s.application, "api").ID},
	}
}

// versionsOf are the names of the versions of a set, in the order of its services.
func (s *shop) versionsOf(set core.VersionSet) (names []string) {
	s.t.Helper()
	entries, err := s.view.EntriesByVersionSet(s.t.Context(), org, []int64{set.ID})
	s.ok(err)
	for _, service := range []string{"api", "web"} {
		for _, e := range entries[set.ID] {
			if e.ServiceID != s.serviceNamed(s.application, service).ID {
				continue
			}
			versions, err := s.view.VersionsByID(s.t.Context(), org, []int64{e.VersionID})
			s.ok(err)
			names = append(names, versions[e.VersionID].Name)
		}
	}
	return names
}

// twoMajors is a shop whose driver has a second major version, with another schema, beside the first; and there is another driver.
func twoMajors(t *testing.T) *shop {
	t.Helper()
	dir := t.TempDir()
	for ref, files := range map[string]map[string][]byte{"paper": letter(t, "one", "v1", "v2"), "letter": letter(t, "one", "v1")} {
		for name, text := range files {
			text = bytes.Replace(text, []byte(`"letter"`), []byte(`"`+ref+`"`), 1)
			if name == "v2/environment.json" {
				text = bytes.ReplaceAll(text, []byte("drawer"), []byte("shelf"))
			}
			path := filepath.Join(dir, ref, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	return shopOf(setupWith(t, clock.System(), Config{DriverDir: dir}))
}

// D57: environments get another major version of their driver, or another driver, while a rollout waits at a gate. It keeps the
// bindings and the programs that it began with and continues to its end; no other one begins until everything is set up again, and then
// it has the new ones.
func TestAnEnvironmentGetsAnotherDriverWhileARolloutIsAtAGate(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ ref, config string }{
		"another major version": {"paper@2", `{"shelf":4}`}, "another driver": {"letter@1", `{"drawer":5}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := twoMajors(t)
			r, given := s.atGate()
			before := s.keeps(r)
			change := func(e core.Environment, config string) error {
				_, err := s.setup.UpdateEnvironment(t.Context(), user(), setup.ChangedEnvironment{
					ID: e.ID, DriverRef: &test.ref, DriverConfig: json.RawMessage(config), Reason: "another driver",
				})
				return err
			}
			if err := change(s.production, `{"cupboard":1}`); !fault.Is(err, fault.Invalid) {
				t.Errorf("a configuration of neither driver: %v", err)
			}
			for _, e := range []core.Environment{s.staging, s.production} {
				s.ok(change(e, test.config))
				if b := s.bindings(e); len(b) != 2 || b[0].Version != 2 || b[0].DriverRef != test.ref || b[1].DriverRef != paper {
					t.Errorf("%s: found bindings %+v", e.Name, b)
				}
			}
			for _, ae := range s.setups() {
				if ae.Readiness != core.ReadinessPending {
					t.Errorf("found setup %+v before the environment is onboarded", ae)
				}
			}
			if again := s.inputsOf("rollout-" + itoa(r.ID)); again != given {
				t.Errorf("the rollout under way is given %s; want %s", again, given)
			}
			s.continues(r, before)
			_, err := s.rollouts.CreateRollout(t.Context(), user(), rollout.NewRollout{VersionSetID: s.set.ID, Again: true})
			if !fault.Is(err, fault.Refused) {
				t.Errorf("a rollout before the environments are onboarded: %v", err)
			}
			s.makeReady()
			next := s.rollout(s.set)
			now := s.keeps(next)
			for i, e := range []core.Environment{s.staging, s.production} {
				if now.Bindings[i] != s.bindings(e)[0].ID || now.Digests[i] == before.Digests[i] {
					t.Errorf("%s: the next rollout has pinned %+v; want binding %d and another program", e.Name, now, s.bindings(e)[0].ID)
				}
			}
			if in := s.inputsOf("rollout-" + itoa(next.ID)); !strings.Contains(in, test.ref) || strings.Contains(in, paper) {
				t.Errorf("the next rollout is given %s; want %s", in, test.ref)
			}
		})
	}
}
