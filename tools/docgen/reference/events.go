package reference

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/event"
)

// events is the page of all events, by the path they travel on.
func events(root string) ([]*page, error) {
	p, err := newPage("events.md", "the catalogue in pkg/event")
	if err != nil {
		return nil, err
	}
	from := newComments(root)
	for _, path := range []event.Path{event.PathRegistry, event.PathCluster, event.PathDomain} {
		p.heading(2, fmt.Sprintf("The %s path", path))
		var rows [][]string
		for _, d := range event.Catalogue() {
			if d.Path == path {
				rows = append(rows, []string{code(d.Type), emitters(d), prose(sentence(d.Emitted))})
			}
		}
		p.table([]string{"Type", "Emitted by", "Emitted"}, rows)
		for _, d := range event.Catalogue() {
			if d.Path != path {
				continue
			}
			if err := writeEvent(p, from, root, d); err != nil {
				return nil, fmt.Errorf("%s: %w", d.Type, err)
			}
		}
	}
	return []*page{p}, nil
}

// emitters are who may emit a type.
func emitters(d event.Definition) string {
	names := make([]string, len(d.EmittedBy))
	for i, by := range d.EmittedBy {
		names[i] = string(by)
	}
	return strings.Join(names, ", ")
}

func writeEvent(p *page, from *comments, root string, d event.Definition) error {
	t := reflect.TypeOf(d.Example)
	about, err := from.of(t)
	if err != nil {
		return err
	}
	_, meaning, found := strings.Cut(about.doc, d.Type+": ")
	if !found {
		return fmt.Errorf("the comment of %s is %q; expected it to say after %q what the event means", t.Name(), about.doc, d.Type+": ")
	}
	rows, err := payloadRows(from, t, "")
	if err != nil {
		return err
	}
	example, err := os.ReadFile(filepath.Join(root, "pkg/event/testdata", d.Type+".json"))
	if err != nil {
		return fmt.Errorf("example: %w", err)
	}
	p.heading(3, d.Type)
	p.paragraph(prose(sentence(withNames(meaning, t, jsonName))))
	p.paragraph("Emitted " + prose(strings.ToLower(d.Emitted[:1])+d.Emitted[1:]))
	p.paragraph("Emitted by: " + emitters(d))
	p.paragraph("Subject: " + code(d.Pattern()))
	p.table([]string{"Field", "Type", "Meaning"}, rows)
	p.code("json", string(example))
	return nil
}

// payloadRows are the fields of a payload, each followed by those inside it.
func payloadRows(from *comments, t reflect.Type, under string) ([][]string, error) {
	var rows [][]string
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Anonymous {
			inside, err := payloadRows(from, f.Type, under)
			if err != nil {
				return nil, err
			}
			rows = append(rows, inside...)
			continue
		}
		meaning, err := from.field(t, f.Name)
		if noun, isNumber := strings.CutSuffix(jsonName(f), "_id"); err != nil && isNumber && f.Type.Kind() == reflect.Int64 {
			meaning = "The number of the " + strings.ReplaceAll(noun, "_", " ") + "."
		} else if err != nil {
			return nil, err
		}
		kind := payloadKind(f.Type) + constraint(f.Tag.Get("jsonschema"))
		if strings.Contains(f.Tag.Get("json"), ",omit") {
			kind += ", optional"
		}
		name := under + jsonName(f)
		rows = append(rows, []string{code(name), kind, prose(sentence(withNames(meaning, t, jsonName)))})
		item := f.Type
		if item.Kind() == reflect.Pointer {
			item = item.Elem()
		}
		if item.Kind() == reflect.Slice && item != reflect.TypeFor[json.RawMessage]() {
			item, name = item.Elem(), name+"[]"
		}
		if item.Kind() == reflect.Struct {
			inside, err := payloadRows(from, item, name+".")
			if err != nil {
				return nil, err
			}
			rows = append(rows, inside...)
		}
	}
	return rows, nil
}

// jsonName is the name of a field in JSON.
func jsonName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}

// payloadKind names the JSON type of a field.
func payloadKind(t reflect.Type) string {
	switch {
	case t == reflect.TypeFor[json.RawMessage]():
		return "object"
	case t.Kind() == reflect.Pointer:
		return payloadKind(t.Elem())
	case t.Kind() == reflect.Slice:
		return "list of " + payloadKind(t.Elem()) + "s"
	case t.Kind() == reflect.Struct, t.Kind() == reflect.Map:
		return "object"
	case t.Kind() == reflect.Bool:
		return "boolean"
	case t.Kind() == reflect.String:
		return "string"
	default:
		return "integer"
	}
}

// constraint is what a tag jsonschema says beyond the type, where a reader wants to know it.
func constraint(tag string) string {
	for part := range strings.SplitSeq(tag, ",") {
		switch {
		case part == "format=date-time":
			return ", RFC 3339"
		case strings.HasPrefix(part, "enum="):
			return enumeration(tag)
		}
	}
	return ""
}

// enumeration lists the values of a tag with several enum=….
func enumeration(tag string) string {
	var values []string
	for part := range strings.SplitSeq(tag, ",") {
		if value, ok := strings.CutPrefix(part, "enum="); ok {
			values = append(values, code(value))
		}
	}
	return ", one of " + strings.Join(values, ", ")
}
