package manifest

import (
	"reflect"
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
	if tg.request.Gates != nil && !hasSteps(tg.rollout, tg.request.Gates) {
		if err := t.setSteps(parsed, tg.rollout, tg.request.Gates); err != nil {
			return nil, err
		}
	}
	return t.apply(), nil
}

func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}

// hasSteps spares a strategy that means the same already, however it is written. To rewrite it would be a commit that
// changes nothing but somebody's layout.
func hasSteps(rollout doc, gates []int) bool {
	found, isList := rollout.at("spec", "strategy", "canary", "steps").([]any)
	return isList && reflect.DeepEqual(found, stepValues(gates))
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
	from, to, quote, ok := t.scalar(unwrap(pair.Value))
	if !ok {
		return unsafe(path, "is not a string on one line, expected one to replace")
	}
	if string(t.content[from:to]) == image.Reference {
		return nil
	}
	with := image.Reference
	// Without quotes it would be read as something else than a string.
	if quote == 0 && !plain(with) {
		with = `"` + with + `"`
	}
	t.edits = append(t.edits, edit{from, to, with})
	return nil
}

// setSteps replaces spec.strategy.canary.steps, or adds as much of that path as is missing. What else the strategy says
// (services, traffic routing, limits) is the user's.
func (t *text) setSteps(parsed *ast.File, rollout doc, gates []int) error {
	if rollout.at("spec", "strategy", "blueGreen") != nil {
		return unsafe("spec.strategy", "has blueGreen, expected canary")
	}
	pair := child(body(parsed, rollout), "spec")
	if pair == nil {
		return unsafe("spec", "is not written out where it stands")
	}
	keys := []string{"strategy", "canary", "steps"}
	for i, path := 0, "spec"; ; i++ {
		next := child(value(pair), keys[i])
		if next == nil {
			return t.addKeys(path, pair, keys[i:], gates)
		}
		pair, path = next, path+"."+keys[i]
		if i == len(keys)-1 {
			return t.replaceSteps(path, pair, gates)
		}
	}
}

// addKeys puts the keys, with the steps below the last, into the mapping that the pair has as its value.
func (t *text) addKeys(path string, pair *ast.MappingValueNode, keys []string, gates []int) error {
	switch m := value(pair).(type) {
	case *ast.MappingNode:
		if !m.IsFlowStyle {
			return t.addBlock(path, pair, m.Values, keys, gates)
		}
		at, ok := t.offset(m.Start.Position)
		if !ok || at >= len(t.content) || t.content[at] != '{' {
			return unsafe(path, "cannot be located")
		}
		with := strings.TrimSuffix(strings.TrimPrefix(flowValue(keys, gates), "{"), "}")
		if len(m.Values) > 0 {
			with += ", "
		}
		t.edits = append(t.edits, edit{at + 1, at + 1, with})
		return nil
	case *ast.MappingValueNode:
		return t.addBlock(path, pair, []*ast.MappingValueNode{m}, keys, gates)
	case *ast.NullNode:
		if from, to, _, ok := t.scalar(m); ok {
			t.edits = append(t.edits, edit{from, to, flowValue(keys, gates)})
			return nil
		}
		line, indent := pair.Key.GetToken().Position.Line, pair.Key.GetToken().Position.Column+1
		t.insertAfter(line, blockLines(keys, gates, indent, t.eol(line)))
		return nil
	default:
		return unsafe(path, "is not a mapping written out where it stands, expected one to put %s into", keys[0])
	}
}

// addBlock adds the keys right below the line of the pair's key, above comments that belong to what follows.
func (t *text) addBlock(path string, pair *ast.MappingValueNode, values []*ast.MappingValueNode, keys []string, gates []int) error {
	line := pair.Key.GetToken().Position.Line
	if len(values) == 0 || values[0].Key.GetToken().Position.Line <= line {
		return unsafe(path, "does not begin on a line of its own")
	}
	indent := values[0].Key.GetToken().Position.Column - 1
	t.insertAfter(line, blockLines(keys, gates, indent, t.eol(line)))
	return nil
}

// replaceSteps replaces the value of the key steps, in the style it is written in.
func (t *text) replaceSteps(path string, pair *ast.MappingValueNode, gates []int) error {
	key := pair.Key.GetToken().Position
	switch v := value(pair).(type) {
	case *ast.SequenceNode:
		if v.IsFlowStyle {
			from, ok1 := t.offset(v.Start.Position)
			to, ok2 := t.offset(v.End.Position)
			if !ok1 || !ok2 || to >= len(t.content) || t.content[from] != '[' || t.content[to] != ']' {
				return unsafe(path, "cannot be located")
			}
			t.edits = append(t.edits, edit{from, to + 1, flowSteps(gates)})
			return nil
		}
		return t.replaceBlock(path, key.Line, key.Column-1, v, gates)
	case *ast.NullNode:
		if from, to, _, ok := t.scalar(v); ok {
			t.edits = append(t.edits, edit{from, to, flowSteps(gates)})
			return nil
		}
		if len(gates) == 0 {
			return unsafe(path, "is empty, expected a list")
		}
		t.insertAfter(key.Line, blockItems(gates, key.Column+1, t.eol(key.Line)))
		return nil
	default:
		return unsafe(path, "is not a list written out where it stands, expected one to replace")
	}
}

// replaceBlock replaces the lines of a block sequence, from the one after its key to the last that belongs to it.
// Comments and empty lines after that stay.
func (t *text) replaceBlock(path string, keyLine, keyIndent int, v *ast.SequenceNode, gates []int) error {
	dash := v.Start.Position
	if dash.Line <= keyLine {
		return unsafe(path, "does not begin on a line of its own")
	}
	last := keyLine
	for line := keyLine + 1; line <= len(t.starts); line++ {
		s := t.line(line)
		trimmed := strings.TrimLeft(s, " ")
		if strings.TrimSpace(trimmed) == "" || trimmed[0] == '#' {
			continue
		}
		indent := len(s) - len(trimmed)
		isItem := trimmed == "-" || strings.HasPrefix(trimmed, "- ")
		if indent < keyIndent || (indent == keyIndent && !isItem) {
			break
		}
		last = line
	}
	if last == keyLine {
		return unsafe(path, "cannot be located")
	}
	if len(gates) == 0 {
		// An empty block sequence cannot be written: the list moves up behind its key.
		end := t.keyEnd(keyLine, keyIndent)
		t.edits = append(t.edits, edit{end, end, " []"}, edit{t.starts[keyLine], t.nextLine(last), ""})
		return nil
	}
	with := blockItems(gates, dash.Column-1, t.eol(keyLine))
	to := t.nextLine(last)
	if to == t.lineEnd(last) {
		with = strings.TrimSuffix(with, t.eol(keyLine))
	}
	t.edits = append(t.edits, edit{t.starts[keyLine], to, with})
	return nil
}

// keyEnd is where "steps:" ends on its line.
func (t *text) keyEnd(line, indent int) int {
	from := t.starts[line-1] + indent
	if i := strings.IndexByte(string(t.content[from:t.lineEnd(line)]), ':'); i >= 0 {
		return from + i + 1
	}
	return t.lineEnd(line)
}
