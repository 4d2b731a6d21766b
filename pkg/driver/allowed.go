package driver

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/pattern"
	"github.com/lockstep-cd/lockstep/pkg/schema"
)

// allowedBy is the keyword that lets the environment restrict a field of an application's config: its value names the field of the
// environment's config that lists the allowed patterns. An absent or empty list allows everything.
func allowedBy() schema.Vocabulary {
	return schema.Vocabulary{Keyword: "allowedBy", Schema: `{"type":"string","minLength":1,"maxLength":255}`}
}

// credentialKind is the keyword for the name of a credential: what kind of credential it is, or which kinds, so that a form offers those
// alone. Whether a program may use the one that is named is decided where it is used.
func credentialKind() schema.Vocabulary {
	return schema.Vocabulary{Keyword: "credentialKind", Schema: `{"anyOf":[{"enum":["git","http","registry"]},` +
		`{"type":"array","minItems":1,"uniqueItems":true,"items":{"enum":["git","http","registry"]}}]}`}
}

// CheckAllowed checks an application's config, which has passed its schema, against what the environment's config allows. The error is
// Invalid, with one field for each finding.
func (b *Bundle) CheckAllowed(environment, config json.RawMessage) error {
	var form limited
	var limits, given map[string]any
	for _, d := range []struct {
		text []byte
		into any
	}{{b.files[b.manifest.ApplicationEnvironmentSchema], &form}, {environment, &limits}, {config, &given}} {
		if err := json.Unmarshal(d.text, d.into); err != nil {
			return fault.Because(err, fault.Invalid, "driver %s: not JSON objects", b.Ref())
		}
	}
	if wrong := form.check(limits, given); len(wrong) > 0 {
		return fault.InvalidFields(wrong...)
	}
	return nil
}

// limited is a schema with what it says of limits: of its own value, and of those of its properties.
type limited struct {
	AllowedBy  string             `json:"allowedBy"`
	Default    any                `json:"default"`
	Properties map[string]limited `json:"properties"`
}

// UnmarshalJSON reads a schema; one that is true or false says nothing of limits.
func (l *limited) UnmarshalJSON(text []byte) error {
	if string(text) == "true" || string(text) == "false" {
		return nil
	}
	type plain limited
	return json.Unmarshal(text, (*plain)(l))
}

// check compares the properties of a value with the limits. What is absent, and has no default, uses nothing.
func (l limited) check(limits, given map[string]any, at ...string) (wrong []fault.Field) {
	for _, name := range slices.Sorted(maps.Keys(l.Properties)) {
		property, path := l.Properties[name], append(slices.Clone(at), name)
		found, exists := given[name]
		if !exists {
			found = property.Default
		}
		if inner, isObject := found.(map[string]any); isObject {
			wrong = append(wrong, property.check(limits, inner, path...)...)
		}
		list := patternsOf(limits[property.AllowedBy])
		if property.AllowedBy == "" || len(list) == 0 || found == nil {
			continue
		}
		value, isText := found.(string)
		if !isText || !pattern.Allows(list, value) {
			wrong = append(wrong, fault.Field{Name: schema.Pointer(path...), Problem: fmt.Sprintf(
				"found %q; expected one that the environment allows (%s: %s)", value, property.AllowedBy, strings.Join(list, ", "))})
		}
	}
	return wrong
}

// count is how many fields are limited.
func (l limited) count() (n int) {
	for _, property := range l.Properties {
		n += property.count()
		if property.AllowedBy != "" {
			n++
		}
	}
	return n
}

// checkLimited refuses a schema that limits what CheckAllowed does not find: it follows properties of objects, and nothing else.
func checkLimited(name string, text []byte) error {
	var form limited
	if err := json.Unmarshal(text, &form); err != nil {
		return located(name, text, err)
	}
	var whole any
	if err := json.Unmarshal(text, &whole); err != nil {
		return located(name, text, err)
	}
	if all := countLimits(whole, false); all != form.count() {
		return fault.New(fault.Invalid, "%s: found allowedBy where it is not enforced; expected it only at properties of the schema, and at properties of those", name)
	}
	return nil
}

// countLimits is how many schemas in a value have the keyword. The names in a set of properties are no keywords, and neither is what is in
// examples, defaults and constants.
func countLimits(value any, names bool) (n int) {
	switch v := value.(type) {
	case []any:
		for _, item := range v {
			n += countLimits(item, false)
		}
	case map[string]any:
		for key, inner := range v {
			if !names && key == "allowedBy" {
				n++
			}
			if !names && slices.Contains([]string{"default", "const", "enum", "examples"}, key) {
				continue
			}
			n += countLimits(inner, !names && slices.Contains([]string{"properties", "patternProperties", "$defs", "dependentSchemas"}, key))
		}
	}
	return n
}

// CheckNamespace checks the namespace of a job of a runbook, which has no config, against what the environment's config allows for the
// namespace that an application's config names: the one that the manifest declares as a place. The error is Invalid.
func (b *Bundle) CheckNamespace(environment json.RawMessage, namespace string) error {
	for _, place := range b.manifest.Places {
		name, ofConfig := place.configNamespace()
		if !ofConfig {
			continue
		}
		config, err := json.Marshal(map[string]string{name: namespace})
		if err != nil {
			return fmt.Errorf("write the namespace %q: %w", namespace, err)
		}
		found := slices.DeleteFunc(slices.Clone(fault.FieldsOf(b.CheckAllowed(environment, config))), func(f fault.Field) bool {
			return f.Name != schema.Pointer(name)
		})
		if len(found) > 0 {
			return fault.New(fault.Invalid, "%s", found[0].Problem)
		}
	}
	return nil
}

// patternsOf returns the patterns of a list in an environment's config.
func patternsOf(v any) []string {
	items, _ := v.([]any)
	list := make([]string, 0, len(items))
	for _, item := range items {
		if s, isText := item.(string); isText {
			list = append(list, s)
		}
	}
	return list
}
