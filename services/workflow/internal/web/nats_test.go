package web

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/httpx"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
)

// natsServer starts one with a stream of the subjects below stored, encrypted or not, whose user lockstep may publish below cd and stored,
// and a client that may reach it and has the password.
func natsServer(t *testing.T, encrypted bool, secret string) (c *Client, url string, reader *nats.Conn) {
	t.Helper()
	certificate := httptest.NewTLSServer(nil)
	certificate.Close()
	trusted := x509.NewCertPool()
	trusted.AddCert(certificate.Certificate())
	options := &server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, NoLog: true, NoSigs: true, JetStream: true, StoreDir: t.TempDir(), MaxPayload: 1 << 20,
		Users: []*server.User{
			{Username: "lockstep", Password: password, Permissions: &server.Permissions{
				Publish:   &server.SubjectPermission{Allow: []string{"cd.>", "stored.>", "missing.>"}},
				Subscribe: &server.SubjectPermission{Allow: []string{"_INBOX.>"}},
			}},
			{Username: "reader", Password: "reader"},
			{Username: "anybody", Permissions: &server.Permissions{Publish: &server.SubjectPermission{Allow: []string{"cd.>"}}}},
		},
		NoAuthUser: "anybody",
	}
	if encrypted {
		options.TLSConfig = &tls.Config{Certificates: certificate.TLS.Certificates, MinVersion: tls.VersionTLS12}
		options.AllowNonTLS = false
	}
	s, err := server.NewServer(options)
	if err != nil {
		t.Fatal(err)
	}
	go s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(20 * time.Second) {
		t.Fatal("the server does not start")
	}
	url = "nats://" + s.Addr().String()
	to := []nats.Option{nats.UserInfo("reader", "reader")}
	if encrypted {
		to = append(to, nats.Secure(&tls.Config{RootCAs: trusted, ServerName: "127.0.0.1", MinVersion: tls.VersionTLS12}))
	}
	if reader, err = nats.Connect(url, to...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(reader.Close)
	streams, err := jetstream.New(reader)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := streams.CreateStream(t.Context(), jetstream.StreamConfig{Name: "STORED", Subjects: []string{"stored.>"}}); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte(secret), 0o600); err != nil {
		t.Fatal(err)
	}
	return natsClient(t, url, file, trusted), url, reader
}

func natsClient(t *testing.T, url, file string, trusted *x509.CertPool) *Client {
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
		Credentials: []Credential{{Name: "nats", Username: "lockstep", URLPrefixes: []string{url}, Ref: "file:" + file}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func onSubject(url, subject string) activity.SubjectMessage {
	return activity.SubjectMessage{
		Organization: 1, Server: url, Subject: subject, MessageID: "m-7", ContentType: "application/json", Data: []byte(`{"a":1}`), Credential: "nats",
		Timeout: 10 * time.Second,
	}
}

// A message is with those who read its subject, and a stream stores one that is sent twice once (D62).
func TestAMessageIsPublishedOnASubject(t *testing.T) {
	t.Parallel()
	c, url, reader := natsServer(t, true, password)
	received, err := reader.SubscribeSync("cd.shop")
	if err != nil {
		t.Fatal(err)
	}
	if err := reader.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := c.Publish(t.Context(), onSubject(url, "cd.shop")); err != nil {
		t.Fatal(err)
	}
	m, err := received.NextMsg(10 * time.Second)
	if err != nil || string(m.Data) != `{"a":1}` || m.Header.Get("Nats-Msg-Id") != "m-7" || m.Header.Get("Content-Type") != "application/json" {
		t.Fatalf("found %v, %v", m, err)
	}
	stored := onSubject(url, "stored.shop")
	stored.Stored = true
	for range 2 {
		if err := c.Publish(t.Context(), stored); err != nil {
			t.Fatal(err)
		}
	}
	streams, err := jetstream.New(reader)
	if err != nil {
		t.Fatal(err)
	}
	s, err := streams.Stream(t.Context(), "STORED")
	if err != nil {
		t.Fatal(err)
	}
	if n := s.CachedInfo().State.Msgs; n != 1 {
		t.Errorf("the stream has %d messages; want 1", n)
	}
}

// What fails permanently is Refused or Unauthenticated, and everything else is tried again; a secret is in no error (D27, D62).
func TestMessagesOnSubjectsThatAreRefused(t *testing.T) {
	t.Parallel()
	c, url, reader := natsServer(t, true, password)
	wrong, wrongURL, _ := natsServer(t, true, "wrong-"+password)
	plain, plainURL, _ := natsServer(t, false, password)
	all, err := reader.SubscribeSync("cd.>")
	if err != nil {
		t.Fatal(err)
	}
	type change func(m *activity.SubjectMessage)
	anonymous := func(m *activity.SubjectMessage) { m.Credential = "" }
	for name, one := range map[string]struct {
		client *Client
		url    string
		change change
		class  fault.Class
	}{
		"a wrong password":                   {wrong, wrongURL, nil, fault.Unauthenticated},
		"a subject that is not permitted":    {c, url, func(m *activity.SubjectMessage) { m.Subject = "other.shop" }, fault.Refused},
		"stored where it is not permitted":   {c, url, func(m *activity.SubjectMessage) { m.Subject, m.Stored = "other.shop", true }, fault.Refused},
		"a subject that no stream stores":    {c, url, func(m *activity.SubjectMessage) { m.Subject, m.Stored = "missing.shop", true }, fault.Unavailable},
		"more than the server takes":         {c, url, func(m *activity.SubjectMessage) { m.Data = make([]byte, 2<<20) }, fault.Refused},
		"a server without encryption":        {plain, plainURL, anonymous, fault.Refused},
		"a password without encryption":      {plain, plainURL, func(m *activity.SubjectMessage) { m.Plain = true }, fault.Refused},
		"a credential for another server":    {plain, url, nil, fault.Denied},
		"a server that is not there":         {c, "nats://127.0.0.1:1", anonymous, fault.Unavailable},
		"an address that may not be reached": {c, "nats://127.0.0.2:4222", anonymous, fault.Refused},
		"a web server":                       {c, "https://example.com", anonymous, fault.Invalid},
		"a server with a path":               {c, "nats://127.0.0.1/x", anonymous, fault.Invalid},
	} {
		m := onSubject(one.url, "cd.shop")
		if one.change != nil {
			one.change(&m)
		}
		err := one.client.Publish(t.Context(), m)
		if !fault.Is(err, one.class) || strings.Contains(err.Error(), password) {
			t.Errorf("%s: found %v (%v), expected %v", name, err, fault.ClassOf(err), one.class)
		}
	}
	if n, _, _ := all.Pending(); n != 0 {
		t.Errorf("found %d messages", n)
	}
	m := onSubject(plainURL, "cd.shop")
	m.Plain, m.Credential = true, ""
	if err := plain.Publish(t.Context(), m); err != nil {
		t.Error(err)
	}
}

// A server that accepts a connection and says nothing holds nobody longer than the timeout.
func TestANATSServerThatNeverAnswers(t *testing.T) {
	t.Parallel()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	url := "nats://" + listener.Addr().String()
	m := onSubject(url, "cd.shop")
	m.Credential, m.Timeout = "", 50*time.Millisecond
	if err := natsClient(t, url, "/none", nil).Publish(context.WithoutCancel(t.Context()), m); !fault.Is(err, fault.Unavailable) || errors.Is(err, context.Canceled) {
		t.Errorf("found %v", err)
	}
}
