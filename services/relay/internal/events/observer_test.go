package events

import (
	"encoding/json"
	"log/slog"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/relay/internal/core"
)

var noon = time.Date(2026, 3, 25, 12, 0, 0, 0, time.UTC)

func TestASetOfWatchesIsAccepted(t *testing.T) {
	t.Parallel()
	var got []core.WatchSet
	r := NewReceiver(ReceiverDeps{
		Agent: 42, Clock: clock.System(), Log: slog.New(slog.DiscardHandler), Limit: 1, Watch: func(s core.WatchSet) { got = append(got, s) },
	})
	wanted := func(agent int64) event.Event {
		e, err := event.New(event.Header{ID: "1", Source: "/services/workflow", Time: noon}, event.WatchesWanted{
			AgentID: agent, AsOf: noon.Format(time.RFC3339Nano), LeaseSeconds: 300, Watches: []event.Watch{
				{Watch: "r/0.1", Kind: "Rollout", APIVersion: "argoproj.io/v1alpha1", Namespace: "shop", Name: "api", Fields: []string{"status.phase"}},
				{Watch: "r/0.2", Kind: "Pod", Namespace: "shop", Labels: "app=api", Fields: []string{"status.phase"}},
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	if err := r.watch(wanted(43)); !fault.Is(err, fault.Invalid) || len(got) > 0 {
		t.Errorf("a set for another agent: %v, %v", err, got)
	}
	if err := r.watch(wanted(42)); err != nil {
		t.Fatal(err)
	}
	want := []core.WatchSet{{AsOf: noon, Lease: 5 * time.Minute, Watches: []core.Watch{
		{
			ID: "r/0.1", Fields: []string{"status.phase"},
			Selection: core.Selection{Kind: core.Kind{APIVersion: "argoproj.io/v1alpha1", Kind: "Rollout"}, Namespace: "shop", Name: "api"},
		},
		{
			ID: "r/0.2", Fields: []string{"status.phase"},
			Selection: core.Selection{Kind: core.Kind{Kind: "Pod"}, Namespace: "shop", Labels: "app=api"},
		},
	}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("set (-want +got):\n%s", diff)
	}
}

func TestObservationsAreEventsOfTheContract(t *testing.T) {
	t.Parallel()
	rollout := core.Watch{ID: "r/0.1", Selection: core.Selection{Kind: core.Kind{Kind: "Rollout"}, Namespace: "shop", Name: "api"}}
	service := core.Watch{ID: "r/0.2", Selection: core.Selection{Kind: core.Kind{Kind: "Service"}, Namespace: "shop", Name: "web"}}
	status := core.Object{"status": map[string]any{
		"phase": "Paused", "currentStepIndex": int64(1), "stableRS": "abc", "currentPodHash": "def",
		"pauseConditions": []any{map[string]any{"reason": "CanaryPauseStep"}},
	}}
	for _, tc := range []struct {
		name         string
		seen         core.Observation
		source, want string
	}{
		{
			"rollout", core.Observation{Watch: rollout, Name: "api", Object: status}, "/agents/42/namespaces/shop/rollouts/api", // E71
			`{"agent_id":42,"rollout_name":"api","namespace":"shop","phase":"Paused","current_step_index":1,"stable_rs":"abc","current_pod_hash":"def",
				"pause_conditions":[{"reason":"CanaryPauseStep"}],"abort":false,"watch":"r/0.1","observed_at":"2026-03-25T12:00:00Z",
				"object":{"status":{"currentPodHash":"def","currentStepIndex":1,"pauseConditions":[{"reason":"CanaryPauseStep"}],"phase":"Paused","stableRS":"abc"}}}`,
		},
		{
			"rollout that is gone",
			core.Observation{Watch: rollout, Name: "api"},
			"/agents/42",
			`{"agent_id":42,"watch":"r/0.1","kind":"Rollout","namespace":"shop","name":"api","found":false,"observed_at":"2026-03-25T12:00:00Z"}`,
		},
		{
			"service",
			core.Observation{Watch: service, Name: "web", Object: core.Object{"spec": map[string]any{"n": 1}}},
			"/agents/42",
			`{"agent_id":42,"watch":"r/0.2","kind":"Service","namespace":"shop","name":"web","found":true,"object":{"spec":{"n":1}},"observed_at":"2026-03-25T12:00:00Z"}`,
		},
		{
			"no rights",
			core.Observation{Watch: service, Name: "web", Err: &core.Error{Code: "forbidden", Message: "no"}},
			"/agents/42",
			`{"agent_id":42,"watch":"r/0.2","kind":"Service","namespace":"shop","name":"web","found":false,"error":{"code":"forbidden","message":"no"},"observed_at":"2026-03-25T12:00:00Z"}`,
		},
	} {
		bus := &outgoing{}
		tc.seen.At = noon
		if err := (Observer{Agent: 42, Bus: bus}).Observe(t.Context(), tc.seen); err != nil {
			t.Fatalf("%s: %v", tc.name, err)
		}
		e := bus.all()[0]
		if diff := cmp.Diff(plain(t, []byte(tc.want)), plain(t, e.Data())); diff != "" || e.Source() != tc.source {
			t.Errorf("%s: source %s (-want +got):\n%s", tc.name, e.Source(), diff)
		}
	}
}

func plain(t *testing.T, data []byte) (v any) {
	t.Helper()
	if err := json.Unmarshal(data, &v); err != nil {
		t.Fatal(err)
	}
	return v
}
