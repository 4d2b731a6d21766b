package graph_test

import (
	"encoding/json"
	"testing"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/rollout"
)

// TestDeliveryMetricsWithoutDataAreNull asks before anything was delivered, and after: a metric without data is null, never 0.
func TestDeliveryMetricsWithoutDataAreNull(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.story() // ends with staging on its way, and a rollout that failed before it reached anything
	type entry struct {
		Environment                                             struct{ Name string }
		Deployments, Failures, Cancelled, Reworked, Unrecovered int
		DeploymentsPerDay                                       float64
		ChangeFailRate, ReworkRate                              *float64
		LeadTime, LeadTimePeople, LeadTimeMachine, RecoveryTime *struct{ Count int }
	}
	const document = `query($environment: String, $since: Time) { deliveryMetrics(application: "shop", environment: $environment, since: $since) {
		environment { name } deployments deploymentsPerDay failures cancelled changeFailRate reworked reworkRate unrecovered
		leadTime { count mean median p90 longest } leadTimePeople { count } leadTimeMachine { count } recoveryTime { count } } }`
	ask := func(variables map[string]any) []entry {
		var data struct{ DeliveryMetrics []entry }
		f.ask(ours, document, variables).into(t, &data)
		return data.DeliveryMetrics
	}
	before := ask(nil)
	if len(before) != 2 || before[0].Environment.Name != "staging" || before[1].Environment.Name != "production" {
		t.Fatalf("of the pipeline: %+v", before)
	}
	for _, e := range before {
		if e.Environment.Name = ""; e != (entry{}) {
			t.Errorf("of nothing: %+v", e)
		}
	}

	staging := must(f.view.EnvironmentByName(t.Context(), ours, "staging"))(t)
	f.apply(ours, rollout.EnvironmentMoved{RolloutID: 2, EnvironmentID: staging.ID, Verb: core.VerbComplete})
	after := ask(map[string]any{"environment": "staging"})
	if len(after) != 1 {
		t.Fatalf("of staging: %+v", after)
	}
	e := after[0]
	if e.Deployments != 1 || e.DeploymentsPerDay <= 0 || e.ChangeFailRate == nil || *e.ChangeFailRate != 0 || e.ReworkRate == nil ||
		*e.ReworkRate != 0 {
		t.Errorf("counts and rates: %+v", e)
	}
	if e.LeadTime == nil || e.LeadTime.Count != 1 || e.LeadTimePeople == nil || e.LeadTimeMachine == nil || e.RecoveryTime != nil {
		t.Errorf("durations: %+v", e)
	}
	a := f.ask(ours, document, map[string]any{"since": "2100-01-01T00:00:00Z"})
	if len(a.Errors) != 1 || a.Errors[0].Extensions.Code != "INVALID" {
		answered, _ := json.Marshal(a)
		t.Errorf("a window that ends before it begins: %s", answered)
	}
}
