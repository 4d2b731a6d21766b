// Package control is the part of the store that keeps what stops passages from outside of a pipeline: freezes, vetoes and pins, which
// passages they have stopped, and which rollouts are to be evaluated again.
//
// It decides nothing. Its types are embedded by those of package store, which gives them their transactions.
package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/store/query"
)

func author(kind string, id int64, name string) core.Author {
	return core.Author{Principal: core.Principal{Type: core.PrincipalType(kind), ID: id}, Name: name}
}

// Freeze is a row as the core has it.
func Freeze(r query.Freeze) core.Freeze {
	f := core.Freeze{
		ID: r.ID, EnvironmentIDs: r.EnvironmentIds, ApplicationIDs: r.ApplicationIds, Rollbacks: r.Rollbacks, Reason: r.Reason,
		Incident: r.Incident,
		StartsAt: r.StartsAt, EndsAt: r.EndsAt, BoundedFrom: r.BoundedFrom, EndedAt: r.EndedAt,
		Author: author(r.PrincipalType, r.PrincipalID, r.PrincipalName), CreatedAt: r.CreatedAt,
	}
	f.ApplicationLabels, f.EnvironmentLabels = Labels(r.ApplicationLabels), Labels(r.EnvironmentLabels)
	for _, tier := range r.Tiers {
		f.Tiers = append(f.Tiers, core.Tier(tier))
	}
	return f
}

// Labels are those that a row asks of: the tables have objects of strings only. What cannot be read asks of none, and so stops more.
func Labels(text json.RawMessage) (labels map[string]string) {
	if len(text) > 0 {
		_ = json.Unmarshal(text, &labels)
	}
	return labels
}

func veto(r query.Veto) core.Veto {
	v := core.Veto{
		ID: r.ID, Reason: r.Reason, Author: author(r.PrincipalType, r.PrincipalID, r.PrincipalName), LiftedAt: r.LiftedAt, CreatedAt: r.CreatedAt,
	}
	if r.VersionID != nil {
		v.VersionID = *r.VersionID
	}
	if r.VersionSetID != nil {
		v.VersionSetID = *r.VersionSetID
	}
	return v
}

func pin(r query.EnvironmentPin) core.Pin {
	return core.Pin{
		EnvironmentID: r.EnvironmentID, Reason: r.Reason, Since: r.Since, Author: author(r.PrincipalType, r.PrincipalID, r.PrincipalName),
	}
}

// missing makes the absence of a row a NotFound that names it.
func missing(err error, what string, id int64) error {
	if errors.Is(err, pgx.ErrNoRows) {
		return fault.Because(err, fault.NotFound, "%s %d does not exist", what, id)
	}
	return pg.Classify(err, "read %s %d", what, id)
}

// Reads are what the API and the use cases look at.
type Reads struct {
	// Run runs fn in a transaction of an organization.
	Run func(ctx context.Context, organization int64, fn func(*query.Queries) error) error
}

// FreezesInForce implements view.Reads.
func (r Reads) FreezesInForce(ctx context.Context, organization int64, at time.Time) (all []core.Freeze, err error) {
	err = r.Run(ctx, organization, func(q *query.Queries) error {
		rows, err := q.FreezesInForce(ctx, organization, at)
		all = convert(rows, Freeze)
		return pg.Classify(err, "read freezes")
	})
	return all, err
}

// FreezesByID implements view.Reads.
func (r Reads) FreezesByID(ctx context.Context, organization int64, ids []int64) (map[int64]core.Freeze, error) {
	found := map[int64]core.Freeze{}
	err := r.Run(ctx, organization, func(q *query.Queries) error {
		rows, err := q.FreezesByID(ctx, organization, ids)
		for _, row := range rows {
			found[row.ID] = Freeze(row)
		}
		return pg.Classify(err, "read freezes")
	})
	return found, err
}

// StoppedByFreeze implements view.Reads.
func (r Reads) StoppedByFreeze(ctx context.Context, organization int64, freezes []int64) (map[int64]int, error) {
	found := map[int64]int{}
	err := r.Run(ctx, organization, func(q *query.Queries) error {
		rows, err := q.CountStopped(ctx, organization, freezes)
		for _, row := range rows {
			found[row.ControlID] = int(row.Rollouts)
		}
		return pg.Classify(err, "count what freezes stop")
	})
	return found, err
}

// VetoesByID implements view.Reads.
func (r Reads) VetoesByID(ctx context.Context, organization int64, ids []int64) (map[int64]core.Veto, error) {
	found := map[int64]core.Veto{}
	err := r.Run(ctx, organization, func(q *query.Queries) error {
		rows, err := q.VetoesByID(ctx, organization, ids)
		for _, row := range rows {
			found[row.ID] = veto(row)
		}
		return pg.Classify(err, "read vetoes")
	})
	return found, err
}

// VetoesByVersion implements view.Reads.
func (r Reads) VetoesByVersion(ctx context.Context, organization int64, versions []int64) (map[int64]core.Veto, error) {
	found := map[int64]core.Veto{}
	err := r.Run(ctx, organization, func(q *query.Queries) error {
		rows, err := q.VetoesByVersion(ctx, organization, versions)
		for _, row := range rows {
			one := veto(row)
			found[one.VersionID] = one
		}
		return pg.Classify(err, "read vetoes of versions")
	})
	return found, err
}

// VetoesByVersionSet implements view.Reads and rollout.Tx.
func (r Reads) VetoesByVersionSet(ctx context.Context, organization int64, sets []int64) (map[int64][]core.Veto, error) {
	found := map[int64][]core.Veto{}
	err := r.Run(ctx, organization, func(q *query.Queries) error {
		rows, err := q.VetoesByVersionSet(ctx, sets, organization)
		for _, row := range rows {
			found[row.SetID] = append(found[row.SetID], veto(row.Veto))
		}
		return pg.Classify(err, "read vetoes of version sets")
	})
	return found, err
}

// PinsByEnvironment implements view.Reads and rollout.Tx.
func (r Reads) PinsByEnvironment(ctx context.Context, organization int64, environments []int64) (map[int64]core.Pin, error) {
	found := map[int64]core.Pin{}
	err := r.Run(ctx, organization, func(q *query.Queries) error {
		rows, err := q.PinsByEnvironment(ctx, organization, environments)
		for _, row := range rows {
			found[row.EnvironmentID] = pin(row)
		}
		return pg.Classify(err, "read pins")
	})
	return found, err
}

// RolloutRequesters implements view.Reads and rollout.Tx.
func (r Reads) RolloutRequesters(ctx context.Context, organization int64, rollouts []int64) (map[int64]core.PrincipalType, error) {
	found := map[int64]core.PrincipalType{}
	err := r.Run(ctx, organization, func(q *query.Queries) error {
		rows, err := q.RolloutRequesters(ctx, organization, rollouts)
		for _, row := range rows {
			found[row.RolloutID] = core.PrincipalType(row.PrincipalType)
		}
		return pg.Classify(err, "read who requested rollouts")
	})
	return found, err
}

func convert[R, T any](rows []R, one func(R) T) []T {
	all := make([]T, len(rows))
	for i, row := range rows {
		all[i] = one(row)
	}
	return all
}

func checkReport(r query.CheckStatus) core.CheckReport {
	environments := map[string]core.CheckPhase{}
	_ = json.Unmarshal(r.Environments, &environments) // what cannot be read says nothing
	return core.CheckReport{
		ID: r.ID, ApplicationID: r.ApplicationID, EnvironmentID: r.EnvironmentID, VersionSetID: r.VersionSetID, Key: r.Key,
		Phase: core.CheckPhase(r.Phase), Description: r.Description, Link: r.Link,
		Reporter: author(r.PrincipalType, r.PrincipalID, r.PrincipalName), ObservedAt: r.ObservedAt, CreatedAt: r.CreatedAt,
		Asks: r.Asks, Environments: environments, ProposedCommit: r.ProposedCommit,
	}
}

// ChecksByRollout implements view.Reads.
func (r Reads) ChecksByRollout(ctx context.Context, organization int64, rollouts []int64) (map[int64][]core.PinnedCheck, error) {
	found := map[int64][]core.PinnedCheck{}
	err := r.Run(ctx, organization, func(q *query.Queries) error {
		rows, err := q.RolloutChecks(ctx, organization, rollouts)
		for _, row := range rows {
			one := core.Check{Key: row.Key, Kind: core.CheckKind(row.Kind), Duration: time.Duration(row.DurationSeconds) * time.Second}
			one.InSync = row.InSync
			if row.Windows != nil {
				if err := json.Unmarshal(row.Windows, &one.Schedule); err != nil {
					return fmt.Errorf("read windows of check %s of rollout %d: %w", row.Key, row.RolloutID, err)
				}
			}
			pinned := core.PinnedCheck{Check: one, EnvironmentID: row.EnvironmentID, Target: core.CheckTarget(row.Target), Own: row.Own}
			pinned.Config = row.Config
			if row.KindDigest != nil {
				pinned.Digest = *row.KindDigest
			}
			found[row.RolloutID] = append(found[row.RolloutID], pinned)
		}
		return pg.Classify(err, "read checks of rollouts")
	})
	return found, err
}

// EnvironmentChecks implements view.Reads, rollout.Tx, setup.Tx and check.Tx.
func (r Reads) EnvironmentChecks(ctx context.Context, organization int64, environments []int64) (map[int64]json.RawMessage, error) {
	found := map[int64]json.RawMessage{}
	err := r.Run(ctx, organization, func(q *query.Queries) error {
		rows, err := q.EnvironmentChecks(ctx, organization, environments)
		for _, row := range rows {
			found[row.EnvironmentID] = row.Checks
		}
		return pg.Classify(err, "read checks of environments")
	})
	return found, err
}

func checkRun(r query.CheckRun) core.CheckRun {
	return core.CheckRun{
		ID: r.ID, RolloutID: r.RolloutID, EnvironmentID: r.EnvironmentID, Target: core.CheckTarget(r.Target), Key: r.Key, Own: r.Own,
		Number: int(r.Number), EndedAt: r.EndedAt, CreatedAt: r.CreatedAt,
	}
}

// CheckRuns implements view.Reads and rollout.Tx.
func (r Reads) CheckRuns(ctx context.Context, organization int64, rollouts []int64) (map[int64][]core.CheckRun, error) {
	found := map[int64][]core.CheckRun{}
	err := r.Run(ctx, organization, func(q *query.Queries) error {
		rows, err := q.CheckRuns(ctx, organization, rollouts)
		for _, row := range rows {
			found[row.RolloutID] = append(found[row.RolloutID], checkRun(query.CheckRun{
				ID: row.ID, RolloutID: row.RolloutID, EnvironmentID: row.EnvironmentID, Target: row.Target, Key: row.Key, Own: row.Own,
				Number: row.Number, EndedAt: row.EndedAt, CreatedAt: row.CreatedAt,
			}))
		}
		return pg.Classify(err, "read runs of checks")
	})
	return found, err
}

// CheckReports implements check.Tx and view.Reads.
func (r Reads) CheckReports(ctx context.Context, organization int64, sets []int64) (map[int64][]core.CheckReport, error) {
	found := map[int64][]core.CheckReport{}
	err := r.Run(ctx, organization, func(q *query.Queries) error {
		rows, err := q.LatestCheckStatuses(ctx, organization, sets)
		for _, row := range rows {
			found[row.VersionSetID] = append(found[row.VersionSetID], checkReport(row))
		}
		return pg.Classify(err, "read statuses of checks")
	})
	return found, err
}
