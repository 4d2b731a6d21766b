package view

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/access"
)

// UnanswerableRule is an approval that cannot be given as things are: too few members are left who may give it. Members leave and grants
// end without waiting for rules, because taking a permission away must never be held up; so this reports what that leads to (D50).
type UnanswerableRule struct {
	// EnvironmentID is the environment that requires the approval, or before or in which it is; 0 for none.
	EnvironmentID int64
	// ApplicationID is the application whose pipeline requires it; 0 for what an environment requires.
	ApplicationID int64
	// RolloutID is a rollout that waits for it now; 0 for a rule of rollouts to come.
	RolloutID int64
	GateID    string
	// Problem says why, in a sentence for people.
	Problem string
}

// RulesOf limits a search for rules; a zero value is no limit.
type RulesOf struct{ ApplicationID, EnvironmentID int64 }

// The bounds of one search.
const (
	mostUnanswerable = 100
	// mostMembers is how many members an organization may have for its requesters to be looked at: in larger ones there are always others.
	mostMembers = 500
	// mostPipelines are those that are read, by application.
	mostPipelines    = 2000
	mostEnvironments = 2000
	pageOfRules      = 500
)

// ruleAt is a rule that rollouts to come will pin.
type ruleAt struct {
	UnanswerableRule
	rule core.GateRule
	// environments are where it has to be answered.
	environments []core.Environment
}

// UnanswerableRules are the approvals of environments, pipelines and waiting rollouts that nobody is left to give, at most 100.
func (u *UseCases) UnanswerableRules(ctx context.Context, organization int64, of RulesOf) ([]UnanswerableRule, error) {
	rules, err := u.rules(ctx, organization, of)
	if err != nil {
		return nil, err
	}
	var groups []string
	for _, r := range rules {
		for _, one := range r.rule.Requirements() {
			groups = append(groups, one.Group)
		}
	}
	slices.Sort(groups)
	approvers, err := access.ApproversOf(ctx, u, organization, slices.Compact(groups))
	if err != nil {
		return nil, err
	}
	members, err := u.actors(ctx, organization)
	if err != nil {
		return nil, err
	}
	var found []UnanswerableRule
	reported := map[int64]bool{} // environments whose own rule is a problem already
	for _, r := range rules {
		if r.ApplicationID != 0 && reported[r.EnvironmentID] && r.GateID == r.environments[0].Name {
			continue
		}
		if r.Problem = r.unanswerable(approvers, members); r.Problem != "" {
			found = append(found, r.UnanswerableRule)
			reported[r.EnvironmentID] = reported[r.EnvironmentID] || r.ApplicationID == 0
		}
	}
	waiting, err := u.stuck(ctx, organization, of)
	found = append(waiting, found...)
	return found[:min(len(found), mostUnanswerable)], err
}

// unanswerable is why the rule cannot be answered; empty if a member could.
func (r ruleAt) unanswerable(approvers access.Approvers, members []core.Actor) string {
	var targets []core.Target
	for _, e := range r.environments {
		targets = append(targets, e.Target(r.ApplicationID))
	}
	where := approvers.At(targets...)
	if r.ApplicationID == 0 && len(r.environments) == 1 {
		where = approvers.Of(r.environments[0])
	}
	what := fmt.Sprintf("the approval %q", r.GateID)
	if found := access.UnanswerableRule(r.rule, where); len(found) > 0 {
		return fmt.Sprintf("%s cannot be given: %s", what, found[0].Problem)
	}
	var requesters []int64
	for _, one := range members {
		if !slices.ContainsFunc(targets, func(t core.Target) bool { return !mayDeploy(one, t) }) {
			requesters = append(requesters, one.ID)
		}
	}
	if access.OnlyRequester(r.rule, where, requesters) {
		return what + " cannot be given: everyone who may request a rollout there is needed to approve it, and the requester may not"
	}
	return ""
}

// mayDeploy is HasIn, also for a target of all applications where a grant is limited to some.
func mayDeploy(a core.Actor, t core.Target) bool {
	return a.Permissions.Has(core.MayDeploy) || slices.ContainsFunc(a.Grants, func(g core.Grant) bool {
		if t.ApplicationID == 0 {
			g.Applications = nil
		}
		return g.Permissions.Has(core.MayDeploy) && g.Covers(t)
	})
}

// actors are all members with what they may do; nil for an organization that has too many.
func (u *UseCases) actors(ctx context.Context, organization int64) ([]core.Actor, error) {
	page, err := u.Members(ctx, organization, core.Page{First: mostMembers})
	if err != nil || page.HasNext {
		return nil, err
	}
	ids := make([]int64, len(page.Nodes))
	for i, m := range page.Nodes {
		ids[i] = m.ID
	}
	grants, err := u.GrantsByMember(ctx, organization, ids)
	all := make([]core.Actor, len(page.Nodes))
	for i, m := range page.Nodes {
		all[i] = core.ActorOf(organization, m, grants[m.ID], nil)
	}
	return all, err
}

// rules are those that rollouts to come will pin: of environments first, then of pipelines.
func (u *UseCases) rules(ctx context.Context, organization int64, of RulesOf) ([]ruleAt, error) {
	environments, own, err := u.ownApprovals(ctx, organization)
	if err != nil {
		return nil, err
	}
	var all []ruleAt
	for _, e := range environments {
		if asked, ok := own[e.ID]; ok && of.ApplicationID == 0 && (of.EnvironmentID == 0 || of.EnvironmentID == e.ID) {
			all = append(all, ruleAt{UnanswerableRule{EnvironmentID: e.ID, GateID: e.Name}, asked.GateRule, []core.Environment{e}})
		}
	}
	byName := make(map[string]core.Environment, len(environments))
	for _, e := range environments {
		byName[e.Name] = e
	}
	applications, err := u.rulesApplications(ctx, organization, of)
	if err != nil {
		return nil, err
	}
	for chunk := range slices.Chunk(applications, pageOfRules) {
		latest, err := u.LatestFlowDefinitions(ctx, organization, chunk)
		if err != nil {
			return nil, err
		}
		for _, id := range chunk {
			definition, ok := latest[id]
			if !ok {
				continue
			}
			flow, err := u.flows.Read(definition.Definition)
			if err != nil {
				return nil, fmt.Errorf("read flow definition %d: %w", definition.ID, err)
			}
			for _, r := range pipelineRules(id, flow, byName, own) {
				if of.EnvironmentID == 0 || of.EnvironmentID == r.EnvironmentID {
					all = append(all, r)
				}
			}
		}
	}
	return all, nil
}

// ownApprovals are the environments, and what they require by themselves.
func (u *UseCases) ownApprovals(
	ctx context.Context, organization int64,
) (all []core.Environment, own map[int64]core.EnvironmentApproval, err error) {
	for p := (core.Page{First: pageOfRules}); len(all) < mostEnvironments; {
		s, err := u.Environments(ctx, organization, core.EnvironmentFilter{}, p)
		if err != nil {
			return nil, nil, err
		}
		all = append(all, s.Nodes...)
		if p.After = s.EndCursor(); !s.HasNext {
			break
		}
	}
	ids := make([]int64, len(all))
	for i, e := range all {
		ids[i] = e.ID
	}
	own, err = u.EnvironmentApprovals(ctx, organization, ids)
	return all, own, err
}

func (u *UseCases) rulesApplications(ctx context.Context, organization int64, of RulesOf) ([]int64, error) {
	if of.ApplicationID != 0 {
		return []int64{of.ApplicationID}, nil
	}
	var all []int64
	for p := (core.Page{First: pageOfRules}); len(all) < mostPipelines; {
		s, err := u.Applications(ctx, organization, core.ApplicationFilter{}, p)
		if err != nil {
			return nil, err
		}
		for _, a := range s.Nodes {
			all = append(all, a.ID)
		}
		if p.After = s.EndCursor(); !s.HasNext {
			break
		}
	}
	return all, nil
}

// pipelineRules are those of one pipeline. What an environment requires beside it is merged, as in a rollout.
func pipelineRules(
	application int64, flow core.Flow, environments map[string]core.Environment, own map[int64]core.EnvironmentApproval,
) []ruleAt {
	var all []ruleAt
	add := func(gate string, rule core.GateRule, at ...core.Environment) {
		r := ruleAt{UnanswerableRule{ApplicationID: application, GateID: gate}, rule, at}
		if len(at) == 1 {
			r.EnvironmentID = at[0].ID
		}
		all = append(all, r)
	}
	var everywhere []core.Environment
	for _, step := range flow.Deploys {
		e, ok := environments[step.Environment]
		if !ok {
			continue
		}
		everywhere = append(everywhere, e)
		if step.Approval != nil {
			var asked *core.EnvironmentApproval
			if found, ok := own[e.ID]; ok {
				asked = &found
			}
			_, rule := core.EntryRule(step.Approval, e.Tier, asked)
			add(e.Name, rule, e)
		}
		for _, g := range step.Gates {
			if g.Approval != nil {
				add(fmt.Sprintf("%s/%d", e.Name, g.Weight), core.RuleOf(*g.Approval, e.Tier), e)
			}
		}
	}
	for _, step := range flow.Approvals {
		if e, ok := environments[step.Before]; ok {
			add(step.GateID, core.RuleOf(step.Approval, e.Tier), e)
			continue
		}
		add(step.GateID, core.RuleOf(step.Approval, ""), everywhere...)
	}
	return all
}

// stuck are the open approvals of waiting rollouts that nobody is left to give.
func (u *UseCases) stuck(ctx context.Context, organization int64, of RulesOf) ([]UnanswerableRule, error) {
	asking, err := u.RolloutsAsking(ctx, organization, core.Range{Below: math.MaxInt64, Most: askedAtOnce})
	if err != nil || len(asking) == 0 {
		return nil, err
	}
	waits, err := u.Waits(ctx, organization, asking)
	if err != nil {
		return nil, err
	}
	rollouts, err := u.RolloutsByID(ctx, organization, asking)
	var found []UnanswerableRule
	for _, id := range asking {
		for _, w := range waits[id] {
			application := rollouts[id].ApplicationID
			if w.Status != WaitUnsatisfiable || of.ApplicationID != 0 && of.ApplicationID != application ||
				of.EnvironmentID != 0 && of.EnvironmentID != w.EnvironmentID {
				continue
			}
			found = append(found, UnanswerableRule{
				EnvironmentID: w.EnvironmentID, ApplicationID: application, RolloutID: id, GateID: w.GateID,
				Problem: fmt.Sprintf("rollout_%d waits for it: %s", id, w.Detail),
			})
		}
	}
	return found, err
}
