package manifest

import (
	"errors"
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
	for i := range 1900 { // 4 MiB that stay
		text := fmt.Sprintf("---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: c%d}\ndata: {a: %s}\n", i, strings.Repeat("x", 2000))
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

// R4-27, D60: what is compared is bounded by its documents, too, of which each takes far more than its text: 4 MiB of the smallest ones are
// not read, and only those that are shown are read twice.
func TestDocumentsAreCounted(t *testing.T) {
	t.Parallel()
	many := func(n int) string { return strings.Repeat("---\na: b\n", n) }
	for _, c := range []struct {
		before, after string
		refused       bool
	}{{many(2000), "", false}, {many(2001), "", true}, {"", many(2001), true}, {many(2001), many(2001), true}, {"", many(400_000), true}} {
		names, diffs, err := Renderings(t.Context(), c.before, c.after)
		if errors.Is(err, ErrTooManyDocuments) != c.refused || !c.refused && err != nil || len(names)+len(diffs) > 0 {
			t.Errorf("%d and %d bytes: found %q, %v", len(c.before), len(c.after), names, err)
		}
	}
	if n := len(documentsOf(many(400_000))); n != mostDocuments+1 {
		t.Errorf("found %d documents, expected the rest to be left alone", n)
	}
	var files []Revision
	for i := range 5 {
		files = append(files, Revision{After: fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: p%d}\n", i/2)})
	}
	all, of, _, err := resources(t.Context(), files)
	if err != nil || len(all) != 3 || !slices.Equal(of[all[1].resource], []int{2, 3}) || !slices.Equal(of[all[2].resource], []int{4}) {
		t.Errorf("found %v in %v, %v", all, of, err)
	}
}

// R4-27: why something cannot be rendered is one bounded line that PostgreSQL takes, without secrets, and without what is configured.
func TestReasonsHaveNoSecrets(t *testing.T) {
	t.Parallel()
	got := Reason("helm: execution error:\n  password: hunter2\n  https://ann:hunter3@host/x\n"+strings.Repeat("é", 500), "")
	if strings.Contains(got, "hunter") || strings.Contains(got, "\n") || len([]rune(got)) != maxReason+1 || !strings.HasPrefix(got, "helm: execution error:") {
		t.Errorf("found %q", got)
	}
	if got := Reason("a\x00b \x1b[31mred\u202e\xff\rpass\x00word: hunter2", ""); got != "ab [31mred password: [redacted]" {
		t.Errorf("found %q", got)
	}
	const values = "db:\n  dsn: \"rain falls\"\n  pin: 48151\n  on: true\n  short: abc\n  pass: pass\n  note: the word token=zebra ends\n  long: wonderland\n" +
		"  block: |\n    first line\n    second \"line\"\n"
	got = Reason("fail: rain falls, 48151, true, abc, the word token=zebra ends\nfirst line; `wonderl...`; \"second \\\"line\\\"\"; password: hunter2", values)
	if want := "fail: (configured), (configured), true, abc, (configured) (configured); `(configured)`; \"(configured)\"; (configured)word: (hidden)"; got != want {
		t.Errorf("found %q, want %q", got, want)
	}
	if got := Reason("yaml: found [rainbows", "[rainbows"); strings.Contains(got, "rainbows") {
		t.Errorf("found %q; want nothing of values that are no YAML", got)
	}
}
