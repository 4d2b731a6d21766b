package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"golang.org/x/text/language"
	"golang.org/x/text/message"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/text"
)

// maxShown bounds how much of a refused value an error repeats.
const maxShown = 60

// fields converts the library's tree of findings to one field per leaf, ordered by pointer. schema is the document that the value does not
// fit; nil if it is not ours.
func fields(findings *jsonschema.ValidationError, value, schema any) []fault.Field {
	var found []fault.Field
	var walk func(*jsonschema.ValidationError)
	walk = func(e *jsonschema.ValidationError) {
		for _, cause := range e.Causes {
			walk(cause)
		}
		if len(e.Causes) == 0 {
			found = append(found, leaf(e, value, schema)...)
		}
	}
	walk(findings)
	slices.SortStableFunc(found, func(a, b fault.Field) int { return strings.Compare(a.Name, b.Name) })
	return slices.Compact(withoutSecrets(found))
}

// withoutSecrets leaves out what else is wrong with a value in place of a reference to a secret, or in it: that would repeat it.
func withoutSecrets(found []fault.Field) []fault.Field {
	var secrets []string
	for _, f := range found {
		if f.Problem == noReference {
			secrets = append(secrets, f.Name)
		}
	}
	return slices.DeleteFunc(found, func(f fault.Field) bool {
		return f.Problem != noReference && slices.ContainsFunc(secrets, func(at string) bool {
			return f.Name == at || strings.HasPrefix(f.Name, at+"/")
		})
	})
}

// leaf converts one finding. A missing or superfluous member is named itself, not its parent: a form has a control for the member.
func leaf(e *jsonschema.ValidationError, value, schema any) []fault.Field {
	at := e.InstanceLocation
	ui, _ := nodeAt(schema, e.SchemaURL)["gitlabUi"].(map[string]any)
	if ui["widget"] == SecretReference { // a wrong type ends the checks before that of the widget
		return []fault.Field{{Name: Pointer(at...), Problem: noReference}}
	}
	switch k := e.ErrorKind.(type) {
	case *ownProblem:
		return []fault.Field{{Name: Pointer(at...), Problem: k.problem}}
	case *kind.Required:
		return each(at, k.Missing, "found nothing; expected a value")
	case *kind.DependentRequired:
		return each(at, k.Missing, "found nothing; expected a value, because "+k.Prop+" is set")
	case *kind.AdditionalProperties:
		return superfluous(at, k.Properties, membersAt(schema, e.SchemaURL))
	case *kind.FalseSchema:
		return []fault.Field{{Name: Pointer(at...), Problem: "found " + show(at, value) + "; expected nothing: not allowed here"}}
	case *kind.Minimum:
		return []fault.Field{{Name: Pointer(at...), Problem: "found " + show(at, value) + "; expected at least " + number(k.Want)}}
	case *kind.Maximum:
		return []fault.Field{{Name: Pointer(at...), Problem: "found " + show(at, value) + "; expected at most " + number(k.Want)}}
	case *kind.Type:
		return []fault.Field{{Name: Pointer(at...), Problem: "found " + show(at, value) + "; expected " + aOr(k.Want)}}
	case *kind.Enum:
		return []fault.Field{{Name: Pointer(at...), Problem: "found " + show(at, value) + "; expected one of " + list(k.Want)}}
	case *kind.Const:
		return []fault.Field{{Name: Pointer(at...), Problem: "found " + show(at, value) + "; expected " + list([]any{k.Want})}}
	case *kind.Pattern:
		return []fault.Field{{Name: Pointer(at...), Problem: "found " + show(at, value) + "; expected text that matches " + k.Want}}
	case *kind.Not:
		return []fault.Field{{Name: Pointer(at...), Problem: "found " + show(at, value) + "; expected anything else: that is not allowed here"}}
	case *kind.Format:
		return []fault.Field{{Name: Pointer(at...), Problem: "found " + show(at, value) + "; expected a " + k.Want}}
	case *kind.MinLength:
		return []fault.Field{{Name: Pointer(at...), Problem: fmt.Sprintf("found %s; expected at least %d characters", show(at, value), k.Want)}}
	case *kind.MaxLength:
		return []fault.Field{{Name: Pointer(at...), Problem: fmt.Sprintf("found %d characters; expected at most %d", k.Got, k.Want)}}
	case *kind.MinItems:
		return []fault.Field{{Name: Pointer(at...), Problem: fmt.Sprintf("found %d items; expected at least %d", k.Got, k.Want)}}
	case *kind.MaxItems:
		return []fault.Field{{Name: Pointer(at...), Problem: fmt.Sprintf("found %d items; expected at most %d", k.Got, k.Want)}}
	default:
		return []fault.Field{{
			Name:    Pointer(at...),
			Problem: "found " + show(at, value) + "; " + e.ErrorKind.LocalizedString(message.NewPrinter(language.English)),
		}}
	}
}

func each(parent, names []string, problem string) []fault.Field {
	found := make([]fault.Field, len(names))
	for i, name := range names {
		found[i] = fault.Field{Name: Pointer(append(slices.Clone(parent), name)...), Problem: problem}
	}
	return found
}

// maxNamed bounds how many of the known members an error names.
const maxNamed = 8

// superfluous reports unknown members, each with the known ones, the nearest first: usually it is one of them, misspelled.
func superfluous(parent, names, members []string) []fault.Field {
	found := make([]fault.Field, len(names))
	for i, name := range names {
		expected := "none of this name"
		switch nearest := text.Nearest(name, members); {
		case len(nearest) == 1:
			expected = nearest[0]
		case len(nearest) > maxNamed:
			expected = fmt.Sprintf("one of %s and %d more", strings.Join(nearest[:maxNamed], ", "), len(nearest)-maxNamed)
		case len(nearest) > 1:
			expected = "one of " + strings.Join(nearest, ", ")
		}
		found[i] = fault.Field{
			Name:    Pointer(append(slices.Clone(parent), name)...),
			Problem: "found a field that does not exist; expected " + expected,
		}
	}
	return found
}

// membersAt returns the members that a schema lists at a location; none if the document does not have it.
func membersAt(schema any, location string) []string {
	members, _ := nodeAt(schema, location)["properties"].(map[string]any)
	return slices.Sorted(maps.Keys(members))
}

// nodeAt is the part of a schema at a location; nil if the document does not have it.
func nodeAt(schema any, location string) map[string]any {
	path, ours := strings.CutPrefix(location, root+"#")
	if !ours {
		return nil
	}
	unescape := strings.NewReplacer("~1", "/", "~0", "~")
	for token := range strings.SplitSeq(strings.TrimPrefix(path, "/"), "/") {
		if path == "" {
			break
		}
		name, err := url.PathUnescape(token)
		if err != nil {
			return nil
		}
		switch v := schema.(type) {
		case map[string]any:
			schema = v[unescape.Replace(name)]
		case []any:
			i, err := strconv.Atoi(name)
			if err != nil || i < 0 || i >= len(v) {
				return nil
			}
			schema = v[i]
		}
	}
	part, _ := schema.(map[string]any)
	return part
}

// Pointer returns the JSON pointer (RFC 6901) of the path.
func Pointer(path ...string) string {
	escape := strings.NewReplacer("~", "~0", "/", "~1")
	var b strings.Builder
	for _, token := range path {
		b.WriteString("/" + escape.Replace(token))
	}
	return b.String()
}

// show formats the value at a path, shortened, for "found …".
func show(path []string, value any) string {
	for _, token := range path {
		switch v := value.(type) {
		case map[string]any:
			value = v[token]
		case []any:
			i, err := strconv.Atoi(token)
			if err != nil || i < 0 || i >= len(v) {
				return "a value"
			}
			value = v[i]
		}
	}
	switch v := value.(type) {
	case map[string]any:
		return "an object"
	case []any:
		return "a list"
	default:
		return short(v)
	}
}

// short formats a scalar as JSON and cuts a long one.
func short(v any) string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return "a value"
	}
	text := []rune(strings.TrimSpace(b.String()))
	if len(text) > maxShown {
		return string(text[:maxShown]) + "…"
	}
	return string(text)
}

func list(values []any) string {
	parts := make([]string, len(values))
	for i, v := range values {
		parts[i] = short(v)
	}
	return strings.Join(parts, ", ")
}

// number formats a bound without a needless fraction.
func number(r *big.Rat) string {
	if r.IsInt() {
		return r.RatString()
	}
	f, _ := r.Float64()
	return strconv.FormatFloat(f, 'g', -1, 64)
}

func aOr(types []string) string {
	names := map[string]string{
		"object": "an object", "array": "a list", "string": "a string", "integer": "a whole number",
		"number": "a number", "boolean": "true or false", "null": "null",
	}
	parts := make([]string, len(types))
	for i, t := range types {
		parts[i] = names[t]
	}
	return strings.Join(parts, " or ")
}

// notJSON returns an error with the place where the text stops being JSON.
func notJSON(text []byte, err error) error {
	offset := int64(len(text))
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		offset = syntax.Offset
	}
	before := text[:max(0, min(offset, int64(len(text))))]
	line := 1 + bytes.Count(before, []byte("\n"))
	column := len(before) - bytes.LastIndexByte(before, '\n') - 1
	return fault.InvalidFields(fault.Field{
		Name:    fmt.Sprintf("line %d, column %d", line, max(1, column)),
		Problem: "found text that is not JSON (" + oneLine(err) + "); expected one JSON value",
	})
}

// notSchema returns an error with the place where a document is not a JSON Schema.
func notSchema(err error, doc any) error {
	var invalid *jsonschema.SchemaValidationError
	var findings *jsonschema.ValidationError
	if errors.As(err, &invalid) && errors.As(invalid.Err, &findings) {
		return fault.InvalidFields(fields(findings, doc, nil)...)
	}
	return fault.New(fault.Invalid, "not a JSON Schema: %s", strings.ReplaceAll(oneLine(err), root, ""))
}
