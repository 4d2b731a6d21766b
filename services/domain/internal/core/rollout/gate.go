package rollout

import (
	"context"
	"fmt"
	"slices"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/access"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/planner"
)

// entry is the approval before a stop.
func (s stop) entry() (*core.Approval, core.GateRule) {
	return core.EntryRule(s.step.Approval, s.environment.Tier, s.approval)
}

// pinGates writes the rules of every gate that the pipeline and its environments ask for. Rules that meet under one id are merged, and
// merging only makes them stricter: whatever else has the name of an environment never replaces what the environment asks (D46).
func (p plan) pinGates(ctx context.Context, tx Tx, rollout int64) error {
	for _, s := range p.stops {
		for _, c := range append(s.step.Pinned(s.environment.ID, false), s.checks.Pinned(s.environment.ID, true)...) {
			if err := p.pinCheck(ctx, tx, rollout, c); err != nil {
				return err
			}
		}
	}
	for gate, rule := range p.gateRules() {
		if err := tx.AddGateRule(ctx, rollout, gate, rule); err != nil {
			return err
		}
	}
	return nil
}

// follows are the environments whose active checks guard the entrance of a plan's stop, by number: those that its step names, else the one
// before it (R3-11, R3-16). In the place of one that the rollout leaves out are those that it follows itself.
func (p plan) follows(i int) []int64 {
	steps := p.flow.Deploys
	at := func(name string) int {
		return slices.IndexFunc(steps, func(s core.DeployStep) bool { return s.Environment == name })
	}
	before := func(name string) []string {
		switch n := at(name); {
		case n < 0:
			return nil
		case steps[n].Follows != nil:
			return steps[n].Follows
		case n > 0:
			return []string{steps[n-1].Environment}
		}
		return nil
	}
	ids, seen := []int64{}, map[string]bool{}
	for names := before(p.stops[i].environment.Name); len(names) > 0; names = names[1:] {
		name := names[0]
		if seen[name] {
			continue
		}
		seen[name] = true
		if n := slices.IndexFunc(p.stops, func(s stop) bool { return s.environment.Name == name }); n >= 0 {
			ids = append(ids, p.stops[n].environment.ID)
		} else {
			names = slices.Concat(names, before(name))
		}
	}
	return ids
}

// gateRules are the rules of the plan's gates, by id.
func (p plan) gateRules() map[string]core.PinnedGate {
	rules := map[string]core.PinnedGate{}
	pin := func(gate string, rule core.GateRule, reason string, before int64) {
		if other, taken := rules[gate]; taken {
			rule = other.Stricter(rule)
			if reason == "" {
				reason = other.Reason
			}
		}
		rules[gate] = core.PinnedGate{GateRule: rule, Reason: reason, BeforeEnvironmentID: before}
	}
	tiers, ids := map[string]core.Tier{}, map[string]int64{}
	for _, s := range p.stops {
		tiers[s.environment.Name], ids[s.environment.Name] = s.environment.Tier, s.environment.ID
	}
	for _, step := range p.approvals {
		// What stands between environments guards the one that comes next. A step that has the name of an environment guards that one, too.
		rule := core.RuleOf(step.Approval, tiers[step.Before])
		if tiers[step.GateID] == core.TierProduction {
			rule = rule.Stricter(core.RuleOf(step.Approval, core.TierProduction))
		}
		pin(step.GateID, rule, step.Reason, ids[step.Before])
	}
	for _, s := range p.stops {
		if asked, rule := s.entry(); asked != nil {
			pin(s.environment.Name, rule, asked.Reason, 0)
		}
		for _, g := range s.step.Gates {
			if g.Approval != nil {
				pin(weightGate(s.environment.Name, g.Weight), core.RuleOf(*g.Approval, s.environment.Tier), g.Approval.Reason, 0)
			}
		}
	}
	return rules
}

// weights are those at which the pipeline stops.
func (s stop) weights() []core.Weight {
	all := make([]core.Weight, len(s.step.Gates))
	for i, g := range s.step.Gates {
		all[i] = core.Weight{Weight: g.Weight, SoakSeconds: g.SoakDuration}
	}
	return all
}

// skipsWeights is why the rollout will not stop at the weights of an environment; empty if it will. Where that turns out to be wrong, the
// approvals have been given earlier than they were needed, never later.
func (p plan) skipsWeights(s stop) core.WeightSkip {
	live, deployed := p.live[s.environment.ID]
	switch {
	case len(s.step.Gates) == 0:
		return ""
	case !s.driver.Gates:
		return core.SkipsNoGates
	case p.inFull:
		return core.SkipsPromoteFull
	case !deployed:
		return core.SkipsFirstDeploy
	case p.same[live]:
		return core.SkipsUnchanged
	case p.decision.Strategy == planner.Quick:
		return core.SkipsQuickSync
	}
	return ""
}

// weightGate is how the journal calls a gate within an environment.
func weightGate(environment string, weight int) string {
	return fmt.Sprintf("%s/%d", environment, weight)
}

// rule is that of a gate that a program asks about. What is pinned is never replaced. A gate that no pipeline speaks of gets one person's
// rule, who is not the requester where production is at stake; it is pinned from then on, as an additional condition.
func (t *tree) rule(ctx context.Context, rules map[string]core.PinnedGate, m ApprovalRequested) (core.PinnedGate, error) {
	if known, ok := rules[m.GateID]; ok {
		return known, nil
	}
	ids := []int64{m.EnvironmentID}
	if m.EnvironmentID == 0 {
		ids = ids[:0]
		for _, b := range t.environments {
			ids = append(ids, b.EnvironmentID)
		}
	}
	environments, err := t.tx.EnvironmentsByID(ctx, t.cause.Organization, ids)
	if err != nil {
		return core.PinnedGate{}, err
	}
	guarded := core.TierDevelopment
	for _, e := range environments {
		if e.Tier == core.TierProduction {
			guarded = core.TierProduction
		}
	}
	rule := core.PinnedGate{GateRule: core.RuleOf(core.Approval{}, guarded), Reason: m.Reason, Own: true}
	return rule, t.tx.AddGateRule(ctx, t.rollout.ID, m.GateID, rule)
}

// checksOf are the checks that an environment requires by itself.
func (p plan) checksOf(ctx context.Context, tx Tx, organization int64, e core.Environment) (core.CheckSet, error) {
	own, err := tx.EnvironmentChecks(ctx, organization, []int64{e.ID})
	text, requires := own[e.ID]
	if err != nil || !requires {
		return core.CheckSet{}, err
	}
	set, err := p.flows.ReadChecks(text)
	if err != nil {
		return set, fmt.Errorf("read checks of environment %d: %w", e.ID, err)
	}
	return set, nil
}

// Stuck is an approval that a program has requested and that nobody can give as things are.
type Stuck struct {
	Organization, RolloutID int64
	GateID, Problem         string
}

// reportStuck reports an approval that was requested just now and that nobody can give: a program's rule was never checked, as a pipeline's
// is when it is written. The request stands, because members may be added; what a rollout waits for says the same.
func (u *UseCases) reportStuck(ctx context.Context, t *tree, gate string) error {
	open, err := t.tx.OpenGates(ctx, t.cause.Organization, []int64{t.rollout.ID})
	if err != nil {
		return err
	}
	i := slices.IndexFunc(open[t.rollout.ID], func(g core.Gate) bool { return g.GateID == gate })
	if i < 0 {
		return nil
	}
	g := open[t.rollout.ID][i]
	groups := g.Groups()
	if len(groups) == 0 {
		groups = []string{access.Anybody}
	}
	approvers, err := access.ApproversOf(ctx, t.tx, t.cause.Organization, groups)
	if err != nil {
		return err
	}
	environments := make([]core.RolloutEnvironment, len(t.environments))
	var ids []int64
	for i, b := range t.environments {
		environments[i], ids = b.RolloutEnvironment, append(ids, b.EnvironmentID)
	}
	known, err := t.tx.EnvironmentsByID(ctx, t.cause.Organization, ids)
	if err != nil {
		return err
	}
	s := core.Standing{Rollout: t.rollout, Environments: environments, Known: known}
	where := approvers.At(s.GateTargets(g)...)
	if access.Given(g.GateRule, where, g.Requester) {
		return nil
	}
	u.stuck(ctx, Stuck{
		Organization: t.cause.Organization, RolloutID: t.rollout.ID, GateID: gate,
		Problem: "too few members may approve it; the requester of the rollout may not, unless the rule lets it",
	})
	return nil
}
