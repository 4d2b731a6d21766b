package graph

import (
	"context"

	"github.com/lockstep-cd/lockstep/services/domain/internal/api/graph/model"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// rollout resolves the fields of Rollout that are loaded.
type rollout struct{}

// Application is what is rolled out.
func (rollout) Application(ctx context.Context, r *model.Rollout) (model.Application, error) {
	return required(ctx, loadersOf(ctx).applications, model.KindApplication, r.ApplicationID, model.WrapApplication)
}

// VersionSet is which versions of it.
func (rollout) VersionSet(ctx context.Context, r *model.Rollout) (model.VersionSet, error) {
	return required(ctx, loadersOf(ctx).versionSets, model.KindVersionSet, r.VersionSetID, model.WrapVersionSet)
}

// FlowDefinition is the pipeline as it was when the rollout was made.
func (rollout) FlowDefinition(ctx context.Context, r *model.Rollout) (model.FlowDefinition, error) {
	return required(ctx, loadersOf(ctx).flows, model.KindFlowDefinition, r.FlowDefinitionID, model.WrapFlowDefinition)
}

// OpenGates are the requests for approval that nobody has resolved yet.
func (rollout) OpenGates(ctx context.Context, r *model.Rollout) ([]model.Gate, error) {
	return list(ctx, loadersOf(ctx).gatesOf, r.ID, model.WrapGate)
}

// Environments are its stops, in the order of promotion.
func (rollout) Environments(ctx context.Context, r *model.Rollout) ([]model.RolloutEnvironment, error) {
	return list(ctx, loadersOf(ctx).rolloutEnvironmentsOf, r.ID, model.WrapRolloutEnvironment)
}

// Journal is one page of everything that happened, oldest first (R39).
func (rollout) Journal(
	ctx context.Context, r *model.Rollout, first *int, after *string, last *int, before *string, orderBy *core.Order,
) (model.JournalConnection, error) {
	p, err := page(journalPage, first, after, last, before, orderBy)
	if err != nil {
		return model.JournalConnection{}, err
	}
	l := loadersOf(ctx)
	rows, _, err := l.journalOf.load(ctx, paged{r.ID, p})
	return model.JournalConnection(model.Connect[model.JournalEdge](rows, model.WrapTransition, func(ctx context.Context) (int, error) {
		n, _, err := l.journalCountOf.load(ctx, r.ID)
		return n, err
	})), err
}

// rolloutEnvironment resolves those of RolloutEnvironment.
type rolloutEnvironment struct{}

// Environment is which of them it is.
func (rolloutEnvironment) Environment(ctx context.Context, e *model.RolloutEnvironment) (model.Environment, error) {
	return required(ctx, loadersOf(ctx).environments, model.KindEnvironment, e.EnvironmentID, model.WrapEnvironment)
}

// DriverBinding is the version of it that the rollout has pinned (D9).
func (rolloutEnvironment) DriverBinding(ctx context.Context, e *model.RolloutEnvironment) (model.DriverBinding, error) {
	return required(ctx, loadersOf(ctx).bindings, model.KindDriverBinding, e.DriverBindingID, model.WrapDriverBinding)
}

// PreviousVersionSet is what was live before; null where nothing was (R15).
func (rolloutEnvironment) PreviousVersionSet(ctx context.Context, e *model.RolloutEnvironment) (*model.VersionSet, error) {
	return optional(ctx, loadersOf(ctx).versionSets, e.PreviousVersionSetID, model.WrapVersionSet)
}

// Deployments are one for each service.
func (rolloutEnvironment) Deployments(ctx context.Context, e *model.RolloutEnvironment) ([]model.Deployment, error) {
	return list(ctx, loadersOf(ctx).deploymentsOf, e.ID, model.WrapDeployment)
}

// deployment resolves those of Deployment.
type deployment struct{}

// Service is what is deployed.
func (deployment) Service(ctx context.Context, d *model.Deployment) (model.Service, error) {
	return required(ctx, loadersOf(ctx).services, model.KindService, d.ServiceID, model.WrapService)
}

// Versions is what it is deployed in.
func (deployment) Versions(ctx context.Context, d *model.Deployment) ([]model.Version, error) {
	return list(ctx, loadersOf(ctx).versionsOfDeployment, d.ID, model.WrapVersion)
}

// Snapshot is what exactly was committed; null before (E46).
func (deployment) Snapshot(ctx context.Context, d *model.Deployment) (*model.DeploymentSnapshot, error) {
	return optional(ctx, loadersOf(ctx).snapshotOf, d.ID, model.WrapSnapshot)
}

// Gates are those that it has come to, in order.
func (deployment) Gates(ctx context.Context, d *model.Deployment) ([]model.DeploymentGate, error) {
	return list(ctx, loadersOf(ctx).deploymentGatesOf, d.ID, model.WrapDeploymentGate)
}
