// Package httpx is the one HTTP transport for URLs from anyone but the operator (D41): registries that a notification names, hosts that a
// registry redirects to, endpoints in a tenant's configuration.
//
// It connects to public addresses only. The check applies to the address that is dialled, after every resolution and for every redirect, so
// that no spelling of an address, no name that resolves to an internal address and no name whose answer changes gets past it. The operator
// allows internal hosts by name.
package httpx

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/certs"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/telemetry"
)

// Config holds the operator's settings. The zero value allows public addresses on ports 80 and 443.
type Config struct {
	// Allow lists what may be reached beyond that: networks (10.1.0.0/16), addresses, and hosts by name (registry.corp, or *.corp for all
	// below), each with a port (10.1.2.3:5000), or else on every port. A host that is allowed by name may have any address.
	Allow []string
	// Timeout bounds a request, body included. Default: 30 s.
	Timeout time.Duration
	// MaxBody bounds the bytes of an answer, decompressed. Default: 8 MiB.
	MaxBody int64
	// Log receives the addresses of servers that were refused or not reached, which errors do not contain; nil means none.
	Log *slog.Logger
	// TLS verifies servers, and holds a client certificate for those that request one; nil means the system's authorities and no
	// certificate.
	TLS *certs.Client
}

// The fixed limits.
const (
	maxRedirects   = 3
	maxHeader      = 64 << 10
	defaultTimeout = 30 * time.Second
	defaultMaxBody = 8 << 20
	dialTimeout    = 5 * time.Second
)

// Transport is an http.RoundTripper that enforces the rules for any client.
type Transport struct {
	policy  policy
	base    *http.Transport
	timeout time.Duration
	maxBody int64
	log     *slog.Logger
}

// New returns a transport. The error is Invalid and names the entry of the list.
func New(c Config) (*Transport, error) {
	p, err := parseAllow(c.Allow)
	if err != nil {
		return nil, err
	}
	if c.Timeout <= 0 {
		c.Timeout = defaultTimeout
	}
	if c.MaxBody <= 0 {
		c.MaxBody = defaultMaxBody
	}
	t := &Transport{policy: p, timeout: c.Timeout, maxBody: c.MaxBody, log: c.Log}
	if t.log == nil {
		t.log = slog.New(slog.DiscardHandler)
	}
	t.base = &http.Transport{
		Proxy:                  nil, // the check would see only the address of the proxy
		DialContext:            t.dial,
		ForceAttemptHTTP2:      true,
		MaxIdleConns:           64,
		MaxIdleConnsPerHost:    8,
		IdleConnTimeout:        time.Minute,
		TLSHandshakeTimeout:    dialTimeout,
		ResponseHeaderTimeout:  c.Timeout,
		MaxResponseHeaderBytes: maxHeader,
	}
	if c.TLS != nil {
		t.base.DialTLSContext = func(ctx context.Context, network, address string) (net.Conn, error) {
			return t.dialTLS(ctx, network, address, c.TLS.Config)
		}
	}
	return t, nil
}

// Secured is the same transport with other settings of TLS, by host. It has connections of its own: no other request uses what a client
// certificate has opened.
func (t *Transport) Secured(settings func(host string) *tls.Config) *Transport {
	secured := &Transport{policy: t.policy, timeout: t.timeout, maxBody: t.maxBody, log: t.log, base: t.base.Clone()}
	secured.base.DialContext = secured.dial
	secured.base.DialTLSContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		return secured.dialTLS(ctx, network, address, settings)
	}
	return secured
}

// Client returns a client with the transport. Its redirects are checked, too: three at most, and no credentials for another host.
func (t *Transport) Client() *http.Client { return &http.Client{Transport: t} }

// Close closes idle connections.
func (t *Transport) Close() { t.base.CloseIdleConnections() }

// RoundTrip checks the URL, removes what a redirect must not carry, and bounds the answer.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := checkURL(r.URL); err != nil {
		return nil, err
	}
	origin, hops := r, 0
	for origin.Response != nil && origin.Response.Request != nil {
		origin = origin.Response.Request
		hops++
	}
	if hops > maxRedirects {
		return nil, fault.New(fault.Denied, "%s redirects more than %d times", origin.URL.Host, maxRedirects)
	}
	if hops > 0 {
		if origin.URL.Scheme == "https" && r.URL.Scheme != "https" {
			return nil, fault.New(fault.Denied, "%s redirects from https to http", origin.URL.Host)
		}
		if !sameHost(origin.URL, r.URL) {
			r = withoutCredentials(r)
		}
	}
	ctx, cancel := context.WithTimeout(r.Context(), t.timeout)
	ctx, end := telemetry.StartChildSpan(ctx, "HTTP "+r.Method, telemetry.Client, telemetry.Text(telemetry.HTTPMethod, r.Method),
		telemetry.Text(telemetry.URLScheme, r.URL.Scheme), telemetry.Text(telemetry.ServerAddress, r.URL.Host))
	response, err := t.base.RoundTrip(r.WithContext(ctx))
	if err != nil {
		end("no answer") // the error may contain an internal address
		cancel()
		return nil, t.conceal(r.Context(), r.URL.Host, err)
	}
	telemetry.Annotate(ctx, telemetry.Count(telemetry.HTTPStatus, response.StatusCode))
	end("")
	if response.ContentLength > t.maxBody && r.Method != http.MethodHead {
		_ = response.Body.Close()
		cancel()
		return nil, t.tooLarge(r)
	}
	response.Body = &bounded{body: response.Body, left: t.maxBody, cancel: cancel, over: t.tooLarge(r), of: t, request: r}
	response.Request = r
	return response, nil
}

func (t *Transport) tooLarge(r *http.Request) error {
	return fault.New(fault.Denied, "the answer of %s has more than %d bytes", r.URL.Host, t.maxBody)
}

// Dial connects to an address that the policy allows, for protocols beside HTTP.
func (t *Transport) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := t.dial(ctx, network, address)
	if err != nil {
		host, _, _ := net.SplitHostPort(address)
		return nil, t.conceal(ctx, host, err)
	}
	return conn, nil
}

// dial connects to an address that the policy allows. The check is the dialer's control function: it sees the address that is about to be
// connected, not a name for it.
func (t *Transport) dial(ctx context.Context, network, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fault.New(fault.Invalid, "found %q; expected a host and a port", address)
	}
	d := net.Dialer{
		Timeout: dialTimeout,
		Control: func(network, address string, _ syscall.RawConn) error {
			return t.policy.check(host, port, network, address)
		},
	}
	conn, err := d.DialContext(ctx, network, address)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", host, err)
	}
	return conn, nil
}

// dialTLS is dial and a handshake with the current files: a replaced authority needs no restart.
func (t *Transport) dialTLS(ctx context.Context, network, address string, settings func(host string) *tls.Config) (net.Conn, error) {
	conn, err := t.dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	host, _, _ := net.SplitHostPort(address) // dial has parsed it
	config := settings(host)
	config.NextProtos = []string{"h2", "http/1.1"}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	secured := tls.Client(conn, config)
	if err := secured.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("handshake with %s: %w", host, err)
	}
	return secured, nil
}

// checkURL refuses other schemes, and credentials in the URL, which would end up in logs.
func checkURL(u *url.URL) error {
	switch {
	case u.Scheme != "http" && u.Scheme != "https":
		return fault.New(fault.Denied, "found a URL of scheme %q; expected https or http", u.Scheme)
	case u.User != nil:
		return fault.New(fault.Denied, "found credentials in the URL of %s; expected none", u.Host)
	case u.Hostname() == "":
		return fault.New(fault.Denied, "found a URL without a host")
	case strings.Contains(u.Hostname(), "%"):
		return fault.New(fault.Denied, "found a zone in the host %s; expected none", u.Host)
	}
	return nil
}

func sameHost(a, b *url.URL) bool {
	return strings.EqualFold(a.Hostname(), b.Hostname()) && portOf(a) == portOf(b)
}

func portOf(u *url.URL) string {
	if p := u.Port(); p != "" {
		return p
	}
	return map[string]string{"http": "80", "https": "443"}[u.Scheme]
}

// withoutCredentials returns r for another host than the one that its credentials are for.
func withoutCredentials(r *http.Request) *http.Request {
	r = r.Clone(r.Context())
	for name := range r.Header {
		switch name {
		case "Accept", "Accept-Encoding", "User-Agent", "If-None-Match", "If-Modified-Since", "Range", "Content-Type":
		default: // any other header may be a secret: X-Api-Key, Private-Token, Cookie
			r.Header.Del(name)
		}
	}
	return r
}

// bounded is a body that fails when it exceeds its limit.
type bounded struct {
	body   io.ReadCloser
	left   int64
	cancel context.CancelFunc
	over   error
	// of and request are for the text of an error.
	of      *Transport
	request *http.Request
}

// Read reads up to the limit and one more byte, which is not returned.
func (b *bounded) Read(p []byte) (int, error) {
	if b.left < 0 {
		return 0, b.over
	}
	if int64(len(p)) > b.left+1 {
		p = p[:b.left+1]
	}
	n, err := b.body.Read(p)
	b.left -= int64(n)
	if b.left < 0 {
		return n - 1, b.over
	}
	return n, b.of.conceal(b.request.Context(), b.request.URL.Host, err) // io.EOF stays unwrapped
}

// Close releases the request's timer.
func (b *bounded) Close() error {
	defer b.cancel()
	return b.body.Close()
}
