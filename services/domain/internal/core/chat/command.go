package chat

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/notify"
)

const (
	// answerTime bounds how long a command takes: Slack waits for 3 seconds.
	answerTime = 2500 * time.Millisecond
	// maxText bounds the text of a command, in bytes.
	maxText = 2000
	// PerMinute is how many commands and presses of one user are taken within a minute.
	PerMinute = 30
)

// order is a slash command as its user has typed it.
type order struct {
	verb string
	// args are the words after it.
	args []string
	// wrong is why it cannot be read; nil where it can.
	wrong error
}

// Command takes a slash command. What is asked is answered to its user alone, in the answer to the request. It is Unauthenticated for what
// no chat server has proved. A text is for the user also where there is an error.
//
// A command is performed at most once: a user who gets no answer sends it again, and nobody else does.
func (u *UseCases) Command(ctx context.Context, r Request) (Taken, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	taken := Taken{Organization: r.Organization, Channel: r.Channel, Outcome: "ignored"}
	p, o, ours, err := u.readCommand(ctx, r)
	taken.Kind, taken.Verb = p.Kind, o.known()
	if err != nil || !ours {
		if fault.Is(err, fault.Unauthenticated) {
			u.commands.unproved.Add(1)
		}
		return taken, err
	}
	if o.verb == verbHelp {
		taken.Outcome, taken.Text = "answered", help()
		u.commands.count(taken.Outcome)
		return taken, nil
	}
	if err = u.obey(ctx, p, o, &taken); err != nil {
		taken.Outcome = "failed"
	}
	u.commands.count(taken.Outcome)
	if err != nil {
		taken.Text = "Lockstep could not answer in time, or at all. What is so now: /lockstep status"
		return taken, fmt.Errorf("take a command in channel %s: %w", r.Channel, err)
	}
	return taken, nil
}

// obey performs a command that was proved, if it was not received before.
func (u *UseCases) obey(ctx context.Context, p Press, o order, taken *Taken) error {
	var who core.Actor
	outcome, text := "", ""
	var links []string
	err := u.Store.In(ctx, taken.Organization, func(ctx context.Context, tx Tx) error {
		who, outcome, text, links = core.Actor{}, "", "", nil
		if many, err := u.tooMany(ctx, tx, p); err != nil || many {
			outcome, text = "refused", fmt.Sprintf("Found more than %d commands within a minute. Wait a minute, and send it again.", PerMinute)
			return err
		}
		id, settled, err := tx.AddPress(ctx, p)
		if err != nil {
			return err
		}
		if settled {
			outcome, text = "repeated", "This command was received before. Send it again."
			return nil
		}
		p.ID = id
		if err := tx.ForgetPresses(ctx, u.Clock.Now().Add(-kept), forgottenAtOnce); err != nil {
			return err
		}
		if who, text, links, err = u.member(ctx, tx, taken.Organization, p, o.needs()); err != nil {
			return err
		}
		if outcome = "answered"; who.ID == 0 {
			outcome = "unlinked"
		}
		return tx.SettlePress(ctx, id, outcome)
	})
	if err != nil {
		return err
	}
	if taken.Member, taken.Outcome, taken.Text, taken.Links = who.ID, outcome, text, links; who.ID == 0 {
		return nil
	}
	return u.perform(ctx, who, p, o, taken)
}

// tooMany is whether the user of a press or command has sent as many as are taken within a minute. No more of them are kept.
func (u *UseCases) tooMany(ctx context.Context, tx Tx, p Press) (bool, error) {
	many, err := tx.PressesOf(ctx, p, u.Clock.Now().Add(-time.Minute), PerMinute)
	return many >= PerMinute, err
}

// readCommand proves and reads a command; false for what is none.
func (u *UseCases) readCommand(ctx context.Context, r Request) (p Press, o order, ours bool, err error) {
	c, a, value, err := u.sender(ctx, r, notify.CommandsOf)
	if err != nil {
		return p, o, false, err
	}
	now := u.Clock.Now()
	p = Press{
		ChannelID: c.ID, Kind: c.Kind, Channel: c.Name, ReceivedAt: now, KeyDigest: keyDigest(c.Kind, value), Command: true,
	}
	form, wrong := url.ParseQuery(string(r.Body))
	if c.Kind == core.NotifySlack {
		if p.Digest, err = proveSlack(r, value, now); err != nil {
			return p, o, false, err
		}
	} else {
		// Digests have one length, so comparing them reveals nothing of the secret's. There is one token: others may be read elsewhere.
		given, known := sha256.Sum256([]byte(form.Get("token"))), sha256.Sum256([]byte(value))
		if wrong != nil || len(form["token"]) != 1 || subtle.ConstantTimeCompare(given[:], known[:]) != 1 {
			return p, o, false, unproved()
		}
	}
	if wrong != nil {
		return p, o, false, fault.New(fault.Invalid, "found no form; expected what a chat sends for a slash command")
	}
	if form.Get("ssl_check") != "" || form.Get("command") == "" {
		return p, o, false, nil // Slack tries the address out
	}
	for _, name := range []string{"command", "text", "user_id", "user_name", "team_id", "trigger_id"} {
		if len(form[name]) > 1 {
			return p, o, false, fault.New(fault.Invalid, "found %s twice in a slash command; expected it once", name)
		}
	}
	o = parse(form.Get("text"))
	p.User, p.Name, p.Workspace = form.Get("user_id"), form.Get("user_name"), form.Get("team_id")
	if c.Kind == core.NotifyMattermost {
		p.Workspace = a.URL
		if err := p.mattermostTrigger(form, now); err != nil {
			return p, o, false, err
		}
	}
	return p, o, true, p.check()
}

// mattermostTrigger identifies a command of Mattermost, which does not sign: each has a trigger of its own, which names its user and time.
func (p *Press) mattermostTrigger(form url.Values, now time.Time) error {
	trigger := form.Get("trigger_id")
	if trigger == "" {
		return fault.New(fault.Invalid, "found no trigger_id; expected one, by which a repeated command is recognized")
	}
	named, _ := json.Marshal([]string{"command", trigger, form.Get("user_id")}) // of texts
	sum := sha256.Sum256(named)
	p.Digest = sum[:]
	text, err := base64.StdEncoding.DecodeString(trigger)
	parts := strings.Split(string(text), ":")
	if err != nil || len(parts) < 4 {
		return nil //nolint:nilerr // another form of trigger: it is known once all the same
	}
	at, err := strconv.ParseInt(parts[2], 10, 64)
	if err != nil {
		return nil //nolint:nilerr // another form of trigger: it is known once all the same
	}
	if age := now.Sub(time.UnixMilli(at)); age > freshness || age < -freshness || parts[1] != p.User {
		return unproved()
	}
	return nil
}

// parse reads the text of a command; none asks for help.
func parse(text string) order {
	if len(text) > maxText {
		return order{wrong: fault.New(fault.Invalid, "found a command of %d bytes; expected at most %d", len(text), maxText)}
	}
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "\uFFFD"))
	words := strings.Fields(text)
	if len(words) == 0 {
		return order{verb: verbHelp}
	}
	return order{verb: strings.ToLower(words[0]), args: words[1:]}
}

// The verbs.
const (
	verbHelp    = "help"
	verbStatus  = "status"
	verbWhy     = "why"
	verbApprove = "approve"
	verbReject  = "reject"
	verbRollout = "rollout"
	verbFreeze  = "freeze"
)

func verbs() []string {
	return []string{verbStatus, verbWhy, verbApprove, verbReject, verbRollout, verbFreeze, verbHelp}
}

// known is the verb, or other: it is counted and logged by its name.
func (o order) known() string {
	if slices.Contains(verbs(), o.verb) {
		return o.verb
	}
	return "other"
}

// needs is the permission that the account has to be linked with.
func (o order) needs() core.Permission {
	switch o.verb {
	case verbApprove, verbReject:
		return core.MayApprove
	case verbRollout:
		return core.MayDeploy
	case verbFreeze:
		return core.MayFreeze
	default:
		return core.MayRead
	}
}

func help() string {
	return strings.Join([]string{
		"/lockstep status - what is under way", "/lockstep status APPLICATION - what runs where", "/lockstep why APPLICATION - what its rollout waits for",
		"/lockstep approve APPLICATION - what asks for approval, and how to answer it", "/lockstep approve APPLICATION NUMBER [REASON] - approve that question",
		"/lockstep reject APPLICATION NUMBER [REASON] - reject it, which cancels the rollout",
		"/lockstep rollout APPLICATION - its newest version set, and how to roll it out",
		"/lockstep rollout APPLICATION VERSION-SET [REASON] - begin a rollout of it",
		"/lockstep freeze APPLICATION DURATION REASON - stop its rollouts, such as for 2h; those of all applications with --all",
		"Only you see the answers.",
	}, "\n")
}
