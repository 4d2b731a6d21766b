package manifest

import (
	"reflect"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

// setStrategy brings spec.strategy to what is wanted. What else it says (limits, analyses, anti-affinity) is the user's.
func (t *text) setStrategy(parsed *ast.File, rollout doc, strategy []pair) error {
	spec := child(body(parsed, rollout), "spec")
	if spec == nil {
		return unsafe("spec", "is not written out where it stands")
	}
	return t.merge("spec", spec, rollout.at("spec"), []pair{{"strategy", node{pairs: strategy}}})
}

// merge brings the mapping that a pair has as its value to what is wanted, key by key. found is the same mapping as it was
// read: what it says already is left as it is written, because to rewrite it would change nothing but the user's layout.
func (t *text) merge(path string, owner *ast.MappingValueNode, found any, want []pair) error {
	values, _ := found.(map[string]any)
	var missing []pair
	for _, w := range want {
		existing, under := child(value(owner), w.key), path+"."+w.key
		var err error
		switch {
		case existing == nil:
			missing = append(missing, w)
		case len(w.value.pairs) > 0:
			err = t.merge(under, existing, values[w.key], w.value.pairs)
		case reflect.DeepEqual(values[w.key], w.value.plain()):
		default:
			err = t.replace(under, existing, w.value)
		}
		if err != nil {
			return err
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return t.addKeys(path, owner, missing)
}

// replace replaces what a key has as its value.
func (t *text) replace(path string, pair *ast.MappingValueNode, with node) error {
	if with.list != nil {
		return t.replaceList(path, pair, with)
	}
	if s, isText := with.scalar.(string); isText {
		return t.setText(path, pair, s)
	}
	from, to, quote, ok := t.scalar(unwrap(pair.Value))
	if !ok {
		return unsafe(path, "is not written on one line, expected a value to replace")
	}
	if quote != 0 { // in quotes it would be a string
		from, to = from-1, to+1
	}
	t.edits = append(t.edits, edit{from, to, with.flow()})
	return nil
}

// addKeys puts keys into the mapping that the pair has as its value.
func (t *text) addKeys(path string, pair *ast.MappingValueNode, keys []pair) error {
	switch m := value(pair).(type) {
	case *ast.MappingNode:
		if !m.IsFlowStyle {
			return t.addBlock(path, pair, m.Values, keys)
		}
		at, ok := t.offset(m.Start.Position)
		if !ok || at >= len(t.content) || t.content[at] != '{' {
			return unsafe(path, "cannot be located")
		}
		with := flowPairs(keys)
		if len(m.Values) > 0 {
			with += ", "
		}
		t.edits = append(t.edits, edit{at + 1, at + 1, with})
		return nil
	case *ast.MappingValueNode:
		return t.addBlock(path, pair, []*ast.MappingValueNode{m}, keys)
	case *ast.NullNode:
		if from, to, _, ok := t.scalar(m); ok {
			t.edits = append(t.edits, edit{from, to, node{pairs: keys}.flow()})
			return nil
		}
		line, indent := pair.Key.GetToken().Position.Line, pair.Key.GetToken().Position.Column+1
		t.insertAfter(line, block(keys, indent, t.eol(line)))
		return nil
	default:
		return unsafe(path, "is not a mapping written out where it stands, expected one to put %s into", keys[0].key)
	}
}

// addBlock adds the keys right below the line of the pair's key, above comments that belong to what follows.
func (t *text) addBlock(path string, owner *ast.MappingValueNode, values []*ast.MappingValueNode, keys []pair) error {
	line := owner.Key.GetToken().Position.Line
	if len(values) == 0 || values[0].Key.GetToken().Position.Line <= line {
		return unsafe(path, "does not begin on a line of its own")
	}
	indent := values[0].Key.GetToken().Position.Column - 1
	t.insertAfter(line, block(keys, indent, t.eol(line)))
	return nil
}

// replaceList replaces a list that is the value of a key, in the style it is written in.
func (t *text) replaceList(path string, pair *ast.MappingValueNode, with node) error {
	key := pair.Key.GetToken().Position
	switch v := value(pair).(type) {
	case *ast.SequenceNode:
		if v.IsFlowStyle {
			from, ok1 := t.offset(v.Start.Position)
			to, ok2 := t.offset(v.End.Position)
			if !ok1 || !ok2 || to >= len(t.content) || t.content[from] != '[' || t.content[to] != ']' {
				return unsafe(path, "cannot be located")
			}
			t.edits = append(t.edits, edit{from, to + 1, with.flow()})
			return nil
		}
		return t.replaceBlock(path, key.Line, key.Column-1, v, with)
	case *ast.NullNode:
		if from, to, _, ok := t.scalar(v); ok {
			t.edits = append(t.edits, edit{from, to, with.flow()})
			return nil
		}
		if len(with.list) == 0 {
			return unsafe(path, "is empty, expected a list")
		}
		t.insertAfter(key.Line, blockItems(with.list, key.Column+1, t.eol(key.Line)))
		return nil
	default:
		return unsafe(path, "is not a list written out where it stands, expected one to replace")
	}
}

// replaceBlock replaces the lines of a block sequence, from the one after its key to the last that belongs to it.
// Comments and empty lines after that stay.
func (t *text) replaceBlock(path string, keyLine, keyIndent int, v *ast.SequenceNode, with node) error {
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
	if len(with.list) == 0 {
		// An empty block sequence cannot be written: the list moves up behind its key.
		end := t.keyEnd(keyLine, keyIndent)
		t.edits = append(t.edits, edit{end, end, " []"}, edit{t.starts[keyLine], t.nextLine(last), ""})
		return nil
	}
	lines := t.itemLines(with.list, dash.Column-1, keyLine, last)
	to := t.nextLine(last)
	if to == t.lineEnd(last) {
		lines = strings.TrimSuffix(lines, t.eol(keyLine))
	}
	t.edits = append(t.edits, edit{t.starts[keyLine], to, lines})
	return nil
}

// itemLines are the items of a block sequence, each at the indentation: those that the manifest has already as they are written there,
// between the line of its key and the last one, with the comments above them.
func (t *text) itemLines(items []node, indent, keyLine, last int) string {
	var written []string
	eol := t.eol(keyLine)
	pending := ""
	for line := keyLine + 1; line <= last; line++ {
		s := t.line(line)
		trimmed := strings.TrimLeft(s, " ")
		depth := len(s) - len(trimmed)
		isComment := strings.TrimSpace(trimmed) == "" || (trimmed[0] == '#' && depth <= indent)
		switch {
		case depth == indent && (trimmed == "-" || strings.HasPrefix(trimmed, "- ")):
			written, pending = append(written, pending+s+eol), ""
		case isComment || len(written) == 0:
			pending += s + eol
		default:
			written[len(written)-1] += pending + s + eol
			pending = ""
		}
	}
	var b strings.Builder
	for _, item := range items {
		if item.own != nil && item.own.at < len(written) {
			b.WriteString(written[item.own.at])
			continue
		}
		b.WriteString(blockItems([]node{item}, indent, eol))
	}
	return b.String()
}

// keyEnd is where "steps:" ends on its line.
func (t *text) keyEnd(line, indent int) int {
	from := t.starts[line-1] + indent
	if i := strings.IndexByte(string(t.content[from:t.lineEnd(line)]), ':'); i >= 0 {
		return from + i + 1
	}
	return t.lineEnd(line)
}
