package store

import (
	"context"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/store/query"
)

// AddPreview implements rollout.Tx.
func (t *tx) AddPreview(ctx context.Context, p core.Preview) (core.Preview, error) {
	row, err := t.q.InsertPreview(ctx, query.InsertPreviewParams{
		OrganizationID: t.organization, ApplicationID: p.ApplicationID, VersionSetID: p.VersionSetID, DriftOf: orNull(p.DriftOf),
	})
	return preview(row), pg.Classify(err, "add preview of version set %d", p.VersionSetID)
}

// ForgetPreviews implements rollout.Tx.
func (t *tx) ForgetPreviews(ctx context.Context, before time.Time, most int) error {
	return pg.Classify(t.q.ForgetPreviews(ctx, before, int32(most)), "forget previews of before %s", before)
}

// SettlePreview implements rollout.Tx.
func (t *tx) SettlePreview(ctx context.Context, p core.Preview) error {
	err := t.q.SettlePreview(ctx, query.SettlePreviewParams{
		OrganizationID: t.organization, ID: p.ID, State: string(p.State), Reason: p.Reason, Environments: given(p.Environments),
	})
	if err != nil {
		return pg.Classify(err, "settle preview %d", p.ID)
	}
	return pg.Classify(t.q.SettleComparison(ctx, t.organization, &p.ID), "begin what waits for comparison %d", p.ID)
}

// LatestPreview implements rollout.PolicyTx.
func (t *tx) LatestPreview(ctx context.Context, r core.Rollout) (core.Preview, bool, error) {
	rows, err := t.q.LatestPreview(ctx, query.LatestPreviewParams{
		OrganizationID: t.organization, ApplicationID: r.ApplicationID, VersionSetID: r.VersionSetID, RolloutID: r.ID,
	})
	if err != nil || len(rows) == 0 {
		return core.Preview{}, false, pg.Classify(err, "read the latest preview of version set %d", r.VersionSetID)
	}
	return preview(rows[0].RolloutPreview), !rows[0].Outdated, nil
}

// PreviewsByID implements view.Reads.
func (r reader) PreviewsByID(ctx context.Context, organization int64, ids []int64) (map[int64]core.Preview, error) {
	return byKey(ctx, r, organization, ids, "previews", (*query.Queries).PreviewsByID,
		keyed(preview, func(p core.Preview) int64 { return p.ID }))
}

func preview(row query.RolloutPreview) core.Preview {
	return core.Preview{
		ID: row.ID, ApplicationID: row.ApplicationID, VersionSetID: row.VersionSetID, State: core.PreviewState(row.State), Reason: row.Reason,
		Environments: row.Environments, RequestedAt: row.CreatedAt, DriftOf: orZero(row.DriftOf),
	}
}
