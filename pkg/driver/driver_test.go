package driver_test

import (
	"encoding/json"
	"maps"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-cd/lockstep/pkg/driver"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/flow"
)

// files is a small driver with one major; edits replace files, and an empty text removes one.
func files(edits map[string]string) fstest.MapFS {
	all := map[string]string{
		"manifest.json": `{
  "ref": "lambda",
  "supported_pipeline_steps": ["deploy"],
  "environment_schema": "v1/environment.json",
  "application_environment_schema": "v1/app.json",
  "workflows": {"onboarding": "v1/a.star", "application_environment_setup": "v1/b.star", "deploy": "v1/c.star"},
  "modules": {"walk.star": "v1/walk.star"}
}`,
		"v1/environment.json": `{"type": "object", "required": ["region"], "properties": {"region": {"type": "string", "gitlabUi": {"widget": "map_of_the_world"}}}}`,
		"v1/app.json":         `{"type": "object"}`,
		"v1/a.star":           "a()\n", "v1/b.star": "b()\n", "v1/c.star": "c()\n", "v1/walk.star": "def walk(): pass\n",
	}
	maps.Copy(all, edits)
	folder := fstest.MapFS{}
	for name, text := range all {
		if text != "" {
			folder[name] = &fstest.MapFile{Data: []byte(text)}
		}
	}
	return folder
}

func load(t *testing.T, edits map[string]string) *driver.Bundle {
	t.Helper()
	bundles, err := driver.Load(files(edits))
	if err != nil {
		t.Fatal(err)
	}
	if len(bundles) != 1 {
		t.Fatalf("%d majors, want 1", len(bundles))
	}
	return bundles[0]
}

func TestLoad(t *testing.T) {
	t.Parallel()
	b := load(t, nil)
	if b.Ref() != "lambda@1" || b.Name() != "lambda" || b.Major() != 1 {
		t.Errorf("loaded %s, %s, %d", b.Ref(), b.Name(), b.Major())
	}
	program, err := b.Program(driver.Deploy)
	if err != nil {
		t.Fatal(err)
	}
	want := driver.Program{Path: "v1/c.star", Source: []byte("c()\n"), Modules: map[string][]byte{"walk.star": []byte("def walk(): pass\n")}}
	if diff := cmp.Diff(want, program); diff != "" {
		t.Errorf("program (-want +got):\n%s", diff)
	}
	if _, err := b.Program("undeploy"); !fault.Is(err, fault.NotFound) {
		t.Errorf("unknown workflow: %v", err)
	}
}

func TestEveryByteOfAMajorIsInItsDigest(t *testing.T) {
	t.Parallel()
	digest := load(t, nil).Digest()
	if again := load(t, nil).Digest(); again != digest {
		t.Errorf("the same files have digests %s and %s", digest, again)
	}
	for name, edits := range map[string]map[string]string{
		"a program":     {"v1/c.star": "c( )\n"},
		"a module":      {"v1/walk.star": "def walk(): pass\n\n"},
		"the manifest":  {"manifest.json": string(files(nil)["manifest.json"].Data) + "\n"},
		"one file more": {"v1/README.md": "hello"},
	} {
		if load(t, edits).Digest() == digest {
			t.Errorf("another %s has the same digest", name)
		}
	}
	if load(t, map[string]string{"README.md": "about all majors"}).Digest() != digest {
		t.Error("a file outside the major changes its digest")
	}
}

func TestExportIsReadBackToTheByte(t *testing.T) {
	t.Parallel()
	b := load(t, nil)
	archive, err := b.Export()
	if err != nil {
		t.Fatal(err)
	}
	back, err := driver.Import(archive)
	if err != nil {
		t.Fatal(err)
	}
	if back.Digest() != b.Digest() || back.Ref() != b.Ref() {
		t.Errorf("came back as %s %s, was %s %s", back.Ref(), back.Digest(), b.Ref(), b.Digest())
	}
	for _, bad := range []string{"", "[]", `{"v1/a.star":"x"}`, `{"manifest.json":"{}"}`, `{"manifest.json":"{}","../x":"y"}`} {
		if _, err := driver.Import([]byte(bad)); !fault.Is(err, fault.Invalid) {
			t.Errorf("Import(%q) = %v, want an invalid one", bad, err)
		}
	}
}

func TestAnOldMajorKeepsItsDigestWhenANewOneComes(t *testing.T) {
	t.Parallel()
	one := load(t, nil)
	text := string(files(nil)["manifest.json"].Data)
	edits := map[string]string{"manifest.json": strings.ReplaceAll(text, "v1/", "v2/"), "v1/manifest.json": text}
	for name, f := range files(nil) {
		if rest, ok := strings.CutPrefix(name, "v1/"); ok {
			edits["v2/"+rest] = string(f.Data)
		}
	}
	bundles, err := driver.Load(files(edits))
	if err != nil {
		t.Fatal(err)
	}
	set, err := driver.NewSet(bundles...)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"lambda@1", "lambda@2"}, set.Refs()); diff != "" {
		t.Errorf("references (-want +got):\n%s", diff)
	}
	old, err := set.Get("lambda@1")
	if err != nil {
		t.Fatal(err)
	}
	if old.Digest() != one.Digest() {
		t.Errorf("lambda@1 had digest %s, has %s", one.Digest(), old.Digest())
	}
}

func TestBadBundlesAreRefused(t *testing.T) {
	t.Parallel()
	manifest := string(files(nil)["manifest.json"].Data)
	replaced := func(old, with string) map[string]string {
		return map[string]string{"manifest.json": strings.Replace(manifest, old, with, 1)}
	}
	tests := []struct {
		name  string
		edits map[string]string
		want  string
	}{
		{"no manifest", map[string]string{"manifest.json": ""}, `manifest.json: found no such file; expected it in the driver's folder`},
		{"manifest is not JSON", map[string]string{"manifest.json": "{\n  nope"}, `manifest.json: line 2, column 3: found text that is not JSON`},
		{"unknown key", replaced(`"modules"`, `"libraries"`), `manifest.json:7: /libraries: found a field that does not exist`},
		{
			"unknown step", replaced(`["deploy"]`, `["deploy", "teleport"]`),
			`manifest.json:3: /supported_pipeline_steps/1: found "teleport"; expected one of "deploy", "pause", "approval", "analysis", "job"`,
		},
		{
			"a workflow is missing", replaced(`"onboarding": "v1/a.star", `, ``),
			`manifest.json:6: /workflows/onboarding: found nothing; expected a value`,
		},
		{
			"a path out of the folder", replaced(`v1/a.star`, `../a.star`),
			`manifest.json:6: /workflows/onboarding: found "../a.star"; expected text that matches`,
		},
		{
			"a file that does not exist", replaced(`v1/a.star`, `v1/z.star`),
			`manifest.json:6: /workflows/onboarding: found "v1/z.star", which does not exist`,
		},
		{"an empty program", map[string]string{"v1/a.star": "  \n"}, `manifest.json:6: /workflows/onboarding: found "v1/a.star", which is empty`},
		{
			"two majors in one manifest", replaced(`v1/a.star`, `v2/a.star`),
			`manifest.json:6: /workflows/onboarding: found "v2/a.star"; expected a file in v1/`,
		},
		{"a major without manifest", map[string]string{"v2/a.star": "a()"}, `v2: found no manifest for it; expected v2/manifest.json`},
		{
			"a program that is not text",
			map[string]string{"v1/a.star": "a()\nb(\xff)\n"},
			`v1/a.star:2: found bytes that are not text; expected UTF-8`,
		},
		{
			"a program too large",
			map[string]string{"v1/a.star": strings.Repeat("#", 1<<20)},
			`v1/a.star: found 1048576 bytes; expected at most 524288`,
		},
		{"a schema that is not JSON", map[string]string{"v1/app.json": "{\n\n,}"}, `v1/app.json: line 3, column 1: found text that is not JSON`},
		{"a schema that is not one", map[string]string{"v1/app.json": "{\n\"type\":\n\"objekt\"}"}, `v1/app.json:3: /type: `},
		{
			"a widget of the wrong type",
			map[string]string{"v1/app.json": "{\"properties\": {\n\"a\": {\"gitlabUi\": {\n\"widget\": 7}}}}"},
			`v1/app.json:3: /properties/a/gitlabUi/widget: found 7; expected a string`,
		},
		{"a label in the schema", map[string]string{"v1/app.json": "{\"properties\": {\"a\": {\"gitlabUi\": {\n\"widget\": \"text\",\n\"label\": \"A\"}}}}"}, `v1/app.json:3: /properties/a/gitlabUi/label: found a field that does not exist`},
		{
			"a schema that reads files",
			map[string]string{"v1/app.json": `{"$ref": "file:///etc/passwd"}`},
			`references to other documents are not allowed`,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := driver.Load(files(tt.edits))
			if !fault.Is(err, fault.Invalid) {
				t.Fatalf("error %v is not of class invalid", err)
			}
			if !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %q does not contain %q", err, tt.want)
			}
		})
	}
}

func TestValidate(t *testing.T) {
	t.Parallel()
	b := load(t, nil)
	if err := b.ValidateEnvironment(json.RawMessage(`{"region":"eu"}`)); err != nil {
		t.Error(err)
	}
	want := []fault.Field{{Name: "/region", Problem: "found nothing; expected a value"}}
	if diff := cmp.Diff(want, fault.FieldsOf(b.ValidateEnvironment(json.RawMessage(`{}`)))); diff != "" {
		t.Errorf("fields (-want +got):\n%s", diff)
	}
}

func TestSet(t *testing.T) {
	t.Parallel()
	a, b := load(t, nil), load(t, map[string]string{"v1/a.star": "other()\n"})
	if _, err := driver.NewSet(a, b); !fault.Is(err, fault.Conflict) {
		t.Errorf("two bundles of one reference: %v", err)
	}
	set, err := driver.NewSet(a, a)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := set.Get("lambda"); !fault.Is(err, fault.Invalid) {
		t.Errorf("reference without major: %v", err)
	}
	if _, err := set.Get("lambda@2"); !fault.Is(err, fault.NotFound) || !strings.Contains(err.Error(), "lambda@1") {
		t.Errorf("unknown reference: %v", err)
	}
	embedded, err := driver.Embedded()
	if err != nil {
		t.Fatal(err)
	}
	all, err := set.With(embedded)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"argo-rollouts@1", "argo-workflows@1", "flux@1", "git@1", "kubernetes@1", "lambda@1"}, all.Refs()); diff != "" {
		t.Errorf("references (-want +got):\n%s", diff)
	}
}

func argo(t *testing.T) *driver.Bundle {
	t.Helper()
	set, err := driver.Embedded()
	if err != nil {
		t.Fatal(err)
	}
	b, err := set.Get("argo-rollouts@1")
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestTheArgoDriverSupportsWhatAPipelineMayHave(t *testing.T) {
	t.Parallel()
	b := argo(t)
	def, err := flow.Parse([]byte(`{"steps":[{"type":"deploy","environment":"staging","config":{}},{"type":"pause","duration":1},{"type":"approval"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	if err := flow.Check(def, flow.Known{Steps: b.SupportedSteps(), Environments: []string{"staging"}}); err != nil {
		t.Error(err)
	}
	for _, w := range []driver.Workflow{driver.Onboarding, driver.Setup, driver.Deploy} {
		if _, err := b.Program(w); err != nil {
			t.Error(err)
		}
	}
}

// An entry names a field or an image of a kustomization, and not both: one of them would be without effect.
func TestAFieldOrAnImageOfAKustomization(t *testing.T) {
	t.Parallel()
	all, err := driver.Embedded()
	if err != nil {
		t.Fatal(err)
	}
	for ref, more := range map[string]string{"git@1": "", "flux@1": `, "name": "shop"`} {
		b, err := all.Get(ref)
		if err != nil {
			t.Fatal(err)
		}
		for entry, fine := range map[string]bool{`"field": "a"`: true, `"image_name": "a"`: true, `"field": "a", "image_name": "a"`: false} {
			config := `{"repository_url": "https://git/x.git", "branch": "main", "services": [{"service": "api", "file": "a.yaml", ` + entry + `}]` + more + `}`
			err := b.ValidateApplicationEnvironment(json.RawMessage(config))
			if found := fault.FieldsOf(err); fine != (err == nil) || !fine && (len(found) != 1 || found[0].Name != "/services/0/field") {
				t.Errorf("%s, %s: %v", ref, entry, err)
			}
		}
	}
}

func TestTheArgoDriversSchemas(t *testing.T) {
	t.Parallel()
	valid := `"namespace":"argocd","application":"shop","rollout_strategy":"canary","repository_url":"http://git/shop.git","path":"staging","destination_namespace":"shop","services":[{"service":"api","file":"staging/api.yaml","container":"api"}]`
	// entry is the configuration with more about the only container.
	entry := func(more string) string {
		return `{` + strings.Replace(valid, `"container":"api"`, `"container":"api",`+more, 1) + `,"use_load_balancing":false}`
	}
	tests := []struct{ name, config, want string }{
		{"plain", `{` + valid + `,"use_load_balancing":false}`, ``},
		{"with load balancer", `{` + valid + `,"use_load_balancing":true,"load_balancer_type":"istio"}`, ``},
		{"which load balancer", `{` + valid + `,"use_load_balancing":true}`, `/load_balancer_type: found nothing; expected a value`},
		{
			"a load balancer not in use", `{` + valid + `,"use_load_balancing":false,"load_balancer_type":"istio"}`,
			`/load_balancer_type: found "istio"; expected nothing: not allowed here`,
		},
		{
			"another load balancer", `{` + valid + `,"use_load_balancing":true,"load_balancer_type":"f5"}`,
			`/load_balancer_type: found "f5"; expected one of "istio", "nginx", "alb"`,
		},
		{"nothing said of it", `{` + valid + `}`, `/use_load_balancing: found nothing; expected a value`},
		{
			"credentials in the URL", `{` + strings.Replace(valid, "http://git", "http://me:secret@git", 1) + `,"use_load_balancing":false}`,
			`/repository_url: found "http://me:secret@git/shop.git"; expected text that matches`,
		},
		{
			"a path out of the repository", `{` + strings.Replace(valid, "staging/api.yaml", "../api.yaml", 1) + `,"use_load_balancing":false}`,
			`/services/0/file: `,
		},
		{
			"a path into .git", `{` + strings.Replace(valid, "staging/api.yaml", "staging/.Git/config", 1) + `,"use_load_balancing":false}`,
			`/services/0/file: found "staging/.Git/config"; expected anything else`,
		},
		{"a hidden folder", `{` + strings.Replace(valid, "staging/api.yaml", ".deploy/api.yaml", 1) + `,"use_load_balancing":false}`, ``},
		{"the whole repository", `{` + strings.Replace(valid, `"path":"staging"`, `"path":"."`, 1) + `,"use_load_balancing":false}`, ``},
		{"a branch", `{` + valid + `,"use_load_balancing":false,"branch":"release/1.2-x"}`, ``},
		{
			"an option for a branch", `{` + valid + `,"use_load_balancing":false,"branch":"--upload-pack=x"}`,
			`/branch: found "--upload-pack=x"; expected text that matches`,
		},
		{
			"a range for a branch", `{` + valid + `,"use_load_balancing":false,"branch":"a..b"}`,
			`/branch: found "a..b"; expected text that matches`,
		},
		{"kustomize", entry(`"format":"kustomize","image_name":"shop/api","rollout_file":"base/api.yaml"`), ``},
		{
			"kustomize without its image", entry(`"format":"kustomize","rollout_file":"base/api.yaml"`),
			`/services/0/image_name: found nothing; expected a value`,
		},
		{"helm", entry(`"format":"helm","image_path":"api.image","steps_path":"api.steps","rollout_name":"api"`), ``},
		{
			"helm without the Rollout's name", entry(`"format":"helm","image_path":"api.image"`),
			`/services/0/rollout_name: found nothing; expected a value`,
		},
		{
			"a value's path in a manifest", entry(`"image_path":"api.image"`),
			`/services/0/image_path: found "api.image"; expected nothing: not allowed here`,
		},
		{"traffic", entry(`"traffic":{"stable_service":"api","canary_service":"api-canary","ingress":"shop","service_port":80}`), ``},
		{"an invalid port", entry(`"traffic":{"service_port":0}`), `/services/0/traffic/service_port: `},
		{"an unknown field", `{` + valid + `,"use_load_balancing":false,"helm":{}}`, `/helm: found a field that does not exist`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			err := argo(t).ValidateApplicationEnvironment(json.RawMessage(tt.config))
			if tt.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v does not contain %q", err, tt.want)
			}
		})
	}
	if err := argo(t).ValidateEnvironment(json.RawMessage(`{"cluster_agent_id":42}`)); err != nil {
		t.Error(err)
	}
	if err := argo(t).ValidateEnvironment(json.RawMessage(`{"cluster_agent_id":1e30}`)); err == nil {
		t.Error("an agent id that no number holds is accepted")
	}
	if err := argo(t).ValidateEnvironment(json.RawMessage(`{"cluster_agent_id":"42"}`)); err == nil {
		t.Error("an agent id that is text is accepted")
	}
}
