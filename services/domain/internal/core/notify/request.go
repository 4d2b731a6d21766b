package notify

import (
	"fmt"
	"html"
	"net/url"
	"strings"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// inputs are those of the program that sends a message.
type inputs struct {
	Function string         `json:"function"`
	Request  map[string]any `json:"request"`
	Answer   answer         `json:"answer"`
	// Direct is the user that it is written to where a channel of that user has to be made first; empty for none.
	Direct string `json:"direct,omitempty"`
	// Further are requests that follow the first one, in order; the message was sent once the channel has accepted all of them.
	Further []map[string]any `json:"further,omitempty"`
}

// answer names members of the channel's answer: OK is true if it took the message, and Ref how it calls the message. Empty for none.
type answer struct {
	OK  string `json:"ok"`
	Ref string `json:"ref"`
}

// updates reports whether a channel can change a message that it has.
func updates(c core.NotificationChannel) bool {
	switch c.Kind {
	case core.NotifySlack, core.NotifyMattermost, core.NotifyDiscord:
		return strings.Contains(string(c.Config), `"target"`)
	case core.NotifyTeams:
		return strings.Contains(string(c.Config), `"updates"`)
	case core.NotifyPagerDuty, core.NotifyOpsgenie:
		return true
	case core.NotifyEmail, core.NotifyWebhook, core.NotifyNATS:
		return false
	default:
		return false
	}
}

// Values of JSON, for short.
type (
	object map[string]any
	values []any
)

// requestFor is how a message is sent to a channel of a kind.
func requestFor(kind core.NotificationKind, c channelConfig, organization int64, m core.NotificationMessage, what content) inputs {
	switch kind {
	case core.NotifySlack:
		return slack(c, m, what)
	case core.NotifyTeams:
		return teamsCard(c, m, what)
	case core.NotifyMattermost:
		return mattermost(c, m, what)
	case core.NotifyDiscord:
		return discord(c, m, what)
	case core.NotifyEmail:
		return email(c, m, what)
	case core.NotifyPagerDuty:
		return pagerDuty(c, what)
	case core.NotifyOpsgenie:
		return opsgenie(c, m, what)
	case core.NotifyWebhook, core.NotifyNATS:
		return webhook(kind, c, organization, m, what)
	default:
		return webhook(kind, c, organization, m, what)
	}
}

// post is a request whose answer is a value, whatever its status. The engine does not repeat it: another run does.
func post(method, to string, body any) map[string]any {
	return map[string]any{
		"url": to, "method": method, "json": body, "timeout": 30, "retry_status": values{}, "repeatable": false, "max_body": 64 << 10,
	}
}

// secretURL is a request to an address that is a secret.
func secretURL(c channelConfig, body any) inputs {
	r := post("POST", c.URL, body)
	r["url_credential"] = c.Account
	return inputs{Function: "http.request", Request: r}
}

// withToken is a request that a token proves.
func withToken(c channelConfig, method, path string, body any, a answer) inputs {
	r := post(method, strings.TrimSuffix(c.URL, "/")+"/"+path, body)
	r["credential"] = c.Account
	return inputs{Function: "http.request", Request: r, Answer: a}
}

// color is that of a severity, for channels that have one.
func (c content) color() int {
	switch {
	case c.over:
		return 0x2E7D32
	case c.severity == core.SeverityHigh:
		return 0xC62828
	case c.severity == core.SeverityNormal:
		return 0xF9A825
	default:
		return 0x1565C0
	}
}

// slackText writes a text so that nothing in it is markup, a link or a mention of everybody.
func slackText(text string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(text)
}

// slack is Block Kit: a header, a section of at most 3000 characters, and the link.
func slack(c channelConfig, m core.NotificationMessage, what content) inputs {
	var lines []string
	for _, l := range what.lines {
		lines = append(lines, slackText(l))
	}
	blocks := values{object{"type": "header", "text": object{"type": "plain_text", "text": what.title, "emoji": false}}}
	if len(lines) > 0 {
		blocks = append(blocks, object{"type": "section", "text": object{
			"type": "mrkdwn", "text": cut(strings.Join(lines, "\n"), 2900), "verbatim": true,
		}})
	}
	if c.Answers != "" {
		blocks = append(blocks, what.slackButtons(m.ID)...)
	}
	if what.link != "" {
		blocks = append(blocks, object{"type": "context", "elements": values{object{
			"type": "mrkdwn", "text": fmt.Sprintf("<%s|Open in Lockstep>", slackText(what.link)), "verbatim": true,
		}}})
	}
	// The text is what notifications and screen readers have.
	body := object{"text": slackText(cut(what.text(), 2900)), "blocks": blocks, "unfurl_links": false, "unfurl_media": false}
	if c.Target == "" {
		return secretURL(c, body)
	}
	body["channel"] = c.Target
	accepted := answer{OK: "ok", Ref: "ts"}
	if m.Ref == "" {
		return withToken(c, "POST", "chat.postMessage", body, accepted)
	}
	delete(body, "unfurl_links")
	delete(body, "unfurl_media")
	body["ts"] = m.Ref
	sent := withToken(c, "POST", "chat.update", body, accepted)
	if len(what.details) > 0 {
		sent.Further = append(sent.Further, withToken(c, "POST", "chat.postMessage", object{
			"channel": c.Target, "thread_ts": m.Ref, "text": slackText(cut(strings.Join(what.details, "\n"), 2900)), "unfurl_links": false,
			"unfurl_media": false, "mrkdwn": false,
		}, accepted).Request)
	}
	return sent
}

// spoken is all of it for a screen reader, without the address of the link.
func (c content) spoken() string { return strings.Join(append([]string{c.title}, c.lines...), ". ") }

// teams is an Adaptive Card as a workflow of Teams receives it. Text runs have no markup, so nothing in a text is a link or a mention.
func teams(what content) object {
	run := func(text string, bold bool) object {
		r := object{"type": "TextRun", "text": text}
		if bold {
			r["weight"], r["size"] = "Bolder", "Medium"
			r["color"] = map[bool]string{true: "Attention", false: "Default"}[what.severity == core.SeverityHigh && !what.over]
		}
		return r
	}
	block := func(text string, bold bool) object {
		return object{"type": "RichTextBlock", "inlines": values{run(text, bold)}}
	}
	body := values{block(what.title, true)}
	for _, l := range what.lines {
		body = append(body, block(l, false))
	}
	card := object{
		"$schema": "http://adaptivecards.io/schemas/adaptive-card.json", "type": "AdaptiveCard", "version": "1.4", "body": body,
		"fallbackText": cut(what.text(), 2900), "speak": cut(what.spoken(), 2900),
	}
	if what.link != "" {
		card["actions"] = values{object{"type": "Action.OpenUrl", "title": "Open in Lockstep", "url": what.link}}
	}
	return object{"type": "message", "attachments": values{object{
		"contentType": "application/vnd.microsoft.card.adaptive", "contentUrl": nil, "content": card,
	}}}
}

// teamsCard sends a card to a workflow. One that updates cards has their IDs.
func teamsCard(c channelConfig, m core.NotificationMessage, what content) inputs {
	body := teams(what)
	if c.Updates && m.Ref != "" {
		body["messageId"] = m.Ref
	}
	sent := secretURL(c, body)
	if c.Updates {
		sent.Answer.Ref = "messageId"
	}
	return sent
}

// markdownText writes a text so that nothing in it is markup, a link or a mention.
func markdownText(text string) string {
	var b strings.Builder
	for _, r := range text {
		switch r {
		case '\\', '`', '*', '_', '{', '}', '[', ']', '(', ')', '#', '+', '!', '|', '<', '>', '~':
			b.WriteRune('\\')
			b.WriteRune(r)
		case '@':
			b.WriteString("@\u200b") // a name does not follow it any more
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

func markdownLines(lines []string, most int) string {
	var all []string
	for _, l := range lines {
		all = append(all, markdownText(l))
	}
	return cut(strings.Join(all, "\n"), most)
}

// mattermost is a post with a message attachment.
func mattermost(c channelConfig, m core.NotificationMessage, what content) inputs {
	attachment := object{
		"fallback": markdownText(cut(what.spoken(), 2000)), "color": fmt.Sprintf("#%06X", what.color()), "title": markdownText(what.title),
		"text": markdownLines(what.lines, 4000),
	}
	if what.link != "" {
		attachment["title_link"] = what.link
	}
	attachments := values{attachment}
	if c.Target == "" {
		return secretURL(c, object{"text": "", "attachments": attachments})
	}
	body := object{"channel_id": c.Target, "message": "", "props": object{"attachments": attachments}}
	var secrets []string
	var further []map[string]any
	if c.Answers != "" && len(what.open) > 0 {
		attachment["actions"], secrets = what.mattermostButtons(m.ID)
	}
	method, path, accepted := "POST", "api/v4/posts", answer{Ref: "id"}
	if m.Ref != "" && len(what.details) > 0 {
		reply := object{"channel_id": c.Target, "root_id": m.Ref, "message": markdownLines(what.details, 4000)}
		further = append(further, withToken(c, method, path, reply, accepted).Request)
	}
	if m.Ref != "" {
		delete(body, "channel_id")
		method, path, accepted = "PUT", "api/v4/posts/"+url.PathEscape(m.Ref)+"/patch", answer{}
	}
	sent := withToken(c, method, path, body, accepted)
	sent.Further = further
	if c.Personal { // the target is a user
		delete(body, "channel_id")
		sent.Direct = c.Target
	}
	if len(secrets) > 0 { // they are added when it is sent: no history of a run has them
		added := object{}
		for _, place := range secrets {
			added[place] = c.Answers
		}
		sent.Request["json_credentials"] = added
	}
	return sent
}

// discord is a message with one embed. It mentions nobody, whatever a text says.
func discord(c channelConfig, m core.NotificationMessage, what content) inputs {
	embed := object{"title": cut(markdownText(what.title), 256), "description": markdownLines(what.lines, 4000), "color": what.color()}
	if what.link != "" {
		embed["url"] = what.link
	}
	body := object{"embeds": values{embed}, "allowed_mentions": object{"parse": values{}}}
	switch {
	case c.Target == "":
		return secretURL(c, body)
	case m.Ref == "":
		return withToken(c, "POST", "channels/"+c.Target+"/messages", body, answer{Ref: "id"})
	default:
		return withToken(c, "PATCH", "channels/"+c.Target+"/messages/"+url.PathEscape(m.Ref), body, answer{})
	}
}

// html is all of it as HTML: nothing in a text is markup. It has no image and no style sheet, and follows the light or dark of its reader.
func (c content) html() string {
	var b strings.Builder
	b.WriteString("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"color-scheme\" content=\"light dark\"><title>" +
		html.EscapeString(c.title) + "</title></head>\n<body style=\"font-family:sans-serif;line-height:1.4\">\n")
	fmt.Fprintf(&b, "<h1 style=\"font-size:1.2em;border-left:4px solid #%06X;padding-left:8px\">%s</h1>\n", c.color(), html.EscapeString(c.title))
	for _, l := range c.lines {
		fmt.Fprintf(&b, "<p style=\"margin:4px 0\">%s</p>\n", html.EscapeString(l))
	}
	if c.link != "" {
		fmt.Fprintf(&b, "<p><a href=\"%s\">Open in Lockstep</a></p>\n", html.EscapeString(c.link))
	}
	b.WriteString("</body></html>\n")
	return b.String()
}

// email is a message of text, and the same as HTML. What updates it is a reply to it.
func email(c channelConfig, m core.NotificationMessage, what content) inputs {
	_, domain, _ := strings.Cut(c.From, "@")
	to := make(values, len(c.To))
	for i, one := range c.To {
		to[i] = one
	}
	r := map[string]any{
		"server": c.URL, "from": c.From, "to": to, "subject": what.title, "text": what.text() + "\n", "html": what.html(), "timeout": 30,
		"message_id": fmt.Sprintf("%s-%d@%s", emailID(what.id), m.Revision, domain),
	}
	if c.Account != "" {
		r["credential"] = c.Account
	}
	if m.SentRevision > 0 {
		r["in_reply_to"] = fmt.Sprintf("%s-%d@%s", emailID(what.id), m.SentRevision, domain)
	}
	return inputs{Function: "mail.send", Request: r}
}

// emailID is an identifier as one of a message has to be.
func emailID(id string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._-", r) {
			return r
		}
		return '-'
	}, cut(id, 80))
}

// rolloutName is how people call a rollout; empty for none.
func rolloutName(rollout int64) string {
	if rollout == 0 {
		return ""
	}
	return fmt.Sprintf("rollout_%d", rollout)
}
