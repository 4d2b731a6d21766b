// Package access holds the use cases about who may do what: members, groups, tokens and sessions, sign-ins at an identity provider,
// organizations, agents and their keys, and the log of changes to all of these. It also keeps the requests that clients send under keys
// of their own, so that a repeated one gets the first answer.
package access

import (
	"cmp"
	"context"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// UseCases changes and reads access.
//
// Errors have the classes of pkg/fault: Invalid with the fields at fault, NotFound, Conflict (a name is taken), Refused
// (not in the present state), Unavailable. It is safe for concurrent use.
type UseCases struct {
	store                            Store
	keys                             Keys
	clock                            clock.Clock
	sessionLife, identitySessionLife time.Duration
	agentsChanged                    func()
	fleets                           Fleets
	exports                          chan struct{} // a place for each export that may be under way
}

// Fleets announces which clusters fleets have.
type Fleets interface {
	// LabelsChanged announces the fleets that an agent becomes a target of, or is one no longer, by a change of its labels.
	LabelsChanged(ctx context.Context, tx core.FleetPlacesTx, organization int64, before, after map[string]string) error
}

// noFleets announces nothing.
type noFleets struct{}

func (noFleets) LabelsChanged(context.Context, core.FleetPlacesTx, int64, map[string]string, map[string]string) error {
	return nil
}

// Deps is what UseCases needs.
type Deps struct {
	Store Store
	// Keys makes the keys of agents.
	Keys  Keys
	Clock clock.Clock
	// SessionLife is how long a browser stays signed in with a token, IdentitySessionLife after a sign-in at an identity provider; 0 for
	// the constants of these names.
	SessionLife, IdentitySessionLife time.Duration
	// AgentsChanged is called after a change of agents or their keys: a connected agent may have lost its key, and the engine has to be
	// notified; may be nil.
	AgentsChanged func()
	// Fleets receives changes of labels; may be nil.
	Fleets Fleets
}

// New makes the use cases over their dependencies.
func New(d Deps) *UseCases {
	if d.AgentsChanged == nil {
		d.AgentsChanged = func() {}
	}
	if d.Fleets == nil {
		d.Fleets = noFleets{}
	}
	return &UseCases{
		fleets: d.Fleets,
		store:  d.Store, keys: d.Keys, clock: d.Clock, agentsChanged: d.AgentsChanged,
		sessionLife:         cmp.Or(d.SessionLife, SessionLife),
		identitySessionLife: cmp.Or(d.IdentitySessionLife, IdentitySessionLife),
		exports:             make(chan struct{}, exportsAtOnce),
	}
}
