package flow

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/schema"
	"github.com/lockstep-cd/lockstep/pkg/text"
)

// The bounds of inputs. Policies see every value whole, so none is longer than they can compare.
const (
	// MaxInputsSchema is how large the declaration of a pipeline's inputs is, in bytes.
	MaxInputsSchema = 32 << 10
	// MaxInputs is how large the inputs of a rollout are together, in bytes of JSON.
	MaxInputs = 8 << 10
	// maxInputValues is how many values there are, each item of a list being one. Policies see twice as many: a rollback has those that were
	// recorded, and the defaults of the pipeline.
	maxInputValues = 500
	// maxInputText is how long a text is, in bytes, and maxInputNumber a number, in characters.
	maxInputText   = 2048
	maxInputNumber = 30
)

// inputName is the form of an input's name: policies and templates name it without quotes.
var inputName = regexp.MustCompile(`^[a-z][a-z0-9_]{0,62}$`)

// Inputs are what a pipeline's rollouts are given when they begin (R4-09). The zero value has none.
type Inputs struct {
	declared map[string]declaredInput
	compiled *schema.Schema
}

type declaredInput struct {
	Default json.RawMessage `json:"default"`
	Pattern string          `json:"pattern"`
	Items   *struct {
		Type    string `json:"type"`
		Pattern string `json:"pattern"`
	} `json:"items"`
}

// ReadInputs reads the inputs that a definition declares. The error is Invalid, its fields JSON pointers into the definition. The schema of
// a definition leaves nothing in them whose check costs more than their size: no references and no combinations.
func (d Definition) ReadInputs() (Inputs, error) {
	if len(d.Inputs) == 0 {
		return Inputs{}, nil
	}
	if len(d.Inputs) > MaxInputsSchema {
		return Inputs{}, invalidInputs("", "found %d bytes; expected at most %d", len(d.Inputs), MaxInputsSchema)
	}
	var form struct {
		Required   []string                 `json:"required"`
		Properties map[string]declaredInput `json:"properties"`
	}
	if err := json.Unmarshal(d.Inputs, &form); err != nil {
		return Inputs{}, invalidInputs("", "found something else than an object; expected a JSON Schema")
	}
	compiled, err := schema.Compile(d.Inputs)
	if err != nil {
		return Inputs{}, within("/inputs", err)
	}
	in := Inputs{declared: form.Properties, compiled: compiled}
	for _, name := range in.Names() {
		if !inputName.MatchString(name) {
			return Inputs{}, invalidInputs("/properties"+schema.Pointer(name), "found %q; expected lower-case letters, digits and underscores, beginning with "+
				"a letter, at most 63", name)
		}
		items := in.declared[name].Items
		for at, pattern := range map[string]string{"": in.declared[name].Pattern, "/items": itemPattern(in.declared[name])} {
			if problem := patternProblem(pattern); problem != "" {
				return Inputs{}, invalidInputs("/properties/"+name+at+"/pattern", "%s", problem)
			}
		}
		if items != nil && items.Type == "array" {
			return Inputs{}, invalidInputs("/properties/"+name+"/items/type", "found \"array\"; expected string, integer, number or boolean: a list has no "+
				"lists")
		}
	}
	for i, name := range form.Required {
		if _, declared := form.Properties[name]; !declared {
			return Inputs{}, invalidInputs(fmt.Sprintf("/required/%d", i), "found %q; expected an input of the pipeline: %s", name, names(in.Names()))
		}
	}
	return in, in.checkDefaults()
}

// itemPattern is the pattern of the items of a list; empty for none.
func itemPattern(d declaredInput) string {
	if d.Items == nil {
		return ""
	}
	return d.Items.Pattern
}

// checkDefaults finds defaults that the inputs would refuse.
func (in Inputs) checkDefaults() error {
	count := 0
	for _, name := range in.Names() {
		value := in.declared[name].Default
		if value == nil {
			continue
		}
		one, err := json.Marshal(map[string]json.RawMessage{name: value})
		if err == nil {
			_, err = in.read(one)
		}
		for _, f := range fault.FieldsOf(err) {
			rest, own := strings.CutPrefix(f.Name, "/"+name)
			if own {
				return invalidInputs("/properties/"+name+"/default"+rest, "%s", f.Problem)
			}
		}
		if plain, err := schema.Decode(value); err == nil {
			count += countValues(plain)
		}
	}
	if count > maxInputValues {
		return invalidInputs("/properties", "found %d values in the defaults; expected at most %d", count, maxInputValues)
	}
	return nil
}

// Names are the names of the inputs, in order.
func (in Inputs) Names() []string { return slices.Sorted(maps.Keys(in.declared)) }

// Resolve returns the inputs of a rollout: the given values, an object or nothing, with the defaults of those that are not given. The error
// is Invalid, its fields JSON pointers that begin with /inputs.
func (in Inputs) Resolve(given json.RawMessage) (json.RawMessage, error) {
	values, err := in.members(given)
	if err != nil {
		return nil, err
	}
	return in.written(in.withDefaults(values), in.checked)
}

// Keep returns the inputs of a rollout that goes back to what an earlier one has deployed: as they were recorded, with the defaults of
// those that the pipeline has since. They were checked when they were recorded, and nothing keeps a rollback from beginning.
func (in Inputs) Keep(recorded json.RawMessage) (json.RawMessage, error) {
	values := map[string]json.RawMessage{}
	if len(recorded) > 0 {
		if err := json.Unmarshal(recorded, &values); err != nil {
			return nil, fmt.Errorf("read recorded inputs: %w", err)
		}
	}
	return in.written(in.withDefaults(values), func(json.RawMessage) (json.RawMessage, error) { return json.Marshal(values) })
}

// members reads the given values, and refuses those that are not declared.
func (in Inputs) members(given json.RawMessage) (map[string]json.RawMessage, error) {
	values := map[string]json.RawMessage{}
	if len(given) > MaxInputs {
		return nil, invalidInputs("", "found %d bytes; expected at most %d", len(given), MaxInputs)
	}
	if len(given) > 0 && string(given) != "null" {
		if err := json.Unmarshal(given, &values); err != nil {
			return nil, invalidInputs("", "found something else than a JSON object; expected an object of inputs by name")
		}
	}
	var found []fault.Field
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if _, declared := in.declared[name]; declared {
			continue
		}
		problem := "found an input, and the pipeline has none; expected no inputs"
		if len(in.declared) > 0 {
			problem = "found an input that the pipeline does not have; expected " + names(text.Nearest(name, in.Names()))
		}
		found = append(found, fault.Field{Name: "/inputs" + schema.Pointer(name), Problem: problem})
	}
	if len(found) > 0 {
		return nil, fault.InvalidFields(found...)
	}
	return values, nil
}

// withDefaults adds the defaults of inputs that are not given. A null is no value.
func (in Inputs) withDefaults(values map[string]json.RawMessage) map[string]json.RawMessage {
	for name, value := range values {
		if string(value) == "null" {
			delete(values, name)
		}
	}
	for name, d := range in.declared {
		if _, given := values[name]; !given && d.Default != nil {
			values[name] = d.Default
		}
	}
	return values
}

// written is the values as JSON after a check.
func (in Inputs) written(
	values map[string]json.RawMessage, check func(json.RawMessage) (json.RawMessage, error),
) (json.RawMessage, error) {
	encoded, err := json.Marshal(values)
	if err != nil {
		return nil, fmt.Errorf("write inputs: %w", err)
	}
	return check(encoded)
}

// checked checks values against the declaration.
func (in Inputs) checked(values json.RawMessage) (json.RawMessage, error) {
	if in.compiled == nil {
		return values, nil
	}
	plain, err := in.read(values)
	if err != nil {
		return nil, within("/inputs", err)
	}
	if count := countValues(plain); count > maxInputValues {
		return nil, invalidInputs("", "found %d values with the defaults; expected at most %d", count, maxInputValues)
	}
	encoded, err := json.Marshal(plain)
	if err != nil {
		return nil, fmt.Errorf("write inputs: %w", err)
	}
	if len(encoded) > MaxInputs {
		return nil, invalidInputs("", "found %d bytes with the defaults; expected at most %d", len(encoded), MaxInputs)
	}
	return encoded, nil
}

// read checks values against the schema, and returns them in the form in which policies and programs compare them. The fields of its error
// are JSON pointers into the values.
func (in Inputs) read(values json.RawMessage) (any, error) {
	value, err := schema.Decode(values)
	if err != nil {
		return nil, err
	}
	var found []fault.Field
	value = plain(value, "", &found)
	if len(found) > 0 {
		return nil, fault.InvalidFields(found...)
	}
	return value, in.compiled.ValidateValue(value)
}

// plain writes numbers in one way, and finds values that are too long or that a database does not keep.
func plain(value any, at string, found *[]fault.Field) any {
	wrong := func(format string, args ...any) {
		*found = append(*found, fault.Field{Name: at, Problem: fmt.Sprintf(format, args...)})
	}
	switch v := value.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			v[name] = plain(v[name], at+schema.Pointer(name), found)
		}
	case []any:
		for i := range v {
			v[i] = plain(v[i], at+"/"+strconv.Itoa(i), found)
		}
	case string:
		switch {
		case len(v) > maxInputText:
			wrong("found %d bytes; expected at most %d", len(v), maxInputText)
		case strings.ContainsFunc(v, isControl):
			wrong("found a control character or a line break; expected text on one line")
		}
	case json.Number:
		if len(v) > maxInputNumber || strings.ContainsAny(string(v), "eE") {
			wrong("found %.40s; expected a number without an exponent, of at most %d characters", string(v), maxInputNumber)
			return v
		}
		return plainNumber(string(v))
	}
	return value
}

// countValues is how many texts, numbers, trues and falses a value has.
func countValues(value any) (count int) {
	switch v := value.(type) {
	case map[string]any:
		for _, member := range v {
			count += countValues(member)
		}
		return count
	case []any:
		for _, item := range v {
			count += countValues(item)
		}
		return count
	}
	return 1
}

// isControl reports whether a character ends a line or is none that people see: in the template of a job, which is text, it could end a
// value. PostgreSQL refuses the one with code 0 anyway.
func isControl(r rune) bool { return unicode.IsControl(r) || r == '\u2028' || r == '\u2029' }

// plainNumber is a number without needless zeros.
func plainNumber(v string) json.Number {
	if strings.Contains(v, ".") {
		v = strings.TrimSuffix(strings.TrimRight(v, "0"), ".")
	}
	if v == "-0" {
		v = "0"
	}
	return json.Number(v)
}

// within is an error whose fields are below a pointer.
func within(at string, err error) error {
	fields := slices.Clone(fault.FieldsOf(err))
	if len(fields) == 0 {
		return fault.InvalidFields(fault.Field{Name: at, Problem: fault.Public(err)})
	}
	for i := range fields {
		fields[i].Name = at + fields[i].Name
	}
	return fault.InvalidFields(fields...)
}

func invalidInputs(at, format string, args ...any) error {
	return fault.InvalidFields(fault.Field{Name: "/inputs" + at, Problem: fmt.Sprintf(format, args...)})
}
