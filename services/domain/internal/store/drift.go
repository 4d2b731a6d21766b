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

func driftLook(row query.DriftLook) core.DriftLook {
	return core.DriftLook{
		ApplicationEnvironmentID: row.ApplicationEnvironmentID, DueAt: row.DueAt, PreviewID: orZero(row.PreviewID), AskedAt: row.AskedAt,
		FailedAt: row.FailedAt, Failure: row.Failure,
	}
}

// OrganizationsWithDueDriftLooks implements rollout.Store.
func (s *Store) OrganizationsWithDueDriftLooks(ctx context.Context, at time.Time) ([]int64, error) {
	ids, err := query.New(s.deps.Pool).OrganizationsWithDueDriftLooks(ctx, at)
	return ids, pg.Classify(err, "find organizations to look at for drift")
}

// DueDriftLook implements rollout.Tx.
func (t *tx) DueDriftLook(ctx context.Context, at time.Time) (core.DriftLook, bool, error) {
	row, err := t.q.DueDriftLook(ctx, t.organization, &at)
	if errors.Is(err, pgx.ErrNoRows) {
		return core.DriftLook{}, false, nil
	}
	return driftLook(row), err == nil, pg.Classify(err, "find what to look at for drift")
}

// DriftLook implements rollout.Tx.
func (t *tx) DriftLook(ctx context.Context, applicationEnvironment int64) (core.DriftLook, bool, error) {
	row, err := t.q.DriftLook(ctx, t.organization, applicationEnvironment)
	if errors.Is(err, pgx.ErrNoRows) {
		return core.DriftLook{}, false, nil
	}
	return driftLook(row), err == nil, pg.Classify(err, "read the look for drift in application environment %d", applicationEnvironment)
}

// SaveDriftLook implements rollout.Tx.
func (t *tx) SaveDriftLook(ctx context.Context, l core.DriftLook) error {
	err := t.q.SaveDriftLook(ctx, query.SaveDriftLookParams{
		OrganizationID: t.organization, ApplicationEnvironmentID: l.ApplicationEnvironmentID, DueAt: l.DueAt, AskedAt: l.AskedAt,
		PreviewID: orNull(l.PreviewID), FailedAt: l.FailedAt, Failure: l.Failure,
	})
	return pg.Classify(err, "save the look for drift in application environment %d", l.ApplicationEnvironmentID)
}

// DeployedLast implements rollout.Tx.
func (t *tx) DeployedLast(ctx context.Context, application, environment int64) (core.DeployedLast, bool, error) {
	row, err := t.q.DeployedLast(ctx, t.organization, application, environment)
	if errors.Is(err, pgx.ErrNoRows) {
		return core.DeployedLast{}, false, nil
	}
	commit := row.CommitSha
	if row.ChartDigest != "" {
		commit += "@" + row.ChartDigest
	}
	return core.DeployedLast{
		Commit: commit, FlowDefinitionID: row.FlowDefinitionID, DriverBindingID: row.DriverBindingID, ServiceIDs: row.Services,
	}, err == nil, pg.Classify(err, "find what was deployed of application %d", application)
}

// LiveSnapshots implements rollout.Tx.
func (t *tx) LiveSnapshots(ctx context.Context, application, environment int64) ([]core.LiveSnapshot, error) {
	rows, err := t.q.LiveSnapshots(ctx, t.organization, application, environment)
	all := make([]core.LiveSnapshot, len(rows))
	for i, r := range rows {
		all[i] = core.LiveSnapshot{
			ServiceID: r.ServiceID, DeploymentID: r.DeploymentID, RolloutID: r.RolloutID, ManifestDigest: r.ManifestDigest, Parameters: r.Parameters,
		}
	}
	return all, pg.Classify(err, "find what was deployed of application %d", application)
}

// ForgetDriftPreviews implements rollout.Tx.
func (t *tx) ForgetDriftPreviews(ctx context.Context, before time.Time, most int) error {
	return pg.Classify(t.q.ForgetDriftPreviews(ctx, before, int32(most)), "forget looks for drift of before %s", before)
}
