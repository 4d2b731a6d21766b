package config

import (
	"encoding"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	yamlparser "github.com/knadh/koanf/parsers/yaml"
)

// mismatch is a value that does not fit its type.
type mismatch struct {
	at              string // path inside the value: "[2].url_prefix"
	found, expected string
}

// convert returns raw as a value of type t. In text layers scalars are text, and lists and maps are YAML or a,b.
func convert(raw any, t reflect.Type, text bool) (reflect.Value, []mismatch) {
	out := reflect.New(t).Elem()
	return out, into(out, raw, text, "")
}

// into sets out to raw.
func into(out reflect.Value, raw any, text bool, at string) []mismatch {
	t := out.Type()
	if raw == nil {
		return nil // an empty value in a file leaves the zero value
	}
	if s, ok := raw.(string); ok && text && !isText(t) {
		parsed, err := parseText(s, t)
		if err != nil {
			return wrong(at, raw, t)
		}
		raw = parsed
	}
	switch {
	case t.Kind() == reflect.Pointer:
		out.Set(reflect.New(t.Elem()))
		return into(out.Elem(), raw, text, at)
	case t == reflect.TypeFor[time.Duration]():
		return intoDuration(out, raw, at)
	case isText(t):
		s, ok := raw.(string)
		u, isUnmarshaler := reflect.TypeAssert[encoding.TextUnmarshaler](out.Addr())
		if !ok || !isUnmarshaler || u.UnmarshalText([]byte(s)) != nil {
			return wrong(at, raw, t)
		}
		return nil
	case t.Kind() == reflect.Slice:
		return intoSlice(out, raw, text, at)
	case t.Kind() == reflect.Map:
		return intoMap(out, raw, text, at)
	case t.Kind() == reflect.Struct:
		return intoStruct(out, raw, text, at)
	default:
		return intoScalar(out, raw, at)
	}
}

// parseText converts the text of a variable or flag to what a YAML file would hold.
func parseText(s string, t reflect.Type) (any, error) {
	switch t.Kind() {
	case reflect.String:
		return s, nil
	case reflect.Slice:
		if trimmed := strings.TrimSpace(s); !strings.HasPrefix(trimmed, "[") && !strings.Contains(s, "\n") {
			return splitList(trimmed, t.Elem()), nil
		}
	default:
		if t == reflect.TypeFor[time.Duration]() {
			return s, nil
		}
	}
	doc, err := yamlparser.Parser().Unmarshal([]byte("value: " + s))
	if strings.Contains(s, "\n") {
		doc, err = yamlparser.Parser().Unmarshal([]byte("value:\n  " + strings.ReplaceAll(s, "\n", "\n  ")))
	}
	if err != nil {
		return nil, fmt.Errorf("parse %q: %w", s, err)
	}
	return doc["value"], nil
}

// splitList splits a,b.
func splitList(s string, element reflect.Type) []any {
	list := []any{}
	if s == "" {
		return list
	}
	for part := range strings.SplitSeq(s, ",") {
		part = strings.TrimSpace(part)
		var item any = part
		if parsed, err := parseText(part, element); err == nil {
			item = parsed
		}
		list = append(list, item)
	}
	return list
}

// intoDuration refuses bare numbers, since 5 could mean seconds or nanoseconds.
func intoDuration(out reflect.Value, raw any, at string) []mismatch {
	s, ok := raw.(string)
	d, err := time.ParseDuration(s)
	if !ok || err != nil {
		return wrong(at, raw, out.Type())
	}
	out.SetInt(int64(d))
	return nil
}

// intoSlice reports every invalid item by its index.
func intoSlice(out reflect.Value, raw any, text bool, at string) []mismatch {
	items, ok := raw.([]any)
	if !ok {
		return wrong(at, raw, out.Type())
	}
	out.Set(reflect.MakeSlice(out.Type(), len(items), len(items)))
	var bad []mismatch
	for i, item := range items {
		bad = append(bad, into(out.Index(i), item, text, fmt.Sprintf("%s[%d]", at, i))...)
	}
	return bad
}

// intoMap reports every invalid value by its key.
func intoMap(out reflect.Value, raw any, text bool, at string) []mismatch {
	m, ok := raw.(map[string]any)
	if !ok || out.Type().Key().Kind() != reflect.String {
		return wrong(at, raw, out.Type())
	}
	out.Set(reflect.MakeMap(out.Type()))
	var bad []mismatch
	for _, k := range slices.Sorted(maps.Keys(m)) {
		v := reflect.New(out.Type().Elem()).Elem()
		bad = append(bad, into(v, m[k], text, at+"."+k)...)
		out.SetMapIndex(reflect.ValueOf(k).Convert(out.Type().Key()), v)
	}
	return bad
}

// intoStruct sets structs inside lists and maps. The schema does not know their keys, so unknown ones are refused here.
func intoStruct(out reflect.Value, raw any, text bool, at string) []mismatch {
	m, ok := raw.(map[string]any)
	if !ok {
		return wrong(at, raw, out.Type())
	}
	s := &schema{leaves: map[string]*leaf{}}
	s.add("", out)
	var bad []mismatch
	s.walk(m, "", func(key string, holder map[string]any, name string) {
		f, known := s.leaves[key]
		if !known {
			bad = append(bad, mismatch{at: at + "." + key, found: "an unknown key", expected: "one of " + strings.Join(s.order, ", ")})
			return
		}
		problems := into(f.target, holder[name], text, at+"."+key)
		for i := range problems {
			if f.secret {
				problems[i].found = "***"
			}
		}
		bad = append(bad, problems...)
	})
	return bad
}

// intoScalar accepts a value only if nothing is lost: no text as a number, no overflow, no fraction as a whole number.
func intoScalar(out reflect.Value, raw any, at string) []mismatch {
	v := reflect.ValueOf(raw)
	switch k := out.Kind(); {
	case k == reflect.String && v.Kind() == reflect.String:
		out.SetString(v.String())
	case k == reflect.Bool && v.Kind() == reflect.Bool:
		out.SetBool(v.Bool())
	case out.CanInt() && v.CanInt() && !out.OverflowInt(v.Int()):
		out.SetInt(v.Int())
	case out.CanUint() && v.CanInt() && v.Int() >= 0 && !out.OverflowUint(uint64(v.Int())):
		out.SetUint(uint64(v.Int()))
	case out.CanUint() && v.CanUint() && !out.OverflowUint(v.Uint()):
		out.SetUint(v.Uint())
	case out.CanFloat() && v.CanFloat() && !math.IsInf(v.Float(), 0):
		out.SetFloat(v.Float())
	case out.CanFloat() && v.CanInt():
		out.SetFloat(float64(v.Int()))
	case k == reflect.Interface && out.NumMethod() == 0:
		out.Set(v)
	default:
		return wrong(at, raw, out.Type())
	}
	return nil
}

// isText reports whether values of t are read and written as text.
func isText(t reflect.Type) bool {
	return reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}

func wrong(at string, raw any, t reflect.Type) []mismatch {
	return []mismatch{{at: at, found: describe(raw), expected: expected(t)}}
}

// describe formats a value for an error message.
func describe(raw any) string {
	switch v := raw.(type) {
	case string:
		if len(v) > 80 {
			v = v[:80] + "…"
		}
		return strconv.Quote(v)
	case map[string]any:
		return "a mapping"
	case []any:
		return "a list"
	default:
		return fmt.Sprint(v)
	}
}

// expected describes a type.
func expected(t reflect.Type) string {
	switch {
	case t == reflect.TypeFor[time.Duration]():
		return "a duration such as 1m30s"
	case t.Kind() == reflect.Pointer:
		return expected(t.Elem())
	case isText(t), t.Kind() == reflect.String:
		return "text"
	case t.Kind() == reflect.Bool:
		return "true or false"
	case t.Kind() == reflect.Slice:
		return "a list, each item " + expected(t.Elem())
	case t.Kind() == reflect.Map, t.Kind() == reflect.Struct:
		return "a mapping"
	case reflect.Zero(t).CanInt():
		return fmt.Sprintf("a whole number of %d bits", t.Bits())
	case reflect.Zero(t).CanUint():
		return fmt.Sprintf("a whole number of %d bits, not negative", t.Bits())
	case reflect.Zero(t).CanFloat():
		return "a number"
	default:
		return t.String()
	}
}
