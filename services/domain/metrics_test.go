package domain

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/services/domain/internal/store"
)

// TestWhatWaitsIsMeasured: gates that wait for people and starts that the workflow service has not confirmed are numbers of their own, of
// all organizations, read as the service that may see one organization at a time.
func TestWhatWaitsIsMeasured(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.group("release-managers", 2)
	s.asking("", "", `"quorum":2,"group":"release-managers","reason":"half of the traffic"`)
	s.handOver()
	measure := func(name string, want float64) {
		t.Helper()
		if got := gauges(t, store.Metrics(s.pool))[name]; got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	measure("lockstep_handoffs_due", 0)
	measure("lockstep_gates_waiting", 0)
	r := s.rollout(s.set)
	measure("lockstep_handoffs_due", 1)
	s.handOver()
	measure("lockstep_handoffs_due", 0)
	s.report(event.ApprovalRequested{RolloutID: r.ID, GateID: "production/50", EnvironmentID: s.production.ID, Weight: 50})
	s.report(event.ApprovalRequested{RolloutID: r.ID, GateID: "release"})
	measure("lockstep_gates_waiting", 2)
	s.ok(s.approve(person(7), r, "release"))
	s.ok(s.approve(person(7, "release-managers"), r, "production/50"))
	measure("lockstep_gates_waiting", 1)
	s.ok(s.approve(person(8, "release-managers"), r, "production/50"))
	measure("lockstep_gates_waiting", 0)
	measure("lockstep_gates_oldest_age_seconds", 0)
}

// gauges are the values that a collector shows, by name.
func gauges(t *testing.T, c prometheus.Collector) map[string]float64 {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(c)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]float64{}
	for _, f := range families {
		all[f.GetName()] = f.GetMetric()[0].GetGauge().GetValue()
	}
	return all
}
