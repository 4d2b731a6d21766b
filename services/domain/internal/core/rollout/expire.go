package rollout

import (
	"context"
	"fmt"

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

// ReviewDue evaluates the requested passages of the next rollout for which that is due (D46): a freeze has ended, a check has changed, or a
// time has come. It answers 0 when there was none.
func (u *UseCases) ReviewDue(ctx context.Context) (rollout int64, worked bool, err error) {
	organizations, err := u.store.OrganizationsWithDueReviews(ctx, u.clock.Now())
	if err != nil {
		return 0, false, err
	}
	for _, organization := range organizations {
		err := u.store.In(ctx, organization, func(ctx context.Context, tx Tx) error {
			rollout = 0
			// Locked until they are settled: other replicas skip them, and a crash leaves them due. Rows that are added from here on stay.
			due, reviews, err := tx.DueReview(ctx, u.clock.Now())
			if err != nil || len(reviews) == 0 {
				return err
			}
			rollout = due
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
		if err != nil || rollout != 0 {
			u.wake()
			return rollout, rollout != 0, err
		}
	}
	return 0, false, nil
}
