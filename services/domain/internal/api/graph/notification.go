package graph

import (
	"context"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/api/graph/model"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/chat"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/feed"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/forge"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/notify"
)

// Notify is what the API needs of package notify.
type Notify interface {
	PutChannel(ctx context.Context, a core.Actor, n notify.NewChannel) (core.NotificationChannel, error)
	RemoveChannel(ctx context.Context, a core.Actor, name, reason string) (core.NotificationChannel, error)
	PutRoute(ctx context.Context, a core.Actor, n notify.NewRoute) (core.NotificationRoute, error)
	RemoveRoute(ctx context.Context, a core.Actor, name, reason string) (core.NotificationRoute, error)
	TestRoute(ctx context.Context, a core.Actor, name string) (core.NotificationRoute, error)
	Retry(ctx context.Context, a core.Actor, message int64) (core.NotificationMessage, error)
	Channels(ctx context.Context, organization int64) ([]core.NotificationChannel, error)
	Routes(ctx context.Context, organization int64) ([]core.NotificationRoute, error)
	Messages(ctx context.Context, organization int64, f notify.Filter) ([]core.NotificationMessage, error)
	Openings(ctx context.Context, organization int64, messages []int64) (map[int64][]core.NotificationOpening, error)
	Preview(ctx context.Context, a core.Actor, n notify.NewPreview) (notify.Preview, error)
	OpenLink(ctx context.Context, a core.Actor, token string) (notify.OpenedLink, error)
	MyChannels(ctx context.Context, a core.Actor) ([]notify.MyChannel, error)
	MySubscriptions(ctx context.Context, a core.Actor) ([]core.NotificationSubscription, error)
	MyMessages(ctx context.Context, a core.Actor, most int) ([]core.NotificationMessage, error)
	PutMine(ctx context.Context, a core.Actor, n notify.NewSubscription) (core.NotificationSubscription, error)
	RemoveMine(ctx context.Context, a core.Actor, name string) (core.NotificationSubscription, error)
	RetryMine(ctx context.Context, a core.Actor, message int64) (core.NotificationMessage, error)
}

var _ Notify = (*notify.UseCases)(nil)

// NotificationKinds are all kinds of channels.
func (query) NotificationKinds(context.Context) ([]model.NotificationKindDescription, error) {
	var all []model.NotificationKindDescription
	for _, k := range notify.Kinds() {
		all = append(all, model.NotificationKindDescription{
			Kind: k.Kind, Description: k.Description, Schema: k.Schema, Defaults: notify.Defaults(k.Kind),
		})
	}
	return all, nil
}

// NotificationPreview is what a channel would say.
func (q query) NotificationPreview(
	ctx context.Context, channel string, event core.NotificationMoment, title, text *string,
) (model.NotificationPreview, error) {
	p, err := q.domain.Notify.Preview(ctx, loadersOf(ctx).actor, notify.NewPreview{Channel: channel, Moment: event, Title: title, Text: text})
	return model.NotificationPreview(p), err
}

// NotificationChannels are those of the organization.
func (q query) NotificationChannels(ctx context.Context) ([]model.NotificationChannel, error) {
	channels, err := q.domain.Notify.Channels(ctx, loadersOf(ctx).actor.Organization)
	all := []model.NotificationChannel{}
	for _, c := range channels {
		all = append(all, model.WrapNotificationChannel(c))
	}
	return all, err
}

// NotificationRoutes are those of the organization.
func (q query) NotificationRoutes(ctx context.Context) ([]model.NotificationRoute, error) {
	names, err := namesOfNotifications(ctx, q.domain.Notify)
	if err != nil {
		return nil, err
	}
	all := []model.NotificationRoute{}
	for _, r := range names.list {
		all = append(all, names.route(r))
	}
	return all, nil
}

// NotificationMessages are those of the organization, the newest first.
func (q query) NotificationMessages(
	ctx context.Context, state *core.NotificationState, channel *string, before *int, first int,
) ([]model.NotificationMessage, error) {
	names, err := namesOfNotifications(ctx, q.domain.Notify)
	if err != nil {
		return nil, err
	}
	f := notify.Filter{Most: first}
	if state != nil {
		f.State = *state
	}
	if before != nil {
		f.Before = int64(*before)
	}
	if channel != nil {
		for id, name := range names.channels {
			if name == *channel {
				f.ChannelID = id
			}
		}
		if f.ChannelID == 0 {
			return nil, fault.New(fault.NotFound, "channel %.100q does not exist", *channel)
		}
	}
	messages, err := q.domain.Notify.Messages(ctx, loadersOf(ctx).actor.Organization, f)
	all := []model.NotificationMessage{}
	for _, m := range messages {
		all = append(all, names.message(m))
	}
	return all, err
}

// notificationNames are the names of channels and routes, by their numbers.
type notificationNames struct {
	list             []core.NotificationRoute
	channels, routes map[int64]string
}

func namesOfNotifications(ctx context.Context, n Notify) (notificationNames, error) {
	organization := loadersOf(ctx).actor.Organization
	names := notificationNames{channels: map[int64]string{}, routes: map[int64]string{}}
	channels, err := n.Channels(ctx, organization)
	if err != nil {
		return names, err
	}
	for _, c := range channels {
		names.channels[c.ID] = c.Name
	}
	names.list, err = n.Routes(ctx, organization)
	for _, r := range names.list {
		names.routes[r.ID] = r.Name
	}
	return names, err
}

func (n notificationNames) route(r core.NotificationRoute) model.NotificationRoute {
	return model.NotificationRoute{
		Name: r.Name, Channel: n.channels[r.ChannelID], Config: r.Config, Enabled: r.Enabled, Author: r.Author.Name, ChangedAt: r.ChangedAt,
		Problem: r.Problem,
	}
}

func (n notificationNames) message(m core.NotificationMessage) model.NotificationMessage {
	return model.NotificationMessage{NotificationMessage: m, Channel: n.channels[m.ChannelID], Route: n.routes[m.RouteID]}
}

func (n notificationNames) subscription(s core.NotificationSubscription) model.MyNotification {
	return model.MyNotification{
		Name: s.Name, Channel: n.channels[s.ChannelID], Config: s.Config, Enabled: s.Enabled, ChangedAt: s.ChangedAt,
	}
}

// MyNotificationChannels are those that the viewer may subscribe to.
func (q query) MyNotificationChannels(ctx context.Context) ([]model.MyNotificationChannel, error) {
	channels, err := q.domain.Notify.MyChannels(ctx, loadersOf(ctx).actor)
	return wrapAll(channels, model.WrapMyNotificationChannel), err
}

// MyNotifications are the viewer's subscriptions.
func (q query) MyNotifications(ctx context.Context) ([]model.MyNotification, error) {
	names, err := namesOfNotifications(ctx, q.domain.Notify)
	if err != nil {
		return nil, err
	}
	all, err := q.domain.Notify.MySubscriptions(ctx, loadersOf(ctx).actor)
	return wrapAll(all, names.subscription), err
}

// MyNotificationMessages are those to the viewer, the newest first.
func (q query) MyNotificationMessages(ctx context.Context, first int) ([]model.NotificationMessage, error) {
	names, err := namesOfNotifications(ctx, q.domain.Notify)
	if err != nil {
		return nil, err
	}
	all, err := q.domain.Notify.MyMessages(ctx, loadersOf(ctx).actor, first)
	return wrapAll(all, names.message), err
}

// PutMyNotification saves a subscription of the viewer.
func (m mutation) PutMyNotification(ctx context.Context, in model.PutMyNotificationInput) (model.MyNotificationPayload, error) {
	n := notify.NewSubscription{Name: in.Name, Channel: in.Channel, Config: in.Config, Enabled: in.Enabled}
	if string(n.Config) == "null" {
		n.Config = nil
	}
	saved, err := m.domain.Notify.PutMine(ctx, loadersOf(ctx).actor, n)
	return m.subscriptionPayload(ctx, saved, err)
}

// RemoveMyNotification removes one.
func (m mutation) RemoveMyNotification(ctx context.Context, in model.RemoveMyNotificationInput) (model.MyNotificationPayload, error) {
	removed, err := m.domain.Notify.RemoveMine(ctx, loadersOf(ctx).actor, in.Name)
	return m.subscriptionPayload(ctx, removed, err)
}

func (m mutation) subscriptionPayload(
	ctx context.Context, s core.NotificationSubscription, err error,
) (p model.MyNotificationPayload, _ error) {
	names := notificationNames{}
	if err == nil {
		names, err = namesOfNotifications(ctx, m.domain.Notify)
	}
	p.Subscription, p.Errors, err = changed(s, err, names.subscription)
	return p, err
}

// RetryMyNotification sends a message to the viewer again.
func (m mutation) RetryMyNotification(ctx context.Context, in model.RetryMyNotificationInput) (model.NotificationMessagePayload, error) {
	message, err := m.domain.Notify.RetryMine(ctx, loadersOf(ctx).actor, int64(in.Number))
	return m.messagePayload(ctx, message, err)
}

// notificationMessage resolves the fields of NotificationMessage that are loaded.
type notificationMessage struct{}

// Rollout is the one that it is about.
func (notificationMessage) Rollout(ctx context.Context, m *model.NotificationMessage) (*model.Rollout, error) {
	return optional(ctx, loadersOf(ctx).rollouts, m.RolloutID, model.WrapRollout)
}

// Openings are the links of it that were opened.
func (notificationMessage) Openings(ctx context.Context, m *model.NotificationMessage) ([]model.NotificationOpening, error) {
	return list(ctx, loadersOf(ctx).openingsOf, m.ID, model.WrapNotificationOpening)
}

// notificationLink resolves the fields of NotificationLink that are loaded.
type notificationLink struct{}

// Rollout is the one that its question is about.
func (notificationLink) Rollout(ctx context.Context, l *model.NotificationLink) (*model.Rollout, error) {
	return optional(ctx, loadersOf(ctx).rollouts, l.RolloutID, model.WrapRollout)
}

// CallRequest is the call that its question is about.
func (notificationLink) CallRequest(ctx context.Context, l *model.NotificationLink) (*model.CallRequest, error) {
	if l.Gate != "" {
		return nil, nil
	}
	return optional(ctx, loadersOf(ctx).callRequests, l.RequestID, model.WrapCallRequest)
}

// OpenNotificationLink opens the question that a message links to.
func (m mutation) OpenNotificationLink(
	ctx context.Context, in model.OpenNotificationLinkInput,
) (p model.NotificationLinkPayload, err error) {
	opened, err := m.domain.Notify.OpenLink(ctx, loadersOf(ctx).actor, in.Token)
	p.Link, p.Errors, err = changed(opened, err, model.WrapNotificationLink)
	return p, err
}

// PutNotificationChannel saves a channel.
func (m mutation) PutNotificationChannel(
	ctx context.Context, in model.PutNotificationChannelInput,
) (p model.NotificationChannelPayload, err error) {
	saved, err := m.domain.Notify.PutChannel(ctx, loadersOf(ctx).actor, notify.NewChannel{
		Name: in.Name, Kind: in.Kind, Config: in.Config, Rate: in.Rate, Enabled: in.Enabled, Reason: orEmpty(in.Reason),
	})
	p.Channel, p.Errors, err = changed(saved, err, model.WrapNotificationChannel)
	return p, err
}

// RemoveNotificationChannel removes one.
func (m mutation) RemoveNotificationChannel(
	ctx context.Context, in model.RemoveNotificationChannelInput,
) (p model.NotificationChannelPayload, err error) {
	removed, err := m.domain.Notify.RemoveChannel(ctx, loadersOf(ctx).actor, in.Name, orEmpty(in.Reason))
	p.Channel, p.Errors, err = changed(removed, err, model.WrapNotificationChannel)
	return p, err
}

// PutNotificationRoute saves a route.
func (m mutation) PutNotificationRoute(
	ctx context.Context, in model.PutNotificationRouteInput,
) (model.NotificationRoutePayload, error) {
	n := notify.NewRoute{Name: in.Name, Channel: in.Channel, Config: in.Config, Enabled: in.Enabled, Reason: orEmpty(in.Reason)}
	if string(n.Config) == "null" {
		n.Config = nil
	}
	saved, err := m.domain.Notify.PutRoute(ctx, loadersOf(ctx).actor, n)
	return m.routePayload(ctx, saved, err)
}

func (m mutation) routePayload(ctx context.Context, r core.NotificationRoute, err error) (p model.NotificationRoutePayload, _ error) {
	names := notificationNames{}
	if err == nil {
		names, err = namesOfNotifications(ctx, m.domain.Notify)
	}
	p.Route, p.Errors, err = changed(r, err, names.route)
	return p, err
}

// RemoveNotificationRoute removes one.
func (m mutation) RemoveNotificationRoute(
	ctx context.Context, in model.RemoveNotificationRouteInput,
) (model.NotificationRoutePayload, error) {
	removed, err := m.domain.Notify.RemoveRoute(ctx, loadersOf(ctx).actor, in.Name, orEmpty(in.Reason))
	return m.routePayload(ctx, removed, err)
}

// TestNotificationRoute sends a test message.
func (m mutation) TestNotificationRoute(
	ctx context.Context, in model.TestNotificationRouteInput,
) (model.NotificationRoutePayload, error) {
	tested, err := m.domain.Notify.TestRoute(ctx, loadersOf(ctx).actor, in.Name)
	return m.routePayload(ctx, tested, err)
}

// RetryNotification sends a dead letter again.
func (m mutation) RetryNotification(
	ctx context.Context, in model.RetryNotificationInput,
) (model.NotificationMessagePayload, error) {
	message, err := m.domain.Notify.Retry(ctx, loadersOf(ctx).actor, int64(in.Number))
	return m.messagePayload(ctx, message, err)
}

func (m mutation) messagePayload(
	ctx context.Context, message core.NotificationMessage, err error,
) (p model.NotificationMessagePayload, _ error) {
	names := notificationNames{}
	if err == nil {
		names, err = namesOfNotifications(ctx, m.domain.Notify)
	}
	p.Message, p.Errors, err = changed(message, err, names.message)
	return p, err
}

// Forges is what the API needs of package forge.
type Forges interface {
	PutMirror(ctx context.Context, a core.Actor, n forge.NewMirror) (forge.Named, error)
	Mirrors(ctx context.Context, organization int64) ([]forge.Named, error)
	Statuses(ctx context.Context, organization int64, f forge.Filter) ([]forge.Status, error)
	Hosts(ctx context.Context, organization int64) ([]forge.Host, error)
	Pulls(ctx context.Context, organization, before int64, most int) ([]forge.Pull, error)
	Retry(ctx context.Context, a core.Actor, status int64, reason string) (forge.Retried, error)
	Hooks(ctx context.Context, organization int64) ([]forge.Hook, error)
	Reports(ctx context.Context, organization int64, f forge.ReportFilter) ([]forge.Known, error)
	Refusals(ctx context.Context, a core.Actor) ([]forge.Refusal, error)
	AddHook(ctx context.Context, a core.Actor, n forge.NewHook) (forge.MadeHook, error)
	RemoveHook(ctx context.Context, a core.Actor, number int64, reason string) (forge.Hook, error)
}

var _ Forges = (*forge.UseCases)(nil)

// ForgeMirrors are those of the organization.
func (q query) ForgeMirrors(ctx context.Context) ([]model.ForgeMirror, error) {
	mirrors, err := q.domain.Forges.Mirrors(ctx, loadersOf(ctx).actor.Organization)
	all := []model.ForgeMirror{}
	for _, m := range mirrors {
		all = append(all, model.WrapForgeMirror(m))
	}
	return all, err
}

// Chats is what the API needs of package chat.
type Chats interface {
	Accounts(ctx context.Context, a core.Actor) ([]chat.Account, error)
	Candidate(ctx context.Context, a core.Actor, token string) (chat.Account, error)
	Link(ctx context.Context, a core.Actor, token string) (chat.Account, error)
	Unlink(ctx context.Context, a core.Actor, id int64, reason string) (chat.Account, error)
	ForgeAccounts(ctx context.Context, a core.Actor) ([]chat.Account, error)
	MakeCode(ctx context.Context, a core.Actor, hook int64, account string) (chat.MadeCode, error)
	UnlinkForge(ctx context.Context, a core.Actor, id int64, reason string) (chat.Account, error)
}

var _ Chats = (*chat.UseCases)(nil)

// ChatAccounts are those that the viewer may see.
func (q query) ChatAccounts(ctx context.Context) ([]model.ChatAccount, error) {
	accounts, err := q.domain.Chats.Accounts(ctx, loadersOf(ctx).actor)
	all := []model.ChatAccount{}
	for _, a := range accounts {
		all = append(all, model.WrapChatAccount(a))
	}
	return all, err
}

// ForgeStatuses are those of the organization, the newest first.
func (q query) ForgeStatuses(
	ctx context.Context, state *forge.State, kind *forge.Published, commit *string, before *int, first int,
) ([]model.ForgeStatus, error) {
	f := forge.Filter{Most: first, Commit: orEmpty(commit)}
	if kind != nil {
		f.Kind = *kind
	}
	if state != nil {
		f.State = *state
	}
	if before != nil {
		f.Before = int64(*before)
	}
	statuses, err := q.domain.Forges.Statuses(ctx, loadersOf(ctx).actor.Organization, f)
	all := []model.ForgeStatus{}
	for _, s := range statuses {
		all = append(all, model.WrapForgeStatus(s))
	}
	return all, err
}

// ForgeHosts are those of the organization.
func (q query) ForgeHosts(ctx context.Context) ([]model.ForgeHost, error) {
	hosts, err := q.domain.Forges.Hosts(ctx, loadersOf(ctx).actor.Organization)
	all := []model.ForgeHost{}
	for _, h := range hosts {
		all = append(all, model.WrapForgeHost(h, loadersOf(ctx).clock.Now()))
	}
	return all, err
}

// ForgePulls are those of the organization, the newest first.
func (q query) ForgePulls(ctx context.Context, before *int, first int) ([]model.ForgePull, error) {
	after := int64(0)
	if before != nil {
		after = int64(*before)
	}
	pulls, err := q.domain.Forges.Pulls(ctx, loadersOf(ctx).actor.Organization, after, first)
	all := []model.ForgePull{}
	for _, p := range pulls {
		all = append(all, model.WrapForgePull(p))
	}
	return all, err
}

// PutForgeMirror switches publishing on or off for an application.
func (m mutation) PutForgeMirror(ctx context.Context, in model.PutForgeMirrorInput) (p model.ForgeMirrorPayload, err error) {
	saved, err := m.domain.Forges.PutMirror(ctx, loadersOf(ctx).actor, forge.NewMirror{
		Application: in.Application, Environments: in.Environments, Credential: in.Credential, Enabled: in.Enabled, Plans: in.Plans,
		Deployments: in.Deployments, Addresses: in.AddressesByName(), Reason: orEmpty(in.Reason),
	})
	p.Mirror, p.Errors, err = changed(saved, err, model.WrapForgeMirror)
	return p, err
}

// RetryForgeStatuses sends statuses again.
func (m mutation) RetryForgeStatuses(ctx context.Context, in model.RetryForgeStatusesInput) (p model.RetryForgeStatusesPayload, err error) {
	number := int64(0)
	if in.Number != nil {
		if number = int64(*in.Number); number == 0 {
			number = -1 // there is none of that number, and it does not mean all
		}
	}
	retried, err := m.domain.Forges.Retry(ctx, loadersOf(ctx).actor, number, orEmpty(in.Reason))
	p.Retried, p.Errors, err = changed(retried, err, func(r forge.Retried) model.RetriedForgeStatuses { return model.RetriedForgeStatuses(r) })
	return p, err
}

// ForgeHooks are those of the organization.
func (q query) ForgeHooks(ctx context.Context) ([]model.ForgeHook, error) {
	hooks, err := q.domain.Forges.Hooks(ctx, loadersOf(ctx).actor.Organization)
	all := []model.ForgeHook{}
	for _, h := range hooks {
		all = append(all, model.WrapForgeHook(h))
	}
	return all, err
}

// ForgeReports are those of the organization, the newest first.
func (q query) ForgeReports(ctx context.Context, commit *string, before *int, first int) ([]model.ForgeReport, error) {
	f := forge.ReportFilter{Commit: orEmpty(commit), Most: first}
	if before != nil {
		f.Before = int64(*before)
	}
	reports, err := q.domain.Forges.Reports(ctx, loadersOf(ctx).actor.Organization, f)
	all := []model.ForgeReport{}
	for _, r := range reports {
		all = append(all, model.WrapForgeReport(r))
	}
	return all, err
}

// ForgeRefusals is what was left out of the deliveries to the organization's hooks.
func (q query) ForgeRefusals(ctx context.Context) ([]model.ForgeRefusal, error) {
	refusals, err := q.domain.Forges.Refusals(ctx, loadersOf(ctx).actor)
	all := []model.ForgeRefusal{}
	for _, r := range refusals {
		all = append(all, model.WrapForgeRefusal(r))
	}
	return all, err
}

// AddForgeHook makes a hook.
func (m mutation) AddForgeHook(ctx context.Context, in model.AddForgeHookInput) (p model.AddForgeHookPayload, err error) {
	made, err := m.domain.Forges.AddHook(ctx, loadersOf(ctx).actor, forge.NewHook{
		Forge: in.Forge, Repositories: in.Repositories, CheckKeys: in.CheckKeys, Plans: in.Plans, Commands: in.Commands,
		Reason: orEmpty(in.Reason),
	})
	p.Made, p.Errors, err = changed(made, err, model.WrapMadeForgeHook)
	return p, err
}

// RemoveForgeHook removes a hook.
func (m mutation) RemoveForgeHook(ctx context.Context, in model.RemoveForgeHookInput) (p model.ForgeHookPayload, err error) {
	removed, err := m.domain.Forges.RemoveHook(ctx, loadersOf(ctx).actor, int64(in.Number), orEmpty(in.Reason))
	p.Hook, p.Errors, err = changed(removed, err, model.WrapForgeHook)
	return p, err
}

// ChatAccountOfLink is the account that a link is about.
func (q query) ChatAccountOfLink(ctx context.Context, token string) (*model.ChatAccount, error) {
	found, err := q.domain.Chats.Candidate(ctx, loadersOf(ctx).actor, token)
	if err != nil {
		return nil, err
	}
	m := model.WrapChatAccount(found)
	return &m, nil
}

// LinkChatAccount makes an account the viewer's.
func (m mutation) LinkChatAccount(ctx context.Context, in model.LinkChatAccountInput) (p model.ChatAccountPayload, err error) {
	linked, err := m.domain.Chats.Link(ctx, loadersOf(ctx).actor, in.Token)
	p.Account, p.Errors, err = changed(linked, err, model.WrapChatAccount)
	return p, err
}

// UnlinkChatAccount ends that an account is a member's.
func (m mutation) UnlinkChatAccount(ctx context.Context, in model.UnlinkChatAccountInput) (p model.ChatAccountPayload, err error) {
	ended, err := m.domain.Chats.Unlink(ctx, loadersOf(ctx).actor, int64(in.Number), orEmpty(in.Reason))
	p.Account, p.Errors, err = changed(ended, err, model.WrapChatAccount)
	return p, err
}

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
