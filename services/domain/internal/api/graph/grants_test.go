package graph_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/access"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/freeze"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/rollout"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/setup"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/trigger"
)

// limited is a person with grants and no more than the role of a viewer.
func limited(grants ...core.Grant) core.Actor {
	return core.Actor{
		Organization: ours, Type: core.PrincipalUser, ID: 9, Name: "lea", Permissions: core.RoleViewer.Permissions(), Grants: grants,
	}
}

// everything is every permission that can be granted.
func everything() core.Permissions { return core.PermissionsOf(core.GrantablePermissions()...) }

// TestGrantsEndWhereTheirLimitsDo tries every use case that concerns an application or an environment with every permission that can be
// granted: for another application, for another environment, for another tier, and for the right ones (D50).
func TestGrantsEndWhereTheirLimitsDo(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.story() // rollout_1 of shop has failed; rollout_2 waits at the gate "production"
	f.chained()
	f.queued()
	ctx := t.Context()
	apps := must(f.view.Applications(ctx, ours, core.ApplicationFilter{}, core.Page{First: 10}))(t)
	var shop, blog core.Application
	for _, a := range apps.Nodes {
		switch a.Name {
		case "shop":
			shop = a
		case "blog":
			blog = a
		}
	}
	staging := must(f.view.EnvironmentByName(ctx, ours, "staging"))(t)
	production := must(f.view.EnvironmentByName(ctx, ours, "production"))(t)
	sets := must(f.view.VersionSetsByApplication(ctx, ours, []int64{shop.ID}, core.Page{First: 5}))(t)
	pipeline := must(f.view.LatestFlowDefinitions(ctx, ours, []int64{shop.ID}))(t)[shop.ID]
	services := must(f.view.ServicesByApplication(ctx, ours, []int64{shop.ID}))(t)[shop.ID]
	sources := must(f.view.ArtifactSourcesByService(ctx, ours, []int64{services[0].ID}))(t)[services[0].ID]
	cells := must(f.view.ApplicationEnvironmentsByApplication(ctx, ours, []int64{shop.ID}))(t)[shop.ID]

	of := func(_ any, err error) error { return err }
	rollouts := map[string]func(context.Context, core.Actor, int64, string) (core.Rollout, error){
		"pauseRollout": f.rollouts.PauseRollout, "resumeRollout": f.rollouts.ResumeRollout, "abortRollout": f.rollouts.AbortRollout,
		"retryRollout": f.rollouts.RetryRollout, "cancelRollout": f.rollouts.CancelRollout, "breakGlass": f.rollouts.BreakGlass,
		"stopAutomaticRollback": f.rollouts.StopAutomaticRollback,
	}
	doors := map[string]func(core.Actor) error{
		"createRollout": func(a core.Actor) error {
			return of(f.rollouts.CreateRollout(ctx, a, rollout.NewRollout{VersionSetID: sets[shop.ID].Nodes[0].ID}))
		},
		"previewRollout": func(a core.Actor) error {
			return of(f.rollouts.PreviewRollout(ctx, a, rollout.NewPreview{VersionSetID: sets[shop.ID].Nodes[0].ID}))
		},
		"rollbackRollout": func(a core.Actor) error {
			return of(f.rollouts.RollbackRollout(ctx, a, rollout.Rollback{RolloutID: 2, VersionSetID: sets[shop.ID].Nodes[1].ID}))
		},
		"setRollbackPolicy": func(a core.Actor) error {
			return of(f.rollouts.SetRollbackPolicy(ctx, a, core.RollbackPolicy{ApplicationID: shop.ID}))
		},
		"setRolloutPolicy": func(a core.Actor) error {
			return of(f.rollouts.SetRolloutPolicy(ctx, a, core.RolloutPolicy{
				ApplicationID: shop.ID, OnFailure: core.FailureStops, OnNewer: core.NewerRefused,
			}))
		},
		"putTrigger": func(a core.Actor) error {
			return of(f.triggers.PutTrigger(ctx, a, trigger.NewTrigger{ApplicationID: shop.ID, Name: "sets", Kind: core.TriggerVersion}))
		},
		"removeTrigger": func(a core.Actor) error { return of(f.triggers.RemoveTrigger(ctx, a, shop.ID, "sets", "")) },
		"releasePromotionHold": func(a core.Actor) error {
			return of(f.triggers.ReleasePromotionHold(ctx, a, shop.ID, production.ID, ""))
		},
		"cancelQueuedRollout": func(a core.Actor) error { return of(f.rollouts.CancelQueued(ctx, a, 1, "")) },
		"cancelChain":         func(a core.Actor) error { return of(f.triggers.CancelChain(ctx, a, 1, "")) },
		"createFlowDefinition": func(a core.Actor) error {
			return of(f.setup.CreateFlowDefinition(ctx, a, setup.NewFlowDefinition{ApplicationID: shop.ID, Definition: pipeline.Definition}))
		},
		"archiveApplication": func(a core.Actor) error { return of(f.setup.ArchiveApplication(ctx, a, shop.ID, "")) },
		"renameApplication": func(a core.Actor) error {
			return of(f.setup.RenameApplication(ctx, a, setup.Renaming{ID: shop.ID, Name: shop.Name}))
		},
		"renameService": func(a core.Actor) error {
			return of(f.setup.RenameService(ctx, a, setup.Displaying{ID: services[0].ID, DisplayName: services[0].Name}))
		},
		"restoreApplication": func(a core.Actor) error { return of(f.setup.RestoreApplication(ctx, a, shop.ID, "")) },
		"createArtifactSource": func(a core.Actor) error {
			return of(f.setup.AddArtifactSource(ctx, a, services[0].ID, setup.NewArtifactSource{
				Ref: "oci-image@1", Config: json.RawMessage(`{"image":"r.example.com/shop/more"}`),
			}))
		},
		"setArtifactSourceConfig": func(a core.Actor) error {
			return of(f.setup.SetArtifactSourceConfig(ctx, a, sources[0].ID, sources[0].Config))
		},
		"disableArtifactSource": func(a core.Actor) error { return of(f.setup.DisableArtifactSource(ctx, a, sources[0].ID, "")) },
		"enableArtifactSource":  func(a core.Actor) error { return of(f.setup.EnableArtifactSource(ctx, a, sources[0].ID, "")) },
		"removeArtifactSource":  func(a core.Actor) error { return of(f.setup.RemoveArtifactSource(ctx, a, sources[0].ID, "")) },
		"replaceArtifactSource": func(a core.Actor) error {
			return of(f.setup.ReplaceArtifactSource(ctx, a, sources[0].ID, setup.NewArtifactSource{
				Ref: "oci-image@1", Config: json.RawMessage(`{"image":"r.example.com/shop/moved"}`),
			}, ""))
		},
		"addService": func(a core.Actor) error {
			return of(f.setup.AddService(ctx, a, shop.ID, setup.NewService{Name: "extra", ArtifactSources: []setup.NewArtifactSource{{
				Ref: "oci-image@1", Config: json.RawMessage(`{"image":"r.example.com/shop/extra"}`),
			}}}, ""))
		},
		"retireService":  func(a core.Actor) error { return of(f.setup.RetireService(ctx, a, services[0].ID, "")) },
		"restoreService": func(a core.Actor) error { return of(f.setup.RestoreService(ctx, a, services[0].ID, "")) },
		"retryApplicationEnvironmentSetup": func(a core.Actor) error {
			for _, ae := range cells {
				if ae.EnvironmentID == production.ID {
					return of(f.setup.RetrySetup(ctx, a, ae.ID))
				}
			}
			return nil
		},
		"approveGate": func(a core.Actor) error {
			return of(f.rollouts.ApproveGate(ctx, a, rollout.Resolution{RolloutID: 2, GateID: "production"}))
		},
		"rejectGate": func(a core.Actor) error {
			return of(f.rollouts.RejectGate(ctx, a, rollout.Resolution{RolloutID: 2, GateID: "production"}))
		},
	}
	for name, do := range rollouts {
		doors[name] = func(a core.Actor) error { return of(do(ctx, a, 2, "")) }
	}
	environments := map[string]func(core.Actor) error{
		"setEnvironmentChecks":   func(a core.Actor) error { return of(f.setup.SetEnvironmentChecks(ctx, a, production.ID, nil)) },
		"setEnvironmentApproval": func(a core.Actor) error { return of(f.setup.SetEnvironmentApproval(ctx, a, production.ID, nil)) },
		"updateEnvironment": func(a core.Actor) error {
			return of(f.setup.UpdateEnvironment(ctx, a, setup.ChangedEnvironment{ID: production.ID}))
		},
		"setLabels": func(a core.Actor) error {
			of := core.Detailed{Kind: core.ChangedEnvironment, ID: production.ID}
			return f.setup.SetLabels(ctx, a, setup.ChangedLabels{Of: of, Set: map[string]string{"region": "eu"}})
		},
		"setDetails": func(a core.Actor) error {
			of := core.Detailed{Kind: core.ChangedEnvironment, ID: production.ID}
			return f.setup.SetDetails(ctx, a, setup.ChangedDetails{Of: of, SetLinks: map[string]string{"wiki": "https://wiki.example.com"}})
		},
		"renameEnvironment": func(a core.Actor) error {
			return of(f.setup.RenameEnvironment(ctx, a, setup.Displaying{ID: production.ID, DisplayName: production.Name}))
		},
		"archiveEnvironment":         func(a core.Actor) error { return of(f.setup.ArchiveEnvironment(ctx, a, production.ID, "")) },
		"restoreEnvironment":         func(a core.Actor) error { return of(f.setup.RestoreEnvironment(ctx, a, production.ID, "")) },
		"retryEnvironmentOnboarding": func(a core.Actor) error { return of(f.setup.RetryOnboarding(ctx, a, production.ID)) },
		"createEnvironment": func(a core.Actor) error {
			return of(f.setup.CreateEnvironment(ctx, a, setup.NewEnvironment{
				Name: "second", Tier: core.TierProduction, DriverRef: "argo-rollouts@1",
				DriverConfig: json.RawMessage(fmt.Sprintf(`{"cluster_agent_id":%d}`, f.clusterOf(ours))),
			}))
		},
	}
	wrong := map[string]core.Grant{
		"another application":           {Permissions: everything(), Applications: []int64{blog.ID}},
		"another environment":           {Permissions: everything(), Environments: []int64{staging.ID}},
		"another tier":                  {Permissions: everything(), Tiers: []core.Tier{core.TierStaging}},
		"tier and environment disagree": {Permissions: everything(), Tiers: []core.Tier{core.TierStaging}, Environments: []int64{production.ID}},
	}
	for why, grant := range wrong {
		for name, do := range doors {
			if err := do(limited(grant)); !fault.Is(err, fault.Denied) {
				t.Errorf("%s with a grant for %s: found %v; want it denied", name, why, err)
			}
		}
		for name, do := range environments {
			if err := do(limited(grant)); !fault.Is(err, fault.Denied) {
				t.Errorf("%s with a grant for %s: found %v; want it denied", name, why, err)
			}
		}
	}
	// What concerns all applications is no business of a grant for one of them.
	for name, do := range environments {
		if err := do(limited(core.Grant{Permissions: everything(), Applications: []int64{shop.ID}})); !fault.Is(err, fault.Denied) {
			t.Errorf("%s with a grant for shop: found %v; want it denied", name, err)
		}
	}
	// A look at a source concerns its application alone, wherever the actor may deploy that.
	look := func(g core.Grant) error { return of(f.setup.LookAtArtifactSource(ctx, limited(g), sources[0].ID)) }
	for name, tt := range map[string]struct {
		grant  core.Grant
		denied bool
	}{
		"another application": {core.Grant{Permissions: everything(), Applications: []int64{blog.ID}}, true},
		"another tier":        {core.Grant{Permissions: everything(), Tiers: []core.Tier{core.TierQA}}, true},
		"one environment":     {core.Grant{Permissions: everything(), Environments: []int64{staging.ID}}, false},
		"the application":     {core.Grant{Permissions: everything(), Applications: []int64{shop.ID}}, false},
	} {
		if err := look(tt.grant); fault.Is(err, fault.Denied) != tt.denied {
			t.Errorf("lookAtArtifactSource with a grant for %s: found %v, want denied %t", name, err, tt.denied)
		}
	}
	// Two grants together may be as wide as the application goes.
	right := limited(
		core.Grant{Permissions: everything(), Applications: []int64{shop.ID}, Environments: []int64{staging.ID}},
		core.Grant{Permissions: everything(), Tiers: []core.Tier{core.TierProduction}},
	)
	for _, all := range []map[string]func(core.Actor) error{doors, environments} {
		for name, do := range all {
			if slices.Contains([]string{"createEnvironment", "cancelRollout", "rejectGate", "archiveApplication", "archiveEnvironment"}, name) {
				continue // they would end what the others need; the last ones below
			}
			// A name takes the right to configure everything.
			if err := do(right); fault.Is(err, fault.Denied) != slices.Contains([]string{"renameApplication", "renameEnvironment"}, name) {
				t.Errorf("%s with both grants: %v", name, err)
			}
		}
	}
	for _, name := range []string{"cancelRollout", "archiveApplication"} {
		if err := doors[name](right); fault.Is(err, fault.Denied) {
			t.Errorf("%s with both grants: %v", name, err)
		}
	}
	if err := environments["createEnvironment"](right); err != nil {
		t.Errorf("createEnvironment with a grant for the tier: %v", err)
	}
	// No grant administers, and one that says so is not stored.
	for _, action := range []core.Action{core.ActionSetDirectChanges, core.ActionCreateMember, core.ActionGrantPermissions} {
		if err := right.MayIn(action, core.Target{EnvironmentID: production.ID}); !fault.Is(err, fault.Denied) {
			t.Errorf("%s with both grants: found %v; want it denied", action, err)
		}
	}
}

// TestAGrantByTheAPI gives a viewer a permission in one environment, uses it with a token, and takes it away.
func TestAGrantByTheAPI(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.story()
	member, _, secret := f.grant("alice@example.com", "VIEWER", map[string]any{"name": "laptop"})
	group := f.change(ours, "createGroup", "group", "id", map[string]any{"name": "release", "members": []string{member}})
	input := map[string]any{
		"groupId": group.Object["id"], "permissions": []string{"APPROVE", "DEPLOY"}, "environments": []string{"production"},
		"applications": []string{"shop"}, "tiers": []string{"PRODUCTION"}, "reason": "on call",
	}
	made := f.change(ours, "grantPermissions", "grant",
		"id permissions member { name } group { name } applications { name } environments { name } tiers revokedAt", input)
	got, _ := json.Marshal(made)
	want := `{"object":{"applications":[{"name":"shop"}],"environments":[{"name":"production"}],"group":{"name":"release"},"id":"grant_1",` +
		`"member":null,"permissions":["DEPLOY","APPROVE"],"revokedAt":null,"tiers":["PRODUCTION"]},"errors":[]}`
	if string(got) != want {
		t.Fatalf("found %s\nwant  %s", got, want)
	}
	production := core.Target{ApplicationID: 1, EnvironmentID: 2, Tier: core.TierProduction}
	alice := func() core.Actor {
		t.Helper()
		return must(f.access.Authenticate(t.Context(), secret, false))(t)
	}
	// The first token was made with a viewer's permissions in mind, for an owner made it good for everything of theirs.
	if a := alice(); !a.HasIn(core.MayApprove, production) || a.Permissions.Has(core.MayApprove) {
		t.Errorf("after the grant: %+v", a)
	}
	if a := alice(); a.HasIn(core.MayApprove, core.Target{ApplicationID: 1, EnvironmentID: 1, Tier: core.TierStaging}) {
		t.Error("the grant counts in staging, too")
	}
	if gates := must(f.view.CountGatesFor(t.Context(), alice()))(t); gates != 1 {
		t.Errorf("%d gates wait for alice; want the one of production", gates)
	}
	// A token is never wider than its member: a narrow one has nothing of the grant, and one for more is refused.
	_, narrow, err := f.access.CreateToken(t.Context(), alice(), access.NewToken{Name: "reader", Scopes: core.PermissionsOf(core.MayRead)})
	if err != nil {
		t.Fatal(err)
	}
	if a := must(f.access.Authenticate(t.Context(), narrow, false))(t); a.Somewhere() != core.PermissionsOf(core.MayRead) {
		t.Errorf("a token for reading: %v", a.Somewhere().List())
	}
	_, _, err = f.access.CreateToken(t.Context(), alice(), access.NewToken{Name: "wide", Scopes: core.PermissionsOf(core.MayConfigure)})
	if !fault.Is(err, fault.Denied) {
		t.Errorf("a token for more than its maker may: %v", err)
	}
	var data struct {
		Members struct {
			Nodes []struct {
				Name   string
				Grants []struct{ ID string }
			}
		}
	}
	f.ask(ours, `{ members { nodes { name grants { id } } } }`, nil).into(t, &data)
	if text := fmt.Sprint(data); !strings.Contains(text, "{alice@example.com [{grant_1}]}") {
		t.Errorf("members: %s", text)
	}
	for range 2 { // again changes nothing
		if p := f.change(ours, "revokeGrant", "grant", "id", map[string]any{"grantId": "grant_1", "reason": "off call"}); len(p.Errors) > 0 {
			t.Fatalf("%+v", p.Errors)
		}
	}
	if a := alice(); a.Somewhere().Has(core.MayApprove) {
		t.Error("a revoked grant counts")
	}
	if rows := f.audited(`action: "revokeGrant"`); len(rows) != 1 {
		t.Errorf("the journal of changes has %v", rows)
	}
	for name, bad := range map[string]map[string]any{
		"/memberId":      {"permissions": []string{"DEPLOY"}},
		"/permissions":   {"memberId": member, "permissions": []string{"ADMINISTER"}},
		"application_99": {"memberId": member, "permissions": []string{"DEPLOY"}, "applications": []string{"application_99"}},
	} {
		p := f.change(ours, "grantPermissions", "grant", "id", bad)
		if len(p.Errors) != 1 || !strings.Contains(fmt.Sprint(p.Errors), strings.TrimPrefix(name, "/")) {
			t.Errorf("%s: found %+v", name, p.Errors)
		}
	}
	// Nobody gives themselves more without the permission to administer.
	_, err = f.access.GrantPermissions(t.Context(), alice(), access.NewGrant{MemberID: 1, Permissions: everything()})
	if !fault.Is(err, fault.Denied) {
		t.Errorf("a viewer grants: %v", err)
	}
}

// blogConfig is how an application is deployed to staging, with some changes.
func blogConfig(change map[string]any) map[string]any {
	config := map[string]any{
		"namespace": "argocd", "application": "blog-staging", "rollout_strategy": "canary", "use_load_balancing": false,
		"repository_url": "https://git.example.com/shop.git", "path": "blog", "destination_namespace": "blog",
		"services": []map[string]any{{"service": "site", "file": "blog/site.yaml", "container": "site"}},
	}
	maps.Copy(config, change)
	return config
}

// TestAPipelineClaimsNothingOfOthers: who may configure staging alone cannot have its passage open what belongs to production, or to an
// application of others (D46, D50).
func TestAPipelineClaimsNothingOfOthers(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	staging := f.environment(ours, "staging", core.TierStaging)
	production := f.environment(ours, "production", core.TierProduction)
	shop, blog, wiki := f.application(ours, "shop", "api"), f.application(ours, "blog", "site"), f.application(ours, "wiki", "page")
	f.pipeline(ours, shop, production)
	f.pipeline(ours, wiki, staging)
	everywhere := limited(core.Grant{Permissions: everything(), Environments: []int64{staging.ID}})
	blogs := limited(core.Grant{Permissions: everything(), Environments: []int64{staging.ID}, Applications: []int64{blog.ID}})
	for _, tt := range []struct {
		name   string
		actor  core.Actor
		change map[string]any
		denied string
	}{
		{"its own", everywhere, nil, ""},
		{"the Application of production", everywhere, map[string]any{"application": "shop-production"}, "argocd/shop-production"},
		{"the namespace of production", everywhere, map[string]any{"destination_namespace": "shop"}, "namespace shop"},
		{"the files of production", everywhere, map[string]any{"path": "production"}, "production on branch"},
		{"one file of production", everywhere, map[string]any{
			"repository_url": "https://GIT.example.com:443/Shop", "services": []map[string]any{
				{"service": "site", "file": "production/other.yaml", "container": "site"},
			},
		}, "production on branch"},
		{"all files", everywhere, map[string]any{"path": "."}, "on branch"},
		{"another repository", everywhere, map[string]any{"path": "production", "repository_url": "https://git.example.com/blog"}, ""},
		{"another application in staging, which is not theirs", blogs, map[string]any{"application": "wiki-staging"}, "argocd/wiki-staging"},
		{"another application in staging", everywhere, map[string]any{"application": "wiki-staging"}, ""},
		{"anything, as an owner", actor(ours), map[string]any{"application": "shop-production"}, ""},
		{"what the owner has named already", everywhere, map[string]any{"application": "shop-production", "rollout_strategy": "blue_green"}, ""},
		{"a repository that is escaped twice", everywhere, map[string]any{"repository_url": "https://git.example.com/%2573hop"}, "several ways"},
		{"what is in a cluster without a part", everywhere, map[string]any{"destination_namespace": "legacy"}, ""},
	} {
		definition := must(json.Marshal(deployTo("staging", blogConfig(tt.change))))(t)
		_, err := f.setup.CreateFlowDefinition(t.Context(), tt.actor, setup.NewFlowDefinition{ApplicationID: blog.ID, Definition: definition})
		switch {
		case tt.denied == "" && err != nil:
			t.Errorf("%s: %v", tt.name, err)
		case tt.denied != "" && (!fault.Is(err, fault.Denied) || !strings.Contains(err.Error(), tt.denied)):
			t.Errorf("%s: found %v, want it denied because of %q", tt.name, err, tt.denied)
		}
	}
	must(f.setup.ArchiveEnvironment(t.Context(), actor(ours), production.ID, "moved"))(t)
	definition := must(json.Marshal(deployTo("staging", blogConfig(map[string]any{"destination_namespace": "shop"}))))(t)
	_, err := f.setup.CreateFlowDefinition(t.Context(), everywhere, setup.NewFlowDefinition{ApplicationID: blog.ID, Definition: definition})
	if !fault.Is(err, fault.Denied) || !strings.Contains(err.Error(), "namespace shop") {
		t.Errorf("what was deployed in an archived environment: found %v, want it denied", err)
	}
}

// TestASetupFindsNothingOfOthers: the objects in a repository's manifests are places that nobody has named in a pipeline. Those that
// belong to another environment do not become the application's (D46).
func TestASetupFindsNothingOfOthers(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	staging := f.environment(ours, "staging", core.TierStaging)
	production := f.environment(ours, "production", core.TierProduction)
	shop, blog := f.application(ours, "shop", "api"), f.application(ours, "blog", "site")
	f.pipeline(ours, shop, production)
	f.pipeline(ours, blog, staging)
	ae := must(f.view.ApplicationEnvironmentsByApplication(t.Context(), ours, []int64{blog.ID}))(t)[blog.ID][0]
	for _, tt := range []struct{ namespace, want string }{
		{"shop", `the setup found shop/site, which belongs to application_1 in environment "production"`},
		{"blog", ""},
		{"comments", ""},
	} {
		f.apply(ours, rollout.ApplicationEnvironmentReadiness{
			ApplicationEnvironmentID: ae.ID, Ready: true,
			Discovered: json.RawMessage(fmt.Sprintf(`{"services":{"site":{"rollout_name":"site","rollout_namespace":%q}}}`, tt.namespace)),
		})
		got := must(f.view.ApplicationEnvironmentsByApplication(t.Context(), ours, []int64{blog.ID}))(t)[blog.ID][0]
		if ready := got.Readiness == core.ReadinessReady; ready != (tt.want == "") || !strings.HasPrefix(got.ReadinessReason, tt.want) {
			t.Errorf("%s: found %s %q, want %q", tt.namespace, got.Readiness, got.ReadinessReason, tt.want)
		}
		if tt.want != "" && strings.Contains(string(got.Discovered), tt.namespace) {
			t.Errorf("%s: it is kept as %s", tt.namespace, got.Discovered)
		}
	}
}

// TestMoreFreezesThanOneMemberMaySet: who may freeze one application uses up neither the freezes of the organization, nor what is read of
// them, however many there are (D49, D50).
func TestMoreFreezesThanOneMemberMaySet(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	shop := f.application(ours, "shop", "api")
	now := clock.System().Now()
	ends := now.Add(time.Hour)
	_, err := f.owner.Exec(t.Context(), `INSERT INTO cd_freezes (organization_id, tiers, environment_ids, application_ids, rollbacks, reason,
		starts_at, ends_at, bounded_from, principal_type, principal_id, principal_name, created_at)
		SELECT $1, '{}', '{}', ARRAY[$2::bigint], false, 'full', $3, $4, $3, 'user', 9, 'lea', $3 FROM generate_series(1, $5)`,
		ours, shop.ID, now, ends, core.MaxFreezes/2)
	if err != nil {
		t.Fatal(err)
	}
	own := freeze.NewFreeze{ApplicationIDs: []int64{shop.ID}, Reason: "one more", EndsAt: ends}
	_, err = f.freezes.StartFreeze(t.Context(), limited(core.Grant{Permissions: everything(), Applications: []int64{shop.ID}}), own)
	if !fault.Is(err, fault.Refused) {
		t.Errorf("one more with a limited grant: found %v; want it refused", err)
	}
	all := must(f.freezes.StartFreeze(t.Context(), actor(ours), freeze.NewFreeze{Reason: "incident", EndsAt: ends.Add(time.Hour)}))(t)
	_, err = f.owner.Exec(t.Context(), `INSERT INTO cd_freezes (organization_id, tiers, environment_ids, application_ids, rollbacks, reason,
		starts_at, ends_at, bounded_from, principal_type, principal_id, principal_name, created_at)
		SELECT organization_id, tiers, environment_ids, application_ids, rollbacks, reason,
		starts_at, ends_at, bounded_from, principal_type, principal_id, principal_name, created_at FROM cd_freezes WHERE reason = 'full'`)
	if err != nil {
		t.Fatal(err)
	}
	found := must(f.store.FreezesInForce(t.Context(), ours, now))(t)
	if !slices.ContainsFunc(found, func(one core.Freeze) bool { return one.ID == all.ID }) {
		t.Errorf("found %d freezes, and not the one of the whole organization", len(found))
	}
}
