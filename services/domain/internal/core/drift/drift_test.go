package drift

import (
	"fmt"
	"strings"
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

// R4-11: what a driver names is an object with its kind, or a file with its path; a list that is not empty never has an empty sentence.
func TestWhatADriverNames(t *testing.T) {
	t.Parallel()
	for object, want := range map[string]Object{
		"Deployment/api":     {Kind: "Deployment", Name: "api"},
		"api":                {Name: "api"},
		"values.yaml":        {Name: "values.yaml"},
		"apps/values.yaml":   {Name: "apps/values.yaml"},
		"apps/x/values.yaml": {Name: "apps/x/values.yaml"},
		"Apps/x/values.yaml": {Name: "Apps/x/values.yaml"},
		"/values.yaml":       {Name: "/values.yaml"},
		"Deployment/":        {Name: "Deployment/"},
	} {
		got := Named(object)
		if got.Kind != want.Kind || got.Name != want.Name {
			t.Errorf("%s: got kind %q and name %q", object, got.Kind, got.Name)
		}
		got.How = Different
		if sentence := (List{got}).Sentence(); sentence != object+" differs" {
			t.Errorf("%s: the sentence is %q", object, sentence)
		}
	}
	for _, o := range []Object{{}, {How: Different}, {Kind: "api", How: Extra}} {
		if (List{o}).Sentence() == "" {
			t.Errorf("%v has no sentence", o)
		}
	}
}

// R4-10, R4-11: the kind of difference is part of what drift is about.
func TestTheKindOfDifferenceCounts(t *testing.T) {
	t.Parallel()
	of := func(code, detail string) List {
		return List{}.Add(Object{Kind: "Application", Name: "shop", How: Different, Code: code, Differs: []string{detail}})
	}
	if of("automatic", "a").Key() == of("revision", "a").Key() || of("revision", "a").Key() != of("revision", "b").Key() {
		t.Error("the code does not count, or the detail does")
	}
	if of("", "a").Key() != of("", "b").Key() {
		t.Error("without a code, the detail counts")
	}
}

// R4-11: however many managers, fields and details there are, and however long, what is shown is bounded.
func TestTheTextsOfDriftAreBounded(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("ä", 1000)
	var all List
	for i := range 100 {
		o := Object{Kind: "Deployment", Name: fmt.Sprint(i), How: Different, Differs: []string{long}}
		for j := range 120 {
			o.Held = append(o.Held, Held{Path: long, Manager: fmt.Sprint(i, "-", j, long)})
		}
		all = all.Add(o)
	}
	if got := all.Managers(); len(got) != 11 || got[10] != "and 9990 more" {
		t.Errorf("got %d managers", len(got))
	}
	if n := len([]rune(all[0].Held[0].Manager)); n != 301 || len(all[0].Held) != 100 {
		t.Errorf("a manager has %d characters, of %d fields", n, len(all[0].Held))
	}
	if n := len([]rune(all.Sentence())); n > 4001 {
		t.Errorf("the sentence has %d characters", n)
	}
}
