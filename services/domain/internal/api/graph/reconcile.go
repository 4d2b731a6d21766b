package graph

import (
	"context"
	"time"

	"github.com/lockstep-cd/lockstep/services/domain/internal/api/graph/model"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/reconcile"
)

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
