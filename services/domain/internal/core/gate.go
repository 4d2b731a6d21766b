package core

import (
	"slices"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// GateRule is who may answer a gate, and until when. A rollout pins the rules of its gates when it is made (D24, R3).
type GateRule struct {
	// Quorum is how many different people have to agree; at least 1.
	Quorum int
	// Group is the group that those who decide belong to; empty for any person. Machines count only as members of the group (D50).
	Group string
	// RequesterMayApprove lets whoever has asked for the rollout agree, too (D28).
	RequesterMayApprove bool
	// ExpiresAfter is how long a question stands, in whole seconds; 0 for as long as the rollout.
	ExpiresAfter time.Duration
	// OnExpiry is what no answer in that time means.
	OnExpiry GateOutcome
}

// GateOutcome is what an expired gate comes to.
type GateOutcome string

// The outcomes.
const (
	ExpiryRejects  GateOutcome = "reject"
	ExpiryApproves GateOutcome = "approve"
)

// GateApproval is one person's agreement to an open gate.
type GateApproval struct {
	Principal
	Reason string
	At     time.Time
}

// Gate is a question that has not been answered finally: nobody has rejected it, its time is not over, and fewer people
// than its quorum have approved it (D24).
type Gate struct {
	RolloutID   int64
	GateID      string
	Reason      string
	RequestedAt time.Time
	// RequestID is the row of the journal that asks.
	RequestID int64
	GateRule
	// BeforeEnvironmentID is the environment behind a step between environments; 0 for other gates.
	BeforeEnvironmentID int64
	// Requester is who has asked for the rollout.
	Requester Principal
	// Approvals are those so far, oldest first.
	Approvals []GateApproval
}

// ExpiresAt is when the gate is closed without an answer; nil for never.
func (g Gate) ExpiresAt() *time.Time {
	if g.ExpiresAfter == 0 {
		return nil
	}
	at := g.RequestedAt.Add(g.ExpiresAfter)
	return &at
}

// MayResolve is nil, or a Refused that says why this actor may not approve or reject the gate.
func (g Gate) MayResolve(a Actor, approve bool) error {
	if g.Group != "" && !slices.Contains(a.Groups, g.Group) {
		return fault.New(
			fault.Refused, "gate %q of rollout_%d is for the group %q to answer; %s is not in it", g.GateID, g.RolloutID, g.Group, a.DisplayName(),
		)
	}
	if !approve {
		return nil
	}
	if a.Type == PrincipalAgent && g.Group == "" {
		return fault.New(
			fault.Refused, "gate %q of rollout_%d is for people to approve, and %s is a machine; a machine counts where the rule names a group that it is in",
			g.GateID, g.RolloutID, a.DisplayName(),
		)
	}
	if g.Requester == a.Principal() && !g.RequesterMayApprove {
		return fault.New(
			fault.Refused, "%s requested rollout_%d, so someone else must approve its gate %q", a.DisplayName(), g.RolloutID, g.GateID,
		)
	}
	for _, one := range g.Approvals {
		if one.Principal == a.Principal() {
			return fault.New(
				fault.Refused, "%s has approved gate %q of rollout_%d already; %d of %d have, and it takes different people", a.DisplayName(), g.GateID,
				g.RolloutID, len(g.Approvals), g.Quorum,
			)
		}
	}
	return nil
}

// Stricter is the rule that satisfies both: what the pipeline asks for never weakens what the environment does. Where both name a group,
// other's wins.
func (r GateRule) Stricter(other GateRule) GateRule {
	r.Quorum = max(r.Quorum, other.Quorum)
	if other.Group != "" {
		r.Group = other.Group
	}
	r.RequesterMayApprove = r.RequesterMayApprove && other.RequesterMayApprove
	if r.OnExpiry == ExpiryApproves && other.OnExpiry == ExpiryApproves {
		// Without an answer it opens: the longer time is the stricter one, and never is the longest.
		if r.ExpiresAfter != 0 && other.ExpiresAfter != 0 {
			r.ExpiresAfter = max(r.ExpiresAfter, other.ExpiresAfter)
		} else {
			r.ExpiresAfter = 0
		}
		return r
	}
	if other.ExpiresAfter > 0 && (r.ExpiresAfter == 0 || other.ExpiresAfter < r.ExpiresAfter) {
		r.ExpiresAfter = other.ExpiresAfter
	}
	r.OnExpiry = ExpiryRejects
	return r
}

// RuleOf is what an approval of a pipeline means where it guards environments of a tier.
func RuleOf(a Approval, guarded Tier) GateRule {
	rule := GateRule{
		Quorum: max(a.Quorum, 1), Group: a.Group, RequesterMayApprove: guarded != TierProduction,
		ExpiresAfter: time.Duration(a.ExpiresAfter) * time.Second, OnExpiry: GateOutcome(a.OnExpiry),
	}
	if a.RequesterMayApprove != nil {
		rule.RequesterMayApprove = *a.RequesterMayApprove
	}
	if rule.OnExpiry == "" {
		rule.OnExpiry = ExpiryRejects
	}
	return rule
}

// EntryRule is the approval before an environment of a tier: what the pipeline and the environment ask for together; nil where neither
// does.
func EntryRule(step *Approval, guarded Tier, own *EnvironmentApproval) (*Approval, GateRule) {
	switch {
	case step == nil && own == nil:
		return nil, GateRule{}
	case own == nil:
		return step, RuleOf(*step, guarded)
	case step == nil:
		return &Approval{Reason: own.Reason, ExpiresAfter: int(own.ExpiresAfter / time.Second)}, own.GateRule
	}
	asked := *step
	rule := RuleOf(asked, guarded).Stricter(own.GateRule)
	asked.ExpiresAfter = int(rule.ExpiresAfter / time.Second)
	if asked.Reason == "" {
		asked.Reason = own.Reason
	}
	return &asked, rule
}

// EnvironmentApproval is what an environment asks of every rollout that is to enter it, whatever its pipeline says.
type EnvironmentApproval struct {
	EnvironmentID int64
	Reason        string
	GateRule
}

// The bounds of what a gate may ask: how many people have to agree, and for how many hours it stands.
const (
	MaxQuorum    = 20
	MaxGateHours = 720
)
