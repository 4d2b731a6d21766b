package manifest

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
)

const (
	// mostObjects is how large a file may be whose objects are named, in bytes, before a change and after it, and mostTogether all of them.
	// A value takes up to a hundred times the memory of its text.
	mostObjects  = 128 << 10
	mostTogether = 1 << 20
)

// resource is what identifies an object in manifests.
type resource struct{ kind, namespace, name string }

// Resource is an object that a change is about.
type Resource struct {
	// Action is added, changed or removed.
	Action string
	resource
	// labels are those by which it is sorted.
	labels string
}

// String is the object as people read it, as in "changed Deployment shop/api".
func (r Resource) String() string {
	name := r.name
	if r.namespace != "" {
		name = r.namespace + "/" + name
	}
	return r.Action + " " + r.kind + " " + name
}

// sortingLabels are those by which objects that belong together are shown together, the first of them first.
func sortingLabels() []string {
	return []string{"app.kubernetes.io/part-of", "app.kubernetes.io/name", "app.kubernetes.io/component", "app"}
}

// seen is an object of a file: the digest of its value, and the labels by which it is sorted.
type seen struct {
	sum
	labels string
}

// sum is the digest of a value: those of equal ones are equal, whatever the order of their keys and their comments.
type sum [sha256.Size]byte

// nameForm is what kinds, namespaces and names consist of. What has another one is no object of a cluster, as in templates.
var nameForm = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9.:_-]{0,251}[A-Za-z0-9])?$`)

// errUnnamed is that of a file whose objects are not named although it may have some.
var errUnnamed = errors.New("it has anchors, aliases, or a key twice")

// Resources are the objects that differ between files before and after, by their labels, kind and name, and the number of files whose
// objects are not named: they are too large, or have aliases or a key twice. Contents are not shown. What cannot be read as a
// manifest has none: that of a chart's template is known only once it is rendered.
func Resources(ctx context.Context, files []Revision) (all []Resource, unnamed int, err error) {
	all, _, unnamed, err = resources(ctx, files)
	return all, unnamed, err
}

// resources is Resources, with the files that have each object, by their places.
func resources(ctx context.Context, files []Revision) (all []Resource, of map[resource][]int, unnamed int, err error) {
	of = map[resource][]int{}
	before, after := map[resource]seen{}, map[resource]seen{}
	total := 0
	for at, f := range files {
		size := len(f.Before) + len(f.After)
		if len(f.Before) > mostObjects || len(f.After) > mostObjects || total+size > mostTogether {
			unnamed++
			continue
		}
		total += size
		was, now := map[resource]seen{}, map[resource]seen{}
		err := errors.Join(objects(ctx, f.Before, was), objects(ctx, f.After, now))
		switch {
		case ctx.Err() != nil:
			return nil, nil, 0, fmt.Errorf("read manifests: %w", ctx.Err())
		case err != nil: // half of it would be shown as added, or removed
			unnamed++
		default:
			take(before, was)
			take(after, now)
			for r := range was {
				of[r] = append(of[r], at)
			}
			for r := range now {
				if _, both := was[r]; !both {
					of[r] = append(of[r], at)
				}
			}
		}
	}
	return differences(before, after), of, unnamed, nil
}

func take(all, more map[resource]seen) {
	for r, d := range more {
		all[r] = d
	}
}

func differences(before, after map[resource]seen) (all []Resource) {
	for r, old := range before {
		switch now, is := after[r]; {
		case !is:
			all = append(all, Resource{"removed", r, old.labels})
		case old.sum != now.sum:
			all = append(all, Resource{"changed", r, now.labels})
		}
	}
	for r, now := range after {
		if _, was := before[r]; !was {
			all = append(all, Resource{"added", r, now.labels})
		}
	}
	slices.SortFunc(all, func(a, b Resource) int { // by what they belong to, what they are, and then by what happens to them
		return cmp.Or(cmp.Compare(a.labels, b.labels), cmp.Compare(a.kind, b.kind), cmp.Compare(a.namespace, b.namespace),
			cmp.Compare(a.name, b.name),
			cmp.Compare(a.Action, b.Action))
	})
	return all
}

// labelsOf are the values of the labels by which an object is sorted; those without any come first.
func labelsOf(document *yaml.Node) string {
	var values []string
	for _, label := range sortingLabels() {
		if value := textAt(document.Content[0], "metadata", "labels", label); value != "" {
			values = append(values, value)
		}
	}
	return strings.Join(values, "\x00")
}

// objects adds those of a manifest; none if it is not one. One document at a time is decoded, and its values are not kept.
func objects(ctx context.Context, text string, all map[resource]seen) error {
	found := map[resource]seen{}
	decoder := yaml.NewDecoder(strings.NewReader(text))
	for ctx.Err() == nil {
		var d yaml.Node
		switch err := decoder.Decode(&d); {
		case errors.Is(err, io.EOF):
			take(all, found)
			return nil
		case err != nil:
			return nil //nolint:nilerr // what is no YAML has no objects
		}
		value, err := digestOf(&d)
		if err != nil {
			return err
		}
		if r, is := resourceOf(&d); is {
			found[r] = seen{value, labelsOf(&d)}
		}
	}
	return fmt.Errorf("read a manifest: %w", ctx.Err())
}

// resourceOf is the object that a document describes.
func resourceOf(document *yaml.Node) (resource, bool) {
	if len(document.Content) != 1 {
		return resource{}, false
	}
	root := document.Content[0]
	r := resource{kind: textAt(root, "kind"), namespace: textAt(root, "metadata", "namespace"), name: textAt(root, "metadata", "name")}
	return r, textAt(root, "apiVersion") != "" && nameForm.MatchString(r.kind) && nameForm.MatchString(r.name) &&
		(r.namespace == "" || nameForm.MatchString(r.namespace))
}

// textAt is the string at a path of keys; "" where there is none.
func textAt(n *yaml.Node, path ...string) string {
	for _, key := range path {
		n = valueOf(n, key)
	}
	if n == nil || n.Kind != yaml.ScalarNode || n.ShortTag() != "!!str" {
		return ""
	}
	return n.Value
}

func valueOf(n *yaml.Node, key string) *yaml.Node {
	if n == nil || n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if k := n.Content[i]; k.Kind == yaml.ScalarNode && k.Value == key {
			return n.Content[i+1]
		}
	}
	return nil
}

// digestOf is the digest of a node. Those that refer to others are refused: a few of them can stand for any amount of text.
func digestOf(n *yaml.Node) (sum, error) {
	if n.Anchor != "" || n.Kind == yaml.AliasNode {
		return sum{}, errUnnamed
	}
	parts := make([]sum, 0, len(n.Content))
	for _, c := range n.Content {
		d, err := digestOf(c)
		if err != nil {
			return sum{}, err
		}
		parts = append(parts, d)
	}
	if n.Kind == yaml.MappingNode {
		var err error
		if parts, err = inOrder(parts); err != nil {
			return sum{}, err
		}
	}
	h := sha256.New()
	_, _ = fmt.Fprintf(h, "%d %d %q %q", n.Kind, len(parts), n.ShortTag(), n.Value)
	for _, p := range parts {
		_, _ = h.Write(p[:])
	}
	return sum(h.Sum(nil)), nil
}

// inOrder are the digests of the keys and values of a mapping in an order that is always the same.
func inOrder(all []sum) ([]sum, error) {
	pairs := make([][2]sum, 0, len(all)/2)
	for i := 0; i+1 < len(all); i += 2 {
		pairs = append(pairs, [2]sum{all[i], all[i+1]})
	}
	slices.SortFunc(pairs, func(a, b [2]sum) int { return bytes.Compare(a[0][:], b[0][:]) })
	sorted := all[:0]
	for i, p := range pairs {
		if i > 0 && p[0] == pairs[i-1][0] {
			return nil, errUnnamed
		}
		sorted = append(sorted, p[0], p[1])
	}
	return sorted, nil
}
