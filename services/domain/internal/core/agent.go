package core

import (
	"slices"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// Agent is what acts in a cluster for one organization: the relay beside it. Environments of that organization name it by its
// number, and nobody else's can.
type Agent struct {
	// ID is what configurations and the bus name it by. No two organizations have an agent of the same number.
	ID        int64
	Name      string
	RevokedAt *time.Time
	CreatedAt time.Time
}

// Open is nil while an agent is good, and Refused once it has been revoked.
func (a Agent) Open() error {
	if a.RevokedAt == nil {
		return nil
	}
	return fault.New(fault.Refused, "agent %q was revoked at %s; register another one", a.Name, a.RevokedAt.UTC().Format(time.RFC3339))
}

// AgentKey is what an agent shows to say which it is: the public half of an NKey (Ed25519). The seed is kept nowhere.
type AgentKey struct {
	ID, AgentID int64
	// PublicKey begins with U.
	PublicKey string
	// ExpiresAt is set once another key replaces this one.
	ExpiresAt *time.Time
	RevokedAt *time.Time
	// SeenAt is when a connection with it was seen last, to the minute.
	SeenAt    *time.Time
	CreatedAt time.Time
}

// GoodAt reports whether a key opens connections at an instant.
func (k AgentKey) GoodAt(at time.Time) bool {
	return k.RevokedAt == nil && (k.ExpiresAt == nil || k.ExpiresAt.After(at))
}

// connectedWithin is how long after it was seen last an agent counts as connected.
const connectedWithin = 2 * time.Minute

// ConnectedAt reports whether one of an agent's keys has a connection at an instant, as far as is known.
func ConnectedAt(keys []AgentKey, at time.Time) bool {
	return slices.ContainsFunc(keys, func(k AgentKey) bool { return k.GoodAt(at) && k.SeenAt != nil && at.Sub(*k.SeenAt) < connectedWithin })
}

// AgentLogin identifies the key that an agent connects with.
type AgentLogin struct {
	Organization, AgentID, KeyID int64
}

// AgentOwner is whose an agent is. Its organization never changes, and one that was revoked stays so.
type AgentOwner struct {
	AgentID, Organization int64
	Revoked               bool
}

// AgentReference is where a configuration names an agent.
type AgentReference struct {
	// At is a JSON pointer into the configuration.
	At     string
	Number int64
}
