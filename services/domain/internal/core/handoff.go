package core

import (
	"encoding/json"
	"time"
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
	HandoffCheck                  HandoffSubject = "check"
	// HandoffCancellation is of a rollout that was cancelled.
	HandoffCancellation HandoffSubject = "cancellation"
)

// The programs of a driver (E32).
const (
	ProgramDeploy     = "deploy"
	ProgramOnboarding = "onboarding"
	ProgramSetup      = "application_environment_setup"
	// ProgramPreview is one that a driver need not have.
	ProgramPreview = "preview"
	// ProgramPlan is one that a driver need not have either.
	ProgramPlan = "plan"
	// ProgramCancelled stops what a cancelled rollout has left behind; a driver need not have it, either.
	ProgramCancelled = "cancelled"
	// ProgramCheck is that of a check kind.
	ProgramCheck = "check"
)

// HandoffState is where a hand-over stands.
type HandoffState string

// The states.
const (
	HandoffPending   HandoffState = "pending"
	HandoffDone      HandoffState = "done"
	HandoffFailed    HandoffState = "failed"
	HandoffWithdrawn HandoffState = "withdrawn"
)

// Handoff is a call to the workflow engine that is still to be made. It is written with the change that causes it, and
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
	// DueAt is when it is to be tried; after a claim, when another worker may.
	DueAt time.Time
	// Error is what the last attempt met, for operators; never shown to callers of the API.
	Error string
	// Trace is the trace in which its progress is recorded, in W3C form; empty if none is.
	Trace string
}
