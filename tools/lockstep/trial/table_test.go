package trial

import (
	"encoding/json"
	"errors"
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
      reason: is degraded
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
		{"- name: good", "- name: good\n  services: [api]\n  rollouts: [{images: {api: {tag: x}}, expect: {state: completed}}]\n- name: good", "a second time"},
		{"cases:", "cases: [", "yaml"},
		{"reason: is degraded", "environment: failed", `case "good": rollouts.0.expect.reason: found none, expected a part of the reason`},
		{"reason: is degraded", "reason: ' '", `case "good": rollouts.0.expect.reason: found none`},
		{"metadata: {name: x}}]", "metadata: {name: x}, data: {1: b}}]", `case "good": objects.0.data: found the name 1, which is no text`},
		{"metadata: {name: x}}]", "metadata: {name: x}, data: {\"${namespace}\": b}}]", `case "good": objects: found a placeholder in the name "${namespace}"`},
		{"metadata: {name: x}}]", "metadata: {name: x}, data: {a: \"${HOME}\"}}]", `case "good": objects: found ${HOME}, expected one of application`},
		{"${namespace}", "${Namespace}", `case "good": application: found ${Namespace}, expected one of application`},
		{"${namespace}", "${images_api}", `case "good": application: found ${images_api}`},
		{"${namespace}", "${image:API}", `case "good": application: found ${image:API}`},
		{"${digest:api}", "${digest:API}", `case "good": rollouts.0.expect: found ${digest:API}`},
		{"cases:", "---\ncases: []\n---\ncases:", "found a second YAML document"},
		{"cases:", "---\n---\ncases:", "found nothing, expected cases"},
		{table, "# nothing\n", "found nothing, expected cases"},
		{table, "", "found nothing, expected cases"},
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
	files, err := fillFiles(cases[0].Files, texts)
	if want := map[string]string{"app/api.yaml": "image: oci:5000/case-1/api $${HOME} ${HOME}"}; err != nil || cmp.Diff(want, files) != "" {
		t.Errorf("found %v, %v; want %v", files, err, want)
	}
	if text, err := fill("$${HOME} is ${namespace}", texts); err != nil || text != "${HOME} is case-1" {
		t.Errorf("found %q, %v", text, err)
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

// Integers are compared exactly, and a number may be spelled otherwise.
func TestNumbersAreComparedExactly(t *testing.T) {
	t.Parallel()
	for _, one := range []struct {
		found, want string
		same        bool
	}{
		{"9007199254740993", "9007199254740993", true},
		{"9007199254740993", "9007199254740992", false},
		{"2", "2.0", true},
		{"2", "3", false},
		{"2", `"2"`, false},
		{"1e400", "2", false},
	} {
		var found, want any
		if err := errors.Join(decode([]byte(one.found), &found), decode([]byte(one.want), &want)); err != nil {
			t.Fatal(err)
		}
		if _, problem := compare("", found, want); one.same != (problem == "") {
			t.Errorf("%s and %s: found %q; want same to be %t", one.found, one.want, problem, one.same)
		}
	}
	cases, err := read(t, strings.Replace(table, `digest: "${digest:api}"`, "big: 9007199254740993", 1))
	if err != nil {
		t.Fatal(err)
	}
	expect, err := fill(cases[0].Rollouts[0].Expect, nil)
	if want := map[string]any{"data": map[string]any{"big": json.Number("9007199254740993")}}; err != nil || cmp.Diff(want, expect.Objects[0].Fields) != "" {
		t.Errorf("found %v, %v; want %v", expect.Objects, err, want)
	}
}

// A status is not compared before a controller has seen the newest generation of its object.
func TestAnOldStatusIsNotCompared(t *testing.T) {
	t.Parallel()
	status := `{"status": {"ready": true}}`
	for _, one := range []struct {
		found, want string
		outdated    bool
	}{
		{`{"metadata": {"generation": 2}, "status": {"observedGeneration": 1}}`, status, true},
		{`{"metadata": {"generation": 10}, "status": {"observedGeneration": "9"}}`, status, true},
		{`{"metadata": {"generation": 2}, "status": {"observedGeneration": 2}}`, status, false},
		{`{"metadata": {"generation": 2}, "status": {"observedGeneration": 1}}`, `{"spec": {}}`, false},
		{`{"metadata": {"generation": 2}, "status": {}}`, status, false},
		{`{"metadata": {}, "status": {"observedGeneration": 1}}`, status, false},
	} {
		var found, want map[string]any
		if err := errors.Join(decode([]byte(one.found), &found), decode([]byte(one.want), &want)); err != nil {
			t.Fatal(err)
		}
		if problem := outdated(found, want); one.outdated != (problem != "") {
			t.Errorf("%s, of which %s is compared: found %q; want outdated to be %t", one.found, one.want, problem, one.outdated)
		}
	}
}
