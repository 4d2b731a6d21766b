package schema

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/secret/reference"
)

// SecretReference is the widget of a text that refers to a secret, and is never one.
const SecretReference = "secret_reference"

// noReference is the only finding about a value in place of a reference: it does not repeat the value, which may be the secret.
const noReference = "found something else; " + reference.Expected

// widgets are the controls that the console has, each with the type that it edits.
//
//nolint:gochecknoglobals // a table
var widgets = map[string][]string{
	"text":              {"string"},
	"code":              {"string"},
	"number":            {"integer", "number"},
	"checkbox":          {"boolean"},
	"select":            {"string", "integer", "number", "boolean"},
	"agent_picker":      {"integer"},
	"credential_picker": {"string"},
	SecretReference:     {"string"},
}

// Widgets are the names of the widgets that the console knows, in order.
func Widgets() []string { return slices.Sorted(maps.Keys(widgets)) }

// UI returns the vocabulary of gitlabUi, with which configuration schemas choose the control that edits a field: a widget, whose name is
// free (D6, R24). What is entered where a secret is referred to has to be a reference: a secret that was pasted in its place is refused.
func UI() Vocabulary {
	return Vocabulary{
		Keyword: "gitlabUi",
		Schema: `{"type":"object","required":["widget"],"additionalProperties":false,` +
			`"properties":{"widget":{"type":"string","minLength":1,"maxLength":63}}}`,
		Check: func(keyword, value any) string {
			ui, _ := keyword.(map[string]any)
			text, isText := value.(string)
			if ui["widget"] != SecretReference || value == nil || isText && reference.Is(text) {
				return ""
			}
			return noReference
		},
	}
}

// UnknownWidgets are the problems of the widgets in the text of a schema, by JSON pointer: those that the console does not know, and those
// that edit another type. A form has the control of the type in their place (R24), so that only authors are notified.
func UnknownWidgets(text []byte) (map[string]string, error) {
	doc, err := Decode(text)
	if err != nil {
		return nil, err
	}
	problems := map[string]string{}
	var look func(node any, path []string, named bool)
	look = func(node any, path []string, named bool) {
		switch node := node.(type) {
		case []any:
			for i, item := range node {
				look(item, append(slices.Clone(path), strconv.Itoa(i)), false)
			}
		case map[string]any:
			if problem := problemOfWidget(node); problem != "" && !named {
				problems[Pointer(append(slices.Clone(path), "gitlabUi", "widget")...)] = problem
			}
			for name, member := range node {
				if !named && slices.Contains([]string{"default", "const", "enum", "examples"}, name) { // values, and no schemas
					continue
				}
				// The members of these have names of the author's own.
				own := !named && slices.Contains([]string{"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"}, name)
				look(member, append(slices.Clone(path), name), own)
			}
		}
	}
	look(doc, nil, false)
	return problems, nil
}

// problemOfWidget is what is wrong with the widget of one node; "" for nothing.
func problemOfWidget(node map[string]any) string {
	ui, _ := node["gitlabUi"].(map[string]any)
	name, given := ui["widget"].(string)
	if !given {
		return ""
	}
	types, known := widgets[name]
	if !known {
		return fmt.Sprintf("found %q; expected one of %s", name, strings.Join(Widgets(), ", "))
	}
	edits := typesOf(node["type"])
	if len(edits) > 0 && !slices.ContainsFunc(edits, func(edited string) bool { return slices.Contains(types, edited) }) {
		return fmt.Sprintf("found %q for the type %s; it edits %s", name, strings.Join(edits, " or "), strings.Join(types, ", "))
	}
	return ""
}

// typesOf are the types that a schema names, one or several.
func typesOf(value any) []string {
	if one, is := value.(string); is {
		return []string{one}
	}
	var all []string
	several, _ := value.([]any)
	for _, each := range several {
		if one, is := each.(string); is {
			all = append(all, one)
		}
	}
	return all
}
