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

// What people read of a change has no secret; a file that differs in nothing else is named, in its place.
func TestDiffShownHasNoSecret(t *testing.T) {
	t.Parallel()
	got, err := DiffShown([]Revision{
		{Path: "a.yaml", Before: "password: hunter1\n", After: "password: hunter2\n"},
		{Path: "b.yaml", Before: "password: hunter1\nimage: old\n", After: "password: hunter2\nimage: new\n"},
		{Path: "c.yaml", Before: "image: old\n", After: "image: new\n"},
		{Path: "d.yaml", Before: "password: hunter1\n", After: "password: hunter1\n"},
		{Path: "e.yaml", Before: "", After: "password: hunter1\n"},
	}, 0)
	if err != nil {
		t.Fatal(err)
	}
	type mark struct {
		path             string
		redacted, hidden bool
	}
	var marks []mark
	for _, c := range got {
		marks = append(marks, mark{c.Path, c.Redacted, c.Hidden})
		if strings.Contains(c.Diff, "hunter") || c.Diff == "" {
			t.Errorf("%s: %q", c.Path, c.Diff)
		}
	}
	want := []mark{{"a.yaml", true, true}, {"b.yaml", true, false}, {"c.yaml", false, false}, {"e.yaml", true, false}}
	if d := cmp.Diff(want, marks, cmp.AllowUnexported(mark{})); d != "" {
		t.Errorf("changes (-want +got):\n%s", d)
	}
	if !strings.Contains(got[1].Diff, "+image: new") || !strings.Contains(got[3].Diff, "+password: [redacted]") {
		t.Errorf("found %q and %q", got[1].Diff, got[3].Diff)
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
