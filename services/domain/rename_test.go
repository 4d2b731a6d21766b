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

// D57: an application is found by the names that it had, until another one is given them; the journal has each change once. What a
// rollout under way does is in TestEachEditLeavesARolloutUnderWayAsItIs.
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

// D57, D51: a name takes the right to configure everything, which is also the one to configure policies: who configures one application
// neither takes it past policies, whatever they say of names or whichever rollouts have pinned, nor takes names that find others.
func TestNoNameIsTakenToGetPastAPolicy(t *testing.T) {
	t.Parallel()
	w := frozen(t)
	one := user()
	one.Permissions = 0
	one.Grants = []core.Grant{{Permissions: core.PermissionsOf(core.MayConfigure), Applications: []int64{w.application.ID}}}
	pay := w.fixture.application("pay", "x")
	w.ok(w.rename(user(), pay.ID, "payments"))
	denied := func(name string) {
		t.Helper()
		if err := w.rename(one, w.application.ID, name); !fault.Is(err, fault.Denied) {
			t.Errorf("%s: found %v; want it denied", name, err)
		}
	}
	denied("free")
	denied("pay")
	base := `@id("base") permit (principal, action, resource);`
	for _, text := range []string{
		`@id("a") forbid (principal, action == Action::"control.change", resource)
			when { resource.name like "shop*" && context.action == "setRollbackPolicy" };
		@id("c") permit (principal, action == Action::"control.change", resource);`,
		`@id("b") forbid (principal, action == Action::"environment.enter", resource) when { context.application == Application::"shop" };`,
	} {
		w.put(policy.NewPolicySet{Name: "named", Text: base + text})
		denied("free")
	}
	r := w.rollout(w.set)
	w.put(policy.NewPolicySet{Name: "named", Mode: core.PolicyOff})
	denied("free")
	s, err := w.view.ApplicationStandings(t.Context(), org, []int64{w.application.ID})
	w.ok(err)
	if s[w.application.ID].May(one, core.ActionRenameApplication) == nil || r.ID == 0 {
		t.Error("the API says that they may")
	}
	w.want([]int64{w.called("shop"), w.called("pay")}, []int64{w.application.ID, pay.ID})
	configures := user()
	configures.Permissions = core.PermissionsOf(core.MayConfigure)
	w.ok(configures.MayIn(core.ActionPutPolicySet)) // who renames configures policies
	w.ok(w.rename(configures, w.application.ID, "pay"))
}

// D57: the matrix has the present names of applications, whatever it is asked for, also once another application has a former name.
func TestTheMatrixHasPresentNames(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.ok(s.rename(user(), s.application.ID, "store"))
	in := core.MatrixFilter{EnvironmentIDs: []int64{s.staging.ID}}
	contains := func(f core.MatrixFilter, text string) core.MatrixFilter {
		f.Contains = text
		return f
	}
	check := func(shop []string) {
		t.Helper()
		for _, c := range []struct {
			f    core.MatrixFilter
			want []string
		}{
			{in, []string{"store"}},
			{contains(core.MatrixFilter{}, "store"), []string{"store"}},
			{contains(in, "store"), []string{"store"}},
			{contains(core.MatrixFilter{}, "shop"), shop},
			{contains(in, "shop"), nil},
		} {
			page, _, err := s.view.Matrix(t.Context(), org, c.f, core.Page{First: 50})
			s.ok(err)
			var names []string
			for _, a := range page.Nodes {
				names = append(names, a.Name)
			}
			s.want(names, c.want)
		}
	}
	check(nil)
	s.fixture.application("shop", "api")
	check([]string{"shop"})
	s.want(s.countOf(`SELECT count(*) FROM cd_cells WHERE application_name <> 'store'`), 0)
}

// D57, R4-12: chains continue by the former names that they have, and no name has chains come back to where they began.
func TestChainsContinueByFormerNames(t *testing.T) {
	t.Parallel()
	shop, blog, cart, _, _ := family(t)
	shop.ok(shop.rename(user(), shop.application.ID, "store"))
	shop.ok(shop.rename(user(), blog.application.ID, "journal"))
	shop.succeed(shop.rollout(shop.set))
	shop.decide()
	_, graph := shop.drawn()
	if text := strings.Join(graph, "; "); len(graph) != 4 || !strings.Contains(text, "journal") || strings.Contains(text, "skipped") {
		t.Errorf("found %q; want all four that follow", graph)
	}
	cart.ok(cart.chain("then", `{"blocks":[{"applications":["new-*"]}]}`))
	shop.ok(shop.chain("after", `{"follows":["cart"]}`))
	shop.refused(shop.rename(user(), shop.application.ID, "new-shop"), "chains would come back to where they began")
	shop.want(shop.called("new-shop"), int64(0))
}

// D57: the journal of an application has that another one was given a name which it had.
func TestTheJournalHasTheEndOfAFormerName(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.ok(s.rename(user(), s.application.ID, "store"))
	pay := s.fixture.application("pay", "x")
	s.ok(s.rename(user(), pay.ID, "shop"))
	var before, subject string
	s.ok(s.pool.QueryRow(t.Context(), `SELECT before::text, subject_name FROM cd_changes WHERE action = 'renameApplication' AND application_id = $1
		ORDER BY id DESC LIMIT 1`, s.application.ID).Scan(&before, &subject))
	s.want([]string{before, subject}, []string{`{"former_name": "shop"}`, "store"})
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
	s.ok(s.rename(user(), s.application.ID, "shop")) // back to one that it had
}
