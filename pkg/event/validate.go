package event

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"golang.org/x/text/language"
	"golang.org/x/text/message"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

//go:embed schema/*.json
var schemaFiles embed.FS

// Schema is the JSON Schema (draft 2020-12) of a type's payload; nil for an unknown type.
func Schema(eventType string) []byte {
	b, err := schemaFiles.ReadFile("schema/" + eventType + ".json")
	if err != nil {
		return nil
	}
	return b
}

// Validate checks e against CloudEvents 1.0, the catalogue and the schema of its payload. The error is Invalid and
// names every field at fault, as a path such as data.digest.
func Validate(e Event) error {
	if err := e.Validate(); err != nil {
		return fault.Because(err, fault.Invalid, "not a CloudEvent 1.0: %s", oneLine(err))
	}
	schema, ok := schemas()[e.Type()]
	if !ok {
		return unknownType(e.Type())
	}
	if _, err := Organization(e); err != nil {
		return err
	}
	data, err := jsonschema.UnmarshalJSON(bytes.NewReader(e.Data()))
	if err != nil {
		return fault.InvalidFields(fault.Field{Name: "data", Problem: "not JSON: " + oneLine(err)})
	}
	if err := schema.Validate(data); err != nil {
		return invalidData(err)
	}
	return nil
}

// schemas are all schemas, compiled once. A schema that does not compile is a defect of the build, found by any test.
//
//nolint:gochecknoglobals // written once, by sync.OnceValue
var schemas = sync.OnceValue(func() map[string]*jsonschema.Schema {
	compiler := jsonschema.NewCompiler()
	compiler.AssertFormat()
	compiler.UseLoader(noLoader{})
	compiled := map[string]*jsonschema.Schema{}
	for _, d := range Catalogue() {
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(Schema(d.Type)))
		if err != nil {
			panic(fmt.Sprintf("event: schema of %s: %v", d.Type, err))
		}
		if err := compiler.AddResource(d.Type, doc); err != nil {
			panic(fmt.Sprintf("event: schema of %s: %v", d.Type, err))
		}
		compiled[d.Type] = compiler.MustCompile(d.Type)
	}
	return compiled
})

// noLoader refuses every reference to another document: the library would open local files by default.
type noLoader struct{}

func (noLoader) Load(url string) (any, error) {
	return nil, fmt.Errorf("schema refers to %q; references to other documents are not allowed", url)
}

// invalidData turns the library's tree of findings into one field each.
func invalidData(err error) error {
	var ve *jsonschema.ValidationError
	if !errors.As(err, &ve) {
		return fault.Because(err, fault.Invalid, "data does not fit its schema")
	}
	english := message.NewPrinter(language.English)
	var fields []fault.Field
	var walk func(*jsonschema.ValidationError)
	walk = func(e *jsonschema.ValidationError) {
		for _, cause := range e.Causes {
			walk(cause)
		}
		if len(e.Causes) == 0 {
			name := strings.Join(append([]string{"data"}, e.InstanceLocation...), ".")
			fields = append(fields, fault.Field{Name: name, Problem: e.ErrorKind.LocalizedString(english)})
		}
	}
	walk(ve)
	return fault.InvalidFields(fields...)
}

func oneLine(err error) string {
	return strings.Join(strings.Fields(err.Error()), " ")
}
