package script

import (
	"encoding/json"
	"math/big"
	"strconv"
	"unicode/utf8"

	"go.starlark.net/starlark"
)

// scanner makes Starlark values of JSON that is right, without a look at anything twice: a replay decodes every recorded
// value again. Where it meets anything that it does not know it gives up, and decode says what is wrong.
type scanner struct {
	data []byte
	at   int
}

// scan is decode for JSON that is right. ok is false for everything else.
func scan(data []byte) (v starlark.Value, ok bool) {
	s := scanner{data: data}
	s.space()
	if v, ok = s.value(0); !ok {
		return nil, false
	}
	s.space()
	return v, s.at == len(data)
}

func (s *scanner) space() {
	for s.at < len(s.data) {
		switch s.data[s.at] {
		case ' ', '\t', '\n', '\r':
			s.at++
		default:
			return
		}
	}
}

// next is the byte that comes, or 0 at the end; 0 is no part of JSON.
func (s *scanner) next() byte {
	if s.at < len(s.data) {
		return s.data[s.at]
	}
	return 0
}

// take reports whether c comes, and goes past it.
func (s *scanner) take(c byte) bool {
	s.space()
	if s.next() != c {
		return false
	}
	s.at++
	return true
}

func (s *scanner) value(depth int) (starlark.Value, bool) {
	if depth > readableDepth {
		return nil, false
	}
	switch s.next() {
	case '{':
		return s.object(depth)
	case '[':
		return s.array(depth)
	case '"':
		text, ok := s.string()
		return starlark.String(text), ok
	case 't':
		return starlark.True, s.word("true")
	case 'f':
		return starlark.False, s.word("false")
	case 'n':
		return starlark.None, s.word("null")
	default:
		return s.number()
	}
}

func (s *scanner) word(w string) bool {
	if len(s.data)-s.at < len(w) || string(s.data[s.at:s.at+len(w)]) != w {
		return false
	}
	s.at += len(w)
	return true
}

func (s *scanner) object(depth int) (starlark.Value, bool) {
	s.at++
	o := newObject(0)
	if s.take('}') {
		return o, true
	}
	for {
		if s.space(); s.next() != '"' {
			return nil, false
		}
		name, ok := s.string()
		if !ok || !s.take(':') {
			return nil, false
		}
		s.space()
		v, ok := s.value(depth + 1)
		if !ok {
			return nil, false
		}
		o.set(name, v)
		if s.take('}') {
			return o, true
		}
		if !s.take(',') {
			return nil, false
		}
	}
}

func (s *scanner) array(depth int) (starlark.Value, bool) {
	s.at++
	var items []starlark.Value
	if s.take(']') {
		return starlark.NewList(items), true
	}
	for {
		s.space()
		v, ok := s.value(depth + 1)
		if !ok {
			return nil, false
		}
		items = append(items, v)
		if s.take(']') {
			return starlark.NewList(items), true
		}
		if !s.take(',') {
			return nil, false
		}
	}
}

// string reads a string. One with escapes, or that is not UTF-8, is left to encoding/json.
func (s *scanner) string() (string, bool) {
	begin := s.at
	s.at++
	plain := true
	for s.at < len(s.data) {
		switch c := s.data[s.at]; {
		case c == '"':
			s.at++
			if raw := s.data[begin+1 : s.at-1]; plain && utf8.Valid(raw) {
				return string(raw), true
			}
			var text string
			err := json.Unmarshal(s.data[begin:s.at], &text)
			return text, err == nil
		case c == '\\':
			plain = false
			s.at += 2
		case c < ' ':
			return "", false
		default:
			s.at++
		}
	}
	return "", false
}

// digits goes past digits and reports whether there were any.
func (s *scanner) digits() bool {
	begin := s.at
	for c := s.next(); c >= '0' && c <= '9'; c = s.next() {
		s.at++
	}
	return s.at > begin
}

// number reads a number by JSON's grammar, which is stricter than strconv's: no leading zero, plus or underscore.
func (s *scanner) number() (starlark.Value, bool) {
	begin := s.at
	if s.next() == '-' {
		s.at++
	}
	first := s.at
	if !s.digits() || s.data[first] == '0' && s.at-first > 1 {
		return nil, false
	}
	whole := true
	if s.next() == '.' {
		whole = false
		s.at++
		if !s.digits() {
			return nil, false
		}
	}
	if c := s.next(); c == 'e' || c == 'E' {
		whole = false
		s.at++
		if c := s.next(); c == '+' || c == '-' {
			s.at++
		}
		if !s.digits() {
			return nil, false
		}
	}
	text := string(s.data[begin:s.at])
	if !whole {
		f, err := strconv.ParseFloat(text, 64)
		return starlark.Float(f), err == nil
	}
	if i, err := strconv.ParseInt(text, 10, 64); err == nil {
		return starlark.MakeInt64(i), true
	}
	i, ok := new(big.Int).SetString(text, 10)
	if !ok {
		return nil, false
	}
	return starlark.MakeBigInt(i), true
}
