package notify

import (
	"context"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/notify"
	"github.com/lockstep-cd/lockstep/services/domain/internal/store/query"
)

// words converts a list between two kinds of texts or numbers; never nil, because no column is null.
func words[From, To any](all []From, convert func(From) To) []To {
	made := make([]To, len(all))
	for i, one := range all {
		made[i] = convert(one)
	}
	return made
}

func subscription(r query.NotificationSubscription) core.NotificationSubscription {
	return core.NotificationSubscription{
		MemberID: r.MemberID, ChannelID: r.ChannelID, Name: r.Name, ApplicationID: orZero(r.ApplicationID),
		EnvironmentID: orZero(r.EnvironmentID),
		Moments:       words(r.Moments, func(m string) core.NotificationMoment { return core.NotificationMoment(m) }),
		Severities:    words(r.Severities, func(s int16) core.NotificationSeverity { return core.NotificationSeverity(s) }),
		Tiers:         words(r.Tiers, func(t string) core.Tier { return core.Tier(t) }),
		Involvement:   core.Involvement(r.Involvement), Config: r.Config, Enabled: r.Enabled, ChangedAt: r.ChangedAt,
	}
}

func recipient(r query.NotificationRecipient) notify.Recipient {
	return notify.Recipient{Email: r.Email, VerifiedAt: r.VerifiedAt, WindowAt: r.WindowAt, WindowCount: int(r.WindowCount)}
}

func chatUser(r query.ChatUsersOfMemberRow) notify.ChatUser {
	return notify.ChatUser{Kind: core.NotificationKind(r.Kind), Workspace: r.Workspace, User: r.ChatUser, Name: r.ChatName}
}

// NotificationSubscriptions implements notify.Reads.
func (r Reads) NotificationSubscriptions(ctx context.Context, organization, member int64) ([]core.NotificationSubscription, error) {
	return read(ctx, r, organization, "subscriptions", func(q *query.Queries) ([]query.NotificationSubscription, error) {
		return q.NotificationSubscriptions(ctx, organization, member)
	}, subscription)
}

// NotificationRecipient implements notify.Store.
func (r Reads) NotificationRecipient(ctx context.Context, organization, member int64) (notify.Recipient, []notify.ChatUser, error) {
	known, err := read(ctx, r, organization, "where a member is reached", func(q *query.Queries) ([]query.NotificationRecipient, error) {
		return q.NotificationRecipients(ctx, organization, member)
	}, recipient)
	if err != nil {
		return notify.Recipient{}, nil, err
	}
	chats, err := read(ctx, r, organization, "chat accounts of a member", func(q *query.Queries) ([]query.ChatUsersOfMemberRow, error) {
		return q.ChatUsersOfMember(ctx, organization, member)
	}, chatUser)
	return append(known, notify.Recipient{})[0], chats, err
}

// LockNotificationRecipient implements notify.Tx.
func (w Writes) LockNotificationRecipient(ctx context.Context, member int64) (notify.Recipient, error) {
	row, err := w.Q.LockNotificationRecipient(ctx, w.Entered, member)
	return recipient(row), missing(err, "member", member)
}

// ChatUsersOfMember implements notify.Tx.
func (w Writes) ChatUsersOfMember(ctx context.Context, member int64) ([]notify.ChatUser, error) {
	rows, err := w.Q.ChatUsersOfMember(ctx, w.Entered, member)
	return words(rows, chatUser), pg.Classify(err, "read chat accounts of member %d", member)
}

// CountPersonalMessage implements notify.Tx.
func (w Writes) CountPersonalMessage(ctx context.Context, member int64, r notify.Recipient) error {
	err := w.Q.CountPersonalMessage(ctx, query.CountPersonalMessageParams{
		OrganizationID: w.Entered, MemberID: member, WindowAt: r.WindowAt, WindowCount: int32(r.WindowCount),
	})
	return pg.Classify(err, "count a message to member %d", member)
}

// SaveNotificationSubscription implements notify.Tx.
func (w Writes) SaveNotificationSubscription(
	ctx context.Context, s core.NotificationSubscription,
) (core.NotificationSubscription, error) {
	row, err := w.Q.SaveNotificationSubscription(ctx, query.SaveNotificationSubscriptionParams{
		OrganizationID: w.Entered, MemberID: s.MemberID, ChannelID: s.ChannelID, Name: s.Name, ApplicationID: orNull(s.ApplicationID),
		EnvironmentID: orNull(s.EnvironmentID), Moments: words(s.Moments, func(m core.NotificationMoment) string { return string(m) }),
		Severities: words(s.Severities, func(s core.NotificationSeverity) int16 { return int16(s) }),
		Tiers:      words(s.Tiers, func(t core.Tier) string { return string(t) }), Involvement: string(s.Involvement), Config: s.Config,
		Enabled: s.Enabled, ChangedAt: s.ChangedAt,
	})
	return subscription(row), pg.Classify(err, "save subscription %s of member %d", s.Name, s.MemberID)
}

// DeleteNotificationSubscription implements notify.Tx.
func (w Writes) DeleteNotificationSubscription(ctx context.Context, member int64, name string) error {
	_, err := w.Q.ForgetNotificationSubscriptions(ctx, member, 0, name)
	return pg.Classify(err, "delete subscription %s of member %d", name, member)
}

// DeleteNotificationSubscriptionsOfChannel implements notify.Tx.
func (w Writes) DeleteNotificationSubscriptionsOfChannel(ctx context.Context, channel int64) error {
	_, err := w.Q.ForgetNotificationSubscriptions(ctx, 0, channel, "")
	return pg.Classify(err, "delete the subscriptions to channel %d", channel)
}

// NotificationSubscribers implements notify.Tx.
func (w Writes) NotificationSubscribers(ctx context.Context, of notify.Wanted) ([]notify.Subscriber, error) {
	rows, err := w.Q.NotificationSubscribers(ctx, query.NotificationSubscribersParams{
		OrganizationID: w.Entered, Channels: of.Channels, ApplicationID: of.ApplicationID, RolloutID: of.RolloutID, Environments: of.Environments,
		Tiers: of.Tiers, Moment: string(of.Moment), Severity: int16(of.Moment.Severity()), Asks: of.Asks, Named: of.Named,
		Requester: of.Requester,
	})
	return words(rows, func(r query.NotificationSubscribersRow) notify.Subscriber {
		return notify.Subscriber{
			Member:    core.Member{ID: r.MemberID, Name: r.Name, Kind: core.PrincipalType(r.Kind), Role: core.Role(r.Role)},
			ChannelID: r.ChannelID, Involvement: core.Involvement(r.Involvement), Config: r.Config,
		}
	}), pg.Classify(err, "find subscribers")
}

// AttachPersonalNotification implements notify.Tx.
func (w Writes) AttachPersonalNotification(ctx context.Context, all []core.NotificationMessage, n core.Notification) error {
	of := func(number func(core.NotificationMessage) int64) []int64 { return words(all, number) }
	channels := of(func(m core.NotificationMessage) int64 { return m.ChannelID })
	keys := words(all, func(m core.NotificationMessage) string { return m.Key })
	if err := w.makeRoom(ctx, n, channels, keys); err != nil {
		return err
	}
	_, err := w.Q.AttachPersonalNotification(ctx, query.AttachPersonalNotificationParams{
		OrganizationID: w.Entered, Severity: int16(n.Moment.Severity()), NotificationID: n.ID, Asks: n.Moment.Asks(),
		Channels: channels, Keys: keys,
		Members:  of(func(m core.NotificationMessage) int64 { return m.MemberID }),
		Rollouts: of(func(m core.NotificationMessage) int64 { return m.RolloutID }),
		Dues:     words(all, func(m core.NotificationMessage) time.Time { return m.DueAt }),
		Quiets:   words(all, func(m core.NotificationMessage) string { return string(m.Quiet) }),
	})
	return pg.Classify(err, "have messages to %d members say notification %d", len(all), n.ID)
}

// SetMemberAddress implements access.Tx.
func (w Writes) SetMemberAddress(ctx context.Context, member int64, email string, at time.Time) error {
	err := w.Q.SetMemberAddress(ctx, query.SetMemberAddressParams{OrganizationID: w.Entered, MemberID: member, Email: email, At: at})
	return pg.Classify(err, "keep the address of member %d", member)
}

// ForgetMemberAddress implements access.Tx.
func (w Writes) ForgetMemberAddress(ctx context.Context, issuer, subject string) error {
	return pg.Classify(w.Q.ForgetMemberAddress(ctx, w.Entered, issuer, subject), "forget the address of an identity")
}
