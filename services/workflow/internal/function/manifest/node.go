package manifest

import (
	"encoding/json"
	"fmt"
	"strings"
)

// node is a piece of YAML that is to be written. Exactly one of the four is set; a list may be empty, not nil.
type node struct {
	own    *own // as the manifest has it
	scalar any  // string, int or bool
	list   []node
	pairs  []pair
}

// pair is one key of a mapping, in the order it is written.
type pair struct {
	key   string
	value node
}

// texts is a list of strings.
func texts(all []string) node {
	list := make([]node, len(all))
	for i, s := range all {
		list[i] = node{scalar: s}
	}
	return node{list: list}
}

// plain is the node as a decoder reads it.
func (n node) plain() any {
	switch {
	case n.own != nil:
		return n.own.value
	case n.list != nil:
		list := make([]any, len(n.list))
		for i, item := range n.list {
			list[i] = item.plain()
		}
		return list
	case n.pairs != nil:
		return mergeInto(map[string]any{}, n.pairs)
	default:
		return n.scalar
	}
}

// mergeInto sets what the pairs say, and leaves the rest of the mapping.
func mergeInto(m map[string]any, pairs []pair) map[string]any {
	for _, p := range pairs {
		if len(p.value.pairs) > 0 {
			mergeInto(mapping(m, p.key), p.value.pairs)
			continue
		}
		m[p.key] = p.value.plain()
	}
	return m
}

// flow is the node on one line, in JSON, which every style of YAML takes.
func (n node) flow() string {
	parts := []string{}
	switch {
	case n.list != nil:
		for _, item := range n.list {
			parts = append(parts, item.flow())
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case n.pairs != nil:
		return "{" + flowPairs(n.pairs) + "}"
	default:
		value := n.scalar
		if n.own != nil {
			value = n.own.value
		}
		text, err := json.Marshal(value)
		if err != nil { // no string, number or bool does this, nor what was read; and what is wrong is found by verify
			return "null"
		}
		return string(text)
	}
}

// flowPairs are the pairs of a mapping in flow style, without its braces.
func flowPairs(pairs []pair) string {
	parts := make([]string, len(pairs))
	for i, p := range pairs {
		parts[i] = fmt.Sprintf("%q: %s", p.key, p.value.flow())
	}
	return strings.Join(parts, ", ")
}

// inline is the node behind "key: " or "- ": a scalar, and what has nothing in it.
func (n node) inline() (string, bool) {
	if n.own != nil {
		return n.flow(), true
	}
	if n.scalar == nil {
		return n.flow(), len(n.list) == 0 && len(n.pairs) == 0
	}
	s, isText := n.scalar.(string)
	if isText && plain(s) {
		return s, true
	}
	return n.flow(), true
}

// block are the pairs as lines, each key at the indentation.
func block(pairs []pair, indent int, eol string) string {
	var b strings.Builder
	for _, p := range pairs {
		b.WriteString(strings.Repeat(" ", indent) + p.key + ":")
		text, fits := p.value.inline()
		switch {
		case fits:
			b.WriteString(" " + text + eol)
		case p.value.list != nil:
			b.WriteString(eol + blockItems(p.value.list, indent+2, eol))
		default:
			b.WriteString(eol + block(p.value.pairs, indent+2, eol))
		}
	}
	return b.String()
}

// blockItems are the items of a list as lines, each at the indentation. An item is a scalar, or a mapping of one key to
// what fits behind it: nothing else is written here.
func blockItems(items []node, indent int, eol string) string {
	var b strings.Builder
	for _, item := range items {
		text := item.flow()
		if item.scalar != nil {
			text, _ = item.inline()
		}
		if len(item.pairs) == 1 {
			if inner, fits := item.pairs[0].value.inline(); fits {
				text = item.pairs[0].key + ": " + inner
			}
		}
		b.WriteString(strings.Repeat(" ", indent) + "- " + text + eol)
	}
	return b.String()
}
