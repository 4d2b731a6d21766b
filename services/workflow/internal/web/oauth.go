package web

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/sealing"
	"github.com/lockstep-cd/lockstep/pkg/sealing/book"
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

// tokenMost is how many bytes a token may have, and tokenGood how long at most.
const tokenMost, tokenGood = 16 << 10, 2 * time.Hour

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
	*book.Issued
	transport http.RoundTripper
}

func newTokens(transport http.RoundTripper, now clock.Clock) *tokens {
	return &tokens{Issued: book.NewIssued(now), transport: transport}
}

// of is a token of a credential, whose secret is that of its client.
func (t *tokens) of(ctx context.Context, c *Credential, secret string, timeout time.Duration) (string, error) {
	value, _, err := t.Of(ctx, c.identity(), secret, c.terms(), timeout, func(ctx context.Context) (book.Token, error) {
		return t.issue(ctx, c, secret)
	})
	activity.Conceal(ctx, value)
	return value, err
}

// issue has a token issued. It is requested with the transport of all
// requests, which decides what may be reached (D41), and follows no redirect: the secret goes to the URL of the credential only.
func (t *tokens) issue(ctx context.Context, c *Credential, secret string) (book.Token, error) {
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
		return book.Token{}, notIssued(err, c)
	}
	if n := len(issued.AccessToken); n > tokenMost {
		return book.Token{}, fault.New(
			fault.Unauthenticated, "the server of credential %q has issued a token of %d bytes; expected at most %d", c.Name, n, tokenMost,
		)
	}
	activity.Conceal(ctx, issued.AccessToken)
	if kind := issued.Type(); kind != "Bearer" {
		return book.Token{}, fault.New(fault.Unauthenticated, "the server of credential %q has issued a token of type %.20q; expected Bearer", c.Name, kind)
	}
	good := min(max(secondsOf(issued.Extra("expires_in")), 0), tokenGood.Seconds())
	return book.Token{Value: issued.AccessToken, Good: time.Duration(good) * time.Second}, nil
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
