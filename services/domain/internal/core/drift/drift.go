// Package drift is what differs in a cluster from what was deployed, as a list of objects (R4-11). Whatever is decided about drift is
// decided by the list; its sentence is for people.
package drift

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// How is how an object differs.
type How string

// The ways in which objects differ.
const (
	// Missing means that a deploy would create it.
	Missing How = "missing"
	// Extra means that a deploy would delete it.
	Extra     How = "extra"
	Different How = "different"
)

// Held is a field that another manager has taken over: no deploy sets it any more. It is kept in this form.
type Held struct {
	Path string `json:"path"`
	// Manager is who has taken it over; empty if that is unknown.
	Manager string `json:"manager,omitempty"`
}

// Object is one that differs. It is kept in this form.
type Object struct {
	// Kind is empty for a file, whose Name is its path. Both are empty where it was only said in words what differs.
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	How       How    `json:"how"`
	// Code is the kind of difference, where an object can differ in several ways; empty if that is not known.
	Code string `json:"code,omitempty"`
	// Differs says what differs in it, such as "replicas 9 → 2"; empty if that is not known.
	Differs []string `json:"differs,omitempty"`
	Held    []Held   `json:"held,omitempty"`
}

// List is what differs; empty for nothing.
type List []Object

const (
	// most is how many objects a sentence names, and how many details of each.
	most = 10
	// shown is how many characters of a detail, a path or a manager are kept, and details how many an object has.
	shown   = 300
	details = 100
	// longest is how many characters a sentence has.
	longest = 4000
)

// Named is the object that a driver names: Deployment/api, or the path of a file, which has no kind.
func Named(object string) Object {
	kind, name, _ := strings.Cut(object, "/")
	if name == "" || strings.Contains(name, "/") || kind == "" || !unicode.IsUpper([]rune(kind)[0]) {
		return Object{Name: object}
	}
	return Object{Kind: kind, Name: name}
}

// InWords is what a reporter says that lists no objects, as one of an earlier release; empty for no drift.
func InWords(sentence string) List {
	if sentence == "" {
		return nil
	}
	return List{{How: Different, Differs: []string{sentence}}}
}

// Add adds what differs, to what is known of the same object if there is any. Long texts are cut.
func (l List) Add(o Object) List {
	o.Differs, o.Held = slices.Clone(o.Differs), slices.Clone(o.Held)
	for i, text := range o.Differs {
		o.Differs[i] = cut(text, shown)
	}
	for i, h := range o.Held {
		o.Held[i] = Held{Path: cut(h.Path, shown), Manager: cut(h.Manager, shown)}
	}
	for i := range l {
		if known := &l[i]; known.same(o) {
			known.Differs, known.Held = first(append(known.Differs, o.Differs...)), first(append(known.Held, o.Held...))
			return l
		}
	}
	o.Differs, o.Held = first(o.Differs), first(o.Held)
	return append(l, o)
}

func (o Object) same(other Object) bool {
	return o.Kind == other.Kind && o.Namespace == other.Namespace && o.Name == other.Name && o.How == other.How && o.Code == other.Code
}

func first[T any](all []T) []T { return all[:min(len(all), details)] }

// cut shortens a text.
func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most]) + "…"
	}
	return text
}

// Sorted has those first of which others have taken over fields, so that they are named however many there are.
func (l List) Sorted() List {
	sorted := slices.Clone(l)
	held := func(o Object) int {
		if len(o.Held) > 0 {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(sorted, func(a, b Object) int {
		return cmp.Or(cmp.Compare(held(a), held(b)), strings.Compare(a.title(), b.title()), strings.Compare(a.Namespace, b.Namespace))
	})
	return sorted
}

// TakenOver reports whether no deploy takes back what differs: a deploy forces nothing, so it fails.
func (l List) TakenOver() bool {
	return slices.ContainsFunc(l, func(o Object) bool { return len(o.Held) > 0 })
}

// Managers are the first of those who have taken over fields, as far as they are known, and how many others there are.
func (l List) Managers() []string {
	var all []string
	for _, o := range l {
		for _, h := range o.Held {
			if h.Manager != "" {
				all = append(all, h.Manager)
			}
		}
	}
	slices.Sort(all)
	all = slices.Compact(all)
	if more := len(all) - most; more > 0 {
		all = append(all[:most], fmt.Sprintf("and %d more", more))
	}
	return all
}

// Key distinguishes what drift is about from other drift: by the objects and how they differ, not by values, which may be others each time.
func (l List) Key() string {
	lines := make([]string, len(l))
	for i, o := range l {
		lines[i] = strings.Join([]string{o.Kind, o.Namespace, o.Name, string(o.How)}, "\x00")
		if o.Name == "" { // only the words distinguish it
			lines[i] += "\x00" + strings.Join(o.Differs, "\x00")
		}
		if o.Code != "" {
			lines[i] += "\x00code " + o.Code
		}
		if len(o.Held) > 0 {
			lines[i] += "\x00held"
		}
	}
	slices.Sort(lines)
	sum := sha256.Sum256([]byte(strings.Join(lines, "\n")))
	return hex.EncodeToString(sum[:8])
}

// Sentence says what differs; empty for nothing.
func (l List) Sentence() string {
	var names []string
	for _, o := range l.Sorted() {
		names = append(names, o.sentence())
	}
	if more := len(names) - most; more > 0 {
		names = append(names[:most], fmt.Sprintf("and %d more", more))
	}
	return cut(strings.Join(names, ", "), longest)
}

func (o Object) title() string {
	name := o.Name
	switch {
	case name == "" && o.Kind == "":
		name = "something"
	case name == "" || o.Kind == "":
		name = cmp.Or(o.Kind, name)
	default:
		name = o.Kind + "/" + name
	}
	return name + map[How]string{Missing: " is missing", Extra: " is extra", Different: " differs"}[o.How]
}

func (o Object) sentence() string {
	about := append(heldBy(o.Held), o.Differs...)
	about = about[:min(len(about), most)]
	switch {
	case len(about) == 0:
		return o.title()
	case o.Kind == "" && o.Name == "":
		return strings.Join(about, ", ")
	default:
		return o.title() + " (" + strings.Join(about, ", ") + ")"
	}
}

// heldBy says who manages which fields, by manager.
func heldBy(held []Held) (all []string) {
	by := map[string][]string{}
	var managers []string
	for _, h := range held {
		if by[h.Manager] == nil {
			managers = append(managers, h.Manager)
		}
		by[h.Manager] = append(by[h.Manager], h.Path)
	}
	for _, m := range managers {
		who := m + " manages "
		if m == "" {
			who = "others manage "
		}
		paths := by[m]
		all = append(all, strings.TrimSpace(who+strings.Join(paths[:min(len(paths), most)], ", ")))
	}
	return all
}
