package graph

import (
	"context"

	"github.com/lockstep-cd/lockstep/services/domain/internal/api/graph/model"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/rollout"
)

// PreviewRollout asks what a rollout would change.
func (m mutation) PreviewRollout(ctx context.Context, in model.PreviewRolloutInput) (p model.PreviewRolloutPayload, err error) {
	l := loadersOf(ctx)
	n, err := number("/versionSetId", model.KindVersionSet, in.VersionSetID)
	var made core.Preview
	if err == nil {
		made, err = m.domain.Rollouts.PreviewRollout(ctx, l.actor,
			rollout.NewPreview{VersionSetID: n, Rollback: in.Rollback != nil && *in.Rollback})
		err = inField(err, "/versionSetId")
	}
	p.Preview, p.Errors, err = outcome(ctx, l.previews, made.ID, model.WrapPreview, err)
	return p, err
}

// RolloutPreview finds one by identifier; null where there is none that the viewer may see.
func (q query) RolloutPreview(ctx context.Context, global string) (*model.RolloutPreview, error) {
	n, err := number("id", model.KindRolloutPreview, global)
	if err != nil {
		return nil, err
	}
	return optional(ctx, loadersOf(ctx).previews, n, model.WrapPreview)
}

// rolloutPreview resolves the fields of RolloutPreview that are loaded.
type rolloutPreview struct{}

// VersionSet is what would be rolled out.
func (rolloutPreview) VersionSet(ctx context.Context, p *model.RolloutPreview) (model.VersionSet, error) {
	return required(ctx, loadersOf(ctx).versionSets, model.KindVersionSet, p.VersionSetID, model.WrapVersionSet)
}

// Environments are its stops, in the order of promotion.
func (rolloutPreview) Environments(_ context.Context, p *model.RolloutPreview) ([]model.PreviewedEnvironment, error) {
	return wrapAll(p.Environments, func(e core.PreviewedEnvironment) model.PreviewedEnvironment {
		return model.PreviewedEnvironment{PreviewedEnvironment: e}
	}), nil
}

// previewedEnvironment resolves those of PreviewedEnvironment.
type previewedEnvironment struct{}

// Environment is which of them it is.
func (previewedEnvironment) Environment(ctx context.Context, e *model.PreviewedEnvironment) (model.Environment, error) {
	return required(ctx, loadersOf(ctx).environments, model.KindEnvironment, e.EnvironmentID, model.WrapEnvironment)
}
