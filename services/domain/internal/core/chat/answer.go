package chat

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/sealing"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/notify"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/rollout"
)

const (
	// AccountPath is the page of the console that links an account.
	AccountPath = "/chat-account"
	// linkLife is how long a link for linking an account is good.
	linkLife = 10 * time.Minute
	// kept is how long presses are kept: longer than the messages that they are of can be answered.
	kept = 30 * 24 * time.Hour
	// forgottenAtOnce limits how many old rows are deleted with each press.
	forgottenAtOnce = 20
	// replyTime bounds how long a chat server waits for its answer because of the reply to a user.
	replyTime = 2 * time.Second
)

// counts counts what this process has done, for the metrics.
type counts struct{ answered, refused, unlinked, repeated, unproved, failed atomic.Int64 }

// Counts returns the number of presses that this process has received, by what became of them.
func (u *UseCases) Counts() map[string]int64 { return u.counts.all() }

// CommandCounts returns the number of slash commands that this process has received, by what became of them.
func (u *UseCases) CommandCounts() map[string]int64 { return u.commands.all() }

func (c *counts) all() map[string]int64 {
	return map[string]int64{
		"answered": c.answered.Load(), "refused": c.refused.Load(), "unlinked": c.unlinked.Load(), "repeated": c.repeated.Load(),
		"unproved": c.unproved.Load(), "failed": c.failed.Load(),
	}
}

// Taken is what became of a request of a chat server.
type Taken struct {
	Organization int64
	Channel      string
	Kind         core.NotificationKind
	// Member is who has answered; 0 for nobody.
	Member int64
	// Outcome is answered, refused, unlinked, repeated, ignored or failed.
	Outcome string
	// Verb is what a slash command asks for; empty for a button.
	Verb string
	// Text is for the one who pressed; empty for nothing. It is plain for Slack, and as the chat shows it for others: see Message.
	Text string
	// Links are the addresses of Lockstep in it.
	Links []string
}

// Take takes a request of a chat server: an answer, once, or a link for those whose account is not linked. It is Unauthenticated for what
// no chat server has proved.
func (u *UseCases) Take(ctx context.Context, r Request) (Taken, error) {
	taken := Taken{Organization: r.Organization, Channel: r.Channel, Outcome: "ignored"}
	p, a, ours, err := u.read(ctx, r)
	if taken.Kind = p.Kind; err != nil || !ours {
		if fault.Is(err, fault.Unauthenticated) {
			u.counts.unproved.Add(1)
		}
		return taken, err
	}
	var who core.Actor
	var q asked
	err = u.Store.In(ctx, r.Organization, func(ctx context.Context, tx Tx) error {
		who, q, taken.Outcome, taken.Text, taken.Links = core.Actor{}, asked{}, "", "", nil
		if many, err := u.tooMany(ctx, tx, p); err != nil || many {
			q.closed = fmt.Sprintf("Found more than %d presses and commands within a minute. Wait a minute, and press again.", PerMinute)
			return err
		}
		var settled bool
		if p.ID, settled, err = tx.AddPress(ctx, p); err != nil {
			return err
		}
		if settled {
			taken.Outcome = "repeated"
			return nil
		}
		if err := tx.ForgetPresses(ctx, u.Clock.Now().Add(-kept), forgottenAtOnce); err != nil {
			return err
		}
		if q, err = u.question(ctx, tx, r.Organization, p, a); err != nil {
			return err
		}
		who, taken.Text, taken.Links, err = u.member(ctx, tx, r.Organization, p, core.MayApprove)
		return err
	})
	if err != nil {
		u.counts.failed.Add(1)
		return taken, fmt.Errorf("take a press in channel %s: %w", r.Channel, err)
	}
	switch {
	case taken.Outcome == "repeated":
		u.counts.count(taken.Outcome)
		return taken, nil
	case q.closed != "":
		taken.Outcome, taken.Text, taken.Links = "refused", q.closed, nil
	case who.ID == 0:
		taken.Outcome = "unlinked"
	default:
		taken.Member = who.ID
		if taken.Outcome, taken.Text, err = u.answer(ctx, who, p, q); err != nil {
			u.counts.failed.Add(1)
			return taken, err
		}
	}
	// A crash before this has a repeated press taken again: the rules of the question let nobody answer it twice.
	err = u.Store.In(ctx, r.Organization, func(ctx context.Context, tx Tx) error { return tx.SettlePress(ctx, p.ID, taken.Outcome) })
	if err != nil {
		u.counts.failed.Add(1)
		return taken, fmt.Errorf("settle a press in channel %s: %w", r.Channel, err)
	}
	u.counts.count(taken.Outcome)
	if p.reply != "" && taken.Text != "" {
		ctx, cancel := context.WithTimeout(ctx, replyTime)
		defer cancel()
		u.Reply(ctx, p.reply, taken)
	}
	return taken, nil
}

func (c *counts) count(outcome string) {
	switch outcome {
	case "answered":
		c.answered.Add(1)
	case "unlinked":
		c.unlinked.Add(1)
	case "repeated":
		c.repeated.Add(1)
	case "failed":
		c.failed.Add(1)
	default:
		c.refused.Add(1)
	}
}

// asked is what a button answers; closed says why it cannot be answered.
type asked struct {
	core.Question
	// channel is that of the message.
	channel, what, closed string
}

// question finds what a button is about: only what the message of this channel asked, as it asked it, can be answered with it.
func (u *UseCases) question(ctx context.Context, tx Tx, organization int64, p Press, a notify.Answers) (q asked, err error) {
	m, err := tx.LockMessage(ctx, p.message)
	if fault.Is(err, fault.NotFound) {
		return asked{closed: "This message is not known any more. The question may be open still: look at Waiting for me in Lockstep."}, nil
	}
	if err != nil {
		return q, err
	}
	// An app has one address for all of its channels here: they share the secret that proves what comes.
	channels, err := tx.NotificationChannels(ctx, organization)
	if err != nil {
		return q, err
	}
	i := slices.IndexFunc(channels, func(c core.NotificationChannel) bool { return c.ID == m.ChannelID && c.Kind == p.Kind })
	of := notify.Answers{}
	if i >= 0 {
		of, _ = notify.AnswersOf(channels[i])
		q.channel = channels[i].Name
	}
	if i < 0 || of.Credential != a.Credential || of.URL != a.URL || of.Target != p.place || m.Ref != "" && m.Ref != p.post {
		return asked{closed: "This button is not of this message of Lockstep."}, nil
	}
	over := asked{closed: "This question is not open any more: it was answered, or has ended."}
	if p.call {
		calls, err := tx.CallRequestsByID(ctx, organization, []int64{p.request})
		c, known := calls[p.request]
		if err != nil || !known || c.StateAt(u.Clock.Now()) != core.CallPending || c.RolloutID != m.RolloutID {
			return over, err
		}
		q.Question, q.what = core.Question{RolloutID: c.RolloutID, RequestID: c.ID}, "the call of "+c.Function
		return q, nil
	}
	gates, err := tx.OpenGates(ctx, organization, []int64{m.RolloutID})
	for _, g := range gates[m.RolloutID] {
		if g.RequestID == p.request {
			q.Question, q.what = core.Question{RolloutID: m.RolloutID, GateID: g.GateID, RequestID: g.RequestID}, g.GateID
			return q, err
		}
	}
	return over, err
}

// ownership is whose an account is.
type ownership int

const (
	// ownerFound is a member who may answer; ownerMissing nobody; ownerLeft a member who has left.
	ownerFound ownership = iota
	ownerMissing
	ownerLeft
	// ownerUnproved is one who has linked it with another secret; ownerMachine no person; ownerWeak one who has linked it without the
	// permission that is needed.
	ownerUnproved
	ownerMachine
	ownerWeak
)

// memberOf is the member who has linked the account of a press, with the rights of this moment; the zero value for nobody. It is nobody
// also where the account was linked by what was not good for the permission that is needed.
func memberOf(ctx context.Context, tx AccountTx, organization int64, p Press, needs core.Permission) (core.Actor, ownership, error) {
	found, err := tx.ChatAccountsOf(ctx, p.Kind, p.Workspace, p.User, 0)
	if err != nil || len(found) == 0 {
		return core.Actor{}, ownerMissing, err
	}
	members, err := tx.MembersByID(ctx, organization, []int64{found[0].MemberID})
	if err != nil {
		return core.Actor{}, ownerMissing, err
	}
	m, known := members[found[0].MemberID]
	switch {
	case !known || m.RemovedAt != nil:
		return core.Actor{}, ownerLeft, nil
	case !found[0].proves(p):
		return core.Actor{}, ownerUnproved, nil
	case m.Kind != core.PrincipalUser:
		return core.Actor{}, ownerMachine, nil
	}
	a, err := actor(ctx, tx, organization, m, p.Kind)
	if err != nil {
		return core.Actor{}, ownerMissing, err
	}
	if !found[0].Permissions.Has(needs) && a.Somewhere().Has(needs) { // linking again helps only a member who has the right
		return core.Actor{}, ownerWeak, nil
	}
	return a.LimitedTo(found[0].Permissions), ownerFound, nil
}

// member is memberOf, with a text for the user if it is nobody.
func (u *UseCases) member(ctx context.Context, tx Tx, organization int64, p Press, needs core.Permission) (
	core.Actor, string, []string, error,
) {
	a, of, err := memberOf(ctx, tx, organization, p, needs)
	if err != nil || of == ownerFound {
		return a, "", nil, err
	}
	if of == ownerMachine {
		return a, "Machines do not answer in chats.", nil, nil
	}
	how, links, err := u.accountLink(ctx, organization, p)
	return a, map[ownership]string{
		ownerMissing:  "Your chat account is not linked to a member of Lockstep.",
		ownerLeft:     "The member whose chat account this was has left Lockstep.",
		ownerUnproved: "The secret of this channel was replaced since you linked your chat account, so it has to be linked again.",
		ownerWeak:     fmt.Sprintf("Your chat account was linked when you were not signed in with the permission %q, so it has to be linked again.", needs),
	}[of] + " " + how, links, err
}

// proves is whether the account was linked with the secret that has proved a press.
func (a Account) proves(p Press) bool {
	return bytes.Equal(a.KeyDigest, p.KeyDigest) || len(a.CommandDigest) > 0 && bytes.Equal(a.CommandDigest, p.KeyDigest)
}

// goodFor are the permissions that an account of a kind may be good for. No comment at a forge begins a rollout.
func goodFor(kind core.NotificationKind) core.Permissions {
	all := core.PermissionsOf(core.MayRead, core.MayApprove, core.MayFreeze)
	if kind != Forge {
		all |= core.PermissionsOf(core.MayDeploy)
	}
	return all
}

// actor is a member with the rights of this moment, as far as an account of a kind may be good for them.
func actor(ctx context.Context, tx AccountTx, organization int64, m core.Member, kind core.NotificationKind) (core.Actor, error) {
	groups, err := tx.GroupsByMember(ctx, organization, []int64{m.ID})
	if err != nil {
		return core.Actor{}, err
	}
	grants, err := tx.GrantsByMember(ctx, organization, []int64{m.ID})
	return core.ActorOf(organization, m, grants[m.ID], groups[m.ID]).LimitedTo(goodFor(kind)), err
}

// answer answers a question by the rules of the console. The error is that it could not be answered now; what is not allowed is a text.
func (u *UseCases) answer(ctx context.Context, a core.Actor, p Press, q asked) (outcome, shown string, err error) {
	decision := map[bool]string{true: "approved", false: "rejected"}[p.approve]
	resolution := rollout.Resolution{RolloutID: q.RolloutID, GateID: q.GateID, RequestID: q.RequestID}
	resolution.Reason = decision + " " + p.where(q.channel)
	switch {
	case p.call:
		_, err = u.Calls.AnswerCall(ctx, a, q.RequestID, p.approve, resolution.Reason)
	case p.approve:
		_, err = u.Rollouts.ApproveGate(ctx, a, resolution)
	default:
		_, err = u.Rollouts.RejectGate(ctx, a, resolution)
	}
	switch {
	case err == nil:
		return "answered", asText(p.Kind, fmt.Sprintf("You %s %s, as %s.", decision, q.what, a.DisplayName())), nil
	case fault.Is(err, fault.Refused), fault.Is(err, fault.Denied), fault.Is(err, fault.Invalid), fault.Is(err, fault.NotFound):
		return "refused", asText(p.Kind, "Nothing was decided: "+fault.Public(err)+"."), nil
	default:
		return "failed", "", fmt.Errorf("answer in a chat: %w", err)
	}
}

// account is what a link for linking an account carries.
type account struct {
	Organization int64 `json:"organization"`
	Press        int64 `json:"press"`
	// Expires is in seconds since 1970.
	Expires int64 `json:"expires"`
}

// accountLink is a sentence with the link that links the account of a press, and the link.
func (u *UseCases) accountLink(ctx context.Context, organization int64, p Press) (string, []string, error) {
	text, err := json.Marshal(account{organization, p.ID, u.Clock.Now().Add(linkLife).Unix()})
	if err != nil {
		return "", nil, fmt.Errorf("write a link: %w", err)
	}
	sealed, err := u.Sealer.SealFor(ctx, sealing.UseChatAccount, string(text))
	if fault.Is(err, fault.Refused) || fault.Is(err, fault.Unavailable) {
		return "Linking is not possible now; answer in Lockstep.", nil, nil
	}
	if err != nil {
		return "", nil, err
	}
	again := "press again"
	if p.Command {
		again = "send the command again"
	}
	link := fmt.Sprintf("%s%s#%s", strings.TrimSuffix(u.URL, "/"), AccountPath, base64.RawURLEncoding.EncodeToString(sealed))
	return fmt.Sprintf("Link it within 10 minutes by signing in, and %s: %s. The link is for you alone.", again, link), []string{link}, nil
}

// ByAnswer is whether the chat shows its user the text that it gets as an answer; to others it is sent.
func (t Taken) ByAnswer() bool { return t.Kind == core.NotifyMattermost }
