package notify

import (
	"time"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// Rollout is what messages say of a rollout.
type Rollout struct {
	ID, ApplicationID, RollbackOf int64
	State                         core.RolloutState
	Application, VersionSet       string
	// Labels are those of the application.
	Labels map[string]string
	// AskedBy is what those are called who created it.
	AskedBy string
	// Environments are in the order of promotion.
	Environments []RolloutEnvironment
	// Changes are what it changes in the first environment, at most 21.
	Changes []Change
}

// RolloutEnvironment is an environment of a rollout.
type RolloutEnvironment struct {
	ID    int64
	Name  string
	Tier  core.Tier
	State core.RolloutState
}

// Change is a version of a service that a rollout brings; Previous is empty if there was none.
type Change struct{ Service, Version, Previous string }

// Gate is what messages say of an approval.
type Gate struct {
	EnvironmentID int64
	Quorum        int
	Group, Reason string
	ExpiresAt     *time.Time
}

// Freeze is what messages say of a freeze.
type Freeze struct {
	StartsAt, EndsAt time.Time
	EndedAt          *time.Time
	Reason, Author   string
	// Scope is what it stops; empty for everything.
	Scope []string
}

// Credential is what messages say of a credential.
type Credential struct {
	Version   int
	ExpiresAt time.Time
}

// Advance is which messages something else has happened to that they are about.
type Advance struct {
	// Channels are those that can update a message, and Details those of them that have each advance as a reply.
	Channels, Details []int64
	Key               string
	// DueAt is when they are sent at the earliest, unless they are due anyway.
	DueAt time.Time
}
