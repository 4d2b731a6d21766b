package forge

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/forge"
	"github.com/lockstep-cd/lockstep/services/domain/internal/store/query"
)

func hook(r query.ForgeHook) forge.Hook {
	return forge.Hook{
		ID: r.ID, Key: r.Key, Forge: r.Forge, Repositories: r.Repositories, CheckKeys: r.CheckKeys, Plans: r.Plans, Commands: r.Commands,
		CreatedAt: r.CreatedAt,
		Author:    core.Author{Principal: core.Principal{Type: core.PrincipalType(r.PrincipalType), ID: r.PrincipalID}, Name: r.PrincipalName},
	}
}

// ForgeHooks implements forge.Reads.
func (r Reads) ForgeHooks(ctx context.Context, organization int64) ([]forge.Hook, error) {
	var all []forge.Hook
	err := r.Run(ctx, organization, func(q *query.Queries) error {
		rows, err := q.ForgeHooks(ctx, organization)
		all = make([]forge.Hook, len(rows))
		for i, row := range rows {
			all[i] = hook(row.ForgeHook)
			if row.ReportedAt.Unix() > 0 {
				all[i].ReportedAt = &row.ReportedAt
			}
		}
		return pg.Classify(err, "read hooks of forges")
	})
	return all, err
}

// LockForgeHooks implements forge.Tx.
func (w Writes) LockForgeHooks(ctx context.Context) error {
	return pg.Classify(w.Q.LockForgeHooks(ctx, w.Entered), "lock the hooks of forges")
}

// AddForgeHook implements forge.Tx.
func (w Writes) AddForgeHook(ctx context.Context, h forge.Hook) (forge.Hook, error) {
	row, err := w.Q.InsertForgeHook(ctx, query.InsertForgeHookParams{
		OrganizationID: w.Entered, Key: h.Key, Forge: h.Forge, Repositories: h.Repositories, CheckKeys: h.CheckKeys,
		Plans: h.Plans, Commands: h.Commands, PrincipalType: string(h.Author.Type), PrincipalID: h.Author.ID, PrincipalName: h.Author.Name,
		CreatedAt: h.CreatedAt,
	})
	return hook(row), pg.Classify(err, "add a hook of %s", h.Forge)
}

// RemoveForgeHook implements forge.Tx.
func (w Writes) RemoveForgeHook(ctx context.Context, id int64, at time.Time) (forge.Hook, error) {
	row, err := w.Q.RemoveForgeHook(ctx, &at, w.Entered, id)
	return found(row, err, "hook %d does not exist", id)
}

// ForgeHookByKey implements forge.Tx.
func (w Writes) ForgeHookByKey(ctx context.Context, key string) (forge.Hook, error) {
	row, err := w.Q.ForgeHookByKey(ctx, w.Entered, key)
	return found(row, err, "hook %.64s does not exist", key)
}

func found(row query.ForgeHook, err error, absent string, args ...any) (forge.Hook, error) {
	if errors.Is(err, pgx.ErrNoRows) {
		return forge.Hook{}, fault.Because(err, fault.NotFound, absent, args...)
	}
	return hook(row), pg.Classify(err, "read a hook")
}

// LockForgeCommit implements forge.Tx.
func (w Writes) LockForgeCommit(ctx context.Context, sha string) error {
	return pg.Classify(w.Q.LockForgeCommit(ctx, w.Entered, sha), "lock commit %s", sha)
}

// SaveForgeReport implements forge.Tx.
func (w Writes) SaveForgeReport(ctx context.Context, r forge.Received) (bool, error) {
	kind := r.Kind
	if kind == "" {
		var err error
		if kind, err = w.Q.KindOfForgeReport(ctx, query.KindOfForgeReportParams{
			OrganizationID: w.Entered, HookID: r.HookID, Repository: r.Repository, CommitSha: r.Commit, Context: r.Context,
		}); err != nil {
			return false, pg.Classify(err, "read the kind of reports about commit %s", r.Commit)
		}
	}
	n, err := w.Q.SaveForgeReport(ctx, query.SaveForgeReportParams{
		OrganizationID: w.Entered, HookID: r.HookID, Repository: r.Repository, CommitSha: r.Commit, Context: r.Context, Kind: kind,
		Phase: string(r.Phase), Description: r.Description, Link: r.Link, ObservedAt: r.ObservedAt, Sequence: r.Sequence,
	})
	return n > 0, pg.Classify(err, "store a report about commit %s", r.Commit)
}

// ForgeReports implements forge.Tx.
func (w Writes) ForgeReports(ctx context.Context, commits []string) ([]forge.Received, error) {
	rows, err := w.Q.ForgeReports(ctx, w.Entered, commits)
	all := make([]forge.Received, len(rows))
	for i, row := range rows {
		all[i] = received(row.ForgeReport, row.CheckKeys)
	}
	return all, pg.Classify(err, "read reports about %d commits", len(commits))
}

// SaveForgeCommit implements forge.Tx.
func (w Writes) SaveForgeCommit(ctx context.Context, application, set int64, sha string) error {
	err := w.Q.SaveForgeCommit(ctx, query.SaveForgeCommitParams{
		OrganizationID: w.Entered, ApplicationID: application, VersionSetID: set, CommitSha: sha,
	})
	return pg.Classify(err, "store a commit of version set %d", set)
}

// KeepForgeReports implements forge.Tx.
func (w Writes) KeepForgeReports(ctx context.Context, commits []string) error {
	return pg.Classify(w.Q.KeepForgeReports(ctx, w.Entered, commits), "keep reports about %d commits", len(commits))
}

// MarkForgeCommit implements forge.Tx.
func (w Writes) MarkForgeCommit(ctx context.Context, sha string) error {
	return pg.Classify(w.Q.MarkForgeCommit(ctx, w.Entered, sha), "mark what comes from commit %s", sha)
}

// MarkForgeRollouts implements forge.Tx.
func (w Writes) MarkForgeRollouts(ctx context.Context) error {
	return pg.Classify(w.Q.MarkForgeRollouts(ctx, w.Entered), "mark what is being rolled out")
}

// ForgetForgeReports implements forge.Tx.
func (w Writes) ForgetForgeReports(ctx context.Context, before time.Time, most int) error {
	_, err := w.Q.ForgetForgeReports(ctx, before, int32(most))
	return pg.Classify(err, "delete old reports of forges")
}

func received(r query.ForgeReport, keys []string) forge.Received {
	return forge.Received{HookID: r.HookID, CheckKeys: keys, Report: forge.Report{
		Repository: r.Repository, Commit: r.CommitSha, Kind: r.Kind, Context: r.Context, Phase: core.CheckPhase(r.Phase),
		Description: r.Description, Link: r.Link, ObservedAt: r.ObservedAt, Sequence: r.Sequence,
	}}
}

// ForgeReportsOf implements forge.Reads.
func (r Reads) ForgeReportsOf(ctx context.Context, organization int64, f forge.ReportFilter) ([]forge.Known, error) {
	var all []forge.Known
	err := r.Run(ctx, organization, func(q *query.Queries) error {
		known := func(r query.ForgeReport, keys []string) {
			all = append(all, forge.Known{Received: received(r, keys), ID: r.ID, ChangedAt: r.UpdatedAt, Counted: r.Counted})
		}
		if f.Commit == "" {
			rows, err := q.ForgeReportsOf(ctx, organization, f.Before, int32(f.Most))
			for _, row := range rows {
				known(row.ForgeReport, row.CheckKeys)
			}
			return pg.Classify(err, "read reports of forges")
		}
		rows, err := q.ForgeReportsOfCommit(ctx, query.ForgeReportsOfCommitParams{
			OrganizationID: organization, CommitSha: f.Commit, Before: f.Before, Most: int32(f.Most),
		})
		for _, row := range rows {
			known(row.ForgeReport, row.CheckKeys)
		}
		return pg.Classify(err, "read reports of forges about a commit")
	})
	return all, err
}
