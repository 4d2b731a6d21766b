package graph

import (
	"context"
	"time"

	"github.com/lockstep-cd/lockstep/services/domain/internal/api/graph/model"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/freeze"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/policy"
)

// Freezes is one page of them.
func (q query) Freezes(
	ctx context.Context, first *int, after *string, last *int, before *string, includeOver *bool, orderBy *core.Order,
) (model.FreezeConnection, error) {
	p, err := page(defaultPage, first, after, last, before, orderBy)
	if err != nil {
		return model.FreezeConnection{}, err
	}
	l := loadersOf(ctx)
	var filter core.FreezeFilter
	if includeOver == nil || !*includeOver {
		filter.InForceAt = q.domain.View.Now()
	}
	s, err := q.domain.View.Freezes(ctx, l.actor.Organization, filter, p)
	return model.FreezeConnection(model.Connect[model.FreezeEdge](s, model.WrapFreeze, func(ctx context.Context) (int, error) {
		return q.domain.View.CountFreezes(ctx, l.actor.Organization, filter)
	})), err
}

// freezeResolver resolves the fields of Freeze that are loaded.
type freezeResolver struct{ domain Domain }

// Environments are those that it concerns.
func (freezeResolver) Environments(ctx context.Context, f *model.Freeze) ([]model.Environment, error) {
	return each(ctx, loadersOf(ctx).environments, f.EnvironmentIDs, model.WrapEnvironment)
}

// Applications are those that it concerns.
func (freezeResolver) Applications(ctx context.Context, f *model.Freeze) ([]model.Application, error) {
	return each(ctx, loadersOf(ctx).applications, f.ApplicationIDs, model.WrapApplication)
}

// InForce is whether it stops rollouts now.
func (r freezeResolver) InForce(_ context.Context, f *model.Freeze) (bool, error) {
	return f.InForce(r.domain.View.Now()), nil
}

// StoppedRollouts is how many wait for its end.
func (freezeResolver) StoppedRollouts(ctx context.Context, f *model.Freeze) (int, error) {
	n, _, err := loadersOf(ctx).stoppedBy.load(ctx, f.ID)
	return n, err
}

// Pin keeps automation from changing what runs there.
func (environment) Pin(ctx context.Context, e *model.Environment) (*model.EnvironmentPin, error) {
	return optional(ctx, loadersOf(ctx).pinOf, e.ID, model.WrapPin)
}

// Veto is the one on a version.
func (version) Veto(ctx context.Context, v *model.Version) (*model.Veto, error) {
	return optional(ctx, loadersOf(ctx).vetoOfVersion, v.ID, model.WrapVeto)
}

// Vetoes are those on a set and on its versions.
func (versionSet) Vetoes(ctx context.Context, v *model.VersionSet) ([]model.Veto, error) {
	return list(ctx, loadersOf(ctx).vetoesOf, v.ID, model.WrapVeto)
}

// StartFreeze sets a freeze.
func (m mutation) StartFreeze(ctx context.Context, in model.StartFreezeInput) (p model.StartFreezePayload, err error) {
	n := freeze.NewFreeze{Tiers: in.Tiers, Rollbacks: in.Rollbacks != nil && *in.Rollbacks, Reason: in.Reason, EndsAt: in.EndsAt}
	if in.StartsAt != nil {
		n.StartsAt = *in.StartsAt
	}
	// Before names are looked up, which would reveal what exists.
	if err = loadersOf(ctx).actor.MaySomewhere(core.ActionStartFreeze); err == nil {
		n.EnvironmentIDs, err = numbers(ctx, m.domain.View, "/environments", in.Environments, environmentNumber)
	}
	if err == nil {
		n.ApplicationIDs, err = numbers(ctx, m.domain.View, "/applications", in.Applications, applicationNumber)
	}
	var made core.Freeze
	if err == nil {
		made, err = m.domain.Freezes.StartFreeze(ctx, loadersOf(ctx).actor, n)
	}
	p.Freeze, p.Errors, err = changed(made, err, model.WrapFreeze)
	return p, err
}

// ExtendFreeze chooses a later end.
func (m mutation) ExtendFreeze(ctx context.Context, in model.ExtendFreezeInput) (p model.ExtendFreezePayload, err error) {
	n, err := number("/freezeId", model.KindFreeze, in.FreezeID)
	var made core.Freeze
	if err == nil {
		made, err = m.domain.Freezes.ExtendFreeze(ctx, loadersOf(ctx).actor, n, in.EndsAt, orEmpty(in.Reason))
	}
	p.Freeze, p.Errors, err = changed(made, inField(err, "/freezeId"), model.WrapFreeze)
	return p, err
}

// EndFreeze ends a freeze before its time.
func (m mutation) EndFreeze(ctx context.Context, in model.EndFreezeInput) (p model.EndFreezePayload, err error) {
	n, err := number("/freezeId", model.KindFreeze, in.FreezeID)
	var made core.Freeze
	if err == nil {
		made, err = m.domain.Freezes.EndFreeze(ctx, loadersOf(ctx).actor, n, orEmpty(in.Reason))
	}
	p.Freeze, p.Errors, err = changed(made, inField(err, "/freezeId"), model.WrapFreeze)
	return p, err
}

// BypassFreeze lets a rollout past freezes.
func (m mutation) BypassFreeze(ctx context.Context, in model.BypassFreezeInput) (p model.BypassFreezePayload, err error) {
	p.Rollout, p.Errors, err = apply(ctx, in.RolloutID, &in.Reason, m.domain.Rollouts.BypassFreeze)
	return p, err
}

// VetoVersion sets a veto.
func (m mutation) VetoVersion(ctx context.Context, in model.VetoVersionInput) (p model.VetoVersionPayload, err error) {
	n := freeze.NewVeto{Reason: in.Reason}
	if in.VersionID != nil {
		n.VersionID, err = number("/versionId", model.KindVersion, *in.VersionID)
	}
	if in.VersionSetID != nil && err == nil {
		n.VersionSetID, err = number("/versionSetId", model.KindVersionSet, *in.VersionSetID)
	}
	var made core.Veto
	if err == nil {
		made, err = m.domain.Freezes.VetoVersion(ctx, loadersOf(ctx).actor, n)
	}
	p.Veto, p.Errors, err = changed(made, err, model.WrapVeto)
	return p, err
}

// LiftVeto ends a veto.
func (m mutation) LiftVeto(ctx context.Context, in model.LiftVetoInput) (p model.LiftVetoPayload, err error) {
	n, err := number("/vetoId", model.KindVeto, in.VetoID)
	var made core.Veto
	if err == nil {
		made, err = m.domain.Freezes.LiftVeto(ctx, loadersOf(ctx).actor, n, in.Reason)
	}
	p.Veto, p.Errors, err = changed(made, inField(err, "/vetoId"), model.WrapVeto)
	return p, err
}

// PinEnvironment keeps automation from changing what runs in an environment.
func (m mutation) PinEnvironment(ctx context.Context, in model.PinEnvironmentInput) (p model.PinEnvironmentPayload, err error) {
	l := loadersOf(ctx)
	n, err := number("/environmentId", model.KindEnvironment, in.EnvironmentID)
	if err == nil {
		_, err = m.domain.Freezes.PinEnvironment(ctx, l.actor, n, in.Reason)
	}
	p.Environment, p.Errors, err = outcome(ctx, l.environments, n, model.WrapEnvironment, inField(err, "/environmentId"))
	return p, err
}

// UnpinEnvironment ends that.
func (m mutation) UnpinEnvironment(ctx context.Context, in model.UnpinEnvironmentInput) (p model.UnpinEnvironmentPayload, err error) {
	l := loadersOf(ctx)
	n, err := number("/environmentId", model.KindEnvironment, in.EnvironmentID)
	if err == nil {
		_, err = m.domain.Freezes.UnpinEnvironment(ctx, l.actor, n, orEmpty(in.Reason))
	}
	p.Environment, p.Errors, err = outcome(ctx, l.environments, n, model.WrapEnvironment, inField(err, "/environmentId"))
	return p, err
}

// changed is what a payload says of what a use case answered: the object, or what the caller has to mend.
func changed[V, M any](made V, err error, wrap func(V) M) (*M, []model.UserError, error) {
	if err != nil {
		mend, err := userErrors(err)
		return nil, mend, err
	}
	object := wrap(made)
	return &object, []model.UserError{}, nil
}

// Policies is what the API needs of package policy.
type Policies interface {
	PutPolicySet(ctx context.Context, a core.Actor, n policy.NewPolicySet) (core.PolicySet, error)
	PolicySets(ctx context.Context, a core.Actor) ([]core.PolicySet, error)
	PolicySetVersions(ctx context.Context, a core.Actor, name string) ([]core.PolicySet, error)
	PolicySetsByID(ctx context.Context, organization int64, ids []int64) (map[int64]core.PolicySet, error)
	PolicyDecisionsByID(ctx context.Context, organization int64, ids []int64) (map[int64]core.PolicyDecision, error)
	PolicyDecisionsByRollout(ctx context.Context, organization int64, rollouts []int64) (map[int64][]core.PolicyDecision, error)
	Calls
	CheckPolicies(ctx context.Context, a core.Actor, text string) (policy.Checked, error)
	Simulate(ctx context.Context, a core.Actor, n policy.NewPolicySet, since time.Time) (policy.Simulated, error)
}

var _ Policies = (*policy.UseCases)(nil)

// maxDifferent is how many differences a simulation lists.
const maxDifferent = 200

// PolicySets are all of the organization.
func (q query) PolicySets(ctx context.Context) ([]model.PolicySet, error) {
	all, err := q.domain.Policies.PolicySets(ctx, loadersOf(ctx).actor)
	return wrapAll(all, model.WrapPolicySet), err
}

// PolicySetVersions are those of one set.
func (q query) PolicySetVersions(ctx context.Context, name string) ([]model.PolicySet, error) {
	all, err := q.domain.Policies.PolicySetVersions(ctx, loadersOf(ctx).actor, name)
	return wrapAll(all, model.WrapPolicySet), err
}

// PolicyDecision explains one decision.
func (q query) PolicyDecision(ctx context.Context, id string) (*model.PolicyDecision, error) {
	n, err := number("/id", model.KindPolicyDecision, id)
	if err != nil {
		return nil, err
	}
	return optional(ctx, loadersOf(ctx).policyDecisions, n, model.WrapPolicyDecision)
}

// CheckPolicies validates a text.
func (q query) CheckPolicies(ctx context.Context, text string) (model.PolicyCheck, error) {
	found, err := q.domain.Policies.CheckPolicies(ctx, loadersOf(ctx).actor, text)
	return model.PolicyCheck{Problems: model.WrapPolicyProblems(found.Problems), Warnings: model.WrapPolicyProblems(found.Warnings)}, err
}

// SimulatePolicies decides again what was decided.
func (q query) SimulatePolicies(ctx context.Context, in model.SimulatePoliciesInput) (model.PolicySimulation, error) {
	n := policy.NewPolicySet{Name: in.Name, Text: in.Text, TimeZone: orEmpty(in.TimeZone)}
	if err := scopeOf(ctx, q.domain, in.Application, in.Environment, &n); err != nil {
		return model.PolicySimulation{}, err
	}
	found, err := q.domain.Policies.Simulate(ctx, loadersOf(ctx).actor, n, in.Since)
	s := model.PolicySimulation{
		Evaluated: found.Evaluated, Truncated: found.Truncated, DifferentCount: len(found.Different), Different: []model.PolicyDifference{},
	}
	for _, d := range found.Different[:min(len(found.Different), maxDifferent)] {
		one := model.PolicyDifference{Decision: model.WrapPolicyDecision(d.PolicyDecision), Verdict: d.Would.Verdict, Summary: d.Would.Sentence()}
		r, known, err := loadersOf(ctx).rollouts.load(ctx, d.RolloutID)
		if err != nil {
			return s, err
		}
		if known {
			rollout := model.WrapRollout(r)
			one.Rollout = &rollout
		}
		s.Different = append(s.Different, one)
	}
	return s, err
}

// scopeOf reads the scope of a set, by names or identifiers.
func scopeOf(ctx context.Context, d Domain, application, environment *string, n *policy.NewPolicySet) error {
	if application != nil && *application != "" {
		ids, err := numbers(ctx, d.View, "/application", []string{*application}, applicationNumber)
		if err != nil {
			return err
		}
		n.ApplicationID = ids[0]
	}
	if environment != nil && *environment != "" {
		ids, err := numbers(ctx, d.View, "/environment", []string{*environment}, environmentNumber)
		if err != nil {
			return err
		}
		n.EnvironmentID = ids[0]
	}
	return nil
}

// PutPolicySet adds a version of a policy set.
func (m mutation) PutPolicySet(ctx context.Context, in model.PutPolicySetInput) (p model.PutPolicySetPayload, err error) {
	actor := loadersOf(ctx).actor
	n := policy.NewPolicySet{Name: in.Name, Text: orEmpty(in.Text), TimeZone: orEmpty(in.TimeZone), Reason: in.Reason}
	if in.Mode != nil {
		n.Mode = *in.Mode
	}
	// Before names are looked up, which would reveal what exists.
	if err = actor.MaySomewhere(core.ActionPutPolicySet); err == nil {
		err = scopeOf(ctx, m.domain, in.Application, in.Environment, &n)
	}
	var made core.PolicySet
	if err == nil {
		made, err = m.domain.Policies.PutPolicySet(ctx, actor, n)
	}
	p.Warnings = []model.PolicyProblem{}
	if err == nil && made.Mode != core.PolicyOff {
		found, err := m.domain.Policies.CheckPolicies(ctx, actor, made.Text)
		if err != nil {
			return p, err
		}
		p.Warnings = model.WrapPolicyProblems(found.Warnings)
	}
	p.PolicySet, p.Errors, err = changed(made, err, model.WrapPolicySet)
	return p, err
}

// policySetResolver resolves the fields of PolicySet that are loaded.
type policySetResolver struct{}

// Application is the one that it concerns.
func (policySetResolver) Application(ctx context.Context, s *model.PolicySet) (*model.Application, error) {
	return optional(ctx, loadersOf(ctx).applications, s.ApplicationID, model.WrapApplication)
}

// Environment is the one that it concerns.
func (policySetResolver) Environment(ctx context.Context, s *model.PolicySet) (*model.Environment, error) {
	return optional(ctx, loadersOf(ctx).environments, s.EnvironmentID, model.WrapEnvironment)
}

// PolicyDecisions are those about a rollout.
func (rolloutResolver) PolicyDecisions(ctx context.Context, of *model.Rollout) ([]model.PolicyDecision, error) {
	return list(ctx, loadersOf(ctx).policyDecisionsOf, of.ID, model.WrapPolicyDecision)
}

// Calls is what the API needs of package policy about calls of Functions.
type Calls interface {
	AnswerCall(ctx context.Context, a core.Actor, request int64, approve bool, reason string) (core.CallRequest, error)
	MayAnswerCall(ctx context.Context, a core.Actor, r core.CallRequest) error
	CallRequests(ctx context.Context, a core.Actor, pending bool) ([]core.CallRequest, error)
	CallRequestsByID(ctx context.Context, organization int64, ids []int64) (map[int64]core.CallRequest, error)
	CallRequestsByRollout(ctx context.Context, organization int64, rollouts []int64) (map[int64][]core.CallRequest, error)
	CallAnswersOf(ctx context.Context, organization int64, requests []int64) (map[int64][]core.CallAnswer, error)
}

// CallRequests are calls that policies did not permit at once.
func (q query) CallRequests(ctx context.Context, pending *bool) ([]model.CallRequest, error) {
	all, err := q.domain.Policies.CallRequests(ctx, loadersOf(ctx).actor, pending == nil || *pending)
	return wrapAll(all, model.WrapCallRequest), err
}

// CallRequest explains one.
func (q query) CallRequest(ctx context.Context, id string) (*model.CallRequest, error) {
	n, err := number("/id", model.KindCallRequest, id)
	if err != nil {
		return nil, err
	}
	return optional(ctx, loadersOf(ctx).callRequests, n, model.WrapCallRequest)
}

// CallRequests are those of the run of a rollout.
func (rolloutResolver) CallRequests(ctx context.Context, of *model.Rollout) ([]model.CallRequest, error) {
	return list(ctx, loadersOf(ctx).callRequestsOf, of.ID, model.WrapCallRequest)
}

// callRequest resolves those of CallRequest.
type callRequest struct{ domain Domain }

// State is what has become of it by now.
func (callRequest) State(ctx context.Context, r *model.CallRequest) (core.CallState, error) {
	return r.StateAt(loadersOf(ctx).clock.Now()), nil
}

// Rollout is that of the run.
func (callRequest) Rollout(ctx context.Context, r *model.CallRequest) (*model.Rollout, error) {
	return optional(ctx, loadersOf(ctx).rollouts, r.RolloutID, model.WrapRollout)
}

// Answers are those so far.
func (callRequest) Answers(ctx context.Context, r *model.CallRequest) ([]model.CallAnswer, error) {
	return list(ctx, loadersOf(ctx).callAnswersOf, r.ID, model.WrapCallAnswer)
}

// ViewerCan is about approving it.
func (r callRequest) ViewerCan(ctx context.Context, of *model.CallRequest) ([]model.Ability, error) {
	a := loadersOf(ctx).actor
	return abilities(func(core.Action) error { return r.domain.Policies.MayAnswerCall(ctx, a, of.CallRequest) }, core.ActionAnswerCall)
}

// AnswerCall approves or refuses a call.
func (m mutation) AnswerCall(ctx context.Context, in model.AnswerCallInput) (p model.AnswerCallPayload, err error) {
	l := loadersOf(ctx)
	n, err := number("/callRequestId", model.KindCallRequest, in.CallRequestID)
	if err == nil {
		_, err = m.domain.Policies.AnswerCall(ctx, l.actor, n, in.Approve, in.Reason)
	}
	p.CallRequest, p.Errors, err = outcome(ctx, l.callRequests, n, model.WrapCallRequest, err)
	return p, err
}
