package function

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/agent"
)

type observers struct {
	agent.ReportStore
	saved []agent.StandingReport
}

func (o *observers) SaveObserver(_ context.Context, observer agent.StandingReport) (bool, error) {
	o.saved = append(o.saved, observer)
	return len(o.saved) == 1, nil
}

func TestObserve(t *testing.T) {
	t.Parallel()
	store, changed := &observers{}, 0
	deps := WatchDeps{Observers: store, Agents: owner{42, 5}, Changed: func(int64) { changed++ }}
	f := deps.observe()
	args := m{
		"agent_id": int64(42), "report": "argo.health", "namespace": "shop", "name": "api",
		"subject": m{"environment_id": int64(3), "service_id": 4.0},
	}
	for _, want := range []bool{true, false} {
		got, err := f.Call(t.Context(), activity.Call{ID: "run/0.1", Organization: 5, Workflow: "rollout-9", Args: args})
		if diff := cmp.Diff(any(m{"changed": want}), got); diff != "" || err != nil {
			t.Errorf("%v (-want +got):\n%s", err, diff)
		}
	}
	want := agent.StandingReport{
		Organization: 5, Agent: 42, Report: "argo.health", Namespace: "shop", Name: "api", Run: "rollout-9",
		Subject: map[string]int64{"environment_id": 3, "service_id": 4},
	}
	if diff := cmp.Diff(want, store.saved[1]); diff != "" || changed != 1 {
		t.Errorf("%d agents were notified (-want +got):\n%s", changed, diff)
	}
	if key := want.Key(); key != "argo.health/environment_id=3,service_id=4" {
		t.Errorf("key %s", key)
	}
	for name, tc := range map[string]struct {
		with m
		want string
	}{
		"another agent": {m{"agent_id": int64(43)}, "agent_id: found 43"},
		"no object":     {m{"name": nil}, "name: expected name and namespace"},
		"another subject": {
			m{"subject": m{"environment_id": int64(3)}},
			"subject: found map[environment_id:3], expected [environment_id service_id]",
		},
		"not a number": {
			m{"subject": m{"environment_id": "x", "service_id": int64(4)}},
			`subject.environment_id: found "x", expected a whole number of at least 1`,
		},
		"another report":   {m{"report": "mood"}, `report: found "mood", expected one of argo.health, argo.reconciliation, agent`},
		"too many members": {m{"report": "agent"}, "subject: found map[environment_id:3 service_id:4], expected [environment_id]"},
	} {
		broken := m{}
		for k, v := range args {
			broken[k] = v
		}
		for k, v := range tc.with {
			broken[k] = v
		}
		if _, err := f.Call(t.Context(), activity.Call{ID: "run/0.2", Organization: 5, Workflow: "rollout-9", Args: broken}); err == nil ||
			!strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %s", name, err, tc.want)
		}
	}
}

// TestWhoMayObserve (D47): a report outlives its run, so only a run that the domain service has started for a row may register one. No
// other run can have such an id, nor can a child of one.
func TestWhoMayObserve(t *testing.T) {
	t.Parallel()
	args := m{"agent_id": int64(42), "report": "agent", "subject": m{"environment_id": int64(3)}}
	for run, may := range map[string]bool{
		"rollout-9": true, "environment-3-onboarding-1": true, "application-environment-4-setup-2": true,
		"": false, "nightly": false, "rollout-9x": false, "rollout-9/x": false, "child:1:rollout-9/0123": false, "agent": false,
	} {
		store := &observers{}
		f := WatchDeps{Observers: store, Agents: owner{42, 5}, Changed: func(int64) {}}.observe()
		_, err := f.Call(t.Context(), activity.Call{ID: "run/0.1", Organization: 5, Workflow: run, Args: args})
		if refused := err != nil && strings.Contains(err.Error(), "forbidden"); refused == may || len(store.saved) == 1 != may {
			t.Errorf("run %q: %v, with %d registrations, expected it to be admitted: %t", run, err, len(store.saved), may)
		}
	}
}
