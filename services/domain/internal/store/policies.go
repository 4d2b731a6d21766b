package store

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/store/query"
)

// RollbackPolicies implements view.Reads.
func (r reader) RollbackPolicies(ctx context.Context, organization int64, applications []int64) (map[int64]core.RollbackPolicy, error) {
	return byKey(ctx, r, organization, applications, "rollback policies", (*query.Queries).RollbackPolicies,
		func(row query.ApplicationPolicy) (int64, core.RollbackPolicy) {
			return row.ApplicationID, core.RollbackPolicy{
				ApplicationID: row.ApplicationID, OnFailed: row.RollbackOnFailed, OnDegraded: row.RollbackOnDegraded,
				DegradedAfter: time.Duration(row.DegradedAfterSeconds) * time.Second, InFull: row.RollbackInFull,
			}
		})
}

// SaveRollbackPolicy implements rollout.Tx.
func (t *tx) SaveRollbackPolicy(ctx context.Context, p core.RollbackPolicy) error {
	err := t.q.SaveRollbackPolicy(ctx, query.SaveRollbackPolicyParams{
		OrganizationID: t.organization, ApplicationID: p.ApplicationID, RollbackOnFailed: p.OnFailed, RollbackOnDegraded: p.OnDegraded,
		DegradedAfterSeconds: int32(p.DegradedAfter / time.Second), RollbackInFull: p.InFull,
	})
	return pg.Classify(err, "save rollback policy of application %d", p.ApplicationID)
}

// ScheduleRollback implements rollout.Tx.
func (t *tx) ScheduleRollback(ctx context.Context, r core.AutomaticRollback, due time.Time) error {
	// The statement itself leaves out what a policy has made: an automatic rollback is never rolled back by itself (D13).
	err := t.q.ScheduleRollback(ctx, query.ScheduleRollbackParams{
		OrganizationID: t.organization, RolloutID: r.RolloutID,
		Cause: r.Cause, DueAt: due,
	})
	return pg.Classify(err, "schedule rollback of rollout %d", r.RolloutID)
}

// StopRollbackClock implements rollout.Tx.
func (t *tx) StopRollbackClock(ctx context.Context, rollout int64) error {
	return pg.Classify(t.q.StopRollbackClock(ctx, t.organization, rollout), "stop the clock of rollout %d", rollout)
}

// AutomaticRollbacksByRollout implements view.Reads.
func (r reader) AutomaticRollbacksByRollout(
	ctx context.Context, organization int64, rollouts []int64,
) (map[int64]core.RollbackOutlook, error) {
	return byKey(ctx, r, organization, rollouts, "automatic rollbacks", (*query.Queries).AutomaticRollbacks,
		func(row query.AutomaticRollback) (int64, core.RollbackOutlook) {
			o := core.RollbackOutlook{AutomaticRollback: core.AutomaticRollback{
				ID: row.ID, RolloutID: row.RolloutID, Cause: row.Cause, MadeRolloutID: orZero(row.MadeRolloutID), Outcome: row.Outcome,
			}}
			if o.State() == core.RollbackDue {
				o.DueAt = row.DueAt
			}
			return row.RolloutID, o
		})
}

// DueRollback implements rollout.Tx.
func (t *tx) DueRollback(ctx context.Context, at time.Time) (core.AutomaticRollback, bool, error) {
	row, err := t.q.DueRollback(ctx, t.organization, at)
	if errors.Is(err, pgx.ErrNoRows) {
		return core.AutomaticRollback{}, false, nil
	}
	return core.AutomaticRollback{ID: row.ID, RolloutID: row.RolloutID, Cause: row.Cause}, err == nil, pg.Classify(err, "find due rollback")
}

// SettleRollback implements rollout.Tx.
func (t *tx) SettleRollback(ctx context.Context, r core.AutomaticRollback) error {
	err := t.q.SettleRollback(ctx, query.SettleRollbackParams{
		OrganizationID: t.organization, ID: r.ID, Outcome: r.Outcome,
		MadeRolloutID: orNull(r.MadeRolloutID),
	})
	return pg.Classify(err, "settle rollback %d", r.ID)
}

// OrganizationsWithDueRollbacks implements rollout.Store.
func (s *Store) OrganizationsWithDueRollbacks(ctx context.Context, at time.Time) ([]int64, error) {
	ids, err := query.New(s.deps.Pool).OrganizationsWithDueRollbacks(ctx, at)
	return ids, pg.Classify(err, "find organizations with due rollbacks")
}
