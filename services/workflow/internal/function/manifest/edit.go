package manifest

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"regexp"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

// Edit is one value of a file, and what it is to be. Exactly one of the places is set.
type Edit struct {
	// YAML and JSON are dotted paths of members, such as api.image.tag. HCL is the path of an attribute: the types and labels of the blocks
	// around it, and its name, such as module.api.image.
	YAML, JSON, HCL string
	// Regex is an RE2 expression with one group: what it matches is replaced, in every match.
	Regex string
	Value string
}

var (
	errPlaces    = errors.New("expected one of yaml, json, hcl and regex")
	hclBlock     = regexp.MustCompile(`^([A-Za-z_][A-Za-z0-9_-]*)((?:\s+(?:"[^"\\$]*"|[A-Za-z_][A-Za-z0-9_-]*))*)\s*\{$`)
	hclLabel     = regexp.MustCompile(`"([^"\\$]*)"|([A-Za-z_][A-Za-z0-9_-]*)`)
	hclAttribute = regexp.MustCompile(`^\s*([A-Za-z_][A-Za-z0-9_-]*)\s*=\s*("[^"\\$%]*"|-?[0-9][0-9.]*|true|false)\s*(?:(?:#|//).*)?\r?$`)
	plainValue   = regexp.MustCompile(`^[^\x00-\x1f\x7f"\\$%{}]{1,1000}$`)
	number       = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?$`)
)

// EditFile makes edits of a file, one after the other, and leaves every other byte as it is (R4-28). Every place has to be there already.
func EditFile(content []byte, edits []Edit) (Result, error) {
	if len(content) > maxSize {
		return Result{}, problem("content", "found %d bytes, expected at most %d", len(content), maxSize)
	}
	made := bytes.Clone(content)
	for i, e := range edits {
		at := "edits[" + strconv.Itoa(i) + "]"
		var err error
		switch [4]bool{e.YAML != "", e.JSON != "", e.HCL != "", e.Regex != ""} {
		case [4]bool{true, false, false, false}:
			made, err = editYAML(made, at, e)
		case [4]bool{false, true, false, false}:
			made, err = editJSON(made, at, e)
		case [4]bool{false, false, true, false}:
			made, err = editHCL(made, at, e)
		case [4]bool{false, false, false, true}:
			made, err = editRegex(made, at, e)
		default:
			err = problem(at, "%v", errPlaces)
		}
		if err != nil {
			return Result{}, err
		}
	}
	sum := sha256.Sum256(made)
	return Result{Content: made, Digest: "sha256:" + hex.EncodeToString(sum[:]), Changed: !bytes.Equal(made, content)}, nil
}

func editYAML(content []byte, at string, e Edit) ([]byte, error) {
	if !valuePath.MatchString(e.YAML) {
		return nil, problem(at+".yaml", "found %q, expected a dotted path such as api.image.tag", e.YAML)
	}
	made, err := overlay(content, func(t *text, root ast.Node, before map[string]any) error {
		path := strings.Split(e.YAML, ".")
		found, under := doc{value: before}.at(path...), before
		pair := child(root, path[0])
		for _, key := range path[1:] {
			pair = child(value(pair), key)
		}
		switch found.(type) {
		case map[string]any, []any:
			return problem(at+".yaml", "%s is a mapping or a list, expected one value", e.YAML)
		}
		if pair == nil {
			return problem(at+".yaml", "the file has no %s, expected a value to replace", e.YAML)
		}
		want := node{scalar: typed(e.Value, found)}
		if err := t.setAt(e.YAML, pair, found, want); err != nil {
			return err
		}
		for _, key := range path[:len(path)-1] {
			under = mapping(under, key)
		}
		under[path[len(path)-1]] = want.plain()
		return nil
	})
	return made.Content, err
}

// typed is a value in the type of what it replaces; text where it does not fit.
func typed(value string, found any) any {
	switch found.(type) {
	case int, int64, uint64:
		if n, err := strconv.Atoi(value); err == nil {
			return n
		}
	case bool:
		if b, err := strconv.ParseBool(value); err == nil {
			return b
		}
	}
	return value
}

func editJSON(content []byte, at string, e Edit) ([]byte, error) {
	if !valuePath.MatchString(e.JSON) {
		return nil, problem(at+".json", "found %q, expected a dotted path such as api.image.tag", e.JSON)
	}
	if !json.Valid(content) {
		return nil, problem("content", "found text that is not JSON")
	}
	from, to, err := jsonAt(content, strings.Split(e.JSON, "."))
	if err != nil {
		return nil, problem(at+".json", "%s: %v", e.JSON, err)
	}
	with, err := json.Marshal(e.Value)
	if err != nil {
		return nil, problem(at+".value", "%v", err)
	}
	switch first := content[from]; {
	case first != '"' && number.MatchString(e.Value) && first != 't' && first != 'f' && first != 'n',
		(first == 't' || first == 'f') && (e.Value == "true" || e.Value == "false"):
		with = []byte(e.Value)
	}
	return putAt(content, from, to, with), nil
}

// jsonAt is where the value of a member stands.
func jsonAt(content []byte, path []string) (from, to int, err error) {
	decoder := json.NewDecoder(bytes.NewReader(content))
	for depth, name := range path {
		if open, err := decoder.Token(); err != nil || open != json.Delim('{') {
			return 0, 0, errors.New("expected an object around it")
		}
		for {
			key, err := decoder.Token()
			if err != nil || key == json.Delim('}') {
				return 0, 0, errors.New("the file has no such member")
			}
			if key == name {
				break
			}
			var other json.RawMessage
			if err := decoder.Decode(&other); err != nil {
				return 0, 0, err
			}
		}
		if depth < len(path)-1 {
			continue
		}
		var value json.RawMessage
		if err := decoder.Decode(&value); err != nil && !errors.Is(err, io.EOF) {
			return 0, 0, err
		}
		if value[0] == '{' || value[0] == '[' {
			return 0, 0, errors.New("it is an object or a list, expected one value")
		}
		end := int(decoder.InputOffset())
		return end - len(value), end, nil
	}
	return 0, 0, errors.New("expected a path")
}

func putAt(content []byte, from, to int, with []byte) []byte {
	return append(append(bytes.Clone(content[:from]), with...), content[to:]...)
}

// editHCL replaces the literal of one attribute. What it cannot read safely, such as heredocs and comments of several lines, it refuses.
func editHCL(content []byte, at string, e Edit) ([]byte, error) {
	if !plainValue.MatchString(e.Value) {
		return nil, problem(at+".value", "found %.100q, expected text without quotes, braces, escapes and interpolation", e.Value)
	}
	if bytes.Contains(content, []byte("<<")) || bytes.Contains(content, []byte("/*")) {
		return nil, problem("content", "found a heredoc or a comment of several lines, which cannot be edited safely")
	}
	var blocks []string
	var from, to, found, offset int
	for line := range bytes.Lines(content) {
		text := strings.TrimSpace(string(line))
		switch m := hclAttribute.FindSubmatchIndex(bytes.TrimSuffix(line, []byte("\n"))); {
		case text == "" || strings.HasPrefix(text, "#") || strings.HasPrefix(text, "//"):
		case m != nil:
			if strings.Join(append(blocks[:len(blocks):len(blocks)], string(line[m[2]:m[3]])), ".") == e.HCL {
				from, to = offset+m[4], offset+m[5]
				found++
			}
		case hclBlock.MatchString(text):
			b := hclBlock.FindStringSubmatch(text)
			name := []string{b[1]}
			for _, l := range hclLabel.FindAllStringSubmatch(b[2], -1) {
				name = append(name, l[1]+l[2])
			}
			blocks = append(blocks, strings.Join(name, "."))
		case text == "}" && len(blocks) > 0:
			blocks = blocks[:len(blocks)-1]
		default: // a list, a map or an expression: as long as it is balanced it hides no block
			open := strings.Count(text, "{") - strings.Count(text, "}")
			for ; open > 0; open-- {
				blocks = append(blocks, "?")
			}
			for ; open < 0 && len(blocks) > 0; open++ {
				blocks = blocks[:len(blocks)-1]
			}
		}
		offset += len(line)
	}
	if found != 1 {
		return nil, problem(at+".hcl", "the file has %d attributes %s with a plain value, expected one", found, e.HCL)
	}
	with := strconv.Quote(e.Value)
	if content[from] != '"' && (number.MatchString(e.Value) || e.Value == "true" || e.Value == "false") {
		with = e.Value
	}
	return putAt(content, from, to, []byte(with)), nil
}

func editRegex(content []byte, at string, e Edit) ([]byte, error) {
	expression, err := regexp.Compile(e.Regex)
	if err != nil || expression.NumSubexp() != 1 {
		return nil, problem(at+".regex", "found %.200q, expected a regular expression (RE2) with one group, which is replaced", e.Regex)
	}
	var made []byte
	last, found := 0, false
	for _, m := range expression.FindAllSubmatchIndex(content, -1) {
		if m[2] < 0 {
			continue
		}
		made = append(append(made, content[last:m[2]]...), e.Value...)
		last, found = m[3], true
	}
	if !found {
		return nil, problem(at+".regex", "nothing in the file matches %.200q", e.Regex)
	}
	return append(made, content[last:]...), nil
}
