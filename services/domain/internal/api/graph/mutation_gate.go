package graph

import (
	"context"
	"time"

	"github.com/lockstep-cd/lockstep/services/domain/internal/api/graph/model"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/view"
)

// SetEnvironmentApproval says what an environment asks of rollouts by itself.
func (m mutation) SetEnvironmentApproval(
	ctx context.Context, in model.SetEnvironmentApprovalInput,
) (p model.SetEnvironmentApprovalPayload, err error) {
	l := loadersOf(ctx)
	n, err := number("/environmentId", model.KindEnvironment, in.EnvironmentID)
	if err == nil {
		_, err = m.domain.Setup.SetEnvironmentApproval(ctx, l.actor, n, environmentApproval(in.Approval))
	}
	p.Environment, p.Errors, err = outcome(ctx, l.environments, n, model.WrapEnvironment, err)
	return p, err
}

// SetDirectChanges decides whether changes that belong to no rollout are accepted.
func (m mutation) SetDirectChanges(ctx context.Context, in model.SetDirectChangesInput) (p model.SetDirectChangesPayload, err error) {
	l := loadersOf(ctx)
	n, err := number("/environmentId", model.KindEnvironment, in.EnvironmentID)
	if err == nil {
		_, err = m.domain.Setup.SetDirectChanges(ctx, l.actor, n, in.Allowed, orEmpty(in.Reason))
	}
	p.Environment, p.Errors, err = outcome(ctx, l.environments, n, model.WrapEnvironment, err)
	return p, err
}

// environmentApproval reads an input whose fields the schema has given their defaults.
func environmentApproval(in *model.EnvironmentApprovalInput) *core.EnvironmentApproval {
	if in == nil {
		return nil
	}
	asked := core.EnvironmentApproval{Reason: orEmpty(in.Reason), GateRule: core.GateRule{
		Quorum: 1, Group: orEmpty(in.Group), RequesterMayApprove: in.RequesterMayApprove != nil && *in.RequesterMayApprove,
		OnExpiry: core.ExpiryRejects,
	}}
	if in.Quorum != nil {
		asked.Quorum = *in.Quorum
	}
	if in.ExpiresAfterSeconds != nil {
		asked.ExpiresAfter = time.Duration(*in.ExpiresAfterSeconds) * time.Second
	}
	if in.OnExpiry != nil {
		asked.OnExpiry = *in.OnExpiry
	}
	return &asked
}

// unanswerableIn reads the rules that nobody is left to answer.
func unanswerableIn(ctx context.Context, d Domain, of view.RulesOf) ([]model.UnanswerableRule, error) {
	found, err := d.View.UnanswerableRules(ctx, loadersOf(ctx).actor.Organization, of)
	return wrapAll(found, model.WrapUnanswerableRule), err
}

// UnanswerableRules are the approvals that cannot be given as things are.
func (q query) UnanswerableRules(ctx context.Context, application, environment *string) (_ []model.UnanswerableRule, err error) {
	var of view.RulesOf
	if application != nil {
		if of.ApplicationID, err = number("applicationId", model.KindApplication, *application); err != nil {
			return nil, err
		}
	}
	if environment != nil {
		if of.EnvironmentID, err = number("environmentId", model.KindEnvironment, *environment); err != nil {
			return nil, err
		}
	}
	return unanswerableIn(ctx, q.domain, of)
}

// unanswerableRule resolves those of UnanswerableRule.
type unanswerableRule struct{}

// Environment is null for a step after the last one.
func (unanswerableRule) Environment(ctx context.Context, r *model.UnanswerableRule) (*model.Environment, error) {
	return optional(ctx, loadersOf(ctx).environments, r.EnvironmentID, model.WrapEnvironment)
}

// Application is null for what an environment requires.
func (unanswerableRule) Application(ctx context.Context, r *model.UnanswerableRule) (*model.Application, error) {
	return optional(ctx, loadersOf(ctx).applications, r.ApplicationID, model.WrapApplication)
}

// Rollout is null for rollouts to come.
func (unanswerableRule) Rollout(ctx context.Context, r *model.UnanswerableRule) (*model.Rollout, error) {
	return optional(ctx, loadersOf(ctx).rollouts, r.RolloutID, model.WrapRollout)
}

// What a change has left behind is read after its transaction, and only if it is selected.
type (
	memberPayload                 struct{ domain Domain }
	grantPayload                  struct{ domain Domain }
	groupPayload                  struct{ domain Domain }
	createFlowDefinitionPayload   struct{ domain Domain }
	setEnvironmentApprovalPayload struct{ domain Domain }
)

// Unanswerable are the rules that cannot be answered now.
func (r memberPayload) Unanswerable(ctx context.Context, p *model.MemberPayload) ([]model.UnanswerableRule, error) {
	if p.Member == nil {
		return []model.UnanswerableRule{}, nil
	}
	return unanswerableIn(ctx, r.domain, view.RulesOf{})
}

// Unanswerable are the rules that cannot be answered now.
func (r grantPayload) Unanswerable(ctx context.Context, p *model.GrantPayload) ([]model.UnanswerableRule, error) {
	if p.Grant == nil {
		return []model.UnanswerableRule{}, nil
	}
	return unanswerableIn(ctx, r.domain, view.RulesOf{})
}

// Unanswerable are the rules that cannot be answered now.
func (r groupPayload) Unanswerable(ctx context.Context, p *model.GroupPayload) ([]model.UnanswerableRule, error) {
	if p.Group == nil {
		return []model.UnanswerableRule{}, nil
	}
	return unanswerableIn(ctx, r.domain, view.RulesOf{})
}

// Unanswerable are the rules of the pipeline that cannot be answered now.
func (r createFlowDefinitionPayload) Unanswerable(
	ctx context.Context, p *model.CreateFlowDefinitionPayload,
) ([]model.UnanswerableRule, error) {
	if p.FlowDefinition == nil {
		return []model.UnanswerableRule{}, nil
	}
	return unanswerableIn(ctx, r.domain, view.RulesOf{ApplicationID: p.FlowDefinition.ApplicationID})
}

// Unanswerable are the rules about the environment that cannot be answered now.
func (r setEnvironmentApprovalPayload) Unanswerable(
	ctx context.Context, p *model.SetEnvironmentApprovalPayload,
) ([]model.UnanswerableRule, error) {
	if p.Environment == nil {
		return []model.UnanswerableRule{}, nil
	}
	return unanswerableIn(ctx, r.domain, view.RulesOf{EnvironmentID: p.Environment.ID})
}
