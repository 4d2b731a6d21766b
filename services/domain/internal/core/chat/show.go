package chat

import (
	"strings"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/notify"
)

// asText is a text of others as a part of an answer. What Slack shows is made by Message, of plain text.
func asText(kind core.NotificationKind, plain string) string {
	if kind == core.NotifySlack {
		return plain
	}
	return notify.Markup(kind, plain)
}

// Message is the text as the chat takes it, in JSON. Slack gets it as text that it reads no markup, link or mention out of, beside the
// links of Lockstep.
func (t Taken) Message() map[string]any {
	if t.Kind != core.NotifySlack {
		return map[string]any{"text": t.Text}
	}
	type object = map[string]any
	var parts []object
	for rest := t.Text; rest != ""; {
		at, link := len(rest), ""
		for _, l := range t.Links {
			if i := strings.Index(rest, l); l != "" && i >= 0 && i < at {
				at, link = i, l
			}
		}
		if at > 0 {
			parts = append(parts, object{"type": "text", "text": rest[:at]})
		}
		if link != "" {
			parts = append(parts, object{"type": "link", "url": link})
		}
		rest = rest[at+len(link):]
	}
	return object{
		"text": notify.Markup(t.Kind, t.Text), "mrkdwn": false, // shown where blocks are not, such as in a notification of the system
		"blocks": []object{{"type": "rich_text", "elements": []object{{"type": "rich_text_section", "elements": parts}}}},
	}
}
