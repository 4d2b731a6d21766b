// Package driver loads deploy drivers. A driver is data, never code of ours: a manifest, Starlark programs and two config
// schemas (E30–E35). This package reads, checks, digests and keeps that data, and validates configuration against the
// schemas by reflection. It does not run programs, and nothing in it knows what a driver deploys to (R1).
//
// A driver's folder holds manifest.json, which describes its newest major, and one folder v1, v2 … for each major. An older major keeps its
// own manifest inside its folder. Old majors are never removed, and a driver_ref, name@major, never changes its meaning (R21, D7).
package driver

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/schema"
)

// The workflows of drivers. Every driver has the first three (E32).
const (
	// Onboarding checks that an environment can be reached and has what the driver needs.
	Onboarding Workflow = "onboarding"
	// Setup checks that an application fits an environment.
	Setup Workflow = "application_environment_setup"
	// Deploy carries a rollout through its environments.
	Deploy Workflow = "deploy"
	// Preview reports what a deploy would change, and changes nothing. It is optional.
	Preview Workflow = "preview"
	// Plan lists what kinds of things a deploy would change, and changes nothing (R4-19). It is optional, and run before a rollout begins.
	Plan Workflow = "plan"
	// Cancelled stops what a rollout has left behind that was cancelled. It is optional.
	Cancelled Workflow = "cancelled"
)

// A Workflow names one of a driver's programs.
type Workflow string

// Workflows returns all workflows that a driver may have, in the order in which an environment needs them.
func Workflows() []Workflow { return []Workflow{Onboarding, Setup, Preview, Plan, Deploy, Cancelled} }

// Inputs returns the names of the inputs of a workflow's program; each is a global there.
func (w Workflow) Inputs() []string {
	switch w {
	case Onboarding:
		return []string{"environment"}
	case Setup:
		return []string{"application_environment", "environment"}
	case Preview, Plan:
		return []string{"preview", "rollout", "version_set"}
	case Deploy:
		return []string{"pipeline", "rollout", "version_set"}
	case Cancelled:
		return []string{"cancelled", "pipeline", "rollout", "version_set"}
	case Check:
		return []string{"check", "config", "subject"}
	default:
		return nil
	}
}

// A Bundle is one major of one driver, checked and immutable.
type Bundle struct {
	name     string
	major    int
	digest   string
	files    map[string][]byte
	manifest manifest

	environment            *schema.Schema
	applicationEnvironment *schema.Schema
	// check is the schema of a check's configuration; nil for a driver.
	check *schema.Schema
}

// A Program is a workflow in the form that the engine accepts.
type Program struct {
	// Path is the file within the bundle, for messages.
	Path string
	// Source is the program's text.
	Source []byte
	// Modules holds the texts of the modules that it may load, by name.
	Modules map[string][]byte
}

// Ref returns the driver_ref: name@major.
func (b *Bundle) Ref() string { return Ref(b.name, b.major) }

// Name returns the driver's name, which is the manifest's ref.
func (b *Bundle) Name() string { return b.name }

// Major returns the major version.
func (b *Bundle) Major() int { return b.major }

// Digest identifies the exact content of the bundle: sha256:<64 hexadecimal digits> over its manifest and all files of its major.
func (b *Bundle) Digest() string { return b.digest }

// SupportedSteps returns the step types that the driver can execute (E33).
func (b *Bundle) SupportedSteps() []string { return slices.Clone(b.manifest.Steps) }

// Gates reports whether the deploy program stops at the weights of a pipeline. If it does not, the approvals of the weights are requested
// before the rollout enters the environment (D46).
func (b *Bundle) Gates() bool { return b.manifest.Gates == nil || *b.manifest.Gates }

// Fleets reports whether environments of many clusters can be deployed to wave by wave (D61).
func (b *Bundle) Fleets() bool { return b.manifest.Fleets == nil || *b.manifest.Fleets }

// FindsDrift reports whether its plan lists what differs now from what was deployed, given the commit of that (R4-11).
func (b *Bundle) FindsDrift() bool { return b.manifest.Drift && b.Has(Plan) }

// EnvironmentSchema returns the schema of an environment's config, from which a form can be built (E36).
func (b *Bundle) EnvironmentSchema() json.RawMessage {
	return slices.Clone(b.files[b.manifest.EnvironmentSchema])
}

// ApplicationEnvironmentSchema returns the schema of an application's config in an environment.
func (b *Bundle) ApplicationEnvironmentSchema() json.RawMessage {
	return slices.Clone(b.files[b.manifest.ApplicationEnvironmentSchema])
}

// Program returns one of the driver's workflows. Every bundle has the three that E32 names; the error is NotFound for a missing Preview,
// Plan or Cancelled.
func (b *Bundle) Program(w Workflow) (Program, error) {
	path, ok := b.manifest.Workflows[string(w)]
	if b.IsCheck() && w == Check {
		path, ok = b.manifest.Check.Program, true
	}
	if !ok {
		return Program{}, fault.New(fault.NotFound, "driver %s has no workflow %q", b.Ref(), w)
	}
	modules := hostOf(b.files)
	for name, file := range b.manifest.Modules {
		modules[name] = slices.Clone(b.files[file])
	}
	return Program{Path: path, Source: slices.Clone(b.files[path]), Modules: modules}, nil
}

// Has reports whether the bundle has a workflow.
func (b *Bundle) Has(w Workflow) bool {
	_, ok := b.manifest.Workflows[string(w)]
	return ok || w == Check && b.IsCheck()
}

// ValidateEnvironment checks an environment's config. The error is Invalid, with one field for each finding, named by its
// JSON pointer; a missing member is named itself, not its parent.
func (b *Bundle) ValidateEnvironment(config json.RawMessage) error {
	if err := b.environment.Validate(config); err != nil {
		return fmt.Errorf("environment config for driver %s: %w", b.Ref(), err)
	}
	return nil
}

// ValidateApplicationEnvironment checks an application's config in an environment, as ValidateEnvironment does.
func (b *Bundle) ValidateApplicationEnvironment(config json.RawMessage) error {
	if err := b.applicationEnvironment.Validate(config); err != nil {
		return fmt.Errorf("application-environment config for driver %s: %w", b.Ref(), err)
	}
	return nil
}

// Ref returns the driver_ref of a major of a driver.
func Ref(name string, major int) string { return name + "@" + strconv.Itoa(major) }

var refForm = regexp.MustCompile(`^([a-z0-9]+(?:-[a-z0-9]+)*)@([1-9][0-9]{0,3})$`)

// ParseRef parses a driver_ref.
func ParseRef(ref string) (name string, major int, err error) {
	m := refForm.FindStringSubmatch(ref)
	if m == nil {
		return "", 0, fault.InvalidFields(fault.Field{
			Name:    "driver_ref",
			Problem: fmt.Sprintf("found %q; expected name@major, such as argo-rollouts@1", ref),
		})
	}
	major, err = strconv.Atoi(m[2])
	if err != nil {
		return "", 0, fmt.Errorf("read major of %q: %w", ref, err)
	}
	return m[1], major, nil
}

// A Set holds the drivers of an installation by reference. It is immutable.
type Set struct {
	bundles map[string]*Bundle
}

// NewSet returns a set of bundles. The error is Conflict if two with different content have the same reference.
func NewSet(bundles ...*Bundle) (*Set, error) {
	s := &Set{bundles: map[string]*Bundle{}}
	for _, b := range bundles {
		if other, taken := s.bundles[b.Ref()]; taken && other.digest != b.digest {
			return nil, fault.New(fault.Conflict, "two drivers call themselves %s (%s and %s)", b.Ref(), other.digest, b.digest)
		}
		s.bundles[b.Ref()] = b
	}
	return s, nil
}

// Get returns the bundle of a driver_ref. The error is Invalid for a malformed reference and NotFound for an unknown one; it lists the
// installed drivers.
func (s *Set) Get(ref string) (*Bundle, error) {
	if _, _, err := ParseRef(ref); err != nil {
		return nil, err
	}
	if b, ok := s.bundles[ref]; ok {
		return b, nil
	}
	return nil, fault.New(fault.NotFound, "driver %q is not installed; installed: %s", ref, strings.Join(s.Refs(), ", "))
}

// Refs returns the references of all bundles, sorted.
func (s *Set) Refs() []string { return slices.Sorted(maps.Keys(s.bundles)) }

// All returns all bundles, ordered by reference.
func (s *Set) All() []*Bundle {
	all := make([]*Bundle, 0, len(s.bundles))
	for _, ref := range s.Refs() {
		all = append(all, s.bundles[ref])
	}
	return all
}

// With returns the union of two sets.
func (s *Set) With(other *Set) (*Set, error) { return NewSet(append(s.All(), other.All()...)...) }
