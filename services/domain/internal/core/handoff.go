package core

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// HandoffKind says what is to be handed over.
type HandoffKind string

// The kinds.
const (
	HandoffStart  HandoffKind = "start"
	HandoffCancel HandoffKind = "cancel"
)

// HandoffSubject says whose workflow it is.
type HandoffSubject string

// The subjects.
const (
	HandoffRollout                HandoffSubject = "rollout"
	HandoffEnvironment            HandoffSubject = "environment"
	HandoffApplicationEnvironment HandoffSubject = "application_environment"
	HandoffPreview                HandoffSubject = "preview"
)

// The programs of a driver (E32).
const (
	ProgramDeploy     = "deploy"
	ProgramOnboarding = "onboarding"
	ProgramSetup      = "application_environment_setup"
	// ProgramPreview is one that a driver need not have.
	ProgramPreview = "preview"
)

// HandoffState is where a hand-over stands. The numbers are stored.
type HandoffState int16

// The states.
const (
	HandoffPending HandoffState = iota
	HandoffDone
	HandoffFailed
	HandoffWithdrawn
)

// Handoff is something still to be told to the workflow engine. It is written with the change that wants it, and
// WorkflowID is the idempotency key (D8): a crash anywhere between commit and answer loses nothing and starts nothing twice.
type Handoff struct {
	ID         int64
	Kind       HandoffKind
	WorkflowID string
	Subject    HandoffSubject
	SubjectID  int64
	// Program, DriverDigest and Inputs belong to a start, Reason to a cancellation.
	Program      string
	DriverDigest string
	Inputs       json.RawMessage
	Reason       string
	State        HandoffState
	// Attempts counts the claims, also those whose claimer was lost; above 0 the engine may know of the workflow.
	Attempts int
	// DueAt is when it is to be tried; after a claim, when somebody else may.
	DueAt time.Time
	// Error is what the last attempt met, for operators; never shown to callers of the API.
	Error string
	// Trace is where what becomes of it is recorded, in W3C form; empty where nothing is.
	Trace string
}

const (
	// handoffLease is how long a claimer may be lost before somebody else tries.
	handoffLease = 30 * time.Second
	// handoffCall bounds one call of the engine; less than the lease.
	handoffCall = 10 * time.Second
	// handoffPause doubles with each attempt and ends at handoffMaxPause, so that an engine that comes back is found
	// within half a minute.
	handoffPause    = 500 * time.Millisecond
	handoffMaxPause = 30 * time.Second
)

// HandOver tells the engine the next thing that is due; false when there was none. An error about a hand-over has been
// recorded with it and is for the log; one without is about the store.
func (d *Domain) HandOver(ctx context.Context, engine Engine) (Handoff, bool, error) {
	organizations, err := d.store.OrganizationsWithDueHandoffs(ctx, d.clock.Now())
	if err != nil {
		return Handoff{}, false, err
	}
	// Whoever has waited longest comes first. Another worker may have taken that one since, so the others are tried too.
	for _, organization := range organizations {
		h, with, ok, err := d.claimHandoff(ctx, organization)
		if err != nil {
			return Handoff{}, false, fmt.Errorf("claim a hand-over of organization %d: %w", organization, err)
		}
		if !ok {
			continue
		}
		// The call is outside of any transaction: a slow engine must hold no row locks. A crash here leaves the claim to
		// lapse, and the next claimer tells the engine the same again, which answers the same (D5, E19).
		ref, callErr := d.tell(ctx, engine, organization, h, with)
		if err := d.settle(ctx, organization, h, ref, callErr); err != nil {
			return h, true, fmt.Errorf("settle: %w", err)
		}
		return h, true, callErr
	}
	return Handoff{}, false, nil
}

// baggage is what a start needs beside its hand-over: the bytes of the driver that it starts a program of, and the agents that
// the run may call.
type baggage struct {
	driver []byte
	agents []int64
}

// claimHandoff takes one, with what it needs.
func (d *Domain) claimHandoff(ctx context.Context, organization int64) (h Handoff, with baggage, ok bool, err error) {
	err = d.store.In(ctx, organization, func(ctx context.Context, tx Tx) error {
		now := d.clock.Now()
		if h, ok, err = tx.ClaimHandoff(ctx, now, now.Add(handoffLease)); err != nil || !ok || h.Kind != HandoffStart {
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

func (d *Domain) tell(ctx context.Context, engine Engine, organization int64, h Handoff, with baggage) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, handoffCall)
	defer cancel()
	if h.Kind == HandoffCancel {
		err := engine.Cancel(ctx, organization, h.WorkflowID, h.Reason)
		if fault.Is(err, fault.NotFound) {
			return "", nil // it never started: nothing is left to cancel
		}
		return "", err
	}
	p, err := d.drivers.Program(with.driver, h.Program)
	if err != nil { // it could be read when it was kept
		return "", fault.Because(err, fault.Terminal, "program %s of driver %s cannot be read any more: %s", h.Program, h.DriverDigest, fault.Public(err))
	}
	return engine.Start(ctx, Workflow{
		Organization: organization, ID: h.WorkflowID, Program: p, Inputs: h.Inputs,
		Labels: map[string]string{"subject": fmt.Sprintf("%s_%d", h.Subject, h.SubjectID), "program": h.Program}, Agents: with.agents, Trace: h.Trace,
	})
}

// settle records what came of a call. What the engine refuses for good fails its subject with that reason; everything
// else is tried again for ever, with growing pauses.
func (d *Domain) settle(ctx context.Context, organization int64, h Handoff, ref string, callErr error) error {
	return d.store.In(ctx, organization, func(ctx context.Context, tx Tx) error {
		// When a call outlives its lease, two claimers settle the same one. The first ends it, and the save of the second
		// meets no pending row.
		if callErr == nil {
			h.State, h.Error = HandoffDone, ""
			if h.Kind == HandoffStart {
				if err := tx.SetWorkflowRef(ctx, h.Subject, h.SubjectID, ref); err != nil {
					return err
				}
			}
			return tx.SaveHandoff(ctx, h)
		}
		h.Error = callErr.Error()
		if !refusedForGood(callErr) {
			h.DueAt = d.clock.Now().Add(pauseAfter(h.Attempts))
			return tx.SaveHandoff(ctx, h)
		}
		h.State = HandoffFailed
		if h.Kind == HandoffStart { // the subject first: a cancellation locks it first, too
			c := cause{Actor: Actor{Organization: organization, Type: PrincipalSystem}, triggeredBy: "handoff " + h.WorkflowID, at: d.clock.Now()}
			if err := d.workflowEnded(ctx, tx, c, h.WorkflowID, VerbFail, "the workflow could not be started: "+fault.Public(callErr)); err != nil {
				return err
			}
		}
		return tx.SaveHandoff(ctx, h)
	})
}

// refusedForGood are the answers that a second attempt would get again.
func refusedForGood(err error) bool {
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
