package main

import (
	"flag"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/lint/support"
	"sigs.k8s.io/yaml"

	"github.com/lockstep-cd/lockstep/pkg/testkit/chartvalues"
	"github.com/lockstep-cd/lockstep/tools/charts/derive"
	"github.com/lockstep-cd/lockstep/tools/charts/invariant"
	"github.com/lockstep-cd/lockstep/tools/charts/render"
)

var update = flag.Bool("update", false, "write the golden files")

// root is the checkout's.
const root = "../.."

// cases returns the files of values to render, by chart.
func cases(t *testing.T, chart string) map[string]map[string]any {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", chart, "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("values of %s: found %d files, %v; expected some", chart, len(files), err)
	}
	all := map[string]map[string]any{}
	for _, file := range files {
		all[strings.TrimSuffix(filepath.Base(file), ".yaml")] = readValues(t, file)
	}
	return all
}

func readValues(t *testing.T, file string) map[string]any {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var values map[string]any
	if err := yaml.UnmarshalStrict(text, &values); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return values
}

func release(chart string, values map[string]any) render.Release {
	return render.Release{
		Chart: filepath.Join(root, "charts", chart), Name: chart, Namespace: "delivery", Values: values, APIs: thirdParty(),
	}
}

func charts() []string { return []string{"lockstep", "lockstep-relay"} }

// TestMatrix renders every file of values, decodes every object strictly, and checks the release against the invariants and its golden
// file.
func TestMatrix(t *testing.T) {
	t.Parallel()
	for _, chart := range charts() {
		for name, values := range cases(t, chart) {
			t.Run(chart+"/"+name, func(t *testing.T) {
				t.Parallel()
				objects, notes, err := render.Objects(t.Context(), release(chart, values))
				if err != nil {
					t.Fatal(err)
				}
				for _, problem := range invariant.Check(objects) {
					t.Error(problem)
				}
				if !strings.Contains(notes, "helm -n delivery test "+chart) {
					t.Errorf("notes name no next command:\n%s", notes)
				}
				golden(t, filepath.Join("testdata", chart, name+".golden"), objects, notes)
			})
		}
	}
}

// golden compares a release with a file. `go test -update` writes it.
func golden(t *testing.T, file string, objects []render.Object, notes string) {
	t.Helper()
	var got strings.Builder
	for _, o := range objects {
		got.WriteString("---\n# " + o.Source + "\n" + o.Text)
	}
	got.WriteString("--- notes\n" + strings.TrimSpace(notes) + "\n")
	if *update {
		if err := os.WriteFile(file, []byte(got.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v; write it with `make charts-write`", err)
	}
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got.String(), "\n")); diff != "" {
		t.Errorf("%s (-want +got); look at it, then `make charts-write`:\n%s", file, diff)
	}
}

// TestNamesThatYAMLReadsAsSomethingElse: a namespace may be called n, which YAML reads as false, and a release 1.
func TestNamesThatYAMLReadsAsSomethingElse(t *testing.T) {
	t.Parallel()
	for _, chart := range charts() {
		for name, values := range cases(t, chart) {
			r := release(chart, values)
			r.Name, r.Namespace = "1", "n"
			if _, _, err := render.Objects(t.Context(), r); err != nil {
				t.Errorf("%s with %s: %v", chart, name, err)
			}
		}
	}
}

// TestLint is `helm lint --strict`.
func TestLint(t *testing.T) {
	t.Parallel()
	for _, chart := range charts() {
		for name, values := range cases(t, chart) {
			for _, m := range lint.RunAll(filepath.Join(root, "charts", chart), values, "delivery").Messages {
				// An icon is for catalogues; and the values alone deliberately do not install: they name no Secret.
				if m.Severity >= support.WarningSev {
					t.Errorf("%s with %s: %s", chart, name, m.Err)
				}
			}
		}
	}
}

// TestDerived: derived files are up to date.
func TestDerived(t *testing.T) {
	t.Parallel()
	stale, err := derive.Stale(root, false)
	if err != nil {
		t.Fatal(err)
	}
	if len(stale) > 0 {
		t.Errorf("not what they are derived from: %q; run `make charts-write`", stale)
	}
}

// TestEveryValueIsUsed: each documented leaf is used by a template, since a value without effect would mislead.
func TestEveryValueIsUsed(t *testing.T) {
	t.Parallel()
	for _, chart := range charts() {
		rows, err := chartvalues.Read(filepath.Join(root, "charts", chart, "values.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		text := templates(t, chart)
		for _, row := range rows {
			keys := strings.Split(row.Path, ".")
			if leaf := keys[len(keys)-1]; !strings.Contains(text, "."+leaf) && !strings.Contains(text, strconv.Quote(leaf)) {
				t.Errorf("%s: no template uses %s", chart, row.Path)
			}
		}
	}
}

func templates(t *testing.T, chart string) string {
	t.Helper()
	var all strings.Builder
	files := os.DirFS(filepath.Join(root, "charts", chart, "templates"))
	err := fs.WalkDir(files, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := fs.ReadFile(files, path)
		all.Write(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}

// TestRefusedValues: a mistake is refused before anything is installed, and the message names the place and the expected value.
func TestRefusedValues(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, chart, with string
		want              []string
	}{
		{"nothing is given", "lockstep", `{}`, []string{"found no nats.url"}},
		{
			"no secret", "lockstep", `{nats: {url: "nats://n:4222"}}`,
			[]string{"found no Secret for postgresql.workflow", "credentials.existingSecret"},
		},
		{"a misspelt key", "lockstep", `{domain: {replica: 3}}`, []string{"/domain", "replica"}},
		{
			"a misspelt key of a configuration", "lockstep", `{workflow: {config: {lease_durations: 5s}}}`,
			[]string{"/workflow/config", "lease_durations"},
		},
		{"a key that the chart sets", "lockstep", `{domain: {config: {http_address: ":1"}}}`, []string{"/domain/config", "http_address"}},
		{
			"a secret in plain text", "lockstep", `{domain: {config: {bootstrap_token: hunter2hunter2hunter2}}}`,
			[]string{"/domain/config", "bootstrap_token"},
		},
		{"a type", "lockstep", `{registry: {replicas: two}}`, []string{"/registry/replicas", "integer"}},
		{"no agent", "lockstep", `{workflow: {agents: []}}`, []string{"/workflow/agents"}},
		{
			"all Secrets of a namespace", "lockstep", `{registry: {kubernetesSecrets: [{namespace: a}]}}`,
			[]string{"/registry/kubernetesSecrets/0", "names"},
		},
		{
			"a Secret by a pattern", "lockstep", `{workflow: {kubernetesSecrets: [{namespace: a, names: ["*"]}]}}`,
			[]string{"/workflow/kubernetesSecrets/0/names/0"},
		},
		{"an ingress without host", "lockstep", `{domain: {ingress: {enabled: true}}}`, []string{"/domain/ingress/host"}},
		{"a route without gateway", "lockstep", `{domain: {httpRoute: {enabled: true}}}`, []string{"/domain/httpRoute/parentRefs"}},
		{"a URL without scheme", "lockstep", `{nats: {url: "nats.example.com:4222"}}`, []string{"/nats/url"}},
		{"a password in a URL", "lockstep", `{nats: {url: "nats://u:p@nats.example.com:4222"}}`, []string{"/nats/url"}},
		{
			"two NATS", "lockstep", `{credentials: {existingSecret: s}, nats: {url: "tls://n", bundled: {enabled: true}}}`,
			[]string{"both nats.url and nats.bundled.enabled"},
		},
		{"KEDA without autoscaling", "lockstep", `{credentials: {existingSecret: s}, nats: {url: "tls://n"}, workflow: {autoscaling: {keda: {enabled: true}}}}`, []string{"workflow.autoscaling.enabled"}},
		{"KEDA without Prometheus", "lockstep", `{credentials: {existingSecret: s}, nats: {url: "tls://n"}, workflow: {autoscaling: {enabled: true, keda: {enabled: true}}}}`, []string{"workflow.autoscaling.keda.prometheusAddress"}},
		{
			"KEDA beside metrics of an autoscaler", "lockstep",
			`{credentials: {existingSecret: s}, nats: {url: "tls://n"}, workflow: {autoscaling: {enabled: true, metrics: [{type: Pods}], keda: {enabled: true, prometheusAddress: "http://p"}}}}`,
			[]string{"workflow.autoscaling.keda.triggers"},
		},
		{
			"a memory limit that is no quantity", "lockstep",
			`{credentials: {existingSecret: s}, nats: {url: "tls://n"}, domain: {resources: {limits: {memory: 1e3m}}}}`,
			[]string{"domain.resources.limits.memory", "1e3m"},
		},
		{
			"a memory limit that children alone take", "lockstep",
			`{credentials: {existingSecret: s}, nats: {url: "tls://n"}, workflow: {resources: {limits: {memory: 512Mi}}}}`,
			[]string{"workflow.resources.limits.memory", "sandbox_total_memory"},
		},
		{
			"migrations before the database that they are for", "lockstep",
			`{credentials: {existingSecret: s}, nats: {url: "tls://n"}, postgresql: {bundled: {enabled: true}}, migrations: {job: {enabled: true}}}`,
			[]string{"postgresql.bundled.enabled"},
		},
		{
			"fewer pods at most than at least", "lockstep",
			`{credentials: {existingSecret: s}, nats: {url: "tls://n"}, domain: {autoscaling: {enabled: true, minReplicas: 3, maxReplicas: 2}}}`,
			[]string{"domain.autoscaling.minReplicas 3 above maxReplicas 2"},
		},
		{
			"half of the bundled database's certificates", "lockstep",
			`{credentials: {existingSecret: s}, nats: {url: "tls://n"}, postgresql: {bundled: {enabled: true, tlsSecret: t}}}`,
			[]string{"postgresql.tls.existingSecret"},
		},
		{
			"half of the bundled NATS's certificates", "lockstep",
			`{credentials: {existingSecret: s}, nats: {tls: {existingSecret: t}, bundled: {enabled: true}}}`,
			[]string{"nats.bundled.tlsSecret"},
		},
		{
			"a certificate without its key", "lockstep",
			`{credentials: {existingSecret: s}, nats: {url: "tls://n", tls: {existingSecret: t, certKey: c}}}`,
			[]string{"certificate for nats", "keyKey"},
		},
		{"mutual TLS without TLS", "lockstep", `{credentials: {existingSecret: s}, nats: {url: "tls://n"}, workflowTLS: {client: {existingSecret: t}}}`, []string{"workflowTLS.existingSecret"}},
		{
			"a relay's certificate without its key", "lockstep-relay", `{nats: {url: "tls://n"}, agent: {existingSecret: s, certKey: c}}`,
			[]string{"agent.keyKey"},
		},
		{"no url", "lockstep-relay", `{agent: {existingSecret: a}}`, []string{"found no nats.url"}},
		{"no secret of the agent", "lockstep-relay", `{nats: {url: "tls://n:4222"}}`, []string{"found no agent.existingSecret"}},
		{"a way to sign in that there is not", "lockstep-relay", `{agent: {auth: jwt}}`, []string{"/agent/auth"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var values map[string]any
			if err := yaml.UnmarshalStrict([]byte(tt.with), &values); err != nil {
				t.Fatal(err)
			}
			_, _, err := render.Objects(t.Context(), release(tt.chart, values))
			if err == nil {
				t.Fatal("was taken")
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%v\ndoes not say %q", err, want)
				}
			}
		})
	}
}

// TestSelectorsNeverChange: an upgrade cannot change a selector, so it must not depend on versions or values.
func TestSelectorsNeverChange(t *testing.T) {
	t.Parallel()
	for _, chart := range charts() {
		for name, values := range cases(t, chart) {
			objects, _, err := render.Objects(t.Context(), release(chart, values))
			if err != nil {
				t.Fatal(err)
			}
			want := []string{"app.kubernetes.io/component", "app.kubernetes.io/instance", "app.kubernetes.io/name"}
			for of, selector := range invariant.Selectors(objects) {
				if diff := cmp.Diff(want, slices.Sorted(maps.Keys(selector))); diff != "" {
					t.Errorf("%s with %s: %s selects by (-want +got):\n%s", chart, name, of, diff)
				}
			}
		}
	}
}
