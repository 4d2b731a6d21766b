package core

import (
	"slices"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/fleet"
)

// Agent is what acts in a cluster for one organization: the relay beside it. Environments of that organization name it by its
// number, and nobody else's can.
type Agent struct {
	// ID is what configurations and the bus name it by. No two organizations have an agent of the same number.
	ID   int64
	Name string
	// Labels are what the fleets of environments select agents by.
	Labels    map[string]string
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

// RolloutFleet is the fleet of an environment as a rollout has pinned it (D61).
type RolloutFleet struct {
	RolloutEnvironmentID int64
	Spec                 fleet.Spec
	// Agents are those of the environment's configuration: what the rollout has pinned in their clusters is in each target, too.
	Agents []int64
	// Waves and Targets are how many there are, Healthy and Failed how many targets have ended so.
	Waves, Targets, Healthy, Failed int
}

// RolloutWave is a wave of a rollout to a fleet.
type RolloutWave struct {
	RolloutEnvironmentID int64
	fleet.Wave
	// Attempt is how often it was let begin.
	Attempt   int
	StartedAt *time.Time
}

// TargetState is where a target of a rollout stands.
type TargetState string

// The states.
const (
	TargetPending   TargetState = "pending"
	TargetDeploying TargetState = "deploying"
	TargetHealthy   TargetState = "healthy"
	TargetFailed    TargetState = "failed"
)

// RolloutTarget is a cluster that a rollout deploys to as a part of a fleet.
type RolloutTarget struct {
	RolloutEnvironmentID, AgentID int64
	// Name is that of the agent, as it was when the rollout was created.
	Name  string
	Wave  int
	State TargetState
	// Attempt is that of the wave in which it was deployed last.
	Attempt int
	Reason  string
	// StartedAt and FinishedAt are those of the latest attempt.
	StartedAt, FinishedAt *time.Time
	// Place orders targets: failed ones first.
	Place int64
}

// TargetFilter selects targets; the zero value selects all of them.
type TargetFilter struct {
	Wave  int
	State TargetState
}
