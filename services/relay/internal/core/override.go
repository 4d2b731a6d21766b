package core

import (
	"encoding/json"
	"reflect"
)

// Overrides are parameters that Argo CD renders an Application's manifests with, over the content of the repository (E45): the fields
// kustomize and helm of spec.source, in Argo CD's format. Fields that they do not name are unchanged.
type Overrides map[string]any

// overridable lists the fields of spec.source.kustomize and spec.source.helm that a program may set. Others, such as Helm's value files,
// belong to the Application.
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

// plainNumbers converts a value to the form that decoders return by default. Arguments keep numbers as text, which would never equal the
// cluster's.
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

// hold reports whether a source has the overrides already. Objects are compared member by member: a source may have additional members.
// Lists are compared as a whole, because a merge patch replaces them.
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
