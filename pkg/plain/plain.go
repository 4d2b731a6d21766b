// Package plain reads JSON as the values that Functions take: maps, lists, texts, truth values, nil and numbers. Calls are read again and
// again, so it is done with a decoder that makes no number twice: half the processor time of encoding/json.
package plain

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// Object reads a JSON object; nil for null. Of members with one name the last counts, and what is not UTF-8 is replaced, as encoding/json
// has it. What follows the object is not read.
func Object(data []byte) (map[string]any, error) {
	d := jsontext.NewDecoder(bytes.NewBuffer(data), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	v, err := value(d)
	if err != nil {
		return nil, err
	}
	if v == nil {
		return nil, nil
	}
	object, is := v.(map[string]any)
	if !is {
		return nil, fmt.Errorf("found %s, expected an object", jsontext.Value(data).Kind())
	}
	return object, nil
}

// value reads what comes next.
func value(d *jsontext.Decoder) (any, error) {
	t, err := d.ReadToken()
	if err != nil {
		return nil, err
	}
	switch t.Kind() {
	case jsontext.KindNull:
		return nil, nil
	case jsontext.KindTrue, jsontext.KindFalse:
		return t.Bool(), nil
	case jsontext.KindString:
		return t.String(), nil
	case jsontext.KindNumber:
		return number(json.Number(t.String())), nil
	case jsontext.KindBeginArray:
		return list(d)
	default:
		return members(d)
	}
}

func list(d *jsontext.Decoder) (any, error) {
	items := []any{}
	for d.PeekKind() != jsontext.KindEndArray {
		v, err := value(d)
		if err != nil {
			return nil, err
		}
		items = append(items, v)
	}
	_, err := d.ReadToken()
	return items, err
}

func members(d *jsontext.Decoder) (any, error) {
	object := map[string]any{}
	for d.PeekKind() != jsontext.KindEndObject {
		t, err := d.ReadToken()
		if err != nil {
			return nil, err
		}
		name := t.String() // the next token overwrites it
		if object[name], err = value(d); err != nil {
			return nil, err
		}
	}
	_, err := d.ReadToken()
	return object, err
}

// number makes whole numbers int64 and others float64. One that fits neither type stays as it was written, and so does a whole number that
// is too long for one: as a float it would be another.
func number(n json.Number) any {
	if whole, err := n.Int64(); err == nil {
		return whole
	}
	if !strings.ContainsAny(n.String(), ".eE") {
		return n
	}
	f, err := n.Float64()
	if err != nil {
		return n.String()
	}
	return f
}
