package graph

import (
	"context"

	"github.com/lockstep-cd/lockstep/services/domain/internal/api/graph/model"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/setup"
)

// ArchiveApplication takes an application, given by name or identifier, out of use.
func (m mutation) ArchiveApplication(ctx context.Context, in model.ArchiveApplicationInput) (p model.ArchiveApplicationPayload, err error) {
	l := loadersOf(ctx)
	n, err := applicationNumber(ctx, m.domain.View, in.Application)
	if err == nil {
		_, err = m.domain.Setup.ArchiveApplication(ctx, l.actor, n, orEmpty(in.Reason))
	}
	p.Application, p.Errors, err = outcome(ctx, l.applications, n, model.WrapApplication, inField(err, "/application"))
	return p, err
}

// ArchiveEnvironment takes an environment out of use.
func (m mutation) ArchiveEnvironment(ctx context.Context, in model.ArchiveEnvironmentInput) (p model.ArchiveEnvironmentPayload, err error) {
	l := loadersOf(ctx)
	n, err := number("/environmentId", model.KindEnvironment, in.EnvironmentID)
	if err == nil {
		_, err = m.domain.Setup.ArchiveEnvironment(ctx, l.actor, n, orEmpty(in.Reason))
		err = inField(err, "/environmentId")
	}
	p.Environment, p.Errors, err = outcome(ctx, l.environments, n, model.WrapEnvironment, err)
	return p, err
}

// RestoreApplication takes an archived application, given by name or identifier, into use again.
func (m mutation) RestoreApplication(ctx context.Context, in model.RestoreApplicationInput) (p model.RestoreApplicationPayload, err error) {
	l := loadersOf(ctx)
	n, err := applicationNumber(ctx, m.domain.View, in.Application)
	if err == nil {
		_, err = m.domain.Setup.RestoreApplication(ctx, l.actor, n, orEmpty(in.Reason))
	}
	p.Application, p.Errors, err = outcome(ctx, l.applications, n, model.WrapApplication, inField(err, "/application"))
	return p, err
}

// RestoreEnvironment takes an archived environment into use again.
func (m mutation) RestoreEnvironment(ctx context.Context, in model.RestoreEnvironmentInput) (p model.RestoreEnvironmentPayload, err error) {
	l := loadersOf(ctx)
	n, err := number("/environmentId", model.KindEnvironment, in.EnvironmentID)
	if err == nil {
		_, err = m.domain.Setup.RestoreEnvironment(ctx, l.actor, n, orEmpty(in.Reason))
		err = inField(err, "/environmentId")
	}
	p.Environment, p.Errors, err = outcome(ctx, l.environments, n, model.WrapEnvironment, err)
	return p, err
}

// Archivings are when the application was archived and restored.
func (application) Archivings(ctx context.Context, a *model.Application) ([]model.Archiving, error) {
	return list(ctx, loadersOf(ctx).archivingsOfApplication, a.ID, model.WrapArchiving)
}

// Archivings are when the environment was archived and restored.
func (environment) Archivings(ctx context.Context, e *model.Environment) ([]model.Archiving, error) {
	return list(ctx, loadersOf(ctx).archivingsOfEnvironment, e.ID, model.WrapArchiving)
}

// archiving resolves those of Archiving.
type archiving struct{}

// Principal is the member who did it.
func (archiving) Principal(ctx context.Context, a *model.Archiving) (*model.Member, error) {
	return principal(ctx, a.Type, a.Principal.ID)
}

// CreateArtifactSource gives a service another source.
func (m mutation) CreateArtifactSource(
	ctx context.Context, in model.CreateArtifactSourceInput,
) (p model.CreateArtifactSourcePayload, err error) {
	l := loadersOf(ctx)
	service, err := number("/serviceId", model.KindService, in.ServiceID)
	var s core.ArtifactSource
	if err == nil {
		s, err = m.domain.Setup.AddArtifactSource(ctx, l.actor, service, setup.NewArtifactSource{Ref: in.SourceRef, Config: in.SourceConfig})
		err = inField(err, "/serviceId")
	}
	p.ArtifactSource, p.Errors, err = outcome(ctx, l.sources, s.ID, model.WrapArtifactSource, err)
	return p, err
}

// SetArtifactSourceConfig changes how a source selects and is polled.
func (m mutation) SetArtifactSourceConfig(
	ctx context.Context, in model.SetArtifactSourceConfigInput,
) (p model.SetArtifactSourceConfigPayload, err error) {
	l := loadersOf(ctx)
	source, err := number("/artifactSourceId", model.KindArtifactSource, in.ArtifactSourceID)
	if err == nil {
		_, err = m.domain.Setup.SetArtifactSourceConfig(ctx, l.actor, source, in.SourceConfig)
		err = inField(err, "/artifactSourceId")
	}
	p.ArtifactSource, p.Errors, err = outcome(ctx, l.sources, source, model.WrapArtifactSource, err)
	return p, err
}

// LookAtArtifactSource looks at a source now.
func (m mutation) LookAtArtifactSource(
	ctx context.Context, in model.LookAtArtifactSourceInput,
) (p model.LookAtArtifactSourcePayload, err error) {
	l := loadersOf(ctx)
	source, err := number("/artifactSourceId", model.KindArtifactSource, in.ArtifactSourceID)
	var sight setup.SourceSight
	if err == nil {
		sight, err = m.domain.Setup.LookAtArtifactSource(ctx, l.actor, source)
		err = inField(err, "/artifactSourceId")
	}
	p.Artifact, p.Problem = sight.Artifact, sight.Problem
	p.ArtifactSource, p.Errors, err = outcome(ctx, l.sources, source, model.WrapArtifactSource, err)
	return p, err
}

// TryArtifactSource looks at what may become a source.
func (m mutation) TryArtifactSource(ctx context.Context, in model.TryArtifactSourceInput) (p model.TryArtifactSourcePayload, err error) {
	sight, err := m.domain.Setup.TryArtifactSource(ctx, loadersOf(ctx).actor,
		setup.NewArtifactSource{Ref: in.SourceRef, Config: in.SourceConfig})
	p.Artifact, p.Problem, p.Errors = sight.Artifact, sight.Problem, []model.UserError{}
	if err != nil {
		p.Errors, err = userErrors(err)
	}
	return p, err
}
