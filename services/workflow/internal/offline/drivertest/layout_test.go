package drivertest

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/driver"
)

// entries replaces the services of the configuration.
func entries(all ...object) func(in, environment object) {
	return func(_, environment object) {
		var list []any
		for _, e := range all {
			list = append(list, e)
		}
		configOf(environment)["services"] = list
	}
}

func runs(t *testing.T, w *world, in object) {
	t.Helper()
	if failure := w.run(driver.Deploy, in); failure != "" {
		t.Fatal(failure)
	}
	for _, service := range []string{"api", "worker"} {
		r := w.rollouts["shop/"+service]
		if r == nil || r.image != image(service, 2) || r.stable != r.current {
			t.Errorf("%s: found %+v, expected %s to be stable", service, r, image(service, 2))
		}
		if !strings.Contains(strings.Join(w.story, "\n"), "promote: "+service+" past 50") {
			t.Errorf("%s has passed no gate: %q", service, w.story)
		}
	}
}

// TestOneSourceFeedsSeveralContainers: R11, in two Rollouts of one file with several documents.
func TestOneSourceFeedsSeveralContainers(t *testing.T) {
	t.Parallel()
	w := shop(t)
	second := strings.Replace(manifestOf("worker", "old"), "containers: [{name: worker",
		"containers: [{name: worker, image: old}, {name: drain", 1)
	w.files = map[string]string{"staging/all.yaml": "kind: ConfigMap\nmetadata: {name: x}\n---\n" +
		manifestOf("api", "old") + "---\n" + second}
	entry := func(service, container string) object {
		return object{"service": service, "file": "staging/all.yaml", "container": container, "rollout_name": service}
	}
	runs(t, w, inputs(2, entries(entry("api", "api"), entry("worker", "worker"), entry("worker", "drain"))))
	if n := strings.Count(w.files["staging/all.yaml"], image("worker", 2)); n != 2 {
		t.Errorf("%d containers have the worker's image, expected 2: %s", n, w.files["staging/all.yaml"])
	}
}

// TestPodsInAnotherFile: D23.
func TestPodsInAnotherFile(t *testing.T) {
	t.Parallel()
	w := shop(t)
	const deployment = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: api}\nspec:\n  template: {spec: {containers: [{name: api, image: old}]}}\n"
	w.files["staging/api.yaml"] = "apiVersion: argoproj.io/v1alpha1\nkind: Rollout\nmetadata: {name: api}\nspec:\n  workloadRef: {apiVersion: apps/v1, kind: Deployment, name: api}\n"
	w.files["staging/deployment.yaml"] = deployment
	runs(t, w, inputs(2, entries(
		object{"service": "api", "file": "staging/deployment.yaml", "rollout_file": "staging/api.yaml", "container": "api"},
		object{"service": "worker", "file": "staging/worker.yaml", "container": "worker"},
	)))
	if want := strings.Replace(deployment, "old", image("api", 2),
		1); strings.ReplaceAll(w.files["staging/deployment.yaml"], `"`, "") != want {
		t.Errorf("deployment: %s", w.files["staging/deployment.yaml"])
	}
}

// kustomized is shop with a kustomization that says which images run.
func kustomized(t *testing.T) (*world, func(in, environment object)) {
	t.Helper()
	w := shop(t)
	w.files["staging/kustomization.yaml"] = "kind: Kustomization\nimages:\n- name: api\n- name: worker\n"
	entry := func(service string) object {
		w.files["staging/"+service+".yaml"] = manifestOf(service, service)
		return object{
			"service": service, "format": "kustomize", "file": "staging/kustomization.yaml", "image_name": service,
			"rollout_file": "staging/" + service + ".yaml", "container": service,
		}
	}
	return w, entries(entry("api"), entry("worker"))
}

func TestKustomizeImagesAreCommitted(t *testing.T) {
	t.Parallel()
	w, edit := kustomized(t)
	runs(t, w, inputs(2, edit))
	if len(w.commits) != 1 || !strings.Contains(w.files["staging/kustomization.yaml"], "newName: registry/shop/api\n  digest: sha256:") {
		t.Errorf("%d commits, kustomization: %s", len(w.commits), w.files["staging/kustomization.yaml"])
	}
	if !strings.Contains(w.files["staging/api.yaml"], `"setWeight": 25`) {
		t.Errorf("the Rollout has no steps of ours: %s", w.files["staging/api.yaml"])
	}
}

// TestParametersLeaveTheRepositoryAsItIs: E45.
func TestParametersLeaveTheRepositoryAsItIs(t *testing.T) {
	t.Parallel()
	w, edit := kustomized(t)
	before := w.files["staging/api.yaml"]
	runs(t, w, inputs(2, func(in, environment object) {
		edit(in, environment)
		configOf(environment)["version_setting"] = "parameters"
	}))
	if len(w.commits) != 0 || w.files["staging/api.yaml"] != before {
		t.Errorf("commits %q, manifest %s", w.commits, w.files["staging/api.yaml"])
	}
	if story := strings.Join(w.story, "\n"); !strings.Contains(story, `"images":["api=`+image("api", 2)) {
		t.Errorf("story: %s", story)
	}
}

// charted is shop as a chart.
func charted(t *testing.T) (*world, func(in, environment object)) {
	t.Helper()
	w := shop(t)
	w.files = map[string]string{"staging/values.yaml": "api:\n  image: {repository: registry/shop/api, tag: v1}\n  steps: []\nworker:\n  image: old\n  steps: []\n"}
	w.rendered = func(values object) string {
		api, worker := values["api"].(object), values["worker"].(object)
		rollout := func(name, image string) string {
			steps, err := json.Marshal(values[name].(object)["steps"])
			if err != nil {
				t.Error(err)
			}
			return strings.Replace(manifestOf(name, image), "[{setWeight: 1}]", string(steps), 1)
		}
		return rollout("api", api["image"].(object)["repository"].(string)+":"+api["image"].(object)["tag"].(string)) + "---\n" +
			rollout("worker", worker["image"].(string))
	}
	entry := func(service string) object {
		return object{
			"service": service, "format": "helm", "file": "staging/values.yaml", "image_path": service + ".image", "steps_path": service + ".steps",
			"rollout_name": service, "container": service,
		}
	}
	return w, entries(entry("api"), entry("worker"))
}

func TestHelmValues(t *testing.T) {
	t.Parallel()
	for _, setting := range []string{"committed", "parameters"} {
		t.Run(setting, func(t *testing.T) {
			t.Parallel()
			w, edit := charted(t)
			if failure := w.run(driver.Deploy, inputs(2, func(in, environment object) {
				edit(in, environment)
				configOf(environment)["version_setting"] = setting
			})); failure != "" {
				t.Fatal(failure)
			}
			if got := w.rollouts["shop/api"].image; got != strings.Replace(image("api", 2), "@", ":2@", 1) {
				t.Errorf("api runs %s", got)
			}
			if committed := len(w.commits) == 1; committed != (setting == "committed") ||
				!strings.Contains(strings.Join(w.story, "\n"), "promote: worker past 50") {
				t.Errorf("commits %q, story %q", w.commits, w.story)
			}
		})
	}
}

func TestSetupOfOtherLayouts(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		make func(*testing.T) (*world, func(in, environment object))
		edit func(w *world, config object)
		want string
	}{
		{"kustomize", kustomized, nil, ""},
		{"kustomize by parameters", kustomized, func(_ *world, c object) { c["version_setting"] = "parameters" }, ""},
		{"no such image", kustomized, func(w *world, _ object) {
			w.files["staging/kustomization.yaml"] = "images: [{name: api}]"
		}, `staging/kustomization.yaml: images[0].name: the kustomization has the images api, expected one "worker"`},
		{"helm", charted, nil, ""},
		{
			"no such value", charted, func(w *world, _ object) { w.files["staging/values.yaml"] = "api: {image: x, steps: []}" },
			"staging/values.yaml: values[0].path: the values have no worker.image",
		},
		{
			"other containers live", charted, func(w *world, _ object) { w.rollouts["shop/api"].name = "backend" },
			"api: container mismatch: the Rollout has backend, the configuration declares api",
		},
		{"two formats", kustomized, func(_ *world, c object) {
			c["services"] = append(c["services"].([]any), object{"service": "api", "file": "staging/api.yaml", "container": "x"})
		}, "service api is written as kustomize and as manifest; expected one format"},
		{"two files", kustomized, func(_ *world, c object) {
			c["services"] = append(c["services"].([]any),
				object{"service": "api", "format": "kustomize", "file": "staging/kustomization.yaml", "rollout_file": "x.yaml", "container": "x"})
		}, "service api is in staging/api.yaml and in x.yaml; expected one file with its Rollout"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			w, layout := tc.make(t)
			environment := inputs(2, layout)["rollout"].(object)["environments"].([]any)[0].(object)
			config := configOf(environment)
			if tc.edit != nil {
				tc.edit(w, config)
			}
			failure := w.run(driver.Setup, object{
				"application_environment": object{
					"id": 5, "config": config, "application": object{"id": 1, "name": "shop"},
					"services": []any{object{"id": 1, "name": "api"}, object{"id": 2, "name": "worker"}},
				},
				"environment": object{"id": 3, "name": "staging", "tier": "staging", "config": object{"cluster_agent_id": 42}},
			})
			if (tc.want == "") != (failure == "") || !strings.Contains(failure, tc.want) {
				t.Errorf("failure %q, expected %q", failure, tc.want)
			}
		})
	}
}

// Steps of the user's own are in what Argo CD is given, wherever that is written.
func TestTheUsersOwnStepsAreRenderedAsWell(t *testing.T) {
	t.Parallel()
	const own = `{setWeight: 5}, {analysis: {templates: [{templateName: success}]}}`
	for name, make := range map[string]func(*testing.T) (*world, func(in, environment object)){"kustomize": kustomized, "helm": charted} {
		for _, setting := range []string{"committed", "parameters"} {
			t.Run(name+" "+setting, func(t *testing.T) {
				t.Parallel()
				w, edit := make(t)
				for path, text := range w.files {
					text = strings.Replace(text, "[{setWeight: 1}]", "["+own+"]", 1)
					w.files[path] = strings.Replace(text, "steps: []", "steps: ["+own+"]", 1)
				}
				if failure := w.run(driver.Deploy, inputs(2, func(in, environment object) {
					edit(in, environment)
					configOf(environment)["version_setting"] = setting
				})); failure != "" {
					t.Fatal(failure)
				}
				given := strings.Join(w.story, "\n")
				if setting == "committed" {
					for _, text := range w.files {
						given += text
					}
				}
				given = strings.NewReplacer(" ", "", `"`, "", `\`, "").Replace(given)
				if want := "{setWeight:5},{analysis:{templates:[{templateName:success}]}},{setWeight:25},{pause:{}}"; !strings.Contains(given, want) {
					t.Errorf("found no %s in:\n%s", want, given)
				}
			})
		}
	}
}
