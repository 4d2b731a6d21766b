package handoff

import (
	"context"
	"time"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/rollout"
)

// Store keeps what this package needs. Its errors have the classes of pkg/fault.
type Store interface {
	core.Transactions[Tx]
	// OrganizationsWithDueHandoffs are those that have something to hand over at an instant.
	OrganizationsWithDueHandoffs(ctx context.Context, at time.Time) ([]int64, error)
	// AgentOwners are all agents of all organizations, the revoked ones too.
	AgentOwners(ctx context.Context) ([]core.AgentOwner, error)
}

// Tx is what a use case may do in its transaction. Get and lock methods answer NotFound for what the organization does not have.
type Tx interface {
	rollout.Tx
	// Bundle is what was kept under a digest, whatever is installed by now (D7).
	Bundle(ctx context.Context, digest string) ([]byte, error)

	// ClaimHandoff takes the next one that is due and makes it due again at until, for the case that the claimer is lost.
	// It skips what others are claiming, and whatever has an older one of the same workflow before it.
	ClaimHandoff(ctx context.Context, at, until time.Time) (core.Handoff, bool, error)
	// SaveHandoff writes state, due time and error.
	SaveHandoff(ctx context.Context, h core.Handoff) error
	// SetWorkflowRef stores the handle on the subject.
	SetWorkflowRef(ctx context.Context, kind core.HandoffSubject, id int64, ref string) error

	// AgentNumbers are the agents that are not revoked.
	AgentNumbers(ctx context.Context) ([]int64, error)
}
