package store

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/agent"
)

// TestLoadIsMeasured: each agent has a series of its own until it is revoked, and what can run is counted with the age of the oldest.
func TestLoadIsMeasured(t *testing.T) {
	t.Parallel()
	b := newTestStore(t)
	at := b.clock.Now()
	beats := []agent.Beat{{Agent: 1, At: at, Reachable: true}, {Agent: 2, At: at}, {Agent: 3, At: at, Reachable: true}}
	if err := b.SaveBeats(t.Context(), beats); err != nil {
		t.Fatal(err)
	}
	b.clock.Advance(5 * time.Minute)
	if err := b.SaveBeats(t.Context(), []agent.Beat{{Agent: 1, At: b.clock.Now(), Reachable: true}}); err != nil {
		t.Fatal(err)
	}
	if err := b.SaveAgents(t.Context(), []agent.Agent{{ID: 3, Organization: 1, Revoked: true}}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Pool.Exec(t.Context(), "INSERT INTO runnable (execution, since) VALUES (7, now() - interval '1 hour')"); err != nil {
		t.Fatal(err)
	}
	got := samples(t, Metrics(b.Pool, b.clock))
	if _, err := b.Pool.Exec(t.Context(), "DELETE FROM runnable"); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]float64{
		"lockstep_agent_heartbeat_age_seconds agent 1": 0, "lockstep_agent_heartbeat_age_seconds agent 2": 300,
		"lockstep_agent_cluster_reachable agent 1": 1, "lockstep_agent_cluster_reachable agent 2": 0,
		"lockstep_runs state runnable": 1, "lockstep_match_lock_waiting": 0,
	} {
		if value, ok := got[name]; !ok || value != want {
			t.Errorf("%s is %v (there: %t), want %v", name, value, ok, want)
		}
	}
	if value, ok := got["lockstep_agent_heartbeat_age_seconds agent 3"]; ok {
		t.Errorf("an agent that is revoked shows an age of %v, want none", value)
	}
	if age := got["lockstep_runs_oldest_runnable_age_seconds"]; age < 3600 {
		t.Errorf("the oldest runnable run is %v seconds old, want an hour", age)
	}
}

// samples are the values that a collector shows, by name and label.
func samples(t *testing.T, c prometheus.Collector) map[string]float64 {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(c)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, l := range m.GetLabel() {
				name += fmt.Sprintf(" %s %s", l.GetName(), l.GetValue())
			}
			all[name] = m.GetGauge().GetValue()
		}
	}
	return all
}
