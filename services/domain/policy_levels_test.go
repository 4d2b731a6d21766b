package domain

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/policy"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/setup"
)

// D51: a policy set of a group concerns the applications that have its labels. A rollout keeps the set that it was created with, also where
// its application leaves the group, and no set of the application makes what the group forbids possible.
func TestAPolicySetConcernsAGroupOfApplications(t *testing.T) {
	t.Parallel()
	w := frozen(t)
	of := core.Detailed{Kind: core.ChangedApplication, ID: w.application.ID}
	w.put(policy.NewPolicySet{Name: "critical", Labels: map[string]string{"tier": "critical", "team": "web"}, Text: noProduction("")})
	w.put(policy.NewPolicySet{Name: "ours", ApplicationID: w.application.ID, Text: allowed})
	outside := w.rollout(w.set) // it has none of the labels
	w.enter(outside, "staging")
	w.enter(outside, "production")
	w.want(w.granted(), []string{"staging", "production"})
	w.succeed(outside)

	w.ok(w.label(of, map[string]string{"tier": "critical", "team": "web"}))
	w.release(9)
	inside := w.rollout(w.sets()[0])
	w.enter(inside, "staging")
	w.enter(inside, "production", "production")
	if waits := w.waits(inside, "policy"); len(waits) != 1 || !strings.Contains(waits[0], "policy critical/no-production denies it: not now") {
		t.Errorf("found %v; want it denied by the policies of the group", waits)
	}
	w.ok(w.label(of, nil, "tier")) // an owner may take it out of the group, and what was created within stays
	w.review()
	if waits := w.waits(inside, "policy"); len(waits) != 1 || !strings.Contains(waits[0], "critical/no-production") {
		t.Errorf("the application has left the group: found %v; want that the rollout keeps the policies of the group", waits)
	}
}

// D51: who configures one application takes it out of no group that a policy is about: what is inherited is only made stricter.
func TestNoApplicationLeavesAGroupByItself(t *testing.T) {
	t.Parallel()
	w := frozen(t)
	of := core.Detailed{Kind: core.ChangedApplication, ID: w.application.ID}
	w.ok(w.label(of, map[string]string{"tier": "critical", "team": "web"}))
	w.put(policy.NewPolicySet{Name: "critical", Labels: map[string]string{"tier": "critical"}, Text: noProduction("")})
	owner := user()
	owner.Permissions = 0
	owner.Grants = []core.Grant{{Permissions: core.PermissionsOf(core.MayConfigure), Applications: []int64{w.application.ID}}}
	leave := func(set map[string]string, unset ...string) error {
		return w.setup.SetLabels(t.Context(), owner, setup.ChangedLabels{Of: of, Set: set, Unset: unset})
	}
	for name, err := range map[string]error{"ended": leave(nil, "tier"), "changed": leave(map[string]string{"tier": "low"})} {
		if !fault.Is(err, fault.Denied) || !strings.Contains(err.Error(), `the policy set "critical" would no longer concern the application`) {
			t.Errorf("the label is %s: found %v; want it denied", name, err)
		}
	}
	w.ok(leave(map[string]string{"team": "shop"})) // no policy is about that one
	w.put(policy.NewPolicySet{Name: "critical", Mode: core.PolicyOff})
	w.ok(leave(nil, "tier"))
}

// D51: the scope of a set is one, and never changes.
func TestTheLabelsOfAPolicySetAreChecked(t *testing.T) {
	t.Parallel()
	w := frozen(t)
	w.put(policy.NewPolicySet{Name: "critical", Labels: map[string]string{"tier": "critical"}, Text: allowed})
	for name, tt := range map[string]struct {
		n     policy.NewPolicySet
		class fault.Class
	}{
		"none":        {policy.NewPolicySet{Name: "a", Labels: map[string]string{}, Text: allowed}, fault.Invalid},
		"a wrong key": {policy.NewPolicySet{Name: "a", Labels: map[string]string{"a b": "c"}, Text: allowed}, fault.Invalid},
		"two scopes": {
			policy.NewPolicySet{Name: "a", ApplicationID: w.application.ID, Labels: map[string]string{"a": "b"}, Text: allowed}, fault.Invalid,
		},
		"moved": {policy.NewPolicySet{Name: "critical", Labels: map[string]string{"tier": "low"}}, fault.Refused},
	} {
		tt.n.Reason = "a test"
		if _, err := w.policies.PutPolicySet(t.Context(), user(), tt.n); !fault.Is(err, tt.class) {
			t.Errorf("%s: found %v; want %s", name, err, tt.class)
		}
	}
}

// D51: policies of the installation decide in every organization before those of the organization, which cannot make them weaker. They are
// read when the service starts, and one that cannot be read keeps it from starting.
func TestPoliciesOfTheInstallationAreInherited(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "base.cedar")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(noProduction(""))
	w := frozenWith(t, PolicyConfig{Name: "base", File: file}, PolicyConfig{Name: "off", File: file, Mode: "off"})
	w.put(policy.NewPolicySet{Text: allowed})
	r := w.rollout(w.set)
	w.enter(r, "staging")
	w.enter(r, "production", "production")
	w.want(w.granted(), []string{"staging"})
	if waits := w.waits(r, "policy"); len(waits) != 1 || !strings.Contains(waits[0], "policy installation.base/no-production denies it: not now") {
		t.Errorf("found %v; want it denied by the installation, whatever the organization permits", waits)
	}
	listed := w.policies.InstallationPolicies()
	w.want([]string{fmt.Sprint(len(listed)), listed[0].Name}, []string{"1", "installation.base"})
	if _, err := w.policies.PutPolicySet(t.Context(), user(), policy.NewPolicySet{
		Name: "installation.base", Mode: core.PolicyOff, Reason: "a test",
	}); !fault.Is(err, fault.Invalid) {
		t.Errorf("the organization switches it off: found %v; want it refused", err)
	}
	for name, c := range map[string]PolicyConfig{
		"a file that does not exist": {Name: "base", File: file + "x"}, "a wrong name": {Name: "Base", File: file},
		"a wrong mode": {Name: "base", File: file, Mode: "on"}, "a wrong zone": {Name: "base", File: file, TimeZone: "Mars"},
	} {
		if _, err := (Config{Policies: []PolicyConfig{c}}).installation(); !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: found %v; want it refused", name, err)
		}
	}
	write(`@id("no") forbid (principal, action, resource) when { context.nothing == 1 };`)
	if _, err := (Config{Policies: []PolicyConfig{{Name: "base", File: file}}}).installation(); !fault.Is(err, fault.Invalid) {
		t.Errorf("a policy that is not valid: found %v; want it refused", err)
	}
}

// D51: whom a policy stops by a label or an owner does not change either, of an application or an environment: that takes the right to
// configure the policies. A change is decided by what was before.
func TestNoLabelOrOwnerIsChangedToGetPastAPolicy(t *testing.T) {
	t.Parallel()
	w := frozen(t)
	application := core.Detailed{Kind: core.ChangedApplication, ID: w.application.ID}
	environment := core.Detailed{Kind: core.ChangedEnvironment, ID: w.production.ID}
	configures := user()
	configures.Permissions = 0
	configures.Grants = []core.Grant{
		{Permissions: core.PermissionsOf(core.MayConfigure), Applications: []int64{w.application.ID}},
		{Permissions: core.PermissionsOf(core.MayConfigure), Environments: []int64{w.production.ID}},
	}
	label := func(of core.Detailed) error {
		return w.setup.SetLabels(t.Context(), configures, setup.ChangedLabels{Of: of, Set: map[string]string{"tier": "low"}})
	}
	own := func(a core.Actor, of core.Detailed, owner string) error {
		return w.setup.SetDetails(t.Context(), a, setup.ChangedDetails{Of: of, Owner: &owner})
	}
	w.ok(own(configures, application, "web"))
	w.put(policy.NewPolicySet{Name: "asks", Text: `@id("base") permit (principal, action, resource);
@id("tier") forbid (principal, action == Action::"environment.enter", resource) when {
  resource.labels.contains("tier=critical") || context.application.owner == "nobody" };`})
	for _, of := range []core.Detailed{application, environment} {
		if err := label(of); !fault.Is(err, fault.Denied) || !strings.Contains(err.Error(), `the policy set "asks" asks of labels`) {
			t.Errorf("labels of the %s: found %v; want it denied", of.Kind, err)
		}
		if err := own(configures, of, "mine"); !fault.Is(err, fault.Denied) || !strings.Contains(err.Error(), `the policy set "asks" asks of owner`) {
			t.Errorf("the owner of the %s: found %v; want it denied", of.Kind, err)
		}
	}
	described := "takes orders"
	w.ok(w.setup.SetDetails(t.Context(), configures, setup.ChangedDetails{Of: application, Description: &described}))
	w.put(policy.NewPolicySet{Name: "asks", Mode: core.PolicyOff})
	w.ok(label(application))
	w.put(policy.NewPolicySet{Name: "changes", Text: `@id("base") permit (principal, action, resource);
@id("kept") forbid (principal, action == Action::"control.change", resource) when {
  context.action == "setDetails" && context has application && context.application.owner == "web" };`})
	if err := own(user(), application, "shop"); err == nil || !strings.Contains(err.Error(), "policy changes/kept denies it") {
		t.Errorf("the owner changes: found %v; want it decided by the owner of before", err)
	}
}
