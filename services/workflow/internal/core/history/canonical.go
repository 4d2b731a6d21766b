package history

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/lockstep-cd/lockstep/pkg/plain"
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
	args, err := plain.Object(data)
	if err != nil {
		return nil, fmt.Errorf("decode arguments: %w", err)
	}
	return args, nil
}
