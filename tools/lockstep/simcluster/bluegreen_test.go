package simcluster_test

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// blueGreen is a blue-green Rollout of an image with its active Service.
func blueGreen(image string) string {
	canary := manifest(image)
	return canary[:strings.Index(canary, "    canary:")] + `    blueGreen:
      activeService: api
      autoPromotionEnabled: false
---
apiVersion: v1
kind: Service
metadata: {name: api}
spec: {selector: {app: api}, ports: [{port: 80}]}
`
}

// awaitActive waits until the Rollout is in a phase, and the version that serves is the newest, or is not.
func (f *fixture) awaitActive(phase string, newest bool) *unstructured.Unstructured {
	f.t.Helper()
	return f.await(f.rollout(), "api", fmt.Sprintf("%s, newest serves: %t", phase, newest), func(o *unstructured.Unstructured) bool {
		return text(o, "status", "observedGeneration") == fmt.Sprint(o.GetGeneration()) && text(o, "status", "phase") == phase &&
			(text(o, "status", "blueGreen", "activeSelector") == text(o, "status", "currentPodHash")) == newest
	})
}

func TestBlueGreenPausesBeforeItsPromotion(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.begin("shop", blueGreen(f.push("")))
	f.awaitActive("Healthy", true)
	app := f.sync(f.commit("shop/api.yaml", blueGreen(f.push(""))))
	// The Service stands second in the file; a Rollout that came before it would be invalid for a moment.
	if applied, _, _ := unstructured.NestedSlice(app.Object, "status", "operationState", "syncResult", "resources"); len(applied) != 2 ||
		applied[0].(map[string]any)["kind"] != "Service" {
		t.Errorf("applied: found %v, expected the Service first", applied)
	}
	paused := f.awaitActive("Paused", false)
	if message := text(paused, "status", "message"); message != "BlueGreenPause" {
		t.Errorf("message: found %q, expected BlueGreenPause", message)
	}
	f.promote()
	f.awaitActive("Healthy", true)
}

// begin creates the Application with a first manifest, and syncs it.
func (f *fixture) begin(folder, content string) {
	f.t.Helper()
	revision := f.commit(folder+"/api.yaml", content)
	f.application(folder)
	f.sync(revision)
}

func TestABlueGreenRolloutWithoutItsServiceIsInvalid(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	content := blueGreen(f.push(""))
	f.begin("shop", content[:strings.Index(content, "---")])
	f.await(f.rollout(), "api", "the Rollout to be invalid", func(o *unstructured.Unstructured) bool {
		return strings.Contains(text(o, "status", "message"), `service "api" not found`)
	})
}

func TestAKustomizationAndItsParameters(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	first, second := f.push(""), f.push("")
	name, _, _ := strings.Cut(first, "@")
	_, digest, _ := strings.Cut(first, "@")
	f.commit("shop/rollout.yaml", manifest("api", 50))
	revision := f.commit("shop/kustomization.yaml",
		"kind: Kustomization\nresources: [rollout.yaml]\nimages: [{name: api, newName: "+name+", digest: "+digest+"}]\n")
	f.application("shop")
	f.sync(revision)
	if o := f.awaitRollout("Healthy", 2); !strings.Contains(fmt.Sprint(o.Object["spec"]), first) {
		t.Errorf("spec: %v, expected the image %s", o.Object["spec"], first)
	}
	patch := fmt.Sprintf(`{"spec":{"source":{"kustomize":{"images":["api=%s"],"patches":[{"target":{"kind":"Rollout","name":"api"},
		"patch":"{\"kind\":\"Rollout\",\"spec\":{\"strategy\":{\"canary\":{\"steps\":[{\"setWeight\":10},{\"pause\":{}}]}}}}"}]}}}}`, second)
	if _, err := f.app().Patch(t.Context(), "shop", types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	app := f.sync(revision)
	if kind := text(app, "status", "resourceHealthSource"); kind != "appTree" {
		t.Errorf("resourceHealthSource: found %q, expected appTree", kind)
	}
	o := f.awaitRollout("Paused", 1)
	if spec := fmt.Sprint(o.Object["spec"]); !strings.Contains(spec, second) || !strings.Contains(spec, "setWeight:10") {
		t.Errorf("spec: %s, expected the image %s and weight 10", spec, second)
	}
}

// TestAControllerThatIsScaledToZeroRests: so does one whose process is frozen.
func TestAControllerThatIsScaledToZeroRests(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	revision := f.commit("shop/api.yaml", manifest(f.push(""), 50))
	f.application("shop")
	scale := func(replicas int) {
		t.Helper()
		if _, err := f.client.Resource(deployments).Namespace("argo-rollouts").Patch(t.Context(), "argo-rollouts", types.MergePatchType,
			fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	scale(0)
	f.sync(revision)
	// Argo CD works, and sees a Rollout that nobody has looked at.
	f.await(f.app(), "shop", "the health to be Progressing", func(o *unstructured.Unstructured) bool {
		return text(o, "status", "health", "status") == "Progressing"
	})
	if o, err := f.rollout().Get(t.Context(), "api", metav1.GetOptions{}); err != nil || o.Object["status"] != nil {
		t.Errorf("status: found %v, %v; expected none", o.Object["status"], err)
	}
	scale(1)
	f.awaitRollout("Healthy", 2)
}
