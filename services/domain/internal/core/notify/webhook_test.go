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
