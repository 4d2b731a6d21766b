package model

import (
	"cmp"
	"time"

	"github.com/99designs/gqlgen/graphql"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// Trigger wraps the domain's.
type Trigger struct{ core.Trigger }

// AuthorName is what the member was called who saved it last; nil for a default.
func (t Trigger) AuthorName() *string {
	if t.ID == 0 {
		return nil
	}
	return &t.Author.Name
}

// SavedAt is when it was saved last; nil for a default.
func (t Trigger) SavedAt() *time.Time {
	if t.ID == 0 {
		return nil
	}
	return &t.ChangedAt
}

// WrapTrigger wraps the domain's.
func WrapTrigger(t core.Trigger) Trigger { return Trigger{t} }

// TriggerDecision wraps the domain's.
type TriggerDecision struct{ core.TriggerSignal }

// DecidesAt is when it decides, or decided.
func (d TriggerDecision) DecidesAt() time.Time {
	if d.DecidedAt == nil || d.Outcome == core.TriggerWaits {
		return d.DueAt
	}
	return *d.DecidedAt
}

// Edit is what came of the files that are edited first; nil for none.
func (d TriggerDecision) Edit() *TriggerEdit {
	if d.TriggerSignal.Edit == nil {
		return nil
	}
	return &TriggerEdit{*d.TriggerSignal.Edit}
}

// Sender is who has sent the event; nil for nobody, or where it is not known.
func (d TriggerDecision) Sender() *EventSender {
	by := d.TriggerSignal.Sender
	if by.Type == "" {
		return nil
	}
	return &EventSender{PrincipalType: string(by.Type), PrincipalID: by.ID, Name: by.Name}
}

// EventSender is who has sent an event.
type EventSender struct {
	PrincipalType string
	PrincipalID   int64
	Name          string
}

// TriggerEdit wraps the domain's.
type TriggerEdit struct{ core.TriggerEdit }

// WrapTriggerDecision wraps the domain's.
func WrapTriggerDecision(s core.TriggerSignal) TriggerDecision { return TriggerDecision{s} }

// PromotionHold wraps the domain's.
type PromotionHold struct{ core.PromotionHold }

// WrapPromotionHold wraps the domain's.
func WrapPromotionHold(h core.PromotionHold) PromotionHold { return PromotionHold{h} }

// MarshalTriggerKind writes a kind.
func MarshalTriggerKind(k core.TriggerKind) graphql.Marshaler { return word(string(k)) }

// UnmarshalTriggerKind reads a kind.
func UnmarshalTriggerKind(v any) (core.TriggerKind, error) {
	return enum(v, core.TriggerVersion, core.TriggerManual, core.TriggerDrift, core.TriggerSchedule, core.TriggerEvent,
		core.TriggerChain, core.TriggerGit)
}

// MarshalTriggerEditState writes how far an edit has come.
func MarshalTriggerEditState(s core.EditState) graphql.Marshaler {
	return word(cmp.Or(string(s), pending))
}

// UnmarshalTriggerEditState reads how far an edit has come.
func UnmarshalTriggerEditState(v any) (core.EditState, error) {
	s, err := enum(v, pending, core.EditCommitted, core.EditProposed, core.EditUnchanged, core.EditFailed)
	if s == pending {
		s = core.EditPending
	}
	return s, err
}

// pending is how the API spells an outcome that is empty.
const pending = "pending"

// MarshalTriggerOutcome writes an outcome.
func MarshalTriggerOutcome(o core.TriggerOutcome) graphql.Marshaler {
	if o == core.TriggerPending {
		return word(pending)
	}
	return word(string(o))
}

// UnmarshalTriggerOutcome reads an outcome.
func UnmarshalTriggerOutcome(v any) (core.TriggerOutcome, error) {
	o, err := enum(v, pending, core.TriggerWaits, core.TriggerBegan, core.TriggerQueued, core.TriggerDeclined, core.TriggerDone)
	if o == pending {
		o = core.TriggerPending
	}
	return o, err
}
