// Package limits is the store of the limits of organizations, and of the rules by which their ended runs are deleted.
package limits

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/limit"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/retention"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/store/query"
)

// Store keeps limits and rules in the tables of the service.
type Store struct {
	pool    *pgxpool.Pool
	queries *query.Queries
}

var (
	_ limit.Store     = (*Store)(nil)
	_ retention.Store = (*Store)(nil)
)

// New makes a Store over a pool whose schema has been migrated.
func New(pool *pgxpool.Pool) *Store { return &Store{pool: pool, queries: query.New(pool)} }

// Limits reads all limits, and how many processes are alive.
func (s *Store) Limits(ctx context.Context, now time.Time) (map[int64]limit.Limits, int64, error) {
	rows, err := s.queries.UsageLimits(ctx)
	if err != nil {
		return nil, 0, pg.Classify(err, "read the limits of organizations")
	}
	byOrganization := make(map[int64]limit.Limits, len(rows))
	for _, row := range rows {
		byOrganization[row.Organization] = limitsOf(row)
	}
	if len(rows) == 0 {
		return byOrganization, 1, nil
	}
	processes, err := s.queries.LiveProcesses(ctx, now)
	return byOrganization, processes, pg.Classify(err, "count processes")
}

func limitsOf(row query.UsageLimit) limit.Limits {
	return limit.Limits{
		OpenRuns: row.OpenRuns, StartsPerSecond: row.StartsPerSecond, EventsPerSecond: row.EventsPerSecond, StorageBytes: row.StorageBytes,
		CallsPerSecond: row.CallsPerSecond,
	}
}

// SetLimits changes limits, and records who did.
func (s *Store) SetLimits(ctx context.Context, c limit.Change) error {
	return s.change(ctx, c.Organization, func(q *query.Queries) (before, after any, err error) {
		row, err := q.UsageLimitOf(ctx, c.Organization)
		if err == nil {
			before = limitsOf(row)
		} else if !errors.Is(err, pgx.ErrNoRows) {
			return nil, nil, pg.Classify(err, "read the limits of organization %d", c.Organization)
		}
		if c.To == nil {
			return before, nil, pg.Classify(q.DropUsageLimit(ctx, c.Organization), "remove the limits of organization %d", c.Organization)
		}
		return before, *c.To, pg.Classify(q.SaveUsageLimit(ctx, query.SaveUsageLimitParams{
			Organization: c.Organization, OpenRuns: c.To.OpenRuns, StartsPerSecond: c.To.StartsPerSecond, EventsPerSecond: c.To.EventsPerSecond,
			StorageBytes: c.To.StorageBytes, CallsPerSecond: c.To.CallsPerSecond,
		}), "save the limits of organization %d", c.Organization)
	}, query.SaveSettingChangeParams{Setting: "limits", ChangedBy: c.By, Reason: c.Reason, ChangedAt: c.At})
}

// change makes a change and records it in the same transaction. One that changes nothing is not recorded.
func (s *Store) change(
	ctx context.Context, organization int64, apply func(*query.Queries) (before, after any, err error), row query.SaveSettingChangeParams,
) error {
	return pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		q := s.queries.WithTx(tx)
		if err := q.LockSettings(ctx, organization); err != nil {
			return pg.Classify(err, "lock the settings of organization %d", organization)
		}
		before, after, err := apply(q)
		if err != nil || before == after {
			return err
		}
		row.Organization = organization
		for _, side := range []struct {
			into  *[]byte
			value any
		}{{&row.Before, before}, {&row.After, after}} {
			if side.value == nil {
				continue
			}
			if *side.into, err = json.Marshal(side.value); err != nil {
				return fmt.Errorf("encode the settings of organization %d: %w", organization, err)
			}
		}
		return pg.Classify(q.SaveSettingChange(ctx, row), "record a change of the settings of organization %d", organization)
	})
}

// Changes reads the newest changes.
func (s *Store) Changes(ctx context.Context, organization int64, most int) ([]limit.Changed, error) {
	rows, err := s.queries.SettingChanges(ctx, query.SettingChangesParams{Organization: organization, Most: int32(most)})
	if err != nil {
		return nil, pg.Classify(err, "read changes of the settings of organization %d", organization)
	}
	changes := make([]limit.Changed, len(rows))
	for i, row := range rows {
		changes[i] = limit.Changed{
			At: row.ChangedAt, Setting: row.Setting, By: row.ChangedBy, Reason: row.Reason, Before: row.Before, After: row.After,
		}
	}
	return changes, nil
}

// OpenRuns counts runs that have not ended.
func (s *Store) OpenRuns(ctx context.Context) (map[int64]int64, error) {
	rows, err := s.queries.OpenRuns(ctx)
	if err != nil {
		return nil, pg.Classify(err, "count open runs")
	}
	counts := make(map[int64]int64, len(rows))
	for _, row := range rows {
		counts[row.Organization] = row.Runs
	}
	return counts, nil
}

// Storage measures what an organization has stored.
func (s *Store) Storage(ctx context.Context, organization int64) (int64, error) {
	bytes, err := s.queries.StorageOf(ctx, organization)
	return bytes, pg.Classify(err, "measure what organization %d has stored", organization)
}

// Rules reads the rules of an organization.
func (s *Store) Rules(ctx context.Context, organization int64) ([]retention.Rule, error) {
	rows, err := s.queries.RetentionRules(ctx, organization)
	if err != nil {
		return nil, pg.Classify(err, "read the rules of retention of organization %d", organization)
	}
	rules := make([]retention.Rule, len(rows))
	for i, row := range rows {
		rules[i] = retention.Rule{Label: row.Label, Value: row.Value, Keep: time.Duration(row.Keep.Microseconds) * time.Microsecond}
	}
	return rules, nil
}

// SetRule saves or removes a rule, and records who did.
func (s *Store) SetRule(ctx context.Context, c retention.Change, most int) error {
	return s.change(ctx, c.Organization, func(q *query.Queries) (before, after any, err error) {
		rows, err := q.RetentionRules(ctx, c.Organization)
		if err != nil {
			return nil, nil, pg.Classify(err, "read the rules of organization %d", c.Organization)
		}
		for _, row := range rows {
			if row.Label == c.Label && row.Value == c.Value {
				before = recorded(c.Rule, time.Duration(row.Keep.Microseconds)*time.Microsecond)
			}
		}
		if c.Keep == 0 {
			return before, nil, pg.Classify(q.DropRetentionRule(ctx, query.DropRetentionRuleParams{
				Organization: c.Organization, Label: c.Label, Value: c.Value,
			}), "remove a rule of organization %d", c.Organization)
		}
		if before == nil && len(rows) >= most {
			return nil, nil, fault.New(fault.Refused, "found %d rules of organization %d, expected fewer than %d", len(rows), c.Organization, most)
		}
		return before, recorded(c.Rule, c.Keep), pg.Classify(q.SaveRetentionRule(ctx, query.SaveRetentionRuleParams{
			Organization: c.Organization, Label: c.Label, Value: c.Value, Keep: pgtype.Interval{Microseconds: c.Keep.Microseconds(), Valid: true},
		}), "save a rule of organization %d", c.Organization)
	}, query.SaveSettingChangeParams{Setting: "retention", ChangedBy: c.By, Reason: c.Reason, ChangedAt: c.At})
}

// rule is a rule as changes record it.
type rule struct {
	Label string `json:"label"`
	Value string `json:"value"`
	Keep  string `json:"keep"`
}

func recorded(r retention.Rule, keep time.Duration) rule {
	return rule{r.Label, r.Value, keep.String()}
}

// WithRules are the organizations that have rules.
func (s *Store) WithRules(ctx context.Context) ([]int64, error) {
	organizations, err := s.queries.OrganizationsWithRetention(ctx)
	return organizations, pg.Classify(err, "find organizations with rules of retention")
}

// Runs reads a page of runs.
func (s *Store) Runs(ctx context.Context, organization, after int64, before time.Time, most int) ([]retention.Run, error) {
	rows, err := s.queries.OldRuns(ctx, query.OldRunsParams{Organization: organization, After: after, Before: before, Most: int32(most)})
	if err != nil {
		return nil, pg.Classify(err, "read old runs of organization %d", organization)
	}
	runs := make([]retention.Run, len(rows))
	for i, row := range rows {
		runs[i] = retention.Run{ID: row.ID, Workflow: row.Workflow}
		if row.EndedAt != nil {
			runs[i].Ended = *row.EndedAt
		}
		if err := json.Unmarshal(row.Labels, &runs[i].Labels); err != nil {
			return nil, fmt.Errorf("labels of workflow %q: %w", row.Workflow, err)
		}
	}
	return runs, nil
}

// Delete deletes runs that have ended before a time.
func (s *Store) Delete(ctx context.Context, runs []int64, before time.Time) (int64, error) {
	deleted, err := s.queries.DropRuns(ctx, query.DropRunsParams{Ids: runs, Before: before})
	return deleted, pg.Classify(err, "delete %d ended runs", len(runs))
}
