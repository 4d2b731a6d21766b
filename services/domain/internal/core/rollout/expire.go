package rollout

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// ExpireDue closes the next gate whose time is over (D24); false when there was none. The outcome is the rule's: it is
// journalled, and reaches the workflow that waits as any other answer does.
func (u *UseCases) ExpireDue(ctx context.Context) (core.GateExpiry, bool, error) {
	organizations, err := u.store.OrganizationsWithDueGateExpiries(ctx, u.clock.Now())
	if err != nil {
		return core.GateExpiry{}, false, err
	}
	for _, organization := range organizations {
		var due core.GateExpiry
		var ok bool
		err := u.store.In(ctx, organization, func(ctx context.Context, tx Tx) error {
			var err error
			// Locked until it is settled, like a due rollback: others skip it, and a crash leaves it due.
			if due, ok, err = tx.DueGateExpiry(ctx, u.clock.Now()); err != nil || !ok {
				return err
			}
			if err := u.expire(ctx, tx, organization, &due); err != nil {
				return err
			}
			return tx.SettleGateExpiry(ctx, due.ID)
		})
		if err != nil || ok {
			u.wake()
			return due, ok, err
		}
	}
	return core.GateExpiry{}, false, nil
}

func (u *UseCases) expire(ctx context.Context, tx Tx, organization int64, due *core.GateExpiry) error {
	due.Outcome = "answered"
	c := cause{
		Actor: core.Actor{Organization: organization, Type: core.PrincipalSchedule}, at: u.clock.Now(),
		triggeredBy: "expiry of gate " + due.GateID,
	}
	t, err := lockTree(ctx, tx, c, due.RolloutID)
	if err != nil || t.rollout.State.Terminal() {
		return err
	}
	gates, err := t.openGates(ctx)
	if err != nil {
		return err
	}
	gate, open := gates[due.GateID]
	if !open || !gate.RequestedAt.Equal(due.AskedAt) {
		return nil
	}
	due.Outcome = string(gate.OnExpiry)
	reason := fmt.Sprintf(
		"%s had approved it within %.0f seconds; that means %s", gate.Progress(gate.Approvals), gate.ExpiresAfter.Seconds(), gate.OnExpiry,
	)
	if err := t.request(ctx, core.VerbExpire, due.GateID, reason); err != nil {
		return err
	}
	if err := u.answer(ctx, t, due.GateID, gate.OnExpiry == core.ExpiryApproves, "the gate has expired: "+reason); err != nil {
		return err
	}
	return u.decide(ctx, t)
}

// reviewAgain is how long a review that has failed is postponed.
const reviewAgain = 10 * time.Second

// ReviewDue evaluates the requested passages of the next rollout for which that is due (D46): a freeze has ended, a check has changed, or a
// time has come. Organizations take turns. A review that fails is postponed, and the next organization is tried; the error is then about
// the failed ones, also if worked is true: then rollout was evaluated.
func (u *UseCases) ReviewDue(ctx context.Context) (rollout int64, worked bool, err error) {
	organizations, err := u.store.OrganizationsWithDueReviews(ctx, u.clock.Now())
	if err != nil {
		return 0, false, err
	}
	var failed []error
	for _, organization := range inTurn(organizations, u.reviewed.Load()) {
		u.reviewed.Store(organization)
		rollout, reviews, err := u.reviewIn(ctx, organization)
		switch {
		case err == nil && rollout == 0:
			continue
		case err == nil:
			u.wake()
			return rollout, true, errors.Join(failed...)
		case ctx.Err() != nil:
			return 0, false, err
		}
		failed = append(failed, fmt.Errorf("review rollout %d of organization %d: %w", rollout, organization, err))
		if err := u.postponeReviews(ctx, organization, rollout, reviews); err != nil {
			failed = append(failed, err)
		}
	}
	return 0, false, errors.Join(failed...)
}

// inTurn are organizations in the order of their turns, behind the one that was last.
func inTurn(organizations []int64, last int64) []int64 {
	slices.Sort(organizations)
	at, found := slices.BinarySearch(organizations, last)
	if found {
		at++
	}
	return slices.Concat(organizations[at:], organizations[:at])
}

// reviewIn evaluates the passages of the next rollout of an organization for which that is due; 0 without any. Also with an error it says
// which it was, and of which reviews.
func (u *UseCases) reviewIn(ctx context.Context, organization int64) (rollout int64, reviews []int64, err error) {
	err = u.store.In(ctx, organization, func(ctx context.Context, tx Tx) (err error) {
		// Locked until they are settled: other replicas skip them, and a crash leaves them due. Rows that are added from here on stay.
		if rollout, reviews, err = tx.DueReview(ctx, u.clock.Now()); err != nil {
			return err
		}
		if len(reviews) == 0 {
			return tx.SettleLostReviews(ctx, u.clock.Now())
		}
		c := cause{
			Actor: core.Actor{Organization: organization, Type: core.PrincipalSchedule}, at: u.clock.Now(), triggeredBy: "review of passages",
		}
		t, err := lockTree(ctx, tx, c, rollout)
		if err != nil {
			return err
		}
		if t.rollout.State.Terminal() {
			err = tx.ForgetPassageStops(ctx, rollout, nil)
		} else {
			err = u.decide(ctx, t)
		}
		if err != nil {
			return err
		}
		return tx.SettleReviews(ctx, reviews)
	})
	return rollout, reviews, err
}

// postponeReviews has a rollout reviewed later in place of reviews that have failed, in a transaction of its own.
func (u *UseCases) postponeReviews(ctx context.Context, organization, rollout int64, reviews []int64) error {
	if len(reviews) == 0 {
		return nil
	}
	return u.store.In(ctx, organization, func(ctx context.Context, tx Tx) error {
		if err := tx.ScheduleReview(ctx, rollout, u.clock.Now().Add(reviewAgain)); err != nil {
			return err
		}
		return tx.SettleReviews(ctx, reviews)
	})
}

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
