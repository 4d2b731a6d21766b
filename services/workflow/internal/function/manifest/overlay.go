package manifest

import (
	"crypto/sha256"
	"encoding/hex"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// KustomizeImages sets images of a kustomization (images[].newName, newTag, digest) by the name that the manifests have:
// Container is that name. The entry has to exist already: the user decides where Kustomize takes an image from.
func KustomizeImages(content []byte, images []Image) (Result, error) {
	if err := (Request{Images: images}).check(); err != nil {
		return Result{}, err
	}
	return overlay(content, func(t *text, root ast.Node, before map[string]any) error {
		if kind := (doc{value: before}).text("kind"); kind != "" && kind != "Kustomization" {
			return problem("content", "found %s, expected a Kustomization", kind)
		}
		list, _ := before["images"].([]any)
		sequence, _ := value(child(root, "images")).(*ast.SequenceNode)
		for i, image := range images {
			at, names := entry(list, image.Container)
			if at < 0 || sequence == nil || at >= len(sequence.Values) {
				return problem("images["+strconv.Itoa(i)+"].name", "the kustomization has the images %s, expected one %q",
					quoted(names), image.Container)
			}
			item, _ := list[at].(map[string]any)
			want := kustomized(image, item)
			path := "images[" + strconv.Itoa(at) + "]"
			if err := t.mergeItem(path, sequence.Values[at], item, want); err != nil {
				return err
			}
			mergeInto(item, want)
		}
		return nil
	})
}

// entry is the place of the one entry of that name; -1 where there is none or more than one. names are all.
func entry(list []any, name string) (at int, names []string) {
	at = -1
	for i, each := range list {
		m, _ := each.(map[string]any)
		found, _ := m["name"].(string)
		names = append(names, found)
		if found == name {
			at = i
		}
	}
	if slices.Index(names, name) != at {
		return -1, names
	}
	return at, names
}

// kustomized is what an entry has to say for Kustomize to render the reference. An existing tag may stay
// next to a digest: the digest decides. So an existing digest may not stay next to a tag; an empty one counts as none.
func kustomized(image Image, item map[string]any) []pair {
	repository, tag, digest := parts(image.Reference)
	var want []pair
	if found, _ := item["newName"].(string); found != "" || repository != image.Container {
		want = append(want, pair{"newName", node{scalar: repository}})
	}
	if digest != "" {
		return append(want, pair{"digest", node{scalar: digest}})
	}
	if tag == "" {
		tag = "latest" // with an empty one, that of the manifest would stay
	}
	if found, _ := item["digest"].(string); found != "" {
		want = append(want, pair{"digest", node{scalar: ""}})
	}
	return append(want, pair{"newTag", node{scalar: tag}})
}

// parts are the repository, the tag and the digest of a reference. A colon before the last slash is that of a port.
func parts(reference string) (repository, tag, digest string) {
	repository, digest, _ = strings.Cut(reference, "@")
	if colon := strings.LastIndexByte(repository, ':'); colon > strings.LastIndexByte(repository, '/') {
		repository, tag = repository[:colon], repository[colon+1:]
	}
	return repository, tag, digest
}

// mergeItem is merge for an item of a list, which has no key: what is missing goes below the line of its name.
func (t *text) mergeItem(path string, item ast.Node, found map[string]any, want []pair) error {
	name := child(item, "name")
	if name == nil {
		return unsafe(path, "is not written out where it stands")
	}
	var missing []pair
	for _, w := range want {
		existing := child(item, w.key)
		if existing == nil {
			missing = append(missing, w)
			continue
		}
		if found[w.key] == w.value.scalar {
			continue
		}
		if err := t.replace(path+"."+w.key, existing, w.value); err != nil {
			return err
		}
	}
	if len(missing) == 0 {
		return nil
	}
	if m, ok := unwrap(item).(*ast.MappingNode); ok && m.IsFlowStyle {
		at, ok := t.offset(m.Start.Position)
		if !ok || at >= len(t.content) || t.content[at] != '{' {
			return unsafe(path, "cannot be located")
		}
		t.edits = append(t.edits, edit{at + 1, at + 1, flowPairs(missing) + ", "})
		return nil
	}
	at := name.Key.GetToken().Position
	t.insertAfter(at.Line, block(missing, at.Column-1, t.eol(at.Line)))
	return nil
}

// Value is one place in a file of Helm values.
type Value struct {
	// Path is dotted, such as api.image.
	Path string
	// Reference, where given, is the image that the place is to say: as text, or as repository and digest, or repository and
	// tag, whichever the place has. Tag goes in front of a digest that has to stand in a field for tags.
	Reference, Tag string
	// Gates, where not nil, are the canary steps that the place is to hold as a list.
	Gates []int
}

var (
	valuePath = regexp.MustCompile(`^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$`)
	imageTag  = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$`)
)

// HelmValues sets values of a chart. Every place has to be there already.
func HelmValues(content []byte, values []Value) (Result, error) {
	return overlay(content, func(t *text, root ast.Node, before map[string]any) error {
		for i, v := range values {
			at := "values[" + strconv.Itoa(i) + "]"
			if !valuePath.MatchString(v.Path) {
				return problem(at+".path", "found %q, expected a dotted path such as api.image", v.Path)
			}
			if err := checkGates(v.Gates); err != nil {
				return err
			}
			if v.Gates == nil && !reference.MatchString(v.Reference) {
				return problem(at+".reference", "found %q, expected an image reference such as registry.example.com/shop/api@sha256:…", v.Reference)
			}
			path := strings.Split(v.Path, ".")
			found := doc{value: before}.at(path...)
			pair := child(root, path[0])
			for _, key := range path[1:] {
				pair = child(value(pair), key)
			}
			if pair == nil {
				return problem(at+".path", "the values have no %s, expected the place of an image or of canary steps", v.Path)
			}
			want, err := v.want(at, found)
			if err != nil {
				return err
			}
			if err := t.setAt(v.Path, pair, found, want); err != nil {
				return err
			}
			under := before
			for _, key := range path[:len(path)-1] {
				under = mapping(under, key)
			}
			mergeInto(under, wrap(path[len(path)-1], want))
		}
		return nil
	})
}

// want is what the place is to hold.
func (v Value) want(at string, found any) (node, error) {
	if v.Gates != nil {
		return steps(found, v.Gates), nil
	}
	m, isMapping := found.(map[string]any)
	if !isMapping {
		return node{scalar: v.Reference}, nil
	}
	repository, tag, digest := parts(v.Reference)
	_, hasDigest := m["digest"]
	_, hasTag := m["tag"]
	var want []pair
	if _, has := m["repository"]; has {
		want = append(want, pair{"repository", node{scalar: repository}})
	}
	switch {
	case hasDigest && digest != "":
		return node{pairs: append(want, pair{"digest", node{scalar: digest}})}, nil
	case !hasTag:
		return node{}, problem(at+".path", "%s has neither tag nor digest, expected one to set", v.Path)
	case digest == "":
		if m["digest"] != nil && m["digest"] != "" { // it would decide
			want = append(want, pair{"digest", node{scalar: ""}})
		}
		return node{pairs: append(want, pair{"tag", node{scalar: tag}})}, nil
	}
	if tag == "" {
		tag = "pinned"
	}
	if imageTag.MatchString(v.Tag) {
		tag = v.Tag
	}
	return node{pairs: append(want, pair{"tag", node{scalar: tag + "@" + digest}})}, nil
}

// wrap is a mapping of one key.
func wrap(key string, n node) []pair { return []pair{{key, n}} }

// setAt sets the value of a pair, which merge would do from the mapping around it.
func (t *text) setAt(path string, owner *ast.MappingValueNode, found any, want node) error {
	switch {
	case len(want.pairs) > 0:
		return t.merge(path, owner, found, want.pairs)
	case reflect.DeepEqual(want.plain(), found):
		return nil
	default:
		return t.replace(path, owner, want)
	}
}

// overlay changes a file of one document, and wants what change has made of the values read before it to be what the file
// says then.
func overlay(content []byte, change func(t *text, root ast.Node, before map[string]any) error) (Result, error) {
	if len(content) > maxSize {
		return Result{}, problem("content", "found %d bytes, expected at most %d", len(content), maxSize)
	}
	want, err := read(content)
	if err != nil {
		return Result{}, err
	}
	if len(want) != 1 || want[0].value == nil {
		return Result{}, problem("content", "found %d documents, expected one with keys and values", len(want))
	}
	t := newText(content)
	parsed, err := parser.ParseBytes(t.masked(), 0)
	if err != nil || len(parsed.Docs) == 0 {
		return Result{}, problem("content", "cannot be located in")
	}
	if err := change(t, unwrap(parsed.Docs[0].Body), want[0].value); err != nil {
		return Result{}, err
	}
	pinned := t.apply()
	got, err := read(pinned)
	if err != nil {
		return Result{}, unsafe("the file", "is written in a way that cannot be changed: %v", err)
	}
	if err := same(want, got); err != nil {
		return Result{}, err
	}
	sum := sha256.Sum256(pinned)
	return Result{Content: pinned, Digest: "sha256:" + hex.EncodeToString(sum[:]), Changed: string(pinned) != string(content)}, nil
}
