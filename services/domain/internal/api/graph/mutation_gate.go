package graph

import (
	"context"
	"time"

	"github.com/lockstep-cd/lockstep/services/domain/internal/api/graph/model"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
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
