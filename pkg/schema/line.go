package schema

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
)

// Line returns the line, from 1, on which the value at a JSON pointer begins in a JSON text. If the pointer leads nowhere, it is the line
// of the closest value above it.
func Line(text []byte, pointer string) int {
	unescape := strings.NewReplacer("~1", "/", "~0", "~")
	var path []string
	if pointer != "" {
		for token := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
			path = append(path, unescape.Replace(token))
		}
	}
	w := walker{text: text, dec: json.NewDecoder(bytes.NewReader(text)), path: path, line: 1}
	w.dec.UseNumber()
	w.value(nil)
	return w.line
}

// walker reads a text once and remembers the line of the deepest value on the path.
type walker struct {
	text []byte
	dec  *json.Decoder
	path []string
	deep int
	line int
}

// value reads one value at a path; it reports false when the text has ended or is not JSON.
func (w *walker) value(at []string) bool {
	token, err := w.dec.Token()
	if err != nil {
		return false
	}
	if n := len(at); n >= w.deep && n <= len(w.path) && slices.Equal(at, w.path[:n]) {
		w.deep, w.line = n, 1+bytes.Count(w.text[:w.dec.InputOffset()], []byte("\n"))
	}
	delim, opens := token.(json.Delim)
	if !opens {
		return true
	}
	for i := 0; w.dec.More(); i++ {
		name := strconv.Itoa(i)
		if delim == '{' {
			key, err := w.dec.Token()
			if err != nil {
				return false
			}
			name, _ = key.(string)
		}
		if !w.value(append(slices.Clone(at), name)) {
			return false
		}
	}
	_, err = w.dec.Token()
	return err == nil
}
