package manifest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const deployment = `apiVersion: apps/v1
kind: Deployment
metadata: {name: api, namespace: shop}
spec:
  replicas: 2
  template:
    metadata: {labels: {app: api}}
    spec:
      containers:
      - {name: api, image: api:1}
      - {name: side, image: side:1}
`

// R4-19: what differs between manifests, in the terms of the planner.
func TestCompareManifests(t *testing.T) {
	t.Parallel()
	const config = "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {a: b}\n"
	const sealed = "---\napiVersion: bitnami.com/v1alpha1\nkind: SealedSecret\nmetadata: {name: token}\nspec: {encryptedData: {a: b}}\n"
	const service = "---\napiVersion: v1\nkind: Service\nmetadata: {name: api}\nspec: {ports: [{port: 80}]}\n"
	const cron = "apiVersion: batch/v1\nkind: CronJob\nmetadata: {name: nightly}\nspec: {schedule: '0 1 * * *', jobTemplate: {spec: {template: {spec: {containers: [{name: n, image: n:1}]}}}}}\n"
	const kustomization = "resources: [api.yaml]\nimages:\n- {name: api, newTag: '1'}\nreplicas:\n- {name: api, count: 2}\n"
	const patch = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: api}\nspec: "
	change := func(text string, pairs ...string) string { return strings.NewReplacer(pairs...).Replace(text) }
	for name, c := range map[string]struct {
		file          string
		before, after string
		workloads     int
		want, unread  []string
	}{
		"nothing":       {"a.yaml", deployment, "# a comment\n" + deployment, 1, nil, nil},
		"an image":      {"a.yaml", deployment, change(deployment, "api:1", "api:2"), 1, []string{"image changed Deployment/api api:1 → api:2"}, nil},
		"replicas":      {"a.yaml", deployment, change(deployment, "replicas: 2", "replicas: 4"), 1, []string{"replicas changed Deployment/api 2 → 4"}, nil},
		"a label":       {"a.yaml", deployment, change(deployment, "app: api", "app: web"), 1, []string{"pod_template changed Deployment/api "}, nil},
		"the namespace": {"a.yaml", deployment, change(deployment, "shop", "other"), 2, []string{"pod_template added Deployment/api ", "pod_template removed Deployment/api "}, nil},
		"a container": {
			"a.yaml", deployment, change(deployment, "      - {name: side, image: side:1}\n", ""), 1,
			[]string{"image removed Deployment/api side:1 → none", "pod_template changed Deployment/api "},
			nil,
		},
		"another field of a workload": {"a.yaml", deployment, change(deployment, "  replicas", "  paused: true\n  replicas"), 1, []string{"other changed Deployment/api "}, nil},
		"everything, in order": {
			"a.yaml", deployment + service + config, change(deployment, "replicas: 2", "replicas: 3", "api:1", "api:2") + change(service, "80", "81") + change(config, "a: b", "a: c") + sealed, 1,
			[]string{
				"image changed Deployment/api api:1 → api:2", "config_map changed ConfigMap/settings ", "secret added SealedSecret/token ",
				"replicas changed Deployment/api 2 → 3", "other changed Service/api ",
			},
			nil,
		},
		"a cron job":                    {"a.yaml", cron, change(cron, "n:1", "n:2", "0 1", "0 2"), 1, []string{"image changed CronJob/nightly n:1 → n:2", "other changed CronJob/nightly "}, nil},
		"a file that goes":              {"a.yaml", deployment, "", 1, []string{"pod_template removed Deployment/api "}, nil},
		"an image of a kustomization":   {"o/kustomization.yaml", kustomization, change(kustomization, "'1'", "'2'"), 0, []string{"image changed o/kustomization.yaml api api:1 → api:2"}, nil},
		"replicas of a kustomization":   {"kustomization.yaml", kustomization, change(kustomization, "count: 2", "count: 3"), 0, []string{"replicas changed kustomization.yaml api 2 → 3"}, nil},
		"a patch of a kustomization":    {"kustomization.yaml", kustomization, kustomization + "patches: [{path: x.yaml}]\n", 0, nil, []string{"kustomization.yaml"}},
		"values of a chart":             {"values.yaml", "image: a\n", "image: b\n", 0, nil, []string{"values.yaml"}},
		"values that stay":              {"values.yaml", "image: a\n", "image: a # same\n", 0, nil, nil},
		"a template":                    {"t.yaml", "kind: {{ .Values.x }}\n", "kind: {{ .Values.y }}\n", 0, nil, []string{"t.yaml"}},
		"text for people":               {"README.md", "a: [", "b", 0, nil, nil},
		"text of a generated map":       {"settings.txt", "a: 1\n", "a: 2\n", 0, nil, []string{"settings.txt"}},
		"notes of a chart":              {"templates/NOTES.txt", "{{ a }", "{{ b }", 0, nil, nil},
		"a patch without containers":    {"p.yaml", patch + "{template: {spec: {serviceAccountName: a}}}\n", patch + "{template: {spec: {serviceAccountName: b}}}\n", 1, []string{"pod_template changed Deployment/api "}, nil},
		"a patch of replicas":           {"p.yaml", patch + "{replicas: 1}\n", patch + "{replicas: 2}\n", 1, []string{"replicas changed Deployment/api 1 → 2"}, nil},
		"a template of a job":           {"p.yaml", cron, change(cron, "jobTemplate: {spec: {", "jobTemplate: {spec: {backoffLimit: 1, "), 1, []string{"pod_template changed CronJob/nightly "}, nil},
		"a template of another kind":    {"p.yaml", change(patch, "Deployment", "Worker") + "{template: {a: 1}}\n", change(patch, "Deployment", "Worker") + "{template: {a: 2}}\n", 1, []string{"pod_template changed Worker/api "}, nil},
		"a reference to a workload":     {"p.yaml", change(patch, "Deployment", "Rollout") + "{workloadRef: {name: a}}\n", change(patch, "Deployment", "Rollout") + "{workloadRef: {name: b}}\n", 1, []string{"pod_template changed Rollout/api "}, nil},
		"an image that is no text":      {"p.yaml", deployment, change(deployment, "api:1", "[a]"), 1, []string{"image changed Deployment/api api:1 → [a]"}, nil},
		"containers of one name":        {"p.yaml", change(deployment, "name: side", "name: api"), change(deployment, "name: side", "name: api", "api:1", "api:2"), 1, []string{"image changed Deployment/api api:1 → api:2"}, nil},
		"one object twice":              {"a.yaml", deployment + "---\n" + deployment, change(deployment, "api:1", "api:2") + "---\n" + deployment, 2, []string{"image changed Deployment/api api:1 → api:2"}, nil},
		"a list with a name":            {"a.yaml", "kind: List\napiVersion: v1\nmetadata: {name: l}\nitems: [1]\n", "kind: List\napiVersion: v1\nmetadata: {name: l}\nitems: [2]\n", 0, nil, []string{"a.yaml"}},
		"a suffix of a tag":             {"kustomization.yaml", kustomization, change(kustomization, "'1'", "'1', tagSuffix: x"), 0, nil, []string{"kustomization.yaml"}},
		"images in another order":       {"kustomization.yaml", "images: [{name: a}, {name: b}]\n", "images: [{name: b}, {name: a}]\n", 0, nil, []string{"kustomization.yaml"}},
		"images of one name":            {"kustomization.yaml", "images: [{name: a}, {name: a, newTag: x}]\n", "images: [{name: a, newTag: y}, {name: a, newTag: x}]\n", 0, nil, []string{"kustomization.yaml"}},
		"one more number of replicas":   {"kustomization.yaml", kustomization, kustomization + "- {name: web, count: 2}\n", 0, []string{"replicas added kustomization.yaml web none → 2"}, nil},
		"what refers to other things":   {"a.yaml", "a: &x [1]\nb: *x\n", "a: 1\n", 0, nil, []string{"a.yaml"}},
		"what is too large":             {"a.yaml", "", strings.Repeat("#", mostObjects+1), 0, nil, []string{"a.yaml"}},
		"a list, whose items are split": {"a.yaml", "kind: List\napiVersion: v1\nitems: [1]\n", "kind: List\napiVersion: v1\nitems: [2]\n", 0, nil, []string{"a.yaml"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found, err := Compare(t.Context(), []Revision{{Path: c.file, Before: c.before, After: c.after}})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, thing := range found.Things {
				got = append(got, fmt.Sprint(thing.Kind, " ", thing.Action, " ", thing.Object, " ", thing.Detail))
			}
			if diff := cmp.Diff(c.want, got); diff != "" || !slices.Equal(found.Unread, c.unread) || found.Workloads != c.workloads {
				t.Errorf("%d workloads, unread %v, things (-want +got):\n%s", found.Workloads, found.Unread, diff)
			}
		})
	}
}

// An object that moves to another file has not changed, and what is listed is bounded, the gravest first.
func TestComparisonsAcrossFiles(t *testing.T) {
	t.Parallel()
	moved, err := Compare(t.Context(), []Revision{{Path: "a.yaml", Before: deployment}, {Path: "b.yaml", After: deployment}})
	if err != nil || len(moved.Things) != 0 || moved.Workloads != 1 {
		t.Errorf("found %+v, %v", moved, err)
	}
	newer := strings.ReplaceAll(deployment, "api:1", "api:2")
	for _, same := range []string{"a.yaml", "z.yaml"} { // another file has the same object, as it was
		masked, err := Compare(t.Context(), []Revision{
			{Path: same, Before: deployment, After: deployment + "# x\n"}, {Path: "m.yaml", Before: deployment, After: newer},
		})
		if err != nil || len(masked.Things) != 1 || masked.Things[0].Kind != ThingImage {
			t.Errorf("found %+v, %v; want the image", masked, err)
		}
	}
	files := []Revision{{Path: "z.yaml", Before: deployment, After: newer}}
	for i := range 2 * mostThings {
		files = append(files, Revision{Path: fmt.Sprintf("%d.yaml", i), After: fmt.Sprintf("apiVersion: v1\nkind: Service\nmetadata: {name: s%d}\n", i)})
	}
	many, err := Compare(t.Context(), files)
	if err != nil || len(many.Things) != mostThings || many.Things[0].Kind != ThingImage {
		t.Errorf("found %d things, the first %+v, %v", len(many.Things), many.Things[0], err)
	}
}
