package notify

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// KindDescription is a kind of channel, as forms need it.
type KindDescription struct {
	Kind core.NotificationKind
	// Description says how messages reach it.
	Description string
	// Schema describes its configuration, in JSON Schema.
	Schema json.RawMessage
}

// Kinds describes all kinds, in the order in which they are shown.
func Kinds() []KindDescription {
	account := func(description string) string { return property("account", text(255, description)) }
	return []KindDescription{
		{
			core.NotifySlack, "Messages in Slack. With a target, a bot posts them and updates them as the rollout proceeds; otherwise an incoming webhook " +
				"receives each change as another message.",
			schemaOf([]string{"account"}, property("url", text(maxURL, "The beginning of the webhook's URL, https://hooks.slack.com/services/ by default; "+
				"for a bot, of the API, https://slack.com/api/ by default.")),
				account("The name of the credential: the URL of the webhook, or the token of the bot."),
				property("target", text(maxText, "The ID of the channel that a bot posts to, such as C0123456789.")),
				property("answers", text(255, "The name of the organization's credential that is the signing secret of the Slack app: messages get buttons that answer.")),
				property("commands", text(255, "The name of the organization's credential that is the signing secret of the Slack app: it takes /lockstep commands.")),
				details(),
				property("personal", yes("Members may subscribe: the bot writes to each of them, who has linked an account of the workspace. Without target.")),
				membersRate(),
				property("workspace", text(maxText, "The ID of the workspace, such as T0123456789; for a personal channel."))),
		},
		{
			core.NotifyTeams, "Adaptive Cards in Microsoft Teams, by the URL of a workflow that posts to a channel. Each change is another card, unless " +
				"the workflow updates cards.",
			schemaOf([]string{"url", "account"}, property("url", text(maxURL, "The beginning of the workflow's URL.")),
				account("The name of the credential that is the URL."),
				property("updates", yes("The workflow answers {\"messageId\": …} and updates the card whose messageId it receives."))),
		},
		{
			core.NotifyMattermost, "Messages in Mattermost. With a target, a bot posts and updates them; otherwise an incoming webhook receives each change.",
			schemaOf([]string{"url", "account"}, property("url", text(maxURL, "The beginning of the webhook's URL; for a bot, the address of the server.")),
				account("The name of the credential: the URL of the webhook, or the token of the bot."),
				property("target", text(maxText, "The ID of the channel that a bot posts to.")),
				property("answers", text(255, "The name of the organization's credential, bound to the server, that proves presses: messages get buttons that answer.")),
				property("commands", text(255, "The name of the organization's credential, bound to the server, that is the token of the slash command /lockstep.")),
				details(),
				property("personal", yes("Members may subscribe: the bot writes to each of them, who has linked an account of the server. Without target.")),
				membersRate()),
		},
		{
			core.NotifyDiscord, "Messages in Discord. With a target, a bot posts and updates them; otherwise a webhook receives each change.",
			schemaOf([]string{"account"}, property("url", text(maxURL, "The beginning of the webhook's URL, https://discord.com/api/webhooks/ by default; "+
				"for a bot, of the API, https://discord.com/api/v10/ by default.")),
				account("The name of the credential: the URL of the webhook, or the token of the bot as the header Authorization."),
				property("target", text(maxText, "The ID of the channel that a bot posts to."))),
		},
		{
			core.NotifyEmail, "E-mail by SMTP. Each change of a rollout is a reply to its first message.",
			schemaOf([]string{"url", "from"}, property("url", text(maxURL, "The server: smtp://host:587, which has to offer STARTTLS, or smtps://host:465.")),
				account("The name of the credential to sign in with."), property("from", text(maxText, "The address of the sender.")),
				property("to", list("The addresses of the recipients; none for a personal channel.")),
				property("personal", yes("Members may subscribe: each is written to at the address that the identity provider has verified. Without to.")),
				membersRate()),
		},
		{
			core.NotifyPagerDuty, "Alerts by the Events API v2 of PagerDuty, or of what is compatible with it. A rollout has one alert, which is resolved when it has " +
				"completed.",
			schemaOf([]string{"account"}, property("url", text(maxURL, "The address, https://events.pagerduty.com/v2/enqueue by default.")),
				account("The name of the credential that is the routing key.")),
		},
		{
			core.NotifyOpsgenie, "Alerts by the Alert API of Opsgenie, or of what is compatible with it. A rollout has one alert, which is closed when it has completed.",
			schemaOf([]string{"account"}, property("url", text(maxURL, "The address, https://api.opsgenie.com/v2/alerts by default.")),
				account("The name of the credential: the header Authorization with the value GenieKey and the key of an API integration.")),
		},
		{
			core.NotifyWebhook, "A CloudEvent by HTTP for each change, or events of CDEvents, signed as Standard Webhooks has it.",
			schemaOf([]string{"url"}, property("url", text(maxURL, "The URL, https://…; it is no secret.")),
				account("The name of the credential to send."), property("sign", list("Names of credentials whose secrets sign the request: two while one is replaced.")),
				payload()),
		},
		{
			core.NotifyNATS, "A CloudEvent on a subject of a NATS server for each change, or events of CDEvents.",
			schemaOf([]string{"url", "subject"}, property("url", text(maxURL, "The server: tls://host:4222, or nats://host:4222, which has to offer TLS.")),
				account("The name of the credential to sign in with: a user name and a password, or a token."),
				property("subject", text(maxText, "The subject, such as cd.notifications.")),
				property("stored", yes("A stream has to confirm that it has stored each message; otherwise the server has to have it.")), payload()),
		},
	}
}

func property(name, rest string) string { return fmt.Sprintf(`%q:{%s}`, name, rest) }

func text(most int, description string) string {
	return fmt.Sprintf(`"type":"string","minLength":1,"maxLength":%d,"description":%q`, most, description)
}

func payload() string {
	return property("payload", fmt.Sprintf(`"type":"string","enum":[%q,%q],"description":%q`, PayloadCloudEvents, PayloadCDEvents,
		"What it receives: a CloudEvent about each message, or events of CDEvents about what happened, for tools that read these; cloudevents by default."))
}

func details() string {
	return property("details", yes("What happens to a rollout after its first message is also a reply in the thread of that message. With a target."))
}

func membersRate() string {
	return property("members_rate", fmt.Sprintf(`"type":"integer","minimum":1,"maximum":%d,"description":%q`, MaxMembersRate,
		fmt.Sprintf("How many messages a minute all members together receive, at most; %d by default. For a personal channel.", DefaultMembersRate)))
}

func yes(description string) string {
	return fmt.Sprintf(`"type":"boolean","description":%q`, description)
}

func list(description string) string {
	return fmt.Sprintf(`"type":"array","maxItems":%d,"items":{"type":"string","minLength":1,"maxLength":%d},"description":%q`,
		maxRecipients, maxText, description)
}

// templatesSchema describes the templates of a channel of any kind.
func templatesSchema() string {
	one := fmt.Sprintf(`"type":"object","additionalProperties":false,"properties":{%s,%s}`,
		property(partTitle, text(maxTemplate, "The title, of a message whose latest event it is.")), property(partText, text(maxTemplate, "The lines about it.")))
	var moments []string
	for _, m := range core.AllNotificationMoments() {
		moments = append(moments, property(string(m), one))
	}
	return property("templates", fmt.Sprintf(`"type":"object","additionalProperties":false,"description":%q,"properties":{%s}`,
		"What messages say, by event: templates with expressions between {[ and ]}.", strings.Join(moments, ",")))
}

func schemaOf(required []string, properties ...string) json.RawMessage {
	names, _ := json.Marshal(required) // a list of texts
	return json.RawMessage(fmt.Sprintf(
		`{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object","additionalProperties":false,"required":%s,"properties":{%s}}`,
		names, strings.Join(append(properties, templatesSchema()), ","),
	))
}
