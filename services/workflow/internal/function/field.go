package function

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// Type is the type of an argument.
type Type string

// The types.
const (
	Text   Type = "a string"
	Number Type = "a whole number"
	Flag   Type = "true or false"
	Object Type = "an object"
	List   Type = "a list"
	// Texts is an object of strings with any keys.
	Texts Type = "an object of strings"
	// Numbers is an object of whole numbers above zero with any keys.
	Numbers Type = "an object of whole numbers"
	// Free is an object of anything, which another part interprets: a relay passes it on.
	Free Type = "an object of any fields"
	// Any is any value.
	Any Type = "any value"
)

// Field declares an argument, or a field of one. A field that is null is one that is not given.
type Field struct {
	Name string
	// Doc says in the reference what the argument means.
	Doc      string
	Type     Type
	Required bool
	// Empty lets a required string be empty.
	Empty bool
	// Least bounds a number.
	Least int64
	// OneOf are the strings to choose from; none is any.
	OneOf []string
	// Fields are those of an object.
	Fields []Field
	// Element is each of a list's.
	Element *Field
}

// check finds everything that is wrong with the fields of one object. Unknown fields count as wrong: a misspelt
// optional one would otherwise be left out in silence.
func check(fields []Field, args map[string]any, under string) []fault.Field {
	var wrong []fault.Field
	known := map[string]bool{}
	for _, f := range fields {
		known[f.Name] = true
		v, given := args[f.Name]
		switch {
		case v == nil && f.Required:
			found := "missing"
			if given {
				found = "found null"
			}
			wrong = append(wrong, fault.Field{Name: under + f.Name, Problem: found + ", expected " + f.expected()})
		case v != nil:
			wrong = append(wrong, f.check(v, under+f.Name)...)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(args)) {
		if !known[name] {
			wrong = append(wrong, fault.Field{Name: under + name, Problem: "unknown, expected only " + strings.Join(names(fields), ", ")})
		}
	}
	return wrong
}

// check finds what is wrong with one value.
func (f Field) check(v any, at string) []fault.Field {
	// To show a value takes longer than to see that it fits, as most do.
	wrong := func() []fault.Field {
		return []fault.Field{{Name: at, Problem: "found " + describe(v) + ", expected " + f.expected()}}
	}
	switch f.Type {
	case Text:
		s, ok := v.(string)
		if !ok || (s == "" && f.Required && !f.Empty) || (len(f.OneOf) > 0 && !slices.Contains(f.OneOf, s)) {
			return wrong()
		}
	case Number:
		if n, ok := whole(v); !ok || n < f.Least {
			return wrong()
		}
	case Flag:
		if _, ok := v.(bool); !ok {
			return wrong()
		}
	case Object:
		m, ok := v.(map[string]any)
		if !ok {
			return wrong()
		}
		return check(f.Fields, m, at+".")
	case Any:
	case Free:
		if _, ok := v.(map[string]any); !ok {
			return wrong()
		}
	case Texts, Numbers:
		return f.checkMembers(v, at, wrong)
	case List:
		l, ok := v.([]any)
		if !ok {
			return wrong()
		}
		var all []fault.Field
		for i, e := range l {
			all = append(all, f.Element.check(e, fmt.Sprintf("%s[%d]", at, i))...)
		}
		return all
	}
	return nil
}

// checkMembers wants strings, or numbers, under whatever keys there are.
func (f Field) checkMembers(v any, at string, wrong func() []fault.Field) []fault.Field {
	m, ok := v.(map[string]any)
	if !ok {
		return wrong()
	}
	member := Field{Type: Text}
	if f.Type == Numbers {
		member = Field{Type: Number, Least: 1}
	}
	var all []fault.Field
	for _, key := range slices.Sorted(maps.Keys(m)) {
		all = append(all, member.check(m[key], at+"."+key)...)
	}
	return all
}

// expected ends the sentence "found 7, expected …".
func (f Field) expected() string {
	switch {
	case len(f.OneOf) > 0:
		return "one of " + strings.Join(f.OneOf, ", ")
	case f.Type == Text && f.Required && !f.Empty:
		return "a non-empty string"
	case f.Type == Number:
		return fmt.Sprintf("%s of at least %d", Number, f.Least)
	default:
		return string(f.Type)
	}
}

func names(fields []Field) []string {
	all := make([]string, len(fields))
	for i, f := range fields {
		all[i] = f.Name
	}
	return all
}

// whole reads a number as any decoder may have left it. Beyond 2^53 a float is no longer the number that was written,
// and is refused.
func whole(v any) (int64, bool) {
	switch n := v.(type) {
	case int64:
		return n, true
	case int:
		return int64(n), true
	case float64:
		return int64(n), n == math.Trunc(n) && math.Abs(n) < 1<<53
	case json.Number:
		i, err := n.Int64()
		return i, err == nil
	default:
		return 0, false
	}
}

// describe shows a value of the wrong type, briefly.
func describe(v any) string {
	b, err := json.Marshal(v)
	// Long values stay out of the message: it goes into the history.
	if err != nil || len(b) > 80 {
		return fmt.Sprintf("a value of %d characters", len(b))
	}
	return string(b)
}
