package handoff

import (
	"context"
	"fmt"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

const (
	// handoffLease is how long a claimer may be silent before another one tries.
	handoffLease = 30 * time.Second
	// handoffCall bounds one call of the engine; less than the lease.
	handoffCall = 10 * time.Second
	// handoffPause doubles with each attempt and ends at handoffMaxPause, so that an engine that comes back is found
	// within half a minute.
	handoffPause    = 500 * time.Millisecond
	handoffMaxPause = 30 * time.Second
)

// HandOver makes the next call to the engine that is due; false if none is. An error about a hand-over has been
// recorded with it and is for the log; one without is about the store.
func (u *UseCases) HandOver(ctx context.Context, engine Engine) (core.Handoff, bool, error) {
	organizations, err := u.store.OrganizationsWithDueHandoffs(ctx, u.clock.Now())
	if err != nil {
		return core.Handoff{}, false, err
	}
	// The one that has waited longest comes first. Another worker may have taken that one since, so the others are tried too.
	for _, organization := range organizations {
		h, with, ok, err := u.claimHandoff(ctx, organization)
		if err != nil {
			return core.Handoff{}, false, fmt.Errorf("claim a hand-over of organization %d: %w", organization, err)
		}
		if !ok {
			continue
		}
		// The call is outside of any transaction: a slow engine must hold no row locks. A crash here leaves the claim to
		// lapse, and the next claimer repeats the call, which has the same answer (D5, E19).
		ref, callErr := u.send(ctx, engine, organization, h, with)
		if err := u.settle(ctx, organization, h, ref, callErr); err != nil {
			return h, true, fmt.Errorf("settle: %w", err)
		}
		return h, true, callErr
	}
	return core.Handoff{}, false, nil
}

// baggage is what a start needs beside its hand-over: the bytes of the driver that it starts a program of, and the agents that
// the run may call.
type baggage struct {
	driver []byte
	agents []int64
}

// claimHandoff takes one, with what it needs.
func (u *UseCases) claimHandoff(ctx context.Context, organization int64) (h core.Handoff, with baggage, ok bool, err error) {
	err = u.store.In(ctx, organization, func(ctx context.Context, tx Tx) error {
		now := u.clock.Now()
		if h, ok, err = tx.ClaimHandoff(ctx, now, now.Add(handoffLease)); err != nil || !ok || h.Kind != core.HandoffStart {
			return err
		}
		// The bytes that were kept, not those that are installed now: a release in between must not change what runs (D7).
		if with.driver, err = tx.Bundle(ctx, h.DriverDigest); err != nil {
			return err
		}
		with.agents, err = tx.AgentNumbers(ctx)
		return err
	})
	return h, with, ok, err
}

func (u *UseCases) send(ctx context.Context, engine Engine, organization int64, h core.Handoff, with baggage) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, handoffCall)
	defer cancel()
	if h.Kind == core.HandoffCancel {
		err := engine.Cancel(ctx, organization, h.WorkflowID, h.Reason)
		if fault.Is(err, fault.NotFound) {
			return "", nil // it never started: nothing is left to cancel
		}
		return "", err
	}
	p, err := u.programs.Program(with.driver, h.Program)
	if h.Subject == core.HandoffCancellation && fault.Is(err, fault.NotFound) {
		return "", nil // the driver leaves nothing behind that it would have to stop
	}
	if err != nil { // it could be read when it was kept
		return "", fault.Because(
			err, fault.Terminal, "program %s of driver %s can no longer be read: %s", h.Program, h.DriverDigest, fault.Public(err),
		)
	}
	return engine.Start(ctx, Workflow{
		Organization: organization, ID: h.WorkflowID, Program: p, Inputs: h.Inputs,
		Labels: map[string]string{
			"subject": subjectOf(h), "program": h.Program,
		}, Agents: with.agents, Trace: h.Trace,
	})
}

// subjectOf is whose run it is, as it is labelled.
func subjectOf(h core.Handoff) string {
	if h.Subject == core.HandoffCancellation {
		h.Subject = core.HandoffRollout
	}
	return fmt.Sprintf("%s_%d", h.Subject, h.SubjectID)
}

// settle records the result of a call. What the engine refuses permanently fails its subject with that reason; everything
// else is tried again for ever, with growing pauses.
func (u *UseCases) settle(ctx context.Context, organization int64, h core.Handoff, ref string, callErr error) error {
	return u.store.In(ctx, organization, func(ctx context.Context, tx Tx) error {
		// When a call outlives its lease, two claimers settle the same one. The first ends it, and the save of the second
		// meets no pending row.
		if callErr == nil {
			h.State, h.Error = core.HandoffDone, ""
			if h.Kind == core.HandoffStart {
				if err := tx.SetWorkflowRef(ctx, h.Subject, h.SubjectID, ref); err != nil {
					return err
				}
			}
			return tx.SaveHandoff(ctx, h)
		}
		h.Error = callErr.Error()
		if !RefusedPermanently(callErr) {
			h.DueAt = u.clock.Now().Add(pauseAfter(h.Attempts))
			return tx.SaveHandoff(ctx, h)
		}
		h.State = core.HandoffFailed
		if h.Kind == core.HandoffStart { // the subject first: a cancellation locks it first, too
			if err := u.rollouts.StartRefused(ctx, tx, organization, h.WorkflowID, fault.Public(callErr)); err != nil {
				return err
			}
		}
		return tx.SaveHandoff(ctx, h)
	})
}

// RefusedPermanently reports whether a second call would get the same answer.
func RefusedPermanently(err error) bool {
	switch fault.ClassOf(err) {
	case fault.Invalid, fault.Conflict, fault.Refused, fault.NotFound, fault.Terminal:
		return true
	// A wrong token or a defect over there is for an operator to mend; meanwhile no rollout fails for it.
	case fault.Internal, fault.Unauthenticated, fault.Denied, fault.Unavailable, fault.Limited:
		return false
	default:
		return false
	}
}

func pauseAfter(attempts int) time.Duration {
	// The bound on the shift keeps the pause from overflowing: attempts grow for ever.
	return min(handoffMaxPause, handoffPause<<min(attempts, 10))
}
