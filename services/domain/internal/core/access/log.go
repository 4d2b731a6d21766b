package access

import (
	"context"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// state is what the journal of changes keeps of a control, before or after.
type state = map[string]any

// note writes that the actor has changed access, in the transaction that does it: what it was before, and what it is from now on.
func note(
	ctx context.Context, tx Tx, a core.Actor, action core.Action, subject core.AccessSubject, detail string, before, after state,
) error {
	return noteWider(ctx, tx, a, core.Change{Action: action, Subject: subject, Detail: detail}, before, after)
}

// noteWider is note for what gives permissions.
func noteWider(ctx context.Context, tx Tx, a core.Actor, c core.Change, before, after state) error {
	var was, is any
	if before != nil {
		was = before
	}
	if after != nil {
		is = after
	}
	return core.Record(ctx, tx, a, c, was, is)
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
