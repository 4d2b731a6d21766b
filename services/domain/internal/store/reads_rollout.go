package store

import (
	"context"

	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/store/query"
)

// Rollouts implements view.Reads.
func (r reader) Rollouts(ctx context.Context, organization int64, f core.RolloutFilter, p core.Page) (core.Slice[core.Rollout], error) {
	return list(ctx, r, organization, p, core.OrderCreatedDesc, "rollouts", func(q *query.Queries, w core.Window) ([]core.Rollout, error) {
		rows, err := listRollouts(ctx, q, organization, f, w)
		if err != nil {
			return nil, err
		}
		all := convertAll(rows, toRollout)
		return all, derive(ctx, q, organization, all)
	}, func(one core.Rollout) core.Rollout { return one }, func(one core.Rollout) core.Position {
		at := core.Never()
		if one.FinishedAt != nil {
			at = *one.FinishedAt
		}
		return core.Position{Number: one.ID, At: at}
	})
}

// listRollouts takes the query that has an index for what is asked.
func listRollouts(ctx context.Context, q *query.Queries, organization int64, f core.RolloutFilter, w core.Window) ([]query.Rollout, error) {
	states, active := statesOf(f), len(f.States) > 0
	for _, state := range f.States {
		active = active && !state.Terminal()
	}
	switch {
	case w.Key == core.OrderFinished:
		return q.ListRolloutsByFinish(ctx, query.ListRolloutsByFinishParams{
			OrganizationID: organization, AboveAt: w.Above.At, Above: w.Above.Number, BelowAt: w.Below.At, Below: w.Below.Number,
			ApplicationID: f.ApplicationID, States: states, EnvironmentID: f.EnvironmentID, Falling: w.Falling, AtMost: limit(w),
		})
	case active:
		return q.ListActiveRollouts(ctx, query.ListActiveRolloutsParams{
			OrganizationID: organization, Above: w.Above.Number, Below: w.Below.Number,
			ApplicationID: f.ApplicationID, States: states, EnvironmentID: f.EnvironmentID, Falling: w.Falling, AtMost: limit(w),
		})
	default:
		return q.ListRollouts(ctx, query.ListRolloutsParams{
			OrganizationID: organization, Above: w.Above.Number, Below: w.Below.Number,
			ApplicationID: f.ApplicationID, States: states, EnvironmentID: f.EnvironmentID, Falling: w.Falling, AtMost: limit(w),
		})
	}
}

// CountRollouts implements view.Counts.
func (r reader) CountRollouts(ctx context.Context, organization int64, f core.RolloutFilter) (int, error) {
	return count(ctx, r, organization, "rollouts", func(q *query.Queries) (int64, error) {
		return q.CountRollouts(ctx, query.CountRolloutsParams{
			OrganizationID: organization, ApplicationID: f.ApplicationID, States: statesOf(f), EnvironmentID: f.EnvironmentID,
		})
	})
}

// statesOf is an empty list, not none, for all.
func statesOf(f core.RolloutFilter) []string {
	return convertAll(f.States, func(s core.RolloutState) string { return string(s) })
}

// derive fills in what no column holds: whether each is a rollback, whether a gate is open, whether it will pause (R18, R38), whether it
// was aborted, who has broken the glass, and what takes it back.
func derive(ctx context.Context, q *query.Queries, organization int64, all []core.Rollout) error {
	if len(all) == 0 {
		return nil
	}
	ids := make([]int64, len(all))
	for i, r := range all {
		ids[i] = r.ID
	}
	// Three queries for the whole list, whatever its length.
	rollbacks, err := q.Rollbacks(ctx, organization, ids)
	if err != nil {
		return pg.Classify(err, "derive rollbacks")
	}
	gates, err := q.OpenGates(ctx, organization, ids)
	if err != nil {
		return pg.Classify(err, "derive open gates")
	}
	marks, err := q.Marks(ctx, organization, ids)
	if err != nil {
		return pg.Classify(err, "derive what the journals say of rollouts")
	}
	marked := map[int64]query.MarksRow{}
	for _, m := range marks {
		marked[m.ID] = m
	}
	rollback, awaiting := map[int64]bool{}, map[int64]bool{}
	for _, id := range rollbacks {
		rollback[id] = true
	}
	for _, g := range gates {
		awaiting[g.RolloutID] = true
	}
	for i := range all {
		id := all[i].ID
		all[i].IsRollback, all[i].AwaitingApproval, all[i].PauseRequested = rollback[id], awaiting[id], marked[id].Pausing
		all[i].Aborted, all[i].RolledBackBy = marked[id].Aborted, marked[id].RolledBackBy
		if m := marked[id]; m.BreakerID != 0 {
			all[i].Glass = &core.BrokenGlass{
				Principal: core.Principal{Type: core.PrincipalUser, ID: m.BreakerID},
				Reason:    m.BreakerReason, At: m.BrokenAt,
			}
		}
	}
	return nil
}

// derived reads rollouts with what is derived of them.
func (r reader) derived(
	ctx context.Context, organization int64, what string, fn func(*query.Queries) ([]query.Rollout, error),
) (all []core.Rollout, err error) {
	err = r.run(ctx, organization, func(q *query.Queries) error {
		rows, err := fn(q)
		if err != nil {
			return pg.Classify(err, "read %s", what)
		}
		all = convertAll(rows, toRollout)
		return derive(ctx, q, organization, all)
	})
	return all, err
}

// RolloutsByID implements view.Reads.
func (r reader) RolloutsByID(ctx context.Context, organization int64, ids []int64) (map[int64]core.Rollout, error) {
	all, err := r.derived(ctx, organization, "rollouts",
		func(q *query.Queries) ([]query.Rollout, error) { return q.RolloutsByID(ctx, organization, ids) })
	found := make(map[int64]core.Rollout, len(all))
	for _, one := range all {
		found[one.ID] = one
	}
	return found, err
}

// RolloutsByApplication implements view.Reads.
func (r reader) RolloutsByApplication(
	ctx context.Context, organization int64, applications []int64, p core.Page,
) (map[int64]core.Slice[core.Rollout], error) {
	w, err := p.Open("rollouts", core.OrderCreatedDesc)
	if err != nil {
		return nil, err
	}
	all, err := r.derived(ctx, organization, "rollouts", func(q *query.Queries) ([]query.Rollout, error) {
		if err := q.PlanForValues(ctx); err != nil {
			return nil, err
		}
		return q.RolloutsByApplication(ctx, query.RolloutsByApplicationParams{
			OrganizationID: organization, Ids: applications, Above: w.Above.Number, Below: w.Below.Number, Falling: w.Falling, AtMost: limit(w),
		})
	})
	found := map[int64][]core.Rollout{}
	for _, one := range all {
		found[one.ApplicationID] = append(found[one.ApplicationID], one)
	}
	return cut(w, applications, found, func(r core.Rollout) int64 { return r.ID }), err
}

// CountRolloutsByApplication implements view.Counts.
func (r reader) CountRolloutsByApplication(ctx context.Context, organization int64, applications []int64) (map[int64]int, error) {
	return byKey(ctx, r, organization, applications, "numbers of rollouts", (*query.Queries).CountRolloutsByApplication,
		func(row query.CountRolloutsByApplicationRow) (int64, int) { return row.ID, int(row.Items) })
}

// ActiveRolloutsByEnvironment implements view.Reads.
func (r reader) ActiveRolloutsByEnvironment(ctx context.Context, organization int64, environments []int64) (map[int64]core.Rollout, error) {
	return byKey(ctx, r, organization, environments, "active rollouts of environments", (*query.Queries).ActiveRolloutsByEnvironment,
		func(row query.ActiveRolloutsByEnvironmentRow) (int64, core.Rollout) {
			return row.EnvironmentID, core.Rollout{ID: row.ID, State: core.RolloutState(row.State)}
		})
}

// ActiveRollouts implements view.Reads.
func (r reader) ActiveRollouts(ctx context.Context, organization int64, applications []int64) (map[int64]core.Rollout, error) {
	all, err := r.derived(ctx, organization, "active rollouts", func(q *query.Queries) ([]query.Rollout, error) {
		return q.ActiveRollouts(ctx, organization, applications)
	})
	found := make(map[int64]core.Rollout, len(all))
	for _, one := range all {
		found[one.ApplicationID] = one
	}
	return found, err
}

// OpenGates implements view.Reads.
func (r reader) OpenGates(ctx context.Context, organization int64, rollouts []int64) (map[int64][]core.Gate, error) {
	rows, err := fetch(ctx, r, organization, rollouts, "open gates", (*query.Queries).OpenGates)
	if err != nil {
		return nil, err
	}
	found := map[int64][]core.Gate{}
	for _, row := range rows {
		g, err := gate(row)
		if err != nil {
			return nil, err
		}
		found[row.RolloutID] = append(found[row.RolloutID], g)
	}
	return found, nil
}

// SkipsByRollout implements view.Reads.
func (r reader) SkipsByRollout(ctx context.Context, organization int64, rollouts []int64) (map[int64][]core.SkippedEnvironment, error) {
	return under(ctx, r, organization, rollouts, "skipped environments of rollouts", (*query.Queries).RolloutSkips,
		func(row query.RolloutSkip) (int64, core.SkippedEnvironment) {
			return row.RolloutID, core.SkippedEnvironment{
				RolloutID: row.RolloutID, EnvironmentID: row.EnvironmentID,
				Cause: core.SkipCause(row.Cause),
			}
		})
}

// CausesByRollout implements view.Reads.
func (r reader) CausesByRollout(ctx context.Context, organization int64, rollouts []int64) (map[int64][]core.Transition, error) {
	return under(ctx, r, organization, rollouts, "causes of rollouts",
		(*query.Queries).CausesByRollout,
		func(row query.CausesByRolloutRow) (int64, core.Transition) {
			return row.Asked, core.Transition{
				ID: row.ID, Subject: core.Subject{Kind: core.SubjectKind(row.Kind), ID: row.SubjectID}, From: core.State(orZero(row.FromState)),
				To: core.State(row.ToState), Verb: core.Verb(row.Event), GateID: orZero(row.GateID),
				PrincipalType: core.PrincipalType(row.PrincipalType), PrincipalID: orZero(row.PrincipalID),
				Reason: orZero(row.Reason), TriggeredBy: orZero(row.TriggeredBy), Conditions: conditions(row.Conditions), Breach: row.Breach,
				CreatedAt: row.CreatedAt,
			}
		})
}

// GateWordsByRollout implements view.Reads.
func (r reader) GateWordsByRollout(ctx context.Context, organization int64, rollouts []int64) (map[int64][]core.Transition, error) {
	return under(ctx, r, organization, rollouts, "gates of rollouts", (*query.Queries).GateWords,
		keyed(gateWord, func(t core.Transition) int64 { return t.Subject.ID }))
}

// RolloutEnvironmentsByID implements view.Reads.
func (r reader) RolloutEnvironmentsByID(ctx context.Context, organization int64, ids []int64) (map[int64]core.RolloutEnvironment, error) {
	return byKey(ctx, r, organization, ids, "rollout environments", (*query.Queries).RolloutEnvironmentsByID,
		keyed(rolloutEnvironment, func(e core.RolloutEnvironment) int64 { return e.ID }))
}

// RolloutEnvironmentsByRollout implements view.Reads.
func (r reader) RolloutEnvironmentsByRollout(
	ctx context.Context, organization int64, rollouts []int64,
) (map[int64][]core.RolloutEnvironment, error) {
	return under(ctx, r, organization, rollouts, "rollout environments", (*query.Queries).RolloutEnvironmentsByRollout,
		keyed(rolloutEnvironment, func(e core.RolloutEnvironment) int64 { return e.RolloutID }))
}

// DeploymentsByID implements view.Reads.
func (r reader) DeploymentsByID(ctx context.Context, organization int64, ids []int64) (map[int64]core.Deployment, error) {
	return byKey(ctx, r, organization, ids, "deployments", (*query.Queries).DeploymentsByID,
		keyed(deployment, func(d core.Deployment) int64 { return d.ID }))
}

// DeploymentsByRolloutEnvironment implements view.Reads.
func (r reader) DeploymentsByRolloutEnvironment(
	ctx context.Context, organization int64, rolloutEnvironments []int64,
) (map[int64][]core.Deployment, error) {
	return under(ctx, r, organization, rolloutEnvironments, "deployments", (*query.Queries).DeploymentsByRolloutEnvironment,
		keyed(deployment, func(d core.Deployment) int64 { return d.RolloutEnvironmentID }))
}

// DeploymentsByRollout implements rollout.Tx.
func (r reader) DeploymentsByRollout(ctx context.Context, organization int64, rollouts []int64) (map[int64][]core.Deployment, error) {
	return under(ctx, r, organization, rollouts, "deployments of rollouts", (*query.Queries).DeploymentsByRollout,
		keyed(deployment, func(d core.Deployment) int64 { return d.RolloutEnvironmentID }))
}

// EnvironmentsByRollout implements rollout.Tx.
func (r reader) EnvironmentsByRollout(ctx context.Context, organization int64, rollouts []int64) (map[int64]core.Environment, error) {
	return byKey(ctx, r, organization, rollouts, "environments of rollouts", (*query.Queries).EnvironmentsByRollout,
		keyed(environment, func(e core.Environment) int64 { return e.ID }))
}

// VersionsByDeployment implements view.Reads.
func (r reader) VersionsByDeployment(ctx context.Context, organization int64, deployments []int64) (map[int64][]core.Version, error) {
	return under(ctx, r, organization, deployments, "versions of deployments", (*query.Queries).VersionsByDeployment,
		func(row query.VersionsByDeploymentRow) (int64, core.Version) {
			return row.DeploymentID, version(row.Version)
		})
}

// SnapshotsByDeployment implements view.Reads.
func (r reader) SnapshotsByDeployment(ctx context.Context, organization int64, deployments []int64) (map[int64]core.Snapshot, error) {
	return byKey(ctx, r, organization, deployments, "snapshots", (*query.Queries).SnapshotsByDeployment,
		keyed(snapshot, func(s core.Snapshot) int64 { return s.DeploymentID }))
}

// AttemptsByDeployment implements view.Reads.
func (r reader) AttemptsByDeployment(ctx context.Context, organization int64, deployments []int64) (map[int64][]core.Snapshot, error) {
	return under(ctx, r, organization, deployments, "earlier snapshots", (*query.Queries).AttemptsByDeployment,
		func(row query.AttemptsByDeploymentRow) (int64, core.Snapshot) {
			return row.DeploymentID, core.Snapshot{
				DeploymentID: row.DeploymentID, CommitSHA: row.CommitSha, ManifestDigest: row.ManifestDigest, ReportedAt: row.ReportedAt,
			}
		})
}

// LinksByDeployment implements view.Reads.
func (r reader) LinksByDeployment(ctx context.Context, organization int64, deployments []int64) (map[int64]core.DeploymentLink, error) {
	return byKey(ctx, r, organization, deployments, "links", (*query.Queries).LinksByDeployment,
		keyed(deploymentLink, func(l core.DeploymentLink) int64 { return l.DeploymentID }))
}

// GatesByDeployment implements view.Reads.
func (r reader) GatesByDeployment(ctx context.Context, organization int64, deployments []int64) (map[int64][]core.DeploymentGate, error) {
	rows, err := under(ctx, r, organization, deployments, "gates of deployments", (*query.Queries).GatesByDeployment,
		func(row query.GatesByDeploymentRow) (int64, query.GatesByDeploymentRow) { return row.DeploymentID, row })
	found := make(map[int64][]core.DeploymentGate, len(rows))
	for id, of := range rows {
		found[id] = deploymentGates(of)
	}
	return found, err
}

// Journal implements view.Reads.
func (r reader) Journal(ctx context.Context, organization, rollout int64, p core.Page) (core.Slice[core.Transition], error) {
	found, err := r.JournalsByRollout(ctx, organization, []int64{rollout}, p)
	return found[rollout], err
}

// JournalsByRollout implements view.Reads.
func (r reader) JournalsByRollout(
	ctx context.Context, organization int64, rollouts []int64, p core.Page,
) (map[int64]core.Slice[core.Transition], error) {
	return pages(ctx, r, organization, rollouts, p, core.OrderCreated, core.JournalList,
		func(q *query.Queries, ids []int64, w core.Window) ([]query.JournalsByRolloutRow, error) {
			return q.JournalsByRollout(ctx, query.JournalsByRolloutParams{
				Ids: ids, OrganizationID: organization, Above: w.Above.Number, Below: w.Below.Number, Falling: w.Falling, AtMost: limit(w),
			})
		}, func(row query.JournalsByRolloutRow) (int64, core.Transition) {
			return row.RolloutID, transition(row)
		}, func(t core.Transition) int64 { return t.ID })
}

// CountJournalsByRollout implements view.Counts.
func (r reader) CountJournalsByRollout(ctx context.Context, organization int64, rollouts []int64) (map[int64]int, error) {
	return byKey(ctx, r, organization, rollouts, "lengths of journals", (*query.Queries).CountJournalsByRollout,
		func(row query.CountJournalsByRolloutRow) (int64, int) { return row.ID, int(row.Items) })
}
