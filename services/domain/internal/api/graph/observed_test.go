package graph_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/drift"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/rollout"
)

// What standing observers see is shown to viewers of the environment, and to nobody else (R46, E58).
func TestWhatIsObservedIsShown(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	staging := f.environment(ours, "staging", core.TierStaging)
	f.environment(theirs, "staging", core.TierStaging)
	shop := f.application(ours, "shop", "api")
	f.pipeline(ours, shop, staging)
	services, err := f.view.ServicesByApplication(t.Context(), ours, []int64{shop.ID})
	if err != nil {
		t.Fatal(err)
	}
	all, err := f.view.ApplicationEnvironmentsByApplication(t.Context(), ours, []int64{shop.ID})
	if err != nil {
		t.Fatal(err)
	}
	at := time.Date(2026, 3, 25, 10, 0, 0, 0, time.UTC)
	f.apply(ours, rollout.HealthSeen{ServiceHealth: core.ServiceHealth{
		ServiceID: services[shop.ID][0].ID, EnvironmentID: staging.ID,
		Health: core.HealthDegraded, Reason: "timed out", ObservedAt: at,
	}})
	f.apply(ours, rollout.ContactSeen{Contact: core.Contact{EnvironmentID: staging.ID, Reason: "agent 42 is offline", ObservedAt: at}})
	f.apply(ours, rollout.Reconciled{Reconciliation: core.Reconciliation{
		ApplicationEnvironmentID: all[shop.ID][0].ID, Revision: "abc", ExpectedRevision: "def", Automatic: true,
		Objects: drift.InWords("automated sync is on"), ObservedAt: at,
	}})
	const query = `{
		environment(name: "staging") { contact { reachable reason since } healths { service { name } health reason since } }
		application(name: "shop") { environments { reconciliation { revision expectedRevision automatic drift } } }
	}`
	for organization, want := range map[int64]string{
		ours: `{"environment":{"contact":{"reachable":false,"reason":"agent 42 is offline","since":"2026-03-25T10:00:00Z"},
			"healths":[{"service":{"name":"api"},"health":"DEGRADED","reason":"timed out","since":"2026-03-25T10:00:00Z"}]},
			"application":{"environments":[{"reconciliation":{"revision":"abc","expectedRevision":"def","automatic":true,"drift":"automated sync is on"}}]}}`,
		theirs: `{"environment":{"contact":null,"healths":[]},"application":null}`,
	} {
		var wanted, got any
		if err := json.Unmarshal([]byte(want), &wanted); err != nil {
			t.Fatal(err)
		}
		a := f.ask(organization, query, nil)
		if err := json.Unmarshal(a.Data, &got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(wanted, got); diff != "" {
			t.Errorf("organization %d sees (-want +got):\n%s", organization, diff)
		}
	}
}
