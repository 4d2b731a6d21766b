package manifest

import (
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// target is what is to be changed: documents found by reading, which are looked up again by their place in the file.
type target struct {
	rollout doc
	pods    pods
	request Request
}

// splice changes the text. What it returns is not to be trusted before it is verified.
func splice(content []byte, tg target) ([]byte, error) {
	t := newText(content)
	parsed, err := parser.ParseBytes(t.masked(), 0)
	if err != nil {
		return nil, problem("content", "cannot be located in: %s", firstLine(err))
	}
	for _, image := range tg.request.Images {
		if err := t.pinImage(parsed, tg.pods, image); err != nil {
			return nil, err
		}
	}
	if strategy := tg.request.strategy(tg.rollout.steps()); strategy != nil {
		if err := t.setStrategy(parsed, tg.rollout, strategy); err != nil {
			return nil, err
		}
	}
	return t.apply(), nil
}

func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}

// body is the document's root mapping, as the locating parser sees it.
func body(parsed *ast.File, d doc) ast.Node {
	// The parsers may count documents without content differently, so the name decides.
	for _, candidate := range parsed.Docs {
		root := unwrap(candidate.Body)
		if textOf(child(root, "kind")) == d.text("kind") && textOf(child(root, "apiVersion")) == d.text("apiVersion") &&
			textOf(child(value(child(root, "metadata")), "name")) == d.name() {
			return root
		}
	}
	return nil
}

// unwrap looks through anchors and tags. An alias stays: what it stands for is somewhere else.
func unwrap(n ast.Node) ast.Node {
	for {
		switch w := n.(type) {
		case *ast.AnchorNode:
			n = w.Value
		case *ast.TagNode:
			n = w.Value
		default:
			return n
		}
	}
}

// child is the pair of the key in a mapping, nil where there is none.
func child(n ast.Node, key string) *ast.MappingValueNode {
	m, ok := unwrap(n).(ast.MapNode)
	if !ok {
		return nil
	}
	for it := m.MapRange(); it.Next(); {
		if k, isText := it.Key().(*ast.StringNode); isText && k.Value == key {
			return it.KeyValue()
		}
	}
	return nil
}

// value is what a pair holds, behind anchors and tags.
func value(pair *ast.MappingValueNode) ast.Node {
	if pair == nil {
		return nil
	}
	return unwrap(pair.Value)
}

// textOf is the string that a pair holds.
func textOf(pair *ast.MappingValueNode) string {
	s, _ := value(pair).(*ast.StringNode)
	if s == nil {
		return ""
	}
	return s.Value
}

// pinImage replaces the image of one container, and keeps its quotes.
func (t *text) pinImage(parsed *ast.File, p pods, image Image) error {
	field, index := p.find(image.Container)
	path := strings.Join(podPath, ".") + "." + field
	n := body(parsed, p.doc)
	for _, key := range append(podPath[:len(podPath):len(podPath)], field) {
		n = value(child(n, key))
	}
	list, ok := n.(*ast.SequenceNode)
	if !ok || index >= len(list.Values) {
		return unsafe(path, "is not written out where it stands, expected a list of containers there")
	}
	path += "[" + strconv.Itoa(index) + "].image"
	pair := child(list.Values[index], "image")
	if pair == nil {
		return unsafe(path, "is missing, expected an image to replace")
	}
	return t.setText(path, pair, image.Reference)
}

// setText replaces a string that stands on one line, and keeps its quotes.
func (t *text) setText(path string, pair *ast.MappingValueNode, with string) error {
	from, to, quote, ok := t.scalar(unwrap(pair.Value))
	if !ok {
		return unsafe(path, "is not a string on one line, expected one to replace")
	}
	if string(t.content[from:to]) == with {
		return nil
	}
	// Without quotes it would be read as something else than a string.
	if quote == 0 && !plain(with) {
		with = `"` + with + `"`
	}
	t.edits = append(t.edits, edit{from, to, with})
	return nil
}
