package manifest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// R4-27: which objects a change adds, changes and removes: one that is moved to another file is the same, comments and the order of keys do
// not matter, and no content is shown.
func TestResourcesOfAChange(t *testing.T) {
	t.Parallel()
	object := func(kind, name, more string) string {
		return fmt.Sprintf("apiVersion: v1\nkind: %s\nmetadata: {name: %s, namespace: shop}\n%s\n---\n", kind, name, more)
	}
	got := Resources([]Revision{
		{
			Path: "a.yaml", Before: object("Deployment", "api", "spec: {replicas: 1}") + object("Secret", "key", "data: {a: b}") + object("Service", "api", "spec: {a: 1, b: 2}"),
			After: object("Deployment", "api", "spec: {replicas: 2}") + object("ConfigMap", "settings", "data: {a: hunter2}") + object("Service", "api", "spec: {b: 2, a: 1} # mine"),
		},
		{Path: "b.yaml", Before: object("Secret", "old", "data: {a: b}")},
		{Path: "c.yaml", After: object("Secret", "key", "data: {a: b}")},
		{Path: "d.yaml", Before: "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n", After: "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop, labels: {a: b}}\n"},
		{Path: "template.yaml", After: "{{ if .Values.x }}\nkind: x\n"},
		{Path: "odd.yaml", After: object("Pod", `"<!-- x"`, "") + object("Pod", `"a\nb"`, "") + object(`"@all"`, "x", "") + "- 1\n---\nx: 1\n"},
	})
	want := []string{
		"added ConfigMap shop/settings", "changed Deployment shop/api", "changed Namespace shop", "removed Secret shop/old",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if strings.Contains(fmt.Sprint(got), "hunter2") {
		t.Error("found a content")
	}
}
