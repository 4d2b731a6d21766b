package config

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"unicode"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// schema describes the keys of a configuration struct.
type schema struct {
	order  []string
	leaves map[string]*leaf
	// checked holds the values that fit their fields. The layers are merged with indexes into it in place of the values, because the merge
	// would descend into maps and copy their content.
	checked []reflect.Value
}

// checkedValue is an index into schema.checked.
type checkedValue int

// leaf is one key that holds a value.
type leaf struct {
	key      string
	target   reflect.Value
	secret   bool
	fallback string
}

// schemaOf returns the schema of the struct that target points to. It panics on another kind of value, as reflect would.
func schemaOf(target any) *schema {
	s := &schema{leaves: map[string]*leaf{}}
	s.add("", reflect.ValueOf(target).Elem())
	return s
}

// add adds the fields of a struct, whose keys begin with under. A nested struct adds its own keys, unless it is written as one text (times,
// addresses).
func (s *schema) add(under string, v reflect.Value) {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if !f.IsExported() {
			continue
		}
		if f.Anonymous && f.Type.Kind() == reflect.Struct {
			s.add(under, v.Field(i))
			continue
		}
		name := keyName(f)
		if name == "-" {
			continue
		}
		key := under + name
		if f.Type.Kind() == reflect.Struct && !isText(f.Type) {
			s.add(key+".", v.Field(i))
			continue
		}
		s.order = append(s.order, key)
		s.leaves[key] = &leaf{
			key: key, target: v.Field(i), secret: f.Tag.Get("secret") == "true", fallback: f.Tag.Get("default"),
		}
	}
}

// keyName returns the key of a struct field.
func keyName(f reflect.StructField) string {
	for _, tag := range []string{"koanf", "yaml"} {
		if name, _, _ := strings.Cut(f.Tag.Get(tag), ","); name != "" {
			return name
		}
	}
	return snake(f.Name)
}

// snake converts a Go name to snake_case: DatabaseURL to database_url, and NATSURL, two initialisms in a row, to nats_url.
func snake(name string) string {
	var b strings.Builder
	runes := []rune(strings.NewReplacer("NATS", "Nats", "URL", "Url").Replace(name))
	for i, r := range runes {
		lowerBefore := i > 0 && !unicode.IsUpper(runes[i-1])
		wordBegins := i > 0 && i+1 < len(runes) && unicode.IsLower(runes[i+1])
		if unicode.IsUpper(r) && (lowerBefore || wordBegins) {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

// defaults returns the lowest layer: the default tags, which are text like everything an operator writes.
func (s *schema) defaults() layer {
	l := layer{name: "default", values: map[string]any{}, text: true}
	for _, f := range s.leaves {
		if f.fallback != "" {
			put(l.values, f.key, f.fallback)
		}
	}
	return l
}

// check converts the values of l to the types of their fields, and reports values that do not fit and keys that do not exist.
func (s *schema) check(l layer) []fault.Field {
	var problems []fault.Field
	s.walk(l.values, "", func(key string, holder map[string]any, name string) {
		f, known := s.leaves[key]
		if !known {
			problems = append(problems, fault.Field{Name: key, Problem: fmt.Sprintf("unknown key in %s; %s", l.origin(key), s.suggest(key))})
			return
		}
		v, mismatches := convert(holder[name], f.target.Type(), l.text)
		for _, m := range mismatches {
			found := m.found
			if f.secret {
				found = "***"
			}
			problems = append(problems, fault.Field{
				Name:    key + m.at,
				Problem: fmt.Sprintf("found %s in %s, expected %s", found, l.origin(key), m.expected),
			})
		}
		if len(mismatches) == 0 {
			holder[name] = checkedValue(len(s.checked))
			s.checked = append(s.checked, v)
		}
	})
	slices.SortFunc(problems, func(a, b fault.Field) int { return cmp.Compare(a.Name, b.Name) })
	return problems
}

// assign sets the fields to the checked values.
func (s *schema) assign(values map[string]any) {
	s.walk(values, "", func(key string, holder map[string]any, name string) {
		if i, ok := holder[name].(checkedValue); ok {
			s.leaves[key].target.Set(s.checked[i])
		}
	})
}

// walk calls fn for every key of values that holds a value or is unknown.
func (s *schema) walk(values map[string]any, under string, fn func(key string, holder map[string]any, name string)) {
	for _, name := range slices.Sorted(maps.Keys(values)) {
		key := under + name
		inner, isMap := values[name].(map[string]any)
		if _, known := s.leaves[key]; !known && isMap && s.hasUnder(key+".") {
			s.walk(inner, key+".", fn)
			continue
		}
		fn(key, values, name)
	}
}

func (s *schema) hasUnder(prefix string) bool {
	return slices.ContainsFunc(s.order, func(key string) bool { return strings.HasPrefix(key, prefix) })
}

// put sets a dotted key in nested maps. A key that leads through a plain value stays whole and is refused as unknown.
func put(values map[string]any, key string, value any) {
	parts := strings.Split(key, ".")
	m := values
	for _, p := range parts[:len(parts)-1] {
		if m[p] == nil {
			m[p] = map[string]any{}
		}
		inner, ok := m[p].(map[string]any)
		if !ok {
			values[key] = value
			return
		}
		m = inner
	}
	m[parts[len(parts)-1]] = value
}

// usage returns the text of --help.
func (s *schema) usage(service string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "usage: %s [--config FILE] [--set key=value]...\n\nkeys, with their environment variables:\n", service)
	for _, key := range s.order {
		f := s.leaves[key]
		fmt.Fprintf(&b, "  %-24s %s  %s", key, variable(service, key), expected(f.target.Type()))
		if f.fallback != "" {
			fmt.Fprintf(&b, ", default %s", f.fallback)
		}
		b.WriteByte('\n')
	}
	return strings.TrimRight(b.String(), "\n")
}
