package web

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/sealing"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
)

// Publish publishes one message on a subject of a NATS server, over a connection of its own that goes to that server only, and returns once
// the server has the message, or a stream of it.
func (c *Client) Publish(ctx context.Context, m activity.SubjectMessage) error {
	server, err := sealing.ParseURL(m.Server, sealing.SchemeNATS, sealing.SchemeNATSTLS)
	if err != nil || server.Path != "/" || server.RawQuery != "" {
		return fault.InvalidFields(fault.Field{Name: "server", Problem: fmt.Sprintf(
			"found %.100q; expected nats://host:4222 or tls://host:4222", m.Server)})
	}
	if c.dial == nil {
		return fault.New(fault.Refused, "no NATS server can be reached here")
	}
	leave, err := c.enter(m.Organization, m.Delivery, server.Host)
	if err != nil {
		return err
	}
	defer leave()
	ctx, cancel := context.WithTimeout(ctx, m.Timeout)
	defer cancel()
	ctx, refuse := context.WithCancelCause(ctx)
	defer refuse(nil)
	options, err := c.joining(ctx, m, server, refuse)
	if err != nil {
		return err
	}
	options = append(options, nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
		if errors.Is(err, nats.ErrPermissionViolation) { // nobody answers what is refused
			refuse(err)
		}
	}))
	conn, err := nats.Connect("nats://"+net.JoinHostPort(server.Hostname(), sealing.Port(server)), options...)
	if err != nil {
		return unpublished(ctx, err, server)
	}
	defer conn.Close()
	message := &nats.Msg{Subject: m.Subject, Data: m.Data, Header: nats.Header{"Nats-Msg-Id": {m.MessageID}}}
	if m.ContentType != "" {
		message.Header.Set("Content-Type", m.ContentType)
	}
	return unpublished(ctx, published(ctx, conn, message, m.Stored), server)
}

// published sends a message, and waits until the server or a stream has it. A server refuses a subject before it answers.
func published(ctx context.Context, conn *nats.Conn, message *nats.Msg, stored bool) error {
	if stored {
		streams, err := jetstream.New(conn)
		if err != nil {
			return err
		}
		_, err = streams.PublishMsg(ctx, message, jetstream.WithRetryAttempts(0))
		if refused := context.Cause(ctx); err != nil && errors.Is(refused, nats.ErrPermissionViolation) {
			return refused
		}
		return err
	}
	if err := conn.PublishMsg(message); err != nil {
		return err
	}
	if err := conn.FlushWithContext(ctx); err != nil {
		return err
	}
	return conn.LastError()
}

// joining are the options of a connection to one server: it is not made again, goes nowhere else, and is encrypted.
func (c *Client) joining(
	ctx context.Context, m activity.SubjectMessage, server *url.URL, refuse context.CancelCauseFunc,
) ([]nats.Option, error) {
	secure := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: server.Hostname()}
	if c.tls != nil {
		secure = c.tls(server.Hostname())
	}
	options := []nats.Option{
		nats.Name("lockstep"), nats.NoReconnect(), nats.IgnoreDiscoveredServers(), nats.SkipHostLookup(), nats.Timeout(m.Timeout),
		nats.SetCustomDialer(guardedDialer{
			ctx: ctx, dial: c.dial, address: net.JoinHostPort(server.Hostname(), sealing.Port(server)), secure: secure, plain: m.Plain,
			first: server.Scheme == sealing.SchemeNATSTLS, refuse: refuse,
		}),
	}
	if !m.Plain {
		options = append(options, nats.Secure(secure))
	} else if m.Credential != "" || server.Scheme == sealing.SchemeNATSTLS {
		return nil, fault.New(fault.Refused, "found plain with a credential or tls://; expected nats:// without a credential: no secret is sent unencrypted")
	}
	if m.Credential == "" {
		return options, nil
	}
	subject := *server
	subject.Path = "/" + m.Subject // a credential may be for one subject
	found, value, err := c.credentials.read(ctx, activity.WebRequest{
		Organization: m.Organization, Credential: m.Credential, Secrets: m.Secrets,
	}, &subject)
	if err != nil {
		return nil, err
	}
	if found.Username != "" {
		return append(options, nats.UserInfo(found.Username, value)), nil
	}
	return append(options, nats.Token(value)), nil
}

// unpublished is the class of an error: what a server refuses permanently is Refused, everything else is tried again.
func unpublished(ctx context.Context, err error, server *url.URL) error {
	if err == nil {
		return nil
	}
	if refused, ok := errors.AsType[*fault.Error](context.Cause(ctx)); ok {
		return refused
	}
	if own, ok := errors.AsType[*fault.Error](err); ok {
		if own.Class() == fault.Denied {
			return fault.Because(err, fault.Refused, "%s", fault.Public(own))
		}
		return own
	}
	var untrusted *tls.CertificateVerificationError
	switch {
	case errors.Is(err, nats.ErrAuthorization), errors.Is(err, nats.ErrAuthExpired), errors.Is(err, nats.ErrAuthRevoked):
		return fault.Because(err, fault.Unauthenticated, "%s refuses the login", server.Host)
	case errors.Is(err, nats.ErrPermissionViolation):
		return fault.Because(err, fault.Refused, "%s does not permit publishing on the subject", server.Host)
	case errors.Is(err, nats.ErrSecureConnWanted):
		return fault.Because(err, fault.Refused, "%s offers no encryption (TLS); expected it, or plain without a credential", server.Host)
	case errors.Is(err, nats.ErrMaxPayload):
		return fault.Because(err, fault.Refused, "%s takes no message of this size", server.Host)
	case errors.Is(err, jetstream.ErrNoStreamResponse), errors.Is(err, nats.ErrNoResponders):
		return fault.Because(err, fault.Unavailable, "%s has no stream that stores the subject", server.Host)
	case errors.As(err, &untrusted):
		return fault.Because(err, fault.Unavailable, "%s: its certificate is not trusted: %.200s", server.Host, untrusted.Err)
	default:
		return fault.Because(err, fault.Unavailable, "%s: no answer, or none in time", server.Host)
	}
}
