package simcluster_test

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

func TestFromCommitToHealthyAndBack(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	good, better, bad := f.push(""), f.push(""), f.push("degraded-at=50")
	f.application("staging")

	first := f.commit("staging/api.yaml", manifest(good, 25, 50))
	app := f.sync(first)
	if text(app, "status", "operationState", "phase") != "Succeeded" ||
		text(app, "status", "operationState", "syncResult", "revision") != first {
		t.Fatalf("operationState = %v", app.Object["status"])
	}
	f.awaitRollout("Healthy", 4)
	app = f.await(f.app(), "shop", "synced and healthy", func(o *unstructured.Unstructured) bool {
		return text(o, "status", "sync", "status") == "Synced" && text(o, "status", "health", "status") == "Healthy"
	})
	if text(app, "status", "sync", "revision") != first {
		t.Errorf("sync status = %v", app.Object["status"])
	}

	f.sync(f.commit("staging/api.yaml", manifest(better, 25, 50)))
	f.awaitRollout("Paused", 1)
	f.promote()
	f.awaitRollout("Paused", 3)
	f.stop() // kill and start again: nothing is lost
	f.start()
	f.awaitRollout("Paused", 3)
	f.promote()
	f.awaitRollout("Healthy", 4)

	f.sync(f.commit("staging/api.yaml", manifest(bad, 25, 50)))
	f.awaitRollout("Paused", 1)
	f.promote()
	degraded := f.awaitRollout("Degraded", 2)
	if !strings.HasPrefix(text(degraded, "status", "message"), "ProgressDeadlineExceeded") {
		t.Errorf("message = %q", text(degraded, "status", "message"))
	}
	f.sync(f.commit("staging/api.yaml", manifest(better, 25, 50)))
	f.awaitRollout("Healthy", 4)
	history, _, _ := unstructured.NestedSlice(f.sync("main").Object, "status", "history")
	if len(history) != 5 {
		t.Errorf("%d syncs in the history, want 5", len(history))
	}
}

func TestSyncsThatFail(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.application("staging")
	tests := []struct{ name, revision, phase, message string }{
		{"no such commit", strings.Repeat("0", 39) + "1", "Error", "ComparisonError"},
		{"no such branch", "nowhere", "Error", "unable to resolve 'nowhere' to a commit SHA"},
		{"no such folder", f.commit("x.txt", "x"), "Error", "staging: app path does not exist"},
		{"not YAML", f.commit("staging/api.yaml", "a: ["), "Error", "Failed to unmarshal \"api.yaml\""},
		{"no kind", f.commit("staging/api.yaml", "a: b"), "Error", "Object 'Kind' is missing"},
		{
			"unknown kind", f.commit("staging/api.yaml", "apiVersion: example.com/v1\nkind: Thing\nmetadata: {name: x}"), "Failed",
			"could not find example.com/v1",
		},
		{"a namespace that does not exist", f.commit("staging/api.yaml",
			"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x, namespace: nowhere}"), "Failed", `namespaces "nowhere" not found`},
	}
	for _, tt := range tests {
		app := f.sync(tt.revision)
		if got := text(app, "status", "operationState", "phase"); got != tt.phase {
			t.Errorf("%s: phase %s, want %s", tt.name, got, tt.phase)
		}
		if got := text(app, "status", "operationState", "message"); !strings.Contains(got, tt.message) {
			t.Errorf("%s: message %q, want %q", tt.name, got, tt.message)
		}
	}
}

func TestAutomatedSyncActsByItself(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	image := f.push("")
	f.commit("staging/api.yaml", manifest(image, 25))
	f.application("staging")
	patch := `{"spec":{"syncPolicy":{"automated":{},"syncOptions":["CreateNamespace=true"]},"destination":{"namespace":"default"}}}`
	if _, err := f.app().Patch(t.Context(), "shop", types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	f.await(f.client.Resource(rolloutsGVR).Namespace("default"), "api", "the rollout to appear",
		func(*unstructured.Unstructured) bool { return true })
}

func TestTheControllersAreListed(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, w := range []struct{ resource, namespace, name string }{
		{"deployments", "argo-rollouts", "argo-rollouts"}, {"statefulsets", "argocd", "argocd-application-controller"},
	} {
		gvr := schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: w.resource}
		o, err := f.client.Resource(gvr).Namespace(w.namespace).Get(t.Context(), w.name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if ready, _, _ := unstructured.NestedInt64(o.Object, "status", "readyReplicas"); ready < 1 {
			t.Errorf("%s/%s is not ready", w.namespace, w.name)
		}
	}
}
