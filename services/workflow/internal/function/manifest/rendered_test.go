package manifest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// R4-27, D60: of what was rendered, the objects that differ are named, sorted, with what differs in them; of secrets there is no value,
// also where their kind does not say so.
func TestRenderingsAreCompared(t *testing.T) {
	t.Parallel()
	const same = "---\napiVersion: v1\nkind: Service\nmetadata: {name: same}\n"
	before := same + "---\n# Source: a\napiVersion: apps/v1\nkind: Deployment\nmetadata: {name: api, namespace: shop}\nspec: {replicas: 1, password: hunter2}\n" +
		"---\napiVersion: v1\nkind: Secret\nmetadata: {name: key}\nstringData: {a: hunter2}\n"
	after := "---\napiVersion: v1\nkind: Secret\nmetadata: {name: key}\nstringData: {a: hunter3}\n" +
		"---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {name: api, namespace: shop}\nspec: {replicas: 2, password: hunter2}\n" + same +
		"---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: new}\ndata:\n  a: |\n    --- no end\n    token: hunter4\n"
	names, diffs, err := Renderings(t.Context(), before, after)
	if want := []string{"added ConfigMap new", "changed Deployment shop/api", "changed Secret key"}; err != nil || !slices.Equal(names, want) {
		t.Fatalf("found %q, %v; want %q", names, err, want)
	}
	all := fmt.Sprint(diffs)
	for _, want := range []string{
		"-  replicas: 1\n+  replicas: 2\n", "   password: (hidden)\n", "-  a: (hidden, as it was)\n+  a: (hidden, as it will be)\n", "--- no end\n",
	} {
		if !strings.Contains(all, want) {
			t.Errorf("found %s; want %q", all, want)
		}
	}
	if strings.Contains(all, "hunter") {
		t.Errorf("found %s; want no value of a secret", all)
	}
}

// R4-27: what is compared is bounded by what differs; hostile documents are counted.
func TestRenderingsAreBounded(t *testing.T) {
	t.Parallel()
	var before, after strings.Builder
	for i := range 2000 { // 4 MiB that stay
		text := fmt.Sprintf("---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: c%d}\ndata: {a: %s}\n", i, strings.Repeat("x", 1900))
		before.WriteString(text)
		after.WriteString(text)
	}
	for i := range 60 {
		fmt.Fprintf(&after, "---\napiVersion: v1\nkind: Pod\nmetadata: {name: p%02d}\nspec: {a: %s}\n", i, strings.Repeat("y", 2000))
	}
	after.WriteString("---\na: &a [x]\nb: [*a, *a]\n---\napiVersion: v1\nkind: Pod\nmetadata: {name: large}\nspec: {a: " + strings.Repeat("z", mostObjects) + "}\n")
	names, diffs, err := Renderings(t.Context(), before.String(), after.String())
	if err != nil || len(names) != 32 || names[0] != "added Pod p00" || names[30] != "and 30 more" ||
		names[31] != "and 2 documents that are too large, or have aliases or a key twice" {
		t.Fatalf("found %q, %v", names, err)
	}
	size := 0
	for _, d := range diffs {
		size += len(d.Diff)
	}
	if len(diffs) != 30 || size > maxRendered {
		t.Errorf("found %d differences of %d bytes; want 30 of at most %d", len(diffs), size, maxRendered)
	}
}

// R4-27: why something cannot be rendered is one line without secrets.
func TestReasonsHaveNoSecrets(t *testing.T) {
	t.Parallel()
	got := Reason("helm: execution error:\n  password: hunter2\n  https://ann:hunter3@host/x\n" + strings.Repeat("é", 500))
	if strings.Contains(got, "hunter") || strings.Contains(got, "\n") || len([]rune(got)) != maxReason+1 || !strings.HasPrefix(got, "helm: execution error:") {
		t.Errorf("found %q", got)
	}
}
