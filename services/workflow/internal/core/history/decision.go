package history

import (
	"encoding/json"
	"slices"
	"time"
)

// TypeCallDecided is the type of the events in which the engine reports decisions about calls to the domain service.
const TypeCallDecided = "com.gitlab.cd.call.decided"

// TypeProposed is the type of the events in which the engine reports proposals of rollouts to the domain service.
const TypeProposed = "com.gitlab.cd.deployment.proposed"

// The states of a decision about a call.
const (
	// CallDenied is a call that policies deny.
	CallDenied = "denied"
	// CallPending is one that waits for an approval.
	CallPending = "pending"
	// CallPermitted is one that policies permit: after an approval, or at once where those that are tried out would not, which is reported
	// and no entry.
	CallPermitted = "permitted"
	// CallRefused is one whose approval people have refused.
	CallRefused = "refused"
	// CallExpired means that nobody answered in time.
	CallExpired = "expired"
)

// CallDecision is the value of an entry of KindDecision.
type CallDecision struct {
	// Activity is the call that it is about: an entry of another attempt of the run decides nothing.
	Activity string `json:"activity"`
	// Request identifies the decision; an answer names it. Asked counts those about the call.
	Request string `json:"request"`
	Asked   int    `json:"asked,omitempty"`
	State   string `json:"state"`
	// Policy is the policy that has decided, Digest the policies that were asked, and Reason what was decided and why.
	Policy string `json:"policy,omitempty"`
	Digest string `json:"digest,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Approval is what a pending one waits for, and Given what has been given so far.
	Approval string   `json:"approval,omitempty"`
	Given    []string `json:"given,omitempty"`
	// ExpiresAt is when a pending one ends.
	ExpiresAt time.Time `json:"expires_at,omitzero"`
}

// Results are the entries of a history without those of decisions, which answer no operation of the program: it does not see them.
func Results(entries []Entry) []Entry {
	if !slices.ContainsFunc(entries, isDecision) {
		return entries
	}
	return slices.DeleteFunc(slices.Clone(entries), isDecision)
}

func isDecision(e Entry) bool { return e.Kind == KindDecision }

// CallAnswer is what arrives for a call that waits for an approval.
type CallAnswer struct {
	Request  string `json:"request"`
	Approved bool   `json:"approved"`
	Reason   string `json:"reason,omitempty"`
}

// Decision is the value of an entry of KindDecision; false for one that cannot be read.
func (e Entry) Decision() (d CallDecision, ok bool) {
	return d, e.Kind == KindDecision && json.Unmarshal(e.Value, &d) == nil
}
