package core

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/policy"
)

// CallState is what has become of a call of a Function that policies did not permit at once.
type CallState string

// The states.
const (
	// CallDenied is a call that policies deny.
	CallDenied CallState = "denied"
	// CallPending is one that waits for an approval.
	CallPending CallState = "pending"
	// CallApproved is one that people have approved; the engine asks the policies again. CallPermitted is that they permit it then.
	CallApproved, CallPermitted CallState = "approved", "permitted"
	// CallRefused is one that people have refused, and CallExpired one that nobody has approved in time.
	CallRefused, CallExpired CallState = "refused", "expired"
	// CallWithdrawn is one whose run has ended.
	CallWithdrawn CallState = "withdrawn"
)

// MaxPendingCalls is how many calls of an organization wait for approvals at once. More are refused.
const MaxPendingCalls = 200

// CallRequest is what policies decided about a call of a Function, other than to permit it at once (D51).
type CallRequest struct {
	ID int64
	// WorkflowID is the run, and RolloutID the rollout that it belongs to; 0 for none.
	WorkflowID string
	RolloutID  int64
	// CallID is what the engine calls the decision.
	CallID   string
	Function string
	State    CallState
	// Policy is the policy that decided, with its set, and Reason says what it decided and why.
	Policy, Reason string
	// Group, Quorum and RequesterMay are the rule of the approval.
	Group        string
	Quorum       int
	RequesterMay bool
	ExpiresAt    *time.Time
	Decision     policy.Decision
	// Request is everything that the policies could ask of, without secrets.
	Request   json.RawMessage
	CreatedAt time.Time
}

// CallAnswer is the answer of a member.
type CallAnswer struct {
	Author   Author
	Approves bool
	Reason   string
	At       time.Time
}

// Name is what people call it.
func (r CallRequest) Name() string { return fmt.Sprintf("callrequest_%d", r.ID) }

// StateAt is its state at an instant: what nobody has answered in time has expired, whether or not the engine has said so.
func (r CallRequest) StateAt(at time.Time) CallState {
	if r.State == CallPending && r.ExpiresAt != nil && !at.Before(*r.ExpiresAt) {
		return CallExpired
	}
	return r.State
}

// requester is who requested the rollout that the run belongs to; the zero value for nobody with a number.
func (r CallRequest) requester() policy.Principal {
	var asked struct {
		Principal policy.Principal `json:"principal"`
	}
	_ = json.Unmarshal(r.Request, &asked) // without it, nobody is the requester
	return asked.Principal
}

// requestedBy is whether an actor requested the rollout that the run belongs to.
func (r CallRequest) requestedBy(a Actor) bool {
	kind := map[PrincipalType]policy.PrincipalKind{PrincipalUser: policy.User, PrincipalAgent: policy.Machine}[a.Type]
	p := r.requester()
	return kind != "" && p.Kind == kind && p.ID == policy.MemberID(a.ID)
}

// MayAnswer is nil, or a Refused that says why this actor may not approve or refuse the call. The rules are those of approvals.
func (r CallRequest) MayAnswer(a Actor, approve bool, answers []CallAnswer, at time.Time) error {
	switch state := r.StateAt(at); {
	case state == CallPending:
	case r.Quorum == 0:
		return fault.New(fault.Refused, "%s asks nobody: policies denied the call of %s", r.Name(), r.Function)
	default:
		return fault.New(fault.Refused, "%s is %s; only one that is pending can be answered", r.Name(), state)
	}
	if r.Group != "" && !slices.Contains(a.Groups, r.Group) {
		return fault.New(fault.Refused, "%s is for the group %q to answer; %s is not in it", r.Name(), r.Group, a.DisplayName())
	}
	if !approve {
		return nil
	}
	if a.Type == PrincipalAgent && r.Group == "" {
		return fault.New(
			fault.Refused, "%s is for people to approve, and %s is a machine; a machine counts where the policy names a group that it is in",
			r.Name(), a.DisplayName(),
		)
	}
	if r.requestedBy(a) && !r.RequesterMay {
		return fault.New(
			fault.Refused, "%s requested the rollout that calls %s, so someone else must approve %s", a.DisplayName(), r.Function, r.Name(),
		)
	}
	for _, one := range answers {
		if one.Author.Principal == a.Principal() {
			return fault.New(
				fault.Refused, "%s has approved %s already; %d of %d have, and it takes different people", a.DisplayName(), r.Name(), len(answers),
				r.Quorum,
			)
		}
	}
	return nil
}
