package store

import (
	"context"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/store/control"
	"github.com/lockstep-cd/lockstep/services/domain/internal/store/query"
)

// BrokenGlass is how often the glass was broken in this installation, and when last; the beginning of 1970 for never.
func (s *Store) BrokenGlass(ctx context.Context) (times int64, last time.Time, err error) {
	row, err := query.New(s.deps.Pool).BrokenGlass(ctx)
	return row.Times, row.LastAt, pg.Classify(err, "read how often the glass was broken")
}

// Breaches is how many rollouts of this installation failed because they advanced beyond a passage that was not granted.
func (s *Store) Breaches(ctx context.Context) (times int64, err error) {
	times, err = query.New(s.deps.Pool).Breaches(ctx)
	return times, pg.Classify(err, "count breaches")
}

// FreezeBypasses is how often a freeze was bypassed for a rollout of this installation.
func (s *Store) FreezeBypasses(ctx context.Context) (times int64, err error) {
	times, err = query.New(s.deps.Pool).FreezeBypasses(ctx)
	return times, pg.Classify(err, "count bypasses of freezes")
}

// OrganizationsWithDueReviews implements rollout.Store.
func (s *Store) OrganizationsWithDueReviews(ctx context.Context, at time.Time) ([]int64, error) {
	ids, err := query.New(s.deps.Pool).OrganizationsWithDueReviews(ctx, at)
	return ids, pg.Classify(err, "find organizations with due reviews")
}

// Freezes implements view.Reads.
func (r reader) Freezes(ctx context.Context, organization int64, f core.FreezeFilter, p core.Page) (core.Slice[core.Freeze], error) {
	return list(ctx, r, organization, p, core.OrderCreatedDesc, "freezes", func(q *query.Queries, w core.Window) ([]query.Freeze, error) {
		return q.ListFreezes(ctx, query.ListFreezesParams{
			OrganizationID: organization, Above: w.Above.Number, Below: w.Below.Number, InForce: !f.InForceAt.IsZero(), At: f.InForceAt,
			Falling: w.Falling, AtMost: limit(w),
		})
	}, control.Freeze, numbered(func(f core.Freeze) int64 { return f.ID }))
}

// CountFreezes implements view.Reads.
func (r reader) CountFreezes(ctx context.Context, organization int64, f core.FreezeFilter) (int, error) {
	return count(ctx, r, organization, "freezes", func(q *query.Queries) (int64, error) {
		return q.CountListedFreezes(ctx, organization, !f.InForceAt.IsZero(), f.InForceAt)
	})
}
