package render_test

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/render"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/sandbox"
)

// TestMain is also the child that renders: what works here has to work behind the isolation.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == "render" {
		if err := sandbox.ServeTask(context.Background(), os.Stdin, os.Stdout, render.Compute); err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// renderer renders in children with the limits that operators have by default.
func renderer(t *testing.T) *render.Renderer {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	tasks := sandbox.NewTasks(sandbox.TasksConfig{
		Command: []string{self, "render"}, Processes: 2, Limits: sandbox.Limits{Memory: 256 << 20, CPU: 20 * time.Second}, Clock: clock.System(),
	})
	t.Cleanup(tasks.Close)
	return render.New(tasks.Do, tasks.Preview)
}

func files(pairs ...string) map[string][]byte {
	all := map[string][]byte{}
	for i := 0; i < len(pairs); i += 2 {
		all[pairs[i]] = []byte(pairs[i+1]) //nolint:gosec // they are pairs
	}
	return all
}

const deployment = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: api}\nspec: {replicas: 1, template: {spec: {containers: [{name: api, image: a}]}}}\n"

// D53: an overlay with its base, a patch, a component, a generator and a namespace is built as kustomize build does.
func TestAnOverlayIsBuilt(t *testing.T) {
	t.Parallel()
	out, err := renderer(t).Kustomize(t.Context(), activity.KustomizeRequest{Path: "overlays/production", Files: files(
		"base/kustomization.yaml", "resources: [api.yaml]\n",
		"base/api.yaml", deployment,
		"parts/labels/kustomization.yaml", "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\nlabels: [{pairs: {team: shop}}]\n",
		"overlays/production/kustomization.yaml", `namespace: shop
resources: [../../base]
components: [../../parts/labels]
patches: [{path: replicas.yaml}]
configMapGenerator: [{name: settings, literals: [a=b]}]
`,
		"overlays/production/replicas.yaml", "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: api}\nspec: {replicas: 3}\n",
	)})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"replicas: 3", "namespace: shop", "team: shop", "name: settings-4h2mbtbbt6"} {
		if !strings.Contains(out.Text, want) {
			t.Errorf("found no %q in\n%s", want, out.Text)
		}
	}
}

// D45: what an overlay refers to outside of the repository is an error that names it, and nothing is fetched or run for it.
func TestAnOverlayReachesNothingElse(t *testing.T) {
	t.Parallel()
	r := renderer(t)
	for name, c := range map[string]struct{ kustomization, want string }{
		"a remote base":            {"resources: ['https://github.com/kubernetes-sigs/kustomize//examples/helloWorld?ref=v1']", "the remote base"},
		"a base of a forge":        {"resources: [github.com/shop/base]", "the remote base"},
		"a base over SSH":          {"bases: ['git@github.com:shop/base']", "the remote base"},
		"a chart":                  {"helmCharts: [{name: x, repo: https://charts.example.com}]", "helmCharts"},
		"a plugin":                 {"generators: [plugin.yaml]", "plugin"},
		"a program in a container": {"transformers: [container.yaml]", "plugin"},
		"a file above":             {"resources: [../../../../etc/passwd]", "etc/passwd"},
		"a remote transformer":     {"transformers: ['https://github.com/shop/base?ref=v1']", "the remote base"},
		"a remote validator":       {"validators: ['https://example.com/v']", "the remote base"},
		"a remote generator":       {"generators: [https:/example.com/v]", "the remote base"},
		"a remote file":            {"configMapGenerator: [{name: x, files: ['https://example.com/x']}]", "the remote file"},
		"a remote file with a key": {"secretGenerator: [{name: x, files: ['a=https://example.com/x']}]", "the remote file"},
		"a remote environment":     {"configMapGenerator: [{name: x, envs: ['http://example.com/x']}]", "the remote file"},
		"a base of a user at SSH":  {"resources: ['org-1@github.com:shop/base']", "the remote base"},
		"a remote patch":           {"patches: [{path: 'http://127.0.0.1:1/x'}]", "127.0.0.1"},
		"a folder that is missing": {"resources: [../none]", "none"},
		"no kustomization":         {"", "kustomization"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all := files("a/kustomization.yaml", c.kustomization,
				"a/plugin.yaml", "apiVersion: shop/v1\nkind: Anything\nmetadata: {name: x}\n",
				"a/container.yaml", "apiVersion: v1\nkind: X\nmetadata: {name: x, annotations: {config.kubernetes.io/function: 'exec: {path: /bin/true}'}}\n")
			if c.kustomization == "" {
				delete(all, "a/kustomization.yaml")
			}
			_, err := r.Kustomize(t.Context(), activity.KustomizeRequest{Path: "a", Files: all})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("found %v, expected an error with %q", err, c.want)
			}
		})
	}
}

const chartYAML = "apiVersion: v2\nname: shop\nversion: 1.2.0\nappVersion: '7'\n"

func chartOf(more ...string) map[string][]byte {
	return files(append([]string{
		"Chart.yaml", chartYAML,
		"values.yaml", "replicas: 1\ncount: 1000000\nsub: {on: true}\n",
		"templates/_helpers.tpl", "{{- define \"shop.name\" -}}{{ .Release.Name }}-api{{- end -}}",
		"templates/api.yaml", `apiVersion: apps/v1
kind: Deployment
metadata: {name: {{ include "shop.name" . }}, namespace: {{ .Release.Namespace }}}
spec: {replicas: {{ .Values.replicas }}}
`,
		"templates/NOTES.txt", "Thank you",
	}, more...)...)
}

// D53: a chart is rendered with files of values and values, of which the later win, as helm template does.
func TestAChartIsRendered(t *testing.T) {
	t.Parallel()
	out, err := renderer(t).Helm(t.Context(), activity.HelmRequest{
		Files: chartOf("templates/all.yaml", `apiVersion: v1
kind: ConfigMap
metadata: {name: all}
data:
  count: "{{ .Values.count }}"
  kube: {{ .Capabilities.KubeVersion.Version | quote }}
  has: "{{ .Capabilities.APIVersions.Has "example.com/v1" }}"
  found: {{ lookup "v1" "Secret" "default" "x" | toJson | quote }}
  host: {{ getHostByName "example.com" | quote }}
`, "templates/tests/test.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: t, annotations: {helm.sh/hook: test}}\n"),
		Values:  []string{"replicas: 2\n", "replicas: 3\n"},
		Release: "shop", Namespace: "prod", KubeVersion: "1.33.1", APIVersions: []string{"example.com/v1"},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"name: shop-api", "namespace: prod", "replicas: 3", `kube: "v1.33.1"`, `has: "true"`, `found: "{}"`, `host: ""`, "# Source: shop/templates/api.yaml",
	} {
		if !strings.Contains(out.Text, want) {
			t.Errorf("found no %q in\n%s", want, out.Text)
		}
	}
	if strings.Contains(out.Text, "Thank you") || strings.Contains(out.Text, "kind: Pod") {
		t.Errorf("found notes or tests in\n%s", out.Text)
	}
	if *out.Chart != (activity.ChartInfo{Name: "shop", Version: "1.2.0", AppVersion: "7"}) {
		t.Errorf("found the chart %+v", out.Chart)
	}
}

// A chart that cannot be rendered whole is an error that says why, and nothing outside of it is read.
func TestAChartThatIsRefused(t *testing.T) {
	t.Parallel()
	r := renderer(t)
	const hook = "apiVersion: batch/v1\nkind: Job\nmetadata: {name: migrate, annotations: {helm.sh/hook: pre-upgrade}}\n"
	const listed = "apiVersion: v1\nkind: List\nitems: [{kind: Job, metadata: {name: migrate, annotations: {helm.sh/hook: pre-upgrade, other: 1}}}]\n"
	for name, c := range map[string]struct {
		files  map[string][]byte
		values string
		skip   bool
		want   string
	}{
		"hooks":                    {files: chartOf("templates/hook.yaml", hook), want: "templates/hook.yaml: Job migrate is a hook"},
		"a hook of no event":       {files: chartOf("templates/hook.yaml", strings.Replace(hook, "pre-upgrade", "pre-upgrad", 1)), skip: true, want: "the unknown event \"pre-upgrad\""},
		"a hook inside of a list":  {files: chartOf("templates/hook.yaml", listed), skip: true, want: "found the hook Job migrate inside of a list"},
		"another Kubernetes":       {files: chartOf("Chart.yaml", chartYAML+"kubeVersion: '>=9.0'\n"), want: "is for Kubernetes >=9.0"},
		"values that fit":          {files: chartOf("values.schema.json", `{"$schema":"http://json-schema.org/draft-07/schema#","properties":{"replicas":{"type":"integer"}}}`)},
		"a file that is ignored":   {files: chartOf(".helmignore", "old*\n/drafts/\n", "templates/old.yaml", "a: [", "drafts/x", "x")},
		"rules that are wrong":     {files: chartOf(".helmignore", "**\n"), want: "double-star"},
		"hooks that are left out":  {files: chartOf("templates/hook.yaml", hook), skip: true},
		"a missing dependency":     {files: chartOf("Chart.yaml", chartYAML+"dependencies: [{name: db, version: 1.0.0, repository: 'https://charts.example.com'}]\n"), want: "lacks its dependencies db"},
		"a library":                {files: chartOf("Chart.yaml", chartYAML+"type: library\n"), want: "expected an application"},
		"no chart":                 {files: files("a.yaml", "x"), want: "Chart.yaml"},
		"a failing template":       {files: chartOf("templates/x.yaml", `{{ fail "no database given" }}`), want: "no database given"},
		"a value that is required": {files: chartOf("templates/x.yaml", `a: {{ required "name is needed" .Values.name }}`), want: "name is needed"},
		"values of another type":   {files: chartOf("values.schema.json", `{"properties":{"replicas":{"type":"integer"}}}`), values: "replicas: many", want: "do not fit the schema of the chart shop"},
		"a schema elsewhere":       {files: chartOf("values.schema.json", `{"$ref":"file:///etc/passwd"}`), want: "expected a schema that refers to nothing outside of it"},
		"values that are no YAML":  {files: chartOf(), values: "a: [", want: "values 1"},
		"what is no YAML":          {files: chartOf("templates/x.yaml", "a: [\n"), want: "templates/x.yaml"},
		"the environment":          {files: chartOf("templates/x.yaml", `a: {{ env "HOME" }}`), want: `function "env" not defined`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := r.Helm(t.Context(), activity.HelmRequest{
				Files: c.files, Values: []string{c.values}, Release: "shop", Namespace: "prod", SkipHooks: c.skip,
			})
			switch {
			case c.want == "" && err != nil:
				t.Error(err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("found %v, expected an error with %q", err, c.want)
			}
		})
	}
}
