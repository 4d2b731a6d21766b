package config

import (
	"encoding/json"
	"fmt"
	"net/url"
	"reflect"
	"strings"
	"time"
)

// hidden replaces a secret that is set.
const hidden = "***"

// Redacted formats a configuration as YAML, one key per line, for a log line or for an operator who wants to see what is in effect. Fields
// tagged secret:"true" show only whether they are set, and passwords inside URLs are hidden.
func Redacted(v any) string {
	rv := reflect.Indirect(reflect.ValueOf(v))
	if rv.Kind() != reflect.Struct {
		return fmt.Sprint(plain(rv))
	}
	copied := reflect.New(rv.Type())
	copied.Elem().Set(rv)
	s := schemaOf(copied.Interface())
	var b strings.Builder
	for _, key := range s.order {
		f := s.leaves[key]
		value := plain(f.target)
		if f.secret {
			value = mask(f.target)
		}
		text, err := json.Marshal(value) // JSON is valid YAML, and keeps a value on its line
		if err != nil {
			text = []byte(`"?"`)
		}
		fmt.Fprintf(&b, "%s: %s\n", key, text)
	}
	return b.String()
}

// mask shows only whether a secret is set.
func mask(v reflect.Value) any {
	if v.IsZero() {
		return ""
	}
	return hidden
}

// plain converts v to JSON types, redacted.
func plain(v reflect.Value) any {
	switch {
	case !v.IsValid():
		return nil
	case v.Type() == reflect.TypeFor[time.Duration]():
		return time.Duration(v.Int()).String()
	case isText(v.Type()):
		return v.Interface()
	}
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		return plain(v.Elem())
	case reflect.String:
		return withoutPassword(v.String())
	case reflect.Slice, reflect.Array:
		items := make([]any, v.Len())
		for i := range items {
			items[i] = plain(v.Index(i))
		}
		return items
	case reflect.Map:
		m := make(map[string]any, v.Len())
		for _, k := range v.MapKeys() {
			m[fmt.Sprint(k.Interface())] = plain(v.MapIndex(k))
		}
		return m
	case reflect.Struct:
		return plainStruct(v)
	default:
		return v.Interface()
	}
}

// plainStruct masks the secrets of a struct inside a list or a map.
func plainStruct(v reflect.Value) any {
	m := map[string]any{}
	for i := range v.NumField() {
		f := v.Type().Field(i)
		switch {
		case !f.IsExported() || keyName(f) == "-":
		case f.Tag.Get("secret") == "true":
			m[keyName(f)] = mask(v.Field(i))
		default:
			m[keyName(f)] = plain(v.Field(i))
		}
	}
	return m
}

// withoutPassword hides the password in a URL; any other text stays as it is.
func withoutPassword(s string) string {
	u, err := url.Parse(s)
	if err != nil || u.User == nil || u.Host == "" {
		return s
	}
	if _, has := u.User.Password(); !has {
		return s
	}
	return u.Redacted()
}
