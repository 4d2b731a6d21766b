package graph_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/vektah/gqlparser/v2/ast"
)

// input is one place of the schema where a text comes in.
type input struct {
	document  string
	variables map[string]any
	// at is the last name on the way to it.
	at string
}

// inputs are all places of the schema where a text comes in, each with a value in it that is one.
func inputs(schema *ast.Schema, value string) (all []input) {
	for _, root := range []*ast.Definition{schema.Query, schema.Mutation} {
		for _, field := range root.Fields {
			if strings.HasPrefix(field.Name, "__") {
				continue
			}
			for _, argument := range field.Arguments {
				for _, one := range leaves(schema, argument.Type, argument.Name, value) {
					all = append(all, call(schema, root, field, argument, one))
				}
			}
		}
	}
	return all
}

type leaf struct {
	value any
	at    string
}

// leaves are values of a type with the text in each of its places in turn.
func leaves(schema *ast.Schema, typ *ast.Type, name, value string) (all []leaf) {
	if typ.Elem != nil {
		for _, one := range leaves(schema, typ.Elem, name, value) {
			all = append(all, leaf{[]any{one.value}, one.at})
		}
		return all
	}
	def := schema.Types[typ.NamedType]
	switch {
	case def.Name == "String" || def.Name == "ID":
		return []leaf{{value, name}}
	case def.Name == "JSON":
		return []leaf{{map[string]any{"a": []any{value}}, name}, {map[string]any{value: 1}, name}}
	case def.Kind != ast.InputObject:
		return nil
	}
	for _, field := range def.Fields {
		for _, one := range leaves(schema, field.Type, field.Name, value) {
			object := map[string]any{field.Name: one.value}
			for _, other := range def.Fields {
				if other.Name != field.Name && other.Type.NonNull {
					object[other.Name] = plain(schema, other.Type)
				}
			}
			all = append(all, leaf{object, one.at})
		}
	}
	return all
}

// plain is a value of a type that nothing is wrong with.
func plain(schema *ast.Schema, typ *ast.Type) any {
	def := schema.Types[typ.Name()]
	switch {
	case typ.Elem != nil:
		return []any{}
	case def.Name == "Int":
		return 1
	case def.Name == "Boolean":
		return true
	case def.Name == "Time":
		return "2026-01-02T03:04:05Z"
	case def.Kind == ast.Enum:
		return def.EnumValues[0].Name
	case def.Kind == ast.InputObject:
		object := map[string]any{}
		for _, field := range def.Fields {
			if field.Type.NonNull {
				object[field.Name] = plain(schema, field.Type)
			}
		}
		return object
	default:
		return "plain"
	}
}

func call(schema *ast.Schema, root *ast.Definition, field *ast.FieldDefinition, argument *ast.ArgumentDefinition, one leaf) input {
	declared, given := []string{"$v: " + argument.Type.String()}, []string{argument.Name + ": $v"}
	variables := map[string]any{"v": one.value}
	for _, other := range field.Arguments {
		if other != argument && other.Type.NonNull {
			declared, given = append(declared, "$"+other.Name+": "+other.Type.String()), append(given, other.Name+": $"+other.Name)
			variables[other.Name] = plain(schema, other.Type)
		}
	}
	selection := ""
	if kind := schema.Types[field.Type.Name()].Kind; kind != ast.Scalar && kind != ast.Enum {
		selection = " { __typename }"
	}
	document := strings.ToLower(root.Name) + "(" + strings.Join(declared, ", ") + ") { " + field.Name + "(" + strings.Join(given, ", ") +
		")" + selection + " }"
	return input{document, variables, one.at}
}

type textError struct {
	Message    string
	Path       []any
	Extensions struct {
		Code   string
		Fields []struct{ Field []string }
	}
}

func (f *fixture) errorsOf(in input) []textError {
	f.t.Helper()
	body, err := json.Marshal(map[string]any{"query": in.document, "variables": in.variables})
	if err != nil {
		f.t.Fatal(err)
	}
	r := httptest.NewRequestWithContext(f.t.Context(), http.MethodPost, "/graphql", bytes.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	_, answer := f.serve(ours, r)
	var errors struct{ Errors []textError }
	if err := json.Unmarshal(answer, &errors); err != nil {
		f.t.Fatal(err)
	}
	return errors.Errors
}

// TestNoControlCharacterComesIn goes through every place of the schema where a text comes in.
func TestNoControlCharacterComesIn(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	schema := schemaOf(t)
	for name, bad := range map[string]string{"U+0000": "a\x00b", "U+001B": "\x1b[2J", "U+009B": "\u009b", "U+202E": "\u202e"} {
		all := inputs(schema, bad)
		if len(all) < 80 {
			t.Fatalf("found %d places; expected all of the schema", len(all))
		}
		for _, in := range all {
			found := f.errorsOf(in)
			if !slices.ContainsFunc(found, func(e textError) bool {
				return e.Extensions.Code == "INVALID" && strings.Contains(e.Message, name) && slices.Contains(e.Path, any(in.at))
			}) {
				t.Errorf("%s with %s at %s: found %+v", in.document, name, in.at, found)
			}
		}
	}
	// What people write in several lines stays as it is.
	for _, in := range inputs(schema, "why:\n\tincident 81\r\n") {
		for _, e := range f.errorsOf(in) {
			if strings.Contains(e.Message, "U+") {
				t.Errorf("%s: found %+v", in.document, e)
			}
		}
	}
}
