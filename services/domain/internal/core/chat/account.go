package chat

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/sealing"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// maxToken bounds what is read as a token, in bytes.
const maxToken = 2 << 10

// Accounts are the linked accounts of an organization. Those who may not administer see their own.
func (u *UseCases) Accounts(ctx context.Context, a core.Actor) ([]Account, error) {
	all, err := u.Store.ChatAccounts(ctx, a.Organization)
	return slices.DeleteFunc(all, func(one Account) bool { return one.Kind == Forge || !mayHandle(a, one) }), err
}

// ForgeAccounts are the linked accounts at forges, as Accounts are those in chats.
func (u *UseCases) ForgeAccounts(ctx context.Context, a core.Actor) ([]Account, error) {
	all, err := u.Store.ChatAccounts(ctx, a.Organization)
	return slices.DeleteFunc(all, func(one Account) bool { return one.Kind != Forge || !mayHandle(a, one) }), err
}

// keep keeps the other secret of Mattermost that the account was linked with before: that of buttons for a command, and the other way
// round.
func (a *Account) keep(before Account, p Press) {
	byCommands := bytes.Equal(before.KeyDigest, before.CommandDigest)
	switch {
	case !p.Command:
		a.CommandDigest = before.CommandDigest
	case !byCommands:
		a.KeyDigest = before.KeyDigest
	}
}

func mayHandle(a core.Actor, one Account) bool {
	return a.Type == core.PrincipalUser && a.ID == one.MemberID || a.Permissions.Has(core.MayAdminister)
}

// Candidate is the chat account that a link is about, for its user to look at before it is linked.
func (u *UseCases) Candidate(ctx context.Context, a core.Actor, token string) (Account, error) {
	var found Account
	if err := a.MaySomewhere(core.ActionLinkChatAccount); err != nil {
		return found, err
	}
	l, err := u.readToken(ctx, a, token)
	if err != nil {
		return found, err
	}
	err = u.Store.In(ctx, a.Organization, func(ctx context.Context, tx Tx) error {
		p, err := u.pressOf(ctx, tx, l)
		found = p.account(a)
		return err
	})
	return found, err
}

// Link makes a chat account the one of the member who has signed in: what its user answers is the member's answer from now on. It is good
// for what the session, or the token, is good for that links it: a token without a permission does not become an account that has it.
func (u *UseCases) Link(ctx context.Context, a core.Actor, token string) (Account, error) {
	var linked Account
	if err := a.MaySomewhere(core.ActionLinkChatAccount); err != nil {
		return linked, err
	}
	l, err := u.readToken(ctx, a, token)
	if err != nil {
		return linked, err
	}
	err = core.By(ctx, u.Store, a, core.ActionLinkChatAccount, func(ctx context.Context, tx Tx) error {
		if err := tx.LockChatAccounts(ctx); err != nil {
			return err
		}
		p, err := u.pressOf(ctx, tx, l)
		if err != nil {
			return err
		}
		now := u.Clock.Now()
		linked = p.account(a)
		linked.LinkedAt = now
		before, err := replaced(ctx, tx, a, p, &linked, now)
		if err != nil {
			return err
		}
		if linked, err = tx.AddChatAccount(ctx, linked); err != nil {
			return err
		}
		linked.Member = a.DisplayName()
		if err := tx.PressLinked(ctx, p.ID, now); err != nil {
			return err
		}
		return core.Record(ctx, tx, a, change(core.ActionLinkChatAccount, linked, ""), before, state(linked))
	})
	return linked, err
}

// replaced ends the link of the same account to the same member, which was made with another secret, and refuses any other.
func replaced(ctx context.Context, tx Tx, a core.Actor, p Press, n *Account, now time.Time) (before any, err error) {
	found, err := tx.ChatAccountsOf(ctx, n.Kind, n.Workspace, n.User, a.ID)
	if err != nil {
		return nil, err
	}
	members := make([]int64, len(found))
	for i, one := range found {
		members[i] = one.MemberID
	}
	known, err := tx.MembersByID(ctx, a.Organization, core.Distinct(members))
	if err != nil {
		return nil, err
	}
	for _, one := range found {
		left := known[one.MemberID].RemovedAt != nil
		switch {
		case one.User != n.User:
			return nil, fault.New(fault.Refused, "you have linked the account %s here already; unlink it first", one.Name)
		case one.MemberID != a.ID && !left:
			return nil, fault.New(
				fault.Refused, "this account is linked to another member, %s, who has to unlink it first; an owner can do so, too", one.Member,
			)
		}
		before = state(one)
		if !left && n.Kind == core.NotifyMattermost {
			n.keep(one, p)
		}
		if err := tx.RemoveChatAccount(ctx, one.ID, now); err != nil {
			return nil, err
		}
	}
	return before, nil
}

// Unlink ends that a chat account is a member's: by the member, or by one who administers.
func (u *UseCases) Unlink(ctx context.Context, a core.Actor, id int64, reason string) (Account, error) {
	return u.unlink(ctx, a, id, reason, core.ActionUnlinkChatAccount, "chat account", change, func(k core.NotificationKind) bool { return k != Forge })
}

// UnlinkForge is Unlink for an account at a forge.
func (u *UseCases) UnlinkForge(ctx context.Context, a core.Actor, id int64, reason string) (Account, error) {
	return u.unlink(ctx, a, id, reason, core.ActionUnlinkForgeAccount, "account", forgeChange, func(k core.NotificationKind) bool { return k == Forge })
}

func (u *UseCases) unlink(
	ctx context.Context, a core.Actor, id int64, reason string, action core.Action, noun string, change func(core.Action, Account,
		string) core.Change,
	of func(core.NotificationKind) bool,
) (Account, error) {
	var ended Account
	if err := core.CheckReason(reason); err != nil {
		return ended, err
	}
	err := core.By(ctx, u.Store, a, action, func(ctx context.Context, tx Tx) error {
		if err := tx.LockChatAccounts(ctx); err != nil {
			return err
		}
		all, err := tx.ChatAccounts(ctx, a.Organization)
		if err != nil {
			return err
		}
		// For those who may not handle it, another member's account does not exist: its number reveals nothing.
		i := slices.IndexFunc(all, func(one Account) bool { return one.ID == id && of(one.Kind) && mayHandle(a, one) })
		if i < 0 {
			return fault.New(fault.NotFound, "%s %d does not exist", noun, id)
		}
		ended = all[i]
		if err := tx.RemoveChatAccount(ctx, id, u.Clock.Now()); err != nil {
			return err
		}
		return core.Record(ctx, tx, a, change(action, ended, reason), state(ended), nil)
	})
	return ended, err
}

// readToken reads a token of a link.
func (u *UseCases) readToken(ctx context.Context, a core.Actor, token string) (l account, err error) {
	unknown := fault.New(fault.Refused, "the link was not made by this installation, or was changed; press a button, or send a command, in the chat for a new one")
	sealed, err := base64.RawURLEncoding.Strict().DecodeString(token)
	if err != nil || len(token) > maxToken {
		return l, unknown
	}
	text, err := u.Sealer.OpenFor(ctx, sealing.UseChatAccount, sealed)
	if fault.Is(err, fault.Unauthenticated) {
		return l, unknown
	}
	if err != nil {
		return l, err
	}
	if err := json.Unmarshal([]byte(text), &l); err != nil {
		return l, fmt.Errorf("read a link: %w", err)
	}
	switch {
	case l.Organization != a.Organization:
		return l, fault.New(fault.NotFound, "the link is of another organization; sign in there, and open it again")
	case u.Clock.Now().Unix() >= l.Expires:
		return l, fault.New(fault.Refused, "the link is older than 10 minutes; press a button, or send a command, in the chat for a new one")
	}
	return l, nil
}

// pressOf is the press that a link is of, if no account was linked by it.
func (u *UseCases) pressOf(ctx context.Context, tx Tx, l account) (Press, error) {
	p, err := tx.LockPress(ctx, l.Press)
	if fault.Is(err, fault.NotFound) || err == nil && p.LinkedAt != nil {
		return p, fault.New(fault.Refused, "the link was used before; press a button, or send a command, in the chat for a new one")
	}
	return p, err
}

// account is the one of the user who pressed, as a member's.
func (p Press) account(a core.Actor) Account {
	made := Account{
		Kind: p.Kind, Workspace: p.Workspace, User: p.User, Name: p.Name, MemberID: a.ID, Member: a.DisplayName(), KeyDigest: p.KeyDigest,
		Permissions: a.Somewhere() & goodFor(p.Kind),
	}
	if p.Command {
		made.CommandDigest = p.KeyDigest
	}
	return made
}

func change(action core.Action, a Account, reason string) core.Change {
	return core.Change{
		Action: action, Subject: core.AccessSubject{Kind: core.ChangedNotifications, Name: "chat account:" + a.User}, Reason: reason,
		Detail: fmt.Sprintf("%s of %s", a.Name, a.Member),
	}
}

// state is what the journal of changes keeps of an account.
func state(a Account) map[string]any {
	permissions := []string{}
	for _, p := range a.Permissions.List() {
		permissions = append(permissions, p.String())
	}
	return map[string]any{
		"kind": a.Kind, "workspace": a.Workspace, "user": a.User, "name": a.Name, "member": a.MemberID, "permissions": permissions,
	}
}
