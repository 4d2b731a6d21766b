package chat

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/id"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/forge"
)

// Forge is the kind of the accounts at forges, which answer by comments on pull requests.
const Forge core.NotificationKind = "forge"

const (
	// maxAnswer bounds an answer in a comment, in bytes.
	maxAnswer = 4000
	// maxRollouts is how many rollouts of one pull request are shown, and maxCandidates how many are looked at for a question.
	maxRollouts   = 3
	maxCandidates = 50
	// oldest is how long after it was made a comment counts, less than its row is kept: one that is delivered again later is no command. A
	// clock of a forge may be ahead by as much as ahead.
	oldest, ahead = 24 * time.Hour, 10 * time.Minute
	// PerHook is how many commands of a hook are taken within a minute: who knows its secret may name any number of accounts.
	PerHook = 300
	// PerPull is how many commands on a pull request are taken within a minute.
	PerPull = 60
)

// CommentReport is a comment with a command on a pull request, with the event that brought it. The registry service has proved that the
// forge has sent it.
type CommentReport struct {
	In core.Inbound
	// Hook is the key of the hook that received it.
	Hook string
	// Repository is an address, Number that of the pull request there.
	Repository                  string
	Number, CommentID, AuthorID int64
	// Author is what the forge calls who has written it, which may change; AuthorID stays.
	Author, Text string
	// MadeAt is when the forge says that it was made.
	MadeAt time.Time
	// MaybeApp is that the forge does not say whether an App has written it for the user.
	MaybeApp bool
}

// Comment is a comment with a command, as it is kept.
type Comment struct {
	ID, HookID int64
	// Name is host and path of the repository.
	Name                        string
	Number, CommentID, AuthorID int64
	Author, Command             string
	// Digest identifies the first line.
	Digest     []byte
	ReceivedAt time.Time
	// BegunAt is when it was begun to be performed; nil before.
	BegunAt *time.Time
	// Outcome is what became of it; empty while that is open.
	Outcome, Answer string
	// Member is who has linked the account; 0 for nobody.
	Member int64
}

// Host is the server of a comment.
func (c Comment) Host() string {
	host, _, _ := strings.Cut(c.Name, "/")
	return host
}

// account is the account of who has written a comment. A hook proves nothing about the users of another one: the member who makes a hook
// knows its secret.
func (c Comment) account() Account {
	sum := sha256.Sum256(fmt.Appendf(nil, "lockstep forge account 1 hook %d", c.HookID))
	return Account{
		Kind: Forge, Workspace: fmt.Sprintf("%s/hook_%d", c.Host(), c.HookID), User: strconv.FormatInt(c.AuthorID, 10), Name: c.Author, KeyDigest: sum[:],
	}
}

func (c Comment) where() string {
	return fmt.Sprintf("in %s on %s#%d as %s", id.OfComment(c.CommentID), c.Name, c.Number, c.Author)
}

// CommentCounts returns the number of commands in comments that this process has received, by what became of them.
func (u *UseCases) CommentCounts() map[string]int64 {
	all := u.comments.all()
	delete(all, "unproved")
	all["linked"], all["ignored"], all["unwritten"] = u.linked.Load(), u.ignored.Load(), u.dropped.Load()
	return all
}

// ReportComments takes commands in comments on pull requests of proposed changes. It may be repeated at any point, in any order. It answers
// the error, or nil, of each that was tried; while the database is away, none behind the first is.
//
// A command to freeze is performed at most once: after a crash its answer says so. All others decide nothing twice by their own rules.
func (u *UseCases) ReportComments(ctx context.Context, all []CommentReport) (tried []error) {
	for _, r := range all {
		outcome, err := u.takeComment(ctx, r)
		switch {
		case err != nil:
			u.comments.failed.Add(1)
			err = fmt.Errorf("take %s on pull request %d of %.200s: %w", id.OfComment(r.CommentID), r.Number, r.Repository, err)
		case outcome == "linked":
			u.linked.Add(1)
		case outcome == "ignored":
			u.ignored.Add(1)
		default:
			u.comments.count(outcome)
		}
		if tried = append(tried, err); fault.Is(err, fault.Unavailable) {
			break
		}
	}
	u.Wake()
	return tried
}

// errIgnored is a comment that is about nothing of ours.
var errIgnored = errors.New("it is about nothing of ours")

// commented is a comment that is to be performed.
type commented struct {
	Comment
	order        order
	organization int64
	// repository is its address.
	repository string
	who        core.Actor
	rollouts   []core.Rollout
	// interrupted is that it was begun before, and may have been performed.
	interrupted bool
	// outcome is what became of it without being performed; empty if it is to be.
	outcome, answer string
}

func (u *UseCases) takeComment(ctx context.Context, r CommentReport) (string, error) {
	if r.In.Organization <= 0 {
		return "", fault.InvalidFields(fault.Field{Name: "organizationid", Problem: "missing; expected that of the hook"})
	}
	var c commented
	err := u.Store.In(ctx, r.In.Organization, func(ctx context.Context, tx Tx) (err error) {
		c = commented{organization: r.In.Organization, repository: r.Repository}
		if _, err := tx.ClaimAll(ctx, []core.Inbound{r.In}); err != nil {
			return err
		}
		return u.beginComment(ctx, tx, r, &c)
	})
	switch {
	case errors.Is(err, errIgnored):
		return "ignored", u.Store.In(ctx, r.In.Organization, func(ctx context.Context, tx Tx) error {
			_, err := tx.ClaimAll(ctx, []core.Inbound{r.In})
			return err
		})
	case err != nil:
		return "", err
	case c.outcome == "repeated":
		return c.outcome, nil
	case c.outcome != "":
		return c.outcome, u.settleComment(ctx, c)
	case c.order.verb == verbLink:
		return u.linkByComment(ctx, c)
	}
	taken, s := Taken{}, &reply{kind: core.NotifySlack} // plain text: the comment makes a block of code of it
	if err := s.finish(c.answerTo(ctx, u, s), &taken); err != nil {
		return "", err
	}
	c.outcome, c.answer = taken.Outcome, taken.Text
	return c.outcome, u.settleComment(ctx, c)
}

// beginComment notes a comment, and finds out whose it is and what it is about.
func (u *UseCases) beginComment(ctx context.Context, tx Tx, r CommentReport, c *commented) error {
	name := forge.RepositoryName(r.Repository)
	hook, err := tx.ForgeHookByKey(ctx, r.Hook)
	if fault.Is(err, fault.NotFound) { // it was removed, or never made
		return errIgnored
	}
	if err != nil {
		return err
	}
	if name == "" || !hook.Commands || !hook.Covers(name) {
		return errIgnored
	}
	now := u.Clock.Now()
	if age := now.Sub(r.MadeAt); age > oldest || age < -ahead {
		return errIgnored
	}
	words := strings.Fields(r.Text) // also at other spaces, of which no part of a code may be taken for a verb
	c.order = parse(strings.Join(words[min(1, len(words)):], " "))
	c.Comment = Comment{
		HookID: hook.ID, Name: name, Number: r.Number, CommentID: r.CommentID, AuthorID: r.AuthorID, Author: r.Author, Command: c.order.shown(),
		ReceivedAt: now,
	}
	sum := sha256.Sum256([]byte("lockstep forge comment 1 " + strings.Join(words, " ")))
	c.Digest = sum[:]
	if err := c.about(ctx, tx, hook); err != nil {
		return err
	}
	if many, err := tx.TooManyComments(ctx, c.Comment, now.Add(-time.Minute)); err != nil || many {
		if err == nil {
			err = errIgnored
		}
		return err
	}
	before, err := tx.AddComment(ctx, c.Comment)
	if err != nil {
		return err
	}
	if before.Outcome != "" || before.AuthorID != r.AuthorID || !bytes.Equal(before.Digest, c.Digest) {
		c.outcome = "repeated"
		return nil
	}
	c.ID, c.interrupted = before.ID, before.BegunAt != nil
	refused := r.MaybeApp && c.order.decides()
	if refused { // no matter who wrote it
		c.outcome, c.answer = "refused", "Nothing was done: the forge does not say of a review whether an App has written it for you. "+
			"Write the command as a comment of the conversation."
	} else if c.order.verb != verbLink {
		if err := u.whoCommented(ctx, tx, c); err != nil {
			return err
		}
	}
	if refused || c.order.verb != verbLink {
		// Who knows the secret of a hook cannot suppress what others have written: only what another hook has brought for the same member is
		// done.
		if elsewhere, err := tx.CommentAtOtherHook(ctx, c.Comment); err != nil || elsewhere {
			c.outcome = "repeated"
			return err
		}
	}
	if err := tx.BeginComment(ctx, c.Comment, now); err != nil {
		return err
	}
	if c.interrupted && c.outcome == "" && c.order.verb == verbFreeze {
		c.outcome, c.answer = "refused", "Lockstep was interrupted while it performed this. Look whether there is the freeze, and write it again if there is none."
	}
	return tx.ForgetComments(ctx, now.Add(-kept), forgottenAtOnce)
}

// about finds the rollouts whose pull request a comment is on. A code that is known may be written on others, too: it says whose account it
// is for.
func (c *commented) about(ctx context.Context, tx Tx, hook forge.Hook) error {
	found, err := tx.RolloutsOfPage(ctx, hook.Page(c.Name, c.Number), maxCandidates)
	if err != nil {
		return err
	}
	if len(found) == 0 {
		if c.order.verb != verbLink || len(c.order.args) != 1 {
			return errIgnored
		}
		code, err := tx.LockForgeCode(ctx, codeDigest(c.order.args[0]))
		if fault.Is(err, fault.NotFound) || err == nil && code.HookID != hook.ID {
			return errIgnored
		}
		return err
	}
	rollouts, err := tx.RolloutsByID(ctx, c.organization, found)
	for _, id := range found {
		c.rollouts = append(c.rollouts, rollouts[id])
	}
	return err
}

// whoCommented finds the member who has linked the account of a comment.
func (u *UseCases) whoCommented(ctx context.Context, tx Tx, c *commented) error {
	of := c.account()
	needs := c.order.needs()
	if !goodFor(Forge).Has(needs) { // no command of comments; the answer lists those that are
		needs = core.MayRead
	}
	by := Press{Kind: of.Kind, Workspace: of.Workspace, User: of.User, KeyDigest: of.KeyDigest}
	a, how, err := memberOf(ctx, tx, c.organization, by, needs)
	if err != nil {
		return err
	}
	if how == ownerFound {
		c.who, c.Member = a, a.ID
		return nil
	}
	c.outcome, c.answer = "unlinked", map[ownership]string{
		ownerMissing:  "This account is not linked to a member of Lockstep. ",
		ownerLeft:     "The member whose account this was has left Lockstep. ",
		ownerUnproved: "This account is not linked to a member of Lockstep. ",
		ownerMachine:  "Machines do not answer in comments. ",
		ownerWeak:     fmt.Sprintf("This account was linked without the permission %q, so it has to be linked again. ", needs),
	}[how]
	c.answer += "To link it, get a code for it on the page Forges of the console."
	return nil
}

// settleComment keeps what became of a comment, and has its answer written.
func (u *UseCases) settleComment(ctx context.Context, c commented) error {
	return u.Store.In(ctx, c.organization, func(ctx context.Context, tx Tx) error { return u.settleIn(ctx, tx, c) })
}

func (u *UseCases) settleIn(ctx context.Context, tx Tx, c commented) error {
	if len(c.answer) > maxAnswer {
		c.answer = strings.ToValidUTF8(c.answer[:maxAnswer], "") + "…"
	}
	c.Outcome, c.Answer = c.outcome, c.answer
	fresh, err := tx.SettleComment(ctx, c.Comment)
	if err != nil || !fresh || c.answer == "" {
		return err
	}
	noted, err := tx.MergeForgeAnswer(ctx, forge.Answering(c.HookID, c.Name, c.repository, c.Number, u.Clock.Now()), forge.MostPulls,
		forge.BetweenAnswers)
	if err == nil && !noted {
		u.dropped.Add(1)
	}
	return err
}

// answerTo performs a command by the rules of the console. The error is that it could not be performed, or is not allowed.
func (c commented) answerTo(ctx context.Context, u *UseCases, s *reply) error {
	if c.order.wrong != nil {
		return c.order.wrong
	}
	switch c.order.verb {
	case verbHelp:
		s.lines = append(s.lines, strings.Split(helpInComments(), "\n")...)
		return nil
	case verbStatus, verbWhy:
		return u.standing(ctx, c, s)
	case verbApprove, verbReject:
		return u.resolveByComment(ctx, c, s)
	case verbFreeze:
		return u.freezeByComment(ctx, c, s)
	}
	return fault.New(fault.Invalid, "found %q; expected one of %s", c.order.shown(), strings.Join(
		[]string{verbStatus, verbWhy, verbApprove, verbReject, verbFreeze, verbHelp, verbLink}, ", "))
}

// decides is whether a command does more than to show something.
func (o order) decides() bool {
	switch o.verb {
	case verbApprove, verbReject: // without a number they show what asks
		return len(o.args) > 0
	case verbFreeze, verbLink:
		return true
	default:
		return false
	}
}

// maxVerb is the length of the longest word that is shown of an unknown command: a code is longer.
const maxVerb = 12

// shown is a command as it is kept and shown to everybody: the verb, and the number of the question. What else was written may be a reason,
// or a code.
func (o order) shown() string {
	switch o.verb {
	case verbApprove, verbReject:
		if len(o.args) > 0 {
			if number, err := strconv.ParseInt(o.args[0], 10, 64); err == nil {
				return fmt.Sprintf("/lockstep %s %d", o.verb, number)
			}
		}
	default:
		if o.verb == "" || len(o.verb) > maxVerb || strings.ContainsFunc(o.verb, func(r rune) bool { return r < 'a' || r > 'z' }) {
			return "/lockstep ?"
		}
	}
	return "/lockstep " + o.verb
}

func helpInComments() string {
	return strings.Join([]string{
		"/lockstep status - where the rollout of this change is", "/lockstep why - what it waits for",
		"/lockstep approve - what asks for approval, and how to answer it", "/lockstep approve NUMBER [REASON] - approve that question",
		"/lockstep reject NUMBER [REASON] - reject it, which cancels the rollout",
		"/lockstep freeze DURATION REASON - stop the rollouts of the application, such as for 2h",
		"/lockstep link CODE - link this account to a member of Lockstep", "Everybody who sees this pull request sees the answers.",
	}, "\n")
}
