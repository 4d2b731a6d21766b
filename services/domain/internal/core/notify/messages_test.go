package notify

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

var update = flag.Bool("update", false, "rewrite testdata/messages.json, of which the console's browser tests take pictures")

// defaultMessage is what a channel is sent of a moment by default, of made-up data.
type defaultMessage struct {
	Event core.NotificationMoment `json:"event"`
	Kind  core.NotificationKind   `json:"kind"`
	// Lines are the title and the lines of the message.
	Lines []string `json:"lines"`
	Body  any      `json:"body"`
}

// defaultMessages are all default messages of the channels that people read.
func defaultMessages(t *testing.T) (all []defaultMessage) {
	t.Helper()
	u := New(Deps{URL: "https://cd.example.com"})
	channels := map[core.NotificationKind]channelConfig{
		core.NotifySlack: {Target: "C1", Answers: "signing"}, core.NotifyTeams: {}, core.NotifyMattermost: {Target: "C1", Answers: "signing"},
		core.NotifyDiscord: {Target: "C1"}, core.NotifyEmail: {URL: "smtps://mail.example.com", From: "cd@example.com", To: []string{"team@example.com"}},
	}
	moments := append(core.AllNotificationMoments(), core.MomentApprovalUnanswered, core.MomentCallUnanswered, core.MomentTest)
	for _, moment := range moments {
		s := sampleOf(moment)
		m := core.NotificationMessage{
			ID: 1, Key: "sample", RolloutID: s.notification.RolloutID, Severity: moment.Severity(), Revision: 1, NotificationIDs: []int64{1},
		}
		made, err := u.compose(t.Context(), s, 1, m, []core.Notification{s.notification}, nil)
		if err != nil {
			t.Fatalf("%s: %v", moment, err)
		}
		made.id, made.callback = "lockstep-sample", "https://cd.example.com/chat/organization_1/team"
		if moment.Asks() {
			made.open = []openQuestion{s.question()}
		}
		for _, kind := range []core.NotificationKind{
			core.NotifySlack, core.NotifyTeams, core.NotifyMattermost, core.NotifyDiscord,
			core.NotifyEmail,
		} {
			request := requestFor(kind, channels[kind], 1, m, made).Request
			body := request["json"]
			if kind == core.NotifyEmail {
				body = object{"subject": request["subject"], "text": request["text"], "html": request["html"]}
			}
			all = append(all, defaultMessage{moment, kind, append([]string{made.title}, made.lines...), body})
		}
	}
	return all
}

// R4-29: each default message is short, with what is so and what to do; the console's browser tests take pictures of them.
func TestDefaultMessages(t *testing.T) {
	t.Parallel()
	var got bytes.Buffer
	encoder := json.NewEncoder(&got)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	all := defaultMessages(t)
	if err := encoder.Encode(all); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join("testdata", "messages.json")
	if *update {
		if err := os.WriteFile(file, got.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Bytes(), want) {
		t.Error("the default messages differ from testdata/messages.json; look at them, and rewrite it with -update")
	}
	for _, m := range all {
		if n := utf8.RuneCountInString(m.Lines[0]); n > 70 {
			t.Errorf("%s: found a title of %d characters, %q; expected at most 70", m.Event, n, m.Lines[0])
		}
		if len(m.Lines) > 6 {
			t.Errorf("%s: found %d lines; expected at most 5: %q", m.Event, len(m.Lines)-1, m.Lines)
		}
		text := strings.Join(m.Lines, "\n")
		for _, line := range m.Lines[1:] {
			if n := utf8.RuneCountInString(line); n > 160 {
				t.Errorf("%s: found a line of %d characters, %q; expected at most 160", m.Event, n, line)
			}
		}
		if m.Event.Asks() && (!strings.Contains(text, "approv") || !strings.Contains(text, "expires at") && !strings.Contains(text, "refused at")) {
			t.Errorf("%s: found %q; expected that an approval is needed, and until when it can be given", m.Event, text)
		}
		if m.Event != core.MomentTest && m.Event.Severity() == core.SeverityHigh && !strings.Contains(text, "What to do: ") {
			t.Errorf("%s: found %q; expected what to do", m.Event, text)
		}
	}
}
