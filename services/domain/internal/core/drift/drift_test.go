package drift

import (
	"fmt"
	"testing"
)

// R4-11: the sentence of drift names what no deploy takes back first, with who has taken it over where that is known, and is bounded.
func TestTheSentenceOfDrift(t *testing.T) {
	t.Parallel()
	var many List
	for i := range 12 {
		many = many.Add(Object{Kind: "ConfigMap", Name: fmt.Sprintf("c%02d", i), How: Extra})
	}
	for want, l := range map[string]List{
		"": nil,
		"Deployment/api differs (replicas 9 → 2, image a:1 → a:2)": List{}.Add(
			Object{Kind: "Deployment", Name: "api", How: Different, Differs: []string{"replicas 9 → 2"}}).Add(
			Object{Kind: "Deployment", Name: "api", How: Different, Differs: []string{"image a:1 → a:2"}}),
		"Deployment/web differs (hpa manages spec.replicas, others manage spec.paused), ConfigMap/a is missing": {
			{Kind: "ConfigMap", Name: "a", How: Missing},
			{Kind: "Deployment", Name: "web", How: Different, Held: []Held{{"spec.replicas", "hpa"}, {"spec.paused", ""}}},
		},
		"automated sync is on": InWords("automated sync is on"),
		"ConfigMap/c00 is extra, ConfigMap/c01 is extra, ConfigMap/c02 is extra, ConfigMap/c03 is extra, ConfigMap/c04 is extra, " +
			"ConfigMap/c05 is extra, ConfigMap/c06 is extra, ConfigMap/c07 is extra, ConfigMap/c08 is extra, ConfigMap/c09 is extra, and 2 more": many,
	} {
		if got := l.Sentence(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// R4-11: what drift is about does not depend on values or order, but on objects with their namespaces, on how they differ and on whether
// others hold fields; brackets in a name change nothing.
func TestTheKeyOfDrift(t *testing.T) {
	t.Parallel()
	one := Object{Kind: "Deployment", Namespace: "a", Name: "api", How: Different, Differs: []string{"replicas 9 → 2"}}
	change := func(of func(o *Object)) List {
		o := one
		of(&o)
		return List{o}
	}
	config := Object{Kind: "ConfigMap", Namespace: "a", Name: "x", How: Extra}
	if got := (List{one, config}).Key(); got != (List{config, one}).Key() || got == (List{one}).Key() {
		t.Errorf("the order counts, or another object does not")
	}
	for name, c := range map[string]struct {
		list List
		same bool
	}{
		"another value":     {change(func(o *Object) { o.Differs = []string{"replicas 7 → 2"} }), true},
		"another namespace": {change(func(o *Object) { o.Namespace = "b" }), false},
		"missing":           {change(func(o *Object) { o.How = Missing }), false},
		"held":              {change(func(o *Object) { o.Held = []Held{{"spec.replicas", "hpa"}} }), false},
		"in words":          {InWords("Deployment/api differs"), false},
	} {
		if got := c.list.Key() == (List{one}).Key(); got != c.same {
			t.Errorf("%s: is the same: %v, want %v", name, got, c.same)
		}
	}
	if InWords("a").Key() == InWords("b").Key() {
		t.Error("other words are the same drift")
	}
	if !change(func(o *Object) { o.Held = []Held{{Path: "spec"}} }).TakenOver() || (List{one}).TakenOver() || InWords("it (others manage spec)").TakenOver() {
		t.Error("what others hold is not what the list says")
	}
}
