package core

import (
	"context"
	"fmt"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// ApproveGate resolves an open gate: the rollout goes on (R41).
func (d *Domain) ApproveGate(ctx context.Context, a Actor, r Resolution) (Rollout, error) {
	return d.resolve(ctx, a, r, true)
}

// RejectGate resolves an open gate: the rollout is cancelled (R41).
func (d *Domain) RejectGate(ctx context.Context, a Actor, r Resolution) (Rollout, error) {
	return d.resolve(ctx, a, r, false)
}

func (d *Domain) resolve(ctx context.Context, a Actor, r Resolution, approved bool) (Rollout, error) {
	if err := checkReason(r.Reason); err != nil {
		return Rollout{}, err
	}
	return d.change(ctx, a, r.RolloutID, func(ctx context.Context, t *tree) error {
		if err := t.gateIsOpen(ctx, r.GateID); err != nil {
			return err
		}
		verb := VerbReject
		if approved {
			verb = VerbApprove
		}
		if err := t.request(ctx, verb, r.GateID, r.Reason); err != nil {
			return err
		}
		// A rejection is announced too, although the cancellation below stops the workflow: the event is a
		// published fact, which others may wait for (E69).
		err := t.tx.Announce(ctx, GateResolved{Actor: a, RolloutID: r.RolloutID, GateID: r.GateID, Approved: approved, Reason: r.Reason, At: t.cause.at})
		if err != nil || approved {
			return err
		}
		reason := fmt.Sprintf("gate %q was rejected", r.GateID)
		if r.Reason != "" {
			reason += ": " + r.Reason
		}
		return d.cancel(ctx, t, reason)
	})
}

// gateIsOpen refuses what has no open gate of that name.
func (t *tree) gateIsOpen(ctx context.Context, gate string) error {
	if t.rollout.State.Terminal() {
		return fault.New(fault.Refused, "rollout_%d is over: %s", t.rollout.ID, t.rollout.State)
	}
	gates, err := t.tx.OpenGates(ctx, t.cause.Organization, []int64{t.rollout.ID})
	if err != nil {
		return err
	}
	var open []string
	for _, g := range gates[t.rollout.ID] {
		if g.GateID == gate {
			return nil
		}
		open = append(open, g.GateID)
	}
	if len(open) == 0 {
		return fault.New(fault.Refused, "gate %q of rollout_%d is not open; no gate is", gate, t.rollout.ID)
	}
	return fault.New(fault.Refused, "gate %q of rollout_%d is not open; open: %s", gate, t.rollout.ID, strings.Join(open, ", "))
}

// CancelRollout ends a rollout where it stands, whatever gate is open (R41).
func (d *Domain) CancelRollout(ctx context.Context, a Actor, rollout int64, reason string) (Rollout, error) {
	if err := checkReason(reason); err != nil {
		return Rollout{}, err
	}
	return d.change(ctx, a, rollout, func(ctx context.Context, t *tree) error {
		if t.rollout.State.Terminal() {
			return fault.New(fault.Refused, "rollout_%d is over already: %s", rollout, t.rollout.State)
		}
		return d.cancel(ctx, t, reason)
	})
}

// change runs fn over a locked rollout and answers it as it is afterwards.
func (d *Domain) change(ctx context.Context, a Actor, rollout int64, fn func(context.Context, *tree) error) (Rollout, error) {
	var changed Rollout
	err := d.store.In(ctx, a.Organization, func(ctx context.Context, tx Tx) error {
		t, err := lockTree(ctx, tx, cause{Actor: a, at: d.clock.Now()}, rollout)
		if err != nil {
			return err
		}
		if err := fn(ctx, t); err != nil {
			return err
		}
		// Read again, in the same transaction: the tree does not have what is derived.
		after, err := tx.RolloutsByID(ctx, a.Organization, []int64{rollout})
		changed = after[rollout]
		return err
	})
	d.wake()
	return changed, err
}

// cancel ends a rollout and everything under it, and has its workflow stopped. A start that nobody has tried to hand over
// yet is taken back instead.
func (d *Domain) cancel(ctx context.Context, t *tree, reason string) error {
	if err := t.moveRollout(ctx, VerbCancel, reason); err != nil {
		return err
	}
	id := rolloutWorkflow(t.rollout.ID)
	// Once a start was claimed the engine may have it, even if no answer has come: then only a cancellation is safe. It
	// waits behind the start (ClaimHandoff), so that it never finds nothing to cancel because it was faster.
	withdrawn, err := t.tx.WithdrawStart(ctx, id)
	if err != nil || withdrawn {
		return err
	}
	who := fmt.Sprintf("cancelled by %s %d", t.cause.Type, t.cause.ID)
	if reason != "" {
		who += ": " + reason
	}
	return t.tx.AddHandoff(ctx, Handoff{
		Kind: HandoffCancel, WorkflowID: id, Subject: HandoffRollout, SubjectID: t.rollout.ID, Reason: who, DueAt: t.cause.at,
	})
}

const maxReason = 1000

func checkReason(reason string) error {
	if len(reason) <= maxReason {
		return nil
	}
	return fault.InvalidFields(fault.Field{Name: "/reason", Problem: fmt.Sprintf("found %d bytes; expected at most %d", len(reason), maxReason)})
}
