package function

import (
	"context"
	"fmt"
	"regexp"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/id"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
)

// mostRecipients is how many addresses a message has at most.
const mostRecipients = 100

// messageID is the form of a message's identifier.
var messageID = regexp.MustCompile(`^[A-Za-z0-9._-]{1,100}@[A-Za-z0-9.-]{1,100}$`)

// sendMail is mail.send.
func sendMail(mailer activity.Mailer) *Function {
	field := func(name, doc string, required bool) Field {
		return Field{Name: name, Doc: doc, Type: Text, Required: required}
	}
	return &Function{
		spec: Spec{
			Name: "mail.send", Location: activity.InProcess, Web: true, Retry: RetryUnavailable, Idempotent: false, Effect: activity.Changes,
			Touches: func(args map[string]any) []activity.Place {
				return []activity.Place{{URL: text(args, "server")}}
			},
			Check: func(args map[string]any) (wrong []fault.Field) {
				if n := len(list(args, "to")); n == 0 || n > mostRecipients {
					wrong = append(wrong, fault.Field{Name: "to", Problem: fmt.Sprintf("found %d, expected 1 to %d addresses", n, mostRecipients)})
				}
				for _, name := range []string{"message_id", "in_reply_to"} {
					if id := text(args, name); id != "" && !messageID.MatchString(id) {
						wrong = append(wrong, fault.Field{Name: name, Problem: fmt.Sprintf("found %.100q, expected the form a-1@example.com", id)})
					}
				}
				if n, given := whole(args["timeout"]); given && n > mostSeconds {
					wrong = append(wrong, fault.Field{Name: "timeout", Problem: fmt.Sprintf("found %d, expected at most %d seconds", n, mostSeconds)})
				}
				return wrong
			},
			Doc: "Sends an e-mail by SMTP. Answers `{refused}`: the addresses that the server has refused permanently, with its answers. If it refuses all\n" +
				"of them, or the message, the error is `refused`; a server that is away, or says that it is busy, is tried again. A message that is sent\n" +
				"twice has the same `message_id`, by which most readers show it once.\n\n" +
				"Servers that are not public can be reached only if an operator allows them (`http_allow_networks`).",
			Arguments: []Field{
				field("server", "`smtp://host:587`, which has to offer STARTTLS, or `smtps://host:465`.", true),
				{Name: "plain", Doc: "Permits a server without encryption. No credential is sent to it.", Type: Flag},
				field("credential", "The name of a credential, the organization's or the operator's (`http_credentials`), with a `username`, bound to the URL of the server.", false),
				field("from", "The address of the sender.", true),
				{Name: "to", Doc: "The addresses of the recipients, at most 100.", Type: List, Required: true, Element: &Field{Type: Text, Required: true}},
				field("message_id", "Identifies the message, such as `message-7@cd.example.com`.", true),
				field("in_reply_to", "The identifier of the message that this one continues.", false),
				field("subject", "The subject.", true),
				field("text", "The message as text.", true),
				field("html", "The same as HTML.", false),
				{Name: "timeout", Doc: "The timeout of one attempt in seconds, at most 300; 30 by default.", Type: Number, Least: 1},
			},
		},
		do: func(ctx context.Context, call activity.Call) (any, error) {
			args := call.Args
			m := activity.Mail{
				Organization: call.Organization, Delivery: id.Delivers(call.Workflow), Server: text(args, "server"), Credential: text(args, "credential"), Secrets: call.Secrets,
				From: text(args, "from"), To: list(args, "to"), MessageID: text(args, "message_id"), InReplyTo: text(args, "in_reply_to"),
				Subject: text(args, "subject"), Text: text(args, "text"), HTML: text(args, "html"), Timeout: defaultSeconds * time.Second,
				Date: clock.System().Now(), AutoSubmitted: true,
			}
			m.Plain, _ = args["plain"].(bool)
			if n, given := whole(args["timeout"]); given {
				m.Timeout = time.Duration(n) * time.Second
			}
			answer, err := mailer.SendMail(ctx, m)
			if err != nil {
				return nil, err
			}
			refused := map[string]any{}
			for address, why := range answer.Refused {
				refused[address] = activity.Clean(ctx, why)
			}
			return map[string]any{"refused": refused}, nil
		},
	}
}
