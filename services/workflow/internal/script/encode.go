package script

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.starlark.net/starlark"
	"go.starlark.net/starlarkstruct"
)

// encode is the canonical JSON of a Starlark value: members sorted, no white space. limit bounds its size. Operations
// are compared by a hash of these bytes: to write one value in another way makes every history that holds it a
// Mismatch.
//
// Every operation of a replay comes through here, so it allocates nothing but what it answers.
func encode(v starlark.Value, limit int) (json.RawMessage, error) {
	e := encoder{limit: limit, out: make([]byte, 0, 64)}
	if err := e.value(v, nil, 0); err != nil {
		return nil, err
	}
	if len(e.out) > limit {
		return nil, e.tooLarge()
	}
	return e.out, nil
}

// encoder writes one value. In its methods at is where the value stands.
type encoder struct {
	out   []byte
	limit int
}

// place is where a value stands in the one that is written: a member, or an item where name is empty and indexed is set. It
// becomes text only in an error.
type place struct {
	in      *place
	name    string
	index   int
	indexed bool
}

// String is .images[0].container; nil is the value itself.
func (p *place) String() string {
	switch {
	case p == nil:
		return ""
	case p.indexed:
		return p.in.String() + "[" + strconv.Itoa(p.index) + "]"
	default:
		return p.in.String() + "." + p.name
	}
}

func (e *encoder) value(v starlark.Value, at *place, depth int) error {
	if depth > maxDepth {
		const shown = 80
		where := at.String() // at least one character for each level
		return fmt.Errorf("value%s… is nested more than %d deep", strings.ToValidUTF8(where[:shown], ""), maxDepth)
	}
	// Looked at on the way: a list that holds one large string a thousand times must not be written to its end first.
	if len(e.out) > e.limit {
		return e.tooLarge()
	}
	switch v := v.(type) {
	case nil, starlark.NoneType:
		e.out = append(e.out, "null"...)
	case starlark.Bool:
		e.out = strconv.AppendBool(e.out, bool(v))
	case starlark.Int:
		if n, ok := v.Int64(); ok {
			e.out = strconv.AppendInt(e.out, n, 10)
		} else {
			e.out = append(e.out, v.String()...)
		}
	case starlark.Float:
		return e.float(float64(v), at)
	case starlark.String:
		return e.string(string(v), at)
	case workflow:
		return e.value(starlark.String(v.id), at, depth)
	case channel:
		return e.plain(v.token) // a program sends its address to the one that is to answer
	case starlark.IterableMapping:
		return e.mapping(v.Items(), at, depth)
	case *starlarkstruct.Struct:
		var items []starlark.Tuple
		for _, name := range v.AttrNames() {
			member, err := v.Attr(name)
			if err != nil {
				return err
			}
			items = append(items, starlark.Tuple{starlark.String(name), member})
		}
		return e.mapping(items, at, depth)
	case starlark.Iterable:
		return e.array(v, at, depth)
	default:
		return fmt.Errorf("value%s is a %s; only None, bools, numbers, strings, lists and dicts leave a program", at.String(), v.Type())
	}
	return nil
}

func (e *encoder) tooLarge() error { return fmt.Errorf("value is larger than %d bytes", e.limit) }

func (e *encoder) float(f float64, at *place) error {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return fmt.Errorf("value%s is %v, which JSON cannot say", at.String(), f)
	}
	if f == 0 {
		f = 0 // -0 would read back as the int 0
	}
	return e.plain(f)
}

func (e *encoder) string(s string, at *place) error {
	if simple(s) {
		e.out = append(append(append(e.out, '"'), s...), '"')
		return nil
	}
	if !utf8.ValidString(s) {
		return fmt.Errorf("value%s is a string that is not UTF-8", at.String())
	}
	return e.plain(s)
}

// simple reports whether encoding/json writes s as it is: it escapes control characters, quotes, backslashes, what HTML would
// read, and two separators beyond ASCII.
func simple(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			return false
		}
	}
	return true
}

// plain writes what cannot fail: a finite number or a string.
func (e *encoder) plain(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode %T: %w", v, err)
	}
	e.out = append(e.out, b...)
	return nil
}

func (e *encoder) array(v starlark.Iterable, at *place, depth int) error {
	e.out = append(e.out, '[')
	i := 0
	for item := range starlark.Elements(v) {
		if i > 0 {
			e.out = append(e.out, ',')
		}
		if err := e.value(item, &place{in: at, index: i, indexed: true}, depth+1); err != nil {
			return err
		}
		i++
	}
	e.out = append(e.out, ']')
	return nil
}

// mapping writes items, which are the caller's to sort: Items answers a new slice each time.
func (e *encoder) mapping(items []starlark.Tuple, at *place, depth int) error {
	for _, item := range items {
		if _, ok := starlark.AsString(item[0]); !ok {
			return fmt.Errorf("value%s has the key %s; only strings can be keys", at.String(), item[0])
		}
	}
	slices.SortFunc(items, func(a, b starlark.Tuple) int {
		x, _ := starlark.AsString(a[0])
		y, _ := starlark.AsString(b[0])
		return strings.Compare(x, y)
	})
	e.out = append(e.out, '{')
	for i, item := range items {
		if i > 0 {
			e.out = append(e.out, ',')
		}
		name, _ := starlark.AsString(item[0])
		if err := e.string(name, at); err != nil {
			return err
		}
		e.out = append(e.out, ':')
		if err := e.value(item[1], &place{in: at, name: name}, depth+1); err != nil {
			return err
		}
	}
	e.out = append(e.out, '}')
	return nil
}
