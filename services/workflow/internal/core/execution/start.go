package execution

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/secret/reference"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/program"
)

// Start is everything a program is started with.
type Start struct {
	Organization int64
	Workflow     string
	Program      program.Program
	// Inputs is a JSON object; each member becomes a global of the program.
	Inputs []byte
	// Secrets are references by name, never values (D27).
	Secrets map[string]string
	Labels  map[string]string
	// Trace is that of the caller, in W3C form, if it is recorded. It is no part of what is started: the same workflow
	// asked for in another trace is the same.
	Trace string
	// Message is sent to the run's inbox in the transaction that stores it; nil: none. It is no part of what is started either.
	Message *history.Message
}

// Started is the receipt for a Start.
type Started struct {
	Workflow, Ref string
	// Created is false when the run existed already.
	Created bool
}

// The sizes a Start may have.
const (
	maxWorkflowID = 255
	maxModules    = 64
	maxName       = 255 // bytes
	maxLabels     = 32
	maxLabel      = 255
)

// Validate finds everything that is wrong with a start except in its program. All of it at once: the caller is a
// program whose author would otherwise find one mistake at a time.
func (s Start) Validate() error {
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
		if _, err := history.Canonical(s.Inputs); err != nil { // which says where, and takes nothing for an empty object
			report("inputs", "not JSON: %s", err)
		}
	}
	for _, name := range sortedNames(s.Labels) {
		if problem := CheckLabel(name, s.Labels[name]); problem != "" {
			report("labels."+name, "%s", problem)
		}
	}
	if len(fields) > 0 {
		return fault.InvalidFields(fields...)
	}
	return nil
}

// Admit is validate for what a caller brings, with the names of modules and secrets that nobody can have meant. Runs of a flow that was
// registered before names were looked at still begin: validate alone is for them.
func (s Start) Admit() error {
	fields := fault.FieldsOf(s.Validate())
	if len(bytes.TrimSpace(s.Inputs)) > 0 && !slices.ContainsFunc(fields, func(f fault.Field) bool { return f.Name == "inputs" }) {
		fields = append(fields, fault.FieldsOf(history.InputsDoor.CheckField("inputs", s.Inputs))...)
	}
	for _, brought := range []struct {
		field string
		names []string
	}{{"modules", sortedNames(s.Program.Modules)}, {"secrets", sortedNames(s.Secrets)}} {
		for _, name := range brought.names {
			if name == "" || len(name) > maxName || !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl) {
				fields = append(fields, fault.Field{
					Name: brought.field,
					Problem: fmt.Sprintf("found the name %.80q of %d bytes, expected 1 to %d bytes of text without control characters", name,
						len(name), maxName),
				})
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
