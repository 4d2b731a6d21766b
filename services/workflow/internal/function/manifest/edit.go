package manifest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

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

// The bounds of one call: its edits, and the bytes of a place.
const (
	maxEdits = 100
	maxPlace = 500
)

var (
	errPlaces = errors.New("expected one of yaml, json, hcl and regex")
	number    = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?$`)
)

// EditFile makes edits of a file, one after the other, and leaves every other byte as it is (R4-28). Every place has to be there already.
func EditFile(ctx context.Context, content []byte, edits []Edit) (Result, error) {
	if len(edits) > maxEdits {
		return Result{}, problem("edits", "found %d, expected at most %d", len(edits), maxEdits)
	}
	if len(content) > maxSize {
		return Result{}, problem("content", "found %d bytes, expected at most %d", len(content), maxSize)
	}
	made, left := bytes.Clone(content), maxWork
	for i, e := range edits {
		if err := ctx.Err(); err != nil {
			return Result{}, fmt.Errorf("edit a file: %w", err)
		}
		var err error
		if made, err = e.make(ctx, made, "edits["+strconv.Itoa(i)+"]", &left); err != nil {
			return Result{}, err
		}
	}
	sum := sha256.Sum256(made)
	return Result{Content: made, Digest: "sha256:" + hex.EncodeToString(sum[:]), Changed: !bytes.Equal(made, content)}, nil
}

// make makes one edit; left is what expressions may still cost.
func (e Edit) make(ctx context.Context, content []byte, at string, left *int) (made []byte, err error) {
	if !utf8.ValidString(e.Value) {
		return nil, problem(at+".value", "found bytes that are no text (UTF-8)")
	}
	if n := len(e.YAML + e.JSON + e.HCL + e.Regex); n > maxPlace {
		return nil, problem(at, "found a place of %d bytes, expected at most %d", n, maxPlace)
	}
	switch [4]bool{e.YAML != "", e.JSON != "", e.HCL != "", e.Regex != ""} {
	case [4]bool{true, false, false, false}:
		made, err = editYAML(content, at, e)
	case [4]bool{false, true, false, false}:
		made, err = editJSON(content, at, e)
	case [4]bool{false, false, true, false}:
		made, err = editHCL(content, at, e)
	case [4]bool{false, false, false, true}:
		made, err = editRegex(ctx, content, at, e, left)
	default:
		err = problem(at, "%v", errPlaces)
	}
	if err == nil && len(made) > maxSize {
		err = tooLarge(at)
	}
	return made, err
}

func tooLarge(at string) error {
	return problem(at+".value", "the file would have more than %d bytes with it", maxSize)
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
		if n, isNumber := want.scalar.(json.Number); isNumber {
			under[path[len(path)-1]], _ = n.Float64() // as it is read again
		}
		return nil
	})
	return made.Content, err
}

// typed is a value in the type of what it replaces, as it is written: text where it does not fit.
func typed(value string, found any) any {
	switch found.(type) {
	case int, int64, uint64, float64:
		if n, err := strconv.Atoi(value); numeral(value) && err == nil {
			return n
		}
		if numeral(value) {
			return json.Number(value)
		}
	case bool:
		if truth(value) {
			return value == "true"
		}
	}
	return value
}

// numeral reports whether every reader takes a text for the same number; not 007, +5, 1e5, and what is longer than numbers are exact.
func numeral(value string) bool {
	return number.MatchString(value) && len(value) <= 15 && value != "-0"
}

func truth(value string) bool { return value == "true" || value == "false" }

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
	var with bytes.Buffer
	encoder := json.NewEncoder(&with)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(e.Value); err != nil {
		return nil, problem(at+".value", "%v", err)
	}
	switch first := content[from]; {
	case (first == '-' || first >= '0' && first <= '9') && numeral(e.Value), (first == 't' || first == 'f') && truth(e.Value):
		return putAt(content, from, to, []byte(e.Value)), nil
	}
	return putAt(content, from, to, bytes.TrimSuffix(with.Bytes(), []byte("\n"))), nil
}

// jsonAt is where the value of a member stands. Readers differ about a member that an object has twice, so that it is refused.
func jsonAt(content []byte, path []string) (from, to int, err error) {
	decoder := json.NewDecoder(bytes.NewReader(content))
	if open, err := decoder.Token(); err != nil || open != json.Delim('{') {
		return 0, 0, errors.New("expected an object around it")
	}
	found := 0
	for {
		key, err := decoder.Token()
		if err != nil || key == json.Delim('}') {
			break
		}
		var value json.RawMessage
		if err := decoder.Decode(&value); err != nil {
			return 0, 0, fmt.Errorf("read a member: %w", err)
		}
		if key == path[0] {
			found++
			to = int(decoder.InputOffset())
			from = to - len(value)
		}
	}
	switch {
	case found == 0:
		return 0, 0, errors.New("the file has no such member")
	case found > 1:
		return 0, 0, fmt.Errorf("an object has %q %d times", path[0], found)
	case len(path) > 1:
		inFrom, inTo, err := jsonAt(content[from:to], path[1:])
		return from + inFrom, from + inTo, err
	case content[from] == '{' || content[from] == '[':
		return 0, 0, errors.New("it is an object or a list, expected one value")
	}
	return from, to, nil
}

func putAt(content []byte, from, to int, with []byte) []byte {
	return append(append(bytes.Clone(content[:from]), with...), content[to:]...)
}
