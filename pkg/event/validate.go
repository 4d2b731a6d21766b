package event

import (
	"embed"
	"fmt"
	"strings"
	"sync"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/schema"
)

//go:embed schema/*.json
var schemaFiles embed.FS

// Schema returns the JSON Schema (draft 2020-12) of a type's payload; nil for an unknown type.
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
	if err := attributes(e); err != nil {
		return err
	}
	payload, ok := schemas()[e.Type()]
	if !ok {
		return unknownType(e.Type())
	}
	if _, err := Organization(e); err != nil {
		return err
	}
	if err := payload.Validate(e.Data()); err != nil {
		return inData(err)
	}
	return nil
}

// ValidateAny is Validate, but accepts types outside the catalogue: those are checked against CloudEvents 1.0 only, since only programs
// that wait for them read them.
func ValidateAny(e Event) error {
	if _, known := Lookup(e.Type()); known {
		return Validate(e)
	}
	if err := attributes(e); err != nil {
		return err
	}
	_, err := Organization(e)
	return err
}

// attributes checks the attributes that every event has.
func attributes(e Event) error {
	if version := e.SpecVersion(); version != cloudevents.CloudEventsVersionV1 {
		return fault.InvalidFields(fault.Field{
			Name:    "specversion",
			Problem: fmt.Sprintf("found %q, expected %q", version, cloudevents.CloudEventsVersionV1),
		})
	}
	if err := e.Validate(); err != nil {
		return fault.Because(err, fault.Invalid, "not a CloudEvent 1.0: %s", strings.Join(strings.Fields(err.Error()), " "))
	}
	return nil
}

// schemas holds all compiled schemas. One that does not compile is a defect of the build, found by any test.
//
//nolint:gochecknoglobals // written once, by sync.OnceValue
var schemas = sync.OnceValue(func() map[string]*schema.Schema {
	compiled := map[string]*schema.Schema{}
	for _, d := range Catalogue() {
		s, err := schema.Compile(Schema(d.Type))
		if err != nil {
			panic(fmt.Sprintf("event: schema of %s: %v", d.Type, err))
		}
		compiled[d.Type] = s
	}
	return compiled
})

// inData renames fields from JSON pointers to the notation of CloudEvents: /digest becomes data.digest.
func inData(err error) error {
	fields := fault.FieldsOf(err)
	if len(fields) == 0 {
		return err
	}
	located := make([]fault.Field, len(fields))
	for i, f := range fields {
		located[i] = fault.Field{Name: "data" + strings.ReplaceAll(f.Name, "/", "."), Problem: f.Problem}
	}
	return fault.InvalidFields(located...)
}
