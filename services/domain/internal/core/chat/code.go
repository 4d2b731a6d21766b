package chat

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/forge"
)

// verbLink links the account of who writes it. It is for comments alone.
const verbLink = "link"

// Code is a code that links an account at a forge, once, when it is written into a comment by that account.
type Code struct {
	ID, HookID int64
	MemberID   int64
	// Account is what the forge calls the account, in lower case. Who reads the code in the comment cannot use it for another account.
	Account string
	// Permissions are what the account will be good for at most.
	Permissions core.Permissions
	Digest      []byte
	ExpiresAt   time.Time
	UsedAt      *time.Time
}

// MadeCode is a code with its value, which is shown once.
type MadeCode struct {
	Code
	Value string
}

// Comment is what the account has to write.
func (m MadeCode) Comment() string { return "/lockstep link " + m.Value }

// maxForgeName bounds the name of an account at a forge, in bytes.
const maxForgeName = 255

func codeDigest(value string) []byte {
	sum := sha256.Sum256([]byte("lockstep forge code 1 " + strings.ToUpper(value)))
	return sum[:]
}

// MakeCode makes a code with which the account of a forge becomes the viewer's. A code that the viewer has made before for the hook works
// no more.
func (u *UseCases) MakeCode(ctx context.Context, a core.Actor, hook int64, account string) (MadeCode, error) {
	name := strings.ToLower(strings.TrimPrefix(account, "@"))
	made := MadeCode{Value: rand.Text(), Code: Code{
		HookID: hook, MemberID: a.ID, Account: name, Permissions: a.Somewhere() & goodFor(Forge), ExpiresAt: u.Clock.Now().Add(linkLife),
	}}
	if err := a.MaySomewhere(core.ActionMakeForgeCode); err != nil {
		return made, err
	}
	if name == "" || len(name) > maxForgeName || strings.ContainsFunc(name, func(r rune) bool { return unicode.IsControl(r) || unicode.IsSpace(r) }) {
		return made, fault.InvalidFields(fault.Field{
			Name: "/account", Problem: fmt.Sprintf("found %.100q; expected what the forge calls your account, such as ann", account),
		})
	}
	made.Digest = codeDigest(made.Value)
	err := core.Within(ctx, u.Store, a, core.ActionMakeForgeCode, func(ctx context.Context, tx Tx) error {
		hooks, err := tx.ForgeHooks(ctx, a.Organization)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(hooks, func(h forge.Hook) bool { return h.ID == hook })
		if i < 0 || !hooks[i].Commands {
			return fault.InvalidFields(fault.Field{
				Name: "/hook", Problem: fmt.Sprintf("found %d, which is no hook that takes commands; lockstep forge hook list shows those that do", hook),
			})
		}
		if err := tx.PutForgeCode(ctx, made.Code); err != nil {
			return err
		}
		return core.Record(ctx, tx, a, core.Change{
			Action: core.ActionMakeForgeCode, Subject: accountSubject("code/" + name), Detail: fmt.Sprintf("a code for %s at hook %d", name, hook),
		}, nil, map[string]any{"hook": hook, "account": name, "expiresAt": made.ExpiresAt})
	})
	return made, err
}

func accountSubject(name string) core.AccessSubject {
	return core.AccessSubject{Kind: core.ChangedForgeMirror, Name: "account/" + name}
}

// linkByComment links the account of a comment with the code in it, in one transaction with its answer.
func (u *UseCases) linkByComment(ctx context.Context, c commented) (string, error) {
	unknown := fault.New(fault.Refused, "the code is unknown, was used, has expired, or is for another account")
	err := u.Store.In(ctx, c.organization, func(ctx context.Context, tx Tx) error {
		c.outcome, c.answer = "", ""
		err := u.useCode(ctx, tx, &c, unknown)
		switch {
		case err == nil:
			c.outcome, c.answer = "linked", "This account is linked now. /lockstep help shows what it may write."
		case fault.Is(err, fault.Refused), fault.Is(err, fault.Denied):
			c.outcome, c.answer = "refused", "Nothing was linked: "+fault.Public(err)+"."
		default:
			return err
		}
		return u.settleIn(ctx, tx, c)
	})
	return c.outcome, err
}

// useCode links an account. It refuses before it changes anything.
func (u *UseCases) useCode(ctx context.Context, tx Tx, c *commented, unknown error) error {
	if len(c.order.args) != 1 {
		return unknown
	}
	code, err := tx.LockForgeCode(ctx, codeDigest(c.order.args[0]))
	if fault.Is(err, fault.NotFound) {
		return unknown
	}
	if err != nil {
		return err
	}
	if err := tx.LockChatAccounts(ctx); err != nil { // only for codes that there are
		return err
	}
	now := u.Clock.Now()
	if code.UsedAt != nil || !now.Before(code.ExpiresAt) || code.HookID != c.HookID || code.Account != strings.ToLower(c.Author) {
		return unknown
	}
	members, err := tx.MembersByID(ctx, c.organization, []int64{code.MemberID})
	if err != nil {
		return err
	}
	m, known := members[code.MemberID]
	if !known || m.RemovedAt != nil || m.Kind != core.PrincipalUser {
		return unknown
	}
	a, err := actor(ctx, tx, c.organization, m, Forge)
	if err != nil {
		return err
	}
	linked := c.account()
	linked.MemberID, linked.Member, linked.Permissions, linked.LinkedAt = m.ID, m.Name, code.Permissions, now
	before, err := replaced(ctx, tx, a, Press{}, &linked, now)
	if fault.Is(err, fault.Refused) { // without the name of the other member: everybody sees the answer
		return fault.New(fault.Refused, "this account is linked to another member, or the member has another account here; one has to be unlinked first")
	}
	if err != nil {
		return err
	}
	if linked, err = tx.AddChatAccount(ctx, linked); err != nil {
		return err
	}
	if err := tx.UseForgeCode(ctx, code.ID, now); err != nil {
		return err
	}
	c.Member = m.ID
	return core.Record(ctx, tx, a, forgeChange(core.ActionLinkForgeAccount, linked, c.where()), before, state(linked))
}

func forgeChange(action core.Action, a Account, reason string) core.Change {
	return core.Change{
		Action: action, Subject: accountSubject(a.User), Reason: reason, Detail: fmt.Sprintf("%s at %s of %s", a.Name, a.Workspace, a.Member),
	}
}
