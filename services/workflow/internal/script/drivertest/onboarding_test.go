package drivertest

import (
	"strings"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/driver"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core"
)

func controllers() map[string]object {
	running := object{"status": object{"readyReplicas": 1}}
	return map[string]object{
		"Deployment argo-rollouts/argo-rollouts":           running,
		"StatefulSet argocd/argocd-application-controller": running,
	}
}

func TestOnboarding(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		edit func(w *world)
		want string
	}{
		{"both controllers run", func(*world) {}, ""},
		{"Argo Rollouts is missing", func(w *world) { delete(w.objects, "Deployment argo-rollouts/argo-rollouts") }, "argo-rollouts controller not found: expected Deployment argo-rollouts/argo-rollouts"},
		{"Argo CD is missing", func(w *world) { delete(w.objects, "StatefulSet argocd/argocd-application-controller") }, "Argo CD application controller not found: expected StatefulSet argocd/argocd-application-controller"},
		{"Argo CD does not run", func(w *world) { w.objects["StatefulSet argocd/argocd-application-controller"] = object{} }, "Argo CD application controller does not run: StatefulSet argocd/argocd-application-controller has no ready replica"},
		{"no relay", func(w *world) { w.fail = failing("k8s.get", core.CodeTimeout, "agent 42 did not answer") }, "agent 42 does not answer within 30 seconds: no relay is connected as it, or it cannot reach NATS"},
		{"a relay without rights", func(w *world) { w.fail = failing("k8s.get", "forbidden", "deployments is forbidden") }, "the relay of agent 42 lacks rights in the cluster: deployments is forbidden"},
		{"no such kind", func(w *world) {
			w.fail = func(_ string, args object) *core.FunctionError {
				if args["kind"] != "Rollout" {
					return nil
				}
				return &core.FunctionError{Code: "unknown_kind", Message: "Rollout: the cluster does not serve it"}
			}
		}, "the cluster has no Rollout of Argo Rollouts: Rollout: the cluster does not serve it"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.objects = controllers()
			tt.edit(w)
			failure := w.run(driver.Onboarding, object{"environment": object{"id": 3, "name": "staging", "tier": "staging", "config": object{"cluster_agent_id": 42}}})
			if tt.want == "" {
				expect(t, w, "environment.ready environment_id=3")
				return
			}
			if !strings.HasSuffix(failure, tt.want) {
				t.Errorf("failure = %q, want %q", failure, tt.want)
			}
			expect(t, w, "environment.not_ready environment_id=3 reason="+tt.want)
		})
	}
}

// failing makes one Function fail.
func failing(function, code, message string) func(string, object) *core.FunctionError {
	return func(name string, _ object) *core.FunctionError {
		if name != function {
			return nil
		}
		return &core.FunctionError{Code: code, Message: message}
	}
}

const apiManifest = `apiVersion: v1
kind: Service
metadata: {name: api}
---
apiVersion: argoproj.io/v1alpha1
kind: Rollout
metadata: {name: api-rollout, namespace: shop}
spec:
  strategy: {canary: {trafficRouting: {nginx: {}}}}
  template: {spec: {containers: [{name: api, image: x}, {name: sidecar, image: y}]}}
`

const workerManifest = `apiVersion: argoproj.io/v1alpha1
kind: Rollout
metadata: {name: worker}
spec:
  strategy: {canary: {}}
  template: {spec: {containers: [{name: worker, image: x}]}}
`

func TestSetup(t *testing.T) {
	t.Parallel()
	automated := object{"metadata": object{}, "spec": object{"syncPolicy": object{"automated": object{}}}}
	tests := []struct {
		name string
		edit func(w *world, config object)
		want string
	}{
		{"everything fits", func(*world, object) {}, ""},
		{"the Application can be adopted", func(w *world, c object) {
			c["mode"] = "existing"
			w.objects["Application argocd/shop"] = object{"metadata": object{}, "spec": object{"syncPolicy": object{"automated": object{"enabled": false}}}}
		}, ""},
		{"no such file", func(w *world, _ object) { delete(w.files, "s/api.yaml") }, `s/api.yaml: no file "s/api.yaml" at "main"`},
		{"not YAML", func(w *world, _ object) { w.files["s/api.yaml"] = "a: [" }, "s/api.yaml: content: not YAML: "},
		{"no Rollout", func(w *world, _ object) { w.files["s/api.yaml"] = "kind: Service" }, "s/api.yaml: content: found Service, expected a Rollout"},
		{"an empty file", func(w *world, _ object) { w.files["s/api.yaml"] = " " }, "s/api.yaml: content: found none, expected a Rollout"},
		{"other containers", func(_ *world, c object) { c["services"] = c["services"].([]any)[1:] }, "s/api.yaml: container mismatch: the Rollout has api, sidecar, the configuration declares sidecar"},
		{"no canary", func(w *world, _ object) {
			w.files["s/worker.yaml"] = strings.Replace(workerManifest, "canary", "blueGreen", 1)
		}, "s/worker.yaml: content: spec.strategy has blueGreen, expected canary"},
		{"pods elsewhere", func(w *world, _ object) {
			w.files["s/worker.yaml"] = strings.Replace(strings.Replace(workerManifest, "strategy:", "workloadRef: {apiVersion: apps/v1, kind: Deployment, name: worker}\n  strategy:", 1), "  template: {spec: {containers: [{name: worker, image: x}]}}\n", "", 1)
		}, "s/worker.yaml: the Rollout takes its pods from Deployment/worker (spec.workloadRef); expected one other file that has it, found none"},
		{"another load balancer", func(_ *world, c object) { c["use_load_balancing"], c["load_balancer_type"] = true, "nginx" }, "s/api.yaml: content: spec.strategy.canary.stableService is missing, and none was given: load balancing by nginx needs it"},
		{"services mismatch", func(_ *world, c object) { c["services"] = c["services"].([]any)[:2] }, "service mismatch: the application has api, worker, the configuration declares api"},
		{"automated sync", func(w *world, _ object) { w.objects["Application argocd/shop"] = automated }, "Application argocd/shop syncs by itself (spec.syncPolicy.automated)"},
		{"an ApplicationSet owns it", func(w *world, _ object) {
			w.objects["Application argocd/shop"] = object{"spec": object{}, "metadata": object{"ownerReferences": []any{object{"kind": "ApplicationSet", "name": "all"}}}}
		}, "Application argocd/shop belongs to ApplicationSet all"},
		{"an app of apps owns it", func(w *world, _ object) {
			w.objects["Application argocd/shop"] = object{"spec": object{}, "metadata": object{"annotations": object{"argocd.argoproj.io/tracking-id": "root:argoproj.io/Application:argocd/shop"}}}
		}, "Application argocd/shop belongs to Application root"},
		{"nothing to adopt", func(_ *world, c object) { c["mode"] = "existing" }, "Application argocd/shop does not exist, and mode existing creates none"},
		{"blue-green", func(_ *world, c object) { c["rollout_strategy"] = "blue_green" }, "s/api.yaml: content: spec.strategy has canary, expected blueGreen"},
		{"parameters of plain manifests", func(_ *world, c object) { c["version_setting"] = "parameters" }, "version_setting parameters: api, worker: plain manifests render no parameters"},
		{"wrong credentials", func(w *world, _ object) { w.fail = failing("git.read_file", "unauthorized", "401") }, "the repository http://git/shop.git refuses the credentials that are configured for it: 401"},
		{"Git is away", func(w *world, _ object) { w.fail = failing("git.read_file", "unreachable", "no route") }, "the repository http://git/shop.git cannot be reached: no route"},
		{"the relay may not look", func(w *world, _ object) { w.fail = failing("k8s.get", "forbidden", "no right to get applications") }, "Application argocd/shop: no right to get applications"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.files = map[string]string{"s/api.yaml": apiManifest, "s/worker.yaml": workerManifest}
			entry := func(service, container string) object {
				return object{"service": service, "file": "s/" + service + ".yaml", "container": container}
			}
			config := object{
				"namespace": "argocd", "application": "shop", "rollout_strategy": "canary", "use_load_balancing": false, "repository_url": "http://git/shop.git", "path": "s",
				"destination_namespace": "fallback", "services": []any{entry("api", "api"), entry("api", "sidecar"), entry("worker", "worker")},
			}
			tt.edit(w, config)
			failure := w.run(driver.Setup, object{
				"application_environment": object{"id": 5, "config": config, "application": object{"id": 1, "name": "shop"}, "services": []any{object{"id": 1, "name": "api"}, object{"id": 2, "name": "worker"}}},
				"environment":             object{"id": 3, "name": "staging", "tier": "staging", "config": object{"cluster_agent_id": 42}},
			})
			if tt.want == "" {
				expect(t, w, "application_environment.ready application_environment_id=5 rollout_name=api-rollout rollout_namespace=shop")
				return
			}
			if !strings.Contains(failure, tt.want) {
				t.Errorf("failure %q does not contain %q", failure, tt.want)
			}
			if len(w.story) != 1 || !strings.HasPrefix(w.story[0], "application_environment.not_ready application_environment_id=5 reason="+tt.want) {
				t.Errorf("story = %q", w.story)
			}
		})
	}
}
