package notify

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/schema"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// The bodies as the vendors document them: what is required, the types and the bounds of what is used.
const (
	text2020    = `"$schema":"https://json-schema.org/draft/2020-12/schema"`
	slackBlocks = `"text":{"type":"string","minLength":1,"maxLength":40000},"blocks":{"type":"array","minItems":1,"maxItems":50,"items":{"oneOf":[
		{"type":"object","additionalProperties":false,"required":["type","text"],"properties":{"type":{"const":"header"},"text":{"type":"object","additionalProperties":false,"required":["type","text"],
			"properties":{"type":{"const":"plain_text"},"text":{"type":"string","minLength":1,"maxLength":150},"emoji":{"type":"boolean"}}}}},
		{"type":"object","additionalProperties":false,"required":["type","text"],"properties":{"type":{"const":"section"},"text":{"$ref":"#/$defs/mrkdwn"}}},
		{"type":"object","additionalProperties":false,"required":["type","elements"],"properties":{"type":{"const":"context"},"elements":{"type":"array","minItems":1,"maxItems":10,"items":{"$ref":"#/$defs/mrkdwn"}}}},
		{"type":"object","additionalProperties":false,"required":["type","elements"],"properties":{"type":{"const":"actions"},"block_id":{"type":"string","maxLength":255},"elements":{"type":"array","minItems":1,"maxItems":25,"items":{"$ref":"#/$defs/button"}}}}]}}`
	mrkdwn = `"$defs":{"mrkdwn":{"type":"object","additionalProperties":false,"required":["type","text"],"properties":{"type":{"const":"mrkdwn"},"text":{"type":"string","minLength":1,"maxLength":3000},"verbatim":{"type":"boolean"}}},
		"plain75":{"type":"object","additionalProperties":false,"required":["type","text"],"properties":{"type":{"const":"plain_text"},"text":{"type":"string","minLength":1,"maxLength":75},"emoji":{"type":"boolean"}}},
		"plain30":{"allOf":[{"$ref":"#/$defs/plain75"},{"properties":{"text":{"maxLength":30}}}]},
		"button":{"type":"object","additionalProperties":false,"required":["type","text"],"properties":{"type":{"const":"button"},"text":{"$ref":"#/$defs/plain75"},"action_id":{"type":"string","maxLength":255},
			"value":{"type":"string","maxLength":2000},"style":{"enum":["primary","danger"]},"accessibility_label":{"type":"string","maxLength":75},
			"confirm":{"type":"object","additionalProperties":false,"required":["title","text","confirm","deny"],"properties":{"title":{"$ref":"#/$defs/plain75"},
				"text":{"type":"object","required":["type","text"],"properties":{"type":{"enum":["plain_text","mrkdwn"]},"text":{"type":"string","minLength":1,"maxLength":300}}},
				"confirm":{"$ref":"#/$defs/plain30"},"deny":{"$ref":"#/$defs/plain30"}}}}}}`
	unfurls       = `"unfurl_links":{"type":"boolean"},"unfurl_media":{"type":"boolean"}`
	slackWebhook  = `{` + text2020 + `,` + mrkdwn + `,"type":"object","additionalProperties":false,"required":["text"],"properties":{` + slackBlocks + `,` + unfurls + `}}`
	slackPost     = `{` + text2020 + `,` + mrkdwn + `,"type":"object","additionalProperties":false,"required":["channel","text"],"properties":{"channel":{"type":"string"},` + slackBlocks + `,` + unfurls + `}}`
	slackUpdate   = `{` + text2020 + `,` + mrkdwn + `,"type":"object","additionalProperties":false,"required":["channel","ts","text"],"properties":{"channel":{"type":"string"},"ts":{"type":"string"},` + slackBlocks + `}}`
	teamsWorkflow = `{` + text2020 + `,"type":"object","additionalProperties":false,"required":["type","attachments"],"properties":{"type":{"const":"message"},"messageId":{"const":"17.5"},"attachments":{"type":"array","minItems":1,
		"items":{"type":"object","required":["contentType","content"],"properties":{"contentType":{"const":"application/vnd.microsoft.card.adaptive"},"contentUrl":{"type":"null"},
		"content":{"type":"object","required":["type","version","body"],"properties":{"type":{"const":"AdaptiveCard"},"version":{"enum":["1.2","1.3","1.4","1.5"]},
		"body":{"type":"array","minItems":1,"items":{"type":"object","required":["type","inlines"],"properties":{"type":{"const":"RichTextBlock"},"inlines":{"type":"array","minItems":1,
			"items":{"type":"object","additionalProperties":false,"required":["type","text"],"properties":{"type":{"const":"TextRun"},"text":{"type":"string","minLength":1},"weight":{"enum":["Lighter","Default","Bolder"]},
			"size":{"enum":["Default","Small","Medium","Large","ExtraLarge"]},"color":{"enum":["Default","Dark","Light","Accent","Good","Warning","Attention"]}}}}}}},
		"actions":{"type":"array","items":{"type":"object","required":["type","url"],"properties":{"type":{"const":"Action.OpenUrl"},"title":{"type":"string"},"url":{"type":"string"}}}}}}}}}}}`
	attachments = `"attachments":{"type":"array","minItems":1,"items":{"type":"object","required":["fallback"],"properties":{"fallback":{"type":"string","minLength":1},"color":{"type":"string","pattern":"^#[0-9A-F]{6}$"},"title":{"type":"string"},"title_link":{"type":"string"},"text":{"type":"string","maxLength":16383},
		"actions":{"type":"array","items":{"type":"object","additionalProperties":false,"required":["id","name","type","integration"],"properties":{"id":{"type":"string","pattern":"^[A-Za-z0-9]+$"},
			"name":{"type":"string","minLength":1},"type":{"enum":["button","select"]},"style":{"enum":["default","primary","success","good","warning","danger"]},
			"integration":{"type":"object","additionalProperties":false,"required":["url","context"],"properties":{"url":{"type":"string","pattern":"^https?://"},"context":{"type":"object","required":["token"]}}}}}}}}}`
	mattermostHook  = `{` + text2020 + `,"type":"object","additionalProperties":false,"required":["attachments"],"properties":{"text":{"type":"string"},` + attachments + `}}`
	mattermostPost  = `{` + text2020 + `,"type":"object","additionalProperties":false,"required":["channel_id","message"],"properties":{"channel_id":{"type":"string"},"message":{"type":"string","maxLength":16383},"props":{"type":"object","properties":{` + attachments + `}}}}`
	mattermostPatch = `{` + text2020 + `,"type":"object","additionalProperties":false,"properties":{"message":{"type":"string","maxLength":16383},"props":{"type":"object","properties":{` + attachments + `}}}}`
	discordMessage  = `{` + text2020 + `,"type":"object","additionalProperties":false,"required":["embeds","allowed_mentions"],"properties":{"embeds":{"type":"array","minItems":1,"maxItems":10,"items":{"type":"object",
		"properties":{"title":{"type":"string","maxLength":256},"description":{"type":"string","maxLength":4096},"color":{"type":"integer","minimum":0,"maximum":16777215},"url":{"type":"string"}}}},
		"allowed_mentions":{"type":"object","properties":{"parse":{"type":"array","maxItems":0}}}}}`
	pagerDutyEvent = `{` + text2020 + `,"type":"object","additionalProperties":false,"required":["routing_key","event_action","dedup_key","payload"],"properties":{"routing_key":{"type":"string","minLength":1},"event_action":{"enum":["trigger","acknowledge","resolve"]},
		"dedup_key":{"type":"string","minLength":1,"maxLength":255},"client":{"type":"string"},"client_url":{"type":"string"},"links":{"type":"array","items":{"type":"object","required":["href"],"properties":{"href":{"type":"string"},"text":{"type":"string"}}}},
		"payload":{"type":"object","additionalProperties":false,"required":["summary","source","severity"],"properties":{"summary":{"type":"string","minLength":1,"maxLength":1024},"source":{"type":"string","minLength":1},
		"severity":{"enum":["critical","error","warning","info"]},"timestamp":{"type":"string"},"component":{"type":"string"},"group":{"type":"string"},"class":{"type":"string"},"custom_details":{"type":"object"}}}}}`
	opsgenieAlert = `{` + text2020 + `,"type":"object","additionalProperties":false,"required":["message"],"properties":{"message":{"type":"string","minLength":1,"maxLength":130},"alias":{"type":"string","minLength":1,"maxLength":512},
		"description":{"type":"string","maxLength":15000},"details":{"type":"object","additionalProperties":{"type":"string"}},"entity":{"type":"string","maxLength":512},"source":{"type":"string","maxLength":100},
		"priority":{"enum":["P1","P2","P3","P4","P5"]},"note":{"type":"string","maxLength":25000}}}`
	opsgenieNote = `{` + text2020 + `,"type":"object","additionalProperties":false,"required":["note"],"properties":{"user":{"type":"string","maxLength":100},"source":{"type":"string","maxLength":100},"note":{"type":"string","minLength":1,"maxLength":25000}}}`
	cloudEvent   = `{` + text2020 + `,"type":"object","required":["specversion","id","source","type"],"properties":{"specversion":{"const":"1.0"},"id":{"type":"string","minLength":1},"source":{"type":"string","minLength":1},
		"type":{"type":"string","minLength":1},"time":{"type":"string","pattern":"^20.*Z$"},"datacontenttype":{"const":"application/json"},"data":{"type":"object"}}}`
)

// hostile is a message whose texts try to be markup, mentions and links, and are too long.
func hostile() content {
	evil := "<!channel> @all @everyone [pay](https://evil.example.com) <https://evil.example.com|x> **b** & " + strings.Repeat("ü", 400)
	n := core.Notification{
		ID: 7, Moment: core.MomentRolloutFailed, At: time.Unix(1_800_000_000, 0), RolloutID: 3, Reason: evil, Application: "shop",
	}
	c := content{
		title: cut(evil, maxTitle), severity: core.SeverityHigh, link: "https://cd.example.com/rollouts/rollout_3", moments: []core.Notification{n},
		rollout: Rollout{ID: 3, Application: "shop", VersionSet: "1.4.2"}, id: "lockstep-1-2-rollout-3", callback: "https://cd.example.com/chat/organization_1/team",
		open: []openQuestion{
			{Question: core.Question{RolloutID: 3, GateID: "production", RequestID: 41}, what: evil},
			{Question: core.Question{RequestID: 42}, what: "the call of deploy"},
		},
	}
	for range 20 {
		c.lines = append(c.lines, line(evil))
	}
	return c
}

// D62: what is sent is as the vendors document it, and nothing in it is a mention, a link or markup of those who wrote a reason.
func TestMessagesAreAsTheVendorsDocumentThem(t *testing.T) {
	t.Parallel()
	hook := channelConfig{URL: "https://x.example.com/", Account: "name"}
	bot := channelConfig{URL: "https://x.example.com/", Account: "name", Target: "C1"}
	asks := bot
	asks.Answers = "signing"
	cards := hook
	cards.Updates = true
	subject := channelConfig{URL: "tls://nats.example.com:4222", Subject: "cd.notifications"}
	old := core.NotificationMessage{ID: 4, Revision: 3, SentRevision: 2, Ref: "17.5"}
	fresh := core.NotificationMessage{ID: 4, Revision: 1}
	for name, one := range map[string]struct {
		kind   core.NotificationKind
		config channelConfig
		m      core.NotificationMessage
		schema string
		to     string
	}{
		"Slack, a webhook":               {core.NotifySlack, hook, fresh, slackWebhook, "POST https://x.example.com/"},
		"Slack, chat.postMessage":        {core.NotifySlack, bot, fresh, slackPost, "POST https://x.example.com/chat.postMessage"},
		"Slack, chat.update":             {core.NotifySlack, bot, old, slackUpdate, "POST https://x.example.com/chat.update"},
		"Slack, buttons":                 {core.NotifySlack, asks, fresh, slackPost, "POST https://x.example.com/chat.postMessage"},
		"Slack, buttons in an update":    {core.NotifySlack, asks, old, slackUpdate, "POST https://x.example.com/chat.update"},
		"Mattermost, buttons":            {core.NotifyMattermost, asks, fresh, mattermostPost, "POST https://x.example.com/api/v4/posts"},
		"Mattermost, buttons in a patch": {core.NotifyMattermost, asks, old, mattermostPatch, "PUT https://x.example.com/api/v4/posts/17.5/patch"},
		"Teams, a card to update":        {core.NotifyTeams, cards, old, teamsWorkflow, "POST https://x.example.com/"},
		"Opsgenie":                       {core.NotifyOpsgenie, hook, fresh, opsgenieAlert, "POST https://x.example.com"},
		"a subject":                      {core.NotifyNATS, subject, fresh, cloudEvent, "tls://nats.example.com:4222 cd.notifications"},
		"Teams":                          {core.NotifyTeams, hook, fresh, teamsWorkflow, "POST https://x.example.com/"},
		"Mattermost, a webhook":          {core.NotifyMattermost, hook, fresh, mattermostHook, "POST https://x.example.com/"},
		"Mattermost, a post":             {core.NotifyMattermost, bot, fresh, mattermostPost, "POST https://x.example.com/api/v4/posts"},
		"Mattermost, a patch":            {core.NotifyMattermost, bot, old, mattermostPatch, "PUT https://x.example.com/api/v4/posts/17.5/patch"},
		"Discord, a webhook":             {core.NotifyDiscord, hook, fresh, discordMessage, "POST https://x.example.com/"},
		"Discord, a message":             {core.NotifyDiscord, bot, fresh, discordMessage, "POST https://x.example.com/channels/C1/messages"},
		"Discord, an edit":               {core.NotifyDiscord, bot, old, discordMessage, "PATCH https://x.example.com/channels/C1/messages/17.5"},
		"PagerDuty":                      {core.NotifyPagerDuty, hook, fresh, pagerDutyEvent, "POST https://x.example.com/"},
		"a webhook":                      {core.NotifyWebhook, hook, fresh, cloudEvent, "POST https://x.example.com/"},
		"a webhook without a credential": {core.NotifyWebhook, channelConfig{URL: hook.URL}, fresh, cloudEvent, "POST https://x.example.com/"},
	} {
		in := requestFor(one.kind, one.config, 1, one.m, hostile())
		got, function := fmt.Sprint(in.Request["method"], " ", in.Request["url"]), "http.request"
		if one.kind == core.NotifyNATS {
			got, function = fmt.Sprint(in.Request["server"], " ", in.Request["subject"]), "nats.publish"
		}
		if got != one.to || in.Function != function {
			t.Errorf("%s: found %s %s; want %s", name, in.Function, got, one.to)
		}
		body := withSecrets(t, in.Request)
		if buttons := strings.Contains(string(body), "41:gate") && strings.Contains(string(body), "42:call"); buttons != (one.config.Answers != "") {
			t.Errorf("%s: found buttons: %t in %.300s", name, buttons, body)
		}
		s, err := schema.Compile([]byte(one.schema))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := s.Validate(body); err != nil {
			t.Errorf("%s: %v in %.300s", name, err, body)
		}
		if !slices.Contains([]core.NotificationKind{core.NotifySlack, core.NotifyMattermost, core.NotifyDiscord}, one.kind) {
			continue // texts of these are data, or runs without markup
		}
		var sent any
		if err := json.Unmarshal(body, &sent); err != nil {
			t.Fatal(err)
		}
		for _, text := range markup(sent) {
			for _, wrong := range []string{"<!channel>", "](https://evil", "<https://evil", "@all ", "@everyone "} {
				if one.kind == core.NotifySlack && !strings.HasPrefix(wrong, "<") {
					continue // it is no markup there
				}
				if strings.Contains(text, wrong) {
					t.Errorf("%s: found %q in %.300s", name, wrong, text)
				}
			}
		}
	}
}

// withSecrets is the body of a request as it is sent: with the values of credentials where they belong.
func withSecrets(t *testing.T, request map[string]any) []byte {
	t.Helper()
	raw, err := json.Marshal(request["json"])
	if err != nil {
		t.Fatal(err)
	}
	var body any
	if err := json.Unmarshal(raw, &body); err != nil {
		t.Fatal(err)
	}
	places, _ := request["json_credentials"].(object)
	for place := range places {
		at := body
		parts := strings.Split(strings.TrimPrefix(place, "/"), "/")
		for _, part := range parts[:len(parts)-1] {
			if list, ok := at.([]any); ok {
				i, _ := strconv.Atoi(part)
				at = list[i]
				continue
			}
			members, _ := at.(map[string]any)
			at = members[part]
		}
		members, ok := at.(map[string]any)
		if !ok {
			t.Fatalf("found nothing at %s", place)
		}
		members[parts[len(parts)-1]] = "a secret"
	}
	if raw, err = json.Marshal(body); err != nil {
		t.Fatal(err)
	}
	return raw
}

// D62: an alert of Opsgenie that is updated is the same, with a note of what has changed, and is closed when nothing more is to happen.
func TestAnAlertOfOpsgenieIsUpdatedAndClosed(t *testing.T) {
	t.Parallel()
	c := channelConfig{URL: "https://api.opsgenie.com/v2/alerts", Account: "opsgenie"}
	what := hostile()
	updated := opsgenie(c, core.NotificationMessage{ID: 4, Revision: 3, SentRevision: 2}, what)
	what.over = true
	closed := opsgenie(c, core.NotificationMessage{ID: 4, Revision: 4, SentRevision: 3}, what)
	if len(updated.Further) != 1 || len(closed.Further) != 0 {
		t.Fatalf("found %v and %v", updated.Further, closed.Further)
	}
	const named = "https://api.opsgenie.com/v2/alerts/lockstep-1-2-rollout-3/"
	for want, request := range map[string]map[string]any{
		named + "notes?identifierType=alias": updated.Further[0], named + "close?identifierType=alias": closed.Request,
	} {
		s, err := schema.Compile([]byte(opsgenieNote))
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Validate(withSecrets(t, request)); err != nil || request["url"] != want || request["credential"] != "opsgenie" {
			t.Errorf("found %v, %v; want %s", request["url"], err, want)
		}
	}
	if body, _ := updated.Request["json"].(object); body["alias"] != "lockstep-1-2-rollout-3" || body["priority"] != "P1" {
		t.Errorf("found %v", body)
	}
}

// escaped is a character that is no markup.
var escaped = regexp.MustCompile(`\\.`)

// markup are the texts of a value that are read as markup, without what is escaped.
func markup(value any) (all []string) {
	switch v := value.(type) {
	case string:
		return []string{escaped.ReplaceAllString(v, "")}
	case []any:
		for _, one := range v {
			all = append(all, markup(one)...)
		}
	case map[string]any:
		if v["type"] == "plain_text" {
			return nil
		}
		for name, one := range v {
			if name != "accessibility_label" { // which is read aloud
				all = append(all, markup(one)...)
			}
		}
	}
	return all
}

// D62: the routing key of PagerDuty is a secret, so inputs only have its name; an alert is resolved when nothing more is to happen.
func TestSecretsAreOnlyNamed(t *testing.T) {
	t.Parallel()
	over := hostile()
	over.over = true
	in := pagerDuty(channelConfig{URL: "https://events.pagerduty.com/v2/enqueue", Account: "key"}, over)
	body, _ := in.Request["json"].(object)
	if fmt.Sprint(in.Request["json_credentials"]) != "map[routing_key:key]" || body["routing_key"] != nil || body["event_action"] != "resolve" {
		t.Errorf("found %v", in.Request)
	}
	hook := webhook(core.NotifyWebhook, channelConfig{URL: "https://x.example.com/", Sign: []string{"new", "old"}}, 1, core.NotificationMessage{ID: 4, Revision: 2}, over)
	if fmt.Sprintf("%v %v", hook.Request["sign"], hook.Request["sign_id"]) != "[new old] notification_4_2" {
		t.Errorf("found %v", hook.Request)
	}
	mail := email(channelConfig{URL: "smtps://m", From: "cd@example.com", To: []string{"a@example.com"}},
		core.NotificationMessage{ID: 4, Revision: 3, SentRevision: 2}, over)
	if mail.Request["message_id"] != "lockstep-1-2-rollout-3-3@example.com" || mail.Request["in_reply_to"] != "lockstep-1-2-rollout-3-2@example.com" {
		t.Errorf("found %v", mail.Request)
	}
}

// A mail has a part for readers without HTML, and nothing in its HTML is markup of those who wrote a reason (D62).
func TestTheHTMLOfAMailHasNoMarkupOfItsTexts(t *testing.T) {
	t.Parallel()
	evil := hostile()
	evil.title, evil.link = `</title><script>alert(1)</script>`, `https://cd.example.com/"onclick="x`
	evil.lines = append(evil.lines, `<img src=x onerror=alert(1)>`)
	mail := email(channelConfig{URL: "smtps://m", From: "cd@example.com", To: []string{"a@example.com"}}, core.NotificationMessage{ID: 4}, evil)
	found, _ := mail.Request["html"].(string)
	for _, wrong := range []string{"<script", "<img", `"onclick=`, "<!channel>", "<https:"} {
		if strings.Contains(found, wrong) {
			t.Errorf("found %q in %s", wrong, found)
		}
	}
	if !strings.Contains(found, "&lt;img src=x onerror=alert(1)&gt;</p>") || !strings.Contains(found, `content="light dark"`) {
		t.Errorf("found %s", found)
	}
	if text, _ := mail.Request["text"].(string); !strings.Contains(text, "<img src=x onerror=alert(1)>\n") {
		t.Errorf("found the text %s", text)
	}
}
