package notify

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/schema"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// D62: what webhooks and subjects receive is valid by the schema in the reference, for every moment and with hostile texts.
func TestTheEventOfANotificationHasItsPublishedSchema(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "..", "docs", "reference", "notification-event.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "```json\n")
	text, _, found := strings.Cut(rest, "\n```")
	if !found {
		t.Fatal("the page has no schema")
	}
	s, err := schema.Compile([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	check := func(name string, m core.NotificationMessage, what content) []byte {
		t.Helper()
		body, err := json.Marshal(webhook(core.NotifyWebhook, channelConfig{URL: "https://x.example.com/"}, 1, m, what).Request["json"])
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Validate(body); err != nil {
			t.Errorf("%s: %v in %.300s", name, err, body)
		}
		return body
	}
	for _, moment := range append(core.AllNotificationMoments(), core.MomentApprovalUnanswered, core.MomentCallUnanswered,
		core.MomentProceeded, core.MomentAdvanced, core.MomentCredentialReplaced, core.MomentTest) {
		what := hostile()
		what.moments = []core.Notification{{ID: 7, Moment: moment, At: time.Unix(1_800_000_000, 5)}, what.moments[0]}
		check(string(moment), core.NotificationMessage{ID: 4, Revision: 2, LeftOut: 3}, what)
	}
	body := check("nothing left of it", core.NotificationMessage{ID: 4}, content{title: "a"})
	if err := s.Validate([]byte(strings.Replace(string(body), "notification.v1", "notification.v2", 1))); err == nil {
		t.Error("the schema takes another type")
	}
	if err := s.Validate([]byte(strings.Replace(string(body), `"left_out":0`, `"left_out":"0"`, 1))); err == nil {
		t.Error("the schema takes a text for a number")
	}
}

// D62: a stream stores one message of an ID, also where it is that of several channels, organizations and installations.
func TestIDsOnASubjectDiffer(t *testing.T) {
	t.Parallel()
	id := func(address string, organization int64, m core.NotificationMessage) any {
		c := channelConfig{URL: "tls://nats.example.com", Subject: "cd", origin: origin(address)}
		cdevent := eventRequest(core.NotifyNATS, c, organization, m.ChannelID, "notification_1_7", nil).Request["message_id"]
		if webhook(core.NotifyNATS, c, organization, m, content{}).Request["message_id"] == cdevent {
			t.Error("found the same ID of two events")
		}
		return cdevent
	}
	m := core.NotificationMessage{ID: 4, ChannelID: 2, Revision: 1}
	other := m
	other.ID, other.ChannelID = 5, 3
	first := id("https://cd.example.com", 1, m)
	if first != id("https://cd.example.com/", 1, m) {
		t.Error("found another ID for a repeat")
	}
	for name, found := range map[string]any{
		"channel": id("https://cd.example.com", 1, other), "organization": id("https://cd.example.com", 2, m), "installation": id("https://cd.example.org", 1, m),
	} {
		if found == first {
			t.Errorf("found the ID %v again for another %s", found, name)
		}
	}
}
