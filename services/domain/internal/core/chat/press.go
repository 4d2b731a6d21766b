package chat

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/notify"
)

// Request is what came to the address of a channel. Nothing of it is believed before its proof was checked.
type Request struct {
	Organization int64
	// Channel is the name in the address.
	Channel string
	// Timestamp and Signature are the headers of Slack.
	Timestamp, Signature string
	Body                 []byte
}

const (
	// MaxBody bounds what is read of a request, in bytes.
	MaxBody = 128 << 10
	// freshness is how old a signed request may be, and how far ahead the other clock.
	freshness = 5 * time.Minute
	// maxUser and maxWorkspace bound what a chat calls a user and where, in bytes, and maxName the name for people, in characters.
	maxUser      = 100
	maxWorkspace = 1000
	maxName      = 50
)

// unproved is what everything gets that no chat server has proved, whether or not there is such a channel.
func unproved() error {
	return fault.New(fault.Unauthenticated, "found no proof of a chat server: the address, the secret, the signature or its time is wrong")
}

// sender is the channel of a request, and the secret that its chat server proves it with.
func (u *UseCases) sender(
	ctx context.Context, r Request, of func(core.NotificationChannel) (notify.Answers, bool),
) (core.NotificationChannel, notify.Answers, string, error) {
	channels, err := u.Store.NotificationChannels(ctx, r.Organization)
	if err != nil {
		return core.NotificationChannel{}, notify.Answers{}, "", err
	}
	i := slices.IndexFunc(channels, func(c core.NotificationChannel) bool { return c.Name == r.Channel && c.Enabled })
	if i < 0 {
		return core.NotificationChannel{}, notify.Answers{}, "", unproved()
	}
	a, takes := of(channels[i])
	if !takes {
		return channels[i], a, "", unproved()
	}
	value, err := u.Secrets.Secret(ctx, r.Organization, a.Credential)
	if fault.Is(err, fault.Unavailable) || fault.Is(err, fault.Internal) {
		// No caller has proved anything yet: the answer names no credential.
		return channels[i], a, "", fault.Because(err, fault.Unavailable, "the secret of the channel cannot be read now; try again")
	}
	if err != nil || value == "" {
		return channels[i], a, "", unproved()
	}
	return channels[i], a, value, nil
}

// read proves and reads a request; false for one that is about nothing of ours.
func (u *UseCases) read(ctx context.Context, r Request) (p Press, a notify.Answers, ours bool, err error) {
	c, a, value, err := u.sender(ctx, r, notify.AnswersOf)
	if err != nil {
		return p, a, false, err
	}
	now := u.Clock.Now()
	p = Press{ChannelID: c.ID, Kind: c.Kind, Channel: c.Name, ReceivedAt: now, KeyDigest: keyDigest(c.Kind, value)}
	if c.Kind == core.NotifySlack {
		ours, err = p.slack(r, value, a.URL, now)
	} else {
		ours, err = p.mattermost(r, value, a.URL)
	}
	if err == nil && ours {
		err = p.check()
	}
	return p, a, ours, err
}

// keyDigest identifies a secret without revealing it: secrets can be tried out against signatures just as well.
func keyDigest(kind core.NotificationKind, value string) []byte {
	m := hmac.New(sha256.New, []byte(value))
	_, _ = m.Write([]byte("lockstep chat account 1 " + kind)) // never fails
	return m.Sum(nil)
}

// proveSlack checks what Slack signs with the signing secret of the app: the time, and the body as it is. The digest identifies the
// request.
func proveSlack(r Request, secret string, now time.Time) (digest []byte, err error) {
	at, err := strconv.ParseInt(r.Timestamp, 10, 64)
	given, is := strings.CutPrefix(r.Signature, "v0=")
	signature, wrong := hex.DecodeString(given)
	if err != nil || !is || wrong != nil || strconv.FormatInt(at, 10) != r.Timestamp {
		return nil, unproved()
	}
	m := hmac.New(sha256.New, []byte(secret))
	_, _ = fmt.Fprintf(m, "v0:%s:", r.Timestamp) // never fails
	_, _ = m.Write(r.Body)
	if age := now.Sub(time.Unix(at, 0)); !hmac.Equal(m.Sum(nil), signature) || age > freshness || age < -freshness {
		return nil, unproved()
	}
	sum := sha256.Sum256(signature)
	return sum[:], nil
}

// slack reads what Slack sends when a button of Block Kit is pressed: a form whose payload is JSON.
func (p *Press) slack(r Request, secret, home string, now time.Time) (ours bool, err error) {
	if p.Digest, err = proveSlack(r, secret, now); err != nil {
		return false, err
	}
	form, err := url.ParseQuery(string(r.Body))
	if err != nil || len(form["payload"]) != 1 {
		return false, fault.New(fault.Invalid, "found no form with one payload; expected what Slack sends to the request URL of interactivity")
	}
	var in struct {
		Type string `json:"type"`
		User struct {
			ID       string `json:"id"`
			Username string `json:"username"`
			Name     string `json:"name"`
			TeamID   string `json:"team_id"`
		} `json:"user"`
		Team struct {
			ID string `json:"id"`
		} `json:"team"`
		Container struct {
			MessageTS string `json:"message_ts"`
			ChannelID string `json:"channel_id"`
		} `json:"container"`
		ResponseURL string `json:"response_url"`
		Actions     []struct {
			ActionID string `json:"action_id"`
			Value    string `json:"value"`
		} `json:"actions"`
	}
	if err := json.Unmarshal([]byte(form["payload"][0]), &in); err != nil {
		return false, fault.New(fault.Invalid, "malformed Slack payload: expected a JSON object")
	}
	if in.Type != "block_actions" || len(in.Actions) != 1 {
		return false, nil // another button, or another kind of interaction of the same app
	}
	p.Workspace, p.User, p.Name = in.User.TeamID, in.User.ID, in.User.Username
	if p.Workspace == "" {
		p.Workspace = in.Team.ID
	}
	if p.Name == "" {
		p.Name = in.User.Name
	}
	p.post, p.place = in.Container.MessageTS, in.Container.ChannelID
	if within(in.ResponseURL, home) {
		p.reply = in.ResponseURL
	}
	return p.button(in.Actions[0].ActionID, in.Actions[0].Value), nil
}

// within is whether an address is at the host of another one, or below it: replies go to nobody else.
func within(address, home string) bool {
	to, err := url.Parse(address)
	of, wrong := url.Parse(home)
	if err != nil || wrong != nil || to.Scheme != of.Scheme || to.User != nil || to.Port() != of.Port() || of.Hostname() == "" {
		return false
	}
	host, domain := strings.ToLower(to.Hostname()), strings.ToLower(of.Hostname())
	return host == domain || strings.HasSuffix(host, "."+domain)
}

// mattermost reads what Mattermost sends when an action of a message is pressed. It signs nothing: what proves it is the secret in the
// context of the action, which only its server has, and which it sends to nobody else. Who pressed is as that server says.
func (p *Press) mattermost(r Request, secret, home string) (ours bool, err error) {
	var in struct {
		UserID    string `json:"user_id"`
		UserName  string `json:"user_name"`
		ChannelID string `json:"channel_id"`
		PostID    string `json:"post_id"`
		TriggerID string `json:"trigger_id"`
		Context   struct {
			Token    string `json:"token"`
			Decision string `json:"decision"`
			Question string `json:"question"`
		} `json:"context"`
	}
	if json.Unmarshal(r.Body, &in) != nil {
		return false, unproved()
	}
	// Digests have one length, so comparing them reveals nothing of the secret's.
	given, known := sha256.Sum256([]byte(in.Context.Token)), sha256.Sum256([]byte(secret))
	if subtle.ConstantTimeCompare(given[:], known[:]) != 1 {
		return false, unproved()
	}
	press, _ := json.Marshal([]string{in.TriggerID, in.PostID, in.UserID, in.Context.Decision, in.Context.Question}) // of texts
	sum := sha256.Sum256(press)
	p.Digest, p.Workspace, p.User, p.Name = sum[:], home, in.UserID, in.UserName
	p.post, p.place = in.PostID, in.ChannelID
	return p.button(in.Context.Decision, in.Context.Question), nil
}

// button reads which button it is.
func (p *Press) button(decision, question string) bool {
	var ok bool
	p.message, p.request, p.call, ok = notify.ParseQuestion(question)
	p.approve = decision == notify.ButtonApprove
	return ok && (p.approve || decision == notify.ButtonReject)
}

// check finds what is missing of the user.
func (p *Press) check() error {
	strange := func(r rune) bool { return r <= ' ' || r > '~' }
	for name, text := range map[string]string{"user": p.User, "workspace": p.Workspace} {
		most := map[string]int{"user": maxUser, "workspace": maxWorkspace}[name]
		if text == "" || len(text) > most || strings.ContainsFunc(text, strange) {
			return fault.New(fault.Invalid, "found no %s, or one that no chat has", name)
		}
	}
	p.Name = strings.ToValidUTF8(strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return -1
		}
		return r
	}, p.Name), "")
	if utf8.RuneCountInString(p.Name) > maxName {
		p.Name = string([]rune(p.Name)[:maxName])
	}
	if p.Name == "" {
		p.Name = p.User
	}
	return nil
}
