package manifest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
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
	got, unnamed, err := Resources(t.Context(), []Revision{
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
	if diff := cmp.Diff(want, got); err != nil || unnamed != 0 || diff != "" {
		t.Errorf("%d, %v (-want +got):\n%s", unnamed, err, diff)
	}
	if strings.Contains(fmt.Sprint(got), "hunter2") {
		t.Error("found a content")
	}
}

// R4-27: what anybody may propose does not take the memory of a service: large files, aliases and keys that stand there twice are counted,
// and neither half of such a file is shown. A call that has ended goes no further.
func TestResourcesOfHostileFiles(t *testing.T) {
	t.Parallel()
	object := "apiVersion: v1\nkind: Secret\nmetadata: {name: key}\n"
	bomb := "a0: &a0 [x, x, x, x, x, x, x, x, x]\n"
	for i := range 9 {
		bomb += fmt.Sprintf("a%d: &a%d [%s*a%d]\n", i+1, i+1, strings.Repeat(fmt.Sprintf("*a%d, ", i), 8), i)
	}
	for name, after := range map[string]string{
		"large": object + "data: " + strings.Repeat("x", mostObjects), "bomb": object + bomb, "alias": object + "data: &a {b: c}\nmore: *a\n",
		"twice": object + "kind: Pod\n", "twice below": object + "data: {a: b, a: c}\n",
	} {
		for _, f := range []Revision{{Before: object, After: after}, {Before: after, After: object}} {
			got, unnamed, err := Resources(t.Context(), []Revision{f})
			if err != nil || unnamed != 1 || len(got) != 0 {
				t.Errorf("%s: found %v, %d files unnamed, %v; want one", name, got, unnamed, err)
			}
		}
	}
	files := make([]Revision, 20)
	for i := range files {
		files[i].After = object + "data: [" + strings.Repeat("{a},", (mostObjects-len(object)-10)/4) + "]\n"
	}
	got, unnamed, err := Resources(t.Context(), files)
	if err != nil || unnamed != 12 || len(got) != 1 {
		t.Errorf("found %v, %d files unnamed, %v; want one object, and 12 files beyond a MiB", got, unnamed, err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if _, _, err := Resources(ended, files); !errors.Is(err, context.Canceled) {
		t.Errorf("found %v; want that it has ended", err)
	}
}

// R4-27: of the values of a file only digests are kept.
//
//nolint:paralleltest // it measures allocations, which those of other tests would be counted among
func TestResourcesKeepNoValues(t *testing.T) {
	object := "apiVersion: v1\nkind: Secret\nmetadata: {name: key}\ndata: [" + strings.Repeat("{a},", 32_000) + "]\n"
	found := map[resource]sum{}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	if err := objects(t.Context(), object, found); err != nil || len(found) != 1 {
		t.Fatalf("found %d objects, %v", len(found), err)
	}
	runtime.ReadMemStats(&after)
	if all := after.TotalAlloc - before.TotalAlloc; all > 100<<20 {
		t.Errorf("found %d MiB allocated for a file of 128 KiB", all>>20)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if kept := int64(after.HeapAlloc) - int64(before.HeapAlloc); kept > 4<<20 {
		t.Errorf("found %d MiB kept", kept>>20)
	}
	runtime.KeepAlive(found)
}
