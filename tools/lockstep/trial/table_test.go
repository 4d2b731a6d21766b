package trial

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

const table = `cases:
- name: good
  services: [api, web]
  objects: [{apiVersion: v1, kind: ConfigMap, metadata: {name: x}}]
  files: {app/api.yaml: "image: ${image:api} $${HOME} ${HOME}"}
  environment: {}
  application: {namespace: "${namespace}"}
  pipeline: {steps: [{type: deploy}]}
  rollouts:
  - images: {api: {tag: "1.0", simulate: degraded-at=50}, web: {tag: "1.0"}}
    expect:
      state: failed
      deployments: {api: degraded}
      objects: [{apiVersion: v1, kind: ConfigMap, name: x, fields: {data: {digest: "${digest:api}"}}}]
`

func read(t *testing.T, text string) ([]Case, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "a"+Suffix)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return Read(file)
}

// What is wrong in a table is refused with file, case and field, with what was found and expected.
func TestWrongTablesAreRefused(t *testing.T) {
	t.Parallel()
	for _, one := range []struct{ old, with, want string }{
		{"cases:", "case:", "/case: "},
		{"services: [api, web]", "service: [api, web]", `case "good": service: found a field that does not exist`},
		{"tag: \"1.0\", simulate", "label: \"1.0\", simulate", `case "good": rollouts.0.images.api.label: found a field that does not exist`},
		{"degraded-at=50", "broken", `case "good": rollouts.0.images.api.simulate: found "broken"`},
		{"state: failed", "state: done", `case "good": rollouts.0.expect.state: found "done"; expected one of "completed", "failed", "cancelled"`},
		{"{api: degraded}", "{db: degraded}", `case "good": rollouts.0.expect.deployments: found the service "db", expected one of ["api" "web"]`},
		{"web: {tag: \"1.0\"}", "db: {tag: \"1.0\"}", `case "good": rollouts.0.images: found none for web`},
		{"kind: ConfigMap, metadata", "kind: Thing, metadata", `case "good": objects.0: found v1 Thing, expected a kind of the simulated cluster`},
		{"kind: ConfigMap, name", "kind: Thing, name", `case "good": rollouts.0.expect.objects.0: found v1 Thing`},
		{"name: x, fields", "name: x, absent: true, fields", `rollouts.0.expect.objects.0: found absent and fields, expected one of them`},
		{"${namespace}", "${space}", `case "good": application: found ${space}, expected one of application, environment`},
		{"${image:api}", "${digest:api}", `case "good": files.app/api.yaml: found ${digest:api}`},
		{"name: good", "name: ''", `case "": name: found ""`},
		{"- name: good", "- name: good\n  services: [api]\n  rollouts: [{images: {api: {tag: x}}, expect: {state: failed}}]\n- name: good", "a second time"},
		{"cases:", "cases: [", "yaml"},
	} {
		if !strings.Contains(table, one.old) {
			t.Fatalf("the table has no %q", one.old)
		}
		_, err := read(t, strings.Replace(table, one.old, one.with, 1))
		if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), one.want) || !strings.Contains(err.Error(), "a"+Suffix+": ") {
			t.Errorf("%s: found %v; want Invalid with %q", one.with, err, one.want)
		}
	}
}

// Placeholders are filled in, those with another $ stand for themselves, and variables of shells stay.
func TestPlaceholdersAreFilledIn(t *testing.T) {
	t.Parallel()
	cases, err := read(t, table)
	if err != nil || len(cases) != 1 {
		t.Fatalf("found %v, %v", cases, err)
	}
	texts := cases[0].given("case-1", "http://git/case-1.git", "oci:5000")
	files, err := fill(cases[0].Files, texts)
	if want := map[string]string{"app/api.yaml": "image: oci:5000/case-1/api $${HOME} ${HOME}"}; err != nil || cmp.Diff(want, files) != "" {
		t.Errorf("found %v, %v; want %v", files, err, want)
	}
	if text, err := fill("$${namespace} is ${namespace}", texts); err != nil || text != "${namespace} is case-1" {
		t.Errorf("found %q, %v", text, err)
	}
}

// The tables for the built-in drivers are valid, and so is the example of the documentation.
func TestTheTablesAreValid(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*" + Suffix)
	if err != nil || len(files) < 3 {
		t.Fatalf("found %v, %v", files, err)
	}
	for _, file := range files {
		if _, err := Read(file); err != nil {
			t.Error(err)
		}
	}
	page, err := os.ReadFile("../../../docs/how-to/write-a-driver.md")
	if err != nil {
		t.Fatal(err)
	}
	_, example, found := strings.Cut(string(page), "```yaml\ncases:")
	example, _, _ = strings.Cut(example, "```")
	if cases, err := read(t, "cases:"+example); !found || err != nil || len(cases) != 1 {
		t.Errorf("the example of the page: found %v, %v", cases, err)
	}
}

// Of objects only the members that are given are compared, and lists item by item.
func TestFieldsAreComparedAsSubsets(t *testing.T) {
	t.Parallel()
	found := map[string]any{"spec": map[string]any{"replicas": 2.0, "list": []any{map[string]any{"a": 1.0, "b": 2.0}}, "on": false}}
	for _, one := range []struct {
		want any
		at   string
	}{
		{map[string]any{"spec": map[string]any{"replicas": 2.0}}, ""},
		{map[string]any{"spec": map[string]any{"list": []any{map[string]any{"b": 2.0}}}}, ""},
		{map[string]any{"spec": map[string]any{"list": []any{}}}, ".spec.list: found [{"},
		{map[string]any{"spec": map[string]any{"list": []any{map[string]any{"b": 3.0}}}}, ".spec.list[0].b: found 2, expected 3"},
		{map[string]any{"spec": map[string]any{"on": true}}, ".spec.on: found false, expected true"},
		{map[string]any{"status": map[string]any{}}, ".status: found nothing, expected {}"},
		{map[string]any{"spec": map[string]any{"replicas": map[string]any{}}}, ".spec.replicas: found 2, expected {}"},
	} {
		at, problem := compare("", found, one.want)
		if text := at + ": " + problem; problem == "" && one.at != "" || problem != "" && (one.at == "" || !strings.HasPrefix(text, one.at)) {
			t.Errorf("%v: found %q; want %q", one.want, text, one.at)
		}
	}
}
