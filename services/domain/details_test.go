package domain

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/setup"
)

// detailsOf are those of one thing.
func (f *fixture) detailsOf(of core.Detailed) core.Details {
	f.t.Helper()
	all, err := f.view.Details(f.t.Context(), org, []core.Detailed{of})
	f.ok(err)
	return all[of]
}

// label sets labels of an application, an environment or a service, and ends others.
func (f *fixture) label(of core.Detailed, set map[string]string, unset ...string) error {
	return f.setup.SetLabels(f.t.Context(), user(), setup.ChangedLabels{Of: of, Set: set, Unset: unset, Reason: "sorted"})
}

// D57: labels, owners, links and descriptions of applications, environments and services change, and the journal has each change once.
func TestDetailsChangeWithARecord(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	service := s.serviceNamed(s.application, "api")
	things := []core.Detailed{
		{Kind: core.ChangedApplication, ID: s.application.ID},
		{Kind: core.ChangedEnvironment, ID: s.production.ID},
		{Kind: core.ChangedService, ID: service.ID},
	}
	owner, described := "payments", "takes orders"
	for _, of := range things {
		for range 2 { // the second time is a no-op
			s.ok(s.label(of, map[string]string{"team": "payments", "example.com/tier": ""}))
			s.ok(s.setup.SetDetails(t.Context(), user(), setup.ChangedDetails{
				Of: of, Owner: &owner, Description: &described, SetLinks: map[string]string{"runbook": "https://wiki.example.com/shop"}, Reason: "sorted",
			}))
		}
		s.ok(s.label(of, map[string]string{"team": "orders"}, "example.com/tier", "absent"))
		s.want(s.detailsOf(of), core.Details{
			Labels: map[string]string{"team": "orders"}, Owner: "payments", Links: map[string]string{"runbook": "https://wiki.example.com/shop"},
		})
		empty := ""
		s.ok(s.setup.SetDetails(t.Context(), user(), setup.ChangedDetails{Of: of, Owner: &empty, UnsetLinks: []string{"runbook"}}))
		s.want(s.detailsOf(of), core.Details{Labels: map[string]string{"team": "orders"}, Links: map[string]string{}})
		s.want(s.countOf(fmt.Sprintf(`SELECT count(*) FROM cd_changes WHERE subject_kind = '%s' AND subject_number = %d AND action IN ('setLabels', 'setDetails')`,
			of.Kind, of.ID)), 4)
	}
	services, err := s.view.ServicesByID(t.Context(), org, []int64{service.ID})
	s.ok(err)
	environments, err := s.view.EnvironmentsByID(t.Context(), org, []int64{s.production.ID})
	s.ok(err)
	applications, err := s.view.ApplicationsByID(t.Context(), org, []int64{s.application.ID})
	s.ok(err)
	s.want([]string{services[service.ID].Description, environments[s.production.ID].Description, applications[s.application.ID].Description},
		[]string{described, described, described})
	var before, after string
	s.ok(s.pool.QueryRow(t.Context(), `SELECT before::text, after::text FROM cd_changes WHERE action = 'setLabels' AND subject_kind = 'application' ORDER BY id DESC LIMIT 1`).
		Scan(&before, &after))
	s.want([]string{before, after}, []string{`{"labels": {"team": "payments", "example.com/tier": ""}}`, `{"labels": {"team": "orders"}}`})
}

// D57: what is no label, owner or link is refused with its place, and nothing of the change is stored; who may not configure changes
// nothing.
func TestDetailsAreBounded(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	of := core.Detailed{Kind: core.ChangedApplication, ID: s.application.ID}
	many := map[string]string{}
	for i := range core.MaxLabels + 1 {
		many[fmt.Sprintf("k%d", i)] = "v"
	}
	for name, labels := range map[string]map[string]string{
		"a key with a blank":    {"a b": "c"},
		"an empty key":          {"": "c"},
		"a hostile value":       {"a": "x\x1b[2J", "fine": "v"},
		"a value that is long":  {"a": strings.Repeat("v", 64)},
		"a prefix of upper":     {"Example.com/a": "b"},
		"two slashes":           {"a/b/c": "d"},
		"a prefix that is long": {strings.Repeat("a", 254) + "/b": "c"},
		"one too many":          many,
		"none":                  nil,
	} {
		if err := s.label(of, labels); !fault.Is(err, fault.Invalid) || len(fault.FieldsOf(err)) == 0 {
			t.Errorf("%s: found %v; want it refused with its place", name, err)
		}
	}
	delete(many, "k0")
	s.ok(s.label(of, many))
	if err := s.label(of, map[string]string{"k0": "v"}); !fault.Is(err, fault.Invalid) { // it is one too many with those that it has
		t.Errorf("the 33rd label: found %v", err)
	}
	long := strings.Repeat("x", 5000)
	lines := "a\nb"
	for name, n := range map[string]setup.ChangedDetails{
		"nothing":            {},
		"an owner of lines":  {Owner: &lines},
		"a long description": {Description: &long},
		"a script":           {SetLinks: map[string]string{"x": "javascript:alert(1)"}},
		"a link with a name": {SetLinks: map[string]string{"x": "https://ann:secret@example.com"}},
		"an empty title":     {SetLinks: map[string]string{" ": "https://example.com"}},
	} {
		n.Of = of
		if err := s.setup.SetDetails(t.Context(), user(), n); !fault.Is(err, fault.Invalid) || len(fault.FieldsOf(err)) == 0 {
			t.Errorf("%s: found %v; want it refused with its place", name, err)
		}
	}
	deployer := user()
	deployer.Permissions = core.RoleDeployer.Permissions()
	for _, of := range []core.Detailed{
		of, {Kind: core.ChangedEnvironment, ID: s.production.ID}, {Kind: core.ChangedService, ID: s.serviceNamed(s.application, "api").ID},
	} {
		err := s.setup.SetLabels(t.Context(), deployer, setup.ChangedLabels{Of: of, Set: map[string]string{"a": "b"}})
		if owner := "mine"; !fault.Is(err, fault.Denied) || !fault.Is(s.setup.SetDetails(t.Context(), deployer, setup.ChangedDetails{Of: of, Owner: &owner}), fault.Denied) {
			t.Errorf("%s by a deployer: found %v; want it denied", of.Kind, err)
		}
		of.ID = 9999
		if err := s.label(of, map[string]string{"a": "b"}); !fault.Is(err, fault.NotFound) {
			t.Errorf("a %s that does not exist: found %v", of.Kind, err)
		}
	}
	s.want(len(s.detailsOf(of).Labels), core.MaxLabels)
}

// D57: two who change labels at once lose nothing.
func TestLabelsThatAreSetAtOnceAreKept(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	of := core.Detailed{Kind: core.ChangedEnvironment, ID: s.staging.ID}
	var wg sync.WaitGroup
	failed := make([]error, 8)
	for i := range failed {
		wg.Go(func() { failed[i] = s.label(of, map[string]string{fmt.Sprintf("k%d", i): "v"}) })
	}
	wg.Wait()
	for _, err := range failed {
		s.ok(err)
	}
	s.want(len(s.detailsOf(of).Labels), len(failed))
}

// R4-12, D58: a block of a chain selects the applications that have its labels when the chain begins.
func TestAChainSelectsByLabel(t *testing.T) {
	t.Parallel()
	shop, blog, cart, mail, _ := family(t)
	for i, w := range []winter{blog, cart, mail} {
		of := core.Detailed{Kind: core.ChangedApplication, ID: w.application.ID}
		shop.ok(shop.label(of, map[string]string{"team": "web", "ring": fmt.Sprint(i % 2)}))
	}
	for name, config := range map[string]string{
		"neither":     `{"blocks":[{}]}`,
		"a wrong key": `{"blocks":[{"labels":{"a b":"c"}}]}`,
		"no labels":   `{"blocks":[{"labels":{}}]}`,
	} {
		if err := shop.chain("wrong", config); !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: found %v; want it refused", name, err)
		}
	}
	shop.ok(shop.chain("then", `{"blocks":[{"labels":{"team":"web","ring":"0"}},{"applications":["c*","docs"],"labels":{"team":"web"}}]}`))
	shop.succeed(shop.rollout(shop.set))
	shop.decide()
	want := []string{"1 blog running", "1 mail running", "2 cart waiting", "2 docs skipped"}
	shop.want(shop.states(), want)
	_, graph := shop.drawn()
	shop.want(graph[3], `2 docs skipped: "docs" does not have the labels of the block`)
	shop.ok(shop.label(core.Detailed{Kind: core.ChangedApplication, ID: cart.application.ID}, nil, "team")) // too late for this chain
	for _, w := range []winter{blog, mail} {
		w.succeed(w.active())
		shop.decide()
	}
	shop.want(shop.states()[2], "2 cart running")
	cart.succeed(cart.active())
	shop.decide()
	shop.want(shop.countOf(`SELECT count(*) FROM cd_rollouts`), 4)
}
