package access

import (
	"context"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// note writes that the actor has changed somebody's access, in the transaction that does it.
func note(ctx context.Context, tx Tx, a core.Actor, action core.Action, subject core.AccessSubject, detail string) error {
	return tx.AddAccessChange(ctx, core.AccessChange{Principal: a.Principal(), Action: action, Subject: subject, Detail: detail})
}

// AccessChangesFor is a page of the log, newest first, for those who administer.
func (u *UseCases) AccessChangesFor(ctx context.Context, a core.Actor, p core.Page) (core.Slice[core.AccessChange], error) {
	if err := a.May(core.ActionAccessChanges); err != nil {
		return core.Slice[core.AccessChange]{}, err
	}
	return u.store.AccessChanges(ctx, a.Organization, p)
}

// CountAccessChangesFor is how many rows that log has.
func (u *UseCases) CountAccessChangesFor(ctx context.Context, a core.Actor) (int, error) {
	if err := a.May(core.ActionAccessChanges); err != nil {
		return 0, err
	}
	return u.store.CountAccessChanges(ctx, a.Organization)
}
