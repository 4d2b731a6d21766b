package core

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestHealthComesFromAStatusOfTheNewestSpec(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ rollout, health, reason string }{
		"absent":  {"", "unknown", "Rollout shop/api does not exist"},
		"healthy": {`{"metadata":{"generation":2},"status":{"observedGeneration":"2","phase":"Healthy"}}`, "healthy", ""},
		"degraded": {
			`{"metadata":{"generation":2},"status":{"observedGeneration":"2","phase":"Degraded","message":"timed out"}}`,
			"degraded", "timed out",
		},
		"paused": {
			`{"metadata":{"generation":2},"status":{"observedGeneration":"2","phase":"Paused","message":"CanaryPauseStep"}}`,
			"progressing", "Paused",
		},
		"stale (D11)": {
			`{"metadata":{"generation":3},"status":{"observedGeneration":"2","phase":"Degraded"}}`, "progressing",
			"the controller has not seen the newest spec yet",
		},
		"without status": {
			`{"metadata":{"generation":1},"status":{"observedGeneration":"1"}}`, "unknown",
			"the controller has not reported a phase yet",
		},
	} {
		w := Watch{Report: ReportHealth, Selection: Selection{Kind: rolloutKind, Namespace: "shop", Name: "api"}}
		want := map[string]any{"health": tc.health, "reason": tc.reason}
		if diff := cmp.Diff(want, report(w, object(t, tc.rollout))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// E58: the live state, compared with what was deployed last.
func TestDrift(t *testing.T) {
	t.Parallel()
	state := func(by, at, phase string) string {
		return `"operationState":{"phase":"` + phase + `","syncResult":{"revision":"` + at +
			`"},"operation":{"initiatedBy":{"username":"` + by + `"}}}`
	}
	synced := func(at, status string) string { return `"sync":{"status":"` + status + `","revision":"` + at + `"}` }
	for name, tc := range map[string]struct {
		app, expected, want string
		automatic           bool
	}{
		"as deployed": {app: `{"status":{` + synced(revision, "Synced") + `,` + state("lockstep:c", revision, "Succeeded") +
			`}}`, expected: revision},
		"moved on by us, not known yet": {
			app:      `{"status":{` + synced(older, "Synced") + `,` + state("lockstep:c", older, "Succeeded") + `}}`,
			expected: revision,
		},
		"moved by a user": {
			app:      `{"status":{` + synced(older, "Synced") + `,` + state("ann", older, "Succeeded") + `}}`,
			expected: revision, want: "it is at " + older + ", expected " + revision + "; the last sync was started by ann",
		},
		"pointed elsewhere, not synced": {app: `{"status":{` + synced(older, "OutOfSync") + `,` + state("lockstep:c", revision, "Succeeded") +
			`}}`, expected: revision, want: "it is at " + older + ", expected " + revision + "; the last sync was started by lockstep:c"},
		"a user's sync is running": {
			app:      `{"status":{` + synced(older, "Synced") + `,` + state("ann", older, "Running") + `}}`,
			expected: revision,
		},
		"objects changed by hand": {
			app:      `{"status":{` + synced(revision, "OutOfSync") + `,` + state("ann", revision, "Succeeded") + `}}`,
			expected: revision, want: "it is out of sync with " + revision,
		},
		"changed by hand after our sync": {app: `{"status":{` + synced(revision, "OutOfSync") + `,` +
			state("lockstep:c", revision, "Succeeded") + `}}`, expected: revision, want: "it is out of sync with " + revision},
		"objects that differ (R4-11)": {
			app: `{"status":{` + synced(revision, "OutOfSync") + `,` + state("ann", revision, "Succeeded") + `,"resources":[
				{"kind":"Service","name":"api","status":"Synced"},{"kind":"Rollout","name":"api","status":"OutOfSync","health":{"status":"Healthy"}},
				{"kind":"ConfigMap","name":"old","status":"OutOfSync","requiresPruning":true},
				{"kind":"ConfigMap","name":"new","status":"OutOfSync","health":{"status":"Missing"}}]}}`,
			expected: revision,
			want:     "it is out of sync with " + revision + ": ConfigMap/new is missing, ConfigMap/old is extra, Rollout/api differs",
		},
		"auto-sync is on again": {
			app:      `{"spec":{"syncPolicy":{"automated":{}}},"status":{` + synced(revision, "Synced") + `}}`,
			expected: revision, automatic: true, want: "automated sync is on (spec.syncPolicy.automated)",
		},
		"auto-sync is switched off": {app: `{"spec":{"syncPolicy":{"automated":{"enabled":false}}},"status":{` +
			synced(revision, "Synced") + `}}`, expected: revision},
		"deleted":                        {expected: revision, want: "Application argocd/shop does not exist"},
		"nothing deployed yet":           {},
		"adopted, nothing deployed yet ": {app: `{"status":{` + synced(older, "Synced") + `}}`},
	} {
		w := Watch{
			Report: ReportReconciliation, Expected: tc.expected,
			Selection: Selection{Kind: applicationKind, Namespace: "argocd", Name: "shop"},
		}
		got := report(w, object(t, tc.app))
		objects, _ := got["objects"].([]any)
		if (len(objects) > 0) != (tc.want != "") {
			t.Errorf("%s: drift %q has the objects %v", name, got["drift"], objects)
		}
		if got["drift"] != tc.want || got["automatic"] != tc.automatic || got["expected_revision"] != tc.expected {
			t.Errorf("%s: %v, want drift %q, automatic %t", name, got, tc.want, tc.automatic)
		}
	}
}

// R4-11: what differs is reported object by object, with namespaces; where Argo CD names none, and where the whole Application differs, it
// is the Application.
func TestTheObjectsThatDiffer(t *testing.T) {
	t.Parallel()
	const revision = "1111111111111111111111111111111111111111"
	resource := func(kind, namespace, name, more string) string {
		return fmt.Sprintf(`{"kind":%q,"namespace":%q,"name":%q,"status":"OutOfSync"%s}`, kind, namespace, name, more)
	}
	outOfSync := func(resources string) string {
		return fmt.Sprintf(`{"status":{"sync":{"revision":%q,"status":"OutOfSync"},"operationState":{"phase":"Succeeded"},"resources":[%s]}}`, revision, resources)
	}
	many := resource("ConfigMap", "shop", "c0", "")
	for i := 1; i < 120; i++ {
		many += "," + resource("ConfigMap", "shop", fmt.Sprintf("c%d", i), "")
	}
	for name, tc := range map[string]struct {
		app, first string
		count      int
	}{
		"one is missing": {
			outOfSync(resource("ConfigMap", "shop", "new", `,"health":{"status":"Missing"}`)),
			"map[how:missing kind:ConfigMap name:new namespace:shop]", 1,
		},
		"one of the cluster is extra": {
			outOfSync(resource("Namespace", "", "old", `,"requiresPruning":true`)), "map[how:extra kind:Namespace name:old]", 1,
		},
		"of two namespaces": {outOfSync(resource("Service", "b", "api", "") + "," + resource("Service", "a", "api", "")), "", 2},
		"very many":         {outOfSync(many), "", 100},
		"none is named": {
			outOfSync(""),
			"map[code:out_of_sync detail:it is out of sync with " + revision + " how:different kind:Application name:shop namespace:argocd]", 1,
		},
		"it is gone": {
			"", "map[code:absent detail:Application argocd/shop does not exist how:missing kind:Application name:shop namespace:argocd]", 1,
		},
	} {
		w := Watch{
			Report: ReportReconciliation, Expected: revision,
			Selection: Selection{Kind: applicationKind, Namespace: "argocd", Name: "shop"},
		}
		objects, _ := report(w, object(t, tc.app))["objects"].([]any)
		if len(objects) != tc.count || tc.first != "" && fmt.Sprint(objects[0]) != tc.first {
			t.Errorf("%s: got %d objects, first of %v; want %d and %s", name, len(objects), objects[:min(len(objects), 1)], tc.count, tc.first)
		}
	}
}

// R4-10, R4-11: each kind of drift of an Application as a whole has a code of its own, which does not depend on revisions.
func TestTheKindOfDriftOfAnApplication(t *testing.T) {
	t.Parallel()
	for want, app := range map[string]string{
		"absent":      "",
		"automatic":   `{"spec":{"syncPolicy":{"automated":{}}}}`,
		"revision":    `{"status":{"sync":{"revision":"b","status":"Synced"}}}`,
		"out_of_sync": `{"status":{"sync":{"revision":"a","status":"OutOfSync"}}}`,
	} {
		w := Watch{Report: ReportReconciliation, Expected: "a", Selection: Selection{Kind: applicationKind, Namespace: "argocd", Name: "shop"}}
		objects, _ := report(w, object(t, app))["objects"].([]any)
		if len(objects) != 1 {
			t.Fatalf("%s: got %v", want, objects)
		}
		if one, _ := objects[0].(map[string]any); one["code"] != want {
			t.Errorf("got %v, want the code %s", one, want)
		}
	}
}
