package reference

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// object is a JSON object that keeps the order of its members, which is the order in which a schema's author explains them.
type object []member

type member struct {
	key   string
	value any
}

// UnmarshalJSON implements json.Unmarshaler.
func (o *object) UnmarshalJSON(text []byte) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	if token, err := decoder.Token(); err != nil || token != json.Delim('{') {
		return fmt.Errorf("found %v, %w; expected an object", token, err)
	}
	for decoder.More() {
		token, err := decoder.Token()
		if err != nil {
			return fmt.Errorf("key: %w", err)
		}
		var raw json.RawMessage
		if err := decoder.Decode(&raw); err != nil {
			return fmt.Errorf("value of %v: %w", token, err)
		}
		value, err := ordered(raw)
		if err != nil {
			return fmt.Errorf("%v: %w", token, err)
		}
		*o = append(*o, member{fmt.Sprint(token), value})
	}
	return nil
}

// ordered is a JSON value whose objects keep their order.
func ordered(raw json.RawMessage) (any, error) {
	switch raw[0] {
	case '{':
		var o object
		err := json.Unmarshal(raw, &o)
		return o, err
	case '[':
		var items []json.RawMessage
		if err := json.Unmarshal(raw, &items); err != nil {
			return nil, fmt.Errorf("list: %w", err)
		}
		list := make([]any, len(items))
		for i, item := range items {
			var err error
			if list[i], err = ordered(item); err != nil {
				return nil, err
			}
		}
		return list, nil
	default:
		var v any
		if err := json.Unmarshal(raw, &v); err != nil {
			return nil, fmt.Errorf("value: %w", err)
		}
		return v, nil
	}
}

func (o object) get(key string) any {
	for _, m := range o {
		if m.key == key {
			return m.value
		}
	}
	return nil
}

func (o object) text(key string) string {
	s, _ := o.get(key).(string)
	return s
}

// at is the object under a key; nil for none.
func (o object) at(key string) object {
	inside, _ := o.get(key).(object)
	return inside
}

// texts are the strings of a list under a key.
func (o object) texts(key string) []string {
	list, _ := o.get(key).([]any)
	var all []string
	for _, item := range list {
		all = append(all, fmt.Sprint(item))
	}
	return all
}

// jsonSchema describes the values that fit a JSON Schema.
type jsonSchema struct {
	root object
	// sections are the definitions of $defs that have a section of their own, by name, with the anchor of the section. Others are described
	// where they are used.
	sections map[string]string
}

func newSchema(text []byte) (jsonSchema, error) {
	var root object
	if err := json.Unmarshal(text, &root); err != nil {
		return jsonSchema{}, fmt.Errorf("JSON Schema: %w", err)
	}
	return jsonSchema{root: root}, nil
}

// resolve is a schema with the definition that it refers to, if it does. What it has itself goes before.
func (s jsonSchema) resolve(o object) object {
	name, refers := strings.CutPrefix(o.text("$ref"), "#/$defs/")
	if !refers {
		return o
	}
	merged := slices.Clone(o)
	for _, m := range s.resolve(s.root.at("$defs").at(name)) {
		if o.get(m.key) == nil {
			merged = append(merged, m)
		}
	}
	return merged
}

// rows are the properties of an object, each followed by those inside it. A property without a description is an error.
func (s jsonSchema) rows(of object, under string) ([][]string, error) {
	var rows [][]string
	required, notes := of.texts("required"), s.conditions(of)
	for _, m := range of.at("properties") {
		property, isSchema := m.value.(object)
		if !isSchema {
			continue // true or false: described elsewhere, or not there at all
		}
		reference := strings.TrimPrefix(property.text("$ref"), "#/$defs/")
		property = s.resolve(property)
		name := under + m.key
		meaning := property.text("description")
		if meaning == "" {
			meaning = property.text("title")
		}
		if meaning == "" {
			return nil, fmt.Errorf("%s has no description; expected one in the schema", name)
		}
		value := s.kind(property)
		if slices.Contains(required, m.key) {
			value += ", required"
		}
		meaning = prose(sentence(meaning))
		for _, note := range notes[m.key] {
			meaning += " " + note
		}
		if pattern := property.text("pattern"); pattern != "" {
			meaning += " Pattern: " + code(pattern) + "."
		}
		if fallback := property.get("default"); fallback != nil {
			meaning += " Default: " + code(fmt.Sprint(fallback)) + "."
		}
		if anchor, elsewhere := s.sections[reference]; elsewhere {
			rows = append(rows, []string{code(name), "[" + value + "](#" + anchor + ")", meaning})
			continue
		}
		rows = append(rows, []string{code(name), value, meaning})
		inside, name := property, name+"."
		if items := property.at("items"); items != nil {
			if _, elsewhere := s.sections[strings.TrimPrefix(items.text("$ref"), "#/$defs/")]; elsewhere {
				continue
			}
			inside, name = s.resolve(items), strings.TrimSuffix(name, ".")+"[]."
		}
		more, err := s.rows(inside, name)
		if err != nil {
			return nil, err
		}
		rows = append(rows, more...)
	}
	more, err := s.alternatives(of, under)
	if err != nil {
		return nil, err
	}
	return append(rows, more...), nil
}

// alternatives are the properties of an object that has to fit exactly one of several schemas, with which of them go together.
func (s jsonSchema) alternatives(of object, under string) ([][]string, error) {
	var rows [][]string
	schemas := oneOf(of)
	for i, one := range schemas {
		one = s.resolve(one)
		more, err := s.rows(one, under)
		if err != nil {
			return nil, err
		}
		var others []string
		for j, other := range schemas {
			if i != j {
				others = append(others, s.resolve(other).texts("required")...)
			}
		}
		required := one.texts("required")
		for _, row := range more {
			name := strings.TrimPrefix(strings.Trim(row[0], "`"), under)
			switch {
			case slices.Contains(required, name) && len(others) > 0:
				row[1] = strings.TrimSuffix(row[1], ", required")
				row[2] += " Required unless there is `" + strings.Join(others, "` or `") + "`."
			case one.at("properties").get(name) != nil && len(required) > 0:
				row[2] += " Only with `" + strings.Join(required, "` and `") + "`."
			}
			for _, needed := range one.at("dependentRequired").texts(name) {
				row[2] += " Requires `" + needed + "`."
			}
		}
		rows = append(rows, more...)
	}
	return rows, nil
}

// oneOf are the schemas of which a value has to fit exactly one.
func oneOf(of object) []object {
	var schemas []object
	list, _ := of.get("oneOf").([]any)
	for _, item := range list {
		if one, ok := item.(object); ok {
			schemas = append(schemas, one)
		}
	}
	return schemas
}

// kind says what a value has to be.
func (s jsonSchema) kind(o object) string {
	if values := o.texts("enum"); len(values) > 0 {
		return "one of `" + strings.Join(values, "`, `") + "`"
	}
	types := o.texts("type")
	if one := o.text("type"); one != "" {
		types = []string{one}
	}
	if schemas := oneOf(o); len(types) == 0 && len(schemas) > 0 && !slices.ContainsFunc(schemas, func(one object) bool {
		return s.resolve(one).text("type") != "object"
	}) {
		types = []string{"object"}
	}
	types = slices.DeleteFunc(types, func(t string) bool { return t == "null" })
	if len(types) != 1 {
		return "any JSON"
	}
	switch kind := types[0]; kind {
	case "array":
		items := o.at("items")
		if anchor, elsewhere := s.sections[strings.TrimPrefix(items.text("$ref"), "#/$defs/")]; elsewhere {
			return "list of [objects](#" + anchor + ")"
		}
		return "list, each item " + s.kind(s.resolve(items))
	case "integer":
		return "whole number" + bounds(o)
	case "number":
		return "number" + bounds(o)
	default:
		return kind
	}
}

// bounds are the limits of a number.
func bounds(o object) string {
	least, most := o.get("minimum"), o.get("maximum")
	const endless = 9007199254740991.0 // the largest whole number that JSON is safe with
	switch {
	case least != nil && most != nil && most != endless:
		return fmt.Sprintf(" from %s to %s", number(least), number(most))
	case least != nil:
		return " of at least " + number(least)
	case most != nil && most != endless:
		return " of at most " + number(most)
	default:
		return ""
	}
}

// number is a number without an exponent.
func number(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(text)
}

// conditions are notes on the properties of an object that depend on another property, as "if … then … else …" says.
func (s jsonSchema) conditions(of object) map[string][]string {
	notes := map[string][]string{}
	all := []object{of}
	list, _ := of.get("allOf").([]any)
	for _, item := range list {
		if one, ok := item.(object); ok {
			all = append(all, one)
		}
	}
	for _, one := range all {
		for _, condition := range one.at("if").at("properties") {
			constant, ok := condition.value.(object)
			if !ok || constant.get("const") == nil {
				continue
			}
			is := fmt.Sprintf("`%s` is `%v`", condition.key, constant.get("const"))
			for _, name := range one.at("then").texts("required") {
				notes[name] = append(notes[name], "Required if "+is+".")
			}
			for _, m := range one.at("then").at("properties") {
				if m.value == false {
					notes[m.key] = append(notes[m.key], "Not if "+is+".")
				} else if narrowed, ok := m.value.(object); ok {
					notes[m.key] = append(notes[m.key], fmt.Sprintf("If %s, %s.", is, s.kind(narrowed)))
				}
			}
			for _, name := range one.at("else").texts("required") {
				notes[name] = append(notes[name], "Required unless "+is+".")
			}
			for _, m := range one.at("else").at("properties") {
				if m.value == false {
					notes[m.key] = append(notes[m.key], "Only if "+is+".")
				}
			}
		}
	}
	return notes
}
