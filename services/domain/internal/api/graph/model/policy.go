package model

import (
	"encoding/json"
	"fmt"

	"github.com/99designs/gqlgen/graphql"

	"github.com/lockstep-cd/lockstep/pkg/id"
	"github.com/lockstep-cd/lockstep/pkg/policy"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// The kinds of what is about policies.
const (
	KindPolicySet      = "policyset"
	KindPolicyDecision = "policydecision"
	KindCallRequest    = "callrequest"
)

// PolicySet wraps the domain's.
type PolicySet struct{ core.PolicySet }

// GlobalID is policyset_<number>.
func (s PolicySet) GlobalID() string { return id.Format(KindPolicySet, s.ID) }

// IsNode marks a node.
func (PolicySet) IsNode() {}

// LabelsText are the labels of its applications as an object; nil for another scope.
func (s PolicySet) LabelsText() json.RawMessage { return labelsText(s.Labels) }

// AuthorName is what the author was called then.
func (s PolicySet) AuthorName() string { return s.Author.Name }

// WrapPolicySet wraps the domain's.
func WrapPolicySet(s core.PolicySet) PolicySet { return PolicySet{s} }

// PolicyDecision wraps the domain's.
type PolicyDecision struct{ core.PolicyDecision }

// GlobalID is policydecision_<number>.
func (d PolicyDecision) GlobalID() string { return id.Format(KindPolicyDecision, d.ID) }

// IsNode marks a node.
func (PolicyDecision) IsNode() {}

// Action is what was decided, as policies name it.
func (d PolicyDecision) Action() string { return string(d.PolicyDecision.Request.Action) }

// GateID is null for the creation of a rollout.
func (d PolicyDecision) GateID() *string { return orNull(d.PolicyDecision.GateID) }

// WouldBe is null where no set is tried out.
func (d PolicyDecision) WouldBe() *policy.Verdict {
	if d.Decision.WouldBe == "" {
		return nil
	}
	return &d.Decision.WouldBe
}

// PinnedDigest is null where the pinned policies are the present ones.
func (d PolicyDecision) PinnedDigest() *string { return orNull(d.Pinned) }

// Summary says which policies decided and why.
func (d PolicyDecision) Summary() string { return d.Sentence() }

// Rulings are those of the decision.
func (d PolicyDecision) Rulings() []PolicyRuling {
	all := make([]PolicyRuling, len(d.Decision.Rulings))
	for i, r := range d.Decision.Rulings {
		all[i] = PolicyRuling{r}
	}
	return all
}

// Request is everything that the policies were asked.
func (d PolicyDecision) Request() (json.RawMessage, error) {
	encoded, err := json.Marshal(d.PolicyDecision.Request)
	if err != nil {
		return nil, fmt.Errorf("encode the request of %s: %w", d.Name(), err)
	}
	return encoded, nil
}

// WrapPolicyDecision wraps the domain's.
func WrapPolicyDecision(d core.PolicyDecision) PolicyDecision { return PolicyDecision{d} }

// PolicyRuling wraps what one policy decided.
type PolicyRuling struct{ policy.Ruling }

// Policy is null where no policy permits.
func (r PolicyRuling) Policy() *string { return orNull(r.Ruling.Policy) }

// Line is null for none.
func (r PolicyRuling) Line() *int { return positive(r.Ruling.Line) }

// Message is null for nothing.
func (r PolicyRuling) Message() *string { return orNull(r.Ruling.Message) }

// PolicyProblem wraps something about the text of a policy set.
type PolicyProblem struct{ policy.Problem }

// Line is null where it has no place.
func (p PolicyProblem) Line() *int { return positive(p.Problem.Line) }

// Column is null where it has no place.
func (p PolicyProblem) Column() *int { return positive(p.Problem.Column) }

// Policy is null where it is about none.
func (p PolicyProblem) Policy() *string { return orNull(p.Problem.Policy) }

// WrapPolicyProblems wraps several.
func WrapPolicyProblems(all []policy.Problem) []PolicyProblem {
	wrapped := make([]PolicyProblem, len(all))
	for i, p := range all {
		wrapped[i] = PolicyProblem{p}
	}
	return wrapped
}

// positive is null for 0.
func positive(n int) *int {
	if n == 0 {
		return nil
	}
	return &n
}

// MarshalPolicyMode writes a mode.
func MarshalPolicyMode(m core.PolicyMode) graphql.Marshaler { return word(string(m)) }

// UnmarshalPolicyMode reads a mode.
func UnmarshalPolicyMode(v any) (core.PolicyMode, error) {
	return enum(v, core.PolicyEnforced, core.PolicyDryRun, core.PolicyOff)
}

// MarshalPolicyVerdict writes a verdict.
func MarshalPolicyVerdict(v policy.Verdict) graphql.Marshaler { return word(string(v)) }

// UnmarshalPolicyVerdict reads a verdict.
func UnmarshalPolicyVerdict(v any) (policy.Verdict, error) {
	return enum(v, policy.Allow, policy.NeedsApproval, policy.Deny)
}
