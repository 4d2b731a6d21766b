package graph

import (
	"context"

	"github.com/lockstep-cd/lockstep/services/domain/internal/api/graph/model"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/feed"
)

// Feeds is what the API needs of package feed.
type Feeds interface {
	Feeds(ctx context.Context, organization int64) ([]feed.Feed, error)
	Create(ctx context.Context, a core.Actor, name string, kind feed.Kind, reason string) (made feed.Feed, address string, err error)
	Revoke(ctx context.Context, a core.Actor, name, reason string) (feed.Feed, error)
	Badges(ctx context.Context, organization int64) ([]feed.Badge, error)
	SetBadges(ctx context.Context, a core.Actor, application string, enabled bool, reason string) (feed.Badge, error)
	BadgeAddress(organization int64, application string) string
}

var _ Feeds = (*feed.UseCases)(nil)

// Feeds are those of the organization.
func (q query) Feeds(ctx context.Context) ([]model.Feed, error) {
	all, err := q.domain.Feeds.Feeds(ctx, loadersOf(ctx).actor.Organization)
	return wrapAll(all, model.WrapFeed), err
}

// Badges are those of the organization.
func (q query) Badges(ctx context.Context) ([]model.Badges, error) {
	all, err := q.domain.Feeds.Badges(ctx, loadersOf(ctx).actor.Organization)
	return wrapAll(all, badgesOf(ctx, q.domain.Feeds)), err
}

func badgesOf(ctx context.Context, feeds Feeds) func(feed.Badge) model.Badges {
	organization := loadersOf(ctx).actor.Organization
	return func(b feed.Badge) model.Badges {
		return model.Badges{
			Application: b.Application, Enabled: b.Enabled, URL: feeds.BadgeAddress(organization, b.Application), Author: b.Author.Name,
			ChangedAt: b.ChangedAt,
		}
	}
}

// CreateFeed makes a feed, and shows its address this once.
func (m mutation) CreateFeed(ctx context.Context, in model.CreateFeedInput) (p model.CreateFeedPayload, err error) {
	made, address, err := m.domain.Feeds.Create(ctx, loadersOf(ctx).actor, in.Name, in.Kind, orEmpty(in.Reason))
	if err == nil {
		p.URL = &address
	}
	p.Feed, p.Errors, err = changed(made, err, model.WrapFeed)
	return p, err
}

// RevokeFeed ends one.
func (m mutation) RevokeFeed(ctx context.Context, in model.RevokeFeedInput) (p model.FeedPayload, err error) {
	ended, err := m.domain.Feeds.Revoke(ctx, loadersOf(ctx).actor, in.Name, orEmpty(in.Reason))
	p.Feed, p.Errors, err = changed(ended, err, model.WrapFeed)
	return p, err
}

// SetBadges switches the badges of an application on or off.
func (m mutation) SetBadges(ctx context.Context, in model.SetBadgesInput) (p model.BadgesPayload, err error) {
	saved, err := m.domain.Feeds.SetBadges(ctx, loadersOf(ctx).actor, in.Application, in.Enabled, orEmpty(in.Reason))
	p.Badges, p.Errors, err = changed(saved, err, badgesOf(ctx, m.domain.Feeds))
	return p, err
}
