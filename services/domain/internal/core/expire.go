package core

import (
	"context"
	"fmt"
	"time"
)

// GateExpiry is a question whose time is over.
type GateExpiry struct {
	ID, RolloutID int64
	GateID        string
	// AskedAt says which request it was.
	AskedAt time.Time
	// Outcome is what came of it: approve, reject, or answered, when somebody was quicker.
	Outcome string
}

// ExpireDue closes the next gate whose time is over (D24); false when there was none. The outcome is the rule's: it is
// journalled, and reaches the workflow that waits as any other answer does.
func (d *Domain) ExpireDue(ctx context.Context) (GateExpiry, bool, error) {
	organizations, err := d.store.OrganizationsWithDueGateExpiries(ctx, d.clock.Now())
	if err != nil {
		return GateExpiry{}, false, err
	}
	for _, organization := range organizations {
		var due GateExpiry
		var ok bool
		err := d.store.In(ctx, organization, func(ctx context.Context, tx Tx) error {
			var err error
			// Locked until it is settled, like a due rollback: others skip it, and a crash leaves it due.
			if due, ok, err = tx.DueGateExpiry(ctx, d.clock.Now()); err != nil || !ok {
				return err
			}
			if err := d.expire(ctx, tx, organization, &due); err != nil {
				return err
			}
			return tx.SettleGateExpiry(ctx, due.ID)
		})
		if err != nil || ok {
			d.wake()
			return due, ok, err
		}
	}
	return GateExpiry{}, false, nil
}

func (d *Domain) expire(ctx context.Context, tx Tx, organization int64, due *GateExpiry) error {
	due.Outcome = "answered"
	c := cause{
		Actor: Actor{Organization: organization, Type: PrincipalSchedule}, at: d.clock.Now(),
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
	reason := fmt.Sprintf("%d of %d had approved it within %.0f seconds; that means %s", len(gate.Approvals), gate.Quorum, gate.ExpiresAfter.Seconds(), gate.OnExpiry)
	if err := t.request(ctx, VerbExpire, due.GateID, reason); err != nil {
		return err
	}
	return d.answer(ctx, t, due.GateID, gate.OnExpiry == ExpiryApproves, "the gate has expired: "+reason)
}
