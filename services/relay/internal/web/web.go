// Package web sends the requests of programs from inside the cluster. Which requests are sent is decided before (core.Limits); it sees to
// it that a credential goes where the operator of the relay has bound it to, and nowhere else, and that nothing leads elsewhere.
package web

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync/atomic"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/sealing"
	"github.com/lockstep-cd/lockstep/services/relay/internal/core"
)

// mostRead bounds what is read of an answer, in bytes, to know its digest.
const mostRead = 8 << 20

// Credential is a secret of the relay's configuration.
type Credential struct {
	Name string
	// URLPrefixes are where it may be sent.
	URLPrefixes []string
	// Username makes it a password, Header the value of that header; otherwise it is a bearer token.
	Username, Header string
	// Ref refers to the value, which is read for each request.
	Ref string
}

// Deps are what a Client needs.
type Deps struct {
	// HTTP reaches the servers, and decides which may be reached.
	HTTP        http.RoundTripper
	Credentials []Credential
	// Read follows a reference.
	Read func(ctx context.Context, ref string) (string, error)
}

// Client sends requests. It is safe for concurrent use.
type Client struct {
	d    Deps
	http *http.Client
}

var _ core.Web = (*Client)(nil)

// New makes a Client. It follows no redirects: where they lead was not allowed by anybody.
func New(d Deps) *Client {
	return &Client{d: d, http: &http.Client{
		Transport: d.HTTP, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// Send implements core.Web.
func (c *Client) Send(ctx context.Context, r core.WebRequest) (core.WebAnswer, error) {
	ctx, cancel := context.WithTimeout(ctx, r.Timeout)
	defer cancel()
	var connected atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected.Store(true) }})
	request, err := http.NewRequestWithContext(ctx, r.Method, r.URL.String(), bytes.NewReader(r.Body))
	if err != nil {
		return core.WebAnswer{}, fault.InvalidFields(fault.Field{Name: "url", Problem: "found one that no request can be made of"})
	}
	for name, value := range r.Header {
		request.Header.Set(name, value)
	}
	secrets, err := c.authorize(ctx, request, r.Credential)
	if err != nil {
		return core.WebAnswer{}, err
	}
	response, err := c.http.Do(request)
	if err != nil {
		return core.WebAnswer{}, unanswered(err, connected.Load())
	}
	defer func() { _ = response.Body.Close() }() // what was read is known by then
	return read(response, r.Keep, secrets)
}

// authorize adds a credential to a request, and returns what must not be shown.
func (c *Client) authorize(ctx context.Context, request *http.Request, name string) (secrets []string, err error) {
	if name == "" {
		return nil, nil
	}
	for _, own := range c.d.Credentials {
		if own.Name != name {
			continue
		}
		if !sealing.Covers(own.URLPrefixes, request.URL) {
			return nil, fault.New(fault.Denied, "this relay's credential %q is not for this URL", name)
		}
		value, err := c.d.Read(ctx, own.Ref)
		if err != nil || value == "" || strings.ContainsAny(value, "\r\n\x00") {
			return nil, fault.Because(errors.Join(err, errors.New("no usable value")), fault.Denied, "this relay's credential %q cannot be read", name)
		}
		switch {
		case own.Username != "":
			request.SetBasicAuth(own.Username, value)
		case own.Header != "":
			request.Header.Set(own.Header, value)
		default:
			request.Header.Set("Authorization", "Bearer "+value)
		}
		_, sent, _ := strings.Cut(request.Header.Get("Authorization"), " ")
		return []string{value, sent}, nil
	}
	return nil, fault.New(fault.Denied, "this relay has no credential %q (request_credentials)", name)
}

// unanswered classifies a request without an answer.
func unanswered(err error, connected bool) error {
	if own, ok := errors.AsType[*fault.Error](err); ok && !fault.Is(err, fault.Unavailable) { // the transport's own refusal
		return fault.New(own.Class(), "%s", fault.Public(own))
	}
	if connected {
		return fault.Because(err, fault.Conflict, "no answer was received")
	}
	return fault.Because(err, fault.Unavailable, "the server cannot be reached")
}

// read reads an answer, without the secrets that the server sends back.
func read(response *http.Response, keep int, secrets []string) (core.WebAnswer, error) {
	body, err := io.ReadAll(io.LimitReader(response.Body, mostRead+1))
	if err != nil {
		return core.WebAnswer{}, unanswered(err, true)
	}
	if len(body) > mostRead {
		return core.WebAnswer{}, fault.New(fault.Refused, "the answer has more than %d bytes", mostRead)
	}
	digest := sha256.Sum256(body)
	answer := core.WebAnswer{
		Status: response.StatusCode, Header: map[string]string{}, Size: int64(len(body)), Digest: hex.EncodeToString(digest[:]),
	}
	for name := range response.Header {
		answer.Header[strings.ToLower(name)] = conceal(response.Header.Get(name), secrets)
	}
	if len(body) <= keep {
		answer.Body = []byte(conceal(string(body), secrets))
	}
	return answer, nil
}

// concealed stands for a secret.
const concealed = "[redacted]"

func conceal(text string, secrets []string) string {
	for _, secret := range secrets {
		if secret != "" {
			text = strings.ReplaceAll(text, secret, concealed)
		}
	}
	return text
}

// String keeps values out of logs.
func (c Credential) String() string { return "credential " + c.Name }
