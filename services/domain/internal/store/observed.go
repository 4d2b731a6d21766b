package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/rollout"
	"github.com/lockstep-cd/lockstep/services/domain/internal/store/notify"
	"github.com/lockstep-cd/lockstep/services/domain/internal/store/query"
)

// SaveHealth implements rollout.Tx.
func (t *tx) SaveHealth(ctx context.Context, h core.ServiceHealth) (bool, error) {
	counts, err := t.q.SaveHealth(ctx, query.SaveHealthParams{
		OrganizationID: t.organization, ServiceID: h.ServiceID, EnvironmentID: h.EnvironmentID,
		Health: string(h.Health), Reason: h.Reason, ObservedAt: h.ObservedAt,
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil // a newer one is kept
	}
	return counts, pg.Classify(err, "save health of service %d in environment %d", h.ServiceID, h.EnvironmentID)
}

// MayObserve implements rollout.Tx.
func (t *tx) MayObserve(ctx context.Context, run, setup int64, about rollout.Observed) (bool, error) {
	may, err := t.q.MayObserve(ctx, query.MayObserveParams{
		OrganizationID: t.organization, ServiceID: about.Service, ApplicationEnvironmentID: about.ApplicationEnvironment,
		EnvironmentID: about.Environment, Setup: setup, RolloutID: run,
	})
	return may, pg.Classify(err, "read whether a standing report is of its run")
}

// RolloutServing implements rollout.Tx.
func (t *tx) RolloutServing(ctx context.Context, service, environment int64) (int64, bool, error) {
	id, err := t.q.RolloutServing(ctx, t.organization, service, environment)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, false, nil
	}
	return id, err == nil, pg.Classify(err, "find the rollout that serves service %d in environment %d", service, environment)
}

// DegradedSince implements rollout.Tx.
func (t *tx) DegradedSince(ctx context.Context, rollout int64) (time.Time, bool, error) {
	since, err := t.q.DegradedSince(ctx, t.organization, rollout)
	if errors.Is(err, pgx.ErrNoRows) {
		return time.Time{}, false, nil
	}
	return since, err == nil, pg.Classify(err, "find since when rollout %d is degraded", rollout)
}

// SaveReconciliation implements rollout.Tx.
func (t *tx) SaveReconciliation(ctx context.Context, r core.Reconciliation) error {
	err := t.q.SaveReconciliation(ctx, query.SaveReconciliationParams{
		OrganizationID: t.organization, ApplicationEnvironmentID: r.ApplicationEnvironmentID, Revision: r.Revision,
		ExpectedRevision: r.ExpectedRevision, Automatic: r.Automatic, Drift: r.Drift(), Objects: given(r.Objects), ObservedAt: r.ObservedAt,
	})
	return pg.Classify(err, "save reconciliation of application environment %d", r.ApplicationEnvironmentID)
}

// SaveContact implements rollout.Tx.
func (t *tx) SaveContact(ctx context.Context, c core.Contact) (bool, error) {
	news, err := t.q.SaveContact(ctx, query.SaveContactParams{
		OrganizationID: t.organization, EnvironmentID: c.EnvironmentID, Reachable: c.Reachable, Reason: c.Reason, ObservedAt: c.ObservedAt,
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil // a newer one is kept
	}
	if err != nil || !news {
		return news, pg.Classify(err, "save contact of environment %d", c.EnvironmentID)
	}
	if c.Reachable {
		return news, notify.Ended(ctx, t.q, t.organization, core.Notification{
			Moment: core.MomentAgentOnline, At: c.ObservedAt, EnvironmentID: c.EnvironmentID,
		})
	}
	return news, notify.Add(ctx, t.q, t.organization, core.Notification{
		Moment: core.MomentAgentOffline, Cause: fmt.Sprintf("contact:%d:%d", c.EnvironmentID, c.ObservedAt.UnixNano()), At: c.ObservedAt,
		DueAt: c.ObservedAt, EnvironmentID: c.EnvironmentID, Reason: c.Reason,
	})
}

// HealthsByEnvironment implements view.ObservedReads.
func (r reader) HealthsByEnvironment(
	ctx context.Context, organization int64, environments []int64,
) (map[int64][]core.ServiceHealth, error) {
	return under(ctx, r, organization, environments, "healths", (*query.Queries).HealthsByEnvironment, serviceHealth)
}

// HealthsOfServices implements core.HealthReads.
func (r reader) HealthsOfServices(
	ctx context.Context, organization int64, environments, services []int64,
) (map[int64][]core.ServiceHealth, error) {
	if len(services) == 0 {
		return nil, nil
	}
	return under(ctx, r, organization, environments, "healths of services",
		func(q *query.Queries, ctx context.Context, organization int64, environments []int64) ([]query.ServiceEnvironmentHealth, error) {
			return q.HealthsOfServices(ctx, organization, services, environments)
		}, serviceHealth)
}

func serviceHealth(row query.ServiceEnvironmentHealth) (int64, core.ServiceHealth) {
	return row.EnvironmentID, core.ServiceHealth{
		ServiceID: row.ServiceID, EnvironmentID: row.EnvironmentID, Health: core.Health(row.Health), Reason: row.Reason,
		Since: row.Since, ObservedAt: row.ObservedAt,
	}
}

// Reconciliations implements view.ObservedReads.
func (r reader) Reconciliations(
	ctx context.Context, organization int64, applicationEnvironments []int64,
) (map[int64]core.Reconciliation, error) {
	return byKey(ctx, r, organization, applicationEnvironments, "reconciliations", (*query.Queries).Reconciliations,
		func(row query.ReconciliationsRow) (int64, core.Reconciliation) {
			r := row.Reconciliation
			return r.ApplicationEnvironmentID, core.Reconciliation{
				ApplicationEnvironmentID: r.ApplicationEnvironmentID, Revision: r.Revision, ExpectedRevision: r.ExpectedRevision,
				Automatic: r.Automatic, Objects: r.Objects, Since: r.Since, ObservedAt: r.ObservedAt,
				ChangedAt: changedAt(row), LookFailedAt: row.FailedAt, LookFailure: row.Failure,
			}
		})
}

// changedAt is when a rollout has changed something there last; nil for never. One that ended before it began there has changed nothing.
func changedAt(row query.ReconciliationsRow) (last *time.Time) {
	at := []*time.Time{row.LiveSince, row.StartedAt}
	if row.StartedAt != nil {
		at = append(at, row.FinishedAt)
	}
	for _, t := range at {
		if t != nil && (last == nil || t.After(*last)) {
			last = t
		}
	}
	return last
}

// Contacts implements view.ObservedReads.
func (r reader) Contacts(ctx context.Context, organization int64, environments []int64) (map[int64]core.Contact, error) {
	return byKey(ctx, r, organization, environments, "contacts", (*query.Queries).Contacts,
		func(row query.Contact) (int64, core.Contact) {
			return row.EnvironmentID, core.Contact{
				EnvironmentID: row.EnvironmentID, Reachable: row.Reachable, Reason: row.Reason, Since: row.Since, ObservedAt: row.ObservedAt,
			}
		})
}
