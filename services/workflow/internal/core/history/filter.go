package history

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
)

// Filter is the equality that an event's data must satisfy: dotted path → scalar (string, number, bool or null), each
// in canonical form (see Scalar). An empty filter matches every event of the type.
type Filter map[string]string

// Paths are the filter's paths, sorted: its shape.
func (f Filter) Paths() []string { return slices.Sorted(maps.Keys(f)) }

// Matches compares the filter with an event's data.
func (f Filter) Matches(data json.RawMessage) bool {
	values, ok := Project(data, f.Paths())
	if !ok {
		return false
	}
	for i, path := range f.Paths() {
		if values[i] != present(f[path]) {
			return false
		}
	}
	return true
}

// present is a canonical value as it is written now. A flow that was registered before has whole floats beyond 2^53 as 1e+17.
func present(value string) string {
	if value == "" || value[0] == '"' || !strings.Contains(value, "e+") {
		return value
	}
	if f, err := strconv.ParseFloat(value, 64); err == nil {
		return number(f)
	}
	return value
}

// String is "a=1, b=two", for people.
func (f Filter) String() string {
	parts := make([]string, 0, len(f))
	for _, path := range f.Paths() {
		parts = append(parts, path+"="+f[path])
	}
	return strings.Join(parts, ", ")
}

// Key is the index key of the waits, and of the events, that agree on organization, type, the set of paths and the
// values at them. Paths are sorted; values are canonical. The key alone decides whether an event and a wait belong
// together: nothing compares the values again. So it is a cryptographic hash, and every part carries its length, so
// that no two lists of parts give the same bytes.
func Key(organization int64, eventType string, paths, values []string) [16]byte {
	h := sha256.New()
	var n [8]byte
	binary.BigEndian.PutUint64(n[:], uint64(organization))
	h.Write(n[:])
	write := func(s string) {
		binary.BigEndian.PutUint64(n[:], uint64(len(s)))
		h.Write(n[:])
		h.Write([]byte(s))
	}
	write(eventType)
	for i := range paths {
		write(paths[i])
		write(values[i])
	}
	return [16]byte(h.Sum(nil)[:16])
}

// Project reads the canonical values at paths of a JSON object; ok is false when one of them is missing or not a
// scalar: such an event matches no filter of this shape. A member whose own name has a dot in it cannot be reached.
func Project(data json.RawMessage, paths []string) (values []string, ok bool) {
	values = make([]string, len(paths))
	if len(paths) == 0 {
		return values, true
	}
	d := json.NewDecoder(bytes.NewReader(data))
	// Ids in events are JSON numbers (D2). As float64 those above 2^53 would become their neighbours.
	d.UseNumber()
	var root any
	if d.Decode(&root) != nil {
		return nil, false
	}
	for i, path := range paths {
		at := root
		for _, name := range strings.Split(path, ".") {
			object, isObject := at.(map[string]any)
			if at, ok = object[name]; !isObject || !ok {
				return nil, false
			}
		}
		if values[i], ok = Scalar(at); !ok {
			return nil, false
		}
	}
	return values, true
}

// Scalar is the canonical form of a JSON scalar, strict about types: "25" the string is not 25 the number, but 25 and
// 25.0 are one number, as they are in JSON.
func Scalar(v any) (string, bool) {
	switch v := v.(type) {
	case nil:
		return "null", true
	case bool:
		return strconv.FormatBool(v), true
	case string:
		return strconv.Quote(v), true
	case int64:
		return strconv.FormatInt(v, 10), true
	case float64:
		return number(v), true
	case *big.Int:
		return v.String(), true
	case json.Number:
		if n, err := strconv.ParseInt(v.String(), 10, 64); err == nil {
			return strconv.FormatInt(n, 10), true
		}
		if n, ok := new(big.Int).SetString(v.String(), 10); ok {
			return n.String(), true
		}
		f, err := v.Float64()
		return number(f), err == nil
	default:
		return "", false
	}
}

// number is the canonical form of a float. A whole one reads like the int that it equals, to the last digit: 1e17 is
// 100000000000000000, as it is in a program.
func number(f float64) string {
	if f == math.Trunc(f) && !math.IsInf(f, 0) {
		whole, _ := big.NewFloat(f).Int(nil) // exact: it has no fraction
		return whole.String()
	}
	return strconv.FormatFloat(f, 'g', -1, 64)
}

// Describe says in a few words what a wait is for.
func Describe(types []string, f Filter) string {
	s := "event " + strings.Join(types, " or ")
	if len(f) > 0 {
		s += fmt.Sprintf(" with %s", f)
	}
	return s
}
