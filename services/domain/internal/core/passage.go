package core

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/policy"
)

// A passage is a named point of a rollout: entering an environment, leaving a weight, a step between environments. Only the domain opens
// it, when all of its conditions hold, and the journal row names what satisfied each of them (D46).

// ConditionKind is what kind of thing a passage needed, or did without.
type ConditionKind string

// The kinds.
const (
	// ConditionApproval is an approval that was given.
	ConditionApproval ConditionKind = "approval"
	// ConditionSkippedWeight is a weight at which the rollout does not stop: its approval was asked at the entrance, its soak time is omitted.
	ConditionSkippedWeight ConditionKind = "skipped_weight"
	// ConditionNone means that the passage needed nothing.
	ConditionNone ConditionKind = "nothing_asked"
	// ConditionFreeze, ConditionVeto and ConditionPin are controls that stop a passage; of a bypass, the freezes that are bypassed.
	ConditionFreeze = ConditionKind(StopFreeze)
	ConditionVeto   = ConditionKind(StopVeto)
	ConditionPin    = ConditionKind(StopPin)
	// ConditionCheck is a check that was green; GateID is its key, and ControlID the environment that it is about.
	ConditionCheck ConditionKind = "check"
	// ConditionPassage is a passage that was not granted, on the row of the breach that went around it.
	ConditionPassage ConditionKind = "passage"
	// ConditionPolicy is what policies decided; Policies has the decision, and ControlID its number (D51).
	ConditionPolicy = ConditionKind(StopPolicy)
	// ConditionWave is how the wave of a fleet has ended that comes before the passage; Outcome is the sentence (D61).
	ConditionWave ConditionKind = "wave"
)

// AllConditionKinds is every kind.
func AllConditionKinds() []ConditionKind {
	return []ConditionKind{
		ConditionApproval, ConditionSkippedWeight, ConditionNone, ConditionFreeze, ConditionVeto, ConditionPin, ConditionCheck, ConditionPassage,
		ConditionPolicy, ConditionWave,
	}
}

// The outcomes of an approval.
const (
	OutcomeApproved   = "approved"
	OutcomeExpired    = "expired"
	OutcomeBreakGlass = "break_glass"
)

// Condition is one condition of a passage, and what satisfied it. It is stored with the journal row of the passage.
type Condition struct {
	Kind ConditionKind `json:"kind"`
	// GateID is the approval, the weight, the key of a check or the passage that was not granted; empty for other kinds.
	GateID string `json:"gate_id,omitempty"`
	// Outcome is how an approval was given: approved, expired (after which the rule approves) or break_glass; and the phase of a check.
	Outcome string `json:"outcome,omitempty"`
	// By are those who gave it, oldest first; empty for one that expired.
	By []ConditionBy `json:"by,omitempty"`
	// SoakSeconds is the soak time of a skipped weight.
	SoakSeconds int `json:"soak_seconds,omitempty"`
	// Cause is why a weight is skipped.
	Cause WeightSkip `json:"cause,omitempty"`
	// ControlID is the freeze, the veto, or the environment that is pinned or that a check is about.
	ControlID int64 `json:"control_id,omitempty"`
	// Until is when a freeze ends by itself, as it was when the row was written.
	Until *time.Time `json:"until,omitempty"`
	// Policies is what policies decided, with the digest of all that were asked.
	Policies *policy.Decision `json:"policies,omitempty"`
}

// ConditionBy is a principal who satisfied a condition.
type ConditionBy struct {
	Type PrincipalType `json:"type"`
	ID   int64         `json:"id,omitempty"`
	At   time.Time     `json:"at"`
	// Groups are those that an approval counts for; only where its rule has several requirements.
	Groups []string `json:"groups,omitempty"`
}

// WeightSkip is why a rollout does not stop at the weights of an environment; empty where it does.
type WeightSkip string

// The causes.
const (
	// SkipsFirstDeploy means that nothing is live there yet, so there is no traffic to split.
	SkipsFirstDeploy WeightSkip = "first_deploy"
	// SkipsUnchanged means that the same versions are live there already, as after a rollback to what is stable.
	SkipsUnchanged WeightSkip = "unchanged"
	// SkipsPromoteFull means that the application's policy lets this rollback pass all weights at once.
	SkipsPromoteFull WeightSkip = "promote_full"
	// SkipsNoGates means that the driver does not stop at weights.
	SkipsNoGates WeightSkip = "no_gates"
	// SkipsQuickSync means that the rollout is a quick sync.
	SkipsQuickSync WeightSkip = "quick_sync"
	// SkipsProgram means that the driver's program requested the passage with the weights that it will skip.
	SkipsProgram WeightSkip = "program"
)

// words is the cause for people.
func (s WeightSkip) words() string {
	switch s {
	case SkipsFirstDeploy:
		return "nothing is live there yet"
	case SkipsUnchanged:
		return "these versions are live there already"
	case SkipsPromoteFull:
		return "the rollback policy promotes in full"
	case SkipsQuickSync:
		return "the rollout is a quick sync"
	case SkipsNoGates:
		return "the driver does not stop at weights"
	default:
		return "the driver skips them this time"
	}
}

// Weight is a weight at which a pipeline stops in an environment.
type Weight struct {
	// Weight is the share of traffic, in percent.
	Weight int `json:"weight"`
	// SoakSeconds is how long the rollout waits there before it requests the passage.
	SoakSeconds int `json:"soak_seconds,omitempty"`
}

// PinnedGate is a gate of a rollout as it was pinned.
type PinnedGate struct {
	GateRule
	// Reason is shown to those who decide.
	Reason string
	// Own reports whether a program has requested it: an additional condition, which no pipeline or environment has.
	Own bool
	// BeforeEnvironmentID is the environment after a step between environments; 0 for other gates, and for a step after the last one.
	BeforeEnvironmentID int64
}

// Answers are what has been answered to the latest request of an approval.
type Answers struct {
	// Approved are the approvals, oldest first; of one principal the first.
	Approved []Transition
	// Closed is the row that closed it without a quorum: an expiry or a break-glass; nil for none.
	Closed *Transition
}

// Satisfies is how the answers satisfy a rule; false while they do not.
func (a *Answers) Satisfies(gate string, rule GateRule) (Condition, bool) {
	c := Condition{Kind: ConditionApproval, GateID: gate}
	switch {
	case a == nil:
		return c, false
	case a.Closed != nil && a.Closed.Verb == VerbBreakGlass:
		c.Outcome, c.By = OutcomeBreakGlass, []ConditionBy{conditionBy(*a.Closed)}
		return c, true
	case a.Closed != nil && rule.OnExpiry == ExpiryApproves:
		c.Outcome = OutcomeExpired
	case a.Closed != nil || !rule.Met(a.approvals()):
		return c, false
	default:
		c.Outcome = OutcomeApproved
	}
	for _, row := range a.Approved {
		c.By = append(c.By, conditionBy(row))
	}
	return c, true
}

func conditionBy(t Transition) ConditionBy {
	return ConditionBy{Type: t.PrincipalType, ID: t.PrincipalID, At: t.CreatedAt, Groups: groupsOf(t)}
}

// approvals are those so far, with what they count for.
func (a *Answers) approvals() []GateApproval {
	all := make([]GateApproval, len(a.Approved))
	for i, row := range a.Approved {
		all[i] = GateApproval{Principal: Principal{Type: row.PrincipalType, ID: row.PrincipalID}, Groups: groupsOf(row)}
	}
	return all
}

// groupsOf are the groups that the row of an approval names.
func groupsOf(t Transition) []string {
	var all []string
	for _, c := range t.Conditions {
		for _, by := range c.By {
			all = append(all, by.Groups...)
		}
	}
	return all
}

// Counts is what the row of an approval keeps of it, where its rule has several requirements: the groups that it counts for, and whether
// the approval is complete with it.
func (g Gate) Counts(one GateApproval) []Condition {
	if len(g.Also) == 0 {
		return nil
	}
	c := Condition{Kind: ConditionApproval, GateID: g.GateID, By: []ConditionBy{{Type: one.Type, ID: one.ID, At: one.At, Groups: one.Groups}}}
	if g.Met(append(slices.Clone(g.Approvals), one)) {
		c.Outcome = OutcomeApproved
	}
	return []Condition{c}
}

// read adds a row that answers the gate.
func (a *Answers) read(r Transition) {
	if r.Verb != VerbApprove {
		a.Closed = &r
		return
	}
	by := Principal{Type: r.PrincipalType, ID: r.PrincipalID}
	if !slices.ContainsFunc(a.Approved, func(t Transition) bool { return by == Principal{Type: t.PrincipalType, ID: t.PrincipalID} }) {
		a.Approved = append(a.Approved, r)
	}
}

// DescribeConditions says for people what satisfied the conditions of a passage.
func DescribeConditions(all []Condition) string {
	var parts, skipped []string
	var cause WeightSkip
	soak := 0
	for _, c := range all {
		switch c.Kind {
		case ConditionApproval:
			parts = append(parts, c.approval())
		case ConditionSkippedWeight:
			_, weight, _ := strings.Cut(c.GateID, "/")
			skipped, cause, soak = append(skipped, weight+" %"), c.Cause, soak+c.SoakSeconds
		case ConditionNone:
			parts = append(parts, "no approval required")
		case ConditionCheck:
			parts = append(parts, "check "+c.check())
		case ConditionWave:
			parts = append(parts, c.Outcome)
		case ConditionPolicy:
			parts = append(parts, c.Policies.Sentence())
		case ConditionFreeze, ConditionVeto, ConditionPin, ConditionPassage: // of rows that have a text of their own
		}
	}
	if len(skipped) > 0 {
		text := fmt.Sprintf("will not stop at %s: %s", strings.Join(skipped, ", "), cause.words())
		if soak > 0 {
			text += fmt.Sprintf("; soak times of %d seconds in all are omitted", soak)
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, "; ")
}

func (c Condition) check() string {
	if c.Outcome == OutcomeBreakGlass {
		return c.approval()
	}
	return c.GateID + ": " + c.Outcome
}

// pastChecks is the first check that was not green and that a person passed by break-glass; nil for none.
func pastChecks(all []Condition) *Condition {
	for _, c := range all {
		if c.Kind == ConditionCheck && c.Outcome == OutcomeBreakGlass && len(c.By) > 0 {
			return &c
		}
	}
	return nil
}

func (c Condition) approval() string {
	if c.Outcome == OutcomeExpired {
		return c.GateID + ": approved by expiry"
	}
	by := make([]string, len(c.By))
	for i, one := range c.By {
		by[i] = Actor{Type: one.Type, ID: one.ID}.DisplayName()
		if len(one.Groups) > 0 {
			by[i] += " (" + strings.Join(one.Groups, ", ") + ")"
		}
	}
	how := "approved"
	if c.Outcome == OutcomeBreakGlass {
		how = "passed by break-glass"
	}
	return fmt.Sprintf("%s: %s by %s", c.GateID, how, strings.Join(by, ", "))
}

// ProposedStatus is what has become of a proposal at its forge.
type ProposedStatus string

// The states.
const (
	ProposedOpen   ProposedStatus = "open"
	ProposedMerged ProposedStatus = "merged"
	ProposedClosed ProposedStatus = "closed"
	// ProposedWithdrawn is one that its run has withdrawn, or is about to.
	ProposedWithdrawn ProposedStatus = "withdrawn"
)

// ForgeProposal is a pull request with the change of a rollout in an environment, or a branch alone, as the engine has read it (D55).
type ForgeProposal struct {
	// Repository is its URL, and Branch the branch to merge into.
	Repository, Branch string
	// Number is that of the pull request; 0 for a branch alone.
	Number int64
	// Head is the commit that Lockstep has proposed last.
	Head   string
	Status ProposedStatus
	// EndedHead is the last commit of what was merged or closed. It is another one than Head if others have pushed to it, and empty if it is
	// not known. EndedBranch is the branch that it was merged into; empty before, and where that was not reported.
	EndedHead, EndedBranch string
	// By is who has merged or closed it, as the forge calls them, and ByID their number there; empty and 0 where it does not say.
	By   string
	ByID int64
	// Unshown is why the engine cannot show that a person has merged exactly one commit, if it was merged.
	Unshown    string
	ReportedAt time.Time
}

// Unproved is why its merge is not known to be one of exactly what was proposed, by a person; empty if it is.
func (p ForgeProposal) Unproved() string {
	switch {
	case p.EndedBranch == "":
		return "it was read by a replica that does not know into which branch"
	case p.EndedBranch != strings.TrimPrefix(p.Branch, "refs/heads/"):
		return "it was merged into another branch than it was proposed for"
	case p.EndedHead != "" && p.EndedHead == p.Head && p.By != "" && p.ByID != 0:
		return "" // also where a look at anything else could not show it
	case p.Unshown != "":
		return p.Unshown
	case p.EndedHead == "":
		return "it cannot be shown that the proposed commit was merged"
	case p.EndedHead != p.Head:
		return "another commit was merged than was proposed"
	case p.By == "":
		return "the forge does not say who has merged it"
	default:
		return "" // by nobody who is linked
	}
}

// Unsure reports whether it was merged, and a later report may say more of that: who it was, or what.
func (p ForgeProposal) Unsure() bool {
	return p.Status == ProposedMerged && p.Number != 0 && (p.ByID == 0 || p.Unproved() != "")
}
