package notify

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// Members subscribe for themselves (D62), to channels that the organization has made for it. Each is written to at an address that is
// proved to be the member's: the one that the identity provider has verified, or a chat account that the member has linked by signing in.

const (
	// maxSubscriptions is how many a member may have.
	maxSubscriptions = 20
	// maxSubscription bounds the configuration of one, in bytes.
	maxSubscription = 4 << 10
	// addressLife is how long an address counts after the sign-in that brought it: a member who no longer signs in may have left.
	addressLife = 90 * 24 * time.Hour
)

// SubscriptionConfig says what a subscription matches, and how it sends. It has neither the lists of names nor the expression of routes:
// who is concerned is found by an index.
type SubscriptionConfig struct {
	// Application and Environment are names; empty for all.
	Application string           `json:"application,omitempty"`
	Environment string           `json:"environment,omitempty"`
	Only        core.Involvement `json:"only,omitempty"`
	RouteConfig
}

// readSubscription reads and checks the configuration of a subscription.
func readSubscription(raw json.RawMessage) (c SubscriptionConfig, err error) {
	known := []string{"application", "digest_minutes", "environment", "events", "only", "quiet", "severities", "tiers"}
	if err := decode(raw, &c, known, "/config"); err != nil {
		return c, err
	}
	var found problems
	c.checkMatch(&found)
	c.checkTimes(&found)
	for i, e := range c.Events {
		if e.ForTools() {
			found.add(fmt.Sprintf("/config/events/%d", i), "found %s, which only routes of an organization may name; expected another event", e)
		}
	}
	switch c.Only {
	case core.InvolvedAnyhow, core.InvolvedBegun, core.InvolvedWaiting, core.InvolvedMayApprove:
	default:
		found.add("/config/only", "found %.100q; expected begun, waiting or may_approve", string(c.Only))
	}
	if text, err := json.Marshal(c); err != nil || len(text) > maxSubscription {
		found.add("/config", "found %d bytes; expected at most %d", len(text), maxSubscription)
	}
	return c, found.err()
}

// isPersonal is whether a channel reaches members and is no place itself, and the workspace of one in Slack.
func isPersonal(c core.NotificationChannel) (workspace string, personal bool) {
	var config channelConfig
	personal = json.Unmarshal(c.Config, &config) == nil && config.Personal
	if c.Kind == core.NotifyMattermost { // its accounts are those of a server
		return strings.TrimSuffix(config.URL, "/"), personal
	}
	return config.Workspace, personal
}

// Recipient is where a member can be reached.
type Recipient struct {
	// Email is the address that the identity provider verified at VerifiedAt; empty for none.
	Email      string
	VerifiedAt *time.Time
	// WindowAt is when the present minute began, in which WindowCount messages to the member were begun.
	WindowAt    time.Time
	WindowCount int
}

// ChatUser is a chat account of a member.
type ChatUser struct {
	Kind                  core.NotificationKind
	Workspace, User, Name string
}

// address is where a channel reaches a member, and what people call that; otherwise why it does not.
func address(c core.NotificationChannel, r Recipient, chats []ChatUser, now time.Time) (to, name, why string) {
	workspace, personal := isPersonal(c)
	switch {
	case !personal:
		return "", "", fmt.Sprintf("channel %s no longer reaches members", c.Name)
	case c.Kind != core.NotifyEmail:
		i := slices.IndexFunc(chats, func(u ChatUser) bool { return u.Kind == c.Kind && u.Workspace == workspace })
		if i < 0 {
			return "", "", fmt.Sprintf("no chat account of workspace %s in %s is linked to the member", workspace, c.Kind.Title())
		}
		return chats[i].User, chats[i].Name, ""
	case r.Email == "" || r.VerifiedAt == nil || !addressForm.MatchString(r.Email):
		return "", "", "the identity provider has verified no address of the member"
	case now.Sub(*r.VerifiedAt) > addressLife:
		return "", "", "the member has not signed in at the identity provider for 90 days, so the address no longer counts"
	default:
		return r.Email, r.Email, ""
	}
}

// MyChannel is a channel that members may subscribe to.
type MyChannel struct {
	core.NotificationChannel
	// Reaches is where it reaches the member, and Problem why it does not; one of them is empty.
	Reaches, Problem string
}

// MyChannels are those that a member may subscribe to, by name.
func (u *UseCases) MyChannels(ctx context.Context, a core.Actor) ([]MyChannel, error) {
	channels, err := u.store.NotificationChannels(ctx, a.Organization)
	if err != nil || a.Type != core.PrincipalUser {
		return nil, err
	}
	r, chats, err := u.store.NotificationRecipient(ctx, a.Organization, a.ID)
	var all []MyChannel
	for _, c := range channels {
		if _, personal := isPersonal(c); personal && c.Enabled {
			_, name, why := address(c, r, chats, u.clock.Now())
			all = append(all, MyChannel{c, name, why})
		}
	}
	return all, err
}

// MySubscriptions are those of a member, by name.
func (u *UseCases) MySubscriptions(ctx context.Context, a core.Actor) ([]core.NotificationSubscription, error) {
	if a.Type != core.PrincipalUser {
		return nil, nil
	}
	return u.store.NotificationSubscriptions(ctx, a.Organization, a.ID)
}

// MyMessages are those to a member, the newest first.
func (u *UseCases) MyMessages(ctx context.Context, a core.Actor, most int) ([]core.NotificationMessage, error) {
	if a.Type != core.PrincipalUser || a.ID == 0 { // 0 stands for messages to channels
		return nil, nil
	}
	return u.Messages(ctx, a.Organization, Filter{MemberID: a.ID, Most: most})
}

// NewSubscription is a subscription to save.
type NewSubscription struct {
	// Name is unique among the member's; saving again under the same name changes the subscription.
	Name, Channel string
	Config        json.RawMessage
	Enabled       bool
}

// PutMine saves a subscription of a member for themselves.
func (u *UseCases) PutMine(ctx context.Context, a core.Actor, n NewSubscription) (core.NotificationSubscription, error) {
	var saved core.NotificationSubscription
	if err := checkName(n.Name); err != nil {
		return saved, err
	}
	c, err := readSubscription(n.Config)
	if err != nil {
		return saved, err
	}
	err = core.By(ctx, u.store, a, core.ActionPutMyNotification, func(ctx context.Context, tx Tx) error {
		if _, err := tx.LockNotificationRecipient(ctx, a.ID); err != nil {
			return err
		}
		channels, err := tx.NotificationChannels(ctx, a.Organization)
		if err != nil {
			return err
		}
		at := slices.IndexFunc(channels, func(c core.NotificationChannel) bool {
			_, personal := isPersonal(c)
			return c.Name == n.Channel && personal
		})
		if at < 0 {
			return invalid("/channel", "found %.100q; expected a channel that members may subscribe to: one with personal", n.Channel)
		}
		// A channel that is removed meanwhile ends its subscriptions: this one as well, or it is not saved.
		if _, err := tx.LockNotificationChannel(ctx, channels[at].ID); err != nil {
			return err
		}
		all, err := tx.NotificationSubscriptions(ctx, a.Organization, a.ID)
		if err != nil {
			return err
		}
		if saved, err = c.subscription(ctx, tx, a); err != nil {
			return err
		}
		saved.ChannelID, saved.Name, saved.Enabled, saved.ChangedAt = channels[at].ID, n.Name, n.Enabled, u.clock.Now()
		var before any
		if i := slices.IndexFunc(all, func(s core.NotificationSubscription) bool { return s.Name == n.Name }); i >= 0 {
			before = subscriptionState(all[i], channels)
		} else if len(all) >= maxSubscriptions {
			return fault.New(fault.Refused, "found %d subscriptions; expected at most %d: remove some of them first", len(all), maxSubscriptions)
		}
		if saved, err = tx.SaveNotificationSubscription(ctx, saved); err != nil {
			return err
		}
		made := change(core.ActionPutMyNotification, "subscription", n.Name, "")
		return core.Record(ctx, tx, a, made, before, subscriptionState(saved, channels))
	})
	return saved, err
}

// subscription is what a configuration says to an index.
func (c SubscriptionConfig) subscription(ctx context.Context, tx Tx, a core.Actor) (core.NotificationSubscription, error) {
	s := core.NotificationSubscription{MemberID: a.ID, Moments: c.Events, Tiers: c.Tiers, Involvement: c.Only}
	for _, word := range c.Severities {
		for _, severity := range []core.NotificationSeverity{core.SeverityLow, core.SeverityNormal, core.SeverityHigh} {
			if severity.String() == word {
				s.Severities = append(s.Severities, severity)
			}
		}
	}
	if c.Application != "" {
		found, err := tx.ApplicationByName(ctx, a.Organization, c.Application)
		if fault.Is(err, fault.NotFound) {
			return s, invalid("/config/application", "found %.100q; expected an application that exists", c.Application)
		} else if err != nil {
			return s, err
		}
		s.ApplicationID = found.ID
	}
	if c.Environment != "" {
		found, err := tx.EnvironmentByName(ctx, a.Organization, c.Environment)
		if fault.Is(err, fault.NotFound) {
			return s, invalid("/config/environment", "found %.100q; expected an environment that exists", c.Environment)
		} else if err != nil {
			return s, err
		}
		s.EnvironmentID, c.Environment = found.ID, found.Name
	}
	config, err := json.Marshal(c)
	if err != nil {
		return s, fmt.Errorf("write a subscription: %w", err)
	}
	s.Config = config
	return s, nil
}

func subscriptionState(s core.NotificationSubscription, channels []core.NotificationChannel) map[string]any {
	return routeState(core.NotificationRoute{Name: s.Name, ChannelID: s.ChannelID, Config: s.Config, Enabled: s.Enabled}, channels)
}

// RemoveMine removes a subscription of a member.
func (u *UseCases) RemoveMine(ctx context.Context, a core.Actor, name string) (core.NotificationSubscription, error) {
	var removed core.NotificationSubscription
	err := core.By(ctx, u.store, a, core.ActionRemoveMyNotification, func(ctx context.Context, tx Tx) error {
		if _, err := tx.LockNotificationRecipient(ctx, a.ID); err != nil {
			return err
		}
		all, err := tx.NotificationSubscriptions(ctx, a.Organization, a.ID)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(all, func(s core.NotificationSubscription) bool { return s.Name == name })
		if i < 0 {
			return fault.New(fault.NotFound, "you have no subscription %.100q", name)
		}
		removed = all[i]
		channels, err := tx.NotificationChannels(ctx, a.Organization)
		if err != nil {
			return err
		}
		if err := tx.DeleteNotificationSubscription(ctx, a.ID, name); err != nil {
			return err
		}
		made := change(core.ActionRemoveMyNotification, "subscription", name, "")
		return core.Record(ctx, tx, a, made, subscriptionState(removed, channels), nil)
	})
	return removed, err
}

// Wanted is what subscriptions are matched with.
type Wanted struct {
	// Channels are those that may be used.
	Channels []int64
	// ApplicationID and RolloutID are 0 for none.
	ApplicationID, RolloutID int64
	Environments             []int64
	Tiers                    []string
	Moment                   core.NotificationMoment
	// Requester is the member who has asked for what waits in the queue; 0 for none.
	Requester int64
	// Asks is that it is a question.
	Asks bool
	// Named is that a subscription has to name the moment.
	Named bool
}

// Subscriber is a member with a subscription that matches.
type Subscriber struct {
	core.Member
	ChannelID   int64
	Involvement core.Involvement
	Config      json.RawMessage
}

// personal makes the messages of a moment to members, and says how many. What it reads does not depend on how many they are.
func (u *UseCases) personal(
	ctx context.Context, tx Tx, organization int64, f facts, channels []core.NotificationChannel, now time.Time,
) (int, error) {
	n := f.notification
	if !slices.Contains(core.AllNotificationMoments(), n.Moment) || n.Moment.ForTools() {
		return 0, nil
	}
	w := Wanted{
		ApplicationID: n.ApplicationID, RolloutID: n.RolloutID, Environments: f.environmentIDs, Tiers: f.tiers, Moment: n.Moment,
		Asks: n.Moment == core.MomentApprovalNeeded || n.Moment == core.MomentCallRequested, Named: n.Moment.Named(),
	}
	if n.Moment.OfQueue() && n.By.Type == core.PrincipalUser {
		w.Requester = n.By.ID
	}
	for _, c := range channels {
		if _, personal := isPersonal(c); personal && c.Enabled {
			w.Channels = append(w.Channels, c.ID)
		}
	}
	if len(w.Channels) == 0 {
		return 0, nil
	}
	all, err := tx.NotificationSubscribers(ctx, w)
	if err != nil {
		return 0, err
	}
	if w.Asks {
		if all, err = whoMayAnswer(ctx, tx, organization, f, all, now); err != nil {
			return 0, err
		}
	}
	messages := make([]core.NotificationMessage, 0, len(all))
	for _, s := range all {
		if last := len(messages) - 1; last >= 0 && messages[last].MemberID == s.ID && messages[last].ChannelID == s.ChannelID {
			continue // the first that matches counts
		}
		m, err := s.message(n, now)
		if err != nil {
			return 0, err
		}
		messages = append(messages, m)
	}
	if len(messages) == 0 {
		return 0, nil
	}
	u.counts.personal.Add(int64(len(messages)))
	return len(messages), tx.AttachPersonalNotification(ctx, messages, n)
}

// message is the one to a subscriber.
func (s Subscriber) message(n core.Notification, now time.Time) (core.NotificationMessage, error) {
	var config SubscriptionConfig
	if err := json.Unmarshal(s.Config, &config); err != nil {
		return core.NotificationMessage{}, fmt.Errorf("read a subscription of member %d: %w", s.ID, err)
	}
	m := core.NotificationMessage{ChannelID: s.ChannelID, MemberID: s.ID, RolloutID: n.RolloutID, Severity: n.Moment.Severity()}
	m.Quiet = config.Quiet.stored()
	what := key(n)
	var digest time.Time
	if m.DueAt, digest = config.due(n.Moment, now); !digest.IsZero() {
		what, m.RolloutID = fmt.Sprintf("digest:%d:%d", config.DigestMinutes, digest.Unix()), 0
	}
	m.Key = fmt.Sprintf("%s:member:%d", what, s.ID)
	return m, nil
}

// whoMayAnswer leaves out those who want questions only that they may answer, and may not answer this one.
func whoMayAnswer(
	ctx context.Context, tx Tx, organization int64, f facts, all []Subscriber, now time.Time,
) ([]Subscriber, error) {
	var ids []int64
	for _, s := range all {
		if s.Involvement == core.InvolvedMayApprove {
			ids = append(ids, s.ID)
		}
	}
	if len(ids) == 0 {
		return all, nil
	}
	ids = core.Distinct(ids)
	grants, err := tx.GrantsByMember(ctx, organization, ids)
	if err != nil {
		return nil, err
	}
	groups, err := tx.GroupsByMember(ctx, organization, ids)
	if err != nil {
		return nil, err
	}
	may, err := f.answerable(ctx, tx, organization, now)
	return slices.DeleteFunc(all, func(s Subscriber) bool {
		return s.Involvement == core.InvolvedMayApprove && !may(core.ActorOf(organization, s.Member, grants[s.ID], groups[s.ID]))
	}), err
}

// answerable is who may approve what a moment asks, by the rules of the use cases that take the answer.
func (f facts) answerable(ctx context.Context, tx Tx, organization int64, now time.Time) (func(core.Actor) bool, error) {
	n := f.notification
	nobody := func(core.Actor) bool { return false }
	if n.Moment == core.MomentCallRequested {
		calls, err := tx.CallRequestsByID(ctx, organization, []int64{n.SubjectID})
		if err != nil {
			return nobody, err
		}
		var targets []core.Target
		if n.RolloutID != 0 {
			if targets, err = core.ApplicationTargets(ctx, tx, organization, n.ApplicationID); err != nil {
				return nobody, err
			}
		}
		return func(a core.Actor) bool {
			return a.MayIn(core.ActionAnswerCall, targets...) == nil && calls[n.SubjectID].MayAnswer(a, true, nil, now) == nil
		}, nil
	}
	gates, err := tx.OpenGates(ctx, organization, []int64{n.RolloutID})
	at := slices.IndexFunc(gates[n.RolloutID], func(g core.Gate) bool { return g.GateID == n.Subject })
	if err != nil || at < 0 {
		return nobody, err
	}
	g := gates[n.RolloutID][at]
	s := core.Standing{Rollout: core.Rollout{ID: f.rollout.ID, ApplicationID: f.rollout.ApplicationID}, Known: map[int64]core.Environment{}}
	for _, e := range f.rollout.Environments {
		s.Environments = append(s.Environments, core.RolloutEnvironment{EnvironmentID: e.ID})
		s.Known[e.ID] = core.Environment{ID: e.ID, Name: e.Name, Tier: e.Tier}
	}
	targets := s.GateTargets(g)
	return func(a core.Actor) bool {
		return a.MayIn(core.ActionApproveGate, targets...) == nil && g.MayResolve(a, true) == nil
	}, nil
}

// addressee is who receives a message.
type addressee struct {
	Recipient
	// to is where it is sent; empty for where the channel is. why says why nobody can receive it.
	to, why string
}

// addresseeOf finds who receives a message at this moment: a member who has left, or whose address is no longer proved, receives none.
func addresseeOf(
	ctx context.Context, tx Tx, c core.NotificationChannel, m core.NotificationMessage, now time.Time,
) (to addressee, err error) {
	if m.MemberID == 0 {
		if _, personal := isPersonal(c); personal {
			to.why = fmt.Sprintf("channel %s only reaches members now", c.Name)
		}
		to.WindowAt, to.WindowCount = c.WindowAt, c.WindowCount
		return to, nil
	}
	to.Recipient, err = tx.LockNotificationRecipient(ctx, m.MemberID)
	if fault.Is(err, fault.NotFound) {
		to.why = "the member has left"
		return to, nil
	}
	if err != nil {
		return to, err
	}
	chats, err := tx.ChatUsersOfMember(ctx, m.MemberID)
	to.to, _, to.why = address(c, to.Recipient, chats, now)
	return to, err
}

// directed is the configuration of a personal channel for one member's message, and that message: none of them is updated.
func (u *UseCases) directed(
	kind core.NotificationKind, c channelConfig, m core.NotificationMessage, made *content, to string,
) (channelConfig, core.NotificationMessage) {
	if to == "" {
		return c, m
	}
	footer := "You have subscribed to this."
	if u.url != "" {
		footer += " Change it at " + strings.TrimSuffix(u.url, "/") + MyPath
	}
	made.lines = append(made.lines, footer)
	m.Ref = ""
	if kind == core.NotifyEmail {
		c.To = []string{to}
	} else {
		c.Target = to
	}
	return c, m
}

// MyPath is the page of the console where members subscribe.
const MyPath = "/my-notifications"
