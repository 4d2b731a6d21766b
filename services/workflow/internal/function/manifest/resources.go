package manifest

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
)

// resource is what identifies an object in manifests.
type resource struct{ kind, namespace, name string }

// nameForm is what kinds, namespaces and names consist of. What has another one is no object of a cluster, as in templates.
var nameForm = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9.:_-]{0,251}[A-Za-z0-9])?$`)

// Resources are the objects that differ between files before and after, as "added Deployment shop/api", in order. Their contents are not
// shown. What cannot be read as a manifest has none: that of a chart's template is known only once it is rendered.
func Resources(files []Revision) []string {
	before, after := map[resource]any{}, map[resource]any{}
	for _, f := range files {
		objects(f.Before, before)
		objects(f.After, after)
	}
	var all []string
	add := func(what string, r resource) {
		name := r.name
		if r.namespace != "" {
			name = r.namespace + "/" + name
		}
		all = append(all, fmt.Sprintf("%s %s %s", what, r.kind, name))
	}
	for r, old := range before {
		switch now, is := after[r]; {
		case !is:
			add("removed", r)
		case !reflect.DeepEqual(old, now):
			add("changed", r)
		}
	}
	for r := range after {
		if _, was := before[r]; !was {
			add("added", r)
		}
	}
	slices.SortFunc(all, func(a, b string) int { // by what they are, and then by what happens to them
		return strings.Compare(a[strings.Index(a, " "):]+a, b[strings.Index(b, " "):]+b)
	})
	return all
}

// objects adds those of a manifest; none if it is not one.
func objects(text string, all map[resource]any) {
	f, err := read([]byte(text))
	if err != nil {
		return
	}
	for _, d := range f {
		r := resource{kind: d.text("kind"), namespace: d.text("metadata", "namespace"), name: d.name()}
		if d.text("apiVersion") == "" || !nameForm.MatchString(r.kind) || !nameForm.MatchString(r.name) ||
			r.namespace != "" && !nameForm.MatchString(r.namespace) {
			continue
		}
		all[r] = d.value
	}
}
