// Package bundle gives the core its deploy drivers and reads its flow definitions: the ports over pkg/driver and
// pkg/flow. It looks inside neither configuration nor programs.
package bundle

import (
	"encoding/json"
	"fmt"

	"github.com/lockstep-cd/lockstep/pkg/driver"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// Drivers is core.Drivers over a set of bundles.
type Drivers struct {
	set *driver.Set
}

var _ core.Drivers = Drivers{}

// NewDrivers are the drivers of a set.
func NewDrivers(set *driver.Set) Drivers { return Drivers{set} }

// All implements core.Drivers.
func (d Drivers) All() []core.Driver {
	var all []core.Driver
	for _, b := range d.set.All() {
		all = append(all, describe(b))
	}
	return all
}

func describe(b *driver.Bundle) core.Driver {
	return core.Driver{
		Ref: b.Ref(), Digest: b.Digest(), SupportedSteps: b.SupportedSteps(),
		EnvironmentSchema: b.EnvironmentSchema(), ApplicationEnvironmentSchema: b.ApplicationEnvironmentSchema(),
	}
}

// Lookup implements core.Drivers.
func (d Drivers) Lookup(ref string) (core.Driver, error) {
	b, err := d.find(ref)
	if err != nil {
		return core.Driver{}, err
	}
	return describe(b), nil
}

func (d Drivers) find(ref string) (*driver.Bundle, error) {
	b, err := d.set.Get(ref)
	if err != nil {
		return nil, fault.Because(err, fault.NotFound, "%s", fault.Public(err)) // malformed or unknown: there is none
	}
	return b, nil
}

// ValidateEnvironment implements core.Drivers.
func (d Drivers) ValidateEnvironment(ref string, config json.RawMessage) error {
	b, err := d.find(ref)
	if err != nil {
		return err
	}
	return b.ValidateEnvironment(config)
}

// ValidateApplicationEnvironment implements core.Drivers.
func (d Drivers) ValidateApplicationEnvironment(ref string, config json.RawMessage) error {
	b, err := d.find(ref)
	if err != nil {
		return err
	}
	return b.ValidateApplicationEnvironment(config)
}

// Export implements core.Drivers.
func (d Drivers) Export(ref string) ([]byte, error) {
	b, err := d.find(ref)
	if err != nil {
		return nil, err
	}
	return b.Export()
}

// Program implements core.Drivers.
func (d Drivers) Program(content []byte, program string) (core.Program, error) {
	// The bundle that was kept, which may be one that this installation does not carry any more (D7).
	b, err := driver.Import(content)
	if err != nil {
		return core.Program{}, fmt.Errorf("read kept driver: %w", err)
	}
	p, err := b.Program(driver.Workflow(program))
	if err != nil {
		return core.Program{}, err
	}
	return core.Program{Source: p.Source, Modules: p.Modules}, nil
}
