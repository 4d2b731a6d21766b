package drivertest

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-cd/lockstep/pkg/driver"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
)

// existing is the configuration of an Application that exists, and whose source has parameters of its own.
func existing(w *world, source object) object {
	w.objects["Application argocd/shop-staging"] = object{
		"kind": "Application", "metadata": object{"name": "shop-staging", "namespace": "argocd"}, "spec": object{"source": source},
	}
	return inputs(2, func(_, environment object) {
		environment["gates"] = []any{}
		environment["application_environment"].(object)["config"].(object)["mode"] = "existing"
	})
}

// application is what a snapshot says about the Application.
func application(t *testing.T, w *world) object {
	t.Helper()
	var parameters struct{ Application object }
	if len(w.committed) != 2 {
		t.Fatalf("%d snapshots, expected those of both deployments", len(w.committed))
	}
	if err := json.Unmarshal(w.committed[1].Parameters, &parameters); err != nil {
		t.Fatal(err)
	}
	return parameters.Application
}

// D53, E46: the snapshot of a deployment to an existing Application has its value files and parameters, without secrets.
func TestTheSnapshotHasTheParametersOfAnExistingApplication(t *testing.T) {
	t.Parallel()
	w := shop(t)
	in := existing(w, object{
		"repoURL": "http://git/shop.git", "helm": object{
			"valueFiles": []any{"values.yaml", "values-staging.yaml"}, "values": "password: hunter2\n",
			"parameters": []any{object{"name": "replicas", "value": "3"}, object{"name": "db.password", "value": "hunter2"}},
		},
	})
	if failure := w.run(driver.Deploy, in); failure != "" {
		t.Fatal(failure)
	}
	found := application(t, w)
	text, err := json.Marshal(found)
	if err != nil {
		t.Fatal(err)
	}
	helm := found["helm"].(object)
	if diff := cmp.Diff([]any{"values.yaml", "values-staging.yaml"}, helm["valueFiles"]); diff != "" {
		t.Errorf("value files (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]any{"replicas", "db.password"}, helm["parameters"]); diff != "" ||
		!strings.HasPrefix(helm["values_digest"].(string), "sha256:") || !strings.HasPrefix(helm["parameters_digest"].(string), "sha256:") ||
		strings.Contains(string(text), "hunter2") {
		t.Errorf("found %s, expected the names of the parameters, and the digests of the values", text)
	}
}

// D53: whatever the names of its parameters, and wherever in its patches they are, no value of an existing Application is in a snapshot or
// in a preview: one of a name that is not a secret's, a list of names and values, one in a text of YAML, or a member of a later release.
func TestNoValueOfAnExistingApplicationIsRecorded(t *testing.T) {
	t.Parallel()
	const secret = "hunter2"
	source := func() object {
		return object{
			"helm": object{
				"valueFiles":   []any{"https://ann:" + secret + "@git/values.yaml"},
				"valuesObject": object{"env": []any{object{"name": "PIN", "value": secret}}},
				"parameters": []any{
					object{"name": "env[0].name", "value": "DB_PIN"},
					object{"name": "env[0].value", "value": secret},
					object{"name": "credentials.url", "value": secret},
					object{"name": "secretFile", "value": secret},
				},
				"later": []any{secret},
			},
			"kustomize": object{
				"images": []any{"api=" + image("api", 1)}, "commonAnnotations": object{"note": secret}, "later": secret,
				"patches": []any{object{
					"target": object{"kind": "Rollout", "name": "api"},
					"patch":  "spec: {template: {spec: {containers: [{name: api, env: [{name: PIN, value: " + secret + "}]}]}}}",
				}},
			},
		}
	}
	w := shop(t)
	if failure := w.run(driver.Deploy, existing(w, source())); failure != "" {
		t.Fatal(failure)
	}
	found := application(t, w)
	text, err := json.Marshal(found)
	if err != nil {
		t.Fatal(err)
	}
	patches := []any{object{"target": object{"kind": "Rollout", "name": "api"}}}
	if diff := cmp.Diff(patches, found["kustomize"].(object)["patches"]); diff != "" || strings.Contains(string(text), secret) ||
		!strings.Contains(string(text), "later_digest") || !strings.Contains(string(text), image("api", 1)) {
		t.Errorf("found %s; patches (-want +got):\n%s", text, diff)
	}
	w, edit := kustomized(t)
	w.objects["Application argocd/shop-staging"] = object{"spec": object{"source": source()}}
	got := preview(t, w, previews(2, func(in, environment object) {
		edit(in, environment)
		configOf(environment)["version_setting"] = "parameters"
		environment["gates"] = []any{}
	}))
	if len(got.Changes) != 1 || strings.Contains(got.Changes[0].Diff, secret) ||
		!strings.Contains(got.Changes[0].Diff, `-        "patch_digest": "sha256:`) {
		t.Errorf("found %+v, expected the patch that is lost by its digest", got)
	}
}

// An Application without parameters, one that Lockstep manages, and one that cannot be read have none in the snapshot, and are deployed.
// What is too large has its size there.
func TestTheSnapshotOfAnApplicationWithoutParameters(t *testing.T) {
	t.Parallel()
	large := object{"helm": object{"valueFiles": []any{strings.Repeat("x", 70_000)}}}
	for name, tc := range map[string]struct {
		source object
		edit   func(w *world, in object)
		want   object
	}{
		"none":      {object{"repoURL": "http://git/shop.git"}, func(*world, object) {}, nil},
		"directory": {object{"directory": object{"recurse": true}}, func(*world, object) {}, nil},
		"managed": {object{"helm": object{"valueFiles": []any{"a"}}}, func(_ *world, in object) {
			in["rollout"].(object)["environments"].([]any)[0].(object)["application_environment"].(object)["config"].(object)["mode"] = "managed"
		}, nil},
		"away": {object{"helm": object{"valueFiles": []any{"a"}}}, func(w *world, _ object) {
			w.fail = func(name string, args object) *history.FunctionError {
				if name == "k8s.get" && args["kind"] == "Application" {
					return &history.FunctionError{Code: "timeout", Message: "no answer"}
				}
				return nil
			}
		}, nil},
		"a release before": {object{"helm": object{"valueFiles": []any{"a"}}}, func(w *world, _ object) { w.older = true }, nil},
		"kustomize":        {object{"kustomize": object{"namePrefix": "x-"}}, func(*world, object) {}, object{"kustomize": object{"namePrefix": "x-"}}},
		"large":            {large, func(*world, object) {}, object{"bytes": 70_028.0}},
	} {
		w := shop(t)
		in := existing(w, tc.source)
		tc.edit(w, in)
		if failure := w.run(driver.Deploy, in); failure != "" {
			t.Fatalf("%s: %s", name, failure)
		}
		if diff := cmp.Diff(tc.want, application(t, w)); diff != "" {
			t.Errorf("%s: (-want +got):\n%s", name, diff)
		}
	}
}
