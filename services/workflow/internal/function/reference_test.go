package function

import (
	"maps"
	"slices"
	"testing"

	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
)

// TestTheReferenceIsComplete: authors of programs read there what they can run, so every Function, every argument and every code says what
// it means.
func TestTheReferenceIsComplete(t *testing.T) {
	t.Parallel()
	for _, f := range append(All(&forge{}, nil, nil), Watching(WatchDeps{})...) {
		spec := f.(*Function).Spec()
		if len(spec.Doc) < 20 {
			t.Errorf("%s has no description", spec.Name)
		}
		for _, a := range spec.Reference() {
			if len(a.Doc) < 5 || a.Doc[len(a.Doc)-1] != '.' {
				t.Errorf("%s: the argument %s has the description %q, expected a sentence", spec.Name, a.Name, a.Doc)
			}
		}
	}
	documented := map[string]bool{}
	for _, code := range Codes() {
		if documented[code.Name] || code.Doc == "" {
			t.Errorf("the code %s is listed twice, or without a description", code.Name)
		}
		documented[code.Name] = true
	}
	for _, code := range append(slices.Collect(maps.Values(codes())), history.CodeInternal, history.CodeTimeout, history.CodeInvalid,
		history.CodeTooLarge, history.CodeUnreadable, history.CodeUnknownFunction) {
		if !documented[code] {
			t.Errorf("the code %s is not documented", code)
		}
	}
}

func TestArgumentsOfTheReference(t *testing.T) {
	t.Parallel()
	found := map[string]Argument{}
	for _, a := range pinValues().Spec().Reference() {
		found[a.Name] = a
	}
	for name, want := range map[string]string{
		"content": "a non-empty string", "values": "a list, each item an object", "values[].path": "a non-empty string",
		"values[].gates": "a list, each item a whole number of at least 1",
	} {
		if found[name].Expected != want {
			t.Errorf("%s is %q, expected %q", name, found[name].Expected, want)
		}
	}
	if !found["values[].path"].Required || found["values[].tag"].Required {
		t.Error("expected values[].path to be required, and values[].tag not to be")
	}
}

// R3-28, R2-26: a test of a program cannot let a Function of Lockstep's own answer a code that it never answers; workers have codes of
// their own.
func TestInventedCodesAreRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		function, code string
		refused        bool
	}{
		{"git.read_commit", "unreachable", false},
		{"git.read_commit", "unavailable", true},
		{"k8s.watch", "unavailable", true},
		{"job.run", "", true},
		{"emit", "unavailable", true},
		{"shop.pay", "sold_out", false},
	} {
		if err := CheckCode(c.function, c.code); (err != nil) != c.refused {
			t.Errorf("%s with the code %q: found %v, expected refused %v", c.function, c.code, err, c.refused)
		}
	}
}
