package drivertest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/driver"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
)

// workload is one that may be a controller, ready or not.
func workload(kind, namespace, name string, ready int, labels ...string) object {
	of := object{}
	for _, label := range labels {
		key, value, _ := strings.Cut(label, "=")
		of["app.kubernetes.io/"+key] = value
	}
	return object{
		"kind": kind, "metadata": object{"namespace": namespace, "name": name, "labels": of},
		"status": object{"readyReplicas": ready},
	}
}

func rolloutsController() object {
	return workload("Deployment", "argo-rollouts", "argo-rollouts", 1, "component=rollouts-controller", "name=argo-rollouts",
		"part-of=argo-rollouts")
}

func argoController() object {
	return workload("StatefulSet", "argocd", "argocd-application-controller", 1, "component=application-controller",
		"name=argocd-application-controller", "part-of=argocd")
}

func TestOnboarding(t *testing.T) {
	t.Parallel()
	elsewhere := object{"cluster_agent_id": 42, "controllers": "elsewhere"}
	bare := func(o object) object { // as without labels
		delete(o["metadata"].(object), "labels")
		return o
	}
	rollout := func(generation, observed any) object {
		return object{
			"kind": "Rollout", "metadata": object{"name": "api", "namespace": "shop", "generation": generation},
			"status": object{"observedGeneration": observed},
		}
	}
	tests := []struct {
		name    string
		cluster []object
		config  object
		fail    func(string, object) *history.FunctionError
		want    string
	}{
		{name: "as their manifests install them", cluster: []object{rolloutsController(), argoController()}},
		{name: "by their names alone", cluster: []object{bare(rolloutsController()), bare(argoController())}},
		{name: "a Helm release, in another namespace", cluster: []object{
			workload("Deployment", "platform", "delivery-argo-rollouts", 2, "component=rollouts-controller", "name=argo-rollouts",
				"instance=delivery"),
			workload("StatefulSet", "platform", "delivery-argocd-application-controller", 1, "component=application-controller",
				"name=argocd-application-controller", "instance=delivery"),
		}},
		{name: "the application controller as a Deployment", cluster: []object{
			rolloutsController(), workload("Deployment", "argocd", "argocd-application-controller", 1, "name=argocd-application-controller",
				"component=application-controller"),
		}},
		{name: "an operator's names", cluster: []object{
			workload("Deployment", "openshift-gitops", "argo-rollouts", 1, "component=rollouts-controller", "name=argo-rollouts",
				"part-of=argo-rollouts"),
			workload("StatefulSet", "openshift-gitops", "openshift-gitops-application-controller", 1, "component=application-controller",
				"name=openshift-gitops-application-controller", "part-of=argocd"),
		}},
		{name: "one of two works", cluster: []object{
			rolloutsController(),
			workload("StatefulSet", "old", "argocd-application-controller", 0, "name=argocd-application-controller"), argoController(),
		}},
		{
			name: "Argo Rollouts is missing", cluster: []object{argoController()},
			want: "argo-rollouts controller not found: expected a Deployment or StatefulSet with the label app.kubernetes.io/component=rollouts-controller or",
		},
		{name: "only its dashboard is installed", cluster: []object{
			argoController(), workload("Deployment", "argo-rollouts", "argo-rollouts-dashboard", 1, "component=rollouts-dashboard",
				"name=argo-rollouts"),
		}, want: "argo-rollouts controller not found"},
		{name: "Argo CD is missing", cluster: []object{rolloutsController()}, want: "Argo CD application controller not found"},
		{name: "something else has such a component", cluster: []object{
			rolloutsController(), workload("Deployment", "kruise", "controller", 1, "component=application-controller", "part-of=kruise"),
		}, want: "Argo CD application controller not found"},
		{name: "Argo CD does not run", cluster: []object{
			rolloutsController(), workload("StatefulSet", "argocd", "argocd-application-controller", 0, "name=argocd-application-controller"),
		}, want: "Argo CD application controller does not run: StatefulSet argocd/argocd-application-controller has no ready replica"},
		{name: "controllers elsewhere, nothing deployed yet", config: elsewhere},
		{name: "controllers elsewhere, at work", config: elsewhere, cluster: []object{rollout(2, "1"), rollout(3, "3")}},
		{
			name: "controllers elsewhere, not at work", config: elsewhere, cluster: []object{rollout(2, "1")},
			want: "argo-rollouts controller does not work: no controller has seen any of the 1 Rollout objects",
		},
		{
			name: "no relay", fail: failing("k8s.get", history.CodeTimeout, "agent 42 did not answer"),
			want: "agent 42 does not answer within 30 seconds: no relay is connected as it, or it cannot reach NATS",
		},
		{
			name: "a relay without rights", fail: failing("k8s.list", "forbidden", "deployments is forbidden"),
			want: "the relay of agent 42 lacks rights in the cluster: deployments is forbidden",
		},
		{
			name: "a relay with rights in some namespaces only", cluster: []object{bare(rolloutsController()), bare(argoController())},
			fail: failing("k8s.list", "forbidden", "deployments is forbidden"),
		},
		{
			name: "a relay of before", fail: failing("k8s.list", "invalid", `function: found "k8s.list", expected one of k8s.get`),
			want: "the relay of agent 42 is older than the control plane; upgrade it: function: ",
		},
		{name: "no such kind", fail: func(_ string, args object) *history.FunctionError {
			if args["kind"] != "Rollout" {
				return nil
			}
			return &history.FunctionError{Code: "unknown_kind", Message: "Rollout: the cluster does not serve it"}
		}, want: "the cluster has no Rollout of Argo Rollouts: Rollout: the cluster does not serve it"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			for _, o := range tt.cluster {
				of := o["metadata"].(object)
				w.objects[fmt.Sprintf("%s %s/%s", o["kind"], of["namespace"], of["name"])] = o
			}
			if tt.fail != nil {
				w.fail = tt.fail
			}
			config := object{"cluster_agent_id": 42}
			if tt.config != nil {
				config = tt.config
			}
			failure := w.run(driver.Onboarding, object{"environment": object{"id": 3, "name": "staging", "tier": "staging", "config": config}})
			if tt.want == "" {
				expect(t, w, "environment.ready environment_id=3")
				return
			}
			if !strings.Contains(failure, tt.want) {
				t.Errorf("failure = %q, want %q", failure, tt.want)
			}
			if len(w.story) != 1 || !strings.HasPrefix(w.story[0], "environment.not_ready environment_id=3 reason="+tt.want) {
				t.Errorf("story = %q", w.story)
			}
		})
	}
}

// failing makes one Function fail.
func failing(function, code, message string) func(string, object) *history.FunctionError {
	return func(name string, _ object) *history.FunctionError {
		if name != function {
			return nil
		}
		return &history.FunctionError{Code: code, Message: message}
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
	// What the relay says of an Application is tested there (TestNextSync, TestAnApplicationOutsideOfTheLimitsIsRefused); setup asks the
	// relay.
	refused := func(code, message string) func(*world, object) {
		return func(w *world, _ object) { w.fail = failing("argo.check", code, message) }
	}
	tests := []struct {
		name string
		edit func(w *world, config object)
		want string
	}{
		{"everything fits", func(*world, object) {}, ""},
		{"no such file", func(w *world, _ object) { delete(w.files, "s/api.yaml") }, `s/api.yaml: no file "s/api.yaml" at "main"`},
		{"not YAML", func(w *world, _ object) { w.files["s/api.yaml"] = "a: [" }, "s/api.yaml: content: not YAML: "},
		{
			"no Rollout", func(w *world, _ object) { w.files["s/api.yaml"] = "kind: Service" },
			"s/api.yaml: content: found Service, expected a Rollout",
		},
		{"an empty file", func(w *world, _ object) { w.files["s/api.yaml"] = " " }, "s/api.yaml: content: found none, expected a Rollout"},
		{
			"other containers", func(_ *world, c object) { c["services"] = c["services"].([]any)[1:] },
			"s/api.yaml: container mismatch: the Rollout has api, sidecar, the configuration declares sidecar",
		},
		{"no canary", func(w *world, _ object) {
			w.files["s/worker.yaml"] = strings.Replace(workerManifest, "canary", "blueGreen", 1)
		}, "s/worker.yaml: content: spec.strategy has blueGreen, expected canary"},
		{"pods elsewhere", func(w *world, _ object) {
			w.files["s/worker.yaml"] = strings.Replace(strings.Replace(workerManifest, "strategy:",
				"workloadRef: {apiVersion: apps/v1, kind: Deployment, name: worker}\n  strategy:", 1),
				"  template: {spec: {containers: [{name: worker, image: x}]}}\n", "", 1)
		}, "s/worker.yaml: the Rollout takes its pods from Deployment/worker (spec.workloadRef); expected one other file that has it, found none"},
		{
			"another load balancer", func(_ *world, c object) { c["use_load_balancing"], c["load_balancer_type"] = true, "nginx" },
			"s/api.yaml: content: spec.strategy.canary.stableService is missing, and none was given: load balancing by nginx needs it",
		},
		{"a service that is not declared", func(_ *world, c object) { c["services"] = c["services"].([]any)[:2] }, ""},
		{"a service that is not in service", func(_ *world, c object) {
			c["services"] = append(c["services"].([]any), object{"service": "old", "file": "s/gone.yaml", "container": "old"})
		}, ""},
		{
			"no service that is declared", func(_ *world, c object) {
				c["services"] = []any{object{"service": "old", "file": "s/gone.yaml", "container": "old"}}
			},
			"service mismatch: the application has api, worker, the configuration declares none of them",
		},
		{
			"what a deploy would refuse", refused("auto_sync", "Application argocd/shop has automated sync on (spec.syncPolicy.automated)"),
			"Application argocd/shop has automated sync on (spec.syncPolicy.automated)",
		},
		{"a relay of before", refused("invalid", `function: found "argo.check", expected one of argo.sync`), ""},
		{"an agent that is away", refused("timeout", "no answer"), "Application argocd/shop: no answer"},
		{
			"blue-green", func(_ *world, c object) { c["rollout_strategy"] = "blue_green" },
			"s/api.yaml: content: spec.strategy has canary, expected blueGreen",
		},
		{
			"parameters of plain manifests", func(_ *world, c object) { c["version_setting"] = "parameters" },
			"version_setting parameters: api, worker: plain manifests render no parameters",
		},
		{
			"wrong credentials", func(w *world, _ object) { w.fail = failing("git.read_file", "unauthorized", "401") },
			"the repository http://git/shop.git refuses the credentials that are configured for it: 401",
		},
		{
			"Git is away", func(w *world, _ object) { w.fail = failing("git.read_file", "unreachable", "no route") },
			"the repository http://git/shop.git cannot be reached: no route",
		},
		{"the relay may not look", refused("forbidden", "no right to get applications"), "Application argocd/shop: no right to get applications"},
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
				"namespace": "argocd", "application": "shop", "rollout_strategy": "canary", "use_load_balancing": false,
				"repository_url": "http://git/shop.git", "path": "s",
				"destination_namespace": "fallback", "services": []any{entry("api", "api"), entry("api", "sidecar"), entry("worker", "worker")},
			}
			tt.edit(w, config)
			failure := w.run(driver.Setup, object{
				"application_environment": object{
					"id": 5, "config": config, "application": object{"id": 1, "name": "shop"},
					"services": []any{object{"id": 1, "name": "api"}, object{"id": 2, "name": "worker"}},
				},
				"environment": object{"id": 3, "name": "staging", "tier": "staging", "config": object{"cluster_agent_id": 42}},
			})
			if tt.want == "" {
				expect(t, w, "application_environment.ready application_environment_id=5 rollout_name=api-rollout rollout_namespace=shop")
				return
			}
			if !strings.Contains(failure, tt.want) {
				t.Errorf("failure %q does not contain %q", failure, tt.want)
			}
			if len(w.story) != 1 || !strings.HasPrefix(w.story[0],
				"application_environment.not_ready application_environment_id=5 reason="+tt.want) {
				t.Errorf("story = %q", w.story)
			}
		})
	}
}
