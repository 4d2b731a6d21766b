package script

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.starlark.net/starlark"

	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
)

// maxTypes bounds the types of one wait. Each is a row and a look-up of its own.
const maxTypes = 32

// eventTypes reads a type or a list of types, for the builtin of that name.
func eventTypes(name string, v starlark.Value) ([]string, error) {
	var types []string
	switch v := v.(type) {
	case starlark.String:
		types = []string{string(v)}
	case starlark.Iterable:
		for item := range starlark.Elements(v) {
			s, ok := starlark.AsString(item)
			if !ok {
				return nil, fmt.Errorf("%s: type holds a %s, expected strings", name, item.Type())
			}
			types = append(types, s)
		}
	default:
		return nil, fmt.Errorf("%s: type is a %s, expected a string or a list of strings", name, v.Type())
	}
	empty := fmt.Errorf("%s: type is empty, expected an event type or a list of them", name)
	if len(types) == 0 {
		return nil, empty
	}
	if len(types) > maxTypes {
		return nil, fmt.Errorf("%s: type holds %d types, expected at most %d", name, len(types), maxTypes)
	}
	for _, t := range types {
		if t == "" {
			return nil, empty
		}
		if err := checkName(name+": type", t); err != nil {
			return nil, err
		}
	}
	return types, nil
}

// maxName bounds the names of functions, event types and filter paths, in bytes.
const maxName = 255

// checkName refuses names that could neither be stored nor be meant.
func checkName(what, name string) error {
	if len(name) > maxName || !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl) {
		return fmt.Errorf("%s is %.300q, expected at most %d bytes of text without control characters", what, name, maxName)
	}
	return nil
}

// joinTypes is the name of a wait in its history.
func joinTypes(types []string) string { return strings.Join(types, ",") }

// flatten reads a filter for the first time, or again: one that nothing or anything would match is refused unless it was recorded.
func (b *branch) flatten(into history.Filter, filter starlark.Value) error {
	err := flatten(into, "", filter)
	if err != nil || b.machine.replaying() {
		return err
	}
	return matchable(into, filter)
}

// filters reads what events of single types must have besides the filter of the wait.
func (b *branch) filters(types []string, common history.Filter, each starlark.Value) (map[string]history.Filter, error) {
	if each == nil {
		return nil, nil
	}
	mapping, ok := each.(starlark.IterableMapping)
	if !ok {
		return nil, fmt.Errorf("filters is a %s, expected a dict of event types and filters", each.Type())
	}
	all := map[string]history.Filter{}
	for _, item := range mapping.Items() {
		name, _ := starlark.AsString(item[0])
		if !slices.Contains(types, name) {
			return nil, fmt.Errorf("filters has the key %s, expected one of the types that are waited for", item[0])
		}
		of := history.Filter{}
		if err := b.flatten(of, item[1]); err != nil {
			return nil, fmt.Errorf("filters of %s: %w", name, err)
		}
		for _, path := range of.Paths() {
			if _, twice := common[path]; twice {
				return nil, fmt.Errorf("filters of %s has %s, which filter has for all types", name, path)
			}
		}
		if len(of) > 0 {
			all[name] = of
		}
	}
	return all, nil
}

// matchable refuses a filter that does not say what was meant: values that no event can have, a path that is given twice, and a
// dict with nothing in it, which would let every event pass. flat is the same filter, flattened.
func matchable(flat history.Filter, filter starlark.Value) error {
	leaves := 0
	var look func(under string, v starlark.Value) error
	look = func(under string, v starlark.Value) error {
		mapping, ok := v.(starlark.IterableMapping)
		if !ok {
			leaves++
			return possible(under, v)
		}
		items := mapping.Items()
		if len(items) == 0 && under != "" {
			return fmt.Errorf("filter%s is an empty dict, expected what it must have", under)
		}
		for _, item := range items {
			name, _ := starlark.AsString(item[0])
			if err := look(under+"."+name, item[1]); err != nil {
				return err
			}
		}
		return nil
	}
	if err := look("", filter); err != nil {
		return err
	}
	if leaves != len(flat) {
		return fmt.Errorf("filter has %d values for %d paths: one is given both nested and dotted", leaves, len(flat))
	}
	return nil
}

// possible refuses scalars that JSON cannot say.
func possible(at string, v starlark.Value) error {
	switch v := v.(type) {
	case starlark.Float:
		if f := float64(v); math.IsNaN(f) || math.IsInf(f, 0) {
			return fmt.Errorf("filter%s is %v, which no event can have", at, f)
		}
	case starlark.String:
		if !utf8.ValidString(string(v)) {
			return fmt.Errorf("filter%s is a string that is not UTF-8, which no event can have", at)
		}
	}
	return nil
}

// flatten turns nested dicts into dotted paths with canonical values.
func flatten(into history.Filter, prefix string, v starlark.Value) error {
	mapping, ok := v.(starlark.IterableMapping)
	if !ok {
		return fmt.Errorf("filter%s is a %s, expected a dict", prefix, v.Type())
	}
	for _, item := range mapping.Items() {
		name, ok := starlark.AsString(item[0])
		if !ok || name == "" {
			return fmt.Errorf("filter%s has the key %s, expected a name", prefix, item[0])
		}
		path := strings.TrimPrefix(prefix+"."+name, ".")
		if err := checkName("filter", path); err != nil {
			return err
		}
		if _, nested := item[1].(starlark.IterableMapping); nested {
			if err := flatten(into, "."+path, item[1]); err != nil {
				return err
			}
			continue
		}
		value, err := scalar(item[1])
		if err != nil {
			return fmt.Errorf("filter.%s %w", path, err)
		}
		into[path] = value
	}
	return nil
}

// scalar writes a value as history.Project will find it in events. The two have to agree, or the wait never ends.
func scalar(v starlark.Value) (string, error) {
	var plain any
	switch v := v.(type) {
	case starlark.NoneType:
	case starlark.Bool:
		plain = bool(v)
	case starlark.String:
		plain = string(v)
	case starlark.Int:
		plain = v.BigInt()
	case starlark.Float:
		plain = float64(v)
	default:
		return "", fmt.Errorf("is a %s, expected a string, number, bool or None", v.Type())
	}
	s, _ := history.Scalar(plain) // every type above is a scalar
	return s, nil
}
