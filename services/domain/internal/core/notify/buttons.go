package notify

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// Buttons of messages answer their questions (D63). They say only which question of which message: what a press counts for is decided by
// package chat, which checks that the chat server proves it.

// The two buttons of a question, as the chat names them.
const (
	ButtonApprove = "approve"
	ButtonReject  = "reject"
)

// CallbackPath is the path to which a chat server sends presses: the organization and the name of the channel follow.
const CallbackPath = "/chat/"

// maxAsked is how many questions a message has buttons for: the latest. Others are answered in the console.
const maxAsked = 2

// Answers is how a channel takes answers.
type Answers struct {
	// Credential is the name of the credential that the chat server proves presses with.
	Credential string
	// URL is the address of the chat's API, without a slash at its end, and Target the channel that messages are in.
	URL, Target string
}

// AnswersOf is how a channel takes answers; false for one that takes none.
func AnswersOf(c core.NotificationChannel) (Answers, bool) {
	var config channelConfig
	if c.Kind != core.NotifySlack && c.Kind != core.NotifyMattermost || json.Unmarshal(c.Config, &config) != nil {
		return Answers{}, false
	}
	return Answers{config.Answers, strings.TrimSuffix(config.URL, "/"), config.Target}, config.Answers != "" && config.Target != ""
}

// CommandsOf is how a channel takes slash commands; false for one that takes none.
func CommandsOf(c core.NotificationChannel) (Answers, bool) {
	var config channelConfig
	if c.Kind != core.NotifySlack && c.Kind != core.NotifyMattermost || json.Unmarshal(c.Config, &config) != nil {
		return Answers{}, false
	}
	return Answers{config.Commands, strings.TrimSuffix(config.URL, "/"), config.Target}, config.Commands != "" && config.Target != ""
}

// Markup is a text as a chat shows it: nothing of it is markup, a link or a mention there.
func Markup(kind core.NotificationKind, text string) string {
	if kind == core.NotifySlack {
		return slackText(text)
	}
	return markdownText(text)
}

// Secrets reads the values of credentials of organizations.
type Secrets interface {
	Secret(ctx context.Context, organization int64, name string) (string, error)
}

// leastSecret is how long the secret has to be that a chat server proves presses with, in bytes: those of Slack have 32.
const leastSecret = 32

// leastToken is how long the token is that Mattermost makes for a slash command.
const leastToken = 26

// checkAnswers refuses a channel whose buttons or commands would not work.
func (u *UseCases) checkAnswers(ctx context.Context, organization int64, kind core.NotificationKind, c channelConfig) error {
	if err := u.checkProof(ctx, organization, c, "/config/answers", c.Answers, leastSecret); err != nil {
		return err
	}
	least := leastSecret
	if kind == core.NotifyMattermost {
		least = leastToken
	}
	return u.checkProof(ctx, organization, c, "/config/commands", c.Commands, least)
}

// checkProof checks the credential that a chat server proves its requests with; an empty name is none.
func (u *UseCases) checkProof(ctx context.Context, organization int64, c channelConfig, field, name string, least int) error {
	if name == "" {
		return nil
	}
	switch {
	case c.Target == "":
		return invalid(field, "found without target; expected both: only the channel of a bot takes answers and commands")
	case u.url == "":
		return invalid(field, "found, but the address of the console is not known; an operator has to configure it (public_url)")
	case u.sealer == nil || !u.sealer.Configured():
		return invalid(field, "found, but chat accounts cannot be linked without a keyset; an operator has to configure it (credentials.keyset_ref)")
	case u.secrets == nil:
		return invalid(field, "found, but credentials cannot be read here")
	}
	value, err := u.secrets.Secret(ctx, organization, name)
	switch {
	case fault.Is(err, fault.NotFound), fault.Is(err, fault.Refused):
		return invalid(field, "%s", fault.Public(err))
	case err != nil:
		return err
	case len(value) < least:
		return invalid(field, "found a secret of %d bytes; expected at least %d, which nobody can guess", len(value), least)
	}
	return nil
}

// button is what the buttons of a question carry.
func (q openQuestion) button(message int64) string {
	kind := "gate"
	if q.GateID == "" {
		kind = "call"
	}
	return fmt.Sprintf("%d:%d:%s", message, q.RequestID, kind)
}

// ParseQuestion reads what the buttons of a question carry: the message, and the row of the journal or the call request that asks.
func ParseQuestion(text string) (message, request int64, call, ok bool) {
	parts := strings.Split(text, ":")
	if len(parts) != 3 || parts[2] != "gate" && parts[2] != "call" {
		return 0, 0, false, false
	}
	message, err := strconv.ParseInt(parts[0], 10, 64)
	request, wrong := strconv.ParseInt(parts[1], 10, 64)
	return message, request, parts[2] == "call", err == nil && wrong == nil && message > 0 && request > 0
}

// asked are the questions that a message has buttons for, the latest.
func (c content) asked() []openQuestion { return c.open[max(0, len(c.open)-maxAsked):] }

// slackButtons are a block for each question. A press asks whether it is meant.
func (c content) slackButtons(message int64) (blocks values) {
	plain := func(text string) object {
		return object{"type": "plain_text", "text": cut(text, 75), "emoji": false}
	}
	button := func(q openQuestion, id, verb, style string) object {
		return object{
			"type": "button", "action_id": id, "style": style, "text": plain(verb + " " + q.what), "value": q.button(message),
			"accessibility_label": cut(verb+" "+q.what, 75),
			"confirm": object{
				"title": plain(verb + "?"), "text": plain("This is your answer: " + id + " " + q.what), "confirm": plain(verb), "deny": plain("Back"),
			},
		}
	}
	for _, q := range c.asked() {
		blocks = append(blocks, object{
			"type": "actions", "block_id": fmt.Sprintf("question-%d", q.RequestID),
			"elements": values{button(q, ButtonApprove, "Approve", "primary"), button(q, ButtonReject, "Reject", "danger")},
		})
	}
	return blocks
}

// mattermostButtons are actions, and the places in the body of a post where the secret belongs that proves them.
func (c content) mattermostButtons(message int64) (actions values, secrets []string) {
	for _, q := range c.asked() {
		for _, one := range []struct{ id, name, style string }{{ButtonApprove, "Approve", "success"}, {ButtonReject, "Reject", "danger"}} {
			secrets = append(secrets, fmt.Sprintf("/props/attachments/0/actions/%d/integration/context/token", len(actions)))
			actions = append(actions, object{
				"id": fmt.Sprintf("%s%d", one.id, len(actions)), "type": "button", "style": one.style,
				"name":        cut(one.name+" "+markdownText(q.what), 75),
				"integration": object{"url": c.callback, "context": object{"decision": one.id, "question": q.button(message)}},
			})
		}
	}
	return actions, secrets
}
