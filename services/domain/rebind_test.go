package domain

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/rollout"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/setup"
)

// rebound changes the configuration of an environment.
func (f *fixture) rebound(e core.Environment, config string) error {
	_, err := f.setup.UpdateEnvironment(f.t.Context(), user(), setup.ChangedEnvironment{
		ID: e.ID, DriverConfig: json.RawMessage(config), Reason: "another drawer",
	})
	return err
}

// bindings are those of an environment, newest first.
func (f *fixture) bindings(e core.Environment) []core.DriverBinding {
	f.t.Helper()
	found, err := f.view.DriverBindingsByEnvironment(f.t.Context(), org, []int64{e.ID})
	f.ok(err)
	return found[e.ID]
}

// setups are the readiness of the shop in its environments, in the order of their ids.
func (s *shop) setups() []core.ApplicationEnvironment {
	s.t.Helper()
	found, err := s.view.ApplicationEnvironmentsByApplication(s.t.Context(), org, []int64{s.application.ID})
	s.ok(err)
	return found[s.application.ID]
}

// inputsOf are the inputs of a run as they were handed over.
func (s *shop) inputsOf(workflow string) string {
	s.t.Helper()
	s.handOver()
	for _, w := range s.engine.started {
		if w.ID == workflow {
			return string(w.Inputs)
		}
	}
	s.t.Fatalf("%s was not handed over: %v", workflow, s.ids())
	return ""
}

// D57: an environment changes by a new driver binding while a rollout goes through it. The rollout keeps the one that it has pinned; the
// environment is onboarded and its applications are set up with the new one, and until then no other rollout begins; then they have it.
func TestAnEnvironmentChangesWhileARolloutIsUnderWay(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	under := s.rollout(s.set)
	s.ok(s.rebound(s.production, `{"drawer":4}`))
	bound := s.bindings(s.production)
	if len(bound) != 2 || bound[0].Version != 2 || string(bound[0].DriverConfig) == string(bound[1].DriverConfig) {
		t.Fatalf("found bindings %+v", bound)
	}
	if stop := s.stops(under)[1]; stop.DriverBindingID != bound[1].ID {
		t.Errorf("the rollout under way has pinned binding %d, expected %d", stop.DriverBindingID, bound[1].ID)
	}
	if in := s.inputsOf("rollout-1"); strings.Contains(in, `"drawer":4`) || strings.Contains(in, `"drawer": 4`) {
		t.Errorf("the rollout under way is given the new configuration: %s", in)
	}
	if ae := s.setups(); ae[0].Readiness != core.ReadinessReady || ae[1].Readiness != core.ReadinessPending {
		t.Errorf("found setups %+v", ae)
	}
	_, err := s.rollouts.CancelRollout(t.Context(), user(), under.ID, "test")
	s.ok(err)
	if _, err := s.rollouts.CreateRollout(t.Context(), user(), rollout.NewRollout{VersionSetID: s.set.ID}); !fault.Is(err, fault.Refused) {
		t.Errorf("a rollout before the environment is onboarded: %v", err)
	}
	// Staging is not waited for: an environment that is not ready does not block a rollout that does not go there.
	_, err = s.rollouts.CreateRollout(t.Context(), user(), rollout.NewRollout{
		VersionSetID: s.set.ID, Scope: rollout.Scope{Only: []string{"staging"}},
	})
	s.ok(err)
	_, err = s.rollouts.CancelRollout(t.Context(), user(), 2, "test")
	s.ok(err)
	if in := s.inputsOf("environment-2-onboarding-2"); !strings.Contains(in, `"drawer":4`) && !strings.Contains(in, `"drawer": 4`) {
		t.Errorf("the onboarding is given %s", in)
	}
	s.report(event.EnvironmentReady{EnvironmentID: s.production.ID})
	if in := s.inputsOf("application-environment-2-setup-2"); !strings.Contains(in, `"drawer":4`) && !strings.Contains(in, `"drawer": 4`) {
		t.Errorf("the setup is given %s", in)
	}
	s.report(event.ApplicationEnvironmentReady{ApplicationEnvironmentID: 2, RolloutName: "api", RolloutNamespace: "shop"})
	if stop := s.stops(s.rollout(s.set))[1]; stop.DriverBindingID != bound[0].ID {
		t.Errorf("the next rollout has pinned binding %d, expected %d", stop.DriverBindingID, bound[0].ID)
	}
}

// D57: a pipeline that does not fit the new binding leaves its application not ready, with what does not fit, until it is saved anew.
func TestAPipelineThatDoesNotFitTheNewBindingIsNotReady(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.ok(s.rebound(s.production, `{"drawer":3,"folders":["release-*"]}`))
	s.report(event.EnvironmentReady{EnvironmentID: s.production.ID})
	ae := s.setups()[1]
	if ae.Readiness != core.ReadinessNot || !strings.Contains(ae.ReadinessReason, "does not fit driver binding 2 of the environment (paper@1)") {
		t.Errorf("found %+v", ae)
	}
	fits := strings.Replace(string(pipeline("staging", "production")), `"folder":"production"`, `"folder":"release-1"`, 1)
	_, err := s.setup.CreateFlowDefinition(
		t.Context(), user(), setup.NewFlowDefinition{ApplicationID: s.application.ID, Definition: json.RawMessage(fits)},
	)
	s.ok(err)
	if ae := s.setups()[1]; ae.Readiness != core.ReadinessPending {
		t.Errorf("found %+v after a pipeline that fits", ae)
	}
}

// D57: what cannot be changed is refused, what is in force already makes no binding, and of two changes from one binding the second fails.
func TestWhatAnEnvironmentCannotBecome(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	change := func(a core.Actor, n setup.ChangedEnvironment) error {
		n.ID = s.staging.ID
		_, err := s.setup.UpdateEnvironment(t.Context(), a, n)
		return err
	}
	other, description := "letter@1", strings.Repeat("x", 5000)
	for name, tt := range map[string]struct {
		change setup.ChangedEnvironment
		class  fault.Class
		wanted string
	}{
		"an unknown driver":         {setup.ChangedEnvironment{DriverRef: &other, DriverConfig: json.RawMessage(`{}`)}, fault.Invalid, "not installed"},
		"a driver alone":            {setup.ChangedEnvironment{DriverRef: &other}, fault.Invalid, "/driverConfig"},
		"a bad configuration":       {setup.ChangedEnvironment{DriverConfig: json.RawMessage(`{"drawer":"top"}`)}, fault.Invalid, "/driverConfig/drawer"},
		"a long description":        {setup.ChangedEnvironment{Description: &description}, fault.Invalid, "/description"},
		"from another binding":      {setup.ChangedEnvironment{DriverConfig: json.RawMessage(`{"drawer":4}`), Version: 7}, fault.Conflict, "binding 1"},
		"a reason that is too long": {setup.ChangedEnvironment{Reason: description}, fault.Invalid, "reason"},
	} {
		if err := change(user(), tt.change); !fault.Is(err, tt.class) || !strings.Contains(err.Error(), tt.wanted) {
			t.Errorf("%s: found %v, expected %q", name, err, tt.wanted)
		}
	}
	s.ok(change(user(), setup.ChangedEnvironment{DriverConfig: json.RawMessage(`{ "drawer": 3 }`), Version: 1}))
	if b := s.bindings(s.staging); len(b) != 1 {
		t.Errorf("the configuration in force made a binding: %+v", b)
	}
	limited := user()
	limited.Permissions = core.RoleViewer.Permissions()
	limited.Grants = []core.Grant{{Permissions: core.PermissionsOf(core.MayConfigure), Tiers: []core.Tier{core.TierStaging}}}
	if err := change(limited, setup.ChangedEnvironment{DriverConfig: json.RawMessage(`{"drawer":5}`)}); !fault.Is(err, fault.Denied) ||
		!strings.Contains(err.Error(), "does not declare what a rollout changes") {
		t.Errorf("a driver without places, by a member with limits: %v", err)
	}
	text := "the second floor"
	s.ok(change(limited, setup.ChangedEnvironment{Description: &text}))
	found, err := s.view.EnvironmentsByID(t.Context(), org, []int64{s.staging.ID})
	s.ok(err)
	if e := found[s.staging.ID]; e.Description != text || e.Readiness != core.ReadinessReady {
		t.Errorf("found %+v after a change of the description alone", e)
	}
	_, err = s.setup.ArchiveEnvironment(t.Context(), user(), s.staging.ID, "test")
	s.ok(err)
	if err := change(user(), setup.ChangedEnvironment{Description: &text}); !fault.Is(err, fault.Refused) {
		t.Errorf("an archived environment: %v", err)
	}
}

// D50, D57: the journal has both bindings and the reason.
func TestTheJournalHasBothBindings(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.ok(s.rebound(s.staging, `{"drawer":4}`))
	var before, after, reason string
	s.ok(s.pool.QueryRow(t.Context(), `SELECT before::text, after::text, reason FROM cd_changes WHERE action = 'updateEnvironment'`).
		Scan(&before, &after, &reason))
	if !strings.Contains(before, `"drawer": 3`) || !strings.Contains(after, `"drawer": 4`) || !strings.Contains(after, `"binding": 2`) ||
		reason != "another drawer" {
		t.Errorf("found %s → %s, %q", before, after, reason)
	}
}
