package core

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// GateRule is who may answer a gate, and until when. A rollout pins the rules of its gates when it is made (D24, R3).
type GateRule struct {
	// Quorum is how many different people have to agree; at least 1.
	Quorum int
	// Group is the group that those who decide belong to; empty for anybody.
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

// Principal is a person or thing that acts, as the journal names it.
type Principal struct {
	Type PrincipalType
	// ID is 0 where it has no number.
	ID int64
}

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
		return fault.New(fault.Refused, "gate %q of rollout_%d is for the group %q to answer; %s is not in it", g.GateID, g.RolloutID, g.Group, a.name())
	}
	if !approve {
		return nil
	}
	if g.Requester == a.principal() && !g.RequesterMayApprove {
		return fault.New(fault.Refused, "%s requested rollout_%d, so someone else must approve its gate %q", a.name(), g.RolloutID, g.GateID)
	}
	for _, one := range g.Approvals {
		if one.Principal == a.principal() {
			return fault.New(fault.Refused, "%s has approved gate %q of rollout_%d already; %d of %d have, and it takes different people", a.name(), g.GateID, g.RolloutID, len(g.Approvals), g.Quorum)
		}
	}
	return nil
}

// stricter is the rule that satisfies both: what the pipeline asks for never weakens what the environment does.
func (r GateRule) stricter(other GateRule) GateRule {
	r.Quorum = max(r.Quorum, other.Quorum)
	if other.Group != "" {
		r.Group = other.Group
	}
	r.RequesterMayApprove = r.RequesterMayApprove && other.RequesterMayApprove
	if other.ExpiresAfter > 0 && (r.ExpiresAfter == 0 || other.ExpiresAfter < r.ExpiresAfter) {
		r.ExpiresAfter = other.ExpiresAfter
	}
	if other.OnExpiry == ExpiryRejects {
		r.OnExpiry = ExpiryRejects
	}
	return r
}

// gateRule is what an approval of a pipeline means where it guards environments of a tier.
func gateRule(a Approval, guarded Tier) GateRule {
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

// entry is the approval before a stop: what the pipeline and the environment ask for together; nil where neither does.
func (s stop) entry() (*Approval, GateRule) {
	switch {
	case s.step.Approval == nil && s.approval == nil:
		return nil, GateRule{}
	case s.approval == nil:
		return s.step.Approval, gateRule(*s.step.Approval, s.environment.Tier)
	case s.step.Approval == nil:
		return &Approval{Reason: s.approval.Reason, ExpiresAfter: int(s.approval.ExpiresAfter / time.Second)}, s.approval.GateRule
	}
	asked := *s.step.Approval
	rule := gateRule(asked, s.environment.Tier).stricter(s.approval.GateRule)
	asked.ExpiresAfter = int(rule.ExpiresAfter / time.Second)
	if asked.Reason == "" {
		asked.Reason = s.approval.Reason
	}
	return &asked, rule
}

// pinGates writes the rules of every gate that the pipeline and its environments ask for.
func (p plan) pinGates(ctx context.Context, tx Tx, rollout int64) error {
	rules := map[string]GateRule{}
	tiers := map[string]Tier{}
	for _, s := range p.stops {
		tiers[s.environment.Name] = s.environment.Tier
		if asked, rule := s.entry(); asked != nil {
			rules[s.environment.Name] = rule
		}
		for _, g := range s.step.Gates {
			if g.Approval != nil {
				rules[weightGate(s.environment.Name, g.Weight)] = gateRule(*g.Approval, s.environment.Tier)
			}
		}
	}
	for _, step := range p.approvals {
		// What stands between environments guards the one that comes next.
		rules[step.GateID] = gateRule(step.Approval, tiers[step.Before])
	}
	for gate, rule := range rules {
		if err := tx.AddGateRule(ctx, rollout, gate, rule); err != nil {
			return err
		}
	}
	return nil
}

// weightGate is how the journal calls a gate within an environment.
func weightGate(environment string, weight int) string {
	return fmt.Sprintf("%s/%d", environment, weight)
}

// rule is that of a gate that a program asks about. One that no pipeline speaks of gets one person's, who is not the
// requester where production is at stake; it is pinned from then on.
func (t *tree) rule(ctx context.Context, gate string, environment int64) (GateRule, error) {
	rules, err := t.tx.GateRules(ctx, t.rollout.ID)
	if err != nil {
		return GateRule{}, err
	}
	if known, ok := rules[gate]; ok {
		return known, nil
	}
	ids := []int64{environment}
	if environment == 0 {
		ids = ids[:0]
		for _, b := range t.environments {
			ids = append(ids, b.EnvironmentID)
		}
	}
	environments, err := t.tx.EnvironmentsByID(ctx, t.cause.Organization, ids)
	if err != nil {
		return GateRule{}, err
	}
	guarded := TierDevelopment
	for _, e := range environments {
		if e.Tier == TierProduction {
			guarded = TierProduction
		}
	}
	rule := gateRule(Approval{}, guarded)
	return rule, t.tx.AddGateRule(ctx, t.rollout.ID, gate, rule)
}

// EnvironmentApproval is what an environment asks of every rollout that is to enter it, whatever its pipeline says.
type EnvironmentApproval struct {
	EnvironmentID int64
	Reason        string
	GateRule
}

const (
	maxQuorum    = 20
	maxGateHours = 720
)

// SetEnvironmentApproval says what an environment asks of the rollouts that are made from now on; nil for nothing.
func (d *Domain) SetEnvironmentApproval(ctx context.Context, a Actor, environment int64, n *EnvironmentApproval) (Environment, error) {
	if n != nil {
		if err := n.check(); err != nil {
			return Environment{}, err
		}
	}
	var changed Environment
	err := d.by(ctx, a, ActionSetEnvironmentApproval, func(ctx context.Context, tx Tx) error {
		e, err := tx.LockEnvironment(ctx, environment)
		if err != nil {
			return err
		}
		changed = e.Environment
		if n == nil {
			return tx.DropEnvironmentApproval(ctx, environment)
		}
		approvers, err := approversOf(ctx, tx, a.Organization, []string{n.Group})
		if err != nil {
			return err
		}
		if found := unanswerable(n.Group, n.Quorum, approvers); len(found) > 0 {
			return fault.InvalidFields(found...)
		}
		if err := d.checkPipelines(ctx, tx, a.Organization, e.Environment, *n); err != nil {
			return err
		}
		n.EnvironmentID = environment
		return tx.SaveEnvironmentApproval(ctx, *n)
	})
	return changed, err
}

// pipelinesAtOnce is how many pipelines are read together.
const pipelinesAtOnce = 200

// checkPipelines refuses what nobody could answer with what pipelines ask before the same environment, naming the first that is in the
// way. Whoever changes a pipeline meanwhile waits for the environment.
func (d *Domain) checkPipelines(ctx context.Context, r Reads, organization int64, e Environment, n EnvironmentApproval) error {
	for after := int64(0); ; {
		page, err := r.PipelinesTo(ctx, organization, e.ID, after, pipelinesAtOnce)
		if err != nil {
			return err
		}
		for _, definition := range page {
			after = definition.ApplicationID
			if err := d.checkPipeline(ctx, r, organization, e, n, definition); err != nil {
				return err
			}
		}
		if len(page) < pipelinesAtOnce {
			return nil
		}
	}
}

func (d *Domain) checkPipeline(ctx context.Context, r Reads, organization int64, e Environment, n EnvironmentApproval, definition FlowDefinition) error {
	flow, err := d.flows.Read(definition.Definition)
	if err != nil {
		return fmt.Errorf("read flow definition %d: %w", definition.ID, err)
	}
	for _, step := range flow.Deploys {
		if step.Environment != e.Name || step.Approval == nil {
			continue
		}
		found, err := unanswerableTogether(ctx, r, organization, step, e, n)
		if err != nil || len(found) == 0 {
			return err
		}
		applications, err := r.ApplicationsByID(ctx, organization, []int64{definition.ApplicationID})
		if err != nil {
			return err
		}
		for i := range found {
			found[i].Problem = fmt.Sprintf("with what the pipeline of %q asks: %s", applications[definition.ApplicationID].Name, found[i].Problem)
		}
		return fault.InvalidFields(found...)
	}
	return nil
}

func (n EnvironmentApproval) check() error {
	var found []fault.Field
	if n.Quorum < 1 || n.Quorum > maxQuorum {
		found = append(found, fault.Field{Name: "/quorum", Problem: fmt.Sprintf("found %d; expected 1 to %d", n.Quorum, maxQuorum)})
	}
	if n.Group != "" {
		found = append(found, checkName("/group", n.Group)...)
	}
	if n.ExpiresAfter < 0 || n.ExpiresAfter > maxGateHours*time.Hour {
		found = append(found, fault.Field{Name: "/expiresAfterSeconds", Problem: fmt.Sprintf("found %.0f; expected 0 to %d", n.ExpiresAfter.Seconds(), maxGateHours*3600)})
	}
	if n.OnExpiry != ExpiryRejects && n.OnExpiry != ExpiryApproves {
		found = append(found, fault.Field{Name: "/onExpiry", Problem: fmt.Sprintf("found %q; expected reject or approve", n.OnExpiry)})
	}
	if len(n.Reason) > maxReason {
		found = append(found, fault.Field{Name: "/reason", Problem: fmt.Sprintf("found %d bytes; expected at most %d", len(n.Reason), maxReason)})
	}
	if len(found) > 0 {
		return fault.InvalidFields(found...)
	}
	return nil
}
