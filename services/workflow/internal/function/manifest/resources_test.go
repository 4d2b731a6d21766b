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
	all, unnamed, err := Resources(t.Context(), []Revision{
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
	got := namesOf(all)
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
	found := map[resource]seen{}
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

func namesOf(all []Resource) (names []string) {
	for _, r := range all {
		names = append(names, r.String())
	}
	return names
}

// R4-27: objects that belong together by their labels are together, then by kind and name.
func TestResourcesAreSortedByLabels(t *testing.T) {
	t.Parallel()
	object := func(kind, name, labels string) string {
		return fmt.Sprintf("apiVersion: v1\nkind: %s\nmetadata: {name: %s, labels: {%s}}\n---\n", kind, name, labels)
	}
	all, _, err := Resources(t.Context(), []Revision{{After: object("Service", "b", "app.kubernetes.io/name: b") + object("Service", "a", "app.kubernetes.io/name: a") +
		object("Deployment", "b", "app.kubernetes.io/name: b") + object("Deployment", "a", "app.kubernetes.io/name: a") + object("Namespace", "z", "")}})
	want := []string{"added Namespace z", "added Deployment a", "added Service a", "added Deployment b", "added Service b"}
	if diff := cmp.Diff(want, namesOf(all)); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

// R4-27: what differs in an object, with keys in order and without comments; of secrets, and of what is named as one, no value is shown, in
// any form, but which of them changes.
func TestDifferencesOfResources(t *testing.T) {
	t.Parallel()
	diffs := func(before, after string) string {
		t.Helper()
		files := []Revision{{Path: "a.yaml", Before: before, After: after}}
		all, _, err := Resources(t.Context(), files)
		if err != nil {
			t.Fatal(err)
		}
		changes, err := ResourceDiffs(t.Context(), files, all)
		if err != nil {
			t.Fatal(err)
		}
		var text string
		for _, c := range changes {
			text += c.Path + "\n" + c.Diff
		}
		return text
	}
	got := diffs("apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: api}\nspec: {replicas: 1, paused: false} # one\n",
		"kind: Deployment\napiVersion: apps/v1\nmetadata: {name: api}\nspec: {paused: false, replicas: 2}\n")
	want := "changed Deployment api\n@@ -4,4 +4,4 @@ metadata:\n   name: api\n spec:\n   paused: false\n-  replicas: 1\n+  replicas: 2\n"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	secret := func(more string) string {
		return "apiVersion: v1\nkind: Secret\nmetadata: {name: key, annotations: {last: hunter-annotation}}\ntype: Opaque\n" + more + "---\n" +
			"apiVersion: v1\nkind: Pod\nmetadata: {name: api}\nspec: {containers: [{env: [{name: DB_PASSWORD, value: hunter-env}], apiKey: hunter-key}]}\n"
	}
	got = diffs(secret("data: {a: hunter-a, b: hunter-b}\n"), strings.ReplaceAll(secret("stringData: {c: hunter-c}\ndata: {a: hunter-2, b: hunter-b}\n"), "hunter-env", "hunter-other"))
	for _, wanted := range []string{"-  a: (hidden, as it was)", "+  a: (hidden, as it will be)", "   b: (hidden)", "+  c: (hidden, as it will be)", "DB_PASSWORD", "apiKey: (hidden)"} {
		if !strings.Contains(got, wanted) {
			t.Errorf("found no %q in\n%s", wanted, got)
		}
	}
	list := "apiVersion: v1\nkind: List\nmetadata: {name: all}\nitems: [{apiVersion: v1, kind: Secret, metadata: {name: x}, data: {a: hunter-list}}]\n"
	got += diffs(list, strings.ReplaceAll(list, "hunter-list", "hunter-new")) + diffs("", list)
	if strings.Contains(got, "hunter") || strings.Contains(got, "hidden-") {
		t.Errorf("found a value in\n%s", got)
	}
}

// objectDiffs is what is shown of the objects that differ between two texts.
func objectDiffs(t *testing.T, before, after string) string {
	t.Helper()
	files := []Revision{{Path: "a.yaml", Before: before, After: after}}
	all, _, err := Resources(t.Context(), files)
	if err != nil {
		t.Fatal(err)
	}
	changes, err := ResourceDiffs(t.Context(), files, all)
	if err != nil {
		t.Fatal(err)
	}
	var text string
	for _, c := range changes {
		text += c.Path + "\n" + c.Diff
	}
	return text
}

// R4-27: no secret is shown in whatever form manifests have one, before a change or after it.
func TestNoFormOfASecretIsShown(t *testing.T) {
	t.Parallel()
	object := func(kind, more string) string {
		return "apiVersion: v1\nkind: " + kind + "\nmetadata: {name: a}\n" + more
	}
	for name, text := range map[string]string{
		"a list below a key":       object("App", "passwords: [hunter-1, {a: hunter-2}]\n"),
		"a mapping below a key":    object("App", "credentials: {user: hunter-1, more: {x: hunter-2}}\n"),
		"a number":                 object("App", "pass: 12345678\n"),
		"names of variables":       object("Pod", "env: [{name: AWS_SECRET_ACCESS_KEY, value: hunter-1}, {name: SECRET_KEY, value: hunter-2}, {name: DB_PASS, value: hunter-3}]\n"),
		"a last application":       "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, annotations: {kubectl.kubernetes.io/last-applied-configuration: '{\"a\":\"hunter\"}'}}\n",
		"literals":                 "apiVersion: v1\nkind: Kustomization\nmetadata: {name: a}\nsecretGenerator: [{name: x, literals: [a=hunter-1, hunter-2]}]\n",
		"a file of properties":     object("ConfigMap", "data:\n  app.properties: |\n    db.url=jdbc:x\n    db.password=hunter-1\n    db.password = hunter-2\n"),
		"values of a chart":        object("App", "values: |\n  auth:\n    password: hunter-1\n    token:\n      deep: hunter-2\n    key: |\n      shown\n    secretKey: |\n      hunter-3\n"),
		"variables in a text":      object("App", "values: |\n  env:\n  - name: DB_PASSWORD\n    value: hunter-1\n"),
		"JSON in a text":           object("ConfigMap", "data: {a.json: '{\"user\":\"me\",\"password\":\"hunter-1\",\"x\":1}'}\n"),
		"a key of TLS":             object("ConfigMap", "data: {tls.key: hunter-1, .dockerconfigjson: hunter-2}\n"),
		"PEM":                      object("ConfigMap", "data:\n  some: |\n    -----BEGIN RSA PRIVATE KEY-----\n    hunter-1\n    -----END RSA PRIVATE KEY-----\n"),
		"options":                  object("Pod", "args: [--password=hunter-1, --db-token, hunter-2, 'run --api-key hunter-3']\n"),
		"an address":               object("Pod", "env: [{name: URL, value: 'postgres://user:hunter-1@db/x'}, {name: OTHER, value: 'https://hunter-2@git.test/'}]\n"),
		"what providers give out":  object("Pod", "env: [{name: A, value: ghp_hunterhunterhunterhunter}, {name: B, value: AKIA1234567890HUNTER}]\n"),
		"a list without a version": object("List", "items: [{kind: Secret, metadata: {name: x}, data: {a: hunter-1}}, {apiVersion: 1, kind: Secret, stringData: {b: hunter-2}}]\n"),
		"a key that is no text":    object("App", "? {hunter-1: hunter-2}\n: hunter-3\n"),
	} {
		for _, got := range []string{
			objectDiffs(t, "", text), objectDiffs(t, text, ""), objectDiffs(t, text, strings.ReplaceAll(text, "hunter", "hunter9")+"more: 1\n"),
		} {
			if !strings.Contains(got, "@@") {
				t.Errorf("%s: found no difference in\n%s", name, got)
			}
			if lower := strings.ToLower(got); strings.Contains(lower, "hunter") || strings.Contains(got, "12345678") || strings.Contains(got, "hidden-") {
				t.Errorf("%s: found a value in\n%s", name, got)
			}
		}
	}
}

// R4-27: what is no secret is shown, beside one too, and two values that change places are a difference.
func TestWhatIsNoSecretIsShown(t *testing.T) {
	t.Parallel()
	got := objectDiffs(t, "", "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nautomountServiceAccountToken: false\nimagePullSecrets: [{name: regcred}]\n"+
		"volumes: [{name: v, secret: {secretName: tls}}]\ncommand: [run, --verbose, now]\nenv: [{name: A, valueFrom: {secretKeyRef: {name: db, key: password}}}]\n"+
		"text: |\n  db.url=jdbc:x\n  db.password=hunter\n  image: registry.test/a@sha256:12\n")
	for _, want := range []string{
		"automountServiceAccountToken: false", "name: regcred", "secretName: tls", "- now", "key: password", "db.url=jdbc:x", "db.password=(hidden", "registry.test/a@sha256:12",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("found no %q in\n%s", want, got)
		}
	}
	secret := "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\ndata: {a: %s, b: %s}\n"
	got = objectDiffs(t, fmt.Sprintf(secret, "one", "two"), fmt.Sprintf(secret, "two", "one"))
	for _, want := range []string{"-  a: (hidden, as it was)", "+  a: (hidden, as it will be)", "-  b: (hidden, as it was)", "+  b: (hidden, as it will be)"} {
		if !strings.Contains(got, want) {
			t.Errorf("found no %q in\n%s", want, got)
		}
	}
}

// R4-27: an object that is nested too deep to be indented, or too large, has no difference shown, and costs little.
//
//nolint:paralleltest // it measures allocations, which those of other tests would be counted among
func TestObjectsThatAreTooDeepAreNotShown(t *testing.T) {
	object := "apiVersion: v1\nkind: App\nmetadata: {name: a}\nspec: "
	for name, spec := range map[string]string{
		"deep":  strings.Repeat("{a: ", 9_900) + "1" + strings.Repeat("}", 9_900),
		"large": "[" + strings.Repeat(strings.Repeat("[", 90)+"x"+strings.Repeat("]", 90)+",", 600) + "]",
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		got := objectDiffs(t, "", object+spec+"\n")
		runtime.ReadMemStats(&after)
		if got != "" {
			t.Errorf("%s: found %.200s; want no difference", name, got)
		}
		if all := after.TotalAlloc - before.TotalAlloc; all > 200<<20 {
			t.Errorf("%s: found %d MiB allocated", name, all>>20)
		}
	}
}
