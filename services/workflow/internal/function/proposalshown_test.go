package function

import (
	"fmt"
	"strings"
	"testing"

	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
)

// D55: what a pull request shows of its change has no secret, ends no block of code before its end, and is bounded.
func TestTheTextOfAProposalShowsTheDifference(t *testing.T) {
	t.Parallel()
	const secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: db}\nstringData:\n  key: %s\n%s"
	var many, long []activity.ChangedFile
	for i := range activity.MostShownFiles + 5 {
		many = append(many, activity.ChangedFile{
			Path: fmt.Sprintf("%02d.yaml", i), Before: []byte("a: 1\n"), After: []byte("a: 2\n"), Unread: i >= activity.MostShownFiles,
		})
	}
	for i := range 3 {
		long = append(long, activity.ChangedFile{Path: fmt.Sprintf("%d.yaml", i), After: []byte(strings.Repeat("line: of text\n", 1000))})
	}
	for name, test := range map[string]struct {
		files        []activity.ChangedFile
		want, absent []string
	}{
		"nothing": {files: nil, absent: []string{"changes"}},
		"an image": {
			files: []activity.ChangedFile{{Path: "a.yaml", Before: []byte("name: api\nimage: api:1\n"), After: []byte("name: api\nimage: api:2\n")}},
			want:  []string{"- `a.yaml`\n\n```diff\n", "\n name: api\n-image: api:1\n+image: api:2\n```"}, absent: []string{"left out", "cut"},
		},
		"a value of a Secret": {
			files:  []activity.ChangedFile{{Path: "s.yaml", Before: fmt.Appendf(nil, secret, "hunter1", ""), After: fmt.Appendf(nil, secret, "hunter2", "")}},
			want:   []string{"- `s.yaml`\n", "-  key: (hidden, as it was)\n+  key: (hidden, as it will be)\n", "Values that look like secrets are left out."},
			absent: []string{"hunter"},
		},
		"a Secret and more": {
			files: []activity.ChangedFile{{
				Path: "s.yaml", Before: fmt.Appendf(nil, secret, "hunter1", "---\nimage: api:1\n"), After: fmt.Appendf(nil, secret, "hunter2", "---\nimage: api:2\n"),
			}},
			want: []string{"+image: api:2", "Values that look like secrets are left out."}, absent: []string{"hunter"},
		},
		"fences": {
			files: []activity.ChangedFile{{Path: "a`b\n# c.md", Before: []byte("```\n````\nx\n"), After: []byte("```\n````\r\n/approve\r/merge\ny\n")}},
			want:  []string{"- `a'b # c.md`\n\n`````diff\n", "\n+/approve/merge\n", "\n`````"}, absent: []string{"\n/", "\r"},
		},
		"many files": {files: many, want: []string{"`19.yaml`", "Files that are not shown here: 5."}, absent: []string{"`20.yaml`"}},
		"long ones": {
			files: long, want: []string{"The difference is cut here; the commit has all of it.", "Files that are not shown here: 1."}, absent: []string{"`2.yaml`"},
		},
		"no text": {files: []activity.ChangedFile{{Path: "a.bin", Unread: true}}, want: []string{"- `a.bin`: not shown here, since"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := showDifference(test.files)
			for _, want := range test.want {
				if !strings.Contains(got, want) {
					t.Errorf("found %s; want %q", got, want)
				}
			}
			for _, absent := range test.absent {
				if strings.Contains(got, absent) {
					t.Errorf("found %s; want no %q", got, absent)
				}
			}
			if len(got) > mostInText+2<<10 {
				t.Errorf("found %d bytes", len(got))
			}
		})
	}
}
