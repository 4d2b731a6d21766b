// Package payloads stores each large value once: columns contain a reference in its place, and the value is a row of its own, keyed by the
// digest of its bytes. It splits values before they are stored and completes them when they are read.
package payloads

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
)

// Threshold is the size in bytes above which a service keeps values by digest.
const Threshold = 64 << 10

const (
	// opening begins a reference, followed by the organization, a slash, the digest in hexadecimal, and closing. No value that is stored has
	// these bytes in it: one that would is kept by digest itself, whatever its size.
	opening = `{"lockstep.dev/payload":"`
	closing = `"}`
	// deepest is the nesting depth up to which large values are cut off.
	deepest = 8
)

// Key names a payload.
type Key struct {
	Organization int64
	Digest       [sha256.Size]byte
}

// String is the form of a key in references and errors.
func (k Key) String() string {
	return strconv.FormatInt(k.Organization, 10) + "/" + hex.EncodeToString(k.Digest[:])
}

// Payload is a large value.
type Payload struct {
	Key
	Data []byte
}

// Stored is a value as a column has it, and the payloads that it refers to.
type Stored struct {
	Text     string
	Payloads []Payload
}

// Plain reports whether a column may have the value as it is, where values of more than a number of bytes are kept by digest.
func Plain(value []byte, most int) bool {
	return len(value) <= most && !bytes.Contains(value, []byte(opening))
}

// Split cuts the parts of a JSON value off that have more than a number of bytes. It is a function of the bytes: a value that is a part of
// another one is the same payload there, so an event and the histories of all that receive it share one.
func Split(organization int64, value []byte, most int) Stored {
	if Plain(value, most) {
		return Stored{Text: string(value)}
	}
	c := cutter{organization: organization, most: most}
	text := c.cut(value, 0)
	return Stored{Text: string(text), Payloads: c.payloads}
}

// cutter splits a value.
type cutter struct {
	organization int64
	most         int
	payloads     []Payload
}

// cut returns the text of a value.
func (c *cutter) cut(value []byte, depth int) []byte {
	if Plain(value, c.most) {
		return value
	}
	before := len(c.payloads)
	if depth < deepest {
		if text, ok := c.members(value, depth); ok {
			return text
		}
	}
	// As a whole: what was cut off of it is part of it.
	p := Payload{Key: Key{c.organization, sha256.Sum256(value)}, Data: value}
	c.payloads = append(c.payloads[:before], p)
	return []byte(opening + p.String() + closing)
}

// members cuts the values in an object or list. It is not ok if too much remains.
func (c *cutter) members(value []byte, depth int) (text []byte, ok bool) {
	rest, from := 0, 0
	for _, part := range parts(value) {
		inner := value[part[0]:part[1]]
		if Plain(inner, c.most) {
			continue
		}
		between := value[from:part[0]]
		rest, from = rest+len(between), part[1]
		if !Plain(between, c.most) || rest > c.most {
			return nil, false
		}
		text = append(append(text, between...), c.cut(inner, depth+1)...)
	}
	between := value[from:]
	if from == 0 || !Plain(between, c.most) || rest+len(between) > c.most {
		return nil, false
	}
	text = append(text, between...)
	return text, len(text) <= c.most
}

// parts are where the values directly in an object or list begin and end; none for other values.
func parts(value []byte) (all [][2]int) {
	depth, begin, isObject, named := 0, -1, false, false
	end := func(at int) {
		if begin >= 0 && !named {
			all = append(all, [2]int{begin, at})
		}
		begin = -1
	}
	for i := 0; i < len(value); i++ {
		c := value[i]
		blank := c == ' ' || c == '\t' || c == '\n' || c == '\r'
		if depth == 1 && begin < 0 && !blank && c != ',' && c != ':' && c != ']' && c != '}' {
			begin = i
		}
		switch c {
		case '"':
			for i++; i < len(value) && value[i] != '"'; i++ {
				if value[i] == '\\' {
					i++
				}
			}
			if depth == 0 {
				return nil
			}
		case '{', '[':
			if depth++; depth == 1 {
				isObject, named = c == '{', c == '{'
			}
		case '}', ']':
			if depth == 1 {
				end(i)
			}
			depth--
		case ',':
			if depth == 1 {
				end(i)
				named = isObject
			}
		case ':':
			if depth == 1 {
				begin, named = -1, false
			}
		default: // part of a number or of a word
		}
	}
	return all
}

// Keys are the payloads that the text of a column refers to.
func Keys(text []byte) (keys []Key) {
	for at := 0; ; {
		from, to, key := next(text, at)
		if from < 0 {
			return keys
		}
		keys, at = append(keys, key), to
	}
}

// Whole is the value of a column. It fails if a payload is missing.
func Whole(text []byte, found map[Key][]byte) ([]byte, error) {
	var value []byte
	for at := 0; ; {
		from, to, key := next(text, at)
		switch {
		case from < 0 && at == 0:
			return text, nil
		case from < 0:
			return append(value, text[at:]...), nil
		}
		data, ok := found[key]
		if !ok {
			return nil, fmt.Errorf("the payload %s is missing", key)
		}
		value, at = append(append(value, text[at:from]...), data...), to
	}
}

// next finds the first reference from a place on; from is -1 if there is none.
func next(text []byte, at int) (from, to int, key Key) {
	for {
		found := bytes.Index(text[at:], []byte(opening))
		if found < 0 {
			return -1, 0, key
		}
		from = at + found
		at = from + len(opening)
		length := bytes.Index(text[at:], []byte(closing))
		if length < 0 {
			return -1, 0, key
		}
		if key, ok := parse(text[at : at+length]); ok {
			return from, at + length + len(closing), key
		}
	}
}

// parse reads a key.
func parse(text []byte) (key Key, ok bool) {
	organization, digest, ok := bytes.Cut(text, []byte("/"))
	if !ok || len(digest) != hex.EncodedLen(sha256.Size) {
		return key, false
	}
	var err error
	if key.Organization, err = strconv.ParseInt(string(organization), 10, 64); err != nil {
		return key, false
	}
	_, err = hex.Decode(key.Digest[:], digest)
	return key, err == nil
}

// Refers reports whether the text of a column refers to payloads.
func Refers(text []byte) bool { return bytes.Contains(text, []byte(opening)) }
