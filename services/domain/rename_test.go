package domain

import (
	"fmt"
	"strings"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/policy"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/setup"
)

// rename gives an application another name.
func (f *fixture) rename(a core.Actor, application int64, name string) error {
	_, err := f.setup.RenameApplication(f.t.Context(), a, setup.Renaming{ID: application, Name: name, Reason: "as the team calls it"})
	return err
}

// called finds an application by a name; 0 for none.
func (f *fixture) called(name string) int64 {
	f.t.Helper()
	found, err := f.view.ApplicationByName(f.t.Context(), org, name)
	if !fault.Is(err, fault.NotFound) {
		f.ok(err)
	}
	return found.ID
}

// D57: an application is found by the names that it had, until another one is given them; the journal has each change once, and a
// rollout that is under way continues.
func TestAnApplicationIsRenamed(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	shop := s.application.ID
	for range 2 { // the second time is a no-op
		s.ok(s.rename(user(), shop, "store"))
	}
	s.ok(s.rename(user(), shop, "market"))
	s.want([]int64{s.called("market"), s.called("store"), s.called("shop"), s.called("sho")}, []int64{shop, shop, shop, 0})
	names := func() []string {
		all, err := s.view.FormerNames(t.Context(), org, []int64{shop})
		s.ok(err)
		return all[shop]
	}
	s.want(names(), []string{"store", "shop"})
	s.want(s.countOf(`SELECT count(*) FROM cd_changes WHERE action = 'renameApplication'`), 2)
	var before, after string
	s.ok(s.pool.QueryRow(t.Context(), `SELECT before::text, after::text FROM cd_changes WHERE action = 'renameApplication' ORDER BY id DESC LIMIT 1`).
		Scan(&before, &after))
	s.want([]string{before, after}, []string{`{"name": "store"}`, `{"name": "market"}`})

	// Back to the first name, which then is no former one any more.
	s.ok(s.rename(user(), shop, "shop"))
	s.want(names(), []string{"market", "store"})
	// Another application is given a former name, and is what the name finds.
	made, err := s.setup.CreateApplication(t.Context(), user(), setup.NewApplication{Name: "store", Services: []setup.NewService{{
		Name: "till", ArtifactSources: []setup.NewArtifactSource{{Ref: "oci-image@1", Config: []byte(`{"image":"r.example.com/till"}`)}},
	}}})
	s.ok(err)
	s.want([]int64{s.called("store"), s.called("market")}, []int64{made.ID, shop})
	s.want(names(), []string{"market"})
	// The name that an application has is taken.
	if err := s.rename(user(), made.ID, "shop"); !fault.Is(err, fault.Conflict) || len(fault.FieldsOf(err)) != 1 {
		t.Errorf("the name of another application: found %v; want a conflict with its field", err)
	}
	if err := s.rename(user(), shop, "a name"); !fault.Is(err, fault.Invalid) {
		t.Errorf("a name with a space: found %v; want it refused", err)
	}
	viewer := user()
	viewer.Permissions = core.PermissionsOf(core.MayRead)
	if err := s.rename(viewer, shop, "mine"); !fault.Is(err, fault.Denied) {
		t.Errorf("without the right to configure: found %v; want it denied", err)
	}
}

// D57, D51: who configures one application neither takes it past a policy that names it, nor gives it the name that a policy permits more.
func TestNoNameIsTakenToGetPastAPolicy(t *testing.T) {
	t.Parallel()
	w := frozen(t)
	configures := user()
	configures.Permissions = 0
	configures.Grants = []core.Grant{{Permissions: core.PermissionsOf(core.MayConfigure), Applications: []int64{w.application.ID}}}
	w.ok(w.rename(configures, w.application.ID, "store"))
	w.put(policy.NewPolicySet{Name: "named", Text: `@id("base") permit (principal, action, resource);
@id("store") forbid (principal, action == Action::"rollout.create", resource == Application::"store");`})
	if err := w.rename(configures, w.application.ID, "shop"); !fault.Is(err, fault.Denied) || !strings.Contains(err.Error(), `the policy set "named" may name "store"`) {
		t.Errorf("away from a name: found %v; want it denied", err)
	}
	w.ok(w.rename(user(), w.application.ID, "shop"))
	if err := w.rename(configures, w.application.ID, "store"); !fault.Is(err, fault.Denied) {
		t.Errorf("to a name: found %v; want it denied", err)
	}
	w.put(policy.NewPolicySet{Name: "named", Mode: core.PolicyOff})
	w.ok(w.rename(configures, w.application.ID, "store"))
}

// D57: the former names of an application are bounded.
func TestFormerNamesAreBounded(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	for i := range 20 {
		s.ok(s.rename(user(), s.application.ID, fmt.Sprintf("shop-%d", i)))
	}
	if err := s.rename(user(), s.application.ID, "shop-20"); !fault.Is(err, fault.Refused) {
		t.Errorf("the name after 20 others: found %v; want it refused", err)
	}
	s.want([]int64{s.called("shop"), s.called("shop-20")}, []int64{s.application.ID, 0})
}
