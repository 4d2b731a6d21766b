package trial

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

// anyPlaceholder is any text between ${ and }; one with another $ before it stands for itself. Files of the repository have placeholders of
// filePlaceholder alone: all others may be variables of shells.
var (
	anyPlaceholder  = regexp.MustCompile(`\$?\$\{([^{}]*)\}`)
	filePlaceholder = regexp.MustCompile(`\$?\$\{([a-z]+(?::[a-z0-9-]+)?)\}`)
)

// fill replaces the placeholders of all texts in a value. Names of members stay as they are.
func fill[T any](value T, texts map[string]string) (T, error) {
	return filled(value, anyPlaceholder, texts)
}

// fillFiles is fill for files of the repository.
func fillFiles(files, texts map[string]string) (map[string]string, error) {
	return filled(files, filePlaceholder, texts)
}

func filled[T any](value T, placeholder *regexp.Regexp, texts map[string]string) (out T, err error) {
	plain, err := plainOf(value)
	if err != nil {
		return out, err
	}
	encoded, err := json.Marshal(replaced(plain, placeholder, func(found, name string) string {
		if text, ok := texts[name]; ok {
			return text
		}
		return found
	}))
	if err == nil {
		err = decode(encoded, &out)
	}
	if err != nil {
		return out, fmt.Errorf("fill in placeholders: %w", err)
	}
	return out, nil
}

// plainOf is a value as JSON has it.
func plainOf(value any) (plain any, err error) {
	encoded, err := json.Marshal(value)
	if err == nil {
		err = decode(encoded, &plain)
	}
	if err != nil {
		return nil, fmt.Errorf("fill in placeholders: %w", err)
	}
	return plain, nil
}

// decode keeps numbers as they are written: those of an object may be larger than a float64 has digits for.
func decode(encoded []byte, to any) error {
	decoder := json.NewDecoder(bytes.NewReader(encoded))
	decoder.UseNumber()
	return decoder.Decode(to)
}

// replaced is a value whose placeholders are those that replace returns.
func replaced(value any, placeholder *regexp.Regexp, replace func(found, name string) string) any {
	switch v := value.(type) {
	case string:
		return placeholder.ReplaceAllStringFunc(v, func(found string) string {
			if strings.HasPrefix(found, "$$") {
				return found[1:]
			}
			return replace(found, found[len("${"):len(found)-1])
		})
	case []any:
		for i := range v {
			v[i] = replaced(v[i], placeholder, replace)
		}
	case map[string]any:
		for name := range v {
			v[name] = replaced(v[name], placeholder, replace)
		}
	}
	return value
}

// namesWithPlaceholders are the names of members in a value, at any depth, in which nothing would be filled in.
func namesWithPlaceholders(value any) []string {
	var names []string
	switch v := value.(type) {
	case []any:
		for _, each := range v {
			names = append(names, namesWithPlaceholders(each)...)
		}
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			if anyPlaceholder.MatchString(name) {
				names = append(names, name)
			}
			names = append(names, namesWithPlaceholders(v[name])...)
		}
	}
	return names
}

// given are the placeholders of a case, with what stands for them at an application.
func (c Case) given(application, repository, registry string) map[string]string {
	texts := map[string]string{
		"application": application, "environment": application, "namespace": application, "repository": repository, "registry": registry,
	}
	for _, service := range c.Services {
		texts["image:"+service] = registry + "/" + application + "/" + service
	}
	return texts
}

// unknownPlaceholders are those that nothing stands for. The digests of the images are known once they are pushed.
func (c Case) unknownPlaceholders() []fault.Field {
	first := c.given("", "", "")
	after := maps.Clone(first)
	for _, service := range c.Services {
		after["digest:"+service] = ""
	}
	var wrong []fault.Field
	lookFor := func(placeholder *regexp.Regexp, at string, value any, known map[string]string) {
		plain, _ := plainOf(value) // never fails: it was read from JSON
		for _, name := range namesWithPlaceholders(plain) {
			wrong = append(wrong, fault.Field{
				Name: at, Problem: fmt.Sprintf("found a placeholder in the name %q, expected placeholders in texts only", name),
			})
		}
		replaced(plain, placeholder, func(found, name string) string {
			if _, ok := known[name]; !ok {
				wrong = append(wrong, fault.Field{Name: at, Problem: fmt.Sprintf("found %s, expected one of %s; $%s stands for itself", found,
					strings.Join(slices.Sorted(maps.Keys(known)), ", "), found)})
			}
			return found
		})
	}
	look := func(at string, value any, known map[string]string) { lookFor(anyPlaceholder, at, value, known) }
	look("objects", c.Objects, first)
	for _, name := range slices.Sorted(maps.Keys(c.Files)) {
		lookFor(filePlaceholder, "files."+name, c.Files[name], first)
	}
	look("environment", c.Environment, first)
	look("application", c.Application, first)
	look("pipeline", c.Pipeline, first)
	for i, r := range c.Rollouts {
		look(fmt.Sprintf("rollouts.%d.expect", i), r.Expect, after)
	}
	return wrong
}
