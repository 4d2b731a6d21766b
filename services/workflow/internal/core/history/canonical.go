package history

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// Canonical is JSON with sorted members and no white space; nothing stands for an empty object. Numbers are compared as
// they are written.
func Canonical(data []byte) ([]byte, error) {
	if len(bytes.TrimSpace(data)) == 0 {
		return []byte("{}"), nil
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, fmt.Errorf("byte %d: %w", offset(err, data), err)
	}
	if d.More() {
		return nil, fmt.Errorf("something follows the value at byte %d", d.InputOffset())
	}
	b, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	return b, nil
}

// offset is where a text stops being JSON, in bytes: the decoder itself only knows the last value that was whole.
func offset(err error, data []byte) int64 {
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		return syntax.Offset
	}
	return int64(len(data))
}

// Arguments are canonical JSON as Functions take them: whole numbers are int64.
func Arguments(data json.RawMessage) (map[string]any, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var args map[string]any
	if err := d.Decode(&args); err != nil {
		return nil, fmt.Errorf("decode arguments: %w", err)
	}
	plain, _ := plainNumbers(args).(map[string]any)
	return plain, nil
}

// plainNumbers changes v in place. A number that fits neither type stays as it was written, and so does a whole number that is too
// long for one: as a float it would be another.
func plainNumbers(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for key, member := range v {
			v[key] = plainNumbers(member)
		}
	case []any:
		for i, item := range v {
			v[i] = plainNumbers(item)
		}
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n
		}
		if !strings.ContainsAny(v.String(), ".eE") {
			return v
		}
		f, err := v.Float64()
		if err != nil {
			return v.String()
		}
		return f
	}
	return v
}
