package web

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"mime"
	"mime/multipart"
	"mime/quotedprintable"
	"net"
	"net/mail"
	"net/smtp"
	"net/textproto"
	"net/url"
	"strings"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/sealing"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
)

// SendMail sends one message. A server that refuses one of several addresses permanently still has the message for the others,
// and the answer says which were refused; with none left the error is Refused.
func (c *Client) SendMail(ctx context.Context, m activity.Mail) (activity.MailAnswer, error) {
	var none activity.MailAnswer
	server, err := sealing.ParseURL(m.Server, sealing.SchemeMail, sealing.SchemeMailTLS)
	if err != nil {
		return none, fault.InvalidFields(fault.Field{Name: "server", Problem: fmt.Sprintf(
			"found %.100q; expected smtp://host:587 or smtps://host:465", m.Server)})
	}
	if c.dial == nil {
		return none, fault.New(fault.Refused, "no mail server can be reached here")
	}
	text, err := written(m)
	if err != nil {
		return none, err
	}
	leave, err := c.enter(m.Organization, m.Delivery, server.Host)
	if err != nil {
		return none, err
	}
	defer leave()
	var login smtp.Auth
	if m.Credential != "" {
		found, password, err := c.credentials.read(ctx, activity.WebRequest{
			Organization: m.Organization, Credential: m.Credential, Secrets: m.Secrets,
		}, server)
		if err != nil {
			return none, err
		}
		login = smtp.PlainAuth("", found.Username, password, server.Hostname())
	}
	ctx, cancel := context.WithTimeout(ctx, m.Timeout)
	defer cancel()
	answer, err := c.exchange(ctx, server, m, login, text)
	return answer, unmailed(err, server)
}

// exchange is the conversation with the server.
func (c *Client) exchange(
	ctx context.Context, server *url.URL, m activity.Mail, login smtp.Auth, text []byte,
) (answer activity.MailAnswer, err error) {
	conn, err := c.dial(ctx, "tcp", net.JoinHostPort(server.Hostname(), sealing.Port(server)))
	if err != nil {
		return answer, err
	}
	defer func() { _ = conn.Close() }()
	// A server that says nothing must not hold the connection: net/smtp knows no context.
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	secure := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: server.Hostname()}
	if c.tls != nil {
		secure = c.tls(server.Hostname())
	}
	if server.Scheme == sealing.SchemeMailTLS {
		conn = tls.Client(conn, secure)
	}
	client, err := smtp.NewClient(conn, server.Hostname())
	if err != nil {
		return answer, err
	}
	if server.Scheme == sealing.SchemeMail {
		offers, _ := client.Extension("STARTTLS")
		switch {
		case offers:
			if err := client.StartTLS(secure); err != nil {
				return answer, err
			}
		case !m.Plain || login != nil:
			return answer, fault.New(fault.Refused, "%s offers no encryption (STARTTLS); expected it, or plain without a credential", server.Host)
		}
	}
	if login != nil {
		if err := client.Auth(login); err != nil {
			return answer, refusedLogin(err, server)
		}
	}
	from, err := mail.ParseAddress(m.From)
	if err != nil {
		return answer, invalidFrom(m.From)
	}
	if err := client.Mail(from.Address); err != nil {
		return answer, err
	}
	if answer.Refused, err = recipients(client, m.To); err != nil {
		return answer, err
	}
	w, err := client.Data()
	if err != nil {
		return answer, err
	}
	if _, err := w.Write(text); err != nil {
		return answer, err
	}
	if err := w.Close(); err != nil {
		return answer, err
	}
	_ = client.Quit() // the server has the message
	return answer, nil
}

func invalidFrom(found string) error {
	return fault.InvalidFields(fault.Field{Name: "from", Problem: fmt.Sprintf("found %.100q; expected an address", found)})
}

// recipients names the addresses to the server. Those that it refuses permanently are left out, unless it refuses all.
func recipients(client *smtp.Client, to []string) (map[string]string, error) {
	refused := map[string]string{}
	for _, address := range to {
		err := client.Rcpt(address)
		answer, isAnswer := errors.AsType[*textproto.Error](err)
		if isAnswer && answer.Code >= 500 && len(to) > 1 {
			refused[address] = answer.Error()
			continue
		}
		if err != nil {
			return nil, err
		}
	}
	if len(refused) == len(to) {
		return nil, fault.New(fault.Refused, "the mail server refuses all %d addresses: %s", len(to), refused[to[0]])
	}
	return refused, nil
}

// refusedLogin is the error of a login; its text may have what was sent.
func refusedLogin(err error, server *url.URL) error {
	if answer, ok := errors.AsType[*textproto.Error](err); ok && answer.Code >= 400 && answer.Code < 500 {
		return fault.Because(err, fault.Unavailable, "%s answered %d to the login", server.Host, answer.Code)
	} else if ok {
		return fault.Because(err, fault.Unauthenticated, "%s answered %d to the login", server.Host, answer.Code)
	}
	return err
}

// unmailed is the class of an error: what a server refuses permanently is Refused, everything else is tried again.
func unmailed(err error, server *url.URL) error {
	if err == nil {
		return nil
	}
	if own, ok := errors.AsType[*fault.Error](err); ok {
		if own.Class() == fault.Denied {
			return fault.Because(err, fault.Refused, "%s", fault.Public(own))
		}
		return own
	}
	if answer, ok := errors.AsType[*textproto.Error](err); ok {
		if answer.Code >= 500 {
			return fault.Because(err, fault.Refused, "%s answered %d: %.200s", server.Host, answer.Code, answer.Msg)
		}
		return fault.Because(err, fault.Unavailable, "%s answered %d: %.200s", server.Host, answer.Code, answer.Msg)
	}
	if untrusted, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return fault.Because(err, fault.Unavailable, "%s: its certificate is not trusted: %.200s", server.Host, untrusted.Err)
	}
	return fault.Because(err, fault.Unavailable, "%s: no answer, or none in time", server.Host)
}

// written is a message in the form of RFC 5322: as text, and as HTML if it has that.
func written(m activity.Mail) ([]byte, error) {
	var b bytes.Buffer
	header := func(name, value string) { fmt.Fprintf(&b, "%s: %s\r\n", name, value) }
	from, err := mail.ParseAddress(m.From)
	if err != nil {
		return nil, invalidFrom(m.From)
	}
	header("From", from.String())
	var to []string
	for i, address := range m.To {
		a, err := mail.ParseAddress(address)
		if err != nil || a.Address != address {
			return nil, fault.InvalidFields(fault.Field{
				Name: fmt.Sprintf("to[%d]", i), Problem: fmt.Sprintf("found %.100q; expected an address", address),
			})
		}
		to = append(to, a.String())
	}
	header("To", strings.Join(to, ", "))
	header("Subject", mime.QEncoding.Encode("utf-8", strings.Map(inLine, m.Subject)))
	header("Date", m.Date.UTC().Format(time.RFC1123Z))
	header("Message-Id", "<"+m.MessageID+">")
	if m.InReplyTo != "" {
		header("In-Reply-To", "<"+m.InReplyTo+">")
		header("References", "<"+m.InReplyTo+">")
	}
	if m.AutoSubmitted { // so that no holiday note answers it (RFC 3834)
		header("Auto-Submitted", "auto-generated")
	}
	header("Mime-Version", "1.0")
	parts := multipart.NewWriter(&b)
	header("Content-Type", `multipart/alternative; boundary="`+parts.Boundary()+`"`)
	b.WriteString("\r\n")
	for _, part := range []struct{ kind, text string }{{"text/plain", m.Text}, {"text/html", m.HTML}} {
		if part.text == "" {
			continue
		}
		w, err := parts.CreatePart(textproto.MIMEHeader{
			"Content-Type": {part.kind + "; charset=utf-8"}, "Content-Transfer-Encoding": {"quoted-printable"},
		})
		if err != nil {
			return nil, fmt.Errorf("write a message: %w", err)
		}
		q := quotedprintable.NewWriter(w)
		if _, err := q.Write([]byte(part.text)); err != nil {
			return nil, fmt.Errorf("write a message: %w", err)
		}
		if err := q.Close(); err != nil {
			return nil, fmt.Errorf("write a message: %w", err)
		}
	}
	if err := parts.Close(); err != nil {
		return nil, fmt.Errorf("write a message: %w", err)
	}
	return b.Bytes(), nil
}

// inLine has a space where a text would begin a new line of the header.
func inLine(r rune) rune {
	if r < ' ' || r == 0x7f {
		return ' '
	}
	return r
}
