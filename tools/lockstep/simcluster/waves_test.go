package simcluster_test

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

var jobs = schema.GroupVersionResource{Group: "batch", Version: "v1", Resource: "jobs"}

// withHooks is a Rollout in a wave, with one hook of each phase. more goes into the template of the PostSync hook.
func withHooks(rollout, more string) string {
	text := strings.Replace(rollout, "  name: api\n", "  name: api\n  annotations: {argocd.argoproj.io/sync-wave: \"1\"}\n", 1)
	for _, phase := range []string{"PreSync", "Sync", "PostSync", "SyncFail"} {
		template := ""
		if phase == "PostSync" {
			template = more
		}
		text += fmt.Sprintf(`---
apiVersion: batch/v1
kind: Job
metadata: {name: %s, annotations: {argocd.argoproj.io/hook: %s}}
spec: {template: {metadata: {%s}, spec: {containers: [{name: hook, image: hook}], restartPolicy: Never}}}
`, strings.ToLower(phase), phase, template)
	}
	return text + "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: last, annotations: {argocd.argoproj.io/sync-wave: \"2\"}}\n"
}

// beginSync asks for a sync, and waits until Argo CD says of it what is wanted.
func (f *fixture) beginSync(revision, phase, message string) *unstructured.Unstructured {
	f.t.Helper()
	patch := fmt.Sprintf(`{"spec":{"source":{"targetRevision":%q}},"operation":{"initiatedBy":{"username":"lockstep:%s"},"sync":{"revision":%q,"syncOptions":["CreateNamespace=true"]}},"status":{"operationState":null}}`, revision, revision, revision)
	if _, err := f.app().Patch(f.t.Context(), "shop", types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		f.t.Fatal(err)
	}
	return f.awaitSync(revision, phase, message)
}

func (f *fixture) awaitSync(revision, phase, message string) *unstructured.Unstructured {
	f.t.Helper()
	return f.await(f.app(), "shop", fmt.Sprintf("the sync to be %s: %s", phase, message), func(o *unstructured.Unstructured) bool {
		return text(o, "status", "operationState", "operation", "sync", "revision") == revision &&
			text(o, "status", "operationState", "phase") == phase &&
			strings.Contains(text(o, "status", "operationState", "message"), message)
	})
}

func (f *fixture) has(name string) bool {
	f.t.Helper()
	_, err := f.client.Resource(jobs).Namespace("shop").Get(f.t.Context(), name, metav1.GetOptions{})
	return err == nil
}

// A sync with waves and hooks waits for the same as the real one: a Rollout that is paused ends neither its wave nor the
// sync, one that is aborted fails it.
func TestASyncWithWavesAndHooks(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.application("staging")
	f.beginSync(f.commit("staging/api.yaml", withHooks(manifest(f.push(""), 25), "")), "Succeeded", "successfully synced")
	f.awaitRollout("Healthy", 2)

	second := f.commit("staging/api.yaml", withHooks(manifest(f.push(""), 25), ""))
	app := f.beginSync(second, "Running", "waiting for healthy state of argoproj.io/Rollout/api")
	f.awaitRollout("Paused", 1)
	if text(app, "status", "operationState", "syncResult", "revision") != second {
		t.Errorf("result = %v", app.Object["status"])
	}
	if resources := fmt.Sprint(app.Object["status"]); !strings.Contains(resources, "hookPhase:Running") ||
		strings.Contains(resources, "name:last status:Synced") {
		t.Errorf("resources = %s", resources)
	}
	f.promote()
	f.awaitSync(second, "Succeeded", "successfully synced")
	if !f.has("presync") || !f.has("sync") || !f.has("postsync") || f.has("syncfail") {
		t.Error("expected the hooks of all phases but SyncFail")
	}

	third := f.commit("staging/api.yaml", withHooks(manifest(f.push(""), 25), ""))
	f.beginSync(third, "Running", "waiting for healthy state")
	f.awaitRollout("Paused", 1)
	if _, err := f.rollout().Patch(t.Context(), "api", types.MergePatchType, []byte(`{"status":{"abort":true}}`), metav1.PatchOptions{},
		"status"); err != nil {
		t.Fatal(err)
	}
	f.awaitSync(third, "Failed", "one or more synchronization tasks completed unsuccessfully")
	if !f.has("syncfail") {
		t.Error("the SyncFail hook has not run")
	}
}

func TestASyncIsTerminated(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.application("staging")
	f.beginSync(f.commit("staging/api.yaml", withHooks(manifest(f.push(""), 25), "")), "Succeeded", "")
	second := f.commit("staging/api.yaml", withHooks(manifest(f.push(""), 25), ""))
	f.beginSync(second, "Running", "waiting for healthy state")
	if _, err := f.app().Patch(t.Context(), "shop", types.MergePatchType, []byte(`{"status":{"operationState":{"phase":"Terminating"}}}`),
		metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	f.awaitSync(second, "Failed", "Operation terminated")
}

func TestAPostSyncHookThatFailsFailsTheSync(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.application("staging")
	app := f.beginSync(f.commit("staging/api.yaml", withHooks(manifest(f.push(""), 25),
		`annotations: {simulated.lockstep.dev/fails: the shop does not answer}`)), "Failed", "completed unsuccessfully")
	if resources := fmt.Sprint(app.Object["status"]); !strings.Contains(resources, "the shop does not answer") || !f.has("syncfail") {
		t.Errorf("status = %s", resources)
	}
}
