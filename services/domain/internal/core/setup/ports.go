package setup

import (
	"encoding/json"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// Sources understands the artifact sources of this installation, whose configuration is opaque to everybody else (R7).
type Sources interface {
	// Kinds is every kind of source, by reference.
	Kinds() []SourceKind
	// Key is what a published artifact is looked up by. The findings are JSON pointers into the source: /sourceRef,
	// /sourceConfig/image.
	Key(ref string, config json.RawMessage) (string, []fault.Field)
}

// SourceKind is one kind of artifact source.
type SourceKind struct {
	// Ref is the source_ref: name@major.
	Ref string
	// Schema is the JSON Schema of the configuration, annotated for a form to reflect on (R23).
	Schema json.RawMessage
}

// Drivers are the deploy drivers of the installation. They may change while it runs: a tag of a registry moves.
type Drivers interface {
	// Now is what there is now. A use case takes it once, so that what it has checked is what it pins.
	Now() DriverSet
	// Origins are where drivers come from, and what is wrong there.
	Origins() []core.DriverOrigin
}

// DriverSet is drivers that no longer change.
type DriverSet interface {
	// All is every driver, by reference.
	All() []core.Driver
	// Lookup finds one; the error is NotFound and names those there are.
	Lookup(ref string) (core.Driver, error)
	// ValidateEnvironment and ValidateApplicationEnvironment check a configuration against a driver's schema. The error
	// is Invalid, its fields JSON pointers into the configuration.
	ValidateEnvironment(ref string, config json.RawMessage) error
	ValidateApplicationEnvironment(ref string, config json.RawMessage) error
	// CheckAllowed checks an application's configuration, which has passed its schema, against what that of the environment allows.
	// The error is as theirs.
	CheckAllowed(ref string, environment, config json.RawMessage) error
	// CheckNamespace checks the namespace of a job of a runbook against what the environment's configuration allows. The error is Invalid.
	CheckNamespace(ref string, environment json.RawMessage, namespace string) error
	// JobNamespace is the namespace of the jobs of an application that name none, by the places that the driver's manifest declares; "" for
	// none. declared is false where it declares no places.
	JobNamespace(ref string, environment, config json.RawMessage) (namespace string, declared bool, err error)
	// Agents are where a configuration of an environment, which has passed the schema, names agents.
	Agents(ref string, config json.RawMessage) ([]core.AgentReference, error)
	// Places are what a rollout changes, as the driver's manifest declares it; declared is false where it does not. config and discovered
	// are of an application in the environment; nil for none.
	Places(ref string, environment, config, discovered json.RawMessage) (places []core.Place, declared bool, err error)
	// Combine is one driver that carries a rollout through environments of all these drivers, and its bytes (D53). Its programs do not
	// depend on the order. The error is Refused if one of them cannot be combined.
	Combine(refs ...string) (core.Driver, []byte, error)
	// Export is the bytes of a driver or a check kind, to be kept.
	Export(ref string) ([]byte, error)
	CheckKinds
}

// CheckKinds are the kinds of checks whose programs decide (D48).
type CheckKinds interface {
	// CheckKinds is every one, by reference.
	CheckKinds() []core.InstalledCheckKind
	// LookupCheck finds one by its reference, or by its name for its first major; the error is Invalid and names those there are.
	LookupCheck(kind string) (core.InstalledCheckKind, error)
	// ValidateCheck checks the configuration of a check for a target: active or proposed. The error is Invalid, its fields JSON pointers
	// into the configuration; without fields it is about the kind.
	ValidateCheck(kind, target string, config json.RawMessage) error
}

// Flows reads flow definitions.
type Flows interface {
	// Read reads one. The error is Invalid, its fields JSON pointers into the definition, for a malformed one.
	Read(definition json.RawMessage) (core.Flow, error)
	// ReadChecks reads the checks of an environment. The error is Invalid, its fields JSON pointers that begin with /checks.
	ReadChecks(checks json.RawMessage) (core.CheckSet, error)
	// CheckChecks checks them against the check kinds. The error is as that of ReadChecks.
	CheckChecks(checks json.RawMessage, kinds CheckKinds) error
	// ChecksSchema is the JSON Schema of the checks of an environment, from which forms are made.
	ChecksSchema(kinds []core.InstalledCheckKind) (json.RawMessage, error)
	// DefinitionSchema is the JSON Schema of a flow definition, from which forms are made.
	DefinitionSchema(kinds []core.InstalledCheckKind) (json.RawMessage, error)
}

// Drivers are the deploy drivers of this installation, by reference.
func (u *UseCases) Drivers() []core.Driver { return u.drivers.Now().All() }

// CheckKinds are the check kinds of this installation, by reference.
func (u *UseCases) CheckKinds() []core.InstalledCheckKind { return u.drivers.Now().CheckKinds() }

// DriverOrigins are where they come from, and what is wrong there.
func (u *UseCases) DriverOrigins() []core.DriverOrigin { return u.drivers.Origins() }

// SourceKinds are the kinds of artifact sources of this installation, by reference.
func (u *UseCases) SourceKinds() []SourceKind { return u.sources.Kinds() }
