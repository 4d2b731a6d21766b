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

// pinGates writes the rules of every gate that the pipeline and its environments ask for.
func (p plan) pinGates(ctx context.Context, tx Tx, rollout int64) error {
	rules := map[string]core.GateRule{}
	tiers := map[string]core.Tier{}
	for _, s := range p.stops {
		tiers[s.environment.Name] = s.environment.Tier
		if asked, rule := s.entry(); asked != nil {
			rules[s.environment.Name] = rule
		}
		for _, g := range s.step.Gates {
			if g.Approval != nil {
				rules[weightGate(s.environment.Name, g.Weight)] = core.RuleOf(*g.Approval, s.environment.Tier)
			}
		}
	}
	for _, step := range p.approvals {
		// What stands between environments guards the one that comes next.
		rules[step.GateID] = core.RuleOf(step.Approval, tiers[step.Before])
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
