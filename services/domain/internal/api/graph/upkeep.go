package graph

import (
	"context"
	"time"

	"github.com/lockstep-cd/lockstep/services/domain/internal/api/graph/model"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/reconcile"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/retention"
)

// Retention is what the API needs of package retention.
type Retention interface {
	Retention(ctx context.Context, a core.Actor) (retention.Retention, error)
	Set(ctx context.Context, a core.Actor, kind retention.Kind, days int, reason string) (retention.Retention, error)
	SetHold(ctx context.Context, a core.Actor, on bool, reason string) (retention.Retention, error)
	Archived(ctx context.Context, a core.Actor, kind retention.Kind, after string) (retention.ArchivedPage, error)
}

// Retention is what the organization has set.
func (q query) Retention(ctx context.Context) (model.Retention, error) {
	r, err := q.domain.Retention.Retention(ctx, loadersOf(ctx).actor)
	return model.Retention{Retention: r}, err
}

// ArchivedObjects is a page of what the archive has.
func (q query) ArchivedObjects(ctx context.Context, kind string, after *string) (model.ArchivedObjects, error) {
	p, err := q.domain.Retention.Archived(ctx, loadersOf(ctx).actor, retention.Kind(kind), orEmpty(after))
	return model.ArchivedObjects{ArchivedPage: p}, err
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

// Reconcile is what the API needs of package reconcile.
type Reconcile interface {
	Differences(ctx context.Context, a core.Actor, since time.Time, after string) (reconcile.Page, error)
	Settle(ctx context.Context, a core.Actor, r reconcile.Request) (settled bool, err error)
}

// RecordDifferences is a page of what differs from the record.
func (q query) RecordDifferences(ctx context.Context, since time.Time, after *string) (model.RecordDifferences, error) {
	p, err := q.domain.Reconcile.Differences(ctx, loadersOf(ctx).actor, since, orEmpty(after))
	return model.RecordDifferences{Page: p}, err
}

// ReconcileRecord settles a difference.
func (m mutation) ReconcileRecord(ctx context.Context, in model.ReconcileRecordInput) (model.ReconcileRecordPayload, error) {
	settled, err := m.domain.Reconcile.Settle(ctx, loadersOf(ctx).actor, reconcile.Request{
		Since: in.Since, Kind: reconcile.Kind(in.Kind), Subject: in.Subject, Reason: orEmpty(in.Reason),
	})
	p := model.ReconcileRecordPayload{Settled: settled, Errors: []model.UserError{}}
	if err != nil {
		p.Errors, err = userErrors(inField(err, "/subject"))
	}
	return p, err
}

// recordDifference resolves those fields of RecordDifference that are loaded.
type recordDifference struct{}

// Rollout is null if the record does not have it.
func (recordDifference) Rollout(ctx context.Context, d *model.RecordDifference) (*model.Rollout, error) {
	return optional(ctx, loadersOf(ctx).rollouts, d.Rollout, model.WrapRollout)
}
