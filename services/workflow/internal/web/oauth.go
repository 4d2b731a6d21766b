package web

import (
	"context"
	"crypto/sha256"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/sealing"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
)

// OAuth2 is a client of a server that issues tokens (OAuth 2.0 client credentials, RFC 6749, 4.4).
type OAuth2 struct {
	// TokenURL is where they are issued; empty for no OAuth 2.0.
	TokenURL, ClientID string
	Scopes             []string
	// Send is how the client proves itself: header, the default, or body.
	Send string
}

const (
	// tokenMargin is how long before its end a token is not sent any more.
	tokenMargin = 30 * time.Second
	// tokenAtMost is how long a token is kept, however long it is good for.
	tokenAtMost = time.Hour
	// tokenWithin is how long a server may take to issue one.
	tokenWithin = 30 * time.Second
)

// problems are what is wrong with its fields, by their names behind the field of the whole.
func (o OAuth2) problems(otherwise bool) map[string]string {
	wrong := map[string]string{}
	if o.TokenURL == "" {
		if o.ClientID != "" || len(o.Scopes) > 0 || o.Send != "" {
			wrong[".token_url"] = "missing, expected where tokens are issued"
		}
		return wrong
	}
	// An error of its name would otherwise have the secret of a user in it.
	if u, err := ParseURL(o.TokenURL); err != nil || u.User != nil || u.Fragment != "" {
		wrong[".token_url"] = "expected an http or https URL without user and fragment"
	}
	if o.ClientID == "" || len(o.ClientID) > 255 {
		wrong[".client_id"] = "expected 1 to 255 characters"
	}
	for _, scope := range o.Scopes {
		if !sealing.ScopeForm().MatchString(scope) {
			wrong[".scopes"] = "expected names of 1 to 255 printable characters without spaces, quotes and backslashes"
		}
	}
	if !slices.Contains([]string{"", "header", "body"}, o.Send) {
		wrong[".send"] = "expected header or body"
	}
	if otherwise {
		wrong[""] = "found with username or header, expected one of the three or none"
	}
	return wrong
}

// tokens are those that were issued, one for each credential. They are in memory only.
type tokens struct {
	transport http.RoundTripper
	clock     clock.Clock

	mu     sync.Mutex
	issued map[identity]token
	// count is how many were issued.
	count uint64
}

type token struct {
	value string
	// of is the digest of the secret that it was issued for: a rotated one takes effect with the next request.
	of  [sha256.Size]byte
	end time.Time
	// number is the how many-th it was.
	number uint64
}

func newTokens(transport http.RoundTripper, now clock.Clock) *tokens {
	return &tokens{transport: transport, clock: now, issued: map[identity]token{}}
}

// of is a token of a credential, whose secret is that of its client.
func (t *tokens) of(ctx context.Context, c *Credential, secret string, timeout time.Duration) (string, error) {
	digest := sha256.Sum256(append([]byte(secret+"\x00"), c.terms()...))
	t.mu.Lock()
	known, issued := t.issued[c.identity()]
	t.mu.Unlock()
	if issued && known.of == digest && t.clock.Now().Before(known.end) {
		activity.Conceal(ctx, known.value)
		return known.value, nil
	}
	ctx, cancel := context.WithTimeout(ctx, min(timeout, tokenWithin))
	defer cancel()
	value, good, err := t.issue(ctx, c, secret)
	if err != nil {
		return "", err
	}
	if good > tokenMargin {
		t.mu.Lock()
		t.makeRoom(c.identity())
		t.count++
		end := t.clock.Now().Add(min(good-tokenMargin, tokenAtMost))
		t.issued[c.identity()] = token{value: value, of: digest, end: end, number: t.count}
		t.mu.Unlock()
	}
	return value, nil
}

const (
	// issuedAtMost is how many tokens are kept for organizations, and issuedForOne for one of them. Beyond it the oldest one is dropped.
	issuedAtMost, issuedForOne = 1000, 50
	// tokenMost is how many bytes a token may have.
	tokenMost = 16 << 10
)

// makeRoom drops what is too much with one more token.
func (t *tokens) makeRoom(of identity) {
	if len(t.issued) >= issuedAtMost {
		now := t.clock.Now()
		maps.DeleteFunc(t.issued, func(_ identity, one token) bool { return !now.Before(one.end) })
	}
	if drop, ok := surplus(t.issued, of, issuedForOne, issuedAtMost, func(one token) uint64 { return one.number }); ok {
		delete(t.issued, drop)
	}
}

// forget drops a token that a server does not accept.
func (t *tokens) forget(c *Credential, value string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.issued[c.identity()].value == value {
		delete(t.issued, c.identity())
	}
}

// issue has a token issued, and returns how long it is good for; 0 if the server does not say. It is requested with the transport of all
// requests, which decides what may be reached (D41), and follows no redirect: the secret goes to the URL of the credential only.
func (t *tokens) issue(ctx context.Context, c *Credential, secret string) (string, time.Duration, error) {
	activity.Conceal(ctx, secret)
	activity.Conceal(ctx, c.OAuth2.ClientID+":"+secret)
	activity.Conceal(ctx, url.QueryEscape(c.OAuth2.ClientID)+":"+url.QueryEscape(secret))
	config := clientcredentials.Config{
		ClientID: c.OAuth2.ClientID, ClientSecret: secret, TokenURL: c.OAuth2.TokenURL, Scopes: c.OAuth2.Scopes,
		AuthStyle: map[string]oauth2.AuthStyle{
			"": oauth2.AuthStyleInHeader, "header": oauth2.AuthStyleInHeader, "body": oauth2.AuthStyleInParams,
		}[c.OAuth2.Send],
	}
	client := &http.Client{Transport: t.transport, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}
	issued, err := config.Token(context.WithValue(ctx, oauth2.HTTPClient, client))
	if err != nil {
		return "", 0, notIssued(err, c)
	}
	if n := len(issued.AccessToken); n > tokenMost {
		return "", 0, fault.New(
			fault.Unauthenticated, "the server of credential %q has issued a token of %d bytes; expected at most %d", c.Name, n, tokenMost,
		)
	}
	activity.Conceal(ctx, issued.AccessToken)
	if kind := issued.Type(); kind != "Bearer" {
		return "", 0, fault.New(fault.Unauthenticated, "the server of credential %q has issued a token of type %.20q; expected Bearer", c.Name, kind)
	}
	good := min(max(secondsOf(issued.Extra("expires_in")), 0), tokenAtMost.Seconds()*2)
	return issued.AccessToken, time.Duration(good) * time.Second, nil
}

// secondsOf is a number, as servers write it: some as a text. It is 0 for anything else.
func secondsOf(value any) float64 {
	switch v := value.(type) {
	case float64:
		return v
	case int64:
		return float64(v)
	case string:
		if n, err := strconv.ParseInt(v, 10, 64); err == nil {
			return float64(n)
		}
	}
	return 0
}

// errorForm is that of the codes of errors that are shown. What else a server says may have the secret in it.
var errorForm = regexp.MustCompile(`^[a-z_]{1,64}$`)

// notIssued is the error of a token that was not issued.
func notIssued(err error, c *Credential) error {
	target, _ := ParseURL(c.OAuth2.TokenURL) // it was checked at the start
	refused, answered := errors.AsType[*oauth2.RetrieveError](err)
	if !answered || refused.Response == nil {
		if _, own := errors.AsType[*url.Error](err); !own && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
			return fault.New(fault.Unauthenticated, "%s has issued no token that can be read for the credential %q", target.Host, c.Name)
		}
		return unanswered(err, target, false)
	}
	code := ""
	if errorForm.MatchString(refused.ErrorCode) {
		code = " (" + refused.ErrorCode + ")"
	}
	class := fault.Unauthenticated
	if status := refused.Response.StatusCode; status >= 500 || status == http.StatusTooManyRequests {
		class = fault.Unavailable
	}
	return fault.New(class, "%s has issued no token for the credential %q: status %d%s", target.Host, c.Name, refused.Response.StatusCode, code)
}
