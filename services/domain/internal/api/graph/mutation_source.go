package graph

import (
	"context"

	"github.com/lockstep-cd/lockstep/services/domain/internal/api/graph/model"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/setup"
)

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
