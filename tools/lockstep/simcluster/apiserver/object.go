package apiserver

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// Object is one object, as JSON has it: whole numbers are int64.
type Object map[string]any

// ParseObject reads an object's JSON.
func ParseObject(text []byte) (Object, error) {
	var o map[string]any
	if err := utiljson.Unmarshal(text, &o); err != nil {
		return nil, fmt.Errorf("decode object: %w", err)
	}
	return o, nil
}

// Copy is a deep copy.
func (o Object) Copy() Object { return runtime.DeepCopyJSON(o) }

// Name is metadata.name.
func (o Object) Name() string { return o.Text("metadata", "name") }

// Namespace is metadata.namespace.
func (o Object) Namespace() string { return o.Text("metadata", "namespace") }

// ResourceVersion is metadata.resourceVersion.
func (o Object) ResourceVersion() string { return o.Text("metadata", "resourceVersion") }

// Text is the string at a path; "" where there is none.
func (o Object) Text(path ...string) string {
	s, _, _ := unstructured.NestedString(o, path...) // of another type counts as absent
	return s
}

// Number is the whole number at a path.
func (o Object) Number(path ...string) (int64, bool) {
	n, found, err := unstructured.NestedInt64(o, path...)
	return n, found && err == nil
}

// Flag is the boolean at a path; false where there is none.
func (o Object) Flag(path ...string) bool {
	b, _, _ := unstructured.NestedBool(o, path...) // of another type counts as absent
	return b
}

// Map is the object at a path, not a copy; nil where there is none.
func (o Object) Map(path ...string) Object {
	m, _ := o.At(path...).(map[string]any)
	return m
}

// List is the list at a path, not a copy; nil where there is none.
func (o Object) List(path ...string) []any {
	l, _ := o.At(path...).([]any)
	return l
}

// At is the value at a path, not a copy; nil where there is none.
func (o Object) At(path ...string) any {
	v, found, err := unstructured.NestedFieldNoCopy(o, path...)
	if !found || err != nil {
		return nil
	}
	return v
}

// Set sets the value at a path and makes the objects on the way.
func (o Object) Set(value any, path ...string) {
	at := map[string]any(o)
	for _, name := range path[:len(path)-1] {
		next, ok := at[name].(map[string]any)
		if !ok {
			next = map[string]any{}
			at[name] = next
		}
		at = next
	}
	at[path[len(path)-1]] = value
}

// Unset removes the value at a path.
func (o Object) Unset(path ...string) { unstructured.RemoveNestedField(o, path...) }
