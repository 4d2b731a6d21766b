package reference

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/vektah/gqlparser/v2/ast"

	"github.com/lockstep-cd/lockstep/tools/lockstep/cli"
)

// commandOutput is the page of what commands print for programs.
func commandOutput(root string) ([]*page, error) {
	p, err := newPage("output.md", "the types that the commands print, and the descriptions of the same fields in the GraphQL schema")
	if err != nil {
		return nil, err
	}
	schema, err := graphSchema(root)
	if err != nil {
		return nil, err
	}
	o := outputs{types: map[string]reflect.Type{}, from: newComments(root), schema: schema}
	var rows [][]string
	for _, command := range slices.Sorted(maps.Keys(cli.Outputs())) {
		rows = append(rows, []string{code("lockstep " + command), o.kind(reflect.TypeOf(cli.Outputs()[command]))})
	}
	for _, command := range slices.Sorted(maps.Keys(cli.OtherOutputs())) {
		rows = append(rows, []string{code("lockstep " + command), cli.OtherOutputs()[command]})
	}
	p.heading(2, "Commands")
	p.table([]string{"Command", "Output"}, rows)
	// Types lead to types: until no new one is found.
	for known := -1; known != len(o.types); {
		known = len(o.types)
		for _, t := range maps.Clone(o.types) {
			o.rows(t, t.Name())
		}
	}
	for _, name := range slices.SortedFunc(maps.Keys(o.types),
		func(a, b string) int { return strings.Compare(strings.ToLower(a), strings.ToLower(b)) }) {
		p.heading(2, title(name))
		p.table([]string{"Field", "Type", "Meaning"}, o.rows(o.types[name], name))
	}
	return []*page{p}, nil
}

// title is the name of a Go type with a capital letter in front.
func title(name string) string { return strings.ToUpper(name[:1]) + name[1:] }

// outputs collects the types that commands print.
type outputs struct {
	types  map[string]reflect.Type
	from   *comments
	schema *ast.Schema
}

// rows are the fields of a type, those of what it embeds among them. name is the type whose section they are in.
func (o outputs) rows(t reflect.Type, name string) [][]string {
	var rows [][]string
	for i := range t.NumField() {
		f := t.Field(i)
		key, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case !f.IsExported() || key == "-":
			continue
		case f.Anonymous && key == "":
			rows = append(rows, o.rows(f.Type, name)...)
			continue
		case key == "":
			key = f.Name
		}
		meaning := o.meaning(t, f, name, key)
		if strings.Contains(options, "omit") {
			meaning = strings.TrimSpace(meaning + " Optional.")
		}
		rows = append(rows, []string{code(key), o.kind(f.Type), meaning})
	}
	return rows
}

// meaning is what the schema says of the same field or, where it has none, the comment of the Go field.
func (o outputs) meaning(t reflect.Type, f reflect.StructField, name, key string) string {
	if definition := o.schema.Types[name]; definition != nil {
		if field := definition.Fields.ForName(key); field != nil && field.Description != "" {
			return prose(sentence(strings.Join(strings.Fields(field.Description), " ")))
		}
	}
	found, err := o.from.of(t)
	if err != nil || found.fields[f.Name] == "" {
		return ""
	}
	return prose(sentence(strings.Replace(found.fields[f.Name], f.Name, "`"+key+"`", 1)))
}

// kind names a type; a structure of ours is collected.
func (o outputs) kind(t reflect.Type) string {
	switch {
	case t.Kind() == reflect.Pointer:
		return o.kind(t.Elem())
	case t == reflect.TypeFor[time.Time]():
		return "time"
	case t == reflect.TypeFor[json.RawMessage](), t.Kind() == reflect.Interface:
		return "any JSON"
	case t.Kind() == reflect.Slice:
		return "list of " + o.kind(t.Elem())
	case t.Kind() == reflect.Map:
		return "object of " + o.kind(t.Elem())
	case t.Kind() == reflect.Struct:
		o.types[t.Name()] = t
		return "[" + title(t.Name()) + "](#" + strings.ToLower(t.Name()) + ")"
	case t.Kind() == reflect.Bool:
		return "boolean"
	case t.Kind() == reflect.String:
		return "string"
	default:
		return "number"
	}
}
