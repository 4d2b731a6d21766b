// Package chat holds the use cases of answers from chats (D63): the buttons of messages in Slack and Mattermost, slash commands, commands
// in comments on pull requests at forges, and whose account there is which member's.
//
// A press is believed if the chat server proves it with the secret of the channel. It is an answer of the member who has linked that chat
// account by signing in, by the same rules and with the same rights as in the console at that moment: this package decides nothing about a
// question. It sends no messages: what became of an answer is shown in the message, which package notify updates.
package chat

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/sealing"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/forge"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/rollout"
)

// Account is an account in a chat, or at a forge, that a member has linked.
type Account struct {
	ID   int64
	Kind core.NotificationKind
	// Workspace is where User is a name of the chat's: the team in Slack, the URL of the server of Mattermost, the server and hook of a forge.
	Workspace, User string
	// Name is what the chat called the user when the account was linked.
	Name     string
	MemberID int64
	// Member is what the member is called.
	Member string
	// KeyDigest identifies the secret that proved the user when the account was linked; CommandDigest the one that proves slash commands, if
	// the account was linked by one of these, too. Mattermost has one for each.
	KeyDigest, CommandDigest []byte
	// Permissions are what the account is good for at most: what the session, or the token, was good for that linked it.
	Permissions core.Permissions
	LinkedAt    time.Time
}

// Press is a button that a user pressed, or a slash command that a user sent, as the chat server has proved it.
type Press struct {
	ID, ChannelID int64
	// Kind and Channel are those of the channel, Channel its name.
	Kind    core.NotificationKind
	Channel string
	// Digest identifies it: a repeated one has the same.
	Digest                []byte
	Workspace, User, Name string
	KeyDigest             []byte
	ReceivedAt            time.Time
	// Command is that it is a slash command.
	Command bool
	// LinkedAt is when an account was linked by it; nil for never.
	LinkedAt *time.Time

	// message, request and call are what the button is about: the message, and the row of the journal or the call request that asks.
	message, request int64
	call, approve    bool
	// post and place are where it was pressed: how the chat calls the message and its channel.
	post, place string
	// reply is where Slack takes a reply that only the user sees.
	reply string
}

// Store keeps what this package needs. Its errors have the classes of pkg/fault.
type Store interface {
	core.Transactions[Tx]
	// ChatAccounts are those of an organization, in the order in which they were linked.
	ChatAccounts(ctx context.Context, organization int64) ([]Account, error)
	NotificationChannels(ctx context.Context, organization int64) ([]core.NotificationChannel, error)
}

// Tx is what a use case may do in its transaction.
type Tx interface {
	core.ChangeTx
	NotificationChannels(ctx context.Context, organization int64) ([]core.NotificationChannel, error)
	LockMessage(ctx context.Context, id int64) (core.NotificationMessage, error)
	OpenGates(ctx context.Context, organization int64, rollouts []int64) (map[int64][]core.Gate, error)
	CallRequestsByID(ctx context.Context, organization int64, ids []int64) (map[int64]core.CallRequest, error)
	MembersByID(ctx context.Context, organization int64, ids []int64) (map[int64]core.Member, error)
	GroupsByMember(ctx context.Context, organization int64, members []int64) (map[int64][]core.Group, error)
	GrantsByMember(ctx context.Context, organization int64, members []int64) (map[int64][]core.Grant, error)

	// AddPress keeps a press. Settled is that it was received before, by any channel of the organization, and something became of it.
	AddPress(ctx context.Context, p Press) (id int64, settled bool, err error)
	// SettlePress keeps what became of it.
	SettlePress(ctx context.Context, id int64, outcome string) error
	// LockPress is one that was kept; NotFound for none.
	LockPress(ctx context.Context, id int64) (Press, error)
	// PressesOf is how many presses there are of the user of a press since an instant, up to a limit.
	PressesOf(ctx context.Context, p Press, since time.Time, most int) (int, error)
	// PressLinked keeps that an account was linked by it.
	PressLinked(ctx context.Context, id int64, at time.Time) error
	// ForgetPresses deletes what is older, up to a limit.
	ForgetPresses(ctx context.Context, before time.Time, most int) error

	// LockChatAccounts keeps others from linking accounts of the organization until the transaction ends.
	LockChatAccounts(ctx context.Context) error
	ChatAccounts(ctx context.Context, organization int64) ([]Account, error)
	// ChatAccountsOf are the account of a user of a workspace, and the one that a member has there.
	ChatAccountsOf(ctx context.Context, kind core.NotificationKind, workspace, user string, member int64) ([]Account, error)
	AddChatAccount(ctx context.Context, a Account) (Account, error)
	RemoveChatAccount(ctx context.Context, id int64, at time.Time) error

	// ClaimAll is for the receipt that the sender of events waits for.
	ClaimAll(ctx context.Context, all []core.Inbound) (firsts []bool, err error)
	// ForgeHookByKey keeps it from being removed until the transaction ends.
	ForgeHookByKey(ctx context.Context, key string) (forge.Hook, error)
	ForgeHooks(ctx context.Context, organization int64) ([]forge.Hook, error)
	// RolloutsOfPage are the rollouts with a deployment that is a page elsewhere, given without its scheme in lower case: those under way
	// first, and then the newest.
	RolloutsOfPage(ctx context.Context, page string, most int) ([]int64, error)
	RolloutsByID(ctx context.Context, organization int64, ids []int64) (map[int64]core.Rollout, error)
	// AddComment keeps a comment of a hook, locks it, and returns it as it is kept, which may be from before.
	AddComment(ctx context.Context, c Comment) (Comment, error)
	// CommentAtOtherHook reports whether another hook has brought it, for the same member, or for anybody if it has none. It keeps others from
	// being begun until the transaction ends.
	CommentAtOtherHook(ctx context.Context, c Comment) (bool, error)
	// BeginComment keeps that it is being performed, for its member.
	BeginComment(ctx context.Context, c Comment, at time.Time) error
	// SettleComment keeps what became of it; false if that is known already.
	SettleComment(ctx context.Context, c Comment) (bool, error)
	// TooManyComments reports whether as many commands came since an instant as are taken of the account of a comment, of its hook, or on its
	// pull request.
	TooManyComments(ctx context.Context, c Comment, since time.Time) (bool, error)
	// ForgetComments deletes what is older, up to a limit.
	ForgetComments(ctx context.Context, before time.Time, most int) error
	// MergeForgeAnswer notes that an answer is to be written, at the earliest a pause after the last one; false if as many pull requests wait
	// as may.
	MergeForgeAnswer(ctx context.Context, p forge.Pull, most int, pause time.Duration) (bool, error)
	// PutForgeCode keeps a code in place of the one that the member had for the hook.
	PutForgeCode(ctx context.Context, c Code) error
	// LockForgeCode is NotFound for none.
	LockForgeCode(ctx context.Context, digest []byte) (Code, error)
	UseForgeCode(ctx context.Context, id int64, at time.Time) error
}

// Rollouts answers gates.
type Rollouts interface {
	ApproveGate(ctx context.Context, a core.Actor, r rollout.Resolution) (core.Rollout, error)
	RejectGate(ctx context.Context, a core.Actor, r rollout.Resolution) (core.Rollout, error)
	CreateRollout(ctx context.Context, a core.Actor, n rollout.NewRollout) (rollout.Promotion, error)
}

// Calls answers calls of Functions that wait for people.
type Calls interface {
	AnswerCall(ctx context.Context, a core.Actor, request int64, approve bool, reason string) (core.CallRequest, error)
}

// Secrets reads the values of credentials of organizations. Its errors are NotFound or Refused for one that cannot be used, and
// Unavailable.
type Secrets interface {
	Secret(ctx context.Context, organization int64, name string) (string, error)
}

// Sealer seals links that accounts are linked with.
type Sealer interface {
	SealFor(ctx context.Context, use sealing.Use, text string) ([]byte, error)
	OpenFor(ctx context.Context, use sealing.Use, sealed []byte) (string, error)
}

// Deps is what UseCases needs.
type Deps struct {
	Store    Store
	Rollouts Rollouts
	Calls    Calls
	Freezes  Freezes
	View     View
	Secrets  Secrets
	Sealer   Sealer
	Clock    clock.Clock
	// URL is the address of the console.
	URL string
	// Reply has Slack show what became of a press to the one who pressed the button, at an address that Slack has given for it. A failure is
	// nobody's to see.
	Reply func(ctx context.Context, url string, t Taken)
	// Wake is called when an answer is to be written into a comment.
	Wake func()
}

// UseCases takes answers and slash commands from chats, and links accounts. It is safe for concurrent use.
//
// Errors have the classes of pkg/fault: Unauthenticated for what no chat server has proved, Invalid, NotFound, Refused, Denied.
type UseCases struct {
	Deps
	counts, commands, comments counts
	linked, ignored, dropped   atomic.Int64
}

// New makes the use cases over their dependencies.
func New(d Deps) *UseCases {
	if d.Reply == nil {
		d.Reply = func(context.Context, string, Taken) {}
	}
	if d.Wake == nil {
		d.Wake = func() {}
	}
	return &UseCases{Deps: d}
}
