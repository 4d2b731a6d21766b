package manifest

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

const (
	digest = "sha256:1111111111111111111111111111111111111111111111111111111111111111"
	other  = "sha256:2222222222222222222222222222222222222222222222222222222222222222"
)

func TestKustomizeImages(t *testing.T) {
	t.Parallel()
	const head = "# what staging runs\nkind: Kustomization\nresources: [../base]\nimages:\n"
	for _, tc := range []struct{ name, before, after string }{
		{
			"a digest", "  - name: api # ours\n    newName: r/shop/api\n    digest: " + other + "\n",
			"  - name: api # ours\n    newName: r/shop/api\n    digest: " + digest + "\n",
		},
		{"nothing but the name", "- name: api\n\n# end\n", "- name: api\n  newName: r/shop/api\n  digest: " + digest + "\n\n# end\n"},
		{
			"a tag stays beside the digest", "- newTag: v1\n  name: api\n- name: x\n",
			"- newTag: v1\n  name: api\n  newName: r/shop/api\n  digest: " + digest + "\n- name: x\n",
		},
		{"flow style", "- {name: api, newTag: v1}\n", "- {\"newName\": \"r/shop/api\", \"digest\": \"" + digest + "\", name: api, newTag: v1}\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			images := []Image{{"api", "r/shop/api@" + digest}}
			got, err := KustomizeImages([]byte(head+tc.before), images)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(head+tc.after, string(got.Content)); diff != "" {
				t.Errorf("content (-want +got):\n%s", diff)
			}
			if again, err := KustomizeImages(got.Content, images); err != nil || again.Changed || !got.Changed {
				t.Errorf("changed %v, a second time: changed %v, %v", got.Changed, again.Changed, err)
			}
		})
	}
}

func TestKustomizeImagesByTag(t *testing.T) {
	t.Parallel()
	got, err := KustomizeImages([]byte("images:\n- name: localhost:5000/api\n  newTag: \"1\"\n"),
		[]Image{{"localhost:5000/api", "localhost:5000/api:2"}})
	if err != nil || string(got.Content) != "images:\n- name: localhost:5000/api\n  newTag: \"2\"\n" {
		t.Errorf("found %q, %v", got.Content, err)
	}
}

// A reference without a digest replaces the digest of an entry, which would decide otherwise.
func TestKustomizeImagesByTagOverADigest(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ reference, before, after string }{
		{"r/api:1.2.0", "- name: api\n  newName: r/api\n  digest: " + other + "\n", "- name: api\n  newTag: 1.2.0\n  newName: r/api\n  digest: \"\"\n"},
		{"r/api:1.2.0", "- name: api\n  newName: r/api\n  newTag: v1\n  digest: '" + other + "'\n", "- name: api\n  newName: r/api\n  newTag: 1.2.0\n  digest: ''\n"},
		{"r/api", "- {name: api, newName: r/api, newTag: v1, digest: " + other + "}\n", "- {name: api, newName: r/api, newTag: latest, digest: \"\"}\n"},
	} {
		images := []Image{{"api", tc.reference}}
		got, err := KustomizeImages([]byte("images:\n"+tc.before), images)
		if diff := cmp.Diff("images:\n"+tc.after, string(got.Content)); err != nil || diff != "" {
			t.Errorf("%s: %v, content (-want +got):\n%s", tc.reference, err, diff)
		}
		if again, err := KustomizeImages(got.Content, images); err != nil || again.Changed {
			t.Errorf("%s, a second time: changed %t, %v", tc.reference, again.Changed, err)
		}
	}
}

func TestHelmValues(t *testing.T) {
	t.Parallel()
	const reference = "r/shop/api@" + digest
	for _, tc := range []struct {
		name, before, after string
		values              []Value
	}{
		{
			"a reference", "# values\nimage: 'r/shop/api:1' # ours\nx: 1\n", "# values\nimage: '" + reference + "' # ours\nx: 1\n",
			[]Value{{Path: "image", Reference: reference}},
		},
		{
			"repository and digest", "api:\n  image:\n    repository: r/old\n    tag: v1\n    digest: \"\"\n",
			"api:\n  image:\n    repository: r/shop/api\n    tag: v1\n    digest: \"" + digest + "\"\n",
			[]Value{{Path: "api.image", Reference: reference}},
		},
		{
			"repository and tag", "image: {repository: r/shop/api, tag: v1}\n", "image: {repository: r/shop/api, tag: v2@" + digest + "}\n",
			[]Value{{Path: "image", Reference: reference, Tag: "v2"}},
		},
		{
			"a tag over a digest", "image: {tag: v1, digest: '" + other + "'}\n", "image: {tag: v2, digest: ''}\n",
			[]Value{{Path: "image", Reference: "r/shop/api:v2"}},
		},
		{
			"an invalid tag", "image: {tag: v1}\n", "image: {tag: pinned@" + digest + "}\n",
			[]Value{{Path: "image", Reference: reference, Tag: "not a tag"}},
		},
		{
			"steps", "image: x\nrollout:\n  steps: []\n  limit: 2\n",
			"image: " + reference + "\nrollout:\n  steps: [{\"setWeight\": 50}, {\"pause\": {}}]\n  limit: 2\n",
			[]Value{{Path: "image", Reference: reference}, {Path: "rollout.steps", Gates: []int{50}}},
		},
		{
			"steps that exist", "rollout:\n  steps: [{setWeight: 50}, {pause: {}}]\n", "rollout:\n  steps: [{setWeight: 50}, {pause: {}}]\n",
			[]Value{{Path: "rollout.steps", Gates: []int{50}}},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got, err := HelmValues([]byte(tc.before), tc.values)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.after, string(got.Content)); diff != "" {
				t.Errorf("content (-want +got):\n%s", diff)
			}
		})
	}
}

func TestOverlaysThatAreRefused(t *testing.T) {
	t.Parallel()
	images := []Image{{"api", "r/shop/api@" + digest}}
	kustomize := func(content string) error { _, err := KustomizeImages([]byte(content), images); return err }
	values := func(content string, v Value) error { _, err := HelmValues([]byte(content), []Value{v}); return err }
	for name, tc := range map[string]struct {
		err  error
		want string
	}{
		"no such entry":     {kustomize("images:\n- name: web\n"), `the kustomization has the images web, expected one "api"`},
		"no entries":        {kustomize("resources: []\n"), `the kustomization has the images none, expected one "api"`},
		"an entry twice":    {kustomize("images:\n- name: api\n- name: api\n"), `expected one "api"`},
		"something else":    {kustomize("kind: Rollout\nimages:\n- name: api\n"), "found Rollout, expected a Kustomization"},
		"an alias":          {kustomize("x: &i {name: api}\nimages:\n- *i\n"), "content: "},
		"two documents":     {kustomize("a: 1\n---\nb: 1\n"), "found 2 documents, expected one"},
		"no document":       {kustomize(""), "found 0 documents"},
		"no YAML":           {kustomize("a: ["), "not YAML"},
		"no such value":     {values("a: 1\n", Value{Path: "b.c", Reference: "x"}), "the values have no b.c"},
		"neither tag":       {values("a: {repository: x}\n", Value{Path: "a", Reference: "x"}), "a has neither tag nor digest"},
		"no path":           {values("a: 1\n", Value{Path: "a..b", Reference: "x"}), "expected a dotted path"},
		"no reference":      {values("a: 1\n", Value{Path: "a", Reference: "x y"}), "expected an image reference"},
		"weights that fall": {values("a: []\n", Value{Path: "a", Gates: []int{50, 25}}), "gates[1]: found 25"},
		"steps into text":   {values("a: x\n", Value{Path: "a", Gates: []int{50}}), "a is not a list"},
		"shared":            {values("a: &x {tag: v1}\nb: *x\n", Value{Path: "a", Reference: "r:2"}), "without changing more"},
	} {
		if !fault.Is(tc.err, fault.Invalid) || !strings.Contains(tc.err.Error(), tc.want) {
			t.Errorf("%s: %v, want …%s…", name, tc.err, tc.want)
		}
	}
}

func TestPartsOfAReference(t *testing.T) {
	t.Parallel()
	for reference, want := range map[string][3]string{
		"api": {"api"}, "localhost:5000/api": {"localhost:5000/api"}, "localhost:5000/api:1": {"localhost:5000/api", "1"},
		"r/api:1@sha256:2": {"r/api", "1", "sha256:2"}, "r/api@sha256:2": {"r/api", "", "sha256:2"},
	} {
		repository, tag, digest := parts(reference)
		if got := [3]string{repository, tag, digest}; got != want {
			t.Errorf("%s: found %q, expected %q", reference, got, want)
		}
	}
}
