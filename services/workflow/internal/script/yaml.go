package script

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"math/big"
	"strconv"
	"strings"

	"go.starlark.net/starlark"
	"go.starlark.net/starlarkstruct"
	"go.yaml.in/yaml/v4"

	"github.com/lockstep-cd/lockstep/pkg/yamltext"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
)

// maxNodes bounds what one YAML text may expand to, aliases included. A few lines of nested aliases can otherwise
// grow without bound, and D45 bounds no memory.
const maxNodes = 200_000

// parseYAML(text, all=False, on_error="fail") reads one YAML document, or a list of all of them. It takes the result of
// git.read_file as well, whose member content it then reads (D35). It is not recorded but computed at each replay, as
// is to_yaml: a change of what they answer is a change of running programs.
func parseYAML(_ *starlark.Thread, fn *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	var given starlark.Value
	all, onError := false, onErrorFail
	if err := starlark.UnpackArgs(fn.Name(), args, kwargs, "text", &given, "all?", &all, "on_error?", &onError); err != nil {
		return nil, err
	}
	if err := checkOnError(onError); err != nil {
		return nil, fmt.Errorf("parse_yaml: %w", err)
	}
	if file, ok := given.(*Object); ok {
		if content, found := file.get("content"); found {
			given = content
		}
	}
	text, ok := starlark.AsString(given)
	if !ok {
		return nil, fmt.Errorf("parse_yaml: found a %s, expected a string or what git.read_file answered", given.Type())
	}
	value, err := readYAML(text, all)
	switch {
	case err == nil && onError == onErrorReturn:
		return envelope(value, nil), nil
	case err == nil:
		return value, nil
	case onError == onErrorReturn:
		return envelope(starlark.None, &history.FunctionError{Code: history.CodeInvalidYAML, Message: err.Error()}), nil
	default:
		return nil, fmt.Errorf("parse_yaml: %w", err)
	}
}

// readYAML reads all documents. Their nodes count together.
func readYAML(text string, all bool) (starlark.Value, error) {
	decoder := yaml.NewDecoder(strings.NewReader(text))
	reader := yamlReader{}
	var documents []starlark.Value
	for {
		var node yaml.Node
		err := decoder.Decode(&node)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, errors.New(strings.Join(strings.Fields(err.Error()), " "))
		}
		v, err := reader.value(&node, 0)
		if err != nil {
			return nil, err
		}
		documents = append(documents, v)
	}
	switch {
	case all:
		return starlark.NewList(documents), nil
	case len(documents) == 0:
		return starlark.None, nil
	case len(documents) > 1:
		return nil, fmt.Errorf("found %d documents, expected one; all=True reads them as a list", len(documents))
	default:
		return documents[0], nil
	}
}

// yamlReader makes values of nodes, and counts them.
type yamlReader struct {
	nodes int
}

func (r *yamlReader) value(n *yaml.Node, depth int) (starlark.Value, error) {
	if r.nodes++; r.nodes > maxNodes || depth > maxDepth {
		return nil, fmt.Errorf("line %d: more than %d values or deeper than %d", n.Line, maxNodes, maxDepth)
	}
	switch n.Kind {
	case yaml.DocumentNode:
		if len(n.Content) == 0 {
			return starlark.None, nil
		}
		return r.value(n.Content[0], depth)
	case yaml.AliasNode:
		return r.value(n.Alias, depth+1)
	case yaml.SequenceNode:
		items := make([]starlark.Value, len(n.Content))
		for i, child := range n.Content {
			v, err := r.value(child, depth+1)
			if err != nil {
				return nil, err
			}
			items[i] = v
		}
		return starlark.NewList(items), nil
	case yaml.MappingNode:
		o := newObject(len(n.Content) / 2)
		return o, r.mapping(o, n, depth)
	default:
		return yamlScalar(n)
	}
}

// mapping fills o. Members of the mapping itself win over merged ones, wherever the merge stands.
func (r *yamlReader) mapping(o *Object, n *yaml.Node, depth int) error {
	own := map[string]bool{}
	var merges []*yaml.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if key.ShortTag() == "!!merge" {
			merges = append(merges, value)
			continue
		}
		if key.Kind != yaml.ScalarNode {
			return fmt.Errorf("line %d: a key that is not a scalar", key.Line)
		}
		if own[key.Value] {
			return fmt.Errorf("line %d: the key %q stands here twice", key.Line, key.Value)
		}
		own[key.Value] = true
		v, err := r.value(value, depth+1)
		if err != nil {
			return err
		}
		o.set(key.Value, v)
	}
	for _, merge := range merges {
		v, err := r.value(merge, depth+1)
		if err != nil {
			return err
		}
		sources := []starlark.Value{v}
		if list, ok := v.(*starlark.List); ok {
			sources = nil
			for item := range starlark.Elements(list) {
				sources = append(sources, item)
			}
		}
		for _, source := range sources {
			merged, ok := source.(*Object)
			if !ok {
				return fmt.Errorf("line %d: merge of a %s, expected a mapping", merge.Line, source.Type())
			}
			for _, item := range merged.Items() {
				if name, _ := starlark.AsString(item[0]); !own[name] {
					own[name] = true
					o.set(name, item[1])
				}
			}
		}
	}
	return nil
}

// yamlScalar follows the tag: quotes, and tags that are written out, win over what the text looks like.
func yamlScalar(n *yaml.Node) (starlark.Value, error) {
	switch n.ShortTag() {
	case "!!null":
		return starlark.None, nil
	case "!!bool":
		var b bool
		err := n.Decode(&b)
		return starlark.Bool(b), err
	case "!!int":
		var i int64
		if n.Decode(&i) == nil {
			return starlark.MakeInt64(i), nil
		}
		if b, ok := new(big.Int).SetString(n.Value, 0); ok {
			return starlark.MakeBigInt(b), nil
		}
		return nil, fmt.Errorf("line %d: %q is not a number", n.Line, n.Value)
	case "!!float":
		var f float64
		err := n.Decode(&f)
		return starlark.Float(f), err
	default: // strings, and what JSON has no type for: timestamps, binary, own tags
		return starlark.String(n.Value), nil
	}
}

// toYAML(value) writes a value as YAML, members in their order.
func toYAML(_ *starlark.Thread, fn *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	var given starlark.Value
	if err := starlark.UnpackArgs(fn.Name(), args, kwargs, "value", &given); err != nil {
		return nil, err
	}
	node, err := yamlNode(given, 0)
	if err != nil {
		return nil, fmt.Errorf("to_yaml: %w", err)
	}
	var out bytes.Buffer
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	if err := encoder.Encode(node); err != nil {
		return nil, fmt.Errorf("to_yaml: %w", err)
	}
	if err := encoder.Close(); err != nil {
		return nil, fmt.Errorf("to_yaml: %w", err)
	}
	return starlark.String(out.String()), nil
}

// yamlNode takes what encode takes, so that what a program can send it can also write.
func yamlNode(v starlark.Value, depth int) (*yaml.Node, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("nested more than %d deep", maxDepth)
	}
	scalar := func(tag, text string) *yaml.Node { return &yaml.Node{Kind: yaml.ScalarNode, Tag: tag, Value: text} }
	switch v := v.(type) {
	case starlark.NoneType:
		return scalar("!!null", "null"), nil
	case starlark.Bool:
		return scalar("!!bool", strconv.FormatBool(bool(v))), nil
	case starlark.Int:
		return scalar("!!int", v.String()), nil
	case starlark.Float:
		return scalar("!!float", yamlFloat(float64(v))), nil
	case starlark.String:
		return yamlString(string(v)), nil
	case starlark.IterableMapping:
		return yamlMapping(v.Items(), depth)
	case *starlarkstruct.Struct:
		var items []starlark.Tuple
		for _, name := range v.AttrNames() {
			member, err := v.Attr(name)
			if err != nil {
				return nil, err
			}
			items = append(items, starlark.Tuple{starlark.String(name), member})
		}
		return yamlMapping(items, depth)
	case starlark.Iterable:
		n := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
		for item := range starlark.Elements(v) {
			child, err := yamlNode(item, depth+1)
			if err != nil {
				return nil, err
			}
			n.Content = append(n.Content, child)
		}
		return n, nil
	default:
		return nil, fmt.Errorf("found a %s, expected None, bools, numbers, strings, lists and dicts", v.Type())
	}
}

// yamlFloat writes a float as readers of YAML 1.1 know it, to whom 1e+21 without a point is a string.
func yamlFloat(f float64) string {
	switch {
	case math.IsNaN(f):
		return ".nan"
	case math.IsInf(f, 0):
		return strings.TrimPrefix(strings.Replace(strconv.FormatFloat(f, 'g', -1, 64), "Inf", ".inf", 1), "+")
	}
	text := strconv.FormatFloat(f, 'g', -1, 64)
	if mantissa, exponent, ok := strings.Cut(text, "e"); ok && !strings.Contains(mantissa, ".") {
		text = mantissa + ".0e" + exponent
	}
	return text
}

// yamlString quotes what some reader takes for a number, a date, a boolean or null.
func yamlString(s string) *yaml.Node {
	n := &yaml.Node{}
	n.SetString(s)
	if n.Style == 0 && yamltext.Ambiguous(s) {
		n.Style = yaml.DoubleQuotedStyle
	}
	return n
}

func yamlMapping(items []starlark.Tuple, depth int) (*yaml.Node, error) {
	n := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
	for _, item := range items {
		key, ok := starlark.AsString(item[0])
		if !ok {
			return nil, fmt.Errorf("found the key %s, expected a string", item[0])
		}
		child, err := yamlNode(item[1], depth+1)
		if err != nil {
			return nil, err
		}
		n.Content = append(n.Content, yamlString(key), child)
	}
	return n, nil
}
