package function

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/agent"
)

// watches keeps what was opened and closed.
type watches struct {
	agent.WatchStore
	opened []agent.Watch
	closed []string
}

func (w *watches) OpenWatch(_ context.Context, watch agent.Watch) error {
	w.opened = append(w.opened, watch)
	return nil
}

func (w *watches) CloseWatch(_ context.Context, execution, watch string) (int64, error) {
	w.closed = append(w.closed, execution+" "+watch)
	return int64(len(watch)), nil
}

// owner is one agent and whose it is.
type owner struct{ agent, organization int64 }

func (o owner) Problem(_ context.Context, organization, agent int64) (string, error) {
	if o == (owner{agent, organization}) {
		return "", nil
	}
	return fmt.Sprintf("found %d, expected an agent of organization %d", agent, organization), nil
}

func TestWatch(t *testing.T) {
	t.Parallel()
	store, changed := &watches{}, []int64{}
	functions := Watching(WatchDeps{
		Store: store, Agents: owner{42, 5}, Changed: func(agent int64) { changed = append(changed, agent) },
	})
	if r, err := activity.NewFunctions(functions...); err != nil || strings.Join(r.Names(), " ") != "k8s.observe k8s.unwatch k8s.watch" {
		t.Fatal(r, err)
	}
	args := m{
		"agent_id": int64(42), "kind": "Rollout", "namespace": "shop", "name": "api", "fields": []any{"status.phase"},
		"subject": m{"rollout_id": int64(12)},
	}
	got, err := functions[0].Call(t.Context(), activity.Call{ID: "run/3.7", Organization: 5, Args: args})
	want := m{"watch": "run/3.7", "types": []string{"com.gitlab.cd.argo.rollout.status_changed", "com.gitlab.cd.object.changed"}}
	if diff := cmp.Diff(any(want), got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	opened := []agent.Watch{{ID: "run/3.7", Execution: "run", Agent: 42, Spec: agent.WatchSpec{
		Kind: "Rollout", Namespace: "shop",
		Name: "api", Fields: []string{"status.phase"}, Subject: map[string]int64{"rollout_id": 12},
	}}}
	if diff := cmp.Diff(opened, store.opened); diff != "" {
		t.Errorf("opened (-want +got):\n%s", diff)
	}
	got, err = functions[1].Call(t.Context(), activity.Call{ID: "run/3.8", Args: m{"watch": "run/3.7"}})
	if diff := cmp.Diff(any(m{"closed": true}), got); diff != "" || err != nil || store.closed[0] != "run run/3.7" {
		t.Errorf("%v %v (-want +got):\n%s", store.closed, err, diff)
	}
	if diff := cmp.Diff([]int64{42, 7}, changed); diff != "" {
		t.Errorf("agents that are notified (-want +got):\n%s", diff)
	}
	for name, tc := range map[string]struct {
		with m
		want string
	}{
		"another agent":  {m{"agent_id": int64(43)}, "agent_id: found 43, expected an agent of organization 5"},
		"a secret":       {m{"kind": "Secret"}, `kind: found "Secret"`},
		"nothing":        {m{"name": nil}, "name: expected either a name or labels"},
		"both":           {m{"labels": "app=x"}, "name: expected either a name or labels"},
		"no field":       {m{"fields": []any{}}, "fields: found none"},
		"its own member": {m{"subject": m{"watch": int64(1)}}, `subject: found a member "watch"`},
		"not one string": {m{"fields": []any{int64(3)}}, "fields[0]: found 3, expected a non-empty string"},
	} {
		broken := m{}
		for k, v := range args {
			broken[k] = v
		}
		for k, v := range tc.with {
			broken[k] = v
		}
		if _, err := functions[0].Call(t.Context(), activity.Call{ID: "run/3.9", Organization: 5, Args: broken}); err == nil ||
			!strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %s", name, err, tc.want)
		}
	}
	if len(store.opened) != 1 {
		t.Errorf("%d watches were opened, want 1", len(store.opened))
	}
}
