package script

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"strconv"

	"go.starlark.net/starlark"

	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
)

// maxDepth bounds the nesting of values that leave a program, readableDepth of those that enter it.
const (
	maxDepth      = 200
	readableDepth = history.ReadableDepth
)

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
	if depth > readableDepth {
		return nil, fmt.Errorf("JSON is nested more than %d deep", readableDepth)
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
		return nil, fmt.Errorf("number %.40s is out of range", n)
	}
	return starlark.Float(f), nil
}
