package domain

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/intake"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/notify"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/policy"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/setup"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/trigger"
)

// show gives an environment another display name.
func (f *fixture) show(environment int64, name string) error {
	n := setup.Displaying{ID: environment, DisplayName: name, Reason: "as people call it"}
	_, err := f.setup.RenameEnvironment(f.t.Context(), user(), n)
	return err
}

// showService gives a service another display name.
func (f *fixture) showService(service int64, name string) error {
	_, err := f.setup.RenameService(f.t.Context(), user(), setup.Displaying{ID: service, DisplayName: name, Reason: "as people call it"})
	return err
}

// found is the environment of a name or a display name; 0 for none.
func (f *fixture) found(name string) int64 {
	f.t.Helper()
	e, err := f.view.EnvironmentByName(f.t.Context(), org, name)
	if !fault.Is(err, fault.NotFound) {
		f.ok(err)
	}
	return e.ID
}

func (f *fixture) conflicts(err error) {
	f.t.Helper()
	if fields := fault.FieldsOf(err); !fault.Is(err, fault.Conflict) || len(fields) != 1 || fields[0].Name != "/displayName" {
		f.t.Errorf("a name that is taken: found %v; want a conflict with its field", err)
	}
}

// D57: an environment is shown by another name and found by both; its own name takes the display name away. The journal has each change
// once, under the name that it was made with.
func TestAnEnvironmentIsRenamed(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	for range 2 { // the second time is a no-op
		s.ok(s.show(s.production.ID, "live"))
	}
	s.want([]int64{s.found("live"), s.found("production"), s.found("liv")}, []int64{s.production.ID, s.production.ID, 0})
	all, err := s.view.EnvironmentsByID(t.Context(), org, []int64{s.production.ID, s.staging.ID})
	s.ok(err)
	s.want([]string{all[s.production.ID].Name, all[s.production.ID].DisplayName, all[s.staging.ID].DisplayName},
		[]string{"production", "live", "staging"})
	page, err := s.view.Environments(t.Context(), org, core.EnvironmentFilter{Contains: "LIV"}, core.Page{First: 5})
	s.ok(err)
	count, err := s.view.CountEnvironments(t.Context(), org, core.EnvironmentFilter{Contains: "liv"})
	s.ok(err)
	s.want([]int{len(page.Nodes), count}, []int{1, 1})
	s.ok(s.show(s.production.ID, "main"))
	var before, after, subject string
	s.ok(s.pool.QueryRow(t.Context(), `SELECT before::text, after::text, subject_name FROM cd_changes WHERE action = 'renameEnvironment' ORDER BY id DESC LIMIT 1`).
		Scan(&before, &after, &subject))
	s.want([]string{before, after, subject}, []string{`{"display_name": "live"}`, `{"display_name": "main"}`, "production"})
	s.ok(s.show(s.production.ID, "production")) // its own name
	s.want([]int64{s.found("main"), s.found("live"), s.found("production")}, []int64{0, 0, s.production.ID})
	s.want(s.countOf(`SELECT count(*) FROM cd_environments WHERE display_name IS NOT NULL`), 0)
	s.want(s.countOf(`SELECT count(*) FROM cd_changes WHERE action = 'renameEnvironment' AND reason = 'as people call it'`), 3)
	_, err = s.setup.ArchiveEnvironment(t.Context(), user(), s.production.ID, "")
	s.ok(err)
	s.ok(s.show(s.production.ID, "former")) // as what describes it
	s.want(s.found("former"), s.production.ID)
}

// D57: what is shown is no name of another environment, nor shown of another one, whichever came first.
func TestNamesAndDisplayNamesOfEnvironmentsAreApart(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	for _, name := range []string{"production", "Production"} {
		s.conflicts(s.show(s.staging.ID, name))
	}
	s.ok(s.show(s.production.ID, "PRODUCTION")) // its own in another case
	s.ok(s.show(s.staging.ID, "live"))
	err := s.show(s.production.ID, "live")
	if s.conflicts(err); !strings.Contains(fmt.Sprint(err), "environment live (staging) is called") {
		t.Errorf("found %v; want the environment that is shown so", err)
	}
	s.conflicts(s.show(s.production.ID, "Live"))
	_, err = s.setup.CreateEnvironment(t.Context(), user(), setup.NewEnvironment{
		Name: "Live", Tier: core.TierQA, DriverRef: paper, DriverConfig: json.RawMessage(`{"drawer":3}`),
	})
	if !fault.Is(err, fault.Conflict) {
		t.Errorf("an environment that is made with a display name: found %v; want a conflict", err)
	}
	if err := s.show(s.staging.ID, "a name"); !fault.Is(err, fault.Invalid) || len(fault.FieldsOf(err)) != 1 {
		t.Errorf("a name with a space: found %v; want it refused with its field", err)
	}
	if err := s.show(9999, "live"); !fault.Is(err, fault.NotFound) {
		t.Errorf("one that does not exist: found %v", err)
	}
	s.ok(s.show(s.staging.ID, "staging"))
	s.environment("live", core.TierQA) // it is free again
	s.conflicts(s.show(s.staging.ID, "live"))
}

// D57: of those who take a name at once, as a name or as what is shown, one wins.
func TestANameIsTakenOnce(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	for round := range 5 {
		name := fmt.Sprintf("live-%d", round)
		var wg sync.WaitGroup
		failed := make([]error, 3)
		wg.Go(func() { failed[0] = s.show(s.staging.ID, name) })
		wg.Go(func() { failed[1] = s.show(s.production.ID, name) })
		wg.Go(func() {
			_, failed[2] = s.setup.CreateEnvironment(t.Context(), user(), setup.NewEnvironment{
				Name: name, Tier: core.TierQA, DriverRef: paper, DriverConfig: json.RawMessage(`{"drawer":3}`),
			})
		})
		wg.Wait()
		won := 0
		for _, err := range failed {
			if err == nil {
				won++
			} else if !fault.Is(err, fault.Conflict) {
				t.Errorf("found %v; want a conflict", err)
			}
		}
		s.want(won, 1)
	}
}

// D57: a replica that does not know display names, as of the release before, makes no environment and no service with one.
func TestAReplicaOfBeforeTakesNoDisplayName(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.ok(s.show(s.production.ID, "live"))
	s.ok(s.showService(s.serviceNamed(s.application, "web").ID, "front"))
	for _, statement := range []string{
		`INSERT INTO cd_environments (organization_id, name, description, tier) VALUES (1, 'live', '', 'qa')`,
		`INSERT INTO cd_services (organization_id, application_id, name, description) SELECT 1, id, 'front', '' FROM cd_applications WHERE name = 'shop'`,
	} {
		if _, err := s.pool.Exec(t.Context(), statement); err == nil || !strings.Contains(err.Error(), "is that of another one") {
			t.Errorf("%s: found %v; want it refused", statement, err)
		}
	}
}

// D57, D51: policies decide about the change by the name that the environment was made with, also once it is shown by another one; who may
// not configure the environment, or everything that the application of a service goes to, renames nothing.
func TestWhoRenamesEnvironmentsAndServices(t *testing.T) {
	t.Parallel()
	w := frozen(t)
	api := w.serviceNamed(w.application, "api")
	one := user()
	one.Permissions = 0
	one.Grants = []core.Grant{{Permissions: core.PermissionsOf(core.MayConfigure), Environments: []int64{w.staging.ID}}}
	// Also its own: the name may be one that others write, or that an environment is to be made with.
	_, err := w.setup.RenameEnvironment(t.Context(), one, setup.Displaying{ID: w.staging.ID, DisplayName: "eu-production"})
	if !fault.Is(err, fault.Denied) {
		t.Errorf("an environment: found %v; want it denied", err)
	}
	if _, err = w.setup.RenameService(t.Context(), one, setup.Displaying{ID: api.ID, DisplayName: "mine"}); !fault.Is(err, fault.Denied) {
		t.Errorf("a service: found %v; want it denied", err)
	}
	w.put(policy.NewPolicySet{Text: `@id("base") permit (principal, action == Action::"control.change", resource);
		@id("fixed") forbid (principal, action == Action::"control.change", resource)
			when { ["renameEnvironment", "renameService"].contains(context.action) && ["production", "api"].contains(resource.name) };`})
	w.refused(w.show(w.production.ID, "live"), "rules/fixed denies it")
	w.refused(w.showService(api.ID, "backend"), "rules/fixed denies it")
	w.ok(w.show(w.staging.ID, "api"))
	w.ok(w.showService(w.serviceNamed(w.application, "web").ID, "production"))
	w.want(w.countOf(`SELECT count(*) FROM cd_environments WHERE display_name = 'live'`), 0)
}

// D57: a service is shown by another name, which no other one of its application has; the other rules are those of environments.
func TestAServiceIsRenamed(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	api, web := s.serviceNamed(s.application, "api"), s.serviceNamed(s.application, "web")
	for range 2 {
		s.ok(s.showService(api.ID, "backend"))
	}
	s.conflicts(s.showService(web.ID, "backend"))
	s.conflicts(s.showService(web.ID, "api"))
	_, err := s.setup.AddService(t.Context(), user(), s.application.ID, setup.NewService{
		Name: "backend", ArtifactSources: []setup.NewArtifactSource{ociSource("registry.test/shop/backend")},
	}, "")
	if !fault.Is(err, fault.Conflict) {
		t.Errorf("a service that is made with a display name: found %v; want a conflict", err)
	}
	blog := s.fixture.application("blog", "backend") // names are those of one application
	s.ok(s.showService(s.serviceNamed(blog, "backend").ID, "api"))
	s.want(s.serviceNamed(s.application, "api").DisplayName, "backend")
	var before, after, subject string
	s.ok(s.pool.QueryRow(t.Context(), `SELECT before::text, after::text, subject_name FROM cd_changes WHERE action = 'renameService' AND application_id = $1`,
		s.application.ID).Scan(&before, &after, &subject))
	s.want([]string{before, after, subject}, []string{`{"display_name": "api"}`, `{"display_name": "backend"}`, "api"})

	first := s.sets()[0]
	s.release(2)
	made, err := s.intake.CreateVersionSet(t.Context(), user(), intake.NewCurated{
		Application: s.application.ID, From: first.ID, Choices: []intake.Choice{{Service: "backend", Version: "1.2"}},
	})
	s.ok(err)
	entries, err := s.view.EntriesByVersionSet(t.Context(), org, []int64{made.ID})
	s.ok(err)
	s.want(len(entries[made.ID]), 2)
	_, err = s.setup.RetireService(t.Context(), user(), web.ID, "")
	s.ok(err)
	s.ok(s.showService(web.ID, "former"))
	s.ok(s.showService(api.ID, "api"))
	s.want(s.countOf(`SELECT count(*) FROM cd_services WHERE display_name IS NOT NULL AND application_id = $1`, s.application.ID), 1)
}

// D57: a pipeline that names environments as they are shown is stored with their names, and everything else as it was written; so it goes
// where it went, whatever is shown by the display name later.
func TestAPipelineIsStoredWithNames(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.ok(s.show(s.staging.ID, "rehearsal"))
	s.ok(s.show(s.production.ID, "live"))
	text := func(staging, production string) json.RawMessage {
		return json.RawMessage(fmt.Sprintf(`{ "steps" : [ {"type":"deploy", "environment" :  %q, "config": {"folder":"rehearsal","colour":"red"}},
			{"type":"pause","name":"live","duration":60},
			{"environment":%q,"type":"deploy","follows":[%[1]q], "config":%[3]s}] }`, staging, production, appEnvConfig("live")))
	}
	found, err := s.setup.CheckFlowDefinition(t.Context(), user(), text("rehearsal", "live"))
	s.ok(err)
	s.want(len(found), 0)
	save := func(definition json.RawMessage) core.FlowDefinition {
		made, err := s.setup.CreateFlowDefinition(t.Context(), user(), setup.NewFlowDefinition{
			ApplicationID: s.application.ID, Definition: definition,
		})
		s.ok(err)
		return made
	}
	made := save(text("rehearsal", "live"))
	s.want(string(made.Definition), string(text("staging", "production")))
	s.want(save(text("staging", "live")).Unchanged, true)
	s.ok(s.show(s.production.ID, "production"))
	s.ok(s.show(s.staging.ID, "live")) // another one has the name now
	latest, err := s.view.LatestFlowDefinitions(t.Context(), org, []int64{s.application.ID})
	s.ok(err)
	s.want(string(latest[s.application.ID].Definition), string(text("staging", "production")))
	if _, err := s.setup.CreateFlowDefinition(t.Context(), user(), setup.NewFlowDefinition{
		ApplicationID: s.application.ID, Definition: text("staging", "live"),
	}); !fault.Is(err, fault.Invalid) {
		t.Errorf("one environment twice: found %v; want it refused", err)
	}
	for _, broken := range []string{`{`, `[]`, `{"steps":"live"}`, `{"steps":[{"environment":["live"]}]}`, `{"steps":[{"type":"deploy","environment":"live"}]} live`} {
		if _, err := s.setup.CreateFlowDefinition(t.Context(), user(), setup.NewFlowDefinition{
			ApplicationID: s.application.ID, Definition: json.RawMessage(broken),
		}); !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: found %v; want it refused", broken, err)
		}
	}
}

// D57: triggers and routes are stored with names; a display name in a pattern's place is one, and a pattern is of names.
func TestTriggersAndRoutesAreStoredWithNames(t *testing.T) {
	t.Parallel()
	w := clocked(t)
	w.ok(w.show(w.staging.ID, "rehearsal"))
	w.ok(w.showService(w.serviceNamed(w.application, "web").ID, "front"))
	put := func(name string, kind core.TriggerKind, config string) (string, error) {
		made, err := w.triggers.PutTrigger(t.Context(), user(), trigger.NewTrigger{
			ApplicationID: w.application.ID, Name: name, Kind: kind, Config: json.RawMessage(config), Enabled: true,
		})
		return string(made.Config), err
	}
	for i, c := range []struct {
		kind         core.TriggerKind
		config, want string
	}{
		{core.TriggerVersion, `{"until":"rehearsal","services":["front","a*"]}`, `{"until": "staging", "services": ["web", "a*"]}`},
		{core.TriggerSchedule, `{"until":"staging","cron":"@daily"}`, `{"cron": "@daily", "until": "staging"}`},
		{core.TriggerDrift, `{"environments":["rehearsal","rehea*"],"window_seconds":60}`, `{"environments": ["staging", "rehea*"], "window_seconds": 60}`},
		{core.TriggerChain, `{"environment":"rehearsal","blocks":[{"labels":{"team":"web"}}]}`, `{"blocks": [{"labels": {"team": "web"}}], "environment": "staging"}`},
	} {
		stored, err := put(fmt.Sprintf("t-%d", i), c.kind, c.config)
		w.ok(err)
		w.want(stored, c.want)
	}
	_, err := w.notify.PutChannel(t.Context(), user(), notify.NewChannel{
		Name: "hook", Kind: core.NotifyWebhook, Config: json.RawMessage(`{"url":"https://hooks.example.com/cd"}`), Enabled: true,
	})
	w.ok(err)
	route, err := w.notify.PutRoute(t.Context(), user(), notify.NewRoute{
		Name: "all", Channel: "hook", Config: json.RawMessage(`{"environments":["rehearsal","prod*"]}`), Enabled: true,
	})
	w.ok(err)
	w.want(string(route.Config), `{"environments": ["staging", "prod*"]}`)
}

// D57: looking for the names in a pipeline takes memory as its size, however deep it is nested.
func TestADeepPipelineTakesLittleMemory(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	const depth = 2000
	member := `{"` + strings.Repeat("k", 90) + `":`
	definition := json.RawMessage(strings.Repeat(member, depth) + `{"steps":[]}` + strings.Repeat("}", depth))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	n := setup.NewFlowDefinition{ApplicationID: s.application.ID, Definition: definition}
	_, err := s.setup.CreateFlowDefinition(t.Context(), user(), n)
	runtime.ReadMemStats(&after)
	if !fault.Is(err, fault.Invalid) {
		t.Errorf("found %v; want it refused", err)
	}
	const most = 200 << 20 // other tests run beside this one; the paths alone would be 366 MB
	if used := after.TotalAlloc - before.TotalAlloc; used > most {
		t.Errorf("found %d MB; want at most %d", used>>20, most>>20)
	}
}
