package graph

import (
	"context"

	"github.com/lockstep-cd/lockstep/services/domain/internal/api/graph/model"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/rollout"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/setup"
)

// mutation resolves the fields of Mutation. What a use case answers is read again, because only reads fill in what is
// derived.
type mutation struct{ domain Domain }

// CreateApplication makes an application with services and sources, all or nothing.
func (m mutation) CreateApplication(ctx context.Context, in model.CreateApplicationInput) (p model.CreateApplicationPayload, err error) {
	services := make([]setup.NewService, len(in.Services))
	for i, s := range in.Services {
		services[i] = setup.NewService{
			Name: s.Name, Description: orEmpty(s.Description), ArtifactSources: make([]setup.NewArtifactSource, len(s.ArtifactSources)),
		}
		for j, source := range s.ArtifactSources {
			services[i].ArtifactSources[j] = setup.NewArtifactSource{Ref: source.SourceRef, Config: source.SourceConfig}
		}
	}
	l := loadersOf(ctx)
	a, err := m.domain.Setup.CreateApplication(ctx, l.actor, setup.NewApplication{
		Name: in.Name, Description: orEmpty(in.Description), Services: services,
	})
	p.Application, p.Errors, err = outcome(ctx, l.applications, a.ID, model.WrapApplication, err)
	return p, err
}

// CreateEnvironment makes an environment, whose onboarding begins at once.
func (m mutation) CreateEnvironment(ctx context.Context, in model.CreateEnvironmentInput) (p model.CreateEnvironmentPayload, err error) {
	l := loadersOf(ctx)
	e, err := m.domain.Setup.CreateEnvironment(ctx, l.actor, setup.NewEnvironment{
		Name: in.Name, Description: orEmpty(in.Description), Tier: in.Tier, DriverRef: in.DriverRef, DriverConfig: in.DriverConfig,
		Fleet: in.Fleet,
	})
	p.Environment, p.Errors, err = outcome(ctx, l.environments, e.ID, model.WrapEnvironment, err)
	return p, err
}

// UpdateEnvironment changes an environment, by a new driver binding where its driver or configuration changes.
func (m mutation) UpdateEnvironment(ctx context.Context, in model.UpdateEnvironmentInput) (p model.UpdateEnvironmentPayload, err error) {
	l := loadersOf(ctx)
	n, err := number("/environmentId", model.KindEnvironment, in.EnvironmentID)
	if err == nil {
		config := in.DriverConfig
		if string(config) == "null" {
			config = nil
		}
		change := setup.ChangedEnvironment{
			ID: n, Description: in.Description, DriverRef: in.DriverRef, DriverConfig: config, Reason: orEmpty(in.Reason),
		}
		if string(in.Fleet) != "null" {
			change.Fleet = in.Fleet
		}
		if in.BindingVersion != nil {
			change.Version = *in.BindingVersion
		}
		_, err = m.domain.Setup.UpdateEnvironment(ctx, l.actor, change)
	}
	p.Environment, p.Errors, err = outcome(ctx, l.environments, n, model.WrapEnvironment, err)
	return p, err
}

// CreateFlowDefinition makes the next version of a pipeline. Its application is given by name or identifier.
func (m mutation) CreateFlowDefinition(
	ctx context.Context, in model.CreateFlowDefinitionInput,
) (p model.CreateFlowDefinitionPayload, err error) {
	l := loadersOf(ctx)
	application, err := applicationNumber(ctx, m.domain.View, in.Application)
	if err != nil {
		err = inField(err, "/application")
	}
	var f core.FlowDefinition
	if err == nil {
		f, err = m.domain.Setup.CreateFlowDefinition(ctx, l.actor, setup.NewFlowDefinition{ApplicationID: application, Definition: in.Definition})
	}
	p.Unchanged = f.Unchanged
	p.FlowDefinition, p.Errors, err = outcome(ctx, l.flows, f.ID, model.WrapFlowDefinition, err)
	return p, err
}

// RetryEnvironmentOnboarding onboards an environment again.
func (m mutation) RetryEnvironmentOnboarding(
	ctx context.Context, in model.RetryEnvironmentOnboardingInput,
) (p model.RetryEnvironmentOnboardingPayload, err error) {
	l := loadersOf(ctx)
	n, err := number("/environmentId", model.KindEnvironment, in.EnvironmentID)
	if err == nil {
		_, err = m.domain.Setup.RetryOnboarding(ctx, l.actor, n)
		err = inField(err, "/environmentId")
	}
	p.Environment, p.Errors, err = outcome(ctx, l.environments, n, model.WrapEnvironment, err)
	return p, err
}

// RetryApplicationEnvironmentSetup sets an application environment up again.
func (m mutation) RetryApplicationEnvironmentSetup(
	ctx context.Context, in model.RetryApplicationEnvironmentSetupInput,
) (p model.RetryApplicationEnvironmentSetupPayload, err error) {
	l := loadersOf(ctx)
	n, err := number("/applicationEnvironmentId", model.KindApplicationEnvironment, in.ApplicationEnvironmentID)
	if err == nil {
		_, err = m.domain.Setup.RetrySetup(ctx, l.actor, n)
		err = inField(err, "/applicationEnvironmentId")
	}
	p.ApplicationEnvironment, p.Errors, err = outcome(ctx, l.cells, n, model.WrapApplicationEnvironment, err)
	return p, err
}

// CreateRollout begins to promote a version set.
func (m mutation) CreateRollout(ctx context.Context, in model.CreateRolloutInput) (p model.CreateRolloutPayload, err error) {
	l := loadersOf(ctx)
	n, err := number("/versionSetId", model.KindVersionSet, in.VersionSetID)
	var made rollout.Promotion
	var part rollout.Scope
	if err == nil {
		part, err = scope(ctx, m.domain.View, in.Environments, nil)
	}
	if err == nil {
		made, err = m.domain.Rollouts.CreateRollout(ctx, l.actor, rollout.NewRollout{
			VersionSetID: n, Reason: orEmpty(in.Reason), Again: in.Again != nil && *in.Again, Scope: part, Strategy: in.Strategy.Chosen(),
			Inputs: in.Inputs,
		})
		err = inField(err, "/versionSetId")
	}
	if made.Queued != nil {
		q := model.WrapQueuedRollout(*made.Queued)
		p.Queued, p.Errors = &q, []model.UserError{}
		return p, nil
	}
	var id int64
	if made.Rollout != nil {
		id = made.Rollout.ID
	}
	p.Rollout, p.Errors, err = outcome(ctx, l.rollouts, id, model.WrapRollout, err)
	return p, err
}

// outcome is what a payload says: the object as it now is, or what the caller has to mend. Any other error is the
// request's.
func outcome[V, M any](
	ctx context.Context, l *loader[int64, V], number int64, wrap func(V) M, err error,
) (*M, []model.UserError, error) {
	if err != nil {
		mend, err := userErrors(err)
		return nil, mend, err
	}
	object, err := optional(ctx, l, number, wrap)
	return object, []model.UserError{}, err
}

func orEmpty(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
