// Package forge is the part of the store that keeps which applications are published, what may have changed, the statuses of commits, and
// what is known of the servers that receive them.
//
// It decides nothing. Its types are embedded by those of package store, which gives them their transactions.
package forge

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/forge"
	"github.com/lockstep-cd/lockstep/services/domain/internal/store/query"
)

func mirror(r query.ForgeMirror) forge.Mirror {
	addresses := map[int64]string{}
	_ = json.Unmarshal(r.Addresses, &addresses) // it is written below; without them deployments have no address
	return forge.Mirror{
		Addresses:     addresses,
		ApplicationID: r.ApplicationID, EnvironmentIDs: r.EnvironmentIds, Credential: r.Credential, Enabled: r.Enabled, Plans: r.Plans,
		Deployments: r.Deployments,
		Author: core.Author{
			Principal: core.Principal{Type: core.PrincipalType(r.PrincipalType), ID: r.PrincipalID}, Name: r.PrincipalName,
		},
		ChangedAt: r.ChangedAt,
	}
}

func status(r query.ForgeStatus) forge.Status {
	return forge.Status{
		ID: r.ID, Repository: r.Repository, Host: r.Host, Commit: r.CommitSha, Name: r.Name,
		ApplicationID: r.ApplicationID, EnvironmentID: r.EnvironmentID,
		Kind: forge.Published(r.Kind), RolloutID: r.RolloutID, ForgeNumber: r.ForgeNumber,
		Part: forge.Part{
			Set: r.VersionSetID, Phase: core.CheckPhase(r.Phase), Stage: forge.Stage(r.Stage), Description: r.Description, Link: r.Link,
		},
		Credential: r.Credential,
		Revision:   int(r.Revision), SentRevision: int(r.SentRevision), BegunRevision: int(r.BegunRevision),
		CreatedAt: r.CreatedAt,
		Delivery: forge.Delivery{
			State: forge.State(r.State), DueAt: r.DueAt, Attempts: int(r.Attempts), Run: int(r.Run), Started: r.Started, Inputs: r.Inputs,
			Error: r.Error, SentAt: r.SentAt, AwaySince: r.AwaySince, SpentAt: r.SpentAt,
		},
	}
}

func quota(limit, remaining *int64, resets *time.Time) *forge.Quota {
	if limit == nil || remaining == nil || resets == nil {
		return nil
	}
	return &forge.Quota{Limit: *limit, Remaining: *remaining, ResetsAt: *resets}
}

// Reads are what the API and the use cases look at.
type Reads struct {
	// Run runs fn in a transaction of an organization.
	Run func(ctx context.Context, organization int64, fn func(*query.Queries) error) error
}

// ForgeMirrors implements forge.Reads.
func (r Reads) ForgeMirrors(ctx context.Context, organization int64) ([]forge.Mirror, error) {
	var all []forge.Mirror
	err := r.Run(ctx, organization, func(q *query.Queries) error {
		rows, err := q.ForgeMirrors(ctx, organization)
		all = make([]forge.Mirror, len(rows)) // assigned, not appended to: the transaction may run again
		for i, row := range rows {
			all[i] = mirror(row)
		}
		return pg.Classify(err, "read which applications are published")
	})
	return all, err
}

// ForgeStatuses implements forge.Reads.
func (r Reads) ForgeStatuses(ctx context.Context, organization int64, f forge.Filter) (all []forge.Status, err error) {
	err = r.Run(ctx, organization, func(q *query.Queries) error {
		rows, err := q.ForgeStatuses(ctx, query.ForgeStatusesParams{
			OrganizationID: organization, State: string(f.State), CommitSha: f.Commit, Kind: string(f.Kind), Before: f.Before, Most: int32(f.Most),
		})
		all = make([]forge.Status, len(rows))
		for i, row := range rows {
			all[i] = status(row)
		}
		return pg.Classify(err, "read statuses of commits")
	})
	return all, err
}

// ForgeHosts implements forge.Reads.
func (r Reads) ForgeHosts(ctx context.Context, organization int64) ([]forge.Host, error) {
	var all []forge.Host
	err := r.Run(ctx, organization, func(q *query.Queries) error {
		rows, err := q.ForgeHosts(ctx, organization)
		all = make([]forge.Host, len(rows))
		for i, row := range rows {
			all[i] = forge.Host{
				Host: row.Host, Standing: forge.Standing{PausedUntil: row.PausedUntil, Failures: int(row.Failures)}, Problem: row.Problem,
				Pulls: forge.Standing{PausedUntil: row.PullPausedUntil, Failures: int(row.PullFailures)}, WindowAt: row.WindowAt,
				WindowCount: int(row.WindowCount), Quota: quota(row.QuotaLimit, row.QuotaRemaining, row.QuotaResetsAt), Waiting: int(row.Waiting),
				SharedUntil: row.SharedPausedUntil,
			}
		}
		return pg.Classify(err, "read the servers that statuses are sent to")
	})
	return all, err
}

// Writes are what use cases change, in the transaction that Q is of.
type Writes struct {
	Q *query.Queries
	// Entered is the organization of the transaction; every statement names it.
	Entered int64
}

// SaveForgeMirror implements forge.Tx.
func (w Writes) SaveForgeMirror(ctx context.Context, m forge.Mirror) error {
	addresses, _ := json.Marshal(m.Addresses) // texts by numbers
	if m.Addresses == nil {
		addresses = []byte("{}")
	}
	err := w.Q.SaveForgeMirror(ctx, query.SaveForgeMirrorParams{
		OrganizationID: w.Entered, ApplicationID: m.ApplicationID, EnvironmentIds: m.EnvironmentIDs, Credential: m.Credential, Enabled: m.Enabled,
		Plans: m.Plans, Deployments: m.Deployments, Addresses: addresses, PrincipalType: string(m.Author.Type), PrincipalID: m.Author.ID,
		PrincipalName: m.Author.Name, ChangedAt: m.ChangedAt,
	})
	return pg.Classify(err, "save whether application %d is published", m.ApplicationID)
}

// ForgeOfCredential implements forge.Tx.
func (w Writes) ForgeOfCredential(ctx context.Context, name string) (string, error) {
	kind, err := w.Q.ForgeOfCredential(ctx, w.Entered, name)
	return kind, pg.Classify(err, "read the forge of credential %s", name)
}

// MarkForgeLive implements forge.Tx.
func (w Writes) MarkForgeLive(ctx context.Context, application int64) error {
	return pg.Classify(w.Q.MarkForgeLive(ctx, w.Entered, application), "mark what is live of application %d", application)
}

// DueForgeMark implements forge.Tx.
func (w Writes) DueForgeMark(ctx context.Context, at time.Time) (forge.Mark, bool, error) {
	row, err := w.Q.DueForgeMark(ctx, w.Entered, at)
	if errors.Is(err, pgx.ErrNoRows) {
		return forge.Mark{}, false, nil
	}
	if err != nil {
		return forge.Mark{}, false, pg.Classify(err, "find a mark that is due")
	}
	ids, err := w.Q.ForgeMarksOf(ctx, w.Entered, row.ApplicationID, row.VersionSetID)
	return forge.Mark{Application: row.ApplicationID, VersionSet: row.VersionSetID, IDs: ids}, err == nil && len(ids) > 0,
		pg.Classify(err, "read the marks of version set %d", row.VersionSetID)
}

// TakeForgeMarks implements forge.Tx.
func (w Writes) TakeForgeMarks(ctx context.Context, m forge.Mark) (bool, error) {
	if err := w.Q.LockForgeSubject(ctx, w.Entered, m.Application, m.VersionSet); err != nil {
		return false, pg.Classify(err, "lock version set %d", m.VersionSet)
	}
	deleted, err := w.Q.ForgetForgeMarks(ctx, m.IDs)
	if err != nil {
		return false, pg.Classify(err, "delete the marks of version set %d", m.VersionSet)
	}
	more, err := w.Q.ForgeMarksOf(ctx, w.Entered, m.Application, m.VersionSet)
	return deleted == int64(len(m.IDs)) && len(more) == 0, pg.Classify(err, "read the marks of version set %d", m.VersionSet)
}

// AddForgeMark implements forge.Tx.
func (w Writes) AddForgeMark(ctx context.Context, application, set int64, due time.Time) error {
	err := w.Q.InsertForgeMark(ctx, query.InsertForgeMarkParams{
		OrganizationID: w.Entered, ApplicationID: application, VersionSetID: set,
		DueAt: due,
	})
	return pg.Classify(err, "mark version set %d", set)
}

// PutOffForgeMarks implements forge.Tx.
func (w Writes) PutOffForgeMarks(ctx context.Context, m forge.Mark, until time.Time) error {
	return pg.Classify(w.Q.PutOffForgeMarks(ctx, until, w.Entered, m.IDs), "put off version set %d", m.VersionSet)
}

// LatestRolloutOfSet implements forge.Tx.
func (w Writes) LatestRolloutOfSet(ctx context.Context, application, set int64) (int64, error) {
	n, err := w.Q.LatestRolloutOfSet(ctx, w.Entered, application, set)
	return n, pg.Classify(err, "find the latest rollout of version set %d", set)
}

// ForgeLive implements forge.Tx.
func (w Writes) ForgeLive(ctx context.Context, application int64) (map[int64]forge.Live, error) {
	rows, err := w.Q.ForgeLive(ctx, w.Entered, application)
	all := map[int64]forge.Live{}
	for _, r := range rows {
		all[r.EnvironmentID] = forge.Live{VersionSet: r.VersionSetID, Name: r.Name, Since: r.LiveSince}
	}
	return all, pg.Classify(err, "read what is live of application %d", application)
}

// VersionsOfSet implements forge.Tx.
func (w Writes) VersionsOfSet(ctx context.Context, set int64) ([]forge.SetVersion, error) {
	rows, err := w.Q.VersionsOfSet(ctx, w.Entered, set)
	all := make([]forge.SetVersion, len(rows))
	for i, r := range rows {
		all[i] = forge.SetVersion{Version: core.Version{ID: r.ID, Digest: r.Digest, Reference: r.Reference}, Config: r.SourceConfig}
	}
	return all, pg.Classify(err, "read the versions of set %d", set)
}

// MergeForgeStatus implements forge.Tx.
func (w Writes) MergeForgeStatus(ctx context.Context, s forge.Status, onlyKnown bool) error {
	err := w.Q.MergeForgeStatus(ctx, query.MergeForgeStatusParams{
		OrganizationID: w.Entered, Repository: s.Repository, Host: s.Host, CommitSha: s.Commit, Name: s.Name,
		ApplicationID: s.ApplicationID, EnvironmentID: s.EnvironmentID, VersionSetID: s.Set, Phase: string(s.Phase),
		Description: s.Description, Link: s.Link, Credential: s.Credential, DueAt: s.DueAt, Kind: string(cmp.Or(s.Kind, forge.PublishedStatus)),
		Stage: string(s.Stage), RolloutID: s.RolloutID, OnlyKnown: onlyKnown,
	})
	return pg.Classify(err, "store status %s of %s", s.Name, s.Commit)
}

// OpenForgeDeployments implements forge.Tx.
func (w Writes) OpenForgeDeployments(ctx context.Context, application, set int64) ([]int64, error) {
	all, err := w.Q.OpenForgeDeployments(ctx, w.Entered, application, set)
	return all, pg.Classify(err, "read the deployments of version set %d at forges", set)
}

// DueForgeStatus implements forge.Tx.
func (w Writes) DueForgeStatus(ctx context.Context, at time.Time, together int) (forge.Status, bool, error) {
	row, err := w.Q.DueForgeStatus(ctx, w.Entered, at, int64(together))
	if errors.Is(err, pgx.ErrNoRows) {
		return forge.Status{}, false, nil
	}
	if err != nil {
		return forge.Status{}, false, pg.Classify(err, "find a status that is due")
	}
	return status(row), true, nil
}

// LockForgeStatus implements forge.Tx.
func (w Writes) LockForgeStatus(ctx context.Context, id int64) (forge.Status, error) {
	row, err := w.Q.LockForgeStatus(ctx, w.Entered, id)
	if errors.Is(err, pgx.ErrNoRows) {
		return forge.Status{}, fault.Because(err, fault.NotFound, "status %d does not exist", id)
	}
	if err != nil {
		return forge.Status{}, pg.Classify(err, "read status %d", id)
	}
	return status(row), nil
}

// SaveForgeStatus implements forge.Tx.
func (w Writes) SaveForgeStatus(ctx context.Context, s forge.Status) error {
	err := w.Q.SaveForgeStatus(ctx, query.SaveForgeStatusParams{
		OrganizationID: w.Entered, ID: s.ID, State: string(s.State), DueAt: s.DueAt, Attempts: int32(s.Attempts), Run: int32(s.Run),
		Started: s.Started,
		Inputs:  s.Inputs, BegunRevision: int32(s.BegunRevision), SentRevision: int32(s.SentRevision), Error: s.Error, SentAt: s.SentAt,
		AwaySince: s.AwaySince, ForgeNumber: s.ForgeNumber, SpentAt: s.SpentAt,
	})
	return pg.Classify(err, "save status %d", s.ID)
}

// ForgeNumbersOfOthers implements forge.Tx.
func (w Writes) ForgeNumbersOfOthers(ctx context.Context, status int64, repository, environment string) ([]int64, error) {
	all, err := w.Q.ForgeNumbersOfOthers(ctx, query.ForgeNumbersOfOthersParams{
		OrganizationID: w.Entered, Status: status, Place: repository, Title: environment,
	})
	return all, pg.Classify(err, "read which deployments of %s belong to others", repository)
}

// ForgeStatusesSending implements forge.Tx.
func (w Writes) ForgeStatusesSending(ctx context.Context, host string) (int, error) {
	n, err := w.Q.ForgeStatusesSending(ctx, w.Entered, host)
	return int(n), pg.Classify(err, "count what is sent to %s", host)
}

// RetryForgeStatuses implements forge.Tx.
func (w Writes) RetryForgeStatuses(ctx context.Context, id int64, at time.Time, most int) (int, error) {
	n, err := w.Q.RetryForgeStatuses(ctx, query.RetryForgeStatusesParams{OrganizationID: w.Entered, ID: id, Most: int32(most), DueAt: at})
	return int(n), pg.Classify(err, "send statuses again")
}

// ForgetForgeStatuses implements forge.Tx.
func (w Writes) ForgetForgeStatuses(ctx context.Context, before time.Time, most int) error {
	_, err := w.Q.ForgetForgeStatuses(ctx, before, int32(most))
	return pg.Classify(err, "delete old statuses of commits")
}

// LockForgeHost implements forge.Tx.
func (w Writes) LockForgeHost(ctx context.Context, host string) (forge.Host, error) {
	r, err := w.Q.LockForgeHost(ctx, w.Entered, host)
	if err != nil {
		return forge.Host{}, pg.Classify(err, "lock server %s", host)
	}
	return forge.Host{
		Host: r.Host, Standing: forge.Standing{PausedUntil: r.PausedUntil, Failures: int(r.Failures)}, Problem: r.Problem,
		Pulls: forge.Standing{PausedUntil: r.PullPausedUntil, Failures: int(r.PullFailures)}, WindowAt: r.WindowAt,
		WindowCount: int(r.WindowCount), PullWindowAt: r.PullWindowAt, PullWindowCount: int(r.PullWindowCount),
		Quota: quota(r.QuotaLimit, r.QuotaRemaining, r.QuotaResetsAt), SharedUntil: r.SharedPausedUntil,
	}, nil
}

// SaveForgeHost implements forge.Tx.
func (w Writes) SaveForgeHost(ctx context.Context, h forge.Host) error {
	p := query.SaveForgeHostParams{
		OrganizationID: w.Entered, Host: h.Host, PausedUntil: h.PausedUntil, Problem: h.Problem, Failures: int32(h.Failures),
		WindowAt: h.WindowAt, WindowCount: int32(h.WindowCount), PullWindowAt: h.PullWindowAt, PullWindowCount: int32(h.PullWindowCount),
		PullPausedUntil: h.Pulls.PausedUntil, PullFailures: int32(h.Pulls.Failures), SharedPausedUntil: h.SharedUntil,
	}
	if q := h.Quota; q != nil {
		p.QuotaLimit, p.QuotaRemaining, p.QuotaResetsAt = &q.Limit, &q.Remaining, &q.ResetsAt
	}
	return pg.Classify(w.Q.SaveForgeHost(ctx, p), "save server %s", h.Host)
}

// OwnForgeCredential implements forge.Tx.
func (w Writes) OwnForgeCredential(ctx context.Context, credential, repository string) (bool, error) {
	own, err := w.Q.OwnForgeCredential(ctx, w.Entered, credential, repository)
	return own, pg.Classify(err, "read whose credential is used for %s", repository)
}

// LockForgeBudget implements forge.Tx.
func (w Writes) LockForgeBudget(ctx context.Context, host string) (forge.Budget, error) {
	b, err := w.Q.LockForgeBudget(ctx, host)
	return forge.Budget{
		WindowAt: b.WindowAt, WindowCount: int(b.WindowCount), PausedUntil: b.PausedUntil,
		Quota: quota(b.QuotaLimit, b.QuotaRemaining, b.QuotaResetsAt),
	}, pg.Classify(err, "lock what all organizations send to %s", host)
}

// SaveForgeBudget implements forge.Tx.
func (w Writes) SaveForgeBudget(ctx context.Context, host string, b forge.Budget) error {
	p := query.SaveForgeBudgetParams{Host: host, WindowAt: b.WindowAt, WindowCount: int32(b.WindowCount), PausedUntil: b.PausedUntil}
	if q := b.Quota; q != nil {
		p.QuotaLimit, p.QuotaRemaining, p.QuotaResetsAt = &q.Limit, &q.Remaining, &q.ResetsAt
	}
	return pg.Classify(w.Q.SaveForgeBudget(ctx, p), "save what all organizations send to %s", host)
}

// ForgetForgeBudgets implements forge.Tx.
func (w Writes) ForgetForgeBudgets(ctx context.Context, before time.Time) error {
	return pg.Classify(w.Q.ForgetForgeBudgets(ctx, before), "delete what nobody sends with")
}

// HurryForgeStatus implements rollout.Tx.
func (w Writes) HurryForgeStatus(ctx context.Context, id int64, run int, at time.Time) error {
	err := w.Q.HurryForgeStatus(ctx, query.HurryForgeStatusParams{OrganizationID: w.Entered, ID: id, Run: int32(run), At: at})
	return pg.Classify(err, "hurry status %d", id)
}
