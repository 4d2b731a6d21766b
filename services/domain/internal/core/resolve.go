package core

import (
	"context"
	"fmt"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// ApproveGate agrees to an open gate; with the last of its quorum the rollout goes on (R41, D24).
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
	action, verb := ActionRejectGate, VerbReject
	if approved {
		action, verb = ActionApproveGate, VerbApprove
	}
	return d.change(ctx, a, action, r.RolloutID, func(ctx context.Context, t *tree, s Standing) error {
		gate, err := s.mayResolve(a, r.GateID, approved)
		if err != nil {
			return err
		}
		if err := t.request(ctx, verb, r.GateID, r.Reason); err != nil {
			return err
		}
		if approved && len(gate.Approvals)+1 < gate.Quorum {
			return nil // the row counts, and the gate stays open for the others
		}
		return d.answer(ctx, t, r.GateID, approved, r.Reason)
	})
}

// answer tells of a gate that is closed, and ends the rollout where the answer is no.
func (d *Domain) answer(ctx context.Context, t *tree, gate string, approved bool, reason string) error {
	// A rejection is announced too, although the cancellation below stops the workflow: the event is a published fact,
	// which others may wait for (E69).
	err := t.tx.Announce(ctx, GateResolved{Actor: t.cause.Actor, RolloutID: t.rollout.ID, GateID: gate, Approved: approved, Reason: reason, At: t.cause.at})
	if err != nil || approved {
		return err
	}
	return d.cancel(ctx, t, because(fmt.Sprintf("gate %q was rejected", gate), reason))
}

// openGates are the rollout's, by id.
func (t *tree) openGates(ctx context.Context) (map[string]Gate, error) {
	open, err := t.tx.OpenGates(ctx, t.cause.Organization, []int64{t.rollout.ID})
	byID := map[string]Gate{}
	for _, g := range open[t.rollout.ID] {
		byID[g.GateID] = g
	}
	return byID, err
}

// CancelRollout ends a rollout where it stands, whatever gate is open (R41).
func (d *Domain) CancelRollout(ctx context.Context, a Actor, rollout int64, reason string) (Rollout, error) {
	if err := checkReason(reason); err != nil {
		return Rollout{}, err
	}
	return d.change(ctx, a, ActionCancelRollout, rollout, func(ctx context.Context, t *tree, _ Standing) error {
		return d.cancel(ctx, t, reason)
	})
}

// change runs fn over a locked rollout, unless its standing refuses the action, and answers it as it is afterwards.
func (d *Domain) change(ctx context.Context, a Actor, action Action, rollout int64, fn func(context.Context, *tree, Standing) error) (Rollout, error) {
	var changed Rollout
	err := d.by(ctx, a, action, func(ctx context.Context, tx Tx) error {
		t, err := lockTree(ctx, tx, cause{Actor: a, at: d.clock.Now()}, rollout)
		if err != nil {
			return err
		}
		s, err := t.standing(ctx)
		if err != nil {
			return err
		}
		if err := s.refuses(action); err != nil {
			return err
		}
		if err := fn(ctx, t, s); err != nil {
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
	who := because("cancelled by "+t.cause.name(), reason)
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
