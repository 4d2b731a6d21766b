package graph_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/rollout"
)

// seen is one row of the matrix, as the tests write it: name, and the environments of the cells that are shown.
type seen struct {
	Application struct{ Name string }
	Cells       []struct{ Environment struct{ Name string } }
}

// matrix asks for a page, and writes its rows down: shop[qa production].
func (f *fixture) matrix(organization int64, filter string) string {
	f.t.Helper()
	var data struct{ Matrix struct{ Nodes []seen } }
	f.ask(organization, `{ matrix`+filter+` { nodes { application { name } cells { environment { name } } } } }`, nil).into(f.t, &data)
	rows := make([]string, len(data.Matrix.Nodes))
	for i, row := range data.Matrix.Nodes {
		names := make([]string, len(row.Cells))
		for j, c := range row.Cells {
			names[j] = c.Environment.Name
		}
		rows[i] = row.Application.Name + "[" + strings.Join(names, " ") + "]"
	}
	return strings.Join(rows, " ")
}

// lived is an organization with an application in each situation that the matrix distinguishes.
func (f *fixture) lived() (qa, production core.Environment) {
	f.t.Helper()
	qa, production = f.environment(ours, "qa", core.TierQA), f.environment(ours, "production", core.TierProduction)
	made := map[string]core.Application{}
	for _, name := range []string{"shop", "billing", "search", "idle"} {
		made[name] = f.application(ours, name, "api")
		f.pipeline(ours, made[name], qa, production)
	}
	f.application(ours, "bare", "api")
	// shop is live in qa and asks before production.
	shop := f.rollout(ours, made["shop"])
	f.apply(ours, rollout.EnvironmentMoved{RolloutID: shop.ID, EnvironmentID: qa.ID, Verb: core.VerbComplete})
	f.apply(ours, rollout.ApprovalRequested{RolloutID: shop.ID, GateID: "production", Reason: "go live?"})
	// billing has failed in qa; search asks somewhere in between, which holds up what comes next.
	billing := f.rollout(ours, made["billing"])
	f.apply(ours, rollout.EnvironmentMoved{RolloutID: billing.ID, EnvironmentID: qa.ID, Verb: core.VerbFail, Reason: "no"})
	search := f.rollout(ours, made["search"])
	f.apply(ours, rollout.EnvironmentMoved{RolloutID: search.ID, EnvironmentID: qa.ID, Verb: core.VerbComplete})
	f.apply(ours, rollout.ApprovalRequested{RolloutID: search.ID, GateID: "change-board"})
	services := must(f.view.ServicesByApplication(f.t.Context(), ours, []int64{made["shop"].ID, made["billing"].ID}))(f.t)
	at := time.Date(2026, 3, 25, 10, 0, 0, 0, time.UTC)
	f.apply(ours, rollout.HealthSeen{ServiceHealth: core.ServiceHealth{
		ServiceID: services[made["shop"].ID][0].ID, EnvironmentID: qa.ID,
		Health: core.HealthHealthy, ObservedAt: at,
	}})
	f.apply(ours, rollout.HealthSeen{ServiceHealth: core.ServiceHealth{
		ServiceID: services[made["billing"].ID][0].ID, EnvironmentID: qa.ID,
		Health: core.HealthDegraded, Reason: "5xx", ObservedAt: at,
	}})
	return qa, production
}

func TestTheMatrixIsFilteredOnTheServer(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.lived()
	for filter, want := range map[string]string{
		"":                       "bare[] billing[qa production] idle[qa production] search[qa production] shop[qa production]",
		`(filter: {})`:           "bare[] billing[qa production] idle[qa production] search[qa production] shop[qa production]",
		`(filter: {text: "SH"})`: "shop[qa production]",
		`(filter: {environments: ["production"]})`:                       "billing[production] idle[production] search[production] shop[production]",
		`(filter: {states: [FAILED]})`:                                   "billing[qa production]",
		`(filter: {states: [COMPLETED], environments: ["qa"]})`:          "search[qa] shop[qa]",
		`(filter: {states: [FAILED], environments: ["production"]})`:     "",
		`(filter: {health: [DEGRADED]})`:                                 "billing[qa production]",
		`(filter: {health: [DEGRADED, HEALTHY], text: "shop"})`:          "shop[qa production]",
		`(filter: {health: [DEGRADED], states: [COMPLETED]})`:            "",
		`(filter: {waiting: true})`:                                      "search[qa production] shop[qa production]",
		`(filter: {waiting: true, environments: ["qa"]})`:                "",
		`(filter: {waiting: false, environments: ["production"]})`:       "billing[production] idle[production]",
		`(filter: {drivers: ["argo-rollouts@1"], text: "idle"})`:         "idle[qa production]",
		`(filter: {drivers: ["nobody@1"]})`:                              "",
		`(filter: {drivers: ["argo-rollouts@1"], environments: ["qa"]})`: "billing[qa] idle[qa] search[qa] shop[qa]",
	} {
		if got := f.matrix(ours, filter); got != want {
			t.Errorf("matrix%s shows %q, want %q", filter, got, want)
		}
		if got := f.matrix(theirs, strings.NewReplacer(`, environments: ["qa"]`, "", `, environments: ["production"]`,
			"", `environments: ["production"]`, "").Replace(filter)); got != "" {
			t.Errorf("matrix%s shows another organization %q", filter, got)
		}
	}
	if a := f.ask(ours, `{ matrix(filter: {environments: ["nowhere"]}) { nodes { application { name } } } }`, nil); len(a.Errors) == 0 ||
		a.Errors[0].Extensions.Code != "NOT_FOUND" {
		t.Errorf("an environment that does not exist: %+v; want NOT_FOUND", a.Errors)
	}
}

func TestTheMatrixIsPagedInAnyFilter(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.lived()
	for _, filter := range []string{"", `, filter: {waiting: true}`, `, filter: {health: [HEALTHY, DEGRADED]}`} {
		whole, paged, after := f.matrix(ours, "(first: 50"+filter+")"), []string{}, ""
		for range 10 {
			var data struct {
				Matrix struct {
					Nodes    []seen
					PageInfo struct {
						HasNextPage bool
						EndCursor   string
					}
				}
			}
			f.ask(ours, fmt.Sprintf(`{ matrix(first: 1, after: %q%s) { nodes { application { name } } pageInfo { hasNextPage endCursor } } }`,
				after, filter), nil).into(t, &data)
			for _, row := range data.Matrix.Nodes {
				paged = append(paged, row.Application.Name)
			}
			if !data.Matrix.PageInfo.HasNextPage {
				break
			}
			after = data.Matrix.PageInfo.EndCursor
		}
		for i, part := range strings.Fields(strings.NewReplacer("[qa production]", "", "[]", "").Replace(whole)) {
			if i >= len(paged) || paged[i] != part {
				t.Errorf("page by page%s: %q, at once: %q", filter, paged, whole)
				break
			}
		}
	}
}

// TestACellShowsTheSituationOfItsEnvironment looks at every field of the cells that people act on.
func TestACellShowsTheSituationOfItsEnvironment(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.lived()
	var data struct {
		Matrix struct {
			Nodes []struct {
				Newest struct{ Name string }
				Cells  []struct {
					Live, LatestVersionSet *struct{ Name string }
					LiveSince              *time.Time
					State                  *string
					Health                 string
					Gates                  []struct{ GateID string }
				}
			}
		}
	}
	f.ask(ours, `{ matrix(filter: {text: "s"}) { nodes { newest { name } cells { live { name } liveSince latestVersionSet { name } state health gates { gateId } } } } }`, nil).into(t, &data)
	var got []string
	for _, row := range data.Matrix.Nodes {
		for _, c := range row.Cells {
			state, gates := "", ""
			if c.State != nil {
				state = *c.State
			}
			for _, g := range c.Gates {
				gates += g.GateID
			}
			if (c.Live != nil) != (c.LiveSince != nil) || c.LatestVersionSet == nil || c.LatestVersionSet.Name != row.Newest.Name {
				t.Errorf("cell %+v", c)
			}
			got = append(got, fmt.Sprintf("%v %s %s %s", c.Live != nil, state, c.Health, gates))
		}
	}
	want := "true COMPLETED UNKNOWN |false PENDING UNKNOWN change-board|true COMPLETED HEALTHY |false PENDING UNKNOWN production"
	if strings.Join(got, "|") != want {
		t.Errorf("cells are\n%s\nwant\n%s", strings.Join(got, "|"), want)
	}
}

func TestADriverConfigurationIsValidatedWithoutBeingKept(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ask := func(driver, kind string, config any) (answer, string) {
		a := f.ask(ours, `query($driver: String!, $kind: DriverConfigKind, $config: JSON!) { validateDriverConfig(driverRef: $driver, kind: $kind, config: $config) { pointer message } }`,
			map[string]any{"driver": driver, "kind": kind, "config": config})
		var data struct {
			ValidateDriverConfig []struct{ Pointer, Message string }
		}
		if len(a.Errors) > 0 {
			return a, ""
		}
		if err := json.Unmarshal(a.Data, &data); err != nil {
			t.Fatal(err)
		}
		pointers := make([]string, len(data.ValidateDriverConfig))
		for i, p := range data.ValidateDriverConfig {
			pointers[i] = p.Pointer
			if p.Message == "" {
				t.Errorf("%s: says nothing", p.Pointer)
			}
		}
		return a, strings.Join(pointers, " ")
	}
	for _, c := range []struct {
		kind   string
		config any
		want   string
	}{
		{"ENVIRONMENT", map[string]any{"cluster_agent_id": 42}, ""},
		{"ENVIRONMENT", map[string]any{"cluster_agent_id": "forty-two"}, "/cluster_agent_id"},
		{"APPLICATION_ENVIRONMENT", map[string]any{
			"namespace": "argocd", "application": "shop", "rollout_strategy": "canary", "use_load_balancing": false,
			"repository_url": "https://git.example.com/shop.git",
			"path":           "qa", "destination_namespace": "shop",
			"services": []any{map[string]any{"service": "api", "file": "qa/api.yaml", "container": 7}},
		}, "/services/0/container"},
	} {
		if _, got := ask("argo-rollouts@1", c.kind, c.config); got != c.want {
			t.Errorf("%s %v: found problems at %q, want %q", c.kind, c.config, got, c.want)
		}
	}
	if a, _ := ask("nobody@1", "ENVIRONMENT", map[string]any{}); len(a.Errors) == 0 || a.Errors[0].Extensions.Code != "NOT_FOUND" {
		t.Errorf("an unknown driver: %+v; want NOT_FOUND", a.Errors)
	}
}
