package web

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http/httptest"
	"net/mail"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/emersion/go-sasl"
	server "github.com/emersion/go-smtp"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/httpx"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
)

// mailbox is a mail server that keeps what it is sent. It refuses addresses that begin with gone, and is busy for those that begin with
// busy.
type mailbox struct {
	mu   sync.Mutex
	mail []string
	to   []string
}

type mailSession struct {
	box    *mailbox
	signed bool
	to     []string
}

func (b *mailbox) NewSession(*server.Conn) (server.Session, error) { return &mailSession{box: b}, nil }

func (*mailSession) AuthMechanisms() []string { return []string{sasl.Plain} }

func (s *mailSession) Auth(string) (sasl.Server, error) {
	return sasl.NewPlainServer(func(_, user, given string) error {
		if s.signed = user == "lockstep" && given == password; !s.signed {
			return server.ErrAuthFailed
		}
		return nil
	}), nil
}

func (*mailSession) Mail(string, *server.MailOptions) error { return nil }

func (s *mailSession) Rcpt(to string, _ *server.RcptOptions) error {
	switch {
	case strings.HasPrefix(to, "gone"):
		return &server.SMTPError{Code: 550, EnhancedCode: server.EnhancedCode{5, 1, 1}, Message: "no such user"}
	case strings.HasPrefix(to, "busy"):
		return &server.SMTPError{Code: 451, EnhancedCode: server.EnhancedCode{4, 3, 0}, Message: "try again"}
	}
	s.to = append(s.to, to)
	return nil
}

func (s *mailSession) Data(r io.Reader) error {
	text, err := io.ReadAll(r)
	s.box.mu.Lock()
	defer s.box.mu.Unlock()
	s.box.mail, s.box.to = append(s.box.mail, string(text)), append(s.box.to, s.to...)
	return err
}

func (*mailSession) Reset()        {}
func (*mailSession) Logout() error { return nil }

// mailServer starts one, encrypted or not, and a client that may reach it.
func mailServer(t *testing.T, encrypted bool, secret string) (*Client, string, *mailbox) {
	t.Helper()
	box := &mailbox{}
	s := server.NewServer(box)
	s.Domain, s.AllowInsecureAuth, s.ErrorLog = "localhost", true, quietMail{}
	certificate := httptest.NewTLSServer(nil)
	certificate.Close()
	trusted := x509.NewCertPool()
	trusted.AddCert(certificate.Certificate())
	if encrypted {
		s.TLSConfig = &tls.Config{Certificates: certificate.TLS.Certificates, MinVersion: tls.VersionTLS12}
	}
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = s.Serve(listener) }()
	t.Cleanup(func() { _ = s.Close() })
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte(secret), 0o600); err != nil {
		t.Fatal(err)
	}
	url := "smtp://" + listener.Addr().String()
	return mailer(t, url, file, trusted), url, box
}

func mailer(t *testing.T, url, file string, trusted *x509.CertPool) *Client {
	t.Helper()
	transport, err := httpx.New(httpx.Config{Allow: []string{"127.0.0.1"}, MaxBody: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(transport.Close)
	c, err := New(Deps{
		HTTP: transport, Dial: transport.Dial,
		TLS: func(name string) *tls.Config {
			return &tls.Config{RootCAs: trusted, ServerName: name, MinVersion: tls.VersionTLS12}
		},
		Credentials: []Credential{{Name: "mail", Username: "lockstep", URLPrefixes: []string{url}, Ref: "file:" + file}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

type quietMail struct{}

func (quietMail) Printf(string, ...any) {}
func (quietMail) Println(...any)        {}

func message(url string, to ...string) activity.Mail {
	return activity.Mail{
		Organization: 1, Server: url, From: "Lockstep <cd@example.com>", To: to, MessageID: "m-7@cd.example.com", InReplyTo: "m-1@cd.example.com",
		Subject: "shop → production\r\nBcc: all@example.com", Text: "It began.\n.\nApprove it.", HTML: "<p>It began.</p>",
		Timeout: 10 * time.Second, Date: time.Date(2026, 11, 24, 15, 0, 0, 0, time.UTC), AutoSubmitted: true,
	}
}

func TestMailIsSent(t *testing.T) {
	t.Parallel()
	c, url, box := mailServer(t, true, password)
	m := message(url, "ada@example.com", "gone@example.com")
	m.Credential = "mail"
	answer, err := c.SendMail(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	if len(answer.Refused) != 1 || !strings.Contains(answer.Refused["gone@example.com"], "no such user") {
		t.Errorf("refused: found %v", answer.Refused)
	}
	read, err := mail.ReadMessage(strings.NewReader(box.mail[0]))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"Message-Id": "<m-7@cd.example.com>", "In-Reply-To": "<m-1@cd.example.com>", "Auto-Submitted": "auto-generated", "Bcc": "",
		"From": `"Lockstep" <cd@example.com>`,
	} {
		if found := read.Header.Get(name); found != want {
			t.Errorf("%s: found %q, expected %q", name, found, want)
		}
	}
	body, _ := io.ReadAll(read.Body)
	if !strings.Contains(string(body), "\r\n.\r\nApprove it.") || !strings.Contains(string(body), "<p>It began.</p>") {
		t.Errorf("found %s", body)
	}
}

// What fails permanently is Refused or Unauthenticated, and everything else is tried again; a secret is in no error (D27, D62).
func TestMailThatIsRefused(t *testing.T) {
	t.Parallel()
	c, url, box := mailServer(t, true, "wrong-"+password)
	plain, plainURL, plainBox := mailServer(t, false, password)
	for name, one := range map[string]struct {
		client *Client
		mail   activity.Mail
		login  bool
		class  fault.Class
	}{
		"a wrong password":                       {c, message(url, "ada@example.com"), true, fault.Unauthenticated},
		"an unknown address":                     {c, message(url, "gone@example.com"), false, fault.Refused},
		"a server that is busy":                  {c, message(url, "busy@example.com"), false, fault.Unavailable},
		"a server without encryption":            {plain, message(plainURL, "ada@example.com"), false, fault.Refused},
		"a credential for another server":        {plain, message(url, "ada@example.com"), true, fault.Denied},
		"a server that is not there":             {c, message("smtp://127.0.0.1:1", "ada@example.com"), false, fault.Unavailable},
		"an address that may not be reached":     {c, message("smtp://127.0.0.2:25", "ada@example.com"), false, fault.Refused},
		"a web server":                           {c, message("https://example.com", "ada@example.com"), false, fault.Invalid},
		"an address with a second header in it":  {c, message(url, "ada@example.com\r\nBcc: b@example.com"), false, fault.Invalid},
		"an address that is a name and the like": {c, message(url, "Ada <ada@example.com>"), false, fault.Invalid},
	} {
		if one.login {
			one.mail.Credential = "mail"
		}
		_, err := one.client.SendMail(t.Context(), one.mail)
		if !fault.Is(err, one.class) || strings.Contains(err.Error(), password) {
			t.Errorf("%s: found %v (%v), expected %v", name, err, fault.ClassOf(err), one.class)
		}
	}
	if n := len(box.mail) + len(plainBox.mail); n != 0 {
		t.Errorf("found %d messages", n)
	}
	m := message(plainURL, "ada@example.com")
	m.Plain = true
	if _, err := plain.SendMail(t.Context(), m); err != nil {
		t.Error(err)
	}
	m.Credential = "mail"
	if _, err := plain.SendMail(t.Context(), m); !fault.Is(err, fault.Refused) {
		t.Errorf("a password without encryption: found %v", err)
	}
}

// A mail server that accepts a connection and says nothing holds nobody longer than the timeout.
func TestAMailServerThatNeverAnswers(t *testing.T) {
	t.Parallel()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	url := "smtp://" + listener.Addr().String()
	c := mailer(t, url, "/none", nil)
	m := message(url, "ada@example.com")
	m.Timeout = 50 * time.Millisecond
	if _, err := c.SendMail(context.WithoutCancel(t.Context()), m); !fault.Is(err, fault.Unavailable) || errors.Is(err, context.Canceled) {
		t.Errorf("found %v", err)
	}
}
