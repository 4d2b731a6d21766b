package core

import (
	"context"
	"time"
)

// Passing a gate. A workflow asks before it enters an environment or leaves a gate, and the answer is the domain's: so an
// operator's hold is decided by the record, in the transaction that reads it, and no pause can slip between two messages.
// Without a hold the answer comes at once. With one, the rollout is paused where it stands, and resuming it is the answer.

// PauseRollout holds a rollout: it goes past no further gate. Where it stands at one it is paused at once; on its way
// to one this is a request, and the next gate is where it becomes true (D17).
func (d *Domain) PauseRollout(ctx context.Context, a Actor, rollout int64, reason string) (Rollout, error) {
	if err := checkReason(reason); err != nil {
		return Rollout{}, err
	}
	return d.change(ctx, a, ActionPauseRollout, rollout, func(ctx context.Context, t *tree, s Standing) error {
		if s.hold.stands() {
			return t.moveRollout(ctx, VerbPause, reason)
		}
		return t.request(ctx, VerbPause, "", reason)
	})
}

// ResumeRollout ends a hold, also one that has not become true yet, and lets the rollout past the gates where it waits.
func (d *Domain) ResumeRollout(ctx context.Context, a Actor, rollout int64, reason string) (Rollout, error) {
	if err := checkReason(reason); err != nil {
		return Rollout{}, err
	}
	return d.change(ctx, a, ActionResumeRollout, rollout, func(ctx context.Context, t *tree, s Standing) error {
		// The hold had not become true yet: there is no state to leave, and nobody waits, so there is nothing to grant (D17).
		if t.rollout.State != RolloutPaused {
			return t.request(ctx, VerbResume, "", reason)
		}
		if err := t.moveRollout(ctx, VerbResume, reason); err != nil {
			return err
		}
		for _, gate := range s.hold.asking {
			if err := t.pass(ctx, gate); err != nil {
				return err
			}
		}
		return nil
	})
}

// PassageRequested is a workflow that asks to enter an environment, or to go past a gate.
type PassageRequested struct {
	RolloutID int64
	GateID    string
}

func (m PassageRequested) apply(ctx context.Context, _ *Domain, tx Tx, c cause, _ Inbound) error {
	t, err := lockTree(ctx, tx, c, m.RolloutID)
	if err != nil || t.rollout.State.Terminal() { // its workflow is being stopped: nobody waits for the answer
		return err
	}
	if err := t.moveRollout(ctx, VerbStart, ""); err != nil {
		return err
	}
	h, err := t.hold(ctx)
	if err != nil {
		return err
	}
	if !h.wanted {
		return t.pass(ctx, m.GateID)
	}
	if err := t.request(ctx, VerbRequestPassage, m.GateID, ""); err != nil {
		return err
	}
	// h is from before this row. That is enough: stand asks only whether a pause is wanted, and this row does not
	// change that.
	return t.stand(ctx, h)
}

// RolloutGateReached is that every deployment of an environment stands at a gate.
type RolloutGateReached struct {
	RolloutID, EnvironmentID int64
	Weight                   int
}

func (m RolloutGateReached) apply(ctx context.Context, _ *Domain, tx Tx, c cause, _ Inbound) error {
	t, err := lockTree(ctx, tx, c, m.RolloutID)
	if err != nil {
		return err
	}
	b, err := t.environment(m.EnvironmentID)
	if err != nil {
		return err
	}
	gate, err := t.gateName(ctx, b, m.Weight)
	if err != nil {
		return err
	}
	h, err := t.hold(ctx)
	if err != nil || h.reached[gate] { // told twice
		return err
	}
	if err := t.moveEnvironment(ctx, b, VerbStart, ""); err != nil {
		return err
	}
	// Also when the word comes late, after the gate was passed or the rollout has ended: the journal tells where it was.
	if err := t.request(ctx, VerbReachGate, gate, ""); err != nil || t.rollout.State.Terminal() || h.passed[gate] {
		return err
	}
	return t.stand(ctx, h)
}

// hold is what a rollout's journal says of its gates, and of the wish to stop there.
type hold struct {
	// wanted is that somebody has asked for a pause, and nobody has resumed since; why is the reason given.
	wanted bool
	why    string
	// word is the row that asked for it.
	word Transition
	// asking are the gates whose passage was asked for and not granted, in order.
	asking []string
	// at are the gates where it stands; reached those that it was told to be at, passed those it may go past.
	at, reached, passed map[string]bool
	// aborted is that somebody has asked for an abort, and nobody has retried since.
	aborted bool
	// asked is that people are asked to approve something.
	asked bool
	// broken is the row that passes approvals by break-glass; nil for none.
	broken *Transition
	// since is when it came to a gate, or asked to go past it, by the gate's name.
	since map[string]time.Time
}

// stands is whether nothing moves before somebody or something lets it.
func (h hold) stands() bool { return h.asked || len(h.at) > 0 || len(h.asking) > 0 }

// hold reads the rollout's own journal: it has few rows about gates, and what they say is needed only here.
func (t *tree) hold(ctx context.Context) (hold, error) {
	rows, err := t.tx.GateWordsByRollout(ctx, t.cause.Organization, []int64{t.rollout.ID})
	if err != nil {
		return hold{}, err
	}
	gates, err := t.tx.OpenGates(ctx, t.cause.Organization, []int64{t.rollout.ID})
	return holdOf(rows[t.rollout.ID], gates[t.rollout.ID]), err
}

// holdOf reads rows about gates and holds, oldest first. Whether people are asked is the open gates' to say: one approval
// need not be enough.
func holdOf(rows []Transition, open []Gate) hold {
	h := hold{asked: len(open) > 0, at: map[string]bool{}, reached: map[string]bool{}, passed: map[string]bool{}, since: map[string]time.Time{}}
	for _, r := range rows {
		h.read(r)
	}
	return h
}

func (h *hold) read(r Transition) {
	switch r.Verb {
	case VerbPause:
		h.wanted, h.why = true, r.Reason
		if !h.aborted { // then the pause is only its consequence
			h.word = r
		}
	case VerbResume:
		h.wanted, h.why = false, ""
	case VerbReachGate:
		h.reached[r.GateID], h.since[r.GateID] = true, r.CreatedAt
		if !h.passed[r.GateID] {
			h.at[r.GateID] = true
		}
	case VerbRequestPassage:
		h.asking = append(h.asking, r.GateID)
		h.since[r.GateID] = r.CreatedAt
	case VerbPassGate:
		delete(h.at, r.GateID)
		h.passed[r.GateID] = true
		h.asking = without(h.asking, r.GateID)
	case VerbAbort:
		// It leaves every gate, and comes to them again when it is retried.
		h.aborted, h.word, h.asking = true, r, nil
		clear(h.at)
		clear(h.reached)
		clear(h.passed)
	case VerbRetry:
		h.aborted = false
	case VerbBreakGlass:
		if r.GateID == "" && h.broken == nil {
			h.broken = &r
		}
	case VerbCreate, VerbStart, VerbRequestApproval, VerbApprove, VerbReject, VerbExpire, VerbComplete, VerbDegrade, VerbFail, VerbCancel, VerbSkip, VerbStopRollback:
	}
}

func without(all []string, one string) []string {
	kept := make([]string, 0, len(all))
	for _, s := range all {
		if s != one {
			kept = append(kept, s)
		}
	}
	return kept
}

// stand makes a wanted pause true, now that the rollout stands somewhere.
func (t *tree) stand(ctx context.Context, h hold) error {
	if !h.wanted || h.aborted || t.rollout.State == RolloutPaused {
		return nil
	}
	return t.moveRollout(ctx, VerbPause, h.why)
}

// pass grants the way past a gate: the row, and the word that the workflow waits for.
func (t *tree) pass(ctx context.Context, gate string) error {
	if err := t.request(ctx, VerbPassGate, gate, ""); err != nil {
		return err
	}
	return t.tx.Grant(ctx, Passage{Organization: t.cause.Organization, RolloutID: t.rollout.ID, GateID: gate, At: t.cause.at})
}

// gateName is how the journal calls a gate within an environment.
func (t *tree) gateName(ctx context.Context, b *branch, weight int) (string, error) {
	if t.cause.known != nil {
		if name, ok := t.cause.known.names[b.EnvironmentID]; ok {
			return weightGate(name, weight), nil
		}
	}
	environments, err := t.tx.EnvironmentsByID(ctx, t.cause.Organization, []int64{b.EnvironmentID})
	return weightGate(environments[b.EnvironmentID].Name, weight), err
}
