package trial

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// placeholder is a name between ${ and }; one with another $ before it stands for itself. Names in capitals are left alone: they are
// variables of shells.
var placeholder = regexp.MustCompile(`\$?\$\{([a-z]+(?::[a-z0-9-]+)?)\}`)

// fill replaces the placeholders of all texts in a value. Names of members stay as they are.
func fill[T any](value T, texts map[string]string) (filled T, err error) {
	plain, err := plainOf(value)
	if err != nil {
		return filled, err
	}
	encoded, err := json.Marshal(replaced(plain, func(found, name string) string {
		if text, ok := texts[name]; ok {
			return text
		}
		return found
	}))
	if err == nil {
		err = json.Unmarshal(encoded, &filled)
	}
	if err != nil {
		return filled, fmt.Errorf("fill in placeholders: %w", err)
	}
	return filled, nil
}

// plainOf is a value as JSON has it.
func plainOf(value any) (plain any, err error) {
	encoded, err := json.Marshal(value)
	if err == nil {
		err = json.Unmarshal(encoded, &plain)
	}
	if err != nil {
		return nil, fmt.Errorf("fill in placeholders: %w", err)
	}
	return plain, nil
}

// replaced is a value whose placeholders are those that replace returns.
func replaced(value any, replace func(found, name string) string) any {
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
			v[i] = replaced(v[i], replace)
		}
	case map[string]any:
		for name := range v {
			v[name] = replaced(v[name], replace)
		}
	}
	return value
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
	look := func(at string, value any, known map[string]string) {
		plain, _ := plainOf(value) // never fails: it was read from JSON
		replaced(plain, func(found, name string) string {
			if _, ok := known[name]; !ok {
				wrong = append(wrong, fault.Field{Name: at, Problem: fmt.Sprintf("found %s, expected one of %s; $%s stands for itself", found,
					strings.Join(slices.Sorted(maps.Keys(known)), ", "), found)})
			}
			return found
		})
	}
	look("objects", c.Objects, first)
	for _, name := range slices.Sorted(maps.Keys(c.Files)) {
		look("files."+name, c.Files[name], first)
	}
	look("environment", c.Environment, first)
	look("application", c.Application, first)
	look("pipeline", c.Pipeline, first)
	for i, r := range c.Rollouts {
		look(fmt.Sprintf("rollouts.%d.expect", i), r.Expect, after)
	}
	return wrong
}
