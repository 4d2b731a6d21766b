package driver

import (
	"cmp"
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

// CheckAllowed checks an application's config, which has passed its schema, against what the environment's config allows. The error is
// Invalid, with one field for each finding.
func (b *Bundle) CheckAllowed(environment, config json.RawMessage) error {
	var form struct {
		Properties map[string]struct {
			AllowedBy string `json:"allowedBy"`
			Default   any    `json:"default"`
		} `json:"properties"`
	}
	var limits, given map[string]any
	for _, d := range []struct {
		text []byte
		into any
	}{{b.files[b.manifest.ApplicationEnvironmentSchema], &form}, {environment, &limits}, {config, &given}} {
		if err := json.Unmarshal(d.text, d.into); err != nil {
			return fault.Because(err, fault.Invalid, "driver %s: not JSON objects", b.Ref())
		}
	}
	var wrong []fault.Field
	for _, name := range slices.Sorted(maps.Keys(form.Properties)) {
		property := form.Properties[name]
		list := patternsOf(limits[property.AllowedBy])
		if property.AllowedBy == "" || len(list) == 0 {
			continue
		}
		value, _ := cmp.Or(given[name], property.Default).(string)
		if !pattern.Allows(list, value) {
			wrong = append(wrong, fault.Field{Name: schema.Pointer(name), Problem: fmt.Sprintf(
				"found %q; expected one that the environment allows (%s: %s)", value, property.AllowedBy, strings.Join(list, ", "))})
		}
	}
	if len(wrong) > 0 {
		return fault.InvalidFields(wrong...)
	}
	return nil
}

// CheckNamespace checks the namespace of a job of a runbook, which has no config, against what the environment's config allows for the
// namespace that an application's config names: the one that the manifest declares as a place. The error is Invalid.
func (b *Bundle) CheckNamespace(environment json.RawMessage, namespace string) error {
	for _, place := range b.manifest.Places {
		name, ofConfig := strings.CutPrefix(place.Namespace, "/config/")
		if !ofConfig || strings.Contains(name, "/") || place.Name != "" {
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
