package function

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
)

// R4-27: what a change is, with the objects in its manifests and without their contents, and what a forge says about its limits.
func TestAChangeIsAnswered(t *testing.T) {
	t.Parallel()
	f := &forge{change: activity.Change{
		URL: "https://git/x/3", State: "open", Into: "main", Base: "def", Head: "abc", Message: strings.Repeat("x", 5000), Paths: []string{"a.yaml"}, More: true,
		Files: []activity.ChangedFile{
			{Path: "a.yaml", After: []byte("apiVersion: v1\nkind: Secret\nmetadata: {name: key}\ndata: {a: hunter2}\n")},
			{Path: "b.yaml", Unread: true},
			{Path: "c.yaml", After: []byte("a: &a b\nc: *a\n")},
		},
	}}
	call := activity.Call{Organization: 1, Args: m{"repo_url": "https://git/x", "number": int64(3), "asked_by": []any{"ann", "bob"}}}
	got, err := named(t, f, "git.read_change").Call(t.Context(), call)
	want := m{
		"result": "read", "why": "", "wait": int64(0), "quota": nil, "shared": false, "url": "https://git/x/3", "state": "open", "into": "main", "base": "def", "head": "abc",
		"message": strings.Repeat("x", 4096), "refused": "", "paths": []any{"a.yaml"}, "more": true,
		"resources": []any{"added Secret key", "and those in 2 manifests that are too large, or have aliases or a key twice"},
		"diffs":     []any{m{"object": "added Secret key", "diff": "@@ -0,0 +1,6 @@\n+apiVersion: v1\n+data:\n+  a: (hidden, as it will be)\n+kind: Secret\n+metadata:\n+  name: key\n", "truncated": false}},
	}
	if diff := cmp.Diff(any(want), got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if diff := cmp.Diff(activity.ChangeRequest{Organization: 1, RepoURL: "https://git/x", Number: 3, AskedBy: []string{"ann", "bob"}}, f.asked); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	f.change.Fork = true
	forked, err := named(t, f, "git.read_change").Call(t.Context(), call)
	if answer, _ := forked.(m); err != nil || len(answer["diffs"].([]any)) != 0 || len(answer["resources"].([]any)) != 2 || answer["base"] != "" {
		t.Errorf("found %v, %v; want no contents of a fork", forked, err)
	}
	f.change = activity.Change{Limit: activity.Limit{Limited: "busy", Wait: time.Minute}}
	limited, err := named(t, f, "git.read_change").Call(t.Context(), call)
	if answer, _ := limited.(m); err != nil || answer["result"] != "limited" || answer["why"] != "busy" || answer["wait"] != int64(60) {
		t.Errorf("found %v, %v; want that it is limited", limited, err)
	}
}

// R4-27: a comment is bounded, and its outcome is answered.
func TestACommentIsWritten(t *testing.T) {
	t.Parallel()
	f := &forge{written: activity.CommentReport{URL: "https://git/x/3#1", Held: "not mine"}}
	args := m{"repo_url": "https://git/x", "number": int64(3), "marker": "<!-- x -->", "body": "hello", "only_known": true, "known": "https://git/x/3#1"}
	got, err := named(t, f, "git.comment").Call(t.Context(), activity.Call{Organization: 1, Args: args})
	if diff := cmp.Diff(any(m{"result": "set", "why": "", "wait": int64(0), "quota": nil, "shared": false, "url": "https://git/x/3#1", "held": "not mine"}), got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	want := activity.CommentRequest{Organization: 1, RepoURL: "https://git/x", Number: 3, Marker: "<!-- x -->", Body: "hello", OnlyKnown: true, Known: "https://git/x/3#1"}
	if diff := cmp.Diff(want, f.noted); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	args["body"] = strings.Repeat("x", mostComment+1)
	if err := named(t, f, "git.comment").Check(args); err == nil || !strings.Contains(err.Error(), "found 60001 bytes, expected at most 60000") {
		t.Errorf("found %v; want the body refused", err)
	}
}
