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

// AddDeadline implements rollout.Tx.
func (t *tx) AddDeadline(ctx context.Context, d core.Deadline) error {
	err := t.q.InsertDeadline(ctx, query.InsertDeadlineParams{
		OrganizationID: t.organization, RolloutID: d.RolloutID, Kind: string(d.Kind), EnvironmentID: orNull(d.EnvironmentID),
		GateID: d.Environment, Seconds: int32(d.After / time.Second), Action: string(d.Action), CountsWaiting: d.CountsWaiting,
		PrincipalType: string(d.By.Type), PrincipalID: orNull(d.By.ID), Reason: d.Reason, StartedAt: d.StartedAt, DueAt: d.Due,
	})
	return pg.Classify(err, "add deadline of rollout %d", d.RolloutID)
}

// Deadlines implements rollout.Tx and view.Reads.
func (r reader) Deadlines(ctx context.Context, organization int64, rollouts []int64) (map[int64][]core.Deadline, error) {
	return under(ctx, r, organization, rollouts, "deadlines", (*query.Queries).Deadlines,
		func(row query.RolloutDeadline) (int64, core.Deadline) {
			return row.RolloutID, core.Deadline{
				ID: row.ID, RolloutID: row.RolloutID, Kind: core.DeadlineKind(row.Kind), EnvironmentID: orZero(row.EnvironmentID),
				Environment: row.GateID, By: core.Principal{Type: core.PrincipalType(row.PrincipalType), ID: orZero(row.PrincipalID)},
				DeadlineRule: core.DeadlineRule{
					After: time.Duration(row.Seconds) * time.Second, Action: core.DeadlineAction(row.Action), CountsWaiting: row.CountsWaiting,
				},
				Reason: row.Reason, StartedAt: row.StartedAt, Due: row.DueAt, Outcome: row.Outcome,
			}
		})
}

// RolloutWithDueDeadline implements rollout.Tx.
func (t *tx) RolloutWithDueDeadline(ctx context.Context, at time.Time) (int64, bool, error) {
	id, err := t.q.RolloutWithDueDeadline(ctx, t.organization, &at)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, false, nil
	}
	return id, err == nil, pg.Classify(err, "find due deadline")
}

// SaveDeadline implements rollout.Tx.
func (t *tx) SaveDeadline(ctx context.Context, d core.Deadline) error {
	err := t.q.SaveDeadline(ctx, query.SaveDeadlineParams{OrganizationID: t.organization, ID: d.ID, DueAt: d.Due, Outcome: d.Outcome})
	return pg.Classify(err, "save deadline %d", d.ID)
}

// OrganizationsWithDueDeadlines implements rollout.Store.
func (s *Store) OrganizationsWithDueDeadlines(ctx context.Context, at time.Time) ([]int64, error) {
	ids, err := query.New(s.deps.Pool).OrganizationsWithDueDeadlines(ctx, at)
	return ids, pg.Classify(err, "find organizations with due deadlines")
}
