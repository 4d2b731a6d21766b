// Package feed is the part of the store that keeps feeds and badges, and reads what they show.
//
// It decides nothing. Its types are embedded by those of package store, which gives them their transactions.
package feed

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/feed"
	"github.com/lockstep-cd/lockstep/services/domain/internal/store/control"
	"github.com/lockstep-cd/lockstep/services/domain/internal/store/query"
)

func author(kind string, id int64, name string) core.Author {
	return core.Author{Principal: core.Principal{Type: core.PrincipalType(kind), ID: id}, Name: name}
}

func one(r query.Feed) feed.Feed {
	return feed.Feed{
		ID: r.ID, Name: r.Name, Kind: feed.Kind(r.Kind), Author: author(r.PrincipalType, r.PrincipalID, r.PrincipalName), CreatedAt: r.CreatedAt,
		LastReadAt: r.LastReadAt,
	}
}

// Writes are what use cases read and change, in the transaction that Q is of.
type Writes struct {
	Q *query.Queries
	// Entered is the organization of the transaction; every statement names it.
	Entered int64
}

// Feeds implements feed.Tx.
func (w Writes) Feeds(ctx context.Context) ([]feed.Feed, error) {
	rows, err := w.Q.Feeds(ctx, w.Entered)
	all := make([]feed.Feed, len(rows))
	for i, r := range rows {
		all[i] = one(r)
	}
	return all, pg.Classify(err, "read feeds")
}

// LockFeeds implements feed.Tx.
func (w Writes) LockFeeds(ctx context.Context) error {
	return pg.Classify(w.Q.LockFeeds(ctx, w.Entered), "lock the feeds")
}

// AddFeed implements feed.Tx.
func (w Writes) AddFeed(ctx context.Context, f feed.Feed, digest []byte) (feed.Feed, error) {
	row, err := w.Q.InsertFeed(ctx, query.InsertFeedParams{
		OrganizationID: w.Entered, Name: f.Name, Kind: string(f.Kind), Digest: digest, PrincipalType: string(f.Author.Type),
		PrincipalID: f.Author.ID, PrincipalName: f.Author.Name,
	})
	return one(row), pg.Classify(err, "add feed %s", f.Name)
}

// RevokeFeed implements feed.Tx.
func (w Writes) RevokeFeed(ctx context.Context, id int64, at time.Time) error {
	return pg.Classify(w.Q.RevokeFeed(ctx, at, w.Entered, id), "revoke feed %d", id)
}

// FeedByDigest implements feed.Tx.
func (w Writes) FeedByDigest(ctx context.Context, kind feed.Kind, digest []byte) (feed.Feed, error) {
	row, err := w.Q.FeedByDigest(ctx, w.Entered, digest, string(kind))
	if errors.Is(err, pgx.ErrNoRows) {
		return feed.Feed{}, fault.New(fault.NotFound, "no feed has this token")
	}
	return one(row), pg.Classify(err, "find a feed")
}

// FeedRead implements feed.Tx.
func (w Writes) FeedRead(ctx context.Context, id int64, at time.Time) error {
	return pg.Classify(w.Q.FeedRead(ctx, at, w.Entered, id), "keep that feed %d was read", id)
}

// ProductionChanges implements feed.Tx.
func (w Writes) ProductionChanges(ctx context.Context, most int) ([]feed.Change, error) {
	rows, err := w.Q.ProductionChanges(ctx, int32(most), w.Entered)
	all := make([]feed.Change, len(rows))
	for i, r := range rows {
		all[i] = feed.Change{
			RolloutID: r.RolloutID, EnvironmentID: r.EnvironmentID, RollbackOf: r.RollbackOf, Application: r.Application, Environment: r.Environment,
			VersionSet: r.VersionSet, State: core.RolloutState(r.State), StartedAt: r.StartedAt, UpdatedAt: r.UpdatedAt,
		}
	}
	return all, pg.Classify(err, "read changes of production")
}

// FeedFreezes implements feed.Tx.
func (w Writes) FeedFreezes(ctx context.Context, since, now time.Time, most int) ([]feed.Freeze, error) {
	rows, err := w.Q.FeedFreezes(ctx, query.FeedFreezesParams{OrganizationID: w.Entered, Since: since, Now: now, Most: int32(most)})
	all := make([]feed.Freeze, len(rows))
	for i, r := range rows {
		all[i] = feed.Freeze{ID: r.ID, StartsAt: r.StartsAt, EndsAt: r.EndsAt, EndedAt: r.EndedAt, UpdatedAt: r.UpdatedAt}
		for _, tier := range r.Tiers {
			all[i].Scope = append(all[i].Scope, "tier "+tier)
		}
		all[i].Scope = append(append(all[i].Scope, r.Environments...), r.Applications...)
		all[i].Scope = append(all[i].Scope, core.Freeze{
			ApplicationLabels: control.Labels(r.ApplicationLabels), EnvironmentLabels: control.Labels(r.EnvironmentLabels),
		}.LabelWords()...)
	}
	return all, pg.Classify(err, "read freezes")
}

// ScheduledPipelines implements feed.Tx.
func (w Writes) ScheduledPipelines(ctx context.Context, most int) ([]feed.Pipeline, error) {
	rows, err := w.Q.ScheduledPipelines(ctx, w.Entered, int32(most))
	all := make([]feed.Pipeline, len(rows))
	for i, r := range rows {
		all[i] = feed.Pipeline{ApplicationID: r.ID, Application: r.Name, Definition: json.RawMessage(r.Definition), ChangedAt: r.CreatedAt}
	}
	return all, pg.Classify(err, "read pipelines with schedules")
}

// ScheduledEnvironments implements feed.Tx.
func (w Writes) ScheduledEnvironments(ctx context.Context, most int) ([]feed.OwnChecks, error) {
	rows, err := w.Q.ScheduledEnvironments(ctx, w.Entered, int32(most))
	all := make([]feed.OwnChecks, len(rows))
	for i, r := range rows {
		all[i] = feed.OwnChecks{Environment: r.Name, Checks: r.Checks, ChangedAt: r.UpdatedAt}
	}
	return all, pg.Classify(err, "read environments with schedules")
}

// Badges implements feed.Tx.
func (w Writes) Badges(ctx context.Context) ([]feed.Badge, error) {
	rows, err := w.Q.Badges(ctx, w.Entered)
	all := make([]feed.Badge, len(rows))
	for i, r := range rows {
		all[i] = feed.Badge{
			ApplicationID: r.ApplicationID, Application: r.Application, Enabled: r.Enabled,
			Author: author(r.PrincipalType, r.PrincipalID, r.PrincipalName), ChangedAt: r.ChangedAt,
		}
	}
	return all, pg.Classify(err, "read badges")
}

// SaveBadge implements feed.Tx.
func (w Writes) SaveBadge(ctx context.Context, b feed.Badge) error {
	err := w.Q.SaveBadge(ctx, query.SaveBadgeParams{
		OrganizationID: w.Entered, ApplicationID: b.ApplicationID, Enabled: b.Enabled, PrincipalType: string(b.Author.Type),
		PrincipalID: b.Author.ID, PrincipalName: b.Author.Name, ChangedAt: b.ChangedAt,
	})
	return pg.Classify(err, "save the badges of application %d", b.ApplicationID)
}

// BadgeState implements feed.Tx.
func (w Writes) BadgeState(ctx context.Context, application, environment string) (state core.RolloutState, live bool, err error) {
	row, err := w.Q.BadgeState(ctx, w.Entered, application, environment)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", false, fault.New(fault.NotFound, "no application of this name shows badges, or it does not go to this environment")
	}
	return core.RolloutState(row.Standing), row.Live, pg.Classify(err, "read the state of a badge")
}
