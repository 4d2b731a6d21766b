package model

import (
	"github.com/99designs/gqlgen/graphql"

	"github.com/lockstep-cd/lockstep/pkg/id"
	"github.com/lockstep-cd/lockstep/pkg/policy"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// CallRequest wraps the domain's.
type CallRequest struct{ core.CallRequest }

// GlobalID is callrequest_<number>.
func (r CallRequest) GlobalID() string { return id.Format(KindCallRequest, r.ID) }

// IsNode marks a node.
func (CallRequest) IsNode() {}

// Group is null for everybody who may approve.
func (r CallRequest) Group() *string { return orNull(r.CallRequest.Group) }

// Verdict is what the policies decided.
func (r CallRequest) Verdict() policy.Verdict {
	if r.Decision.Verdict == "" {
		return policy.Deny
	}
	return r.Decision.Verdict
}

// WouldBe is null where no set is tried out.
func (r CallRequest) WouldBe() *policy.Verdict {
	if r.Decision.WouldBe == "" {
		return nil
	}
	return &r.Decision.WouldBe
}

// Digest identifies the policies that were asked.
func (r CallRequest) Digest() string { return r.Decision.Digest }

// Rulings are those of the decision.
func (r CallRequest) Rulings() []PolicyRuling {
	all := make([]PolicyRuling, len(r.Decision.Rulings))
	for i, one := range r.Decision.Rulings {
		all[i] = PolicyRuling{one}
	}
	return all
}

// WrapCallRequest wraps the domain's.
func WrapCallRequest(r core.CallRequest) CallRequest { return CallRequest{r} }

// CallAnswer wraps the domain's.
type CallAnswer struct{ core.CallAnswer }

// AuthorName is what the member was called then.
func (a CallAnswer) AuthorName() string { return a.Author.Name }

// WrapCallAnswer wraps the domain's.
func WrapCallAnswer(a core.CallAnswer) CallAnswer { return CallAnswer{a} }

// MarshalCallRequestState writes a state.
func MarshalCallRequestState(s core.CallState) graphql.Marshaler { return word(string(s)) }

// UnmarshalCallRequestState reads a state.
func UnmarshalCallRequestState(v any) (core.CallState, error) {
	return enum(v, core.CallDenied, core.CallPending, core.CallApproved, core.CallPermitted, core.CallRefused, core.CallExpired,
		core.CallWithdrawn)
}
