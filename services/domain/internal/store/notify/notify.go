// Package notify is the part of the store that keeps channels and routes of notifications, the moments that are worth one, and the messages
// that are made of them.
//
// It decides nothing. Its types are embedded by those of package store, which gives them their transactions.
package notify

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/notify"
	"github.com/lockstep-cd/lockstep/services/domain/internal/store/query"
)

func author(kind string, id int64, name string) core.Author {
	return core.Author{Principal: core.Principal{Type: core.PrincipalType(kind), ID: id}, Name: name}
}

func channel(r query.NotificationChannel) core.NotificationChannel {
	return core.NotificationChannel{
		ID: r.ID, Name: r.Name, Kind: core.NotificationKind(r.Kind), Config: r.Config, Rate: int(r.Rate), Enabled: r.Enabled,
		WindowAt: r.WindowAt, WindowCount: int(r.WindowCount), Author: author(r.PrincipalType, r.PrincipalID, r.PrincipalName),
		ChangedAt: r.ChangedAt, Removed: r.RemovedAt != nil,
	}
}

func route(r query.NotificationRoute) core.NotificationRoute {
	return core.NotificationRoute{
		ID: r.ID, ChannelID: r.ChannelID, Name: r.Name, Config: r.Config, Enabled: r.Enabled,
		Author: author(r.PrincipalType, r.PrincipalID, r.PrincipalName), ChangedAt: r.ChangedAt, Removed: r.RemovedAt != nil,
		Problem: r.Problem,
	}
}

func message(r query.NotificationMessage) core.NotificationMessage {
	return core.NotificationMessage{
		ID: r.ID, ChannelID: r.ChannelID, RouteID: orZero(r.RouteID), RolloutID: orZero(r.RolloutID), MemberID: orZero(r.MemberID), Key: r.Key,
		Severity: core.NotificationSeverity(r.Severity), NotificationIDs: r.NotificationIds, LeftOut: int(r.LeftOut), Revision: int(r.Revision),
		SentRevision: int(r.SentRevision), SentCount: int(r.SentCount), BegunRevision: int(r.BegunRevision), BegunCount: int(r.BegunCount),
		State: core.NotificationState(r.State), DueAt: r.DueAt, Attempts: int(r.Attempts), Run: int(r.Run), Started: r.Started, Inputs: r.Inputs,
		Ref: r.Ref, Title: r.Title, Error: r.Error, TemplateError: r.TemplateError, Slotted: r.Slotted, Quiet: r.Quiet, SentAt: r.SentAt,
		CreatedAt: r.CreatedAt,
	}
}

func orZero(n *int64) int64 {
	if n == nil {
		return 0
	}
	return *n
}

func orNull(n int64) *int64 {
	if n == 0 {
		return nil
	}
	return &n
}

func removed(is bool, at time.Time) *time.Time {
	if !is {
		return nil
	}
	return &at
}

// Reads are what the API and the use cases look at.
type Reads struct {
	// Run runs fn in a transaction of an organization.
	Run func(ctx context.Context, organization int64, fn func(*query.Queries) error) error
}

// read runs a query and converts its rows.
func read[R, T any](
	ctx context.Context, r Reads, organization int64, what string, rows func(*query.Queries) ([]R, error), convert func(R) T,
) ([]T, error) {
	var all []T
	err := r.Run(ctx, organization, func(q *query.Queries) error {
		found, err := rows(q)
		all = make([]T, len(found)) // assigned, not appended to: the transaction may run again
		for i, one := range found {
			all[i] = convert(one)
		}
		return pg.Classify(err, "read %s", what)
	})
	return all, err
}

// NotificationChannels implements notify.Reads.
func (r Reads) NotificationChannels(ctx context.Context, organization int64) ([]core.NotificationChannel, error) {
	return read(ctx, r, organization, "channels", func(q *query.Queries) ([]query.NotificationChannel, error) {
		return q.NotificationChannels(ctx, organization)
	}, channel)
}

// NotificationRoutes implements notify.Reads.
func (r Reads) NotificationRoutes(ctx context.Context, organization int64) ([]core.NotificationRoute, error) {
	return read(ctx, r, organization, "routes", func(q *query.Queries) ([]query.NotificationRoute, error) {
		return q.NotificationRoutes(ctx, organization)
	}, route)
}

// NotificationMessages implements notify.Reads.
func (r Reads) NotificationMessages(ctx context.Context, organization int64, f notify.Filter) ([]core.NotificationMessage, error) {
	return read(ctx, r, organization, "messages", func(q *query.Queries) ([]query.NotificationMessage, error) {
		return q.NotificationMessages(ctx, query.NotificationMessagesParams{
			OrganizationID: organization, MemberID: f.MemberID, State: string(f.State), ChannelID: f.ChannelID, Before: f.Before,
			Most: int32(f.Most),
		})
	}, message)
}

// Writes are what use cases change, in the transaction that Q is of.
type Writes struct {
	Q *query.Queries
	// Entered is the organization of the transaction; every statement names it.
	Entered int64
}

// LockNotificationChannels implements notify.Tx.
func (w Writes) LockNotificationChannels(ctx context.Context) error {
	return pg.Classify(w.Q.LockNotificationChannels(ctx, w.Entered), "lock the channels")
}

// AddNotificationChannel implements notify.Tx.
func (w Writes) AddNotificationChannel(ctx context.Context, c core.NotificationChannel) (core.NotificationChannel, error) {
	row, err := w.Q.InsertNotificationChannel(ctx, query.InsertNotificationChannelParams{
		OrganizationID: w.Entered, Name: c.Name, Kind: string(c.Kind), Config: c.Config, Rate: int32(c.Rate), Enabled: c.Enabled,
		PrincipalType: string(c.Author.Type), PrincipalID: c.Author.ID, PrincipalName: c.Author.Name, ChangedAt: c.ChangedAt,
	})
	return channel(row), pg.Classify(err, "add channel %s", c.Name)
}

// SaveNotificationChannel implements notify.Tx.
func (w Writes) SaveNotificationChannel(ctx context.Context, c core.NotificationChannel) error {
	err := w.Q.SaveNotificationChannel(ctx, query.SaveNotificationChannelParams{
		OrganizationID: w.Entered, ID: c.ID, Config: c.Config, Rate: int32(c.Rate), Enabled: c.Enabled,
		RemovedAt:     removed(c.Removed, c.ChangedAt),
		PrincipalType: string(c.Author.Type), PrincipalID: c.Author.ID, PrincipalName: c.Author.Name, ChangedAt: c.ChangedAt,
	})
	return pg.Classify(err, "save channel %s", c.Name)
}

// AddNotificationRoute implements notify.Tx.
func (w Writes) AddNotificationRoute(ctx context.Context, r core.NotificationRoute) (core.NotificationRoute, error) {
	row, err := w.Q.InsertNotificationRoute(ctx, query.InsertNotificationRouteParams{
		OrganizationID: w.Entered, ChannelID: r.ChannelID, Name: r.Name, Config: r.Config, Enabled: r.Enabled,
		PrincipalType: string(r.Author.Type), PrincipalID: r.Author.ID, PrincipalName: r.Author.Name, ChangedAt: r.ChangedAt,
	})
	return route(row), pg.Classify(err, "add route %s", r.Name)
}

// SaveNotificationRoute implements notify.Tx.
func (w Writes) SaveNotificationRoute(ctx context.Context, r core.NotificationRoute) error {
	err := w.Q.SaveNotificationRoute(ctx, query.SaveNotificationRouteParams{
		OrganizationID: w.Entered, ID: r.ID, ChannelID: r.ChannelID, Config: r.Config, Enabled: r.Enabled,
		RemovedAt:     removed(r.Removed, r.ChangedAt),
		PrincipalType: string(r.Author.Type), PrincipalID: r.Author.ID, PrincipalName: r.Author.Name, ChangedAt: r.ChangedAt,
	})
	return pg.Classify(err, "save route %s", r.Name)
}

// SetRouteProblem implements notify.Tx.
func (w Writes) SetRouteProblem(ctx context.Context, route int64, problem string) error {
	return pg.Classify(w.Q.SetRouteProblem(ctx, problem, w.Entered, route), "keep what is wrong with route %d", route)
}

// DueMessage implements notify.Tx.
func (w Writes) DueMessage(ctx context.Context, at time.Time) (core.NotificationMessage, bool, error) {
	row, err := w.Q.DueMessage(ctx, w.Entered, at)
	if errors.Is(err, pgx.ErrNoRows) {
		row, err = w.Q.DuePersonalMessage(ctx, w.Entered, at)
	}
	if errors.Is(err, pgx.ErrNoRows) {
		return core.NotificationMessage{}, false, nil
	}
	return message(row), err == nil, pg.Classify(err, "find a message that is due")
}

// LockMessage implements notify.Tx.
func (w Writes) LockMessage(ctx context.Context, id int64) (core.NotificationMessage, error) {
	row, err := w.Q.LockMessage(ctx, w.Entered, id)
	return message(row), missing(err, "message", id)
}

// SaveMessage implements notify.Tx.
func (w Writes) SaveMessage(ctx context.Context, m core.NotificationMessage) error {
	err := w.Q.SaveMessage(ctx, query.SaveMessageParams{
		OrganizationID: w.Entered, ID: m.ID, State: string(m.State), DueAt: m.DueAt, Attempts: int32(m.Attempts), Run: int32(m.Run),
		Started: m.Started, Inputs: m.Inputs, BegunRevision: int32(m.BegunRevision), BegunCount: int32(m.BegunCount),
		SentRevision: int32(m.SentRevision),
		SentCount:    int32(m.SentCount), Ref: m.Ref, Title: m.Title, Error: m.Error, TemplateError: m.TemplateError, Slotted: m.Slotted,
		SentAt: m.SentAt,
	})
	return pg.Classify(err, "save message %d", m.ID)
}

// LockNotificationChannel implements notify.Tx.
func (w Writes) LockNotificationChannel(ctx context.Context, id int64) (core.NotificationChannel, error) {
	row, err := w.Q.LockNotificationChannel(ctx, w.Entered, id)
	return channel(row), missing(err, "channel", id)
}

// CountNotificationMessage implements notify.Tx.
func (w Writes) CountNotificationMessage(ctx context.Context, c core.NotificationChannel) error {
	err := w.Q.CountNotificationMessage(ctx, query.CountNotificationMessageParams{
		OrganizationID: w.Entered, ID: c.ID, WindowAt: c.WindowAt, WindowCount: int32(c.WindowCount),
	})
	return pg.Classify(err, "count a message of channel %d", c.ID)
}

// WaitingMessages implements notify.Tx.
func (w Writes) WaitingMessages(
	ctx context.Context, m core.NotificationMessage, at time.Time, most int,
) ([]core.NotificationMessage, error) {
	rows, err := w.Q.WaitingMessages(ctx, query.WaitingMessagesParams{
		OrganizationID: w.Entered, ChannelID: m.ChannelID, MemberID: m.MemberID, Beside: m.ID, At: at, Most: int32(most),
	})
	all := make([]core.NotificationMessage, len(rows))
	for i, row := range rows {
		all[i] = message(row)
	}
	return all, pg.Classify(err, "read what waits for channel %d", m.ChannelID)
}

// PutOffMessages implements notify.Tx.
func (w Writes) PutOffMessages(ctx context.Context, m core.NotificationMessage, at, until time.Time) error {
	err := w.Q.PutOffMessages(ctx, query.PutOffMessagesParams{
		OrganizationID: w.Entered, ChannelID: m.ChannelID, MemberID: m.MemberID, At: at, Until: until,
	})
	return pg.Classify(err, "put off messages of channel %d", m.ChannelID)
}

// ForgetTurns implements notify.Tx.
func (w Writes) ForgetTurns(ctx context.Context, channel int64, at time.Time) error {
	err := w.Q.ForgetTurns(ctx, at, w.Entered, channel)
	return pg.Classify(err, "forget the turns of channel %d", channel)
}

// AddDigest implements notify.Tx.
func (w Writes) AddDigest(ctx context.Context, m core.NotificationMessage) (core.NotificationMessage, error) {
	row, err := w.Q.InsertDigest(ctx, query.InsertDigestParams{
		OrganizationID: w.Entered, ChannelID: m.ChannelID, MemberID: orNull(m.MemberID), Key: m.Key, Severity: int16(m.Severity),
		NotificationIds: m.NotificationIDs, LeftOut: int32(m.LeftOut), DueAt: m.DueAt, Quiet: m.Quiet,
	})
	return message(row), pg.Classify(err, "add a digest for channel %d", m.ChannelID)
}

// HurryNotification implements rollout.Tx.
func (w Writes) HurryNotification(ctx context.Context, id int64, run int, at time.Time) error {
	err := w.Q.HurryMessage(ctx, query.HurryMessageParams{OrganizationID: w.Entered, ID: id, Run: int32(run), At: at})
	return pg.Classify(err, "hurry message %d", id)
}

// missing makes the absence of a row a NotFound that names it.
func missing(err error, what string, id any) error {
	if errors.Is(err, pgx.ErrNoRows) {
		return fault.Because(err, fault.NotFound, "%s %v does not exist", what, id)
	}
	return pg.Classify(err, "read %s %v", what, id)
}
