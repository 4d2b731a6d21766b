package core

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/secret/reference"
)

// The sizes a Start may have.
const (
	maxWorkflowID = 255
	maxModules    = 64
	maxName       = 255 // bytes
	maxLabels     = 32
	maxLabel      = 255
)

// validate finds everything that is wrong with a start except in its program. All of it at once: the caller is a
// program whose author would otherwise find one mistake at a time.
func (s Start) validate() error {
	var fields []fault.Field
	report := func(name, format string, args ...any) {
		fields = append(fields, fault.Field{Name: name, Problem: fmt.Sprintf(format, args...)})
	}
	if s.Organization <= 0 {
		report("organization_id", "found %d, expected a number above zero", s.Organization)
	}
	if problem := checkWorkflowID(s.Workflow); problem != "" {
		report("workflow_id", "%s", problem)
	}
	if len(s.Program.Source) == 0 {
		report("starlark", "missing, expected a program")
	}
	if !utf8.Valid(s.Program.Source) {
		report("starlark", "not UTF-8")
	}
	if len(s.Program.Modules) > maxModules {
		report("modules", "found %d, expected at most %d", len(s.Program.Modules), maxModules)
	}
	for _, name := range sortedNames(s.Program.Modules) {
		if !utf8.Valid(s.Program.Modules[name]) {
			report("modules."+name, "expected UTF-8 text")
		}
	}
	for _, name := range sortedNames(s.Secrets) {
		if !reference.Is(s.Secrets[name]) {
			report("secrets."+name, reference.Expected)
		}
	}
	if len(s.Labels) > maxLabels {
		report("labels", "found %d, expected at most %d", len(s.Labels), maxLabels)
	}
	if !utf8.Valid(s.Inputs) {
		report("inputs", "found bytes that are not UTF-8, expected JSON in UTF-8")
	} else if !json.Valid(s.Inputs) {
		if _, err := Canonical(s.Inputs); err != nil { // which says where, and takes nothing for an empty object
			report("inputs", "not JSON: %s", err)
		}
	}
	for _, name := range sortedNames(s.Labels) {
		if problem := checkLabel(name, s.Labels[name]); problem != "" {
			report("labels."+name, "%s", problem)
		}
	}
	if len(fields) > 0 {
		return fault.InvalidFields(fields...)
	}
	return nil
}

// admit is validate for what a caller brings, with the names of modules and secrets that nobody can have meant. Runs of a flow that was
// registered before names were looked at still begin: validate alone is for them.
func (s Start) admit() error {
	fields := fault.FieldsOf(s.validate())
	if len(bytes.TrimSpace(s.Inputs)) > 0 && !slices.ContainsFunc(fields, func(f fault.Field) bool { return f.Name == "inputs" }) {
		fields = append(fields, fault.FieldsOf(InputsDoor.CheckField("inputs", s.Inputs))...)
	}
	for _, brought := range []struct {
		field string
		names []string
	}{{"modules", sortedNames(s.Program.Modules)}, {"secrets", sortedNames(s.Secrets)}} {
		for _, name := range brought.names {
			if name == "" || len(name) > maxName || !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl) {
				fields = append(fields, fault.Field{Name: brought.field, Problem: fmt.Sprintf("found the name %.80q of %d bytes, expected 1 to %d bytes of text without control characters", name, len(name), maxName)})
			}
		}
	}
	if len(fields) > 0 {
		return fault.InvalidFields(fields...)
	}
	return nil
}

// sortedNames are the names in m. Most of what a start may bring it does not, which costs nothing here.
func sortedNames[V any](m map[string]V) []string {
	if len(m) == 0 {
		return nil
	}
	return slices.Sorted(maps.Keys(m))
}

// checkLabel says what is wrong with a label.
func checkLabel(name, value string) string {
	if len(name) > maxLabel || len(value) > maxLabel || name == "" || strings.ContainsRune(name+value, 0) || !utf8.ValidString(name+value) {
		return fmt.Sprintf("expected a name and a value of at most %d bytes of text, without NUL", maxLabel)
	}
	return ""
}

// checkNamed says what is wrong with the id of a workflow that is asked for.
func checkNamed(workflow string) error {
	if problem := checkWorkflowID(workflow); problem != "" {
		return fault.InvalidFields(fault.Field{Name: "workflow_id", Problem: problem})
	}
	return nil
}

func checkWorkflowID(id string) string {
	if n := utf8.RuneCountInString(id); n < 1 || n > maxWorkflowID {
		return fmt.Sprintf("found %d characters, expected 1 to %d", n, maxWorkflowID)
	}
	bad := func(r rune) bool { return r == utf8.RuneError || unicode.IsSpace(r) || !unicode.IsPrint(r) }
	if strings.ContainsFunc(id, bad) {
		return fmt.Sprintf("found %q, expected printable characters without spaces", id)
	}
	return ""
}

// Digests are those of a start. Inputs that are not JSON are fault.Invalid.
func (s Start) Digests() (Digests, error) {
	modules := make(map[string]string, len(s.Program.Modules))
	for name, source := range s.Program.Modules {
		modules[name] = Hex(Digest(source))
	}
	return Fingerprint(Digest(s.Program.Source), modules, s.Inputs, s.Secrets)
}

// Fingerprint digests each part that makes two starts the same or not (D5). modules are hexadecimal digests by name. References
// of secrets count, never values. Names are quoted and digests of one length, so that two sets of modules never give the
// same text.
func Fingerprint(program [32]byte, modules map[string]string, inputs []byte, secrets map[string]string) (Digests, error) {
	canonical, err := Canonical(inputs)
	if err != nil {
		return Digests{}, fault.InvalidFields(fault.Field{Name: "inputs", Problem: "not JSON: " + err.Error()})
	}
	named, referenced := sha256.New(), sha256.New()
	for _, name := range sortedNames(modules) {
		_, _ = fmt.Fprintf(named, "%q%s", name, modules[name]) // writing to a hash does not fail
	}
	for _, name := range sortedNames(secrets) {
		_, _ = fmt.Fprintf(referenced, "%q%q", name, secrets[name])
	}
	return Digests{Program: program, Modules: [32]byte(named.Sum(nil)), Inputs: sha256.Sum256(canonical), Secrets: [32]byte(referenced.Sum(nil))}, nil
}

// conflict is the refusal of a start whose id is taken by another (D5).
func conflict(workflow string, differing []string) error {
	fields := make([]fault.Field, len(differing))
	for i, part := range differing {
		fields[i] = fault.Field{Name: part, Problem: "differs from what the workflow was started with"}
	}
	return fault.WithFields(fault.Conflict, fmt.Sprintf("workflow %q exists with different %s", workflow, strings.Join(differing, ", ")), fields...)
}

// Canonical is JSON with sorted members and no white space; nothing stands for an empty object. Numbers are compared as
// they are written.
func Canonical(data []byte) ([]byte, error) {
	if len(bytes.TrimSpace(data)) == 0 {
		return []byte("{}"), nil
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, fmt.Errorf("byte %d: %w", offset(err, data), err)
	}
	if d.More() {
		return nil, fmt.Errorf("something follows the value at byte %d", d.InputOffset())
	}
	b, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	return b, nil
}

// offset is where a text stops being JSON, in bytes: the decoder itself only knows the last value that was whole.
func offset(err error, data []byte) int64 {
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		return syntax.Offset
	}
	return int64(len(data))
}

// arguments are canonical JSON as Functions take them: whole numbers are int64.
func arguments(data json.RawMessage) (map[string]any, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var args map[string]any
	if err := d.Decode(&args); err != nil {
		return nil, fmt.Errorf("decode arguments: %w", err)
	}
	plain, _ := plainNumbers(args).(map[string]any)
	return plain, nil
}

// plainNumbers changes v in place. A number that fits neither type stays as it was written, and so does a whole number that is too
// long for one: as a float it would be another.
func plainNumbers(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for key, member := range v {
			v[key] = plainNumbers(member)
		}
	case []any:
		for i, item := range v {
			v[i] = plainNumbers(item)
		}
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n
		}
		if !strings.ContainsAny(v.String(), ".eE") {
			return v
		}
		f, err := v.Float64()
		if err != nil {
			return v.String()
		}
		return f
	}
	return v
}
