package store

import (
	"context"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/view"
	"github.com/lockstep-cd/lockstep/services/domain/internal/store/query"
)

// Applications implements view.Reads.
func (r reader) Applications(
	ctx context.Context, organization int64, f core.ApplicationFilter, p core.Page,
) (core.Slice[core.Application], error) {
	return list(ctx, r, organization, p, core.OrderCreated, "applications",
		func(q *query.Queries, w core.Window) ([]query.Application, error) {
			named, few, err := named(ctx, q, organization, f.Contains)
			if err != nil || few && len(named) == 0 {
				return nil, err
			}
			return q.ListApplications(ctx, query.ListApplicationsParams{
				OrganizationID: organization, Above: w.Above.Number, Below: w.Below.Number, AboveName: w.Above.Name, BelowName: w.Below.Name,
				Among: few, Applications: named, Contains: strings.ToLower(f.Contains), RolledOut: f.RolledOut, ByName: w.Key == core.OrderName,
				Falling: w.Falling, AtMost: limit(w),
			})
		}, application, func(one core.Application) core.Position { return core.Position{Number: one.ID, Name: one.Name} })
}

// CountApplications implements view.Counts.
func (r reader) CountApplications(ctx context.Context, organization int64, f core.ApplicationFilter) (int, error) {
	return count(ctx, r, organization, "applications", func(q *query.Queries) (int64, error) {
		return q.CountApplications(ctx, organization, f.Contains, f.RolledOut)
	})
}

// Environments implements view.Reads.
func (r reader) Environments(
	ctx context.Context, organization int64, f core.EnvironmentFilter, p core.Page,
) (core.Slice[core.Environment], error) {
	return list(ctx, r, organization, p, core.OrderCreated, "environments",
		func(q *query.Queries, w core.Window) ([]query.Environment, error) {
			return q.ListEnvironments(ctx, query.ListEnvironmentsParams{
				OrganizationID: organization, Above: w.Above.Number, Below: w.Below.Number, AboveName: w.Above.Name, BelowName: w.Below.Name,
				Contains: f.Contains, Tiers: tiersOf(f), Readiness: readinessOf(f), ByName: w.Key == core.OrderName,
				Falling: w.Falling, AtMost: limit(w),
			})
		}, environment, func(one core.Environment) core.Position { return core.Position{Number: one.ID, Name: one.Name} })
}

// CountEnvironments implements view.Counts.
func (r reader) CountEnvironments(ctx context.Context, organization int64, f core.EnvironmentFilter) (int, error) {
	return count(ctx, r, organization, "environments", func(q *query.Queries) (int64, error) {
		return q.CountEnvironments(ctx, query.CountEnvironmentsParams{
			OrganizationID: organization, Contains: f.Contains, Tiers: tiersOf(f), Readiness: readinessOf(f),
		})
	})
}

// tiersOf is an empty list, not none, for all: NULL would meet no condition.
func tiersOf(f core.EnvironmentFilter) []string {
	return convertAll(f.Tiers, func(t core.Tier) string { return string(t) })
}

// readinessOf is an empty list for all, as tiersOf is.
func readinessOf(f core.EnvironmentFilter) []string {
	return convertAll(f.Readiness, func(r core.Readiness) string { return string(r) })
}

// RolloutsAsking implements view.Reads.
func (r reader) RolloutsAsking(ctx context.Context, organization int64, of core.Range) (ids []int64, err error) {
	err = r.run(ctx, organization, func(q *query.Queries) error {
		if err := q.PlanForValues(ctx); err != nil {
			return pg.Classify(err, "plan for values")
		}
		ids, err = q.RolloutsAsking(ctx, query.RolloutsAskingParams{
			OrganizationID: organization, Above: of.Above, Below: of.Below, Falling: of.Falling, AtMost: int32(of.Most),
		})
		return pg.Classify(err, "find rollouts that ask")
	})
	return ids, err
}

// JournalBetween implements view.Reads.
func (r reader) JournalBetween(ctx context.Context, organization int64, of core.Range) (all []core.JournalEntry, err error) {
	err = r.run(ctx, organization, func(q *query.Queries) error {
		if err := q.PlanForValues(ctx); err != nil {
			return pg.Classify(err, "plan for values")
		}
		rows, err := q.JournalBetween(ctx, query.JournalBetweenParams{
			OrganizationID: organization, Above: of.Above, Below: of.Below, Falling: of.Falling, AtMost: int32(of.Most),
		})
		all = convertAll(rows, func(row query.JournalBetweenRow) core.JournalEntry {
			return core.JournalEntry{RolloutID: row.RolloutID, Transition: core.Transition{
				ID: row.ID, Subject: core.Subject{Kind: core.SubjectKind(row.Kind), ID: row.SubjectID}, From: core.State(orZero(row.FromState)),
				To:     core.State(row.ToState),
				Verb:   core.Verb(row.Event),
				GateID: orZero(row.GateID), PrincipalType: core.PrincipalType(row.PrincipalType), PrincipalID: orZero(row.PrincipalID),
				Reason: orZero(row.Reason), TriggeredBy: orZero(row.TriggeredBy), Conditions: conditions(row.Conditions), Breach: row.Breach,
				CreatedAt: row.CreatedAt,
			}}
		})
		return pg.Classify(err, "read the journal between %d and %d", of.Above, of.Below)
	})
	return all, err
}

// JournalHorizon implements view.Reads.
func (r reader) JournalHorizon(ctx context.Context, organization int64) (h core.Horizon, err error) {
	err = r.run(ctx, organization, func(q *query.Queries) error {
		row, err := q.JournalHorizon(ctx, organization)
		h = core.Horizon{Position: row.Position, Oldest: row.Oldest, Next: row.Next}
		return pg.Classify(err, "look how far the journal goes")
	})
	return h, err
}

// CountJournal implements view.Counts.
func (r reader) CountJournal(ctx context.Context, organization int64) (int, error) {
	return count(ctx, r, organization, "rows of the journal",
		func(q *query.Queries) (int64, error) { return q.CountJournal(ctx, organization) })
}

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
