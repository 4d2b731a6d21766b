package notify

import (
	"cmp"
	"net/url"
	"strings"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// pagerDuty is an event of the Events API v2. Its routing key is a secret within the body.
func pagerDuty(c channelConfig, what content) inputs {
	action := "trigger"
	if what.over {
		action = "resolve"
	}
	severity := map[core.NotificationSeverity]string{core.SeverityHigh: "critical", core.SeverityNormal: "warning"}[what.severity]
	body := object{
		"event_action": action, "dedup_key": cut(what.id, 255), "client": "Lockstep",
		"payload": object{
			"summary": cut(what.title, 1024), "source": cmp.Or(what.rollout.Application, "lockstep"), "severity": cmp.Or(severity, "info"),
			"component": cmp.Or(what.rollout.VersionSet, "lockstep"), "custom_details": object{"lines": what.lines},
		},
	}
	if len(what.moments) > 0 {
		last := what.moments[len(what.moments)-1]
		payload, _ := body["payload"].(object)
		payload["timestamp"], payload["class"] = stamp(last.At), string(last.Moment)
	}
	if what.link != "" {
		body["client_url"] = what.link
		body["links"] = values{object{"href": what.link, "text": "Open in Lockstep"}}
	}
	r := post("POST", c.URL, body)
	r["json_credentials"] = object{"routing_key": c.Account}
	return inputs{Function: "http.request", Request: r}
}

// opsgenie is a request of the Alert API. An open alert of the same alias counts what is sent again and does not change its text, so that
// an update is also a note of it; one that nothing more is to happen to is closed.
func opsgenie(c channelConfig, m core.NotificationMessage, what content) inputs {
	address := strings.TrimSuffix(c.URL, "/")
	alias := cut(what.id, 512)
	named := address + "/" + url.PathEscape(alias)
	note := object{"source": "Lockstep", "note": cut(what.text(), 10000)}
	with := func(to string, body object) map[string]any {
		r := post("POST", to, body)
		r["credential"] = c.Account
		return r
	}
	if what.over {
		return inputs{Function: "http.request", Request: with(named+"/close?identifierType=alias", note)}
	}
	priority := map[core.NotificationSeverity]string{core.SeverityHigh: "P1", core.SeverityNormal: "P3"}[what.severity]
	details := object{"version_set": what.rollout.VersionSet, "link": what.link}
	if len(what.moments) > 0 {
		details["event"] = string(what.moments[len(what.moments)-1].Moment)
	}
	for name, value := range details {
		if value == "" {
			delete(details, name)
		}
	}
	sent := inputs{Function: "http.request", Request: with(address, object{
		"message": cut(what.title, 130), "alias": alias, "description": cut(what.text(), 15000), "entity": cmp.Or(what.rollout.Application, "lockstep"),
		"source": "Lockstep", "priority": cmp.Or(priority, "P5"), "details": details,
	})}
	if m.SentRevision > 0 {
		sent.Further = append(sent.Further, with(named+"/notes?identifierType=alias", note))
	}
	return sent
}
