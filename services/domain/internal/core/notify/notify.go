// Package notify holds the use cases of notifications: channels and routes, making messages of moments, and having the engine send them
// (D62).
//
// A moment is stored by the transaction that causes it, while the organization has a channel. It is routed once, into at most one message
// of each channel: what happens to a rollout is one message, which is sent again as the rollout proceeds. A message is sent by a run of
// the engine, at least once and one run at a time, so that a channel has them in order. Nothing here waits for a channel.
package notify

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"sync/atomic"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/handoff"
)

// Store keeps what this package needs. Its errors have the classes of pkg/fault.
type Store interface {
	core.Transactions[Tx]
	Reads
	// NotificationRecipient is where a member can be reached; the zero value for one of whom nothing is known.
	NotificationRecipient(ctx context.Context, organization, member int64) (Recipient, []ChatUser, error)
	// OrganizationsWithDueNotifications returns those with something to route, to send or to look at.
	OrganizationsWithDueNotifications(ctx context.Context, at time.Time) ([]int64, error)
	// WarnOfCredentials stores moments of credentials of all organizations that end soon, each once.
	WarnOfCredentials(ctx context.Context, at time.Time) error
}

// Reads is what the API reads.
type Reads interface {
	// NotificationChannels and NotificationRoutes are those that were not removed, by name.
	NotificationChannels(ctx context.Context, organization int64) ([]core.NotificationChannel, error)
	NotificationRoutes(ctx context.Context, organization int64) ([]core.NotificationRoute, error)
	// NotificationMessages are the newest first.
	NotificationMessages(ctx context.Context, organization int64, f Filter) ([]core.NotificationMessage, error)
	// NotificationOpenings are the links of messages that were opened, oldest first.
	NotificationOpenings(ctx context.Context, organization int64, messages []int64) (map[int64][]core.NotificationOpening, error)
	// NotificationSubscriptions are those of a member, by name.
	NotificationSubscriptions(ctx context.Context, organization, member int64) ([]core.NotificationSubscription, error)
}

// Filter narrows a list of messages; its zero value does not.
type Filter struct {
	State     core.NotificationState
	ChannelID int64
	// MemberID is whose own messages they are; 0 for those to channels.
	MemberID int64
	// Before is the message that the list continues after; 0 for the newest. Most is how many are returned.
	Before int64
	Most   int
}

// Tx is what a use case may do in its transaction.
type Tx interface {
	core.ChangeTx
	Reads
	// LockNotificationChannels keeps others from changing channels and routes until the transaction ends.
	LockNotificationChannels(ctx context.Context) error
	AddNotificationChannel(ctx context.Context, c core.NotificationChannel) (core.NotificationChannel, error)
	SaveNotificationChannel(ctx context.Context, c core.NotificationChannel) error
	AddNotificationRoute(ctx context.Context, r core.NotificationRoute) (core.NotificationRoute, error)
	SaveNotificationRoute(ctx context.Context, r core.NotificationRoute) error
	// SetRouteProblem keeps why the expression of a route could not be evaluated.
	SetRouteProblem(ctx context.Context, route int64, problem string) error

	// DueNotification locks one that is to be routed, skipping those that others have locked; false if there is none.
	DueNotification(ctx context.Context, at time.Time) (core.Notification, bool, error)
	// NotificationRouted stores the moment that it turned out to be, and that it was routed.
	NotificationRouted(ctx context.Context, n core.Notification, at time.Time) error
	// AddNotification stores a moment that is routed when it is due; one whose cause is known is left alone.
	AddNotification(ctx context.Context, n core.Notification) error
	// PutOffNotification has one routed later.
	PutOffNotification(ctx context.Context, id int64, until time.Time) error
	// AddRoutedNotification adds one that is not routed.
	AddRoutedNotification(ctx context.Context, n core.Notification) (core.Notification, error)
	// AttachNotification makes the message of a key, or has it say one thing more. What follows was not asked for by a route: the message
	// keeps its quiet hours, and what is not of high severity does not have it sent before they end.
	AttachNotification(ctx context.Context, m core.NotificationMessage, n core.Notification, follows bool) error
	NotificationMessageExists(ctx context.Context, channel int64, key string) (bool, error)
	// AttachAdvance has the messages of a rollout that channels have be updated.
	AttachAdvance(ctx context.Context, a Advance, n core.Notification) error
	// AlertsOfFailedRollouts are the messages in channels for alerts about failed rollouts that a rollout has made up for, of those that have
	// changed since.
	AlertsOfFailedRollouts(ctx context.Context, rollout int64, since time.Time) ([]core.NotificationMessage, error)
	// NotifiedQueue is where the rollout goes that a moment of the queue is about.
	NotifiedQueue(ctx context.Context, notification int64) ([]RolloutEnvironment, error)
	// NotifiedCredential is NotFound for one without an end.
	NotifiedCredential(ctx context.Context, id int64) (Credential, error)
	// ForgetNotifications deletes what is older, up to a limit.
	ForgetNotifications(ctx context.Context, before time.Time, most int) error

	// DueMessage locks one that is to be sent or looked at, skipping those that others have locked; false if there is none.
	DueMessage(ctx context.Context, at time.Time) (core.NotificationMessage, bool, error)
	LockMessage(ctx context.Context, id int64) (core.NotificationMessage, error)
	SaveMessage(ctx context.Context, m core.NotificationMessage) error
	LockNotificationChannel(ctx context.Context, id int64) (core.NotificationChannel, error)
	// CountNotificationMessage stores the window of a channel.
	CountNotificationMessage(ctx context.Context, c core.NotificationChannel) error
	// WaitingMessages locks what waits to be sent to where a message goes, beside it, up to a limit, without what others have locked: what is
	// due, and what waits for its turn.
	WaitingMessages(ctx context.Context, m core.NotificationMessage, at time.Time, most int) ([]core.NotificationMessage, error)
	// PutOffMessages has what is due where a message goes wait.
	PutOffMessages(ctx context.Context, m core.NotificationMessage, at, until time.Time) error
	// ForgetTurns has what waits for its turn among the members of a channel be due, so that it gets another one.
	ForgetTurns(ctx context.Context, channel int64, at time.Time) error
	AddDigest(ctx context.Context, m core.NotificationMessage) (core.NotificationMessage, error)

	// NotificationsByID are with the names that they are rendered with, oldest first.
	NotificationsByID(ctx context.Context, ids []int64) ([]core.Notification, error)
	// NotifiedRollout is what messages say of a rollout.
	NotifiedRollout(ctx context.Context, id int64) (Rollout, error)
	// NotifiedArtifacts are what a rollout has changed in the environments that it has completed, at most so many, and how many there are.
	NotifiedArtifacts(ctx context.Context, rollout int64, most int) (some []Artifact, all int, err error)
	// NotifiedVersion is the artifact of a version; NotFound for one that does not exist.
	NotifiedVersion(ctx context.Context, id int64) (Artifact, error)
	NotifiedGate(ctx context.Context, rollout int64, gate string) (Gate, error)
	NotifiedFreeze(ctx context.Context, id int64) (Freeze, error)
	OpenGates(ctx context.Context, organization int64, rollouts []int64) (map[int64][]core.Gate, error)
	CallRequestsByID(ctx context.Context, organization int64, ids []int64) (map[int64]core.CallRequest, error)

	// LockNotificationRecipient is where a member can be reached, and keeps others from changing it; NotFound for one who has left.
	LockNotificationRecipient(ctx context.Context, member int64) (Recipient, error)
	ChatUsersOfMember(ctx context.Context, member int64) ([]ChatUser, error)
	// CountPersonalMessage stores the window of a member.
	CountPersonalMessage(ctx context.Context, member int64, r Recipient) error
	SaveNotificationSubscription(ctx context.Context, s core.NotificationSubscription) (core.NotificationSubscription, error)
	DeleteNotificationSubscription(ctx context.Context, member int64, name string) error
	DeleteNotificationSubscriptionsOfChannel(ctx context.Context, channel int64) error
	// NotificationSubscribers are everybody whose subscription matches, by member, channel and name of the subscription: one statement.
	NotificationSubscribers(ctx context.Context, w Wanted) ([]Subscriber, error)
	// AttachPersonalNotification is AttachNotification for the messages of many members: one statement.
	AttachPersonalNotification(ctx context.Context, all []core.NotificationMessage, n core.Notification) error
	ApplicationByName(ctx context.Context, organization int64, name string) (core.Application, error)
	// FormerNames are those by which applications are still found.
	FormerNames(ctx context.Context, organization int64, applications []int64) (map[int64][]string, error)
	core.ShownReads
	EnvironmentByName(ctx context.Context, organization int64, name string) (core.Environment, error)
	GrantsByMember(ctx context.Context, organization int64, members []int64) (map[int64][]core.Grant, error)
	GroupsByMember(ctx context.Context, organization int64, members []int64) (map[int64][]core.Group, error)
	core.TargetReads
	// OpenNotificationLink keeps who opened a link. It reports false, with who did so before, for one that was opened.
	OpenNotificationLink(ctx context.Context, o core.NotificationOpening) (opening core.NotificationOpening, first bool, err error)
}

// Engine runs what sends messages.
type Engine interface {
	// Start submits a run; the same again answers the same.
	Start(ctx context.Context, w handoff.Workflow) (ref string, err error)
	// WorkflowByID is a run with its state and what its program reports.
	WorkflowByID(ctx context.Context, organization int64, id string) (handoff.WorkflowRun, error)
}

// UseCases changes channels and routes, and makes and sends messages. It is safe for concurrent use.
//
// Errors have the classes of pkg/fault: Invalid with the fields at fault, NotFound, Refused, Denied.
type UseCases struct {
	store  Store
	engine Engine
	clock  clock.Clock
	url    string
	sealer Sealer
	// secrets reads what chat servers prove presses with.
	secrets Secrets
	events  Interchange
	wake    func()
	// unwarned receives why credentials could not be looked at.
	unwarned func(ctx context.Context, err error)
	// served is the organization whose turn was last.
	served atomic.Int64
	// warned is when credentials were looked at last, in nanoseconds.
	warned atomic.Int64
	counts counts
}

// Deps is what UseCases needs.
type Deps struct {
	Store  Store
	Engine Engine
	Clock  clock.Clock
	// URL is the address of the console, which messages link to; empty for no links.
	URL string
	// Sealer signs links; nil for links that are not signed.
	Sealer Sealer
	// Secrets reads the secrets of channels that take answers; nil for none.
	Secrets Secrets
	// Events writes events of CDEvents; nil for none.
	Events Interchange
	// Wake is called when something is to be sent; it may be nil.
	Wake func()
	// Unwarned receives why credentials that end soon could not be looked up; it may be nil.
	Unwarned func(ctx context.Context, err error)
}

// New makes the use cases over their dependencies.
func New(d Deps) *UseCases {
	if d.Wake == nil {
		d.Wake = func() {}
	}
	if d.Unwarned == nil {
		d.Unwarned = func(context.Context, error) {}
	}
	return &UseCases{
		store: d.Store, engine: d.Engine, clock: d.Clock, url: d.URL, sealer: d.Sealer, secrets: d.Secrets, events: d.Events,
		wake: d.Wake, unwarned: d.Unwarned,
	}
}

// Channels are those of an organization, by name.
func (u *UseCases) Channels(ctx context.Context, organization int64) ([]core.NotificationChannel, error) {
	return u.store.NotificationChannels(ctx, organization)
}

// Routes are those of an organization, by name.
func (u *UseCases) Routes(ctx context.Context, organization int64) ([]core.NotificationRoute, error) {
	return u.store.NotificationRoutes(ctx, organization)
}

// MaxMessages is how many messages a list has at most.
const MaxMessages = 100

// Messages are those of an organization, the newest first.
func (u *UseCases) Messages(ctx context.Context, organization int64, f Filter) ([]core.NotificationMessage, error) {
	if f.Most < 1 || f.Most > MaxMessages {
		return nil, invalid("/first", "found %d; expected 1 to %d", f.Most, MaxMessages)
	}
	return u.store.NotificationMessages(ctx, organization, f)
}

// Openings are the links of messages that were opened.
func (u *UseCases) Openings(ctx context.Context, organization int64, messages []int64) (map[int64][]core.NotificationOpening, error) {
	return u.store.NotificationOpenings(ctx, organization, messages)
}

// The most channels and routes that an organization may have.
const (
	MaxChannels = 50
	MaxRoutes   = 200
)

// nameForm is the form of the name of a channel or a route.
var nameForm = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)

func invalid(field, format string, args ...any) error {
	return fault.InvalidFields(fault.Field{Name: field, Problem: fmt.Sprintf(format, args...)})
}

func checkName(name string) error {
	if !nameForm.MatchString(name) {
		return invalid("/name", "found %.100q; expected 1 to 63 lower-case letters, digits and hyphens", name)
	}
	return nil
}

// NewChannel is a channel to save.
type NewChannel struct {
	// Name is unique in the organization; saving again under the same name changes the channel.
	Name   string
	Kind   core.NotificationKind
	Config json.RawMessage
	// Rate is 0 for DefaultRate.
	Rate    int
	Enabled bool
	Reason  string
}

// PutChannel saves a channel.
func (u *UseCases) PutChannel(ctx context.Context, a core.Actor, n NewChannel) (core.NotificationChannel, error) {
	var saved core.NotificationChannel
	if err := a.May(core.ActionPutNotifyChannel); err != nil { // before a template is filled in, and a credential is looked at
		return saved, err
	}
	if n.Rate == 0 {
		n.Rate = DefaultRate
	}
	if err := core.CheckReason(n.Reason); err != nil {
		return saved, err
	}
	if err := checkName(n.Name); err != nil {
		return saved, err
	}
	c, err := readChannel(ctx, n.Kind, n.Config)
	if err != nil {
		return saved, err
	}
	if err := u.checkAnswers(ctx, a.Organization, n.Kind, c); err != nil {
		return saved, err
	}
	if n.Rate < 1 || n.Rate > MaxRate {
		return saved, invalid("/rate", "found %d; expected 1 to %d messages a minute", n.Rate, MaxRate)
	}
	config, err := json.Marshal(c)
	if err != nil {
		return saved, fmt.Errorf("write the configuration of channel %q: %w", n.Name, err)
	}
	err = core.By(ctx, u.store, a, core.ActionPutNotifyChannel, func(ctx context.Context, tx Tx) error {
		all, err := u.channels(ctx, tx, a)
		if err != nil {
			return err
		}
		saved = core.NotificationChannel{
			Name: n.Name, Kind: n.Kind, Config: config, Rate: n.Rate, Enabled: n.Enabled, Author: core.AuthorOf(a), ChangedAt: u.clock.Now(),
		}
		var before any
		i := slices.IndexFunc(all, func(c core.NotificationChannel) bool { return c.Name == n.Name })
		switch {
		case i >= 0 && all[i].Kind != n.Kind:
			return fault.New(fault.Refused, "%q is a channel of kind %s; remove it first, or choose another name", n.Name, all[i].Kind)
		case i >= 0:
			saved.ID, before = all[i].ID, channelState(all[i])
			if err = tx.SaveNotificationChannel(ctx, saved); err == nil {
				err = restartTurns(ctx, tx, all[i], c, saved.ChangedAt)
			}
		case len(all) >= MaxChannels:
			return fault.New(fault.Refused, "found %d channels; expected at most %d: remove some of them first", len(all), MaxChannels)
		default:
			saved, err = tx.AddNotificationChannel(ctx, saved)
		}
		if err != nil {
			return err
		}
		made := change(core.ActionPutNotifyChannel, "channel", saved.Name, n.Reason)
		return core.Record(ctx, tx, a, made, before, channelState(saved))
	})
	u.wake()
	return saved, err
}

// restartTurns gives the messages to members of a channel other turns if their rate has changed: those that they have may be days ahead.
func restartTurns(ctx context.Context, tx Tx, before core.NotificationChannel, c channelConfig, now time.Time) error {
	var was channelConfig
	if err := json.Unmarshal(before.Config, &was); err != nil {
		return fmt.Errorf("read channel %q: %w", before.Name, err)
	}
	if was.membersRate() == c.membersRate() {
		return nil
	}
	before.WindowAt = time.Unix(0, 0)
	if err := tx.CountNotificationMessage(ctx, before); err != nil {
		return err
	}
	return tx.ForgetTurns(ctx, before.ID, now)
}

func (u *UseCases) channels(ctx context.Context, tx Tx, a core.Actor) ([]core.NotificationChannel, error) {
	if err := tx.LockNotificationChannels(ctx); err != nil {
		return nil, err
	}
	return tx.NotificationChannels(ctx, a.Organization)
}

// RemoveChannel removes a channel with its routes. What waits to be sent there becomes a dead letter.
func (u *UseCases) RemoveChannel(ctx context.Context, a core.Actor, name, reason string) (core.NotificationChannel, error) {
	var removed core.NotificationChannel
	if err := core.CheckReason(reason); err != nil {
		return removed, err
	}
	err := core.By(ctx, u.store, a, core.ActionRemoveNotifyChannel, func(ctx context.Context, tx Tx) error {
		all, err := u.channels(ctx, tx, a)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(all, func(c core.NotificationChannel) bool { return c.Name == name })
		if i < 0 {
			return fault.New(fault.NotFound, "channel %.100q does not exist", name)
		}
		routes, err := tx.NotificationRoutes(ctx, a.Organization)
		if err != nil {
			return err
		}
		for _, r := range routes {
			if r.ChannelID != all[i].ID {
				if escalatesTo(r, name) {
					return fault.New(fault.Refused, "route %q escalates to channel %q; change the route first", r.Name, name)
				}
				continue
			}
			if err := u.removeRoute(ctx, tx, a, r, all, "its channel was removed"); err != nil {
				return err
			}
		}
		if err := tx.DeleteNotificationSubscriptionsOfChannel(ctx, all[i].ID); err != nil {
			return err
		}
		removed = all[i]
		removed.Removed, removed.Enabled, removed.ChangedAt, removed.Author = true, false, u.clock.Now(), core.AuthorOf(a)
		if err := tx.SaveNotificationChannel(ctx, removed); err != nil {
			return err
		}
		return core.Record(ctx, tx, a, change(core.ActionRemoveNotifyChannel, "channel", name, reason), channelState(all[i]), nil)
	})
	u.wake()
	return removed, err
}

// NewRoute is a route to save.
type NewRoute struct {
	// Name is unique in the organization; saving again under the same name changes the route.
	Name, Channel string
	Config        json.RawMessage
	Enabled       bool
	Reason        string
}

// PutRoute saves a route.
func (u *UseCases) PutRoute(ctx context.Context, a core.Actor, n NewRoute) (core.NotificationRoute, error) {
	var saved core.NotificationRoute
	if err := core.CheckReason(n.Reason); err != nil {
		return saved, err
	}
	if err := checkName(n.Name); err != nil {
		return saved, err
	}
	c, err := readRoute(n.Config)
	if err != nil {
		return saved, err
	}
	err = core.By(ctx, u.store, a, core.ActionPutNotifyRoute, func(ctx context.Context, tx Tx) error {
		config, err := c.byNames(ctx, tx, a.Organization)
		if err != nil {
			return err
		}
		channels, err := u.channels(ctx, tx, a)
		if err != nil {
			return err
		}
		at := slices.IndexFunc(channels, func(c core.NotificationChannel) bool { return c.Name == n.Channel })
		if at < 0 {
			return invalid("/channel", "found %.100q, which does not exist; expected the name of a channel", n.Channel)
		}
		if _, personal := isPersonal(channels[at]); personal {
			return invalid("/channel", "found %.100q, which only reaches members who have subscribed; expected another channel", n.Channel)
		}
		if err := c.checkEscalationChannels(n.Channel, channels); err != nil {
			return err
		}
		if e := slices.IndexFunc(c.Events, core.NotificationMoment.OfQueue); e >= 0 && channels[at].Kind.Alarms() {
			return invalid(fmt.Sprintf("/config/events/%d", e), "found %s for a channel of kind %s, whose alert nothing would end: what waits in the "+
				"queue is no rollout yet; expected another event, such as %s, or another channel", c.Events[e], channels[at].Kind, core.MomentRolloutBegan)
		}
		all, err := tx.NotificationRoutes(ctx, a.Organization)
		if err != nil {
			return err
		}
		saved = core.NotificationRoute{
			ChannelID: channels[at].ID, Name: n.Name, Config: config, Enabled: n.Enabled, Author: core.AuthorOf(a), ChangedAt: u.clock.Now(),
		}
		var before any
		if i := slices.IndexFunc(all, func(r core.NotificationRoute) bool { return r.Name == n.Name }); i >= 0 {
			saved.ID, before = all[i].ID, routeState(all[i], channels)
			err = tx.SaveNotificationRoute(ctx, saved)
		} else if len(all) >= MaxRoutes {
			return fault.New(fault.Refused, "found %d routes; expected at most %d: remove some of them first", len(all), MaxRoutes)
		} else {
			saved, err = tx.AddNotificationRoute(ctx, saved)
		}
		if err != nil {
			return err
		}
		made := change(core.ActionPutNotifyRoute, "route", saved.Name, n.Reason)
		return core.Record(ctx, tx, a, made, before, routeState(saved, channels))
	})
	return saved, err
}

// RemoveRoute removes a route. A channel that has lost its last one is sent what is worth it by default.
func (u *UseCases) RemoveRoute(ctx context.Context, a core.Actor, name, reason string) (core.NotificationRoute, error) {
	var removed core.NotificationRoute
	if err := core.CheckReason(reason); err != nil {
		return removed, err
	}
	err := core.By(ctx, u.store, a, core.ActionRemoveNotifyRoute, func(ctx context.Context, tx Tx) error {
		channels, err := u.channels(ctx, tx, a)
		if err != nil {
			return err
		}
		if removed, err = routeNamed(ctx, tx, a.Organization, name); err != nil {
			return err
		}
		return u.removeRoute(ctx, tx, a, removed, channels, reason)
	})
	return removed, err
}

func routeNamed(ctx context.Context, tx Tx, organization int64, name string) (core.NotificationRoute, error) {
	all, err := tx.NotificationRoutes(ctx, organization)
	if err != nil {
		return core.NotificationRoute{}, err
	}
	i := slices.IndexFunc(all, func(r core.NotificationRoute) bool { return r.Name == name })
	if i < 0 {
		return core.NotificationRoute{}, fault.New(fault.NotFound, "route %.100q does not exist", name)
	}
	return all[i], nil
}

func (u *UseCases) removeRoute(
	ctx context.Context, tx Tx, a core.Actor, r core.NotificationRoute, channels []core.NotificationChannel, reason string,
) error {
	before := routeState(r, channels)
	r.Removed, r.Enabled, r.ChangedAt, r.Author = true, false, u.clock.Now(), core.AuthorOf(a)
	if err := tx.SaveNotificationRoute(ctx, r); err != nil {
		return err
	}
	return core.Record(ctx, tx, a, change(core.ActionRemoveNotifyRoute, "route", r.Name, reason), before, nil)
}

// change is a row of the journal of changes.
func change(action core.Action, what, name, reason string) core.Change {
	return core.Change{
		Action: action, Subject: core.AccessSubject{Kind: core.ChangedNotifications, Name: what + "/" + name}, Reason: reason,
		Detail: what + " " + name,
	}
}

func channelState(c core.NotificationChannel) map[string]any {
	return map[string]any{"name": c.Name, "kind": c.Kind, "config": c.Config, "rate": c.Rate, "enabled": c.Enabled}
}

func routeState(r core.NotificationRoute, channels []core.NotificationChannel) map[string]any {
	channel := ""
	for _, c := range channels {
		if c.ID == r.ChannelID {
			channel = c.Name
		}
	}
	return map[string]any{"name": r.Name, "channel": channel, "config": r.Config, "enabled": r.Enabled}
}

// TestRoute sends a message that says that it is a test, at once, to the channel of a route.
func (u *UseCases) TestRoute(ctx context.Context, a core.Actor, name string) (core.NotificationRoute, error) {
	var route core.NotificationRoute
	err := core.By(ctx, u.store, a, core.ActionTestNotifyRoute, func(ctx context.Context, tx Tx) error {
		var err error
		if route, err = routeNamed(ctx, tx, a.Organization, name); err != nil {
			return err
		}
		now := u.clock.Now()
		n, err := tx.AddRoutedNotification(ctx, core.Notification{
			Moment: core.MomentTest, Cause: fmt.Sprintf("test:%d:%d", route.ID, now.UnixNano()), At: now, Subject: name, By: a.Principal(),
		})
		if err != nil {
			return err
		}
		m := core.NotificationMessage{
			ChannelID: route.ChannelID, RouteID: route.ID, Key: fmt.Sprintf("notification:%d", n.ID), Severity: n.Moment.Severity(), DueAt: now,
		}
		if err := tx.AttachNotification(ctx, m, n, false); err != nil {
			return err
		}
		return core.Record(ctx, tx, a, change(core.ActionTestNotifyRoute, "route", name, ""), nil, map[string]any{"message": m.Key})
	})
	u.wake()
	return route, err
}

// Retry sends a dead letter of a channel again.
func (u *UseCases) Retry(ctx context.Context, a core.Actor, message int64) (core.NotificationMessage, error) {
	return u.retry(ctx, a, core.ActionRetryNotification, message, 0)
}

// RetryMine sends a dead letter to a member again.
func (u *UseCases) RetryMine(ctx context.Context, a core.Actor, message int64) (core.NotificationMessage, error) {
	return u.retry(ctx, a, core.ActionRetryMyNotification, message, a.ID)
}

func (u *UseCases) retry(
	ctx context.Context, a core.Actor, action core.Action, message, member int64,
) (core.NotificationMessage, error) {
	var m core.NotificationMessage
	err := core.By(ctx, u.store, a, action, func(ctx context.Context, tx Tx) error {
		var err error
		if m, err = tx.LockMessage(ctx, message); err != nil {
			return err
		}
		if m.MemberID != member {
			return fault.New(fault.NotFound, "message %d does not exist", message)
		}
		if m.State != core.MessageFailed {
			return fault.New(fault.Refused, "notification_%d is %s; only what has failed can be sent again", m.ID, m.State)
		}
		before := map[string]any{"state": m.State, "error": m.Error}
		m.State, m.Attempts, m.Slotted, m.DueAt = core.MessagePending, 0, false, u.clock.Now()
		if err := tx.SaveMessage(ctx, m); err != nil {
			return err
		}
		return core.Record(ctx, tx, a, change(action, "message", m.Key, ""), before, map[string]any{"state": m.State})
	})
	u.wake()
	return m, err
}
