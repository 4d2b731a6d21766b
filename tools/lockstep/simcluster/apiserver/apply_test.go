package apiserver_test

import (
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// A server-side apply sets its manager's fields, removes those that the manager no longer has, leaves the others alone, and refuses fields
// that another manager has applied. A dry run stores nothing.
func TestServerSideApply(t *testing.T) {
	t.Parallel()
	client, _, _ := serve(t, "", "", "")
	api := client.Resource(rollouts).Namespace("shop")
	apply := func(manager, spec string, dry ...string) (*unstructured.Unstructured, error) {
		return api.Patch(t.Context(), "api", types.ApplyPatchType, []byte(`{"apiVersion":"argoproj.io/v1alpha1","kind":"Rollout",
			"metadata":{"name":"api"},"spec":`+spec+`}`), metav1.PatchOptions{FieldManager: manager, DryRun: dry})
	}
	if _, err := apply("one", `{"replicas":1}`, metav1.DryRunAll); err != nil {
		t.Fatal(err)
	}
	if _, err := api.Get(t.Context(), "api", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Fatalf("a dry run has created the object: %v", err)
	}
	first, err := apply("one", `{"replicas":1,"paused":true}`)
	if err != nil || first.GetGeneration() != 1 || first.GetNamespace() != "shop" {
		t.Fatalf("found %v, %v", first, err)
	}
	again, err := apply("one", `{"replicas":1,"paused":true}`)
	if err != nil || again.GetResourceVersion() != first.GetResourceVersion() {
		t.Errorf("the same once more: found version %s, %v; want %s", again.GetResourceVersion(), err, first.GetResourceVersion())
	}
	if _, err := apply("two", `{"replicas":2}`); !apierrors.IsConflict(err) || !strings.Contains(err.Error(), `conflict with "one": .spec.replicas`) {
		t.Errorf("found %v; want a conflict", err)
	}
	if _, err := apply("two", `{"template":{"x":1}}`); err != nil {
		t.Fatal(err)
	}
	dry, err := apply("one", `{"replicas":3}`, metav1.DryRunAll)
	if n, _, _ := unstructured.NestedInt64(dry.Object, "spec", "replicas"); err != nil || n != 3 {
		t.Errorf("dry run: %d replicas, %v", n, err)
	}
	last, err := apply("one", `{"replicas":1}`)
	if err != nil || last.GetGeneration() != 3 {
		t.Fatalf("found generation %d, %v", last.GetGeneration(), err)
	}
	if _, found, _ := unstructured.NestedBool(last.Object, "spec", "paused"); found {
		t.Error("a field that its manager no longer applies is still there")
	}
	if n, _, _ := unstructured.NestedInt64(last.Object, "spec", "template", "x"); n != 1 {
		t.Error("a field of another manager is gone")
	}
	if _, err := apply("", `{}`); !apierrors.IsInvalid(err) {
		t.Errorf("an apply without a manager: %v", err)
	}
	if _, err := api.Patch(t.Context(), "other", types.ApplyPatchType, []byte(`{"apiVersion":"argoproj.io/v1alpha1","kind":"Rollout",
		"metadata":{"uid":"x"}}`), metav1.PatchOptions{FieldManager: "one"}); !apierrors.IsConflict(err) {
		t.Errorf("an apply to an object that is gone: %v", err)
	}
}
