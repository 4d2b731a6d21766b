package apiserver_test

import (
	"context"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/tools/lockstep/simcluster/apiserver"
)

var rollouts = schema.GroupVersionResource{Group: "argoproj.io", Version: "v1alpha1", Resource: "rollouts"}

// serve is a server over a folder, and a client of it.
func serve(t *testing.T, dir, token, clientToken string) (dynamic.Interface, *apiserver.Store, *rest.Config) {
	t.Helper()
	store, err := apiserver.OpenStore(dir, clock.System())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	server := httptest.NewServer(apiserver.NewServer(ctx, store, token))
	t.Cleanup(func() {
		cancel() // before Close, which waits for the watches
		server.Close()
	})
	config := &rest.Config{Host: server.URL, BearerToken: clientToken}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.Create(apiserver.Namespaces, apiserver.Object{
		"apiVersion": "v1", "kind": "Namespace",
		"metadata": map[string]any{"name": "shop"},
	}); err != nil && !apiserver.Is(err, "AlreadyExists") {
		t.Fatal(err)
	}
	return client, store, config
}

func rollout(name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout",
		"metadata": map[string]any{"name": name, "labels": map[string]any{"app": name}},
		"spec":     map[string]any{"replicas": int64(2)}, "status": map[string]any{"phase": "Forged"},
	}}
}

func TestLifeOfAnObject(t *testing.T) {
	t.Parallel()
	client, _, _ := serve(t, "", "", "")
	api := client.Resource(rollouts).Namespace("shop")
	o, err := api.Create(t.Context(), rollout("api"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if o.GetUID() == "" || o.GetResourceVersion() == "" || o.GetGeneration() != 1 || o.GetCreationTimestamp() == (metav1.Time{}) {
		t.Errorf("metadata = %v", o.Object["metadata"])
	}
	if _, forged := o.Object["status"]; forged {
		t.Error("the status comes from the creator")
	}
	if _, err := api.Create(t.Context(), rollout("api"), metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
		t.Errorf("second create: %v", err)
	}

	stale := o.DeepCopy()
	o.Object["spec"].(map[string]any)["replicas"] = int64(3)
	o, err = api.Update(t.Context(), o, metav1.UpdateOptions{})
	if err != nil || o.GetGeneration() != 2 {
		t.Fatalf("update: generation %d, %v", o.GetGeneration(), err)
	}
	if _, err := api.Update(t.Context(), stale, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("update of a stale object: %v", err)
	}

	o.Object["status"] = map[string]any{"phase": "Healthy"}
	o.Object["spec"] = map[string]any{"replicas": int64(9)}
	o, err = api.UpdateStatus(t.Context(), o, metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"spec": map[string]any{"replicas": int64(3)}, "status": map[string]any{"phase": "Healthy"}}
	if diff := cmp.Diff(want, map[string]any{"spec": o.Object["spec"], "status": o.Object["status"]}); diff != "" || o.GetGeneration() != 2 {
		t.Errorf("after the status: generation %d (-want +got):\n%s", o.GetGeneration(), diff)
	}

	if err := api.Delete(t.Context(), "api", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := api.Get(t.Context(), "api", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("get after delete: %v", err)
	}
	if err := api.Delete(t.Context(), "api", metav1.DeleteOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("delete after delete: %v", err)
	}
}

func TestPatches(t *testing.T) {
	t.Parallel()
	client, _, _ := serve(t, "", "", "")
	api := client.Resource(rollouts).Namespace("shop")
	first, err := api.Create(t.Context(), rollout("api"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	patch := func(kind types.PatchType, text string, subresources ...string) (*unstructured.Unstructured, error) {
		return api.Patch(t.Context(), "api", kind, []byte(text), metav1.PatchOptions{}, subresources...)
	}
	o, err := patch(types.MergePatchType, `{"metadata":{"resourceVersion":"`+first.GetResourceVersion()+
		`"},"status":{"pauseConditions":[1],"phase":"Paused"}}`, "status")
	if err != nil {
		t.Fatal(err)
	}
	if phase, _, _ := unstructured.NestedString(o.Object, "status", "phase"); phase != "Paused" {
		t.Errorf("phase = %q", phase)
	}
	if _, err := patch(types.MergePatchType, `{"metadata":{"resourceVersion":"`+first.GetResourceVersion()+`"},"status":null}`,
		"status"); !apierrors.IsConflict(err) {
		t.Errorf("patch of another version: %v", err)
	}
	if o, err = patch(types.MergePatchType, `{"status":{"pauseConditions":null}}`, "status"); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]any{"phase": "Paused"}, o.Object["status"]); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
	if o, err = patch(types.MergePatchType, `{"status":{"phase":"Forged"},"spec":{"paused":true}}`); err != nil || o.GetGeneration() != 2 {
		t.Fatalf("generation %d, %v", o.GetGeneration(), err)
	}
	if phase, _, _ := unstructured.NestedString(o.Object, "status", "phase"); phase != "Paused" {
		t.Errorf("a patch of the object changes the status to %q", phase)
	}
	if o, err = patch(types.JSONPatchType, `[{"op":"replace","path":"/spec/replicas","value":7}]`); err != nil {
		t.Fatal(err)
	}
	if n, _, _ := unstructured.NestedInt64(o.Object, "spec", "replicas"); n != 7 {
		t.Errorf("%d replicas", n)
	}
	if _, err := patch(types.JSONPatchType, `[{"op":"test","path":"/spec/replicas","value":1}]`); !apierrors.IsInvalid(err) {
		t.Errorf("patch that does not apply: %v", err)
	}
	if _, err := patch(types.StrategicMergePatchType, `{}`); !apierrors.IsUnsupportedMediaType(err) {
		t.Errorf("strategic merge: %v", err)
	}
	applications := schema.GroupVersionResource{Group: "argoproj.io", Version: "v1alpha1", Resource: "applications"}
	if _, err := client.Resource(applications).Namespace("shop").Patch(t.Context(), "x", types.MergePatchType, []byte(`{}`),
		metav1.PatchOptions{}, "status"); !apierrors.IsNotFound(err) {
		t.Errorf("an Application has a status subresource: %v", err)
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	client, _, _ := serve(t, "", "", "")
	if _, err := client.Resource(rollouts).Namespace("nowhere").Create(t.Context(), rollout("api"),
		metav1.CreateOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("create in a namespace that does not exist: %v", err)
	}
	unknown := schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "things"}
	if _, err := client.Resource(unknown).Namespace("shop").List(t.Context(), metav1.ListOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("unknown resource: %v", err)
	}
	other := rollout("api")
	other.SetKind("Deployment")
	if _, err := client.Resource(rollouts).Namespace("shop").Create(t.Context(), other, metav1.CreateOptions{}); !apierrors.IsBadRequest(err) {
		t.Errorf("another kind: %v", err)
	}
	wrong, _, _ := serve(t, "", "secret", "guess")
	if _, err := wrong.Resource(rollouts).List(t.Context(), metav1.ListOptions{}); !apierrors.IsUnauthorized(err) {
		t.Errorf("wrong token: %v", err)
	}
	none, _, _ := serve(t, "", "secret", "")
	if _, err := none.Resource(rollouts).List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("no token: %v", err)
	}
	right, _, _ := serve(t, "", "secret", "secret")
	if _, err := right.Resource(rollouts).List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Errorf("right token: %v", err)
	}
}

func TestSelectors(t *testing.T) {
	t.Parallel()
	client, _, _ := serve(t, "", "", "")
	for _, name := range []string{"api", "worker"} {
		if _, err := client.Resource(rollouts).Namespace("shop").Create(t.Context(), rollout(name), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for name, options := range map[string]metav1.ListOptions{
		"label": {LabelSelector: "app=worker"},
		"field": {FieldSelector: "metadata.name=worker"},
	} {
		list, err := client.Resource(rollouts).List(t.Context(), options)
		if err != nil || len(list.Items) != 1 || list.Items[0].GetName() != "worker" {
			t.Errorf("%s selector: %v, %v", name, list, err)
		}
	}
}

// next is the next event of a watch.
func next(t *testing.T, w watch.Interface) (watch.EventType, string) {
	t.Helper()
	select {
	case e, open := <-w.ResultChan():
		if !open {
			t.Fatal("the watch has ended")
		}
		if u, ok := e.Object.(*unstructured.Unstructured); ok {
			return e.Type, u.GetName()
		}
		return e.Type, ""
	case <-time.After(time.Minute):
		t.Fatal("no event within a minute")
		return "", ""
	}
}

func TestWatch(t *testing.T) {
	t.Parallel()
	client, _, _ := serve(t, "", "", "")
	api := client.Resource(rollouts).Namespace("shop")
	o, err := api.Create(t.Context(), rollout("api"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	fresh, err := api.Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer fresh.Stop()
	since, err := api.Watch(t.Context(), metav1.ListOptions{ResourceVersion: o.GetResourceVersion(), FieldSelector: "metadata.name=api"})
	if err != nil {
		t.Fatal(err)
	}
	defer since.Stop()
	if kind, name := next(t, fresh); kind != watch.Added || name != "api" {
		t.Errorf("first event %s %s", kind, name)
	}
	if _, err := api.Create(t.Context(), rollout("worker"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	o.SetLabels(map[string]string{"x": "y"})
	if _, err := api.Update(t.Context(), o, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := api.Delete(t.Context(), "api", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []watch.EventType{watch.Modified, watch.Deleted} {
		if kind, name := next(t, since); kind != want || name != "api" {
			t.Errorf("event %s %s, want %s api", kind, name, want)
		}
	}
	if kind, name := next(t, fresh); kind != watch.Added || name != "worker" {
		t.Errorf("event %s %s, want ADDED worker", kind, name)
	}
}

func TestWhatWasAnsweredOutlivesTheProcess(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	client, _, _ := serve(t, dir, "", "")
	before, err := client.Resource(rollouts).Namespace("shop").Create(t.Context(), rollout("api"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	again, _, _ := serve(t, dir, "", "") // nothing of the first is closed or flushed
	after, err := again.Resource(rollouts).Namespace("shop").Get(t.Context(), "api", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before.Object, after.Object); diff != "" {
		t.Errorf("object (-before +after):\n%s", diff)
	}
	_, err = again.Resource(rollouts).Namespace("shop").Watch(t.Context(), metav1.ListOptions{ResourceVersion: "1"})
	if !apierrors.IsResourceExpired(err) {
		t.Errorf("watch from before the restart: %v", err)
	}
}

func TestDiscovery(t *testing.T) {
	t.Parallel()
	_, _, config := serve(t, "", "", "")
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	if v, err := client.ServerVersion(); err != nil || v.Major != "1" {
		t.Errorf("version %v, %v", v, err)
	}
	list, err := client.ServerResourcesForGroupVersion("argoproj.io/v1alpha1")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, r := range list.APIResources {
		found[r.Name] = true
	}
	for _, name := range []string{"rollouts", "rollouts/status", "applications"} {
		if !found[name] {
			t.Errorf("discovery lacks %s", name)
		}
	}
	if _, _, err := client.ServerGroupsAndResources(); err != nil {
		t.Error(err)
	}
}
