package notify

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/url"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// origin names an installation within an ID, by the host of its console.
func origin(address string) string {
	host := ""
	if at, err := url.Parse(address); err == nil {
		host = at.Hostname()
	}
	sum := sha256.Sum256([]byte(host))
	return hex.EncodeToString(sum[:6])
}

// webhook is a CloudEvent in structured mode. A receiver recognizes a repeat by its id, which is also that of the signed message.
func webhook(kind core.NotificationKind, c channelConfig, organization int64, m core.NotificationMessage, what content) inputs {
	id := fmt.Sprintf("notification_%d_%d", m.ID, m.Revision)
	notifications := values{}
	for _, n := range what.moments {
		notifications = append(notifications, object{
			"id": n.ID, "event": string(n.Moment), "at": stamp(n.At), "severity": n.Moment.Severity().String(), "application": n.Application,
			"environment": n.Environment, "subject": n.Subject, "reason": cut(n.Reason, 1000), "principal": n.PrincipalName,
			"rollout": rolloutName(n.RolloutID),
		})
	}
	data := object{
		"message": fmt.Sprintf("notification_%d", m.ID), "revision": m.Revision, "title": what.title, "lines": what.lines,
		"severity": what.severity.String(), "link": what.link, "notifications": notifications, "left_out": m.LeftOut,
	}
	body := object{
		"specversion": "1.0", "id": id, "source": fmt.Sprintf("/lockstep/organizations/%d", organization), "type": "com.lockstep.notification.v1",
		"subject": fmt.Sprintf("notification_%d", m.ID), "datacontenttype": "application/json", "data": data,
	}
	if len(what.moments) > 0 {
		body["time"] = stamp(what.moments[len(what.moments)-1].At)
	}
	return eventRequest(kind, c, organization, m.ChannelID, id, body)
}

// eventRequest is what sends a CloudEvent in structured mode: to a webhook, signed where that is configured, or on a subject.
// A stream may be that of several channels and installations, and stores one message of an ID: so the ID has both.
func eventRequest(kind core.NotificationKind, c channelConfig, organization, channel int64, id string, body any) inputs {
	if kind == core.NotifyNATS {
		r := map[string]any{
			"server": c.URL, "subject": c.Subject, "message_id": fmt.Sprintf("lockstep_%s_%d_%d_%s", c.origin, organization, channel, id),
			"json": body, "timeout": 30, "content_type": "application/cloudevents+json; charset=UTF-8", "stored": c.Stored,
		}
		if c.Account != "" {
			r["credential"] = c.Account
		}
		return inputs{Function: "nats.publish", Request: r}
	}
	r := post("POST", c.URL, body)
	r["headers"] = object{"Content-Type": "application/cloudevents+json; charset=UTF-8"}
	if c.Account != "" {
		r["credential"] = c.Account
	}
	if len(c.Sign) > 0 {
		sign := make(values, len(c.Sign))
		for i, name := range c.Sign {
			sign[i] = name
		}
		r["sign"], r["sign_id"] = sign, id
	}
	return inputs{Function: "http.request", Request: r}
}
