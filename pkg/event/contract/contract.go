// Package contract reports which changes of the events' schemas break services of the release before, which run beside the new ones during
// an upgrade: those send events of the old schema, and receive events of the new one. It judges nothing else.
package contract

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/schema"
)

// Catalogue is what a release says about its events, by type.
type Catalogue struct {
	// Schemas are the texts of the JSON Schemas, and Examples events that are valid under them, as CloudEvents.
	Schemas, Examples map[string][]byte
}

// Load reads a catalogue from a folder as pkg/event: schemas in schema, examples in testdata.
func Load(folder string) (c Catalogue, err error) {
	if c.Schemas, err = files(filepath.Join(folder, "schema")); err != nil {
		return c, err
	}
	if len(c.Schemas) == 0 {
		return c, fmt.Errorf("found no schema in %s", folder)
	}
	c.Examples, err = files(filepath.Join(folder, "testdata"))
	return c, err
}

// files are those of a folder that are named after a type.
func files(folder string) (map[string][]byte, error) {
	paths, err := filepath.Glob(filepath.Join(folder, "com.gitlab.cd.*.json"))
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", folder, err)
	}
	all := map[string][]byte{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", path, err)
		}
		all[strings.TrimSuffix(filepath.Base(path), ".json")] = text
	}
	return all, nil
}

// Breaking are the changes from one catalogue to a later one that break services of either release, a sentence each:
//   - a type, a field, or a value of an enumeration that is gone, or a field of another type: what receives it relies on it;
//   - a field that is required and was not: events of the earlier release, also those that are still in a stream, lack it;
//   - an example of either release that is not valid under the schema of the other one.
func Breaking(before, after Catalogue) ([]string, error) {
	var found []string
	for _, name := range slices.Sorted(maps.Keys(before.Schemas)) {
		text, has := after.Schemas[name]
		if !has {
			found = append(found, name+": the type is gone")
			continue
		}
		var was, is node
		if err := json.Unmarshal(before.Schemas[name], &was); err != nil {
			return nil, fmt.Errorf("schema of %s before: %w", name, err)
		}
		if err := json.Unmarshal(text, &is); err != nil {
			return nil, fmt.Errorf("schema of %s after: %w", name, err)
		}
		found = append(found, changes(name, was, is)...)
	}
	earlier, err := invalid(before.Examples, after.Schemas, "the example before")
	if err != nil {
		return nil, err
	}
	later, err := invalid(after.Examples, before.Schemas, "today's example")
	return append(append(found, earlier...), later...), err
}

// node is what is compared of a schema.
type node struct {
	Type       any             `json:"type"`
	Properties map[string]node `json:"properties"`
	Required   []string        `json:"required"`
	Items      *node           `json:"items"`
	Enum       []any           `json:"enum"`
}

// changes are those that are breaking at a place of a schema and below it.
func changes(at string, was, is node) []string {
	var found []string
	if fmt.Sprint(was.Type) != fmt.Sprint(is.Type) {
		return append(found, fmt.Sprintf("%s: found type %v; expected %v as before", at, is.Type, was.Type))
	}
	for _, value := range was.Enum {
		if len(is.Enum) > 0 && !slices.Contains(is.Enum, value) {
			found = append(found, fmt.Sprintf("%s: the value %v is gone", at, value))
		}
	}
	for _, name := range is.Required {
		if !slices.Contains(was.Required, name) {
			found = append(found, fmt.Sprintf("%s.%s: required now, and it was not", at, name))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(was.Properties)) {
		field, has := is.Properties[name]
		if !has {
			found = append(found, fmt.Sprintf("%s.%s: the field is gone", at, name))
			continue
		}
		found = append(found, changes(at+"."+name, was.Properties[name], field)...)
	}
	if was.Items != nil && is.Items != nil {
		found = append(found, changes(at+"[]", *was.Items, *is.Items)...)
	}
	return found
}

// invalid are the examples whose data is not valid under the schemas of another release. Types that it does not have are left out.
func invalid(examples, schemas map[string][]byte, which string) ([]string, error) {
	var found []string
	for _, name := range slices.Sorted(maps.Keys(examples)) {
		text, has := schemas[name]
		if !has {
			continue
		}
		compiled, err := schema.Compile(text)
		if err != nil {
			return nil, fmt.Errorf("schema of %s: %w", name, err)
		}
		var e struct {
			Data json.RawMessage `json:"data"`
		}
		if err := json.Unmarshal(examples[name], &e); err != nil {
			return nil, fmt.Errorf("example of %s: %w", name, err)
		}
		if err := compiled.Validate(e.Data); err != nil {
			found = append(found, fmt.Sprintf("%s: %s is not valid under the other release's schema: %v", name, which, err))
		}
	}
	return found, nil
}
