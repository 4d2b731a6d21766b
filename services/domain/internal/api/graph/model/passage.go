package model

import (
	"strings"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/view"
)

// GateRequirement wraps the domain's.
type GateRequirement struct{ core.RequirementState }

// Group is null where no group is named.
func (r GateRequirement) Group() *string { return orNull(r.RequirementState.Group) }

func wrapRequirements(all []core.RequirementState) []GateRequirement {
	wrapped := make([]GateRequirement, len(all))
	for i, one := range all {
		wrapped[i] = GateRequirement{one}
	}
	return wrapped
}

// Requirements are all that have to be met.
func (g Gate) Requirements() []GateRequirement { return wrapRequirements(g.States(g.Gate.Approvals)) }

// Requirements are those of an approval.
func (w Wait) Requirements() []GateRequirement { return wrapRequirements(w.Wait.Requirements) }

// Subject is null where it is about the whole rollout.
func (w Wait) Subject() *string { return orNull(w.Wait.Subject) }

// Passage is null where no requested passage needs it.
func (w Wait) Passage() *string { return orNull(w.Wait.Passage) }

// Link is null for none.
func (w Wait) Link() *string { return orNull(w.Wait.Link) }

// Conditions are those that the row keeps.
func (t Transition) Conditions() []PassageCondition {
	all := make([]PassageCondition, len(t.Transition.Conditions))
	for i, c := range t.Transition.Conditions {
		all[i] = PassageCondition{c, t.Verb}
	}
	return all
}

// PassageCondition wraps the domain's, with the verb of the row that has it.
type PassageCondition struct {
	core.Condition
	verb core.Verb
}

// Kind is what kind of condition it is.
func (c PassageCondition) Kind() PassageConditionKind {
	return PassageConditionKind(strings.ToUpper(string(c.Condition.Kind)))
}

// Subject is what it is about; null where nothing was needed.
func (c PassageCondition) Subject() *string {
	switch c.Condition.Kind {
	case core.ConditionFreeze, core.ConditionVeto, core.ConditionPin:
		return orNull(core.Stop{Kind: core.StopKind(c.Condition.Kind), ID: c.ControlID}.Subject())
	case core.ConditionPolicy:
		return orNull(core.PolicyDecision{ID: c.ControlID}.Name())
	default:
		return orNull(c.GateID)
	}
}

// Status is what it came to.
func (c PassageCondition) Status() PassageConditionStatus {
	switch c.Condition.Kind {
	case core.ConditionSkippedWeight:
		return PassageConditionStatusSkipped
	case core.ConditionNone:
		return PassageConditionStatusNotNeeded
	case core.ConditionPassage:
		return PassageConditionStatusNotGranted
	case core.ConditionFreeze, core.ConditionVeto, core.ConditionPin:
		if c.verb == core.VerbBypassFreeze {
			return PassageConditionStatusBypassed
		}
		return PassageConditionStatusStopped
	case core.ConditionCheck, core.ConditionWave:
		if c.Outcome == core.OutcomeBreakGlass {
			return PassageConditionStatusBreakGlass
		}
		return PassageConditionStatusSuccess // a passage is granted only when it is
	case core.ConditionPolicy:
		if c.verb == core.VerbStopPassage {
			return PassageConditionStatusStopped
		}
		return PassageConditionStatusApproved // policies have allowed it
	case core.ConditionApproval:
	}
	switch c.Outcome {
	case core.OutcomeExpired:
		return PassageConditionStatusExpired
	case core.OutcomeBreakGlass:
		return PassageConditionStatusBreakGlass
	default:
		return PassageConditionStatusApproved
	}
}

// By are those who satisfied it.
func (c PassageCondition) By() []PassageConditionBy {
	all := make([]PassageConditionBy, len(c.Condition.By))
	for i, one := range c.Condition.By {
		all[i] = PassageConditionBy{one}
	}
	return all
}

// Cause is null where it is no skipped weight.
func (c PassageCondition) Cause() *WeightSkipCause {
	if c.Condition.Cause == "" {
		return nil
	}
	cause := WeightSkipCause(strings.ToUpper(string(c.Condition.Cause)))
	return &cause
}

// PassageConditionBy wraps the domain's.
type PassageConditionBy struct{ core.ConditionBy }

// PrincipalType says what kind of actor it was.
func (b PassageConditionBy) PrincipalType() string { return string(b.Type) }

// PrincipalID is null where the principal has no number.
func (b PassageConditionBy) PrincipalID() *int64 {
	if b.ID == 0 {
		return nil
	}
	return &b.ID
}

// Groups is never null.
func (b PassageConditionBy) Groups() []string { return append([]string{}, b.ConditionBy.Groups...) }

// UnanswerableRule wraps the domain's.
type UnanswerableRule struct{ view.UnanswerableRule }

// WrapUnanswerableRule wraps the domain's.
func WrapUnanswerableRule(r view.UnanswerableRule) UnanswerableRule { return UnanswerableRule{r} }
