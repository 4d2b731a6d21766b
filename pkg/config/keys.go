package config

import (
	"reflect"
	"time"
)

// Key describes one key of a configuration, for references and checks.
type Key struct {
	// Name is the key as it is written in a file, with dots between a key and the keys inside it. The keys of the items of a list have
	// the key of the list and [] in front.
	Name string
	// Variable is the environment variable of the key; empty for a key that only groups others, and inside a list.
	Variable string
	// Shared is the variable that several services read for this key; empty for most.
	Shared string
	// Group is true for a key whose value is a mapping with fixed keys. They follow it.
	Group bool
	// Type says what a value has to be.
	Type string
	// Default is the default as an operator would write it; empty for none.
	Default string
	// Secret is true for a key whose value is kept out of logs and error messages.
	Secret bool
	// Struct is the type that declares the field, Field the field.
	Struct reflect.Type
	Field  reflect.StructField
}

// Keys are the keys of the configuration T of a service, in the order of its fields. Load[T] reads these and no others.
func Keys[T any](service string) []Key {
	return keysOf(reflect.TypeFor[T](), service, "", true)
}

// keysOf are the keys of a struct, whose names begin with under. Those at the top are read from variables.
func keysOf(t reflect.Type, service, under string, top bool) []Key {
	var keys []Key
	for i := range t.NumField() {
		f := t.Field(i)
		name := keyName(f)
		switch {
		case !f.IsExported():
			continue
		case f.Anonymous && f.Type.Kind() == reflect.Struct:
			keys = append(keys, keysOf(f.Type, service, under, top)...)
			continue
		case name == "-":
			continue
		}
		key := Key{
			Name: under + name, Type: kind(f.Type), Default: f.Tag.Get("default"), Secret: f.Tag.Get("secret") == "true",
			Struct: t, Field: f,
		}
		if f.Type.Kind() == reflect.Struct && !isText(f.Type) {
			key.Group = true
			keys = append(append(keys, key), keysOf(f.Type, service, key.Name+".", top)...)
			continue
		}
		if top {
			key.Variable, key.Shared = variable(service, key.Name), sharedVariable(key.Name)
		}
		keys = append(keys, key)
		if item := f.Type; item.Kind() == reflect.Slice && item.Elem().Kind() == reflect.Struct && !isText(item.Elem()) {
			keys = append(keys, keysOf(item.Elem(), service, key.Name+"[].", false)...)
		}
	}
	return keys
}

// kind names a type in one or two words.
func kind(t reflect.Type) string {
	switch {
	case t == reflect.TypeFor[time.Duration]():
		return "duration"
	case t.Kind() == reflect.Pointer:
		return kind(t.Elem())
	case isText(t), t.Kind() == reflect.String:
		return "text"
	case t.Kind() == reflect.Bool:
		return "true or false"
	case t.Kind() == reflect.Slice && (t.Elem().Kind() == reflect.Struct || t.Elem().Kind() == reflect.Map) && !isText(t.Elem()):
		return "list of mappings"
	case t.Kind() == reflect.Slice:
		return "list of " + plural(t.Elem())
	case t.Kind() == reflect.Map, t.Kind() == reflect.Struct:
		return "mapping"
	case reflect.Zero(t).CanInt(), reflect.Zero(t).CanUint():
		return "whole number"
	case reflect.Zero(t).CanFloat():
		return "number"
	default:
		return t.String()
	}
}

// plural names the items of a list.
func plural(t reflect.Type) string {
	switch name := kind(t); name {
	case "text":
		return "texts"
	case "true or false":
		return name
	default:
		return name + "s"
	}
}
