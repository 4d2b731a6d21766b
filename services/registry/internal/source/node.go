package source

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/registry/internal/core"
)

// node is an object in a delivery, with its path. A missing object has no fields and no problem: core reports the fields that are missing
// in the end.
type node struct {
	problems *reader
	path     string
	fields   map[string]json.RawMessage
}

// open parses a body as an object.
func open(body []byte) (node, error) { return openWithin(body, maxItems, maxValues) }

// openPush is open for pushes reported by forges, which may be large.
func openPush(body []byte) (node, error) { return openWithin(body, maxPushItems, maxPushValues) }

func openWithin(body []byte, items, values int) (node, error) {
	if err := checkWithin(body, items, values); err != nil {
		return node{}, err
	}
	fields, err := object("body", body)
	if err != nil {
		return node{}, err
	}
	return node{problems: &reader{}, fields: fields}, nil
}

// name returns the path of a field.
func (n node) name(key string) string { return n.path + key }

func (n node) has(key string) bool {
	raw, ok := n.fields[key]
	return ok && kind(raw) != "null"
}

// text returns the string at key.
func (n node) text(key string) string { return n.problems.text(n.fields, n.path, key) }

// number returns the whole number at key, or in the string there: senders differ, even among their own versions.
func (n node) number(key string) (int64, bool) {
	if !n.has(key) {
		return 0, false
	}
	raw := strings.Trim(string(n.fields[key]), `"`)
	i, err := strconv.ParseInt(raw, 10, 64)
	if err == nil {
		return i, true
	}
	// Within the range that a float holds exactly; beyond, int64(f) is undefined.
	if f, err := strconv.ParseFloat(raw, 64); err == nil && f > -1e15 && f < 1e15 {
		return int64(f), true // 1.417566822e+09
	}
	n.wrong(key, "a number")
	return 0, false
}

// flag returns the boolean at key; false without one.
func (n node) flag(key string) bool { return n.has(key) && string(n.fields[key]) == "true" }

// in returns the object at key.
func (n node) in(key string) node {
	out := node{problems: n.problems, path: n.path + key + "."}
	if !n.has(key) {
		return out
	}
	fields, err := object(n.name(key), n.fields[key])
	if err != nil {
		n.problems.problems = append(n.problems.problems, fault.FieldsOf(err)...)
		return out
	}
	out.fields = fields
	return out
}

// list returns the array at key, as raw values.
func (n node) list(key string) []json.RawMessage {
	if !n.has(key) {
		return nil
	}
	var items []json.RawMessage
	if kind(n.fields[key]) != "an array" || json.Unmarshal(n.fields[key], &items) != nil {
		n.wrong(key, "an array")
		return nil
	}
	return items
}

// objects returns the array of objects at key.
func (n node) objects(key string) []node {
	items := n.list(key)
	out := make([]node, 0, len(items))
	for i, raw := range items {
		at := fmt.Sprintf("%s[%d]", n.name(key), i)
		fields, err := object(at, raw)
		if err != nil {
			n.problems.problems = append(n.problems.problems, fault.FieldsOf(err)...)
			continue
		}
		out = append(out, node{problems: n.problems, path: at + ".", fields: fields})
	}
	return out
}

// keys returns the keys of the object, in order.
func (n node) keys() []string { return slices.Sorted(maps.Keys(n.fields)) }

func (n node) wrong(key, expected string) {
	n.problems.problems = append(n.problems.problems, fault.Field{Name: n.name(key), Problem: found(n.fields[key]) + "; expected " + expected})
}

// require records that a field is missing.
func (n node) require(key, expected string) {
	if !n.has(key) {
		n.wrong(key, expected)
	}
}

func (n node) err() error { return n.problems.err() }

// alone returns n with problems of its own, so that one item of a list does not spoil the others.
func (n node) alone() node {
	n.problems = &reader{}
	return n
}

// single returns the notification of a format with one per delivery, if it has no problems.
func single(n core.Notification, err error) ([]core.Notification, error) {
	if err != nil {
		return nil, err
	}
	return []core.Notification{n}, nil
}

// indexed returns the prefix of the i-th item of a list, for messages; empty outside a list.
func indexed(prefix string, i int) string {
	if prefix == "" {
		return ""
	}
	return fmt.Sprintf(prefix, i)
}

// split splits the host off a reference, which always has one.
func split(reference string) (place, rest string) {
	place, rest, ok := strings.Cut(reference, "/")
	if !ok {
		return "", reference
	}
	return place, rest
}

// stamp converts a vendor's time to RFC 3339; empty if it is malformed, because a date does not justify a refusal.
func stamp(s string) string {
	// The second layout is that of Nexus, whose offset has no colon. RFC 3339 has years of four digits.
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05.000-0700", "2006-01-02 15:04:05 MST"} {
		if t, err := time.Parse(layout, s); err == nil && t.Year() > 0 && t.Year() < 10000 {
			return t.UTC().Format(time.RFC3339Nano)
		}
	}
	return ""
}

// seconds returns a time given in seconds since 1970.
func (n node) seconds(key string) string {
	const year10000 = 253402300800
	s, ok := n.number(key)
	if !ok || s <= 0 || s >= year10000 {
		return ""
	}
	return time.Unix(s, 0).UTC().Format(time.RFC3339)
}

// splitReference splits host/path:tag@digest. The tag and the digest may both be missing. A colon before the last slash belongs to a port.
func splitReference(reference string) (image, tag, digest string) {
	image, digest, _ = strings.Cut(reference, "@")
	if at := strings.LastIndexByte(image, ':'); at > strings.LastIndexByte(image, '/') {
		image, tag = image[:at], image[at+1:]
	}
	return image, tag, digest
}

// isDigest reports whether a digest is in place of a tag.
func isDigest(tag string) bool {
	return strings.HasPrefix(tag, "sha256:") || strings.HasPrefix(tag, "sha512:")
}

// dropScheme removes https://, which some senders put before an image.
func dropScheme(s string) string {
	s = strings.TrimPrefix(strings.TrimPrefix(s, "https://"), "http://")
	return strings.TrimSuffix(s, "/")
}
