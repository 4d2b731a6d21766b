package core

import "testing"

// D51: a change that is listed twice counts once, two changes of one file both count, and a copy that was cut leaves the lines unknown.
func TestSizeOfChanges(t *testing.T) {
	t.Parallel()
	change := func(lines string, cut bool) FileChange {
		return FileChange{Path: "kustomization.yaml", Diff: "--- a\n+++ b\n@@ -1 +1 @@\n" + lines, Truncated: cut}
	}
	one, other := change("-a\n+b\n", false), change("+x1\n+x2\n+x3\n+x4\n", false)
	for _, c := range []struct {
		changes      []FileChange
		files, lines int
	}{
		{[]FileChange{one, one}, 1, 2},
		{[]FileChange{one, other}, 1, 6},
		{[]FileChange{one, {Path: "b", Diff: one.Diff}}, 2, 4},
		{[]FileChange{one, change("-a\n+b\n", true)}, 1, -1},
		{nil, 0, 0},
	} {
		files, lines := SizeOf(c.changes)
		found := -1
		if lines != nil {
			found = *lines
		}
		if *files != c.files || found != c.lines {
			t.Errorf("%v: found %d files, %d lines; want %d, %d", c.changes, *files, found, c.files, c.lines)
		}
	}
}
