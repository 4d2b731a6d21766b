package core

import (
	"cmp"
	"encoding/json"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
)

// Domain is the only writer of the domain's tables, and, through the embedded Reads, the way to look at them.
//
// Errors have the classes of pkg/fault: Invalid with the fields at fault, NotFound, Conflict (a name is taken), Refused
// (not in the present state), Unavailable. It is safe for concurrent use.
type Domain struct {
	Reads
	store   Store
	drivers Drivers
	flows   Flows
	sources Sources
	watch   SourceWatch
	// workflows is the engine, for looking into it.
	workflows Workflows
	clock     clock.Clock
	keys      Keys
	// sessionLife and identitySessionLife are those of Deps.
	sessionLife, identitySessionLife time.Duration
	wake                             func()
	// agentsChanged is Deps.AgentsChanged.
	agentsChanged func()

	horizons horizons
}

// Deps is what a Domain needs.
type Deps struct {
	Store   Store
	Drivers Drivers
	Flows   Flows
	Sources Sources
	Watch   SourceWatch
	// Workflows looks into the engine.
	Workflows Workflows
	Clock     clock.Clock
	// Keys makes the keys of agents.
	Keys Keys
	// AgentsChanged is called after a change of agents or their keys: somebody connected may not be any more, and the engine has
	// something to learn; may be nil.
	AgentsChanged func()
	// SessionLife is how long a browser stays signed in with a token, IdentitySessionLife after a sign-in at an identity provider; 0 for
	// the constants of these names.
	SessionLife, IdentitySessionLife time.Duration
	// Wake is called after a change that left something to hand over or to publish; may be nil.
	Wake func()
}

// New is the domain over its parts.
func New(d Deps) *Domain {
	if d.Wake == nil {
		d.Wake = func() {}
	}
	if d.AgentsChanged == nil {
		d.AgentsChanged = func() {}
	}
	d.SessionLife, d.IdentitySessionLife = cmp.Or(d.SessionLife, SessionLife), cmp.Or(d.IdentitySessionLife, IdentitySessionLife)
	return &Domain{sessionLife: d.SessionLife, identitySessionLife: d.IdentitySessionLife, Reads: d.Store, store: d.Store, drivers: d.Drivers, flows: d.Flows, sources: d.Sources, watch: d.Watch, workflows: d.Workflows, clock: d.Clock, keys: d.Keys, wake: d.Wake, agentsChanged: d.AgentsChanged}
}

// Drivers are the deploy drivers of this installation, by reference.
func (d *Domain) Drivers() []Driver { return d.drivers.Now().All() }

// DriverOrigins are where they come from, and what is wrong there.
func (d *Domain) DriverOrigins() []DriverOrigin { return d.drivers.Origins() }

// SourceKinds are the kinds of artifact sources of this installation, by reference.
func (d *Domain) SourceKinds() []SourceKind { return d.sources.Kinds() }

// NewApplication is an application with its services and their sources, created together (E52).
type NewApplication struct {
	Name        string
	Description string
	Services    []NewService
}

// NewService is one service of a NewApplication.
type NewService struct {
	Name            string
	Description     string
	ArtifactSources []NewArtifactSource
}

// NewArtifactSource is one source of a NewService.
type NewArtifactSource struct {
	Ref string
	// Config is of the kind that Ref names; see Sources.
	Config json.RawMessage
}

// NewEnvironment is an environment with its first driver binding.
type NewEnvironment struct {
	Name        string
	Description string
	Tier        Tier
	DriverRef   string
	// DriverConfig is checked against the driver's schema, and opaque otherwise (E5).
	DriverConfig json.RawMessage
}

// NewFlowDefinition is a new version of an application's pipeline.
type NewFlowDefinition struct {
	ApplicationID int64
	Definition    json.RawMessage
}

// NewRollout asks for a rollout of a version set by the latest pipeline of its application.
type NewRollout struct {
	// VersionSetID may be any set of the application, also an earlier one: that is a rollback (E12).
	VersionSetID int64
	Reason       string
	// Again deploys it also where it is live in every environment already.
	Again bool
}

// Resolution answers a gate.
type Resolution struct {
	RolloutID int64
	// GateID names which gate: several may be open at once (D24).
	GateID string
	Reason string
}
