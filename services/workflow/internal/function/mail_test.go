package function

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
)

// post is a mail server as the Function sees it.
type post struct {
	answer activity.MailAnswer
	err    error
	mail   activity.Mail
}

func (p *post) SendMail(_ context.Context, m activity.Mail) (activity.MailAnswer, error) {
	p.mail = m
	return p.answer, p.err
}

func letter(change m) m {
	args := m{
		"server": "smtp://mail.example.com:587", "from": "cd@example.com", "to": []any{"ada@example.com"}, "message_id": "m-1@example.com", "subject": "s",
		"text": "t",
	}
	for name, value := range change {
		args[name] = value
	}
	return args
}

func TestArgumentsOfAMail(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		args m
		want string // "" for none
	}{
		{m{}, ""},
		{m{"to": []any{}}, "to: found 0, expected 1 to 100"},
		{m{"message_id": "a b@example.com"}, `message_id: found "a b@example.com"`},
		{m{"in_reply_to": "<m@example.com>"}, "in_reply_to: found"},
		{m{"timeout": int64(301)}, "timeout: found 301"},
		{m{"subject": int64(1)}, "subject: found 1"},
		{m{"bcc": "x"}, "bcc: unknown"},
	} {
		err := sendMail(nil).Check(letter(tt.args))
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%v: found %v, expected %q", tt.args, err, tt.want)
		}
	}
}

func TestWhatIsMailed(t *testing.T) {
	t.Parallel()
	p := &post{answer: activity.MailAnswer{Refused: map[string]string{"b@example.com": "550"}}}
	value, err := sendMail(p).Call(t.Context(), activity.Call{ID: "e/0.1", Organization: 7, Args: letter(m{"credential": "mail", "html": "<p>"})})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]any{"refused": map[string]any{"b@example.com": "550"}}, value); diff != "" {
		t.Errorf("answer (-want +got):\n%s", diff)
	}
	p.mail.Date = time.Time{}
	want := activity.Mail{
		Organization: 7, Server: "smtp://mail.example.com:587", Credential: "mail", From: "cd@example.com", To: []string{"ada@example.com"},
		MessageID: "m-1@example.com", Subject: "s", Text: "t", HTML: "<p>", Timeout: 30 * time.Second, AutoSubmitted: true,
	}
	if diff := cmp.Diff(want, p.mail); diff != "" {
		t.Errorf("mail (-want +got):\n%s", diff)
	}
	for class, retryable := range map[fault.Class]bool{fault.Unavailable: true, fault.Refused: false, fault.Unauthenticated: false} {
		p.err = fault.New(class, "x")
		_, err := sendMail(p).Call(t.Context(), activity.Call{Args: letter(nil)})
		if found := history.AsFunctionError(err); found.Retryable != retryable {
			t.Errorf("%v: found %v", class, found)
		}
	}
}

// A signed request names its message, and nothing that a program writes sets the headers of a signature (D62).
func TestASignedRequest(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		args m
		id   string
		want string
	}{
		"the call":       {m{"sign": []any{"a"}}, "e/0_1", ""},
		"the program":    {m{"sign": []any{"a", "b"}, "sign_id": "message_7"}, "message_7", ""},
		"no signature":   {m{"sign_id": "message_7"}, "", ""},
		"a dot in an id": {m{"sign": []any{"a"}, "sign_id": "a.b"}, "", "sign_id: found"},
		"five secrets":   {m{"sign": []any{"a", "b", "c", "d", "e"}}, "", "sign: found 5"},
		"two logins":     {m{"credential": "a", "url_credential": "b"}, "", "url_credential: found with credential"},
		"own headers":    {m{"headers": m{"Webhook-Signature": "v1,x"}}, "", "headers.Webhook-Signature"},
	} {
		s := &server{}
		tt.args["url"], tt.args["method"] = "https://example.com", "POST"
		_, err := request(t, s, tt.args)
		if tt.want == "" && (err != nil || s.request.SignID != tt.id) || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: found %q, %v", name, s.request.SignID, err)
		}
	}
}
