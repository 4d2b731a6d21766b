package rollout

import (
	"context"
	"time"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// Events arrive in any order. If the end of a rollout arrives before those of everything under it, the missing events decide how far
// each deployment got, and so what the rollback policy does. Such a rollout is therefore closed a while later: whatever has not ended
// by then is cancelled with it.

// closingGrace bounds how late an event may arrive: longer than a redelivery.
const closingGrace = 30 * time.Second

// quiet reports whether no event about the rollout's environments can still be in flight: a workflow reports a failed
// environment before the rollout. Once it has, and all that had begun there has ended, nothing is missing.
func (t *tree) quiet() bool {
	failed := false
	for _, b := range t.environments {
		failed = failed || b.State == core.RolloutFailed
		if b.State == core.RolloutPending {
			continue
		}
		if !b.State.Terminal() {
			return false
		}
		for _, dep := range b.deployments {
			if !dep.State.Terminal() {
				return false
			}
		}
	}
	return failed
}

// closeSoon closes a failed rollout at once where nothing is missing, and otherwise when no more events can arrive.
func (t *tree) closeSoon(ctx context.Context, reason string) error {
	if t.quiet() {
		return t.close(ctx, reason)
	}
	return t.tx.ScheduleClosing(ctx, t.rollout.ID, reason, t.cause.at.Add(closingGrace))
}

// close decides on the rollback, while the states still show how far each deployment came, and ends what is under the rollout.
func (t *tree) close(ctx context.Context, reason string) error {
	if err := t.wantRollback(ctx); err != nil {
		return err
	}
	if err := t.cancelAll(ctx, core.Because("the rollout failed", reason)); err != nil {
		return err
	}
	return t.tx.SettleClosing(ctx, t.rollout.ID)
}

// CloseDue closes the next failed rollout about which no more events can arrive; false when there was none.
func (u *UseCases) CloseDue(ctx context.Context) (core.Closing, bool, error) {
	organizations, err := u.store.OrganizationsWithDueClosings(ctx, u.clock.Now())
	if err != nil {
		return core.Closing{}, false, err
	}
	for _, organization := range organizations {
		var due core.Closing
		var ok bool
		err := u.store.In(ctx, organization, func(ctx context.Context, tx Tx) error {
			var err error
			if due, ok, err = tx.DueClosing(ctx, u.clock.Now()); err != nil || !ok {
				return err
			}
			c := cause{
				Actor: core.Actor{Organization: organization, Type: core.PrincipalSystem}, at: u.clock.Now(),
				triggeredBy: "end of workflow " + rolloutWorkflow(due.RolloutID),
			}
			t, err := lockTree(ctx, tx, c, due.RolloutID)
			if err != nil {
				return err
			}
			if !t.rollout.State.Terminal() {
				if err := t.moveRollout(ctx, core.VerbFail, due.Reason); err != nil {
					return err
				}
			}
			if t.rollout.State != core.RolloutFailed {
				return tx.SettleClosing(ctx, due.RolloutID) // it has said how it went meanwhile
			}
			return t.close(ctx, due.Reason)
		})
		if err != nil || ok {
			u.wake()
			return due, ok, err
		}
	}
	return core.Closing{}, false, nil
}
