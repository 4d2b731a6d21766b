package core

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// GateRule is who may answer a gate, and until when. A rollout pins the rules of its gates when it is made (D24, R3).
type GateRule struct {
	// Quorum is how many different people have to agree; at least 1.
	Quorum int
	// Group is the group that those who decide belong to; empty for any person. Machines count only as members of the group (D50).
	Group string
	// RequesterMayApprove lets the requester of the rollout agree, too (D28).
	RequesterMayApprove bool
	// ExpiresAfter is how long a question stands, in whole seconds; 0 for as long as the rollout.
	ExpiresAfter time.Duration
	// OnExpiry is what no answer in that time means.
	OnExpiry GateOutcome
	// Also are what else has to be met, where a pipeline and an environment both have a rule (D46): other groups, and how many have to be
	// people. One member may count for several of them. Nil for nothing else.
	Also []Requirement
}

// Requirement is a number of approvals that a gate needs.
type Requirement struct {
	// Group is the group of those who count; empty for people, whatever their group.
	Group string `json:"group,omitempty"`
	// Quorum is how many different ones have to agree.
	Quorum int `json:"quorum"`
}

// RequirementState is a requirement, with how many approvals count for it so far.
type RequirementState struct {
	Requirement
	Given int
}

// words is the requirement for people.
func (r Requirement) words() string {
	switch {
	case r.Group != "":
		return fmt.Sprintf("of the group %q", r.Group)
	case r.Quorum == 1:
		return "by a person"
	default:
		return "by people"
	}
}

// Requirements are all that have to be met. The first is the rule's own.
func (r GateRule) Requirements() []Requirement {
	return append([]Requirement{{Group: r.Group, Quorum: max(r.Quorum, 1)}}, r.Also...)
}

// Groups are those that the rule names, in the order of its requirements.
func (r GateRule) Groups() []string {
	var all []string
	for _, one := range r.Requirements() {
		if one.Group != "" {
			all = append(all, one.Group)
		}
	}
	return all
}

// Given is how many approvals count for each of the requirements, in their order.
func (r GateRule) Given(approvals []GateApproval) []int {
	if len(r.Also) == 0 {
		return []int{len(approvals)} // only those who count may approve
	}
	all := r.Requirements()
	given := make([]int, len(all))
	for i, one := range all {
		for _, a := range approvals {
			if one.Group == "" && a.Type == PrincipalUser || one.Group != "" && slices.Contains(a.Groups, one.Group) {
				given[i]++
			}
		}
	}
	return given
}

// States are the requirements with how many approvals count for each.
func (r GateRule) States(approvals []GateApproval) []RequirementState {
	given := r.Given(approvals)
	all := make([]RequirementState, len(given))
	for i, one := range r.Requirements() {
		all[i] = RequirementState{one, given[i]}
	}
	return all
}

// Met reports whether the approvals satisfy every requirement.
func (r GateRule) Met(approvals []GateApproval) bool { return len(r.missing(approvals)) == 0 }

// missing is how many approvals each requirement lacks; of one that is met nothing.
func (r GateRule) missing(approvals []GateApproval) []Requirement {
	given := r.Given(approvals)
	var lacks []Requirement
	for i, one := range r.Requirements() {
		if one.Quorum > given[i] {
			lacks = append(lacks, Requirement{Group: one.Group, Quorum: one.Quorum - given[i]})
		}
	}
	return lacks
}

// Lacking are the groups whose approvals are missing; where only people are missing, all groups that may approve.
func (g Gate) Lacking() []string {
	var all []string
	for _, one := range g.missing(g.Approvals) {
		if one.Group != "" {
			all = append(all, one.Group)
		}
	}
	if all == nil {
		return g.Groups()
	}
	return all
}

// Progress says for people how many have approved: "1 of 2", and of several requirements each with whom it is about.
func (r GateRule) Progress(approvals []GateApproval) string {
	given, all := r.Given(approvals), r.Requirements()
	if len(all) == 1 {
		return fmt.Sprintf("%d of %d", given[0], all[0].Quorum)
	}
	parts := make([]string, len(all))
	for i, one := range all {
		parts[i] = fmt.Sprintf("%d of %d %s", given[i], one.Quorum, one.words())
	}
	return strings.Join(parts, ", ")
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
	// Groups are those of the rule that the principal was in then; only where the rule has several requirements.
	Groups []string
}

// Gate is a question that has not been answered finally: nobody has rejected it, its time is not over, and its rule is not met by those
// who have approved it (D24).
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
	// Proposal is what is proposed for the environment that it is the entrance of; the zero value for nothing.
	Proposal GateProposal
}

// GateProposal is how a proposal stands that is for the environment behind a gate (D55).
type GateProposal struct {
	EnvironmentID int64
	// Number is that of the pull request; 0 for a branch alone.
	Number int64
	Status ProposedStatus
	// Answered reports whether its merge was looked at as an answer to the gate. Answer is why it is no approval; empty for one, and where it
	// came too late to be one.
	Answered bool
	Answer   string
}

// Uncounted reports whether it was merged, and nobody has looked yet whether that approves the gate.
func (p GateProposal) Uncounted() bool {
	return p.Status == ProposedMerged && p.Number != 0 && !p.Answered
}

// MergeNote says why a merge of the proposal by hand is no approval; empty if it is one, or was not looked at yet.
func (g Gate) MergeNote() string {
	switch p := g.Proposal; {
	case p.EnvironmentID == 0:
		return ""
	case p.Status == ProposedMerged && p.Answered:
		return p.Answer
	case p.Status == ProposedOpen && p.Number == 0:
		return "a merge of the proposed branch by hand is no approval: Git does not say who has done it"
	default:
		return ""
	}
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
	if groups := g.Groups(); len(groups) == 1 && !slices.Contains(a.Groups, groups[0]) {
		return fault.New(
			fault.Refused, "gate %q of rollout_%d is for the group %q to answer; %s is not in it", g.GateID, g.RolloutID, groups[0], a.DisplayName(),
		)
	} else if len(groups) > 1 && !slices.ContainsFunc(groups, func(one string) bool { return slices.Contains(a.Groups, one) }) {
		return fault.New(
			fault.Refused, "gate %q of rollout_%d is for the groups %q to answer; %s is in none of them", g.GateID, g.RolloutID, groups, a.DisplayName(),
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
				fault.Refused, "%s has approved gate %q of rollout_%d already; %s have, and it takes different people", a.DisplayName(), g.GateID,
				g.RolloutID, g.Progress(g.Approvals),
			)
		}
	}
	return nil
}

// Approval is what an actor's agreement counts for: with the groups that the rule names, where it has several requirements.
func (g Gate) Approval(a Actor, at time.Time) GateApproval {
	one := GateApproval{Principal: a.Principal(), At: at}
	if len(g.Also) == 0 {
		return one
	}
	for _, group := range g.Groups() {
		if slices.Contains(a.Groups, group) {
			one.Groups = append(one.Groups, group)
		}
	}
	return one
}

// Stricter is the rule whose approval satisfies both: what the pipeline asks for never weakens what the environment does. Two groups both
// have to agree. A rule without a group is about people, and stays so beside one whose group may have machines.
func (r GateRule) Stricter(other GateRule) GateRule {
	people, groups := 0, map[string]int{}
	for _, rule := range []GateRule{r, other} {
		for _, one := range append([]Requirement{{Group: rule.Group, Quorum: rule.Quorum}}, rule.Also...) {
			if one.Group == "" {
				people = max(people, one.Quorum)
			} else {
				groups[one.Group] = max(groups[one.Group], one.Quorum)
			}
		}
	}
	names := slices.Sorted(maps.Keys(groups))
	r.Group, r.Quorum, r.Also = "", people, nil
	if len(names) > 0 {
		r.Group, r.Quorum = names[0], groups[names[0]]
		for _, name := range names[1:] {
			r.Also = append(r.Also, Requirement{Group: name, Quorum: groups[name]})
		}
		if people > 0 {
			r.Also = append(r.Also, Requirement{Quorum: people})
		}
		if len(names) == 1 {
			r.Quorum = max(r.Quorum, people) // nobody else may approve
		}
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
