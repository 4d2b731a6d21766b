package domain

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/notify"
)

// D62: a rollout that fails is one alert in Opsgenie, which is noted when something happens to it and closed when another rollout has
// completed where it was; a workflow of Teams that answers the ID of its card has it updated; a subject gets each change under an ID of its
// own.
func TestMessagesOfAlertsCardsAndSubjects(t *testing.T) {
	t.Parallel()
	p := present(t).posting()
	p.channel("alerts", core.NotifyOpsgenie, `{"account":"opsgenie"}`, 60)
	p.channel("cards", core.NotifyTeams, `{"url":"https://teams.example.com/","account":"workflow","updates":true}`, 60)
	p.channel("bus", core.NotifyNATS, `{"url":"tls://nats.example.com:4222","account":"nats","subject":"cd.shop","stored":true}`, 60)
	p.post.answer = func(inputs string) [4]string {
		if strings.Contains(inputs, "AdaptiveCard") {
			return [4]string{"sent", "card-1", "", "0"}
		}
		return [4]string{"sent", "", "", "0"}
	}
	r := p.rollout(p.set)
	p.work()
	started := event.RolloutEnvironmentStarted{RolloutID: r.ID, EnvironmentID: p.stops(r)[0].EnvironmentID}
	p.report(event.RolloutStarted{RolloutID: r.ID}, started, event.RolloutFailed{RolloutID: r.ID, Reason: "the image cannot be pulled"})
	p.work()
	p.later(time.Minute)
	again := p.rollout(p.set)
	p.succeed(again)
	p.work()
	p.later(core.AdvanceDelay * 2)

	var alerts, cards, subjects []string
	for _, one := range p.sent() {
		var in struct {
			Function string
			Request  struct {
				URL, Subject string
				MessageID    string `json:"message_id"`
				Stored       bool
				JSON         struct {
					MessageID string `json:"messageId"`
					Type      string
				}
			}
		}
		p.ok(json.Unmarshal([]byte(one), &in))
		switch q := in.Request; {
		case in.Function == "nats.publish":
			p.want([]any{q.Subject, q.Stored, q.JSON.Type}, []any{"cd.shop", true, "com.lockstep.notification.v1"})
			subjects = append(subjects, q.MessageID)
		case strings.HasPrefix(q.URL, "https://api.opsgenie.com/"):
			alerts = append(alerts, strings.TrimPrefix(q.URL, "https://api.opsgenie.com/v2/alerts"))
		case q.URL == "https://teams.example.com/":
			cards = append(cards, q.JSON.MessageID)
		}
	}
	if len(alerts) < 2 || alerts[0] != "" || !strings.HasSuffix(alerts[len(alerts)-1], "/close?identifierType=alias") {
		t.Errorf("found alerts %q; want one that is closed", alerts)
	}
	updated := false
	for i, id := range cards {
		updated = updated || id == "card-1"
		if i == 0 && id != "" {
			t.Errorf("the first card has the ID %q; want none", id)
		}
	}
	if !updated {
		t.Errorf("found cards %q; want one that is updated", cards)
	}
	seen := map[string]bool{}
	for _, id := range subjects {
		if seen[id] || !strings.HasPrefix(id, "lockstep_") {
			t.Errorf("found the ID %s twice, or of another form", id)
		}
		seen[id] = true
	}
	if len(subjects) < 3 {
		t.Errorf("found %d messages on the subject", len(subjects))
	}
}

// D62: the configuration of a subject is checked when it is saved.
func TestSubjectsAreChecked(t *testing.T) {
	t.Parallel()
	p := notifying(t)
	for config, field := range map[string]string{
		`{"url":"tls://nats.example.com"}`:                                   "/config/subject",
		`{"subject":"cd.shop"}`:                                              "/config/url",
		`{"url":"https://nats.example.com","subject":"cd.shop"}`:             "/config/url",
		`{"url":"tls://nats.example.com/x","subject":"cd.shop"}`:             "/config/url",
		`{"url":"tls://ann:x@nats.example.com","subject":"cd.shop"}`:         "/config/url",
		`{"url":"tls://nats.example.com","subject":"cd.*"}`:                  "/config/subject",
		`{"url":"tls://nats.example.com","subject":"cd.shop\r\nPUB x 1"}`:    "/config/subject",
		`{"url":"tls://nats.example.com","subject":"_INBOX.x"}`:              "/config/subject",
		`{"url":"tls://nats.example.com","subject":"a","payload":"xml"}`:     "/config/payload",
		`{"url":"tls://nats.example.com","subject":"a","sign":["x"]}`:        "/config/sign",
		`{"url":"tls://nats.example.com","subject":"a","personal":true}`:     "/config/personal",
		`{"url":"tls://nats.example.com","subject":"a","account":"a://b/c"}`: "/config/account",
	} {
		_, err := p.notify.PutChannel(t.Context(), user(), notify.NewChannel{Name: "a", Kind: core.NotifyNATS, Config: json.RawMessage(config)})
		p.wrong(err, field)
	}
}
