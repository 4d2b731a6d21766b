// Package bundle gives the core its deploy drivers and reads its flow definitions: the ports over pkg/driver and
// pkg/flow. It looks inside neither configuration nor programs.
package bundle

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/driver"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/handoff"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/setup"
)

// set is setup.DriverSet over a set of bundles.
type set struct {
	bundles *driver.Set
	// from is where each bundle comes from, by its reference.
	from map[string]provenance
}

// provenance is where a bundle comes from.
type provenance struct{ origin, artifact string }

var _ setup.DriverSet = (*set)(nil)

// All implements setup.DriverSet.
func (d *set) All() []core.Driver {
	var all []core.Driver
	for _, b := range d.bundles.All() {
		if !b.IsCheck() {
			all = append(all, d.describe(b))
		}
	}
	return all
}

// CheckKinds implements setup.DriverSet.
func (d *set) CheckKinds() []core.InstalledCheckKind {
	var all []core.InstalledCheckKind
	for _, b := range d.bundles.All() {
		if b.IsCheck() {
			all = append(all, d.describeCheck(b))
		}
	}
	return all
}

func (d *set) describeCheck(b *driver.Bundle) core.InstalledCheckKind {
	from := d.from[b.Ref()]
	kind := core.InstalledCheckKind{
		Ref: b.Ref(), Digest: b.Digest(), Description: b.Description(), Schema: b.CheckSchema(),
		Origin: from.origin, ArtifactDigest: from.artifact,
	}
	for _, target := range b.CheckTargets() {
		kind.Targets = append(kind.Targets, core.CheckTarget(target))
	}
	return kind
}

// LookupCheck implements setup.DriverSet.
func (d *set) LookupCheck(kind string) (core.InstalledCheckKind, error) {
	b, err := d.checkKind(kind)
	if err != nil {
		return core.InstalledCheckKind{}, err
	}
	return d.describeCheck(b), nil
}

// checkKind finds a check kind.
func (d *set) checkKind(kind string) (*driver.Bundle, error) {
	b, err := d.bundles.Get(driver.CheckRef(kind))
	if err == nil && b.IsCheck() {
		return b, nil
	}
	expected := []string{"status", "timer", "schedule", "health"}
	for _, other := range d.CheckKinds() {
		expected = append(expected, other.Ref)
	}
	return nil, fault.New(fault.Invalid, "found %q, which is not installed; expected one of %s", kind, strings.Join(expected, ", "))
}

// ValidateCheck implements setup.DriverSet.
func (d *set) ValidateCheck(kind, target string, config json.RawMessage) error {
	b, err := d.checkKind(kind)
	if err != nil {
		return err
	}
	if !slices.Contains(b.CheckTargets(), target) {
		return fault.New(fault.Invalid, "found %q among what is %s; its checks are about what is %s", kind, target,
			strings.Join(b.CheckTargets(), " or "))
	}
	return b.ValidateCheck(config)
}

func (d *set) describe(b *driver.Bundle) core.Driver {
	from := d.from[b.Ref()]
	return core.Driver{
		Ref: b.Ref(), Digest: b.Digest(), Origin: from.origin, ArtifactDigest: from.artifact, SupportedSteps: b.SupportedSteps(),
		Gates: b.Gates(), Previews: b.Has(driver.Preview), Combines: b.Combines(), CombinesPreview: b.CombinesPreview(),
		Plans: b.Has(driver.Plan), CombinesPlan: b.CombinesPlan(), FindsDrift: b.FindsDrift(), Fleets: b.Fleets(),
		EnvironmentSchema: b.EnvironmentSchema(), ApplicationEnvironmentSchema: b.ApplicationEnvironmentSchema(),
	}
}

// Lookup implements setup.DriverSet.
func (d *set) Lookup(ref string) (core.Driver, error) {
	b, err := d.find(ref)
	if err != nil {
		return core.Driver{}, err
	}
	return d.describe(b), nil
}

func (d *set) find(ref string) (*driver.Bundle, error) {
	b, err := d.bundles.Get(ref)
	if err != nil {
		return nil, fault.Because(err, fault.NotFound, "%s", fault.Public(err)) // malformed or unknown: there is none
	}
	if b.IsCheck() {
		return nil, fault.New(fault.NotFound, "%s is a check kind; expected a driver", ref)
	}
	return b, nil
}

// ValidateEnvironment implements setup.DriverSet.
func (d *set) ValidateEnvironment(ref string, config json.RawMessage) error {
	b, err := d.find(ref)
	if err != nil {
		return err
	}
	return b.ValidateEnvironment(config)
}

// ValidateApplicationEnvironment implements setup.DriverSet.
func (d *set) ValidateApplicationEnvironment(ref string, config json.RawMessage) error {
	b, err := d.find(ref)
	if err != nil {
		return err
	}
	return b.ValidateApplicationEnvironment(config)
}

// CheckAllowed implements setup.DriverSet.
func (d *set) CheckAllowed(ref string, environment, config json.RawMessage) error {
	b, err := d.find(ref)
	if err != nil {
		return err
	}
	return b.CheckAllowed(environment, config)
}

// CheckNamespace implements setup.DriverSet.
func (d *set) CheckNamespace(ref string, environment json.RawMessage, namespace string) error {
	b, err := d.find(ref)
	if err != nil {
		return err
	}
	return b.CheckNamespace(environment, namespace)
}

// JobNamespace implements setup.DriverSet.
func (d *set) JobNamespace(ref string, environment, config json.RawMessage) (namespace string, declared bool, err error) {
	b, err := d.find(ref)
	if err != nil {
		return "", false, err
	}
	namespace, err = b.JobNamespace(environment, config)
	return namespace, b.DeclaresPlaces(), err
}

// agentPicker is the widget of a field that names an agent.
const agentPicker = "agent_picker"

// Agents implements setup.DriverSet. The schema says which fields name agents, so that the domain need not know the driver.
func (d *set) Agents(ref string, config json.RawMessage) ([]core.AgentReference, error) {
	b, err := d.find(ref)
	if err != nil {
		return nil, err
	}
	var schema struct {
		Properties map[string]struct {
			UI struct {
				Widget string `json:"widget"`
			} `json:"gitlabUi"`
		} `json:"properties"`
	}
	var values map[string]json.RawMessage
	if err := errors.Join(json.Unmarshal(b.EnvironmentSchema(), &schema), json.Unmarshal(config, &values)); err != nil {
		return nil, fmt.Errorf("read the agents of a configuration of %s: %w", ref, err)
	}
	var named []core.AgentReference
	for _, field := range slices.Sorted(maps.Keys(schema.Properties)) {
		value, given := values[field]
		if !given || schema.Properties[field].UI.Widget != agentPicker {
			continue
		}
		n := core.AgentReference{At: "/" + field}
		if err := json.Unmarshal(value, &n.Number); err != nil {
			return nil, fault.InvalidFields(fault.Field{
				Name:    "/driverConfig/" + field,
				Problem: "expected the number of an agent, without a fraction",
			})
		}
		named = append(named, n)
	}
	return named, nil
}

// Places implements setup.DriverSet.
func (d *set) Places(ref string, environment, config, discovered json.RawMessage) ([]core.Place, bool, error) {
	b, err := d.find(ref)
	if err != nil || !b.DeclaresPlaces() {
		return nil, false, err
	}
	declared, err := b.Places(environment, config, discovered)
	places := make([]core.Place, len(declared))
	for i, p := range declared {
		places[i] = core.Place(p)
	}
	return places, true, err
}

// Combine implements setup.DriverSet.
func (d *set) Combine(refs ...string) (core.Driver, []byte, error) {
	bundles := make([]*driver.Bundle, len(refs))
	for i, ref := range refs {
		b, err := d.find(ref)
		if err != nil {
			return core.Driver{}, nil, err
		}
		bundles[i] = b
	}
	combined, err := driver.Combine(bundles...)
	if err != nil {
		return core.Driver{}, nil, err
	}
	content, err := combined.Export()
	return d.describe(combined), content, err
}

// Export implements setup.DriverSet.
func (d *set) Export(ref string) ([]byte, error) {
	b, err := d.bundles.Get(ref)
	if err != nil {
		return nil, fault.Because(err, fault.NotFound, "%s", fault.Public(err))
	}
	return b.Export()
}

// Program implements handoff.Programs.
func (*Drivers) Program(content []byte, program string) (handoff.Program, error) {
	// The bundle that was kept, which may be one that this installation no longer carries (D7).
	b, err := driver.Import(content)
	if err != nil {
		return handoff.Program{}, fmt.Errorf("read kept driver: %w", err)
	}
	p, err := b.Program(driver.Workflow(program))
	if err != nil {
		return handoff.Program{}, err
	}
	return handoff.Program{Source: p.Source, Modules: p.Modules}, nil
}
