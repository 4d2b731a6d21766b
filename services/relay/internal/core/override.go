package core

import (
	"encoding/json"
	"reflect"
)

// Overrides are the parameters that an Application renders its manifests with, in place of what the repository says
// (E45): the fields kustomize and helm of spec.source, as Argo CD spells them. What they do not name stays as it is.
type Overrides map[string]any

// overridable are the fields of spec.source.kustomize and spec.source.helm that a program may set. Others, such as where
// Helm takes its values from, are the Application's own.
//
//nolint:gochecknoglobals // a constant
var overridable = map[string][]string{"kustomize": {"images", "patches"}, "helm": {"valuesObject"}}

// readOverrides reads the argument overrides.
func (a args) readOverrides() Overrides {
	given, ok := a.object("overrides")
	if !ok {
		return nil
	}
	o := Overrides{}
	for _, tool := range []string{"kustomize", "helm"} {
		fields, ok := given.object(tool)
		if !ok {
			continue
		}
		for _, field := range overridable[tool] {
			fields.known[field] = true
		}
		fields.rest()
		o[tool] = plainNumbers(fields.values)
	}
	given.rest()
	return o
}

// plainNumbers is a value as every decoder without options has it. Arguments keep numbers as text, which a comparison
// with what the cluster answers would take for a difference.
func plainNumbers(v any) any {
	text, err := json.Marshal(v)
	if err != nil {
		return v
	}
	var plain any
	if json.Unmarshal(text, &plain) != nil {
		return v
	}
	return plain
}

// hold reports whether a source has the overrides already. Objects are compared member by member: a source may have more
// than was asked for. Lists are the program's as a whole, because a merge patch replaces them.
func (o Overrides) hold(source Object) bool {
	return covers(plainNumbers(map[string]any(source)), map[string]any(o))
}

func covers(found, wanted any) bool {
	want, isObject := wanted.(map[string]any)
	if !isObject {
		return reflect.DeepEqual(found, wanted)
	}
	have, _ := found.(map[string]any)
	for name, v := range want {
		if member, ok := have[name]; !ok || !covers(member, v) {
			return false
		}
	}
	return true
}

// into adds the overrides to a source that is about to be written.
func (o Overrides) into(source map[string]any) map[string]any {
	for tool, fields := range o {
		source[tool] = fields
	}
	return source
}
