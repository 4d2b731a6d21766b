package manifest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// The kinds of things that a rollout may change, the gravest first (R4-19).
const (
	ThingImage       = "image"
	ThingPodTemplate = "pod_template"
	ThingConfigMap   = "config_map"
	ThingSecret      = "secret"
	ThingReplicas    = "replicas"
	ThingOther       = "other"
)

// mostThings is how many things a comparison lists, and longestDetail how long a value in a detail may be, in bytes.
const (
	mostThings    = 100
	longestDetail = 300
)

// Thing is one thing that differs.
type Thing struct{ Kind, Action, Object, Detail string }

// Comparison is what differs between manifests before and after.
type Comparison struct {
	// Workloads is how many objects with pods there are, before or after.
	Workloads int
	// Things are the gravest first.
	Things []Thing
	// Unread are the paths of files that differ in what cannot be named: templates, values of charts, patches, and what is too large.
	Unread []string
}

// Compare lists what differs between files before and after. Files whose names say that they are text for people do not count.
func Compare(ctx context.Context, files []Revision) (Comparison, error) {
	c := &comparing{before: map[resource]any{}, after: map[resource]any{}}
	total := 0
	for _, f := range files {
		size := len(f.Before) + len(f.After)
		switch {
		case forPeople(f.Path):
			continue
		case f.Unread, len(f.Before) > mostObjects, len(f.After) > mostObjects, total+size > mostTogether:
			c.found.Unread = append(c.found.Unread, f.Path)
			continue
		}
		total += size
		if err := c.file(ctx, f); err != nil {
			return Comparison{}, err
		}
	}
	c.objects()
	slices.SortStableFunc(c.found.Things, func(a, b Thing) int { return gravity(a.Kind) - gravity(b.Kind) })
	c.found.Things = c.found.Things[:min(len(c.found.Things), mostThings)]
	return c.found, nil
}

func gravity(kind string) int {
	return slices.Index([]string{ThingImage, ThingPodTemplate, ThingConfigMap, ThingSecret, ThingReplicas, ThingOther}, kind)
}

func forPeople(name string) bool {
	return slices.Contains([]string{".md", ".txt", ".adoc"}, strings.ToLower(path.Ext(name))) || path.Base(name) == "LICENSE"
}

// comparing is a comparison in the making.
type comparing struct {
	before, after map[resource]any
	found         Comparison
}

// file takes the objects of a file before and after. What is no object has to be the same, or be a kustomization.
func (c *comparing) file(ctx context.Context, f Revision) error {
	was, wasOther, errBefore := documents(ctx, f.Before)
	now, nowOther, errAfter := documents(ctx, f.After)
	switch {
	case ctx.Err() != nil:
		return fault.Because(ctx.Err(), fault.Unavailable, "the manifests were not compared to their end")
	case errBefore != nil || errAfter != nil:
		if f.Before != f.After {
			c.found.Unread = append(c.found.Unread, f.Path)
		}
		return nil
	}
	for r, o := range was {
		c.before[r] = o
	}
	for r, o := range now {
		c.after[r] = o
	}
	if reflect.DeepEqual(wasOther, nowOther) {
		return nil
	}
	name := path.Base(f.Path)
	if !slices.Contains([]string{"kustomization.yaml", "kustomization.yml", "Kustomization"}, name) || !c.kustomization(f.Path, wasOther, nowOther) {
		c.found.Unread = append(c.found.Unread, f.Path)
	}
	return nil
}

// documents are the objects of a manifest, and everything else in it.
func documents(ctx context.Context, text string) (objects map[resource]any, others []any, err error) {
	objects = map[resource]any{}
	decoder := yaml.NewDecoder(strings.NewReader(text))
	for ctx.Err() == nil {
		var d yaml.Node
		switch err := decoder.Decode(&d); {
		case errors.Is(err, io.EOF):
			return objects, others, nil
		case err != nil:
			return nil, nil, fmt.Errorf("read a manifest: %w", err)
		}
		if _, err := digestOf(&d); err != nil { // references can stand for any amount of text
			return nil, nil, err
		}
		var value any
		if err := d.Decode(&value); err != nil {
			return nil, nil, fmt.Errorf("read a manifest: %w", err)
		}
		if r, is := resourceOf(&d); is && r.kind != "Kustomization" {
			objects[r] = value
		} else if value != nil {
			others = append(others, value)
		}
	}
	return nil, nil, ctx.Err() //nolint:wrapcheck // the caller asks the context itself
}

// kustomization compares kustomizations, and reports whether all that differs could be named.
func (c *comparing) kustomization(file string, before, after []any) bool {
	var sides [2]map[string]any
	for i, all := range [][]any{before, after} {
		sides[i] = map[string]any{}
		if len(all) > 1 {
			return false
		}
		for _, one := range all {
			m, is := one.(map[string]any)
			if !is {
				return false
			}
			sides[i] = m
		}
	}
	for name := range both(sides[0], sides[1]) {
		a, b := sides[0][name], sides[1][name]
		if reflect.DeepEqual(a, b) {
			continue
		}
		switch name {
		case "images":
			c.entries(ThingImage, file, a, b, func(e map[string]any) string {
				image := orText(e["newName"], e["name"])
				if e["digest"] != nil {
					return image + "@" + fmt.Sprint(e["digest"])
				}
				return image + ":" + orText(e["newTag"], "")
			})
		case "replicas":
			c.entries(ThingReplicas, file, a, b, func(e map[string]any) string { return fmt.Sprint(e["count"]) })
		case "configMapGenerator":
			c.add(ThingConfigMap, "changed", file, "")
		case "secretGenerator":
			c.add(ThingSecret, "changed", file, "")
		default:
			return false
		}
	}
	return true
}

func orText(v, other any) string {
	if v == nil {
		return fmt.Sprint(other)
	}
	return fmt.Sprint(v)
}

// entries compares two lists of things with names.
func (c *comparing) entries(kind, file string, before, after any, value func(map[string]any) string) {
	read := func(list any) map[string]any {
		found := map[string]any{}
		all, _ := list.([]any)
		for _, each := range all {
			if e, is := each.(map[string]any); is {
				found[fmt.Sprint(e["name"])] = value(e)
			}
		}
		return found
	}
	a, b := read(before), read(after)
	for _, name := range slices.Sorted(both(a, b)) {
		if a[name] != b[name] {
			c.change(kind, file+" "+name, a[name], b[name])
		}
	}
}

// both are the names in one of two mappings at least.
func both(a, b map[string]any) func(func(string) bool) {
	return func(yield func(string) bool) {
		for name := range a {
			if !yield(name) {
				return
			}
		}
		for name := range b {
			if _, known := a[name]; !known && !yield(name) {
				return
			}
		}
	}
}

func (c *comparing) add(kind, action, object, detail string) {
	c.found.Things = append(c.found.Things, Thing{kind, action, object, detail})
}

// change adds what was and what becomes of a value; nil is none.
func (c *comparing) change(kind, object string, before, after any) {
	shown := func(v any) string {
		if v == nil {
			return "none"
		}
		text := fmt.Sprint(v)
		return strings.ToValidUTF8(text[:min(len(text), longestDetail)], "")
	}
	action := "changed"
	switch {
	case before == nil:
		action = "added"
	case after == nil:
		action = "removed"
	}
	c.add(kind, action, object, shown(before)+" → "+shown(after))
}

// objects compares the objects.
func (c *comparing) objects() {
	all := make([]resource, 0, len(c.before)+len(c.after))
	for r := range c.before {
		all = append(all, r)
	}
	for r := range c.after {
		if _, was := c.before[r]; !was {
			all = append(all, r)
		}
	}
	slices.SortFunc(all, func(a, b resource) int {
		return strings.Compare(a.kind+"/"+a.namespace+"/"+a.name, b.kind+"/"+b.namespace+"/"+b.name)
	})
	for _, r := range all {
		before, was := c.before[r]
		after, is := c.after[r]
		name := r.kind + "/" + r.name
		if runsPods(r.kind, before) || runsPods(r.kind, after) {
			c.found.Workloads++
		}
		switch {
		case !was:
			c.add(kindOf(r.kind, after), "added", name, "")
		case !is:
			c.add(kindOf(r.kind, before), "removed", name, "")
		case reflect.DeepEqual(before, after):
		case kindOf(r.kind, before) != ThingPodTemplate || kindOf(r.kind, after) != ThingPodTemplate:
			c.add(kindOf(r.kind, after), "changed", name, "")
		default:
			c.workload(name, before, after)
		}
	}
}

// kindOf is what kind of thing an object is as a whole.
func kindOf(kind string, object any) string {
	switch {
	case runsPods(kind, object):
		return ThingPodTemplate
	case kind == "ConfigMap":
		return ThingConfigMap
	case strings.HasSuffix(kind, "Secret"): // also those that a controller makes one of
		return ThingSecret
	default:
		return ThingOther
	}
}

// runsPods reports whether an object has pods: it has a template of them, or a reference to a workload.
func runsPods(kind string, object any) bool {
	return kind == "Rollout" || kind == "Pod" || template(object) != nil
}

// template is the part of an object that describes pods; nil if it has none.
func template(object any) map[string]any {
	spec := member(object, "spec")
	if job := member(spec, "jobTemplate"); job != nil {
		spec = member(job, "spec")
	}
	if t := member(spec, "template"); member(member(t, "spec"), "containers") != nil || listAt(member(t, "spec"), "containers") != nil {
		return t
	}
	if listAt(spec, "containers") != nil {
		return map[string]any{"spec": spec}
	}
	return nil
}

func member(v any, name string) map[string]any {
	m, _ := v.(map[string]any)
	child, _ := m[name].(map[string]any)
	return child
}

func listAt(v map[string]any, name string) []any {
	list, _ := v[name].([]any)
	return list
}

// workload compares two states of an object with pods.
func (c *comparing) workload(name string, before, after any) {
	a, b := images(template(before)), images(template(after))
	for _, container := range slices.Sorted(both(a, b)) {
		if a[container] != b[container] {
			c.change(ThingImage, name, a[container], b[container])
		}
	}
	if !reflect.DeepEqual(without(template(before)), without(template(after))) {
		c.add(ThingPodTemplate, "changed", name, "")
	}
	was, is := member(before, "spec"), member(after, "spec")
	if !reflect.DeepEqual(was["replicas"], is["replicas"]) {
		c.change(ThingReplicas, name, was["replicas"], is["replicas"])
	}
	if !reflect.DeepEqual(rest(before), rest(after)) {
		c.add(ThingOther, "changed", name, "")
	}
}

// images are those of the containers of a template, by name.
func images(t map[string]any) map[string]any {
	found := map[string]any{}
	spec := member(t, "spec")
	for _, list := range []string{"initContainers", "containers"} {
		for _, each := range listAt(spec, list) {
			if container, is := each.(map[string]any); is {
				found[fmt.Sprint(container["name"])] = container["image"]
			}
		}
	}
	return found
}

// without is a template without its images.
func without(t map[string]any) map[string]any {
	if t == nil {
		return nil
	}
	spec := copied(member(t, "spec"))
	for _, list := range []string{"initContainers", "containers"} {
		var all []any
		for _, each := range listAt(spec, list) {
			container, _ := each.(map[string]any)
			container = copied(container)
			delete(container, "image")
			all = append(all, container)
		}
		if all != nil {
			spec[list] = all
		}
	}
	t = copied(t)
	t["spec"] = spec
	return t
}

// rest is an object without its template and number of replicas.
func rest(object any) map[string]any {
	m, _ := object.(map[string]any)
	m = copied(m)
	spec := copied(member(m, "spec"))
	for _, name := range []string{"replicas", "template", "jobTemplate", "containers", "initContainers"} {
		delete(spec, name)
	}
	m["spec"] = spec
	return m
}

func copied(m map[string]any) map[string]any {
	c := make(map[string]any, len(m))
	for name, v := range m {
		c[name] = v
	}
	return c
}
