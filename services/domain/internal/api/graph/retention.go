package graph

import (
	"context"

	"github.com/lockstep-cd/lockstep/services/domain/internal/api/graph/model"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/retention"
)

// Retention is what the API needs of package retention.
type Retention interface {
	Retention(ctx context.Context, a core.Actor) (retention.Retention, error)
	Set(ctx context.Context, a core.Actor, kind retention.Kind, days int, reason string) (retention.Retention, error)
	SetHold(ctx context.Context, a core.Actor, on bool, reason string) (retention.Retention, error)
}

// Retention is what the organization has set.
func (q query) Retention(ctx context.Context) (model.Retention, error) {
	r, err := q.domain.Retention.Retention(ctx, loadersOf(ctx).actor)
	return model.Retention{Retention: r}, err
}

// SetRetention sets how long a kind is kept.
func (m mutation) SetRetention(ctx context.Context, in model.SetRetentionInput) (model.RetentionPayload, error) {
	return kept(m.domain.Retention.Set(ctx, loadersOf(ctx).actor, retention.Kind(in.Kind), in.KeepDays, orEmpty(in.Reason)))
}

// SetLegalHold puts a legal hold into force, or ends it.
func (m mutation) SetLegalHold(ctx context.Context, in model.SetLegalHoldInput) (model.RetentionPayload, error) {
	return kept(m.domain.Retention.SetHold(ctx, loadersOf(ctx).actor, in.On, in.Reason))
}

// kept is the payload of a change.
func kept(r retention.Retention, err error) (model.RetentionPayload, error) {
	p := model.RetentionPayload{Errors: []model.UserError{}}
	if err != nil {
		p.Errors, err = userErrors(err)
		return p, err
	}
	p.Retention = &model.Retention{Retention: r}
	return p, nil
}
