package workflow_test

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"mime/quotedprintable"
	"net"
	"net/mail"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/emersion/go-sasl"
	server "github.com/emersion/go-smtp"

	"github.com/lockstep-cd/lockstep/pkg/certs/certstest"
	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
	"github.com/lockstep-cd/lockstep/services/workflow"
)

// postOffice is a mail server that keeps what it is sent. What it answers is in the name of the recipient or of the sender.
type postOffice struct {
	mu   sync.Mutex
	mail []string
	// kept is signalled after a message is kept, before the server answers that it has it.
	kept chan struct{}
	// hold has the server not answer for that; closed when the test ends.
	hold  bool
	ended chan struct{}
}

type postSession struct{ office *postOffice }

func (o *postOffice) NewSession(*server.Conn) (server.Session, error) { return postSession{o}, nil }

func (postSession) AuthMechanisms() []string { return []string{sasl.Plain} }

func (postSession) Auth(string) (sasl.Server, error) {
	return sasl.NewPlainServer(func(_, _, given string) error {
		if given != "R0UT1NGK3Y" {
			return server.ErrAuthFailed
		}
		return nil
	}), nil
}

func (postSession) Mail(from string, _ *server.MailOptions) error { return replied(from) }
func (postSession) Rcpt(to string, _ *server.RcptOptions) error   { return replied(to) }
func (postSession) Reset()                                        {}
func (postSession) Logout() error                                 { return nil }

func replied(address string) error {
	switch name, _, _ := strings.Cut(address, "@"); name {
	case "gone":
		return &server.SMTPError{Code: 550, EnhancedCode: server.EnhancedCode{5, 1, 1}, Message: "no such user"}
	case "busy":
		return &server.SMTPError{Code: 451, EnhancedCode: server.EnhancedCode{4, 3, 0}, Message: "try again"}
	default:
		return nil
	}
}

func (s postSession) Data(r io.Reader) error {
	text, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	o := s.office
	o.mu.Lock()
	hold := o.hold
	if !strings.Contains(string(text), "Subject: spam") {
		o.mail = append(o.mail, string(text))
	}
	o.mu.Unlock()
	switch {
	case strings.Contains(string(text), "Subject: spam"):
		return &server.SMTPError{Code: 554, EnhancedCode: server.EnhancedCode{5, 7, 1}, Message: "this is spam"}
	case hold:
		o.kept <- struct{}{}
		<-o.ended
	}
	return nil
}

func (o *postOffice) all() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.mail)
}

// serve has a mail server listen: with a certificate at once (smtps), with one for STARTTLS, or with none.
func (o *postOffice) serve(t *testing.T, encryption string, certificate *tls.Config) (address string) {
	t.Helper()
	s := server.NewServer(o)
	s.Domain, s.ErrorLog = "localhost", silentMail{}
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address = "smtp://" + listener.Addr().String()
	switch encryption {
	case "smtps":
		listener, address = tls.NewListener(listener, certificate), "smtps://"+listener.Addr().String()
	case "starttls":
		s.TLSConfig = certificate
	}
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Serve(listener) }()
	t.Cleanup(func() { _ = s.Close(); <-done })
	return address
}

type silentMail struct{}

func (silentMail) Printf(string, ...any) {}
func (silentMail) Println(...any)        {}

// mailing is a service that may send mail to servers of the test.
type mailing struct {
	*service
	office                              *postOffice
	smtps, starttls, plain, silent, odd string
	program                             []byte
}

func startMailing(t *testing.T) mailing {
	t.Helper()
	m := mailing{office: &postOffice{kept: make(chan struct{}, 1), ended: make(chan struct{})}}
	dir := t.TempDir()
	ours, strangers := certstest.New(t).Files(t, dir, "mail"), certstest.New(t).Files(t, dir, "stranger")
	load := func(cert, key string) *tls.Config {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			t.Fatal(err)
		}
		return &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	}
	m.smtps = m.office.serve(t, "smtps", load(ours.Cert, ours.Key))
	m.starttls = m.office.serve(t, "starttls", load(ours.Cert, ours.Key))
	m.odd = m.office.serve(t, "smtps", load(strangers.Cert, strangers.Key))
	m.plain = m.office.serve(t, "", nil)
	quiet, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0") // it accepts and says nothing
	if err != nil {
		t.Fatal(err)
	}
	m.silent = "smtp://" + quiet.Addr().String()
	t.Cleanup(func() { close(m.office.ended); _ = quiet.Close() })
	secrets := map[string]string{}
	for name, text := range map[string]string{"good": "R0UT1NGK3Y", "bad": "wr0ng-R0UT1NGK3Y"} {
		secrets[name] = filepath.Join(dir, name)
		if err := os.WriteFile(secrets[name], []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	m.service = startWith(t, func(c *workflow.Config) {
		c.HTTPAllowNetworks, c.HTTPCAFile = []string{"127.0.0.1"}, ours.CA
		for name, file := range secrets {
			c.HTTPCredentials = append(c.HTTPCredentials, workflow.HTTPCredential{
				Name: name, Username: "lockstep", URLPrefixes: []string{m.smtps, m.starttls, m.plain}, Ref: "file:" + file,
				Organizations: []int64{organization},
			})
		}
	})
	if m.program, err = os.ReadFile(filepath.Join("..", "domain", "internal", "core", "notify", "send.star")); err != nil {
		t.Fatal(err)
	}
	return m
}

// letter is what the domain service has a run send.
func letter(url string, change map[string]any) map[string]any {
	request := map[string]any{
		"server": url, "from": "cd@example.com", "to": []string{"ada@example.com"}, "subject": "shop began", "text": "It began.\n.\n",
		"html": "<p>It began.</p>", "message_id": "lockstep-1-2-rollout-3-1@example.com", "timeout": 30,
	}
	for name, value := range change {
		request[name] = value
	}
	return request
}

func (m mailing) begin(id string, request map[string]any) {
	m.t.Helper()
	inputs, err := json.Marshal(map[string]any{"function": "mail.send", "request": request, "answer": map[string]any{"ok": "", "ref": ""}})
	if err != nil {
		m.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(m.t.Context(), within)
	defer cancel()
	if _, err := m.StartWorkflow(ctx, &autoflowv1.StartWorkflowRequest{
		OrganizationId: organization, WorkflowId: id, Starlark: m.program, Inputs: inputs,
	}); err != nil {
		m.t.Fatal(err)
	}
}

func (m mailing) outcome(id string) string {
	m.t.Helper()
	status := m.await(id, autoflowv1.WorkflowState_WORKFLOW_STATE_COMPLETED).GetStatus()
	return status["outcome"] + " " + status["why"]
}

// Mail is sent to a real server: over TLS from the beginning and by STARTTLS, with a login. What the server refuses permanently is a dead
// letter, and what it cannot do now is tried again; no run has the password (D62).
func TestMailToARealServer(t *testing.T) {
	t.Parallel()
	m := startMailing(t)
	type change = map[string]any
	run := 0
	for name, one := range map[string]struct {
		url    string
		change change
		want   string
		sent   bool
	}{
		"over TLS":                           {m.smtps, change{"credential": "good"}, `"sent" `, true},
		"by STARTTLS":                        {m.starttls, change{"credential": "good"}, `"sent" `, true},
		"one of two recipients is gone":      {m.smtps, change{"to": []string{"gone@example.com", "ada@example.com"}}, `"sent" `, true},
		"the login is refused":               {m.smtps, change{"credential": "bad"}, `"refused" "unauthorized: `, false},
		"a credential of another name":       {m.smtps, change{"credential": "other"}, `"refused" `, false},
		"the recipient is gone":              {m.smtps, change{"to": []string{"gone@example.com"}}, `"refused" "refused: `, false},
		"the sender is refused":              {m.smtps, change{"from": "gone@example.com"}, `"refused" "refused: `, false},
		"the message is refused":             {m.smtps, change{"subject": "spam"}, `"refused" "refused: `, false},
		"the recipient is busy":              {m.smtps, change{"to": []string{"busy@example.com"}}, `"again" "unreachable: `, false},
		"the sender is busy":                 {m.smtps, change{"from": "busy@example.com"}, `"again" "unreachable: `, false},
		"a server that never answers":        {m.silent, change{"timeout": 1}, `"again" "unreachable: `, false},
		"a server with another's key":        {m.odd, nil, `"again" "unreachable: 127.0.0.1`, false},
		"a server without encryption":        {m.plain, nil, `"refused" "refused: `, false},
		"a login without encryption":         {m.plain, change{"credential": "good", "plain": true}, `"refused" "refused: `, false},
		"an address that begins a header":    {m.smtps, change{"to": []string{"a@example.com\r\nBcc: b@example.com"}}, `"refused" "invalid: `, false},
		"a sender that begins a header":      {m.smtps, change{"from": "a@example.com\r\nBcc: b@example.com"}, `"refused" "invalid: `, false},
		"an identifier that begins a header": {m.smtps, change{"message_id": "a@example.com>\r\nBcc: <b@example.com"}, `"refused" `, false},
	} {
		before := len(m.office.all())
		run++
		id := fmt.Sprintf("notification-7-%d", run)
		m.begin(id, letter(one.url, one.change))
		if found := m.outcome(id); !strings.HasPrefix(found, one.want) || strings.Contains(found, "R0UT1NGK3Y") {
			t.Errorf("%s: found %s; want %s", name, found, one.want)
		}
		if sent := len(m.office.all()) > before; sent != one.sent {
			t.Errorf("%s: the server has the message: %t; want %t", name, sent, one.sent)
		}
	}
}

// What a subject, a name or a text has in it is never a header, an end of the message or a part of it; there is a part for readers without
// HTML (D62).
func TestAMailHasNoHeaderOfItsTexts(t *testing.T) {
	t.Parallel()
	m := startMailing(t)
	hostile := "shop → production\r\nBcc: all@example.com\r\n\r\nApprove\u2028it"
	m.begin("notification-7-1", letter(m.smtps, map[string]any{
		"from": `"Ada, \"Bob\" é" <cd@example.com>`, "subject": hostile, "text": "one\r\n.\r\nQUIT\r\n--x\r\n" + hostile, "html": "<p>" + hostile + "</p>",
		"in_reply_to": "lockstep-1-2-rollout-3-0@example.com",
	}))
	if found := m.outcome("notification-7-1"); !strings.HasPrefix(found, `"sent"`) {
		t.Fatal(found)
	}
	kept := m.office.all()
	if len(kept) != 1 {
		t.Fatalf("found %d messages", len(kept))
	}
	read, err := mail.ReadMessage(strings.NewReader(kept[0]))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for name := range read.Header {
		names = append(names, name)
	}
	slices.Sort(names)
	want := "Auto-Submitted Content-Type Date From In-Reply-To Message-Id Mime-Version References Subject To"
	if found := strings.Join(names, " "); found != want {
		t.Errorf("headers: found %s; want %s", found, want)
	}
	subject, err := (&mime.WordDecoder{}).DecodeHeader(read.Header.Get("Subject"))
	if err != nil || subject != "shop → production  Bcc: all@example.com    Approve\u2028it" {
		t.Errorf("subject: found %q, %v", subject, err)
	}
	if from, err := mail.ParseAddress(read.Header.Get("From")); err != nil || from.Name != `Ada, "Bob" é` || from.Address != "cd@example.com" {
		t.Errorf("sender: found %v, %v", from, err)
	}
	kind, parameters, err := mime.ParseMediaType(read.Header.Get("Content-Type"))
	if err != nil || kind != "multipart/alternative" {
		t.Fatalf("found %s, %v", kind, err)
	}
	parts := multipart.NewReader(read.Body, parameters["boundary"])
	for _, want := range []struct{ kind, text string }{
		{"text/plain; charset=utf-8", "one\r\n.\r\nQUIT\r\n--x\r\n" + hostile}, {"text/html; charset=utf-8", "<p>" + hostile + "</p>"},
	} {
		part, err := parts.NextRawPart()
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(quotedprintable.NewReader(part))
		if found := part.Header.Get("Content-Type"); err != nil || found != want.kind || string(text) != want.text {
			t.Errorf("found %s %q, %v; want %s %q", found, text, err, want.kind, want.text)
		}
	}
	if _, err := parts.NextPart(); err != io.EOF {
		t.Errorf("after two parts: found %v", err)
	}
}

// A service that is killed after the server has a message, and before anything remembers that, sends it again, with the same Message-Id, by
// which readers show it once (D62).
func TestAServiceIsKilledBetweenSendingAMailAndRememberingIt(t *testing.T) {
	t.Parallel()
	m := startMailing(t)
	m.office.mu.Lock()
	m.office.hold = true
	m.office.mu.Unlock()
	m.down()
	kill := m.spawn()
	m.begin("notification-7-1", letter(m.smtps, nil))
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	select {
	case <-m.office.kept:
	case <-ctx.Done():
		t.Fatal("no message came")
	}
	kill()
	m.office.mu.Lock()
	m.office.hold = false
	m.office.mu.Unlock()
	m.up()
	if found := m.outcome("notification-7-1"); !strings.HasPrefix(found, `"sent"`) {
		t.Errorf("found %s; want sent", found)
	}
	var ids []string
	for _, text := range m.office.all() {
		read, err := mail.ReadMessage(strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, cmp.Or(read.Header.Get("Message-Id"), "none"))
	}
	if len(ids) != 2 || ids[0] != ids[1] || ids[0] != "<lockstep-1-2-rollout-3-1@example.com>" {
		t.Errorf("found the messages %v; want one id twice", ids)
	}
}
