package evidence

import (
	"context"
	"time"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// Entry is a row of the journal of changes, or one of a rollout's journal that is not the system's.
type Entry struct {
	core.Change
	// Journal is change or rollout. Of a rollout's row the action is its verb, and the detail the gate.
	Journal string
}

// Filter narrows the audit; its zero value does not. All conditions hold together.
type Filter struct {
	// PrincipalID is a member.
	PrincipalID int64
	// Action is a mutation, or a verb of rollouts.
	Action string
	// ApplicationID and EnvironmentID are what an entry concerns: of a rollout, all environments that it goes to.
	ApplicationID, EnvironmentID int64
	// Since is included, Until is not; nil for no bound.
	Since, Until *time.Time
}

// Audit is a page of who did what, newest first, for an actor who administers.
func (u *UseCases) Audit(ctx context.Context, a core.Actor, f Filter, p core.Page) (core.Slice[Entry], error) {
	if err := a.May(core.ActionAccessChanges); err != nil {
		return core.Slice[Entry]{}, err
	}
	return u.store.Audit(ctx, a.Organization, f, p)
}

// CountAudit is how many entries there are.
func (u *UseCases) CountAudit(ctx context.Context, a core.Actor, f Filter) (int, error) {
	if err := a.May(core.ActionAccessChanges); err != nil {
		return 0, err
	}
	return u.store.CountAudit(ctx, a.Organization, f)
}
