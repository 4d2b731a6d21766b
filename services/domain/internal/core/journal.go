package core

import (
	"time"
)

// SubjectKind says which of the three journals a transition is in.
type SubjectKind string

// The kinds; they are also the prefixes of public identifiers.
const (
	SubjectRollout            SubjectKind = "rollout"
	SubjectRolloutEnvironment SubjectKind = "rolloutenvironment"
	SubjectDeployment         SubjectKind = "deployment"
	// SubjectApplication has no journal: it is what a difference is about that belongs to no rollout.
	SubjectApplication SubjectKind = "application"
)

// Subject is whose journal a transition is in.
type Subject struct {
	Kind SubjectKind
	ID   int64
}

// Transition is one row of a journal: a change of state, or a request for one, whose To is its From (D17).
type Transition struct {
	// ID orders all three journals: one sequence numbers them.
	ID      int64
	Subject Subject
	// From is empty for the creation.
	From, To State
	Verb     Verb
	// GateID is the gate that a request, a resolution or a deployment's progress is about; empty for everything else.
	GateID        string
	PrincipalType PrincipalType
	// PrincipalID is 0 where the principal has no number.
	PrincipalID int64
	Reason      string
	TriggeredBy string
	// Conditions are what satisfied each condition of a granted passage, the weights that the program of a requested one will skip, what
	// stops one, the freezes that are bypassed, what an approval counts for, or the passage that a breach went around; nil for other rows.
	Conditions []Condition
	// Breach reports whether a rollout failed because it advanced beyond a passage that was not granted (D46).
	Breach    bool
	CreatedAt time.Time
}

// Because is what happened with the reason that was given for it, if there is one.
func Because(what, reason string) string {
	if reason == "" {
		return what
	}
	return what + ": " + reason
}

// Inbound is an event that has come in, as far as the core needs to know it.
type Inbound struct {
	Organization int64
	// ID and Type go to the journal, as what triggered a change.
	ID, Type string
	// Correlation is the workflow that emitted it, if it says so.
	Correlation string
	// At is when it was emitted, by its emitter's clock.
	At time.Time
	// Envelope is the event itself, which only the adapters look at.
	Envelope any
}
