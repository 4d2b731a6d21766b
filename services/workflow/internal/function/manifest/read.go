package manifest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
)

// file is all documents of a manifest, as values.
type file []doc

// doc is one document, and where it stands in the file.
type doc struct {
	index int
	value map[string]any
}

// read decodes every document; those that are not mappings have no value.
func read(content []byte) (file, error) {
	decoder := yaml.NewDecoder(bytes.NewReader(content))
	var f file
	for i := 0; ; i++ {
		var value any
		err := decoder.Decode(&value)
		if errors.Is(err, io.EOF) {
			return f, nil
		}
		if err != nil {
			return nil, problem("content", "not YAML: %s", strings.Join(strings.Fields(err.Error()), " "))
		}
		mapping, _ := value.(map[string]any)
		f = append(f, doc{index: i, value: mapping})
	}
}

// at walks down the path; nil where something on it is absent.
func (d doc) at(path ...string) any {
	var v any = d.value
	for _, key := range path {
		m, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = m[key]
	}
	return v
}

// text is the string at the path, "" where there is none.
func (d doc) text(path ...string) string {
	s, _ := d.at(path...).(string)
	return s
}

// steps are the canary steps of a Rollout; nil where it has none.
func (d doc) steps() any { return d.at("spec", "strategy", "canary", "steps") }

func (d doc) name() string { return d.text("metadata", "name") }

func (d doc) isRollout() bool {
	return d.text("kind") == "Rollout" && strings.HasPrefix(d.text("apiVersion"), "argoproj.io/")
}

// rollout finds the one Rollout of the name, or the only one.
func (f file) rollout(name string) (doc, error) {
	var found []doc
	var names, kinds []string
	for _, d := range f {
		if d.value == nil {
			continue
		}
		kinds = append(kinds, d.text("kind"))
		if d.isRollout() {
			names = append(names, d.name())
			if name == "" || d.name() == name {
				found = append(found, d)
			}
		}
	}
	switch {
	case len(found) == 1 && found[0].name() == "":
		return doc{}, problem("content", "the Rollout has no metadata.name")
	case len(found) == 1:
		return found[0], nil
	case len(names) == 0:
		return doc{}, problem("content", "found %s, expected a Rollout (argoproj.io)", quoted(kinds))
	case name == "":
		return doc{}, problem("content", "found %d Rollouts (%s), expected one, or its rollout_name", len(names), quoted(names))
	default:
		return doc{}, problem("content", "found the Rollouts %s, expected one %q", quoted(names), name)
	}
}

// pods is where the containers of a Rollout are declared: in itself, or in the Deployment that it refers to (D23).
type pods struct {
	doc

	// elsewhere, as kind/name, is an object that is not in the file.
	elsewhere string
}

//nolint:gochecknoglobals // a constant
var podPath = []string{"spec", "template", "spec"}

// subject is what a request is about: a Rollout with its pods, or the workload that a Rollout in another file refers to.
func (f file) subject(r Request) (doc, pods, error) {
	if r.Workload != "" {
		return f.workload(r)
	}
	rollout, err := f.rollout(r.RolloutName)
	if err != nil {
		return doc{}, pods{}, err
	}
	p, err := f.pods(rollout)
	if err == nil && p.elsewhere != "" && len(r.Images) > 0 {
		kind, name, _ := strings.Cut(p.elsewhere, "/")
		err = problem("content", "Rollout %s takes its pods from %s %s (spec.workloadRef), which is not in this file", rollout.name(), kind, name)
	}
	return rollout, p, err
}

// workload finds the object that a Rollout elsewhere refers to.
func (f file) workload(r Request) (doc, pods, error) {
	if r.Gates != nil || r.Strategy != "" {
		return doc{}, pods{}, problem("workload", "found a strategy as well, which is its Rollout's; expected images alone")
	}
	for _, d := range f {
		p := pods{doc: d}
		if d.value != nil && d.text("kind")+"/"+d.name() == r.Workload && len(p.list("containers")) > 0 {
			return d, p, nil
		}
	}
	return doc{}, pods{}, problem("content", "found no %s with containers, expected the one that the Rollout takes its pods from (spec.workloadRef)", r.Workload)
}

// pods finds them. A reference that leads out of the file cannot be followed: who owns that file is not known here.
func (f file) pods(rollout doc) (pods, error) {
	ref, isRef := rollout.at("spec", "workloadRef").(map[string]any)
	if !isRef {
		p := pods{doc: rollout}
		if len(p.list("containers")) == 0 {
			return p, problem("content", "Rollout %s: spec.template.spec.containers: missing, expected at least one container", rollout.name())
		}
		return p, nil
	}
	for _, d := range f {
		p := pods{doc: d}
		if d.value != nil && d.text("kind") == ref["kind"] && d.name() == ref["name"] && len(p.list("containers")) > 0 {
			return p, nil
		}
	}
	kind, _ := ref["kind"].(string)
	name, _ := ref["name"].(string)
	return pods{elsewhere: kind + "/" + name}, nil
}

// list is the containers or initContainers.
func (p pods) list(field string) []any {
	l, _ := p.at(append(slices.Clone(podPath), field)...).([]any)
	return l
}

// names are the names in a list of containers, in order.
func (p pods) names(field string) []string {
	names := []string{}
	for _, c := range p.list(field) {
		m, _ := c.(map[string]any)
		if name, ok := m["name"].(string); ok {
			names = append(names, name)
		}
	}
	return names
}

// require checks that every image has exactly one container.
func (p pods) require(images []Image) error {
	found := append(p.names("containers"), p.names("initContainers")...)
	for i, image := range images {
		n := 0
		for _, name := range found {
			if name == image.Container {
				n++
			}
		}
		if n != 1 {
			return problem(fmt.Sprintf("images[%d].container", i), "%s %s has the containers %s, expected one %q",
				p.text("kind"), p.name(), quoted(found), image.Container)
		}
	}
	return nil
}

// find is where a container stands: its list, and its place in it.
func (p pods) find(container string) (field string, index int) {
	for _, field := range []string{"containers", "initContainers"} {
		for i, c := range p.list(field) {
			if m, _ := c.(map[string]any); m["name"] == container {
				return field, i
			}
		}
	}
	return "", -1
}
