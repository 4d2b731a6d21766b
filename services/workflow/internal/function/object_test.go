package function

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
)

// D46, issue 20: what a call of k8s.apply touches is what its relay will change: each object, the namespaces that it prunes, and for
// cluster-scoped objects all of the cluster. Arguments that leave a namespace open name nothing, and such a call is refused.
func TestWhatObjectsTouch(t *testing.T) {
	t.Parallel()
	object := func(version, kind, namespace, name string) any {
		metadata := m{"name": name}
		if namespace != "" {
			metadata["namespace"] = namespace
		}
		return m{"apiVersion": version, "kind": kind, "metadata": metadata}
	}
	at := func(namespace, name string) activity.Place {
		return activity.Place{Agent: 7, Namespace: namespace, Name: name}
	}
	for _, tt := range []struct {
		name, function string
		args           m
		want           []activity.Place
	}{
		{"objects", "k8s.apply", m{"namespace": "shop", "objects": []any{
			object("apps/v1", "Deployment", "", "api"),
			object("v1", "Service", "web", "w"),
		}}, []activity.Place{at("shop", "api"), at("web", "w")}},
		{"a namespace", "k8s.apply", m{"objects": []any{object("v1", "Namespace", "", "shop")}}, []activity.Place{at("shop", "")}},
		{"a kind that resembles one", "k8s.apply", m{"objects": []any{object("example.com/v1", "Namespace", "", "shop")}}, nil},
		{"without a namespace", "k8s.apply", m{"objects": []any{object("v1", "Service", "web", "w"), object("v1", "Service", "", "w")}}, nil},
		{"pruned", "k8s.apply", m{
			"prune": true, "namespace": "shop", "namespaces": []any{"old"},
			"objects": []any{object("v1", "Service", "web", "w")},
		}, []activity.Place{at("web", "w"), at("old", ""), at("shop", ""), at("web", "")}},
		{"cluster-scoped", "k8s.apply", m{
			"scope": "cluster", "namespace": "shop",
			"objects": []any{object("rbac.authorization.k8s.io/v1", "ClusterRole", "shop", "admin")},
		}, []activity.Place{{Agent: 7}}},
		{"a patch", "k8s.patch", m{"namespace": "shop", "name": "api"}, []activity.Place{at("shop", "api")}},
		{"deleting what is cluster-scoped", "k8s.delete", m{"name": "admin"}, []activity.Place{{Agent: 7}}},
	} {
		tt.args["agent_id"] = int64(7)
		f := named(t, &forge{}, tt.function)
		if diff := cmp.Diff(tt.want, f.Touches(tt.args)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
		if !activity.IsOwned(f) || f.EffectOf(tt.args) != activity.Changes {
			t.Errorf("%s: owned %v, effect %s", tt.name, activity.IsOwned(f), f.EffectOf(tt.args))
		}
	}
	if f := named(t, &forge{}, "k8s.apply"); f.EffectOf(m{"dry_run": true}) != activity.Reads ||
		f.EffectOf(m{"dry_run": "yes"}) != activity.Changes {
		t.Error("only a dry run reads")
	}
}

// Secrets never become part of a history, not even as arguments that are refused later; numbers of objects are bounded.
func TestObjectsThatAreRefused(t *testing.T) {
	t.Parallel()
	f := named(t, &forge{}, "k8s.apply")
	for want, objects := range map[string][]any{
		"expected 1 to 2000": {},
		"found 2001 objects": make([]any, 2001),
		"objects[0].kind":    {m{"apiVersion": "v1", "kind": "Secret", "metadata": m{"name": "x"}}},
	} {
		for i := range objects {
			if objects[i] == nil {
				objects[i] = m{}
			}
		}
		if err := f.Check(m{"agent_id": int64(7), "objects": objects}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: found %v", want, err)
		}
	}
}
