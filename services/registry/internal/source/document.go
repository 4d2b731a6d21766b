package source

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"unicode/utf8"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// The limits are far above what any format here needs, and far below what would strain a parser: nesting, values in one array or object,
// and values in all.
const (
	maxDepth  = 32
	maxItems  = 5_000
	maxValues = 100_000
	// maxPushItems and maxPushValues are for pushes reported by forges, which list every file of thousands of commits.
	maxPushItems  = 100_000
	maxPushValues = 2_000_000
)

// checkDocument refuses what Go's decoder would accept or stumble over: text that is not UTF-8, more than one document, excessive nesting,
// and duplicate keys, of which one would silently win: a proxy or a scanner that checked the other one would have approved something else.
func checkDocument(body []byte) error { return checkWithin(body, maxItems, maxValues) }

// checkWithin is checkDocument with other limits for one array or object, and for all values.
func checkWithin(body []byte, items, values int) error {
	if len(bytes.TrimSpace(body)) == 0 {
		return invalid("body", "empty; expected a JSON document")
	}
	if !utf8.Valid(body) {
		return invalid("body", "found bytes that are not UTF-8; expected JSON in UTF-8")
	}
	d := json.NewDecoder(bytes.NewReader(body))
	// Numbers are not used here; as a float, 1e999 in an unused field would be an error.
	d.UseNumber()
	w := walker{decoder: d, maxItems: items, maxValues: values}
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) && len(w.open) == 0 {
			return nil
		}
		if err != nil {
			return notJSON(err, d.InputOffset())
		}
		if err := w.take(token); err != nil {
			return err
		}
	}
}

// walker follows a document token by token, with a stack of the open containers.
type walker struct {
	decoder *json.Decoder
	open    []container
	values  int
	done    bool
	// maxItems and maxValues are the limits.
	maxItems, maxValues int
}

// container is an open object, or an array if keys is nil.
type container struct {
	keys    map[string]bool
	wantKey bool
	items   int
}

func (w *walker) take(token json.Token) error {
	if w.done {
		return invalid("body", "found a second document after byte "+strconv.FormatInt(w.decoder.InputOffset(), 10)+"; expected one")
	}
	if w.values++; w.values > w.maxValues {
		return invalid("body", fmt.Sprintf("found more than %d values; expected fewer", w.maxValues))
	}
	switch delim, _ := token.(json.Delim); delim {
	case '{':
		w.open = append(w.open, container{keys: map[string]bool{}, wantKey: true})
	case '[':
		w.open = append(w.open, container{})
	case '}', ']':
		w.open = w.open[:len(w.open)-1]
		return w.valueEnded()
	default:
		return w.scalar(token)
	}
	if len(w.open) > maxDepth {
		return invalid("body", fmt.Sprintf("nested more than %d deep at byte %d; expected less", maxDepth, w.decoder.InputOffset()))
	}
	return nil
}

func (w *walker) scalar(token json.Token) error {
	if n := len(w.open); n > 0 && w.open[n-1].keys != nil && w.open[n-1].wantKey {
		top, key := &w.open[n-1], fmt.Sprint(token)
		if top.keys[key] {
			return invalid("body", fmt.Sprintf("found key %q twice in one object before byte %d; expected it once", key, w.decoder.InputOffset()))
		}
		top.keys[key] = true
		top.wantKey = false
		return nil
	}
	return w.valueEnded()
}

// valueEnded records that an object expects a key next, or that the document has ended.
func (w *walker) valueEnded() error {
	if len(w.open) == 0 {
		w.done = true
		return nil
	}
	top := &w.open[len(w.open)-1]
	top.wantKey = top.keys != nil
	if top.items++; top.items > w.maxItems {
		return invalid("body", fmt.Sprintf("found more than %d values in one array or object; expected fewer", w.maxItems))
	}
	return nil
}

// object parses raw as an object; messages use name. The result is a map, because Go matches the fields of a struct case-insensitively, so
// that Digest would overwrite digest after checkDocument had accepted them as two keys.
func object(name string, raw []byte) (map[string]json.RawMessage, error) {
	var o map[string]json.RawMessage
	if kind(raw) != "an object" {
		return nil, invalid(name, found(raw)+"; expected an object")
	}
	if err := json.Unmarshal(raw, &o); err != nil {
		return nil, notJSON(err, 0)
	}
	return o, nil
}

// reader extracts texts from objects and collects the problems, so that one response names every field.
type reader struct{ problems []fault.Field }

// text returns the string at key; "" if it is absent, null or of another type.
func (r *reader) text(o map[string]json.RawMessage, prefix, key string) string {
	raw, ok := o[key]
	if !ok || kind(raw) == "null" {
		return ""
	}
	var s string
	if err := json.Unmarshal(raw, &s); err != nil {
		r.problems = append(r.problems, fault.Field{Name: prefix + key, Problem: found(raw) + "; expected a string"})
		return ""
	}
	return s
}

func (r *reader) err() error {
	if len(r.problems) > 0 {
		return fault.InvalidFields(r.problems...)
	}
	return nil
}

func invalid(field, problem string) error {
	return fault.InvalidFields(fault.Field{Name: field, Problem: problem})
}

func notJSON(err error, offset int64) error {
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		offset = syntax.Offset
	}
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		return invalid("body", fmt.Sprintf("the JSON document ends too early, at byte %d; expected a whole one", offset))
	}
	return invalid("body", fmt.Sprintf("not JSON at byte %d: %s; expected a JSON document", offset, err))
}

// kind returns the kind of a JSON value by its first byte: raw has passed checkDocument.
func kind(raw []byte) string {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 {
		return "missing"
	}
	switch raw[0] {
	case '{':
		return "an object"
	case '[':
		return "an array"
	case '"':
		return "a string"
	case 't', 'f':
		return "a boolean"
	case 'n':
		return "null"
	default:
		return "a number"
	}
}

// found describes a value of the wrong type: small ones in full. The text is sent to the sender and logged, so it must not grow with the
// input.
func found(raw []byte) string {
	const small = 40
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 {
		return "missing"
	}
	if k := kind(raw); k == "an object" || k == "an array" || len(raw) > small {
		return "found " + k
	}
	return "found " + string(raw)
}
