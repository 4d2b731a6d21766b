package execution

import (
	"crypto/sha256"
	"fmt"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/program"
)

// Digests identify what an execution was started with, so that a second Start can be compared with the first, and what
// differs be named (D5). Labels are not among them: they are the caller's notes and change nothing that runs.
type Digests struct {
	Program, Modules, Inputs, Secrets [32]byte
}

// Differences names the parts in which two starts differ. The names are those of StartWorkflowRequest's fields, which
// is where the caller looks.
func (d Digests) Differences(other Digests) []string {
	var names []string
	for _, part := range []struct {
		name  string
		equal bool
	}{
		{"starlark", d.Program == other.Program},
		{"modules", d.Modules == other.Modules},
		{"inputs", d.Inputs == other.Inputs},
		{"secrets", d.Secrets == other.Secrets},
	} {
		if !part.equal {
			names = append(names, part.name)
		}
	}
	return names
}

// Digests are those of a start. Inputs that are not JSON are fault.Invalid.
func (s Start) Digests() (Digests, error) {
	modules := make(map[string]string, len(s.Program.Modules))
	for name, source := range s.Program.Modules {
		modules[name] = program.Hex(program.Digest(source))
	}
	return Fingerprint(program.Digest(s.Program.Source), modules, s.Inputs, s.Secrets)
}

// Fingerprint digests each part that makes two starts the same or not (D5). modules are hexadecimal digests by name. References
// of secrets count, never values. Names are quoted and digests of one length, so that two sets of modules never give the
// same text.
func Fingerprint(program [32]byte, modules map[string]string, inputs []byte, secrets map[string]string) (Digests, error) {
	canonical, err := history.Canonical(inputs)
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
	return Digests{
		Program: program, Modules: [32]byte(named.Sum(nil)), Inputs: sha256.Sum256(canonical),
		Secrets: [32]byte(referenced.Sum(nil)),
	}, nil
}

// Conflict is the refusal of a start whose id is taken by another (D5).
func Conflict(workflow string, differing []string) error {
	fields := make([]fault.Field, len(differing))
	for i, part := range differing {
		fields[i] = fault.Field{Name: part, Problem: "differs from what the workflow was started with"}
	}
	return fault.WithFields(fault.Conflict, fmt.Sprintf("workflow %q exists with different %s", workflow, strings.Join(differing, ", ")),
		fields...)
}
