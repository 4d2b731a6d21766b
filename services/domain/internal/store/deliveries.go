package store

import (
	"context"

	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/view"
	"github.com/lockstep-cd/lockstep/services/domain/internal/store/query"
)

// Attempts implements view.Reads.
func (r reader) Attempts(ctx context.Context, organization int64, s view.DeliverySearch) (all []view.Attempt, err error) {
	err = r.run(ctx, organization, func(q *query.Queries) error {
		if err := q.PlanForValues(ctx); err != nil {
			return pg.Classify(err, "plan for values")
		}
		rows, err := q.Attempts(ctx, query.AttemptsParams{
			OrganizationID: organization, ApplicationID: s.ApplicationID, Environments: s.Environments, Since: s.Since, Until: s.Until,
			AfterAt: s.After, AfterID: s.AfterID, Most: int32(s.Most), Around: int32(s.Around),
		})
		all = nil // the transaction may run again
		for _, row := range rows {
			if len(all) == 0 || all[len(all)-1].RolloutID != row.RolloutID {
				all = append(all, view.Attempt{
					RolloutID: row.RolloutID, VersionSetID: row.VersionSetID, Within: row.Within, MadeAt: row.MadeAt, AskedAt: row.AskedAt,
					OverAt: row.OverAt,
				})
			}
			if row.StartedAt == nil || row.FinishedAt == nil {
				continue
			}
			last := &all[len(all)-1]
			last.Deliveries = append(last.Deliveries, view.Delivery{
				EnvironmentID: row.EnvironmentID, PreviousVersionSetID: row.PreviousVersionSetID, First: row.IsFirst,
				State: core.RolloutState(row.State), StartedAt: *row.StartedAt, FinishedAt: *row.FinishedAt,
			})
		}
		return pg.Classify(err, "read the deliveries of application %d", s.ApplicationID)
	})
	return all, err
}
