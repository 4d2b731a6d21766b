// Package web sends the HTTP requests and the e-mail of programs. Which servers may be reached is the decision of the transport that it is
// given (D41), and which credential goes where is the decision of the operator, or of the organization that owns it: credentials
// are known to programs by name only, and are sent to the URLs that they are bound to.
//
// It repeats nothing and knows no program: the engine decides whether to try again.
package web

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	ocilogin "github.com/lockstep-cd/lockstep/pkg/ociauth/login"
	"github.com/lockstep-cd/lockstep/pkg/sealing/book"
	"github.com/lockstep-cd/lockstep/pkg/secret"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/worker"
)

// The limits.
const (
	// MaxRead is how many bytes of an answer are read at most, to know its digest.
	MaxRead = 64 << 20
	// MaxInProgress is how many requests of one organization are in progress at a time, in a process. The engine has others wait.
	MaxInProgress = activity.RequestsAtOnce
	// MaxDeliveries is how many more of one organization are, that only report to the outside what happens, and MaxDeliveriesTo how many of
	// them to one server: however many channels never answer, what rollouts send has its share, and so have other channels.
	MaxDeliveries   = 16
	MaxDeliveriesTo = 8
	maxHops         = 3
)

// Deps are what a Client needs.
type Deps struct {
	// HTTP reaches the servers. It decides which may be reached.
	HTTP http.RoundTripper
	// Credentials are those of the operator that programs may name, Own those of organizations; nil for none.
	Credentials []Credential
	Own         *book.Book
	// Several reports whether there is more than one organization. Then a credential without organizations is not used. nil if there
	// is one.
	Several func(context.Context) (bool, error)
	// Secrets follows references; nil all but those to Vault.
	Secrets *secret.Reader
	// Dial connects to mail servers. It decides which may be reached. nil is none.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// TLS is how to speak to a server of a name; nil for the system's authorities.
	TLS func(server string) *tls.Config
	// Secured makes transports that reach what HTTP does, with other settings of TLS by host; nil if no credential has a certificate.
	Secured func(settings func(host string) *tls.Config) Secured
	// Clock gives the time of signatures; nil for the machine's.
	Clock clock.Clock
}

// Client sends requests. It is safe for concurrent use.
type Client struct {
	transport   http.RoundTripper
	credentials credentials
	// registries logs in to registries with credentials of organizations.
	registries *ocilogin.Logins
	clock      clock.Clock
	dial       func(ctx context.Context, network, address string) (net.Conn, error)
	tls        func(server string) *tls.Config

	mu         sync.Mutex
	inProgress map[share]int
}

// share is whose requests are counted together: an organization's, its deliveries, and its deliveries to one server.
type share struct {
	organization int64
	deliveries   bool
	server       string
}

var (
	_ activity.Web       = (*Client)(nil)
	_ activity.Mailer    = (*Client)(nil)
	_ activity.Publisher = (*Client)(nil)
	_ worker.Secrets     = (*Client)(nil)
)

// New checks the form of the credentials and makes a Client.
func New(d Deps) (*Client, error) {
	if err := check(d.Credentials); err != nil {
		return nil, err
	}
	if d.Clock == nil {
		d.Clock = clock.System()
	}
	return &Client{
		clock:     d.Clock,
		dial:      d.Dial,
		tls:       d.TLS,
		transport: d.HTTP,
		registries: ocilogin.New(ocilogin.Deps{
			Book: d.Own, Transport: d.HTTP, Clock: d.Clock, Conceal: activity.Conceal,
		}),
		credentials: credentials{
			all: d.Credentials, own: d.Own, secrets: d.Secrets, several: d.Several, tokens: newTokens(d.HTTP, d.Clock), secured: newSecured(d),
		},
		inProgress: map[share]int{},
	}, nil
}

// Send sends one request, and reads the answer up to its limits.
func (c *Client) Send(ctx context.Context, r activity.WebRequest) (activity.WebAnswer, error) {
	target, err := ParseURL(r.URL)
	if err != nil {
		return activity.WebAnswer{}, err
	}
	leave, err := c.enter(r.Organization, r.Delivery, target.Host)
	if err != nil {
		return activity.WebAnswer{}, err
	}
	defer leave()
	login, err := c.credentials.login(ctx, r, target)
	if err != nil {
		return activity.WebAnswer{}, err
	}
	if r.Body, err = c.credentials.secretMembers(ctx, r, target); err != nil {
		return activity.WebAnswer{}, err
	}
	if target, err = c.credentials.secretURL(ctx, r, target); err != nil {
		return activity.WebAnswer{}, err
	}
	signatures, err := c.credentials.signatures(ctx, r, target, c.clock.Now())
	if err != nil {
		return activity.WebAnswer{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, r.Timeout)
	defer cancel()
	var sent atomic.Bool
	traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteHeaders: func() { sent.Store(true) }})
	request, err := http.NewRequestWithContext(traced, r.Method, target.String(), bytes.NewReader(r.Body))
	if err != nil {
		return activity.WebAnswer{}, fault.InvalidFields(fault.Field{Name: "method", Problem: "expected a method of HTTP"})
	}
	if len(r.Body) == 0 {
		request.Body, request.GetBody, request.ContentLength = http.NoBody, nil, 0
	} else if !r.Repeatable {
		request.GetBody = nil // the transport must not send it a second time by itself
	}
	for name, value := range r.Header {
		request.Header.Set(name, value)
	}
	for name, value := range signatures {
		request.Header.Set(name, value)
	}
	login.onto(request)
	response, err := c.following(login, r.Method).Do(request)
	if err != nil {
		return activity.WebAnswer{}, unanswered(err, target, sent.Load() && !r.Repeatable)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode == http.StatusUnauthorized && login.refused != nil {
		login.refused()
	}
	answer, err := read(response, r.Keep)
	if err != nil {
		return activity.WebAnswer{}, unanswered(err, target, !r.Repeatable)
	}
	return answer, nil
}

// enter counts a request, unless its organization has too many in progress. leave ends it.
func (c *Client) enter(organization int64, delivery bool, server string) (leave func(), err error) {
	limits := map[share]int{{organization: organization}: MaxInProgress}
	if delivery {
		limits = map[share]int{
			{organization: organization, deliveries: true}:                 MaxDeliveries,
			{organization: organization, deliveries: true, server: server}: MaxDeliveriesTo,
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for s, most := range limits {
		switch {
		case c.inProgress[s] < most:
		case s.server != "":
			return nil, fault.New(fault.Unavailable, "the organization has %d messages in progress to %s; expected fewer than that", most, s.server)
		default:
			return nil, fault.New(fault.Unavailable, "the organization has %d requests in progress; expected fewer than that", most)
		}
	}
	for s := range limits {
		c.inProgress[s]++
	}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		for s := range limits {
			if c.inProgress[s]--; c.inProgress[s] == 0 {
				delete(c.inProgress, s)
			}
		}
	}, nil
}

// following is a client that follows the redirects of requests that only read. Any other method is answered with the redirect itself: to
// repeat it elsewhere would change a place that nobody has checked.
func (c *Client) following(l login, method string) *http.Client {
	return &http.Client{Transport: l.transport(c.transport), CheckRedirect: func(next *http.Request, before []*http.Request) error {
		if method != http.MethodGet && method != http.MethodHead {
			return http.ErrUseLastResponse
		}
		if len(before) > maxHops {
			return fault.New(fault.Refused, "%s redirects more than %d times", before[0].URL.Host, maxHops)
		}
		// http.Client has copied the header of the first request.
		l.off(next)
		if _, err := ParseURL(next.URL.String()); err == nil && l.covers(next.URL) {
			l.onto(next)
		}
		return nil
	}}
}

// unanswered is the error of a request without a complete answer. The text of a URL's error has the query, which may be a secret.
func unanswered(err error, target *url.URL, perhapsExecuted bool) error {
	if own, ok := errors.AsType[*fault.Error](err); ok {
		if own.Class() == fault.Denied { // the address, a redirect or the size: not the credential
			return fault.Because(err, fault.Refused, "%s", fault.Public(own))
		}
		return own
	}
	reason := "no answer"
	if outer, ok := errors.AsType[*url.Error](err); ok {
		err = outer.Err
	}
	if timed, ok := errors.AsType[interface {
		error
		Timeout() bool
	}](err); errors.Is(err, context.DeadlineExceeded) || ok && timed.Timeout() {
		reason = "no answer in time"
	} else if known, ok := errors.AsType[interface {
		error
		Temporary() bool
	}](err); ok { // the transport's, which has no address
		reason = strings.TrimPrefix(known.Error(), target.Host+": ")
	}
	if perhapsExecuted {
		return fault.Because(err, fault.Conflict, "%s: %s; the server may have executed the request", target.Host, reason)
	}
	return fault.Because(err, fault.Unavailable, "%s: %s", target.Host, reason)
}

// read reads an answer: all of its body for the digest, and keeps it if it is not too long.
func read(response *http.Response, keep int) (activity.WebAnswer, error) {
	answer := activity.WebAnswer{Status: response.StatusCode, Header: make(map[string]string, len(response.Header))}
	for name, values := range response.Header {
		answer.Header[strings.ToLower(name)] = strings.Join(values, ", ")
	}
	tooLong := fault.New(fault.Refused, "the answer of %s has more than %d bytes", response.Request.URL.Host, MaxRead)
	if response.ContentLength > MaxRead && response.Request.Method != http.MethodHead {
		return activity.WebAnswer{}, tooLong
	}
	digest, kept := sha256.New(), &capped{most: keep}
	size, err := io.Copy(io.MultiWriter(digest, kept), io.LimitReader(response.Body, MaxRead+1))
	switch {
	case err != nil:
		return activity.WebAnswer{}, err // which unanswered puts into words
	case size > MaxRead:
		return activity.WebAnswer{}, tooLong
	}
	answer.Size, answer.Digest = size, hex.EncodeToString(digest.Sum(nil))
	if size <= int64(keep) {
		answer.Body = kept.Bytes()
		if answer.Body == nil {
			answer.Body = []byte{}
		}
	}
	return answer, nil
}

// capped keeps the beginning of what is written to it.
type capped struct {
	bytes.Buffer

	most int
}

// Write never fails.
func (c *capped) Write(p []byte) (int, error) {
	if room := c.most - c.Len(); room > 0 {
		_, _ = c.Buffer.Write(p[:min(len(p), room)]) // a buffer takes everything
	}
	return len(p), nil
}
