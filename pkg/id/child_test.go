package id

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// The id of a child names nothing but the child, fits where ids are kept, and its depth is bounded (issue 18, item 3).
func TestChildRuns(t *testing.T) {
	t.Parallel()
	first, err := ChildRun("rollout-7", "ref/0.1", "")
	if err != nil || !IsChildRun(first) || ReservedRun(first) || !strings.HasPrefix(first, "child:1:rollout-7/") {
		t.Errorf("found %q, %v", first, err)
	}
	other, _ := ChildRun("rollout-7", "ref/0.2", "")
	if again, _ := ChildRun("rollout-7", "ref/0.1", ""); again != first || other == first {
		t.Errorf("found %q again and %q for another key", again, other)
	}
	run := strings.Repeat("ü", 255)
	for depth := 1; depth <= ChildDepthMost; depth++ {
		if run, err = ChildRun(run, "key", strings.Repeat("n", childNameMost)); err != nil || utf8.RuneCountInString(run) > 255 {
			t.Fatalf("depth %d: %q of %d characters, %v", depth, run, utf8.RuneCountInString(run), err)
		}
	}
	if _, err = ChildRun(run, "key", ""); err == nil {
		t.Error("a child is nested too deeply and was not refused")
	}
	for _, name := range []string{"a/b", "a b", strings.Repeat("n", 61), "\n", "ü"} {
		if _, err := ChildRun("w", "key", name); err == nil {
			t.Errorf("the name %q was not refused", name)
		}
	}
	for _, none := range []string{"child:", "child:0:w/1", "child:x", "achild:1:w", "rollout-7"} {
		if IsChildRun(none) {
			t.Errorf("%q is taken for a child", none)
		}
	}
}

// D61: the run of a target is named for its environment, its agent and its attempt, and nothing else is.
func TestTargetRuns(t *testing.T) {
	t.Parallel()
	own, err := ChildRun("rollout-7", "key", "e3.t51.2")
	if err != nil {
		t.Fatal(err)
	}
	if parent, environment, agent, attempt := TargetRun(own); parent != "rollout-7" || environment != 3 || agent != 51 || attempt != 2 {
		t.Errorf("found %q, %d, %d, %d", parent, environment, agent, attempt)
	}
	deeper, err := ChildRun(own, "key", "e3.t51.2")
	if err != nil {
		t.Fatal(err)
	}
	others := []string{"", "rollout-7", deeper, own + "/x"}
	for _, name := range []string{"", "x.e3.t51.2", "e3.t51.2.1", "e03.t51.2", "e3.t51.0", "e3.t99999999999999999999.1"} {
		other, err := ChildRun("rollout-7", "key", name)
		if err != nil {
			t.Fatal(err)
		}
		others = append(others, other)
	}
	for _, run := range others {
		if parent, environment, agent, attempt := TargetRun(run); parent != "" || environment != 0 || agent != 0 || attempt != 0 {
			t.Errorf("%q: found %q, %d, %d, %d; expected none", run, parent, environment, agent, attempt)
		}
	}
}
