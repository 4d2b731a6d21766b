package core

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// args reads the arguments of one call and collects all problems.
type args struct {
	values map[string]any
	// known holds the names that were read, which rest compares with the given ones. prefix is the path of an object in front of its
	// members' names. wrong is shared with nested objects, so that one error names everything.
	known  map[string]bool
	prefix string
	wrong  *[]fault.Field
}

// readArgs keeps numbers as written, which distinguishes 1, 1.0 and 10000000000000001.
func readArgs(raw json.RawMessage) (args, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var values map[string]any
	if err := d.Decode(&values); err != nil || values == nil {
		return args{}, fault.InvalidFields(fault.Field{Name: "arguments", Problem: "expected a JSON object"})
	}
	return args{values: values, known: map[string]bool{}, wrong: &[]fault.Field{}}, nil
}

// problem records a problem and continues: the author of a program sees all mistakes at once.
func (a args) problem(name, format string, values ...any) {
	*a.wrong = append(*a.wrong, fault.Field{Name: a.prefix + name, Problem: fmt.Sprintf(format, values...)})
}

// text reads a string argument. A required one must not be empty.
func (a args) text(name string, required bool) string {
	a.known[name] = true
	v, ok := a.values[name]
	if s, isText := v.(string); isText && (s != "" || !required) {
		return s
	}
	switch {
	case v != nil:
		a.problem(name, "found %s, expected a non-empty string", describe(v))
	case required:
		a.problem(name, "%s, expected a non-empty string", absence(ok))
	}
	return ""
}

// dnsName is the shape of Kubernetes names and namespaces (RFC 1123).
var dnsName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.:]*[a-z0-9])?$`)

// name reads the name of an object or a namespace.
func (a args) name(name string, required bool) string {
	s := a.text(name, required)
	if s != "" && (len(s) > 253 || !dnsName.MatchString(s)) {
		a.problem(name, "found %q, expected a Kubernetes name (lower-case letters, digits, '-' and '.')", s)
	}
	return s
}

// number reads a required whole number of at least least.
func (a args) number(name string, least int64) int64 {
	a.known[name] = true
	v, ok := a.values[name]
	if n, isNumber := v.(json.Number); isNumber {
		if i, err := n.Int64(); err == nil && i >= least {
			return i
		}
	}
	if v == nil {
		a.problem(name, "%s, expected a whole number", absence(ok))
	} else {
		a.problem(name, "found %s, expected a whole number of at least %d", describe(v), least)
	}
	return 0
}

// flag reads an optional boolean.
func (a args) flag(name string) bool {
	a.known[name] = true
	v := a.values[name]
	b, isBool := v.(bool)
	if v != nil && !isBool {
		a.problem(name, "found %s, expected true or false", describe(v))
	}
	return b
}

// oneOf reads an optional string of a fixed set; the first is the default.
func (a args) oneOf(name string, allowed ...string) string {
	s := a.text(name, false)
	if s == "" {
		return allowed[0]
	}
	if !slices.Contains(allowed, s) {
		a.problem(name, "found %q, expected one of %s", s, strings.Join(allowed, ", "))
	}
	return s
}

// object reads an optional object of arguments.
func (a args) object(name string) (args, bool) {
	a.known[name] = true
	v := a.values[name]
	m, isObject := v.(map[string]any)
	if v != nil && !isObject {
		a.problem(name, "found %s, expected an object", describe(v))
	}
	return args{values: m, known: map[string]bool{}, prefix: a.prefix + name + ".", wrong: a.wrong}, isObject
}

// rest refuses every argument that was not read: a misspelt optional argument must not pass unnoticed.
func (a args) rest() {
	for _, name := range slices.Sorted(maps.Keys(a.values)) {
		if !a.known[name] {
			a.problem(name, "unknown; expected only %s", strings.Join(slices.Sorted(maps.Keys(a.known)), ", "))
		}
	}
}

// err returns all problems as one Invalid error.
func (a args) err() error {
	if len(*a.wrong) == 0 {
		return nil
	}
	return fault.InvalidFields(*a.wrong...)
}

// absence distinguishes null, which a program may have computed, from a missing argument.
func absence(present bool) string {
	if present {
		return "found null"
	}
	return "missing"
}

// describe shows a value of the wrong type, briefly.
func describe(v any) string {
	b, err := json.Marshal(v)
	if err != nil || len(b) > 80 {
		return fmt.Sprintf("a value of type %T", v)
	}
	return string(b)
}
