package manifest

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

const (
	newAPI = "registry.example.com/shop/api@sha256:1111111111111111111111111111111111111111111111111111111111111111"
	newLog = "registry.example.com/shop/log:2"
)

// commented is a manifest as people write them.
const commented = `# The API of the shop.
apiVersion: v1
kind: Service
metadata: {name: api}   # flow style, and the name of the Rollout too
---
apiVersion: argoproj.io/v1alpha1
kind: Rollout
metadata:
  name: api
  namespace: shop-staging
spec:
  replicas:   3            # odd spacing stays
  strategy:
    canary:
      # how much traffic, ünd when
      steps:
      - setWeight: 10      # old
      - pause: {duration: 1h}

      # about what follows
      canaryService: api-canary
  template:
    spec:
      initContainers:
        - name: migrate
          image: 'registry.example.com/shop/migrate:1'
      containers:
        - name: api
          image: registry.example.com/shop/api:1   # é pinned by Lockstep
          args: ["--x", 'y']
        - {name: log, image: "registry.example.com/shop/log:1", tty: true}
---
# end
kind: ConfigMap
apiVersion: v1
metadata: {name: other}
`

func TestPinChangesOnlyWhatItMeansTo(t *testing.T) {
	t.Parallel()
	got, err := Pin([]byte(commented), Request{
		Images: []Image{{"api", newAPI}, {"log", newLog}, {"migrate", "registry.example.com/shop/migrate:2"}}, Gates: []int{25, 100},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := strings.NewReplacer(
		"image: registry.example.com/shop/api:1 ", "image: "+newAPI+" ",
		"shop/log:1", "shop/log:2", "shop/migrate:1", "shop/migrate:2",
		`      - setWeight: 10      # old
      - pause: {duration: 1h}
`, `      - setWeight: 25
      - pause: {}
      - setWeight: 100
      - pause: {}
`).Replace(commented)
	if diff := cmp.Diff(want, string(got.Content)); diff != "" {
		t.Errorf("content (-want +got):\n%s", diff)
	}
	if len(got.Steps) != 4 {
		t.Errorf("steps %v, want those that are written", got.Steps)
	}
	got.Content, got.Steps = nil, nil
	wantResult := Result{
		Digest: got.Digest, Changed: true, RolloutName: "api", RolloutNamespace: "shop-staging", Containers: []string{"api", "log"},
	}
	if diff := cmp.Diff(wantResult, got); diff != "" || len(got.Digest) != len("sha256:")+64 {
		t.Errorf("digest %q, result (-want +got):\n%s", got.Digest, diff)
	}
	again, err := Pin([]byte(want), Request{Images: []Image{{"api", newAPI}, {"log", newLog}}, Gates: []int{25, 100}})
	if err != nil || again.Changed || string(again.Content) != want {
		t.Errorf("a second time: changed %v, %v", again.Changed, err)
	}
}

func TestLineEndsAndByteOrderMarksSurvive(t *testing.T) {
	t.Parallel()
	content := "\ufeff" + strings.ReplaceAll(commented, "\n", "\r\n")
	got, err := Pin([]byte(content), Request{Images: []Image{{"api", newAPI}}, Gates: []int{50}})
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(strings.ReplaceAll(string(got.Content), "\r\n", ""), "\n"); n != 0 ||
		!strings.HasPrefix(string(got.Content), "\ufeff#") {
		t.Errorf("%d lines end otherwise, in %q", n, got.Content)
	}
}

// rollout is the smallest manifest, with a strategy, indented like spec's keys.
func rollout(strategy string) string {
	return "apiVersion: argoproj.io/v1alpha1\nkind: Rollout\nmetadata: {name: api}\nspec:\n" + strategy +
		"  template:\n    spec:\n      containers:\n        - name: api\n          image: old\n"
}

func TestSteps(t *testing.T) {
	t.Parallel()
	const four = "        - setWeight: 25\n        - pause: {}\n        - setWeight: 100\n        - pause: {}\n"
	flow := `[{"setWeight": 25}, {"pause": {}}, {"setWeight": 100}, {"pause": {}}]`
	for _, tc := range []struct {
		name, before, after string
		gates               []int
	}{
		{name: "no strategy", before: "", after: "  strategy:\n    canary:\n      steps:\n" + four},
		{
			name: "no strategy, comment first", before: "  # three\n  replicas: 3\n",
			after: "  strategy:\n    canary:\n      steps:\n" + four + "  # three\n  replicas: 3\n",
		},
		{name: "no canary", before: "  strategy: {}\n", after: `  strategy: {"canary": {"steps": ` + flow + "}}\n"},
		{name: "nothing behind strategy", before: "  strategy:\n", after: "  strategy:\n    canary:\n      steps:\n" + four},
		{name: "null", before: "  strategy: ~ # later\n", after: `  strategy: {"canary": {"steps": ` + flow + "}} # later\n"},
		{
			name: "nothing behind canary", before: "  strategy:\n    canary: # none\n",
			after: "  strategy:\n    canary: # none\n      steps:\n" + four,
		},
		{name: "empty canary", before: "  strategy:\n    canary: {}\n", after: `  strategy:` + "\n    canary: {\"steps\": " + flow + "}\n"},
		{
			name: "flow canary", before: "  strategy:\n    canary: {maxSurge: 1}\n",
			after: "  strategy:\n    canary: {\"steps\": " + flow + ", maxSurge: 1}\n",
		},
		{
			name: "canary without steps", before: "  strategy:\n    canary:\n      maxSurge: 1\n",
			after: "  strategy:\n    canary:\n      steps:\n" + four + "      maxSurge: 1\n",
		},
		{
			name: "flow steps", before: "  strategy:\n    canary:\n      steps: [{setWeight: 5}, {pause: {}}] # x\n",
			after: "  strategy:\n    canary:\n      steps: " + flow + " # x\n",
		},
		{name: "flow steps over lines", before: "  strategy:\n    canary:\n      steps: [\n        {setWeight: 5},\n        ]\n      maxSurge: 1\n", after: "  strategy:\n    canary:\n      steps: " + flow + "\n      maxSurge: 1\n"},
		{
			name: "nothing behind steps", before: "  strategy:\n    canary:\n      steps:\n",
			after: "  strategy:\n    canary:\n      steps:\n" + four,
		},
		{
			name: "null steps", before: "  strategy:\n    canary:\n      steps: null\n",
			after: "  strategy:\n    canary:\n      steps: " + flow + "\n",
		},
		{name: "indented steps with analysis", before: "  strategy:\n    canary:\n      steps:\n          - setWeight: 5\n\n          # check\n          - analysis:\n              templates:\n              - templateName: x\n      # tail\n", after: "  strategy:\n    canary:\n      steps:\n          - setWeight: 5\n\n          # check\n          - analysis:\n              templates:\n              - templateName: x\n" + strings.ReplaceAll(four, "        -", "          -") + "      # tail\n"},
		{name: "to none", gates: []int{}, before: "  strategy:\n    canary:\n      steps: # soon\n        - setWeight: 5\n        - pause: {}\n      maxSurge: 1\n", after: "  strategy:\n    canary:\n      steps: [] # soon\n      maxSurge: 1\n"},
		{name: "none at all", gates: []int{}, before: "", after: "  strategy:\n    canary:\n      steps: []\n"},
		{
			name:   "same already, differently written",
			before: "  strategy: {canary: {steps: [setWeight: 25, pause: {}, {setWeight: 100}, {pause: {}}]}}\n",
			after:  "  strategy: {canary: {steps: [setWeight: 25, pause: {}, {setWeight: 100}, {pause: {}}]}}\n",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			gates := tc.gates
			if gates == nil {
				gates = []int{25, 100}
			}
			got, err := Pin([]byte(rollout(tc.before)), Request{Gates: gates})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(rollout(tc.after), string(got.Content)); diff != "" {
				t.Errorf("content (-want +got):\n%s", diff)
			}
		})
	}
}

func TestStepsAtTheEndOfAFileWithoutALineBreak(t *testing.T) {
	t.Parallel()
	head := strings.TrimSuffix(strings.ReplaceAll(rollout(""), "spec:\n  template", "spec:\n  template"), "\n")
	for _, tail := range []string{"\n  strategy:", "\n  strategy:\n    canary:\n      steps:\n        - setWeight: 1"} {
		got, err := Pin([]byte(head+tail), Request{Gates: []int{50}})
		if err != nil {
			t.Errorf("%q: %v", tail, err)
			continue
		}
		want := head + "\n  strategy:\n    canary:\n      steps:\n        - setWeight: 50\n        - pause: {}"
		if diff := cmp.Diff(want, string(got.Content)); diff != "" {
			t.Errorf("%q (-want +got):\n%s", tail, diff)
		}
	}
}

func TestJSONStaysJSON(t *testing.T) {
	t.Parallel()
	const before = `{"apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout", "metadata": {"name": "api"},
 "spec": {"template": {"spec": {"containers": [{"name": "api", "image": "old"}]}}}}`
	got, err := Pin([]byte(before), Request{Images: []Image{{"api", "new"}}, Gates: []int{50}})
	if err != nil {
		t.Fatal(err)
	}
	want := strings.NewReplacer(`"old"`, `"new"`, `"spec": {"template"`,
		`"spec": {"strategy": {"canary": {"steps": [{"setWeight": 50}, {"pause": {}}]}}, "template"`).Replace(before)
	if diff := cmp.Diff(want, string(got.Content)); diff != "" {
		t.Errorf("content (-want +got):\n%s", diff)
	}
}

func TestWorkloadRef(t *testing.T) {
	t.Parallel()
	const before = `apiVersion: argoproj.io/v1alpha1
kind: Rollout
metadata: {name: api}
spec:
  workloadRef: {apiVersion: apps/v1, kind: Deployment, name: api}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: api}
spec:
  template: {spec: {containers: [{name: api, image: old}]}}
`
	got, err := Pin([]byte(before), Request{Images: []Image{{"api", "new:1"}}})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Replace(before, "old", "new:1", 1), string(got.Content)); diff != "" {
		t.Errorf("content (-want +got):\n%s", diff)
	}
	if !slices.Equal(got.Containers, []string{"api"}) {
		t.Errorf("containers %q", got.Containers)
	}
	rollout, deployment, _ := strings.Cut(before, "---\n")
	if _, err = Pin([]byte(rollout), Request{Images: []Image{{"api", "new:1"}}}); err == nil ||
		!strings.Contains(err.Error(), "takes its pods from Deployment api") {
		t.Errorf("without the Deployment: %v", err)
	}
	got, err = Pin([]byte(rollout), Request{Gates: []int{50}})
	if err != nil || got.Workload != "Deployment/api" || len(got.Containers) != 0 {
		t.Errorf("gates without the Deployment: %+v, %v", got, err)
	}
	got, err = Pin([]byte(deployment), Request{Workload: "Deployment/api", Images: []Image{{"api", "new:1"}}})
	if err != nil || string(got.Content) != strings.Replace(deployment, "old", "new:1", 1) || !slices.Equal(got.Containers, []string{"api"}) {
		t.Errorf("the Deployment by itself: %+v, %v", got, err)
	}
	for _, r := range []Request{{Workload: "Deployment/web"}, {Workload: "Deployment/api", Gates: []int{50}}} {
		if _, err := Pin([]byte(deployment), r); err == nil {
			t.Errorf("%+v: found no error", r)
		}
	}
}

func TestImagesThatLookLikeSomethingElseAreQuoted(t *testing.T) {
	t.Parallel()
	for _, ref := range []string{"1.5", "true", "12", "1e3", "null"} {
		got, err := Pin([]byte(rollout("")), Request{Images: []Image{{"api", ref}}})
		if err != nil || !strings.Contains(string(got.Content), `image: "`+ref+`"`) {
			t.Errorf("%s: %v\n%s", ref, err, got.Content)
		}
	}
}

func TestWhatIsRefused(t *testing.T) {
	t.Parallel()
	api := []Image{{"api", "new"}}
	two := rollout("") + "---\n" + strings.Replace(rollout(""), "name: api", "name: web", 1)
	for _, tc := range []struct {
		name, content string
		request       Request
		want          string
	}{
		{
			"missing container", commented,
			Request{Images: []Image{{"web", "x"}}},
			`images[0].container: Rollout api has the containers api, log, migrate, expected one "web"`,
		},
		{"container twice", commented, Request{Images: []Image{{"api", "x"}, {"api", "y"}}}, `images[1].container: found "api" a second time`},
		{"no reference", commented, Request{Images: []Image{{"api", "x y"}}}, `images[0].reference: found "x y", expected an image reference`},
		{"reference that would end the scalar", commented, Request{Images: []Image{{"api", "x:"}}}, "images[0].reference: "},
		{"weights that fall", commented, Request{Gates: []int{50, 50}}, "gates[1]: found 50, expected a weight from 51 to 100"},
		{"weight of nothing", commented, Request{Gates: []int{0}}, "gates[0]: found 0, expected a weight from 1 to 100"},
		{"no YAML", "a: [", Request{}, "content: not YAML: "},
		{"a template", "kind: Rollout\nname: {{ .Values.name }}\n", Request{}, "content: not YAML: "},
		{"no Rollout", "kind: Service\n---\nkind: Deployment\n", Request{}, "content: found Service, Deployment, expected a Rollout"},
		{"nothing", "", Request{}, "content: found none, expected a Rollout"},
		{"two Rollouts", two, Request{}, "content: found 2 Rollouts (api, web), expected one, or its rollout_name"},
		{"another Rollout", two, Request{RolloutName: "db"}, `found the Rollouts api, web, expected one "db"`},
		{
			"no containers", "apiVersion: argoproj.io/v1alpha1\nkind: Rollout\nmetadata: {name: a}\nspec: {}\n",
			Request{},
			"spec.template.spec.containers: missing",
		},
		{
			"blue-green", rollout("  strategy:\n    blueGreen: {activeService: a}\n"),
			Request{Gates: []int{50}},
			"spec.strategy has blueGreen, expected canary",
		},
		{
			"image over lines", strings.Replace(rollout(""), "image: old", "image: >-\n            old", 1),
			Request{Images: api},
			"containers[0].image is not a string on one line",
		},
		{"no image", strings.Replace(rollout(""), "          image: old\n", "", 1), Request{Images: api}, "containers[0].image is missing"},
		{
			"image behind an alias", strings.Replace(rollout("  x: &i old\n"), "image: old", "image: *i", 1),
			Request{Images: api},
			"containers[0].image is not a string",
		},
		{
			"image that others refer to", strings.Replace(rollout(""), "image: old", "image: &i old\n          x: *i", 1),
			Request{Images: api},
			"cannot be changed without changing more",
		},
		{
			"steps that others refer to", rollout("  strategy:\n    canary:\n      steps: &s\n      - setWeight: 5\n  x: *s\n"),
			Request{Gates: []int{50}},
			"cannot be changed without changing more",
		},
		{"too large", strings.Repeat("#", maxSize+1), Request{}, "content: found 1048577 bytes, expected at most 1048576"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			_, err := Pin([]byte(tc.content), tc.request)
			if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want …%s…", err, tc.want)
			}
		})
	}
}

// FuzzPin: whatever the file looks like, what comes back differs from it only in the bytes of the image, or within the
// steps, and pinning it again changes nothing.
func FuzzPin(f *testing.F) {
	f.Add([]byte(commented), "api", newAPI, byte(2))
	for _, s := range []string{
		"", "  strategy: {}\n", "  strategy:\n    canary:\n      steps: [\n        {setWeight: 5},\n        ]\n",
		"  strategy:\n    canary:\n      steps:\n      - setWeight: 5\n      # tail\n", "  strategy: &a\n    canary: !!map\n      steps: ~\n",
	} {
		f.Add([]byte(rollout(s)), "api", "x:1", byte(3))
		f.Add([]byte(strings.ReplaceAll(rollout(s), "\n", "\r\n")), "api", "1.5", byte(0))
	}
	f.Add([]byte(`{"apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout", "metadata": {"name": "api"},
 "spec": {"template": {"spec": {"containers": [{"name": "api", "image": "old"}]}}}}`), "api", "y", byte(1))
	f.Fuzz(func(t *testing.T, content []byte, container, ref string, gates byte) {
		images := Request{Images: []Image{{container, ref}}}
		steps := Request{Gates: []int{}}
		for i := range int(gates % 5) {
			steps.Gates = append(steps.Gates, 10*(i+1))
		}
		for _, r := range []Request{images, steps, {Images: images.Images, Gates: steps.Gates}} {
			got, err := Pin(content, r)
			if err != nil {
				continue
			}
			again, err := Pin(got.Content, r)
			if err != nil || again.Changed {
				t.Fatalf("a second time: changed %v, %v\n%s", again.Changed, err, got.Content)
			}
			if removed, added := difference(content, got.Content); r.Gates == nil && got.Changed {
				// What is common to both images may belong to the unchanged part.
				if len(added) > len(ref)+2 || strings.ContainsAny(removed, "\n") {
					t.Errorf("replaced %q by %q to have the image %q", removed, added, ref)
				}
			} else if r.Images == nil && strings.Contains(removed, "image:") {
				t.Errorf("replaced %q by %q to have the steps %v", removed, added, r.Gates)
			}
		}
	})
}

// difference is what stands between the common beginning and the common end.
func difference(before, after []byte) (removed, added string) {
	least := min(len(before), len(after))
	head, tail := 0, 0
	for head < least && before[head] == after[head] {
		head++
	}
	for tail < least-head && before[len(before)-1-tail] == after[len(after)-1-tail] {
		tail++
	}
	return string(before[head : len(before)-tail]), string(after[head : len(after)-tail])
}
