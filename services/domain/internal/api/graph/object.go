package graph

import (
	"context"

	"github.com/lockstep-cd/lockstep/services/domain/internal/api/graph/model"
)

// What hangs below an object, each loaded together with that of its siblings.

type application struct{}

func (application) Services(ctx context.Context, a *model.Application) ([]model.Service, error) {
	return list(ctx, loadersOf(ctx).servicesOf, a.ID, model.WrapService)
}

func (application) VersionSets(ctx context.Context, a *model.Application, first *int, after *string) (model.VersionSetConnection, error) {
	p, err := page(first, after)
	if err != nil {
		return model.VersionSetConnection{}, err
	}
	s, _, err := loadersOf(ctx).versionSetsOf.load(ctx, paged{a.ID, p})
	return model.VersionSetConnection{Nodes: wrapAll(s.Nodes, model.WrapVersionSet), PageInfo: pageInfo(s)}, err
}

func (application) FlowDefinition(ctx context.Context, a *model.Application) (*model.FlowDefinition, error) {
	return optional(ctx, loadersOf(ctx).latestFlowOf, a.ID, model.WrapFlowDefinition)
}

func (application) Environments(ctx context.Context, a *model.Application) ([]model.ApplicationEnvironment, error) {
	return list(ctx, loadersOf(ctx).environmentsOf, a.ID, model.WrapApplicationEnvironment)
}

func (application) Rollouts(ctx context.Context, a *model.Application, first *int, after *string) (model.RolloutConnection, error) {
	p, err := page(first, after)
	if err != nil {
		return model.RolloutConnection{}, err
	}
	s, _, err := loadersOf(ctx).rolloutsOf.load(ctx, paged{a.ID, p})
	return model.RolloutConnection{Nodes: wrapAll(s.Nodes, model.WrapRollout), PageInfo: pageInfo(s)}, err
}

func (application) ActiveRollout(ctx context.Context, a *model.Application) (*model.Rollout, error) {
	return optional(ctx, loadersOf(ctx).activeRolloutOf, a.ID, model.WrapRollout)
}

type service struct{}

func (service) ArtifactSources(ctx context.Context, s *model.Service) ([]model.ArtifactSource, error) {
	return list(ctx, loadersOf(ctx).sourcesOf, s.ID, model.WrapArtifactSource)
}

type artifactSource struct{}

func (artifactSource) Versions(ctx context.Context, s *model.ArtifactSource, first *int, after *string) (model.VersionConnection, error) {
	p, err := page(first, after)
	if err != nil {
		return model.VersionConnection{}, err
	}
	versions, _, err := loadersOf(ctx).versionsOfSource.load(ctx, paged{s.ID, p})
	return model.VersionConnection{Nodes: wrapAll(versions.Nodes, model.WrapVersion), PageInfo: pageInfo(versions)}, err
}

type versionSet struct{}

func (versionSet) Entries(ctx context.Context, v *model.VersionSet) ([]model.VersionSetEntry, error) {
	return list(ctx, loadersOf(ctx).entriesOf, v.ID, model.WrapVersionSetEntry)
}

type versionSetEntry struct{}

func (versionSetEntry) Service(ctx context.Context, e *model.VersionSetEntry) (model.Service, error) {
	return required(ctx, loadersOf(ctx).services, model.KindService, e.ServiceID, model.WrapService)
}

func (versionSetEntry) ArtifactSource(ctx context.Context, e *model.VersionSetEntry) (model.ArtifactSource, error) {
	return required(ctx, loadersOf(ctx).sources, model.KindArtifactSource, e.ArtifactSourceID, model.WrapArtifactSource)
}

func (versionSetEntry) Version(ctx context.Context, e *model.VersionSetEntry) (model.Version, error) {
	return required(ctx, loadersOf(ctx).versions, model.KindVersion, e.VersionID, model.WrapVersion)
}

type environment struct{}

func (environment) DriverBindings(ctx context.Context, e *model.Environment) ([]model.DriverBinding, error) {
	return list(ctx, loadersOf(ctx).bindingsOf, e.ID, model.WrapDriverBinding)
}

type applicationEnvironment struct{}

func (applicationEnvironment) Environment(ctx context.Context, e *model.ApplicationEnvironment) (model.Environment, error) {
	return required(ctx, loadersOf(ctx).environments, model.KindEnvironment, e.EnvironmentID, model.WrapEnvironment)
}
