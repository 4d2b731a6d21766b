// Package chat is the part of the store that keeps the chat accounts of members, and the presses of buttons in chats.
//
// It decides nothing. Its types are embedded by those of package store, which gives them their transactions.
package chat

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/chat"
	"github.com/lockstep-cd/lockstep/services/domain/internal/store/query"
)

// Reads are what the API and the use cases look at.
type Reads struct {
	// Run runs fn in a transaction of an organization.
	Run func(ctx context.Context, organization int64, fn func(*query.Queries) error) error
}

func account(r query.ChatAccountsRow) chat.Account {
	return chat.Account{
		ID: r.ID, Kind: core.NotificationKind(r.Kind), Workspace: r.Workspace, User: r.ChatUser, Name: r.ChatName, MemberID: r.MemberID,
		Member: r.Member, KeyDigest: r.KeyDigest, CommandDigest: r.CommandDigest, Permissions: core.Permissions(r.Permissions),
		LinkedAt: r.LinkedAt,
	}
}

// ChatAccounts implements chat.Store and chat.Tx.
func (r Reads) ChatAccounts(ctx context.Context, organization int64) ([]chat.Account, error) {
	var all []chat.Account
	err := r.Run(ctx, organization, func(q *query.Queries) error {
		rows, err := q.ChatAccounts(ctx, organization)
		all = make([]chat.Account, len(rows)) // assigned, not appended to: the transaction may run again
		for i, row := range rows {
			all[i] = account(row)
		}
		return pg.Classify(err, "read chat accounts")
	})
	return all, err
}

// Writes are what use cases change, in the transaction that Q is of.
type Writes struct {
	Q *query.Queries
	// Entered is the organization of the transaction; every statement names it.
	Entered int64
}

// AddPress implements chat.Tx.
func (w Writes) AddPress(ctx context.Context, p chat.Press) (id int64, settled bool, err error) {
	row, err := w.Q.InsertChatRequest(ctx, query.InsertChatRequestParams{
		OrganizationID: w.Entered, ChannelID: p.ChannelID, Digest: p.Digest, Workspace: p.Workspace, ChatUser: p.User, ChatName: p.Name,
		KeyDigest: p.KeyDigest, ReceivedAt: p.ReceivedAt, Command: p.Command,
	})
	return row.ID, row.Outcome != "", pg.Classify(err, "keep a press in channel %d", p.ChannelID)
}

// SettlePress implements chat.Tx.
func (w Writes) SettlePress(ctx context.Context, id int64, outcome string) error {
	return pg.Classify(w.Q.SettleChatRequest(ctx, outcome, w.Entered, id), "keep the outcome of press %d", id)
}

// LockPress implements chat.Tx.
func (w Writes) LockPress(ctx context.Context, id int64) (chat.Press, error) {
	r, err := w.Q.LockChatRequest(ctx, w.Entered, id)
	if errors.Is(err, pgx.ErrNoRows) {
		return chat.Press{}, fault.New(fault.NotFound, "press %d does not exist", id)
	}
	return chat.Press{
		ID: r.ID, ChannelID: r.ChannelID, Kind: core.NotificationKind(r.Kind), Channel: r.Channel, Digest: r.Digest, Workspace: r.Workspace,
		User: r.ChatUser, Name: r.ChatName, KeyDigest: r.KeyDigest, ReceivedAt: r.ReceivedAt, Command: r.Command, LinkedAt: r.LinkedAt,
	}, pg.Classify(err, "lock press %d", id)
}

// PressesOf implements chat.Tx.
func (w Writes) PressesOf(ctx context.Context, p chat.Press, since time.Time, most int) (int, error) {
	n, err := w.Q.ChatRequestsOfUser(ctx, query.ChatRequestsOfUserParams{
		OrganizationID: w.Entered, Since: since, Workspace: p.Workspace, ChatUser: p.User, Most: int32(most),
	})
	return int(n), pg.Classify(err, "count the requests of %s", p.User)
}

// PressLinked implements chat.Tx.
func (w Writes) PressLinked(ctx context.Context, id int64, at time.Time) error {
	return pg.Classify(w.Q.LinkChatRequest(ctx, &at, w.Entered, id), "keep that press %d linked an account", id)
}

// ForgetPresses implements chat.Tx.
func (w Writes) ForgetPresses(ctx context.Context, before time.Time, most int) error {
	_, err := w.Q.ForgetChatRequests(ctx, before, int32(most))
	return pg.Classify(err, "forget presses")
}

// LockChatAccounts implements chat.Tx.
func (w Writes) LockChatAccounts(ctx context.Context) error {
	return pg.Classify(w.Q.LockChatAccounts(ctx, w.Entered), "lock the chat accounts")
}

// ChatAccountsOf implements chat.Tx.
func (w Writes) ChatAccountsOf(
	ctx context.Context, kind core.NotificationKind, workspace, user string, member int64,
) ([]chat.Account, error) {
	rows, err := w.Q.ChatAccountsOfUser(ctx, query.ChatAccountsOfUserParams{
		OrganizationID: w.Entered, Kind: string(kind), Workspace: workspace, ChatUser: user, MemberID: member,
	})
	all := make([]chat.Account, len(rows))
	for i, row := range rows {
		all[i] = account(query.ChatAccountsRow(row))
	}
	return all, pg.Classify(err, "find the chat account of %s", user)
}

// AddChatAccount implements chat.Tx.
func (w Writes) AddChatAccount(ctx context.Context, a chat.Account) (chat.Account, error) {
	id, err := w.Q.InsertChatAccount(ctx, query.InsertChatAccountParams{
		OrganizationID: w.Entered, Kind: string(a.Kind), Workspace: a.Workspace, ChatUser: a.User, ChatName: a.Name, MemberID: a.MemberID,
		KeyDigest: a.KeyDigest, CommandDigest: a.CommandDigest, Permissions: int16(a.Permissions), LinkedAt: a.LinkedAt,
	})
	a.ID = id
	return a, pg.Classify(err, "link the chat account of %s", a.User)
}

// RemoveChatAccount implements chat.Tx.
func (w Writes) RemoveChatAccount(ctx context.Context, id int64, at time.Time) error {
	return pg.Classify(w.Q.RemoveChatAccount(ctx, &at, w.Entered, id), "unlink chat account %d", id)
}
