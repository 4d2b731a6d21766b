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
	apply := func(image string) {
		t.Helper()
		text := fmt.Sprintf(`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"api"},"spec":{"replicas":2,
			"template":{"spec":{"containers":[{"name":"api","image":%q}]}}}}`, image)
		if _, err := api.Patch(t.Context(), "api", types.ApplyPatchType, []byte(text), metav1.PatchOptions{FieldManager: "test"}); err != nil {
			t.Fatal(err)
		}
	}
	reason := func(want string, available int64) {
		t.Helper()
		f.await(api, "api", want, func(o *unstructured.Unstructured) bool {
			conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
			seen, _, _ := unstructured.NestedInt64(o.Object, "status", "observedGeneration")
			n, _, _ := unstructured.NestedInt64(o.Object, "status", "availableReplicas")
			return len(conditions) == 2 && conditions[1].(map[string]any)["reason"] == want && seen == o.GetGeneration() && n == available
		})
	}
	apply("api:unreleased")
	reason("NewReplicaSetAvailable", 2)
	apply(f.push("degraded-at=50"))
	reason("ProgressDeadlineExceeded", 0)
	apply(f.push(""))
	reason("NewReplicaSetAvailable", 2)
}
