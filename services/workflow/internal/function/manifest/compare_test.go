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
			[]string{"image removed Deployment/api side:1 → none", "pod_template changed Deployment/api "}, nil,
		},
		"another field of a workload": {"a.yaml", deployment, change(deployment, "  replicas", "  paused: true\n  replicas"), 1, []string{"other changed Deployment/api "}, nil},
		"everything, in order": {
			"a.yaml", deployment + service + config, change(deployment, "replicas: 2", "replicas: 3", "api:1", "api:2") + change(service, "80", "81") + change(config, "a: b", "a: c") + sealed, 1,
			[]string{
				"image changed Deployment/api api:1 → api:2", "config_map changed ConfigMap/settings ", "secret added SealedSecret/token ",
				"replicas changed Deployment/api 2 → 3", "other changed Service/api ",
			}, nil,
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
	files := []Revision{{Path: "z.yaml", Before: deployment, After: strings.ReplaceAll(deployment, "api:1", "api:2")}}
	for i := range 2 * mostThings {
		files = append(files, Revision{Path: fmt.Sprintf("%d.yaml", i), After: fmt.Sprintf("apiVersion: v1\nkind: Service\nmetadata: {name: s%d}\n", i)})
	}
	many, err := Compare(t.Context(), files)
	if err != nil || len(many.Things) != mostThings || many.Things[0].Kind != ThingImage {
		t.Errorf("found %d things, the first %+v, %v", len(many.Things), many.Things[0], err)
	}
}
