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

// Transition is one row of a journal: a change of state, or a request for one, whose To is its From (D17). States are
// numbers here because the kinds have their own; StateName names them.
type Transition struct {
	// ID orders all three journals: one sequence numbers them.
	ID      int64
	Subject Subject
	// From is nil for the creation.
	From *int16
	To   int16
	Verb Verb
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
	// Breach is that a rollout failed because it advanced beyond a passage that was not granted (D46).
	Breach    bool
	CreatedAt time.Time
}

// FromName and ToName are the states as the API spells them; FromName is empty for the creation.
func (t Transition) FromName() string {
	if t.From == nil {
		return ""
	}
	return StateName(t.Subject.Kind, *t.From)
}

// ToName is the state after the transition.
func (t Transition) ToName() string { return StateName(t.Subject.Kind, t.To) }

// StateName names a state of a kind of subject: "in_progress", "healthy".
func StateName(kind SubjectKind, state int16) string {
	if kind == SubjectDeployment {
		return DeploymentState(state).String()
	}
	return RolloutState(state).String()
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
	// Envelope is the event itself, which only the adapters look at.
	Envelope any
}
