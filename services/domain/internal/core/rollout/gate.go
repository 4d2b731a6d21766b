package rollout

import (
	"context"
	"fmt"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// entry is the approval before a stop.
func (s stop) entry() (*core.Approval, core.GateRule) {
	return core.EntryRule(s.step.Approval, s.environment.Tier, s.approval)
}

// pinGates writes the rules of every gate that the pipeline and its environments ask for. Rules that meet under one id are merged, and
// merging only makes them stricter: whatever else has the name of an environment never replaces what the environment asks (D46).
func (p plan) pinGates(ctx context.Context, tx Tx, rollout int64) error {
	for gate, rule := range p.gateRules() {
		if err := tx.AddGateRule(ctx, rollout, gate, rule); err != nil {
			return err
		}
	}
	return nil
}

// gateRules are the rules of the plan's gates, by id.
func (p plan) gateRules() map[string]core.GateRule {
	rules := map[string]core.GateRule{}
	pin := func(gate string, rule core.GateRule) {
		if other, taken := rules[gate]; taken {
			rule = other.Stricter(rule)
		}
		rules[gate] = rule
	}
	tiers := map[string]core.Tier{}
	for _, s := range p.stops {
		tiers[s.environment.Name] = s.environment.Tier
	}
	for _, step := range p.approvals {
		// What stands between environments guards the one that comes next. A step that has the name of an environment guards that one, too.
		rule := core.RuleOf(step.Approval, tiers[step.Before])
		if tiers[step.GateID] == core.TierProduction {
			rule = rule.Stricter(core.RuleOf(step.Approval, core.TierProduction))
		}
		pin(step.GateID, rule)
	}
	// Environments are last: the group that they name wins.
	for _, s := range p.stops {
		if asked, rule := s.entry(); asked != nil {
			pin(s.environment.Name, rule)
		}
		for _, g := range s.step.Gates {
			if g.Approval != nil {
				pin(weightGate(s.environment.Name, g.Weight), core.RuleOf(*g.Approval, s.environment.Tier))
			}
		}
	}
	return rules
}

// weightGate is how the journal calls a gate within an environment.
func weightGate(environment string, weight int) string {
	return fmt.Sprintf("%s/%d", environment, weight)
}

// rule is that of a gate that a program asks about. One that no pipeline speaks of gets one person's, who is not the
// requester where production is at stake; it is pinned from then on.
func (t *tree) rule(ctx context.Context, gate string, environment int64) (core.GateRule, error) {
	rules, err := t.tx.GateRules(ctx, t.rollout.ID)
	if err != nil {
		return core.GateRule{}, err
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
		return core.GateRule{}, err
	}
	guarded := core.TierDevelopment
	for _, e := range environments {
		if e.Tier == core.TierProduction {
			guarded = core.TierProduction
		}
	}
	rule := core.RuleOf(core.Approval{}, guarded)
	return rule, t.tx.AddGateRule(ctx, t.rollout.ID, gate, rule)
}
