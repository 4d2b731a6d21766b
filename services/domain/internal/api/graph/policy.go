package graph

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	rules "github.com/lockstep-cd/lockstep/pkg/policy"
	"github.com/lockstep-cd/lockstep/services/domain/internal/api/graph/model"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/policy"
)

// Policies is what the API needs of package policy.
type Policies interface {
	PutPolicySet(ctx context.Context, a core.Actor, n policy.NewPolicySet) (core.PolicySet, error)
	InstallationPolicies() []core.PolicySet
	PolicySets(ctx context.Context, a core.Actor) ([]core.PolicySet, error)
	PolicySetVersions(ctx context.Context, a core.Actor, name string) ([]core.PolicySet, error)
	PolicySetsByID(ctx context.Context, organization int64, ids []int64) (map[int64]core.PolicySet, error)
	ControlDecisions(ctx context.Context, a core.Actor) ([]core.PolicyDecision, error)
	PolicyDecisionsByID(ctx context.Context, organization int64, ids []int64) (map[int64]core.PolicyDecision, error)
	PolicyDecisionsByRollout(ctx context.Context, organization int64, rollouts []int64) (map[int64][]core.PolicyDecision, error)
	Calls
	CheckPolicies(ctx context.Context, a core.Actor, text string) (policy.Checked, error)
	PolicyNames(ctx context.Context, a core.Actor) (policy.Names, error)
	Simulate(ctx context.Context, a core.Actor, n policy.NewPolicySet, since time.Time) (policy.Simulated, error)
}

var _ Policies = (*policy.UseCases)(nil)

// PolicySets are all of the organization.
func (q query) PolicySets(ctx context.Context) ([]model.PolicySet, error) {
	all, err := q.domain.Policies.PolicySets(ctx, loadersOf(ctx).actor)
	return wrapAll(all, model.WrapPolicySet), err
}

// InstallationPolicies are those that the operator has given.
func (q query) InstallationPolicies(context.Context) ([]model.InstallationPolicySet, error) {
	all := []model.InstallationPolicySet{}
	for _, s := range q.domain.Policies.InstallationPolicies() {
		all = append(all, model.InstallationPolicySet{Name: s.Name, Mode: s.Mode, TimeZone: s.TimeZone, Text: s.Text})
	}
	return all, nil
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

// ControlDecisions are about changes of controls.
func (q query) ControlDecisions(ctx context.Context) ([]model.PolicyDecision, error) {
	all, err := q.domain.Policies.ControlDecisions(ctx, loadersOf(ctx).actor)
	return wrapAll(all, model.WrapPolicyDecision), err
}

// PolicyVocabulary is what policies may ask of, and name.
func (q query) PolicyVocabulary(ctx context.Context) (model.PolicyVocabulary, error) {
	templates, err := rules.Templates()
	if err != nil {
		return model.PolicyVocabulary{}, err
	}
	names, err := q.domain.Policies.PolicyNames(ctx, loadersOf(ctx).actor)
	slices.Sort(names.Groups)
	return model.PolicyVocabulary{
		Rollouts: rules.Schema, Calls: rules.CallSchema, Controls: rules.ControlSchema(), Annotations: rules.Annotations(),
		Templates: wrapAll(templates, func(t rules.Template) model.PolicyTemplate { return model.PolicyTemplate(t) }),
		Names: model.PolicyNames{
			Applications: sortedNames(names.Applications),
			Environments: sortedNames(names.Environments),
			Groups:       append([]string{}, names.Groups...),
			Agents:       append([]string{}, names.Agents...),
			Drivers:      append([]string{}, names.Drivers...),
			Services:     append([]string{}, names.Services...),
			Functions:    rules.Functions(),
		},
	}, err
}

// sortedNames are the names, and an empty list for none.
func sortedNames(of map[int64]string) []string {
	return append([]string{}, slices.Sorted(maps.Values(of))...)
}

// CheckPolicies validates a text.
func (q query) CheckPolicies(ctx context.Context, text string) (model.PolicyCheck, error) {
	found, err := q.domain.Policies.CheckPolicies(ctx, loadersOf(ctx).actor, text)
	return model.PolicyCheck{Problems: model.WrapPolicyProblems(found.Problems), Warnings: model.WrapPolicyProblems(found.Warnings)}, err
}

// SimulatePolicies decides again what was decided.
func (q query) SimulatePolicies(ctx context.Context, in model.SimulatePoliciesInput) (model.PolicySimulation, error) {
	n := policy.NewPolicySet{Name: in.Name, Text: in.Text, TimeZone: orEmpty(in.TimeZone)}
	if err := scopeOf(ctx, q.domain, in.Application, in.Environment, in.ApplicationLabels, &n); err != nil {
		return model.PolicySimulation{}, err
	}
	found, err := q.domain.Policies.Simulate(ctx, loadersOf(ctx).actor, n, in.Since)
	s := model.PolicySimulation{
		Evaluated: found.Evaluated, Truncated: found.Truncated, DifferentCount: found.DifferentCount, Different: []model.PolicyDifference{},
		EvaluatedCalls: found.EvaluatedCalls, SampledCalls: found.SampledCalls,
		DifferentCallCount: found.DifferentCallCount, DifferentCalls: []model.CallDifference{},
	}
	for _, d := range found.DifferentCalls {
		s.DifferentCalls = append(s.DifferentCalls, model.CallDifference{
			CallRequest: model.WrapCallRequest(d.CallRequest), Verdict: d.Would.Verdict, Summary: d.Would.Sentence(),
		})
	}
	for _, d := range found.Different {
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
func scopeOf(
	ctx context.Context, d Domain, application, environment *string, labels json.RawMessage, n *policy.NewPolicySet,
) error {
	var err error
	if n.Labels, err = selectorOf("/applicationLabels", labels); err != nil {
		return err
	}
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
		err = scopeOf(ctx, m.domain, in.Application, in.Environment, in.ApplicationLabels, &n)
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

// selectorOf reads the labels that a scope asks of; nil for none.
func selectorOf(field string, labels json.RawMessage) (map[string]string, error) {
	if len(labels) == 0 || string(labels) == "null" {
		return nil, nil
	}
	var given map[string]*string // a null would be an empty text otherwise, which nothing has
	read := map[string]string{}
	wrong := json.Unmarshal(labels, &given) != nil || given == nil
	for key, value := range given {
		if wrong = wrong || value == nil; !wrong {
			read[key] = *value
		}
	}
	if wrong {
		return nil, fault.InvalidFields(fault.Field{Name: field, Problem: "found something else; expected an object of strings"})
	}
	return read, nil
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

// State is its outcome so far.
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
