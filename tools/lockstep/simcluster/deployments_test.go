package simcluster_test

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// A Deployment of an image that comes up is available, and one of an image that is degraded at a weight exceeds its progress deadline; both
// again after each change.
func TestDeploymentsComeUpOrNot(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	api := f.client.Resource(deployments).Namespace("default")
	applyAs := func(name, image string) {
		t.Helper()
		text := fmt.Sprintf(`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":%q},"spec":{"replicas":2,
			"template":{"spec":{"containers":[{"name":"api","image":%q}]}}}}`, name, image)
		if _, err := api.Patch(t.Context(), name, types.ApplyPatchType, []byte(text), metav1.PatchOptions{FieldManager: "test"}); err != nil {
			t.Fatal(err)
		}
	}
	apply := func(image string) {
		t.Helper()
		applyAs("api", image)
	}
	reasonOf := func(name, want string, available int64) {
		t.Helper()
		f.await(api, name, want, func(o *unstructured.Unstructured) bool {
			conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
			seen, _, _ := unstructured.NestedInt64(o.Object, "status", "observedGeneration")
			n, _, _ := unstructured.NestedInt64(o.Object, "status", "availableReplicas")
			return len(conditions) == 2 && conditions[1].(map[string]any)["reason"] == want && seen == o.GetGeneration() && n == available
		})
	}
	reason := func(want string, available int64) {
		t.Helper()
		reasonOf("api", want, available)
	}
	apply("api:unreleased")
	reason("NewReplicaSetAvailable", 2)
	apply(f.push("degraded-at=50"))
	reason("ProgressDeadlineExceeded", 0)
	apply(f.push(""))
	reason("NewReplicaSetAvailable", 2)
	f.push("degraded-at=50")
	apply(f.images + "/shop/api:latest") // by tag
	reason("ProgressDeadlineExceeded", 0)
	apply(f.images + "/shop/api:missing")
	applyAs("later", "later:unreleased") // is looked at after it
	reasonOf("later", "NewReplicaSetAvailable", 2)
	o, err := api.Get(t.Context(), "api", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if seen, _, _ := unstructured.NestedInt64(o.Object, "status", "observedGeneration"); seen >= o.GetGeneration() {
		t.Errorf("an image that does not exist came up: found %v", o.Object["status"])
	}
	f.pushAs("", "missing")
	reason("NewReplicaSetAvailable", 2)
}
