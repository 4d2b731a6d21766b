package function

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/id"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
)

// The bounds of nats.publish.
const (
	mostPublished = 512 << 10
	mostName      = 255
	// ownMessages begins the identifiers of what the domain service has published: a stream takes no second message with one.
	ownMessages = "lockstep_"
)

var (
	// subjectForm is the form of a subject that a message is published on: no wildcards, and nothing that belongs to the server itself.
	subjectForm = regexp.MustCompile(`^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$`)
	// publishedID is the form of a message's identifier.
	publishedID = regexp.MustCompile(`^[A-Za-z0-9._:@-]{1,200}$`)
	// mediaType is the form of the type of a message.
	mediaType = regexp.MustCompile(`^[A-Za-z0-9+/.;= -]{1,100}$`)
)

// publish is nats.publish.
func publish(web activity.Publisher) *Function {
	field := func(name, doc string, required bool) Field {
		return Field{Name: name, Doc: doc, Type: Text, Required: required}
	}
	return &Function{
		spec: Spec{
			Name: "nats.publish", Location: activity.InProcess, Web: true, Retry: RetryUnavailable, Idempotent: false, Effect: activity.Changes,
			Touches: func(args map[string]any) []activity.Place {
				return []activity.Place{{URL: strings.TrimSuffix(text(args, "server"), "/") + "/" + text(args, "subject")}}
			},
			Check: checkPublished,
			Doc: "Publishes a message on a subject of a NATS server. Answers `{}` once the server has it, or with `stored` once a stream of the server has\n" +
				"stored it. A message that is sent twice has the same `message_id`, as the header `Nats-Msg-Id`, by which a stream stores it once.\n\n" +
				"The subject has no wildcards, and does not begin with `_INBOX`. Servers that are not public can be reached only if an operator allows\n" +
				"them (`http_allow_networks`).",
			Arguments: []Field{
				field("server", "`nats://host:4222`, which has to offer TLS, or `tls://host:4222`.", true),
				{Name: "plain", Doc: "Permits a server without encryption. No credential is sent to it.", Type: Flag},
				field("credential", "The name of a credential, the organization's or the operator's (`http_credentials`): with a `username` a password, otherwise a token. "+
					"It is bound to the URL of the server, or to that and one subject, as `tls://host:4222/deployments.shop`.", false),
				field("subject", "The subject, such as `deployments.shop`.", true),
				field("message_id", "Identifies the message, such as `release-1-4-0`; not `lockstep_…`, which notifications have.", true),
				{Name: "json", Doc: "The message, as a value that is sent as JSON, at most 512 KiB.", Type: Any, Required: true},
				field("content_type", "The header `Content-Type`; `application/json` by default.", false),
				{Name: "stored", Doc: "A stream has to confirm that it has stored the message.", Type: Flag},
				{Name: "timeout", Doc: "The timeout of one attempt in seconds, at most 300; 30 by default.", Type: Number, Least: 1},
			},
		},
		do: func(ctx context.Context, call activity.Call) (any, error) {
			args := call.Args
			if strings.HasPrefix(text(args, "message_id"), ownMessages) && !id.Delivers(call.Workflow) {
				return nil, fault.InvalidFields(fault.Field{Name: "message_id", Problem: fmt.Sprintf(
					"found %.100q, expected another beginning than %s, which notifications have", text(args, "message_id"), ownMessages)})
			}
			data, err := json.Marshal(args["json"])
			if err != nil {
				return nil, fault.InvalidFields(fault.Field{Name: "json", Problem: "found what cannot be written as JSON"})
			}
			m := activity.SubjectMessage{
				Organization: call.Organization, Delivery: id.Delivers(call.Workflow), Server: text(args, "server"),
				Credential: text(args, "credential"), Secrets: call.Secrets, Subject: text(args, "subject"), MessageID: text(args, "message_id"), ContentType: text(args, "content_type"),
				Data: data, Timeout: defaultSeconds * time.Second,
			}
			if m.ContentType == "" {
				m.ContentType = "application/json"
			}
			m.Plain, _ = args["plain"].(bool)
			m.Stored, _ = args["stored"].(bool)
			if n, given := whole(args["timeout"]); given {
				m.Timeout = time.Duration(n) * time.Second
			}
			return map[string]any{}, web.Publish(ctx, m)
		},
	}
}

// checkPublished finds what is wrong with the arguments of nats.publish.
func checkPublished(args map[string]any) (wrong []fault.Field) {
	add := func(name, format string, values ...any) {
		wrong = append(wrong, fault.Field{Name: name, Problem: fmt.Sprintf(format, values...)})
	}
	subject := text(args, "subject")
	if !subjectForm.MatchString(subject) || len(subject) > mostName || strings.HasPrefix(subject, "_INBOX") {
		add("subject", "found %.100q, expected parts of letters, digits, - and _ with dots between them, and not _INBOX", subject)
	}
	if found := text(args, "message_id"); !publishedID.MatchString(found) {
		add("message_id", "found %.100q, expected at most 200 letters, digits and . _ : @ -", found)
	}
	if found := text(args, "content_type"); found != "" && !mediaType.MatchString(found) {
		add("content_type", "found %.100q, expected the form application/json", found)
	}
	if raw, err := json.Marshal(args["json"]); err == nil && len(raw) > mostPublished {
		add("json", "found %d bytes, expected at most %d", len(raw), mostPublished)
	}
	if n, given := whole(args["timeout"]); given && n > mostSeconds {
		add("timeout", "found %d, expected at most %d seconds", n, mostSeconds)
	}
	return wrong
}
