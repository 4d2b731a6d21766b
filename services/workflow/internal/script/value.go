package script

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/big"
	"slices"
	"strconv"
	"unicode/utf8"

	"go.starlark.net/starlark"
	"go.starlark.net/starlarkstruct"
)

// maxDepth bounds the nesting of values that enter or leave a program.
const maxDepth = 200

// decode makes a Starlark value of JSON. Objects keep the order of their members; whole numbers become ints.
func decode(data []byte) (starlark.Value, error) {
	if v, ok := scan(data); ok {
		return v, nil
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	v, err := decodeValue(d, 0)
	if err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("something follows the JSON value at byte %d", d.InputOffset())
	}
	return v, nil
}

func decodeValue(d *json.Decoder, depth int) (starlark.Value, error) {
	t, err := d.Token()
	if err != nil {
		return nil, fmt.Errorf("not JSON at byte %d: %w", d.InputOffset(), err)
	}
	return decodeToken(d, t, depth)
}

func decodeToken(d *json.Decoder, t json.Token, depth int) (starlark.Value, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("JSON is nested more than %d deep", maxDepth)
	}
	switch t := t.(type) {
	case nil:
		return starlark.None, nil
	case bool:
		return starlark.Bool(t), nil
	case string:
		return starlark.String(t), nil
	case json.Number:
		return decodeNumber(t)
	case json.Delim:
		if t == '[' {
			return decodeArray(d, depth)
		}
		return decodeObject(d, depth)
	default:
		return nil, fmt.Errorf("not JSON at byte %d", d.InputOffset())
	}
}

func decodeArray(d *json.Decoder, depth int) (starlark.Value, error) {
	var items []starlark.Value
	for d.More() {
		v, err := decodeValue(d, depth+1)
		if err != nil {
			return nil, err
		}
		items = append(items, v)
	}
	return starlark.NewList(items), closing(d)
}

func decodeObject(d *json.Decoder, depth int) (starlark.Value, error) {
	o := newObject(0)
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, fmt.Errorf("not JSON at byte %d: %w", d.InputOffset(), err)
		}
		v, err := decodeValue(d, depth+1)
		if err != nil {
			return nil, err
		}
		name, _ := key.(string) // the decoder lets nothing else be a key
		o.set(name, v)
	}
	return o, closing(d)
}

// closing takes the end of an array or object.
func closing(d *json.Decoder) error {
	if _, err := d.Token(); err != nil {
		return fmt.Errorf("not JSON at byte %d: %w", d.InputOffset(), err)
	}
	return nil
}

// decodeNumber keeps whole numbers of any length exact: ids are numbers (D2). 1.0 and 1e3 are floats.
func decodeNumber(n json.Number) (starlark.Value, error) {
	if i, err := strconv.ParseInt(n.String(), 10, 64); err == nil {
		return starlark.MakeInt64(i), nil
	}
	if i, ok := new(big.Int).SetString(n.String(), 10); ok {
		return starlark.MakeBigInt(i), nil
	}
	f, err := n.Float64()
	if err != nil {
		return nil, fmt.Errorf("number %s is out of range", n)
	}
	return starlark.Float(f), nil
}

// encode is the canonical JSON of a Starlark value: members sorted, no white space. limit bounds its size. Operations
// are compared by a hash of these bytes: to write one value in another way makes every history that holds it a
// Mismatch.
func encode(v starlark.Value, limit int) (json.RawMessage, error) {
	e := encoder{limit: limit}
	if err := e.value(v, "", 0); err != nil {
		return nil, err
	}
	if e.out.Len() > limit {
		return nil, e.tooLarge()
	}
	return e.out.Bytes(), nil
}

// encoder writes one value. In its methods path is where the value stands, for errors: .images[0].container.
type encoder struct {
	out   bytes.Buffer
	limit int
}

func (e *encoder) value(v starlark.Value, path string, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("value%s is nested more than %d deep", path, maxDepth)
	}
	// Looked at on the way: a list that holds one large string a thousand times must not be written to its end first.
	if e.out.Len() > e.limit {
		return e.tooLarge()
	}
	switch v := v.(type) {
	case nil, starlark.NoneType:
		e.out.WriteString("null")
	case starlark.Bool:
		e.out.WriteString(strconv.FormatBool(bool(v)))
	case starlark.Int:
		e.out.WriteString(v.String())
	case starlark.Float:
		return e.float(float64(v), path)
	case starlark.String:
		return e.string(string(v), path)
	case channel:
		return e.plain(v.token) // a program sends its address to whoever is to answer
	case starlark.IterableMapping:
		return e.mapping(v.Items(), path, depth)
	case *starlarkstruct.Struct:
		var items []starlark.Tuple
		for _, name := range v.AttrNames() {
			member, err := v.Attr(name)
			if err != nil {
				return err
			}
			items = append(items, starlark.Tuple{starlark.String(name), member})
		}
		return e.mapping(items, path, depth)
	case starlark.Iterable:
		return e.array(v, path, depth)
	default:
		return fmt.Errorf("value%s is a %s; only None, bools, numbers, strings, lists and dicts leave a program", path, v.Type())
	}
	return nil
}

func (e *encoder) tooLarge() error { return fmt.Errorf("value is larger than %d bytes", e.limit) }

func (e *encoder) float(f float64, path string) error {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return fmt.Errorf("value%s is %v, which JSON cannot say", path, f)
	}
	if f == 0 {
		f = 0 // -0 would read back as the int 0
	}
	return e.plain(f)
}

func (e *encoder) string(s, path string) error {
	if !utf8.ValidString(s) {
		return fmt.Errorf("value%s is a string that is not UTF-8", path)
	}
	return e.plain(s)
}

// plain writes what cannot fail: a finite number or a string.
func (e *encoder) plain(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode %T: %w", v, err)
	}
	e.out.Write(b)
	return nil
}

func (e *encoder) array(v starlark.Iterable, path string, depth int) error {
	e.out.WriteByte('[')
	i := 0
	for item := range starlark.Elements(v) {
		if i > 0 {
			e.out.WriteByte(',')
		}
		if err := e.value(item, fmt.Sprintf("%s[%d]", path, i), depth+1); err != nil {
			return err
		}
		i++
	}
	e.out.WriteByte(']')
	return nil
}

func (e *encoder) mapping(items []starlark.Tuple, path string, depth int) error {
	for _, item := range items {
		if _, ok := starlark.AsString(item[0]); !ok {
			return fmt.Errorf("value%s has the key %s; only strings can be keys", path, item[0])
		}
	}
	sorted := slices.Clone(items)
	slices.SortFunc(sorted, func(a, b starlark.Tuple) int {
		x, _ := starlark.AsString(a[0])
		y, _ := starlark.AsString(b[0])
		if x < y {
			return -1
		}
		return 1 // keys are unique
	})
	e.out.WriteByte('{')
	for i, item := range sorted {
		if i > 0 {
			e.out.WriteByte(',')
		}
		name, _ := starlark.AsString(item[0])
		if err := e.string(name, path); err != nil {
			return err
		}
		e.out.WriteByte(':')
		if err := e.value(item[1], path+"."+name, depth+1); err != nil {
			return err
		}
	}
	e.out.WriteByte('}')
	return nil
}
