package graph

import (
	"context"

	"github.com/lockstep-cd/lockstep/services/domain/internal/api/graph/model"
)

type rollout struct{ domain Domain }

func (rollout) Application(ctx context.Context, r *model.Rollout) (model.Application, error) {
	return required(ctx, loadersOf(ctx).applications, model.KindApplication, r.ApplicationID, model.WrapApplication)
}

func (rollout) VersionSet(ctx context.Context, r *model.Rollout) (model.VersionSet, error) {
	return required(ctx, loadersOf(ctx).versionSets, model.KindVersionSet, r.VersionSetID, model.WrapVersionSet)
}

func (rollout) FlowDefinition(ctx context.Context, r *model.Rollout) (model.FlowDefinition, error) {
	return required(ctx, loadersOf(ctx).flows, model.KindFlowDefinition, r.FlowDefinitionID, model.WrapFlowDefinition)
}

func (rollout) OpenGates(ctx context.Context, r *model.Rollout) ([]model.Gate, error) {
	return list(ctx, loadersOf(ctx).gatesOf, r.ID, model.WrapGate)
}

func (rollout) Environments(ctx context.Context, r *model.Rollout) ([]model.RolloutEnvironment, error) {
	return list(ctx, loadersOf(ctx).rolloutEnvironmentsOf, r.ID, model.WrapRolloutEnvironment)
}

func (o rollout) Journal(ctx context.Context, r *model.Rollout, first *int, after *string) (model.JournalConnection, error) {
	p, err := page(first, after)
	if err != nil {
		return model.JournalConnection{}, err
	}
	s, err := o.domain.Journal(ctx, loadersOf(ctx).actor.Organization, r.ID, p)
	return model.JournalConnection{Nodes: wrapAll(s.Nodes, model.WrapTransition), PageInfo: pageInfo(s)}, err
}

type rolloutEnvironment struct{}

func (rolloutEnvironment) Environment(ctx context.Context, e *model.RolloutEnvironment) (model.Environment, error) {
	return required(ctx, loadersOf(ctx).environments, model.KindEnvironment, e.EnvironmentID, model.WrapEnvironment)
}

func (rolloutEnvironment) DriverBinding(ctx context.Context, e *model.RolloutEnvironment) (model.DriverBinding, error) {
	return required(ctx, loadersOf(ctx).bindings, model.KindDriverBinding, e.DriverBindingID, model.WrapDriverBinding)
}

func (rolloutEnvironment) PreviousVersionSet(ctx context.Context, e *model.RolloutEnvironment) (*model.VersionSet, error) {
	if e.PreviousVersionSetID == 0 {
		return nil, nil
	}
	return optional(ctx, loadersOf(ctx).versionSets, e.PreviousVersionSetID, model.WrapVersionSet)
}

func (rolloutEnvironment) Deployments(ctx context.Context, e *model.RolloutEnvironment) ([]model.Deployment, error) {
	return list(ctx, loadersOf(ctx).deploymentsOf, e.ID, model.WrapDeployment)
}

type deployment struct{}

func (deployment) Service(ctx context.Context, d *model.Deployment) (model.Service, error) {
	return required(ctx, loadersOf(ctx).services, model.KindService, d.ServiceID, model.WrapService)
}

func (deployment) Versions(ctx context.Context, d *model.Deployment) ([]model.Version, error) {
	return list(ctx, loadersOf(ctx).versionsOfDeployment, d.ID, model.WrapVersion)
}

func (deployment) Snapshot(ctx context.Context, d *model.Deployment) (*model.DeploymentSnapshot, error) {
	return optional(ctx, loadersOf(ctx).snapshotOf, d.ID, model.WrapSnapshot)
}
