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
	c := &comparing{before: map[resource][]homed{}, after: map[resource][]homed{}}
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

// forPeople reports whether a file is one that nothing renders: any other text may be part of a config map.
func forPeople(name string) bool {
	name = path.Base(name)
	bare, _, _ := strings.Cut(name, ".")
	return name == "NOTES.txt" || slices.Contains([]string{"README", "LICENSE", "CHANGELOG"}, bare) &&
		slices.Contains([]string{"", ".md", ".txt", ".adoc", ".rst"}, strings.ToLower(path.Ext(name)))
}

// homed is an object, and the file that it is in.
type homed struct {
	file  string
	value any
}

// comparing is a comparison in the making. Several files may have an object of the same name, as bases and patches do.
type comparing struct {
	before, after map[resource][]homed
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
	for r, all := range was {
		for _, o := range all {
			c.before[r] = append(c.before[r], homed{f.Path, o})
		}
	}
	for r, all := range now {
		for _, o := range all {
			c.after[r] = append(c.after[r], homed{f.Path, o})
		}
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
func documents(ctx context.Context, text string) (objects map[resource][]any, others []any, err error) {
	objects = map[resource][]any{}
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
		if r, is := resourceOf(&d); is && !holdsOthers(r.kind, value) {
			objects[r] = append(objects[r], value)
		} else if value != nil {
			others = append(others, value)
		}
	}
	return nil, nil, ctx.Err() //nolint:wrapcheck // the caller asks the context itself
}

// holdsOthers reports whether an object stands for others: a list of them, or what Kustomize makes some of.
func holdsOthers(kind string, object any) bool {
	m, _ := object.(map[string]any)
	group, _, _ := strings.Cut(fmt.Sprint(m["apiVersion"]), "/")
	return kind == "Kustomization" || strings.HasSuffix(kind, "List") || group == "builtin" || group == "kustomize.config.k8s.io"
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
			if !c.entries(ThingImage, file, a, b, imageOf, "newName", "newTag", "digest") {
				return false
			}
		case "replicas":
			if !c.entries(ThingReplicas, file, a, b, func(e map[string]any) string { return fmt.Sprint(e["count"]) }, "count") {
				return false
			}
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

// imageOf is the image that an entry of a kustomization gives.
func imageOf(e map[string]any) string {
	image := orText(e["newName"], e["name"])
	if e["digest"] != nil {
		return image + "@" + fmt.Sprint(e["digest"])
	}
	return image + ":" + orText(e["newTag"], "")
}

// entries compares two lists of things with names, whose value consists of some fields. It reports whether all that differs could be named.
func (c *comparing) entries(kind, file string, before, after any, value func(map[string]any) string, fields ...string) bool {
	a, readBefore := byName(before)
	b, readAfter := byName(after)
	if !readBefore || !readAfter {
		return false
	}
	named := false
	for _, name := range slices.Sorted(both(a, b)) {
		var values [2]any
		var others [2]map[string]any
		for i, entry := range []any{a[name], b[name]} {
			others[i] = map[string]any{"name": name}
			if e, is := entry.(map[string]any); is {
				values[i], others[i] = value(e), copied(e)
			}
			for _, field := range fields {
				delete(others[i], field)
			}
			others[i]["name"] = name
		}
		if !reflect.DeepEqual(others[0], others[1]) {
			return false
		}
		if values[0] != values[1] {
			named = true
			c.change(kind, file+" "+name, values[0], values[1])
		}
	}
	return named
}

// byName are the entries of a list by their names; false if some have none, or one that others have.
func byName(list any) (map[string]any, bool) {
	found := map[string]any{}
	all, is := list.([]any)
	for _, each := range all {
		e, is := each.(map[string]any)
		name := fmt.Sprint(e["name"])
		if _, twice := found[name]; !is || twice || e["name"] == nil {
			return nil, false
		}
		found[name] = e
	}
	return found, is || list == nil
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
		before, after := c.before[r], c.after[r]
		var gone []homed
		for _, was := range before {
			i := slices.IndexFunc(after, func(p homed) bool { return p.file == was.file })
			if i < 0 {
				gone = append(gone, was)
				continue
			}
			c.object(r, was.value, after[i].value)
			after = slices.Delete(slices.Clone(after), i, i+1)
		}
		if len(gone) == 1 && len(after) == 1 { // it has moved to another file
			c.object(r, gone[0].value, after[0].value)
			continue
		}
		for _, was := range gone {
			c.object(r, was.value, nil)
		}
		for _, is := range after {
			c.object(r, nil, is.value)
		}
	}
}

// object compares two states of one object; nil is none.
func (c *comparing) object(r resource, before, after any) {
	name := r.kind + "/" + r.name
	if runsPods(r.kind, before) || runsPods(r.kind, after) {
		c.found.Workloads++
	}
	switch {
	case before == nil:
		c.add(kindOf(r.kind, after), "added", name, "")
	case after == nil:
		c.add(kindOf(r.kind, before), "removed", name, "")
	case reflect.DeepEqual(before, after):
	case kindOf(r.kind, before) == ThingPodTemplate || kindOf(r.kind, after) == ThingPodTemplate:
		c.workload(r.kind, name, before, after)
	default:
		c.add(kindOf(r.kind, after), "changed", name, "")
	}
}

// kindOf is what kind of thing an object is as a whole.
func kindOf(kind string, object any) string {
	switch {
	case kind == "ConfigMap":
		return ThingConfigMap
	case strings.HasSuffix(kind, "Secret"): // also those that a controller makes one of
		return ThingSecret
	case runsPods(kind, object):
		return ThingPodTemplate
	default:
		return ThingOther
	}
}

// runsPods reports whether an object has pods: its kind does, also in a patch that leaves them out, or it describes some.
func runsPods(kind string, object any) bool {
	switch kind {
	case "Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "ReplicationController", "Job", "CronJob", "Pod", "Rollout":
		return object != nil
	case "ConfigMap":
		return false
	}
	return !strings.HasSuffix(kind, "Secret") && len(podParts(kind, object)) > 0
}

// podParts are the parts of an object's specification that describe its pods: all of it for what is a pod itself.
func podParts(kind string, object any) map[string]any {
	spec := member(object, "spec")
	if kind == "Pod" || spec["containers"] != nil {
		return map[string]any{"template": map[string]any{"spec": spec}}
	}
	found := map[string]any{}
	for _, name := range []string{"template", "jobTemplate", "workloadRef"} {
		if spec[name] != nil {
			found[name] = spec[name]
		}
	}
	return found
}

// template is the part of an object that describes pods; nil if it has none.
func template(kind string, object any) map[string]any {
	found := podParts(kind, object)
	if job := member(found, "jobTemplate"); job != nil {
		return member(member(job, "spec"), "template")
	}
	return member(found, "template")
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
func (c *comparing) workload(kind, name string, before, after any) {
	a, b := images(template(kind, before)), images(template(kind, after))
	for _, container := range slices.Sorted(both(a, b)) {
		if !reflect.DeepEqual(a[container], b[container]) {
			c.change(ThingImage, name, a[container], b[container])
		}
	}
	if !reflect.DeepEqual(without(kind, before), without(kind, after)) {
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

// containerLists are the lists of containers whose images are shown.
func containerLists() []string { return []string{"initContainers", "containers"} }

// images are those of the containers of a template, by name; of several with one name the later ones have a number.
func images(t map[string]any) map[string]any {
	found := map[string]any{}
	spec := member(t, "spec")
	for _, list := range containerLists() {
		for _, each := range listAt(spec, list) {
			container, is := each.(map[string]any)
			if !is {
				continue
			}
			name := fmt.Sprint(container["name"])
			for n, own := 2, name; ; n++ {
				if _, taken := found[name]; !taken {
					break
				}
				name = fmt.Sprintf("%s#%d", own, n)
			}
			found[name] = container["image"]
		}
	}
	return found
}

// without is what describes the pods of an object, without the images of containers.
func without(kind string, object any) map[string]any {
	found := copied(podParts(kind, object))
	t := template(kind, object)
	if t == nil {
		return found
	}
	t = copied(t)
	if spec := member(t, "spec"); spec != nil {
		spec = copied(spec)
		for _, list := range containerLists() {
			all := slices.Clone(listAt(spec, list))
			for i, each := range all {
				if container, is := each.(map[string]any); is {
					container = copied(container)
					delete(container, "image")
					all[i] = container
				}
			}
			if all != nil {
				spec[list] = all
			}
		}
		t["spec"] = spec
	}
	if job := member(found, "jobTemplate"); job != nil {
		job = copied(job)
		inner := copied(member(job, "spec"))
		inner["template"], job["spec"] = t, inner
		found["jobTemplate"] = job
	} else {
		found["template"] = t
	}
	return found
}

// rest is an object without what describes its pods and their number.
func rest(object any) map[string]any {
	m, _ := object.(map[string]any)
	m = copied(m)
	spec := copied(member(m, "spec"))
	for _, name := range []string{"replicas", "template", "jobTemplate", "workloadRef", "containers", "initContainers"} {
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
