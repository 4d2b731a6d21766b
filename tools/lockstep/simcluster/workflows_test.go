package simcluster_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Workflows end as Argo has them end (R2-28): a stopped one is failed.
func TestWorkflowsEnd(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	api := f.client.Resource(schema.GroupVersionResource{Group: "argoproj.io", Version: "v1alpha1", Resource: "workflows"}).Namespace("default")
	create := func(name string, annotations map[string]any) {
		t.Helper()
		_, err := api.Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "metadata": map[string]any{"name": name, "annotations": annotations},
			"spec": map[string]any{"entrypoint": "main"},
		}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	phase := func(name, want, message string) {
		t.Helper()
		f.await(api, name, want, func(o *unstructured.Unstructured) bool {
			return text(o, "status", "phase") == want && text(o, "status", "message") == message
		})
	}
	// A dry run creates nothing (R2-35).
	tried, err := api.Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "metadata": map[string]any{"name": "good"}, "spec": map[string]any{"entrypoint": "main"},
	}}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil || tried.GetUID() == "" {
		t.Errorf("dry run: %v, %v; expected the Workflow", tried, err)
	}
	if all, err := api.List(t.Context(), metav1.ListOptions{}); err != nil || len(all.Items) != 0 {
		t.Errorf("after a dry run: %v, %v; expected no Workflow", all, err)
	}
	create("good", nil)
	phase("good", "Succeeded", "")
	create("bad", map[string]any{"simulated.lockstep.dev/fails": "exit code 3"})
	phase("bad", "Failed", "exit code 3")
	create("long", map[string]any{"simulated.lockstep.dev/runs": "true"})
	phase("long", "Running", "")
	if _, err := api.Patch(t.Context(), "long", types.MergePatchType, []byte(`{"spec":{"shutdown":"Stop"}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	phase("long", "Failed", "Stopped with strategy 'Stop'")
}
