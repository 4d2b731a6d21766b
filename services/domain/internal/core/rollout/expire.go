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
		"%d of %d had approved it within %.0f seconds; that means %s", len(gate.Approvals), gate.Quorum, gate.ExpiresAfter.Seconds(),
		gate.OnExpiry,
	)
	if err := t.request(ctx, core.VerbExpire, due.GateID, reason); err != nil {
		return err
	}
	if err := u.answer(ctx, t, due.GateID, gate.OnExpiry == core.ExpiryApproves, "the gate has expired: "+reason); err != nil {
		return err
	}
	return u.decide(ctx, t)
}
