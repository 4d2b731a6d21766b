// Package oidc lets people sign in at an identity provider of their own, by OpenID Connect: authorization code flow with PKCE, state
// and nonce (RFC 6749, RFC 7636). It establishes who a person is, and which role their groups map to.
//
// It stores nothing and grants no access: core does. It accepts no tokens of machines; those are created in the organization.
package oidc

import (
	"context"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"slices"
	"sync"
	"time"

	gooidc "github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/access"
)

// Config is what is agreed on with the provider.
type Config struct {
	// Issuer is the provider's address, whose /.well-known/openid-configuration says everything else.
	Issuer string
	// ClientID and ClientSecret are what the provider knows this installation by.
	ClientID, ClientSecret string
	// RedirectURL is where the provider sends browsers back to, as registered there.
	RedirectURL string
	// Scopes are asked for beside openid.
	Scopes []string
	// NameClaim is the claim with a person's name, GroupsClaim the one with their groups.
	NameClaim, GroupsClaim string
	// Roles are what groups give; of several in one organization the greatest counts. None: groups decide nothing.
	Roles []Grant
	// CAFile holds the certificates to check the provider's against; empty means the system's.
	CAFile string
}

// Grant is the role that a group gives in an organization.
type Grant struct {
	Group        string
	Organization int64
	Role         core.Role
}

// patience bounds every request to the provider: a person waits for it.
const patience = 10 * time.Second

// emailClaim is the claim that email_verified speaks of.
const emailClaim = "email"

// emailForm is the form of an address that mail is sent to: printable ASCII, and no more than tables hold. A member with another one has no
// address, and signs in all the same.
var emailForm = regexp.MustCompile(`^[!#-'*+\-./0-9=?A-Z^-~]{1,64}@[A-Za-z0-9.-]{1,190}$`)

// Provider is the other end. It is safe for concurrent use.
type Provider struct {
	config Config
	client *http.Client

	mu sync.Mutex
	// found is what the issuer says of itself; nil until it has been asked with success, so that a provider that is away when
	// this service starts keeps nobody from starting it.
	found *gooidc.Provider
}

// New is a provider that is asked when it is needed first. It fails when the certificates cannot be read.
func New(c Config) (*Provider, error) {
	transport, ok := http.DefaultTransport.(*http.Transport)
	if !ok {
		transport = &http.Transport{}
	}
	transport = transport.Clone()
	transport.DisableKeepAlives = true // sign-ins are rare, and nothing is to be left open between them
	if c.CAFile != "" {
		text, err := os.ReadFile(c.CAFile)
		if err != nil {
			return nil, fmt.Errorf("certificates of the identity provider: %w", err)
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("certificates of the identity provider: found none in %s; expected PEM", c.CAFile)
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	return &Provider{config: c, client: &http.Client{Transport: transport, Timeout: patience}}, nil
}

// AuthURL is where a browser goes to sign in. State comes back with it; nonce comes back in the token; verifier proves, when the
// code is redeemed, that it is the same browser's sign-in. Unavailable while the provider cannot be asked.
func (p *Provider) AuthURL(ctx context.Context, state, nonce, verifier string) (string, error) {
	found, err := p.discover(ctx)
	if err != nil {
		return "", err
	}
	return p.oauth(found).AuthCodeURL(state, gooidc.Nonce(nonce), oauth2.S256ChallengeOption(verifier)), nil
}

// Identify redeems the code that a browser has come back with. Unauthenticated when the provider does not take it, or when what it
// answers was not made for this sign-in; Unavailable while it cannot be asked.
func (p *Provider) Identify(ctx context.Context, code, nonce, verifier string) (access.Identity, error) {
	found, err := p.discover(ctx)
	if err != nil {
		return access.Identity{}, err
	}
	ctx = gooidc.ClientContext(ctx, p.client)
	token, err := p.oauth(found).Exchange(ctx, code, oauth2.VerifierOption(verifier))
	if err != nil {
		return access.Identity{}, fault.Because(err, fault.Unauthenticated, "the identity provider did not take the code")
	}
	raw, ok := token.Extra("id_token").(string)
	if !ok {
		return access.Identity{}, fault.New(fault.Unauthenticated,
			"the identity provider answered without an ID token; expected the scope openid to be allowed")
	}
	verified, err := found.Verifier(&gooidc.Config{ClientID: p.config.ClientID}).Verify(ctx, raw)
	if err != nil {
		return access.Identity{}, fault.Because(err, fault.Unauthenticated, "the identity provider's token is invalid")
	}
	if subtle.ConstantTimeCompare([]byte(verified.Nonce), []byte(nonce)) != 1 {
		return access.Identity{}, fault.New(fault.Unauthenticated, "the identity provider's token was made for another sign-in")
	}
	claims := map[string]any{}
	if err := verified.Claims(&claims); err != nil {
		return access.Identity{}, fault.Because(err, fault.Unauthenticated, "the identity provider's token cannot be read")
	}
	return p.identity(verified, claims)
}

// identity reads the claims.
func (p *Provider) identity(t *gooidc.IDToken, claims map[string]any) (access.Identity, error) {
	name, _ := claims[p.config.NameClaim].(string)
	if name == "" {
		return access.Identity{}, fault.New(fault.Unauthenticated,
			"the identity provider's token has no claim %q; expected it to hold the person's name (oidc.name_claim)", p.config.NameClaim)
	}
	verified, _ := claims["email_verified"].(bool)
	email, _ := claims[emailClaim].(string)
	if !verified || !emailForm.MatchString(email) {
		email = ""
	}
	session, _ := claims["sid"].(string)
	return access.Identity{
		Issuer: t.Issuer, Subject: t.Subject, Name: name,
		// Other names are those that people choose for themselves, as far as this service can know.
		NameIsVerified: p.config.NameClaim == emailClaim && verified, Email: email,
		Roles: p.roles(claims), GroupsDecide: len(p.config.Roles) > 0, Session: session,
	}, nil
}

// roles are the greatest that the groups give, by organization.
func (p *Provider) roles(claims map[string]any) map[int64]core.Role {
	var groups []any
	switch claim := claims[p.config.GroupsClaim].(type) {
	case []any:
		groups = claim
	case string: // some providers write one group without the list
		groups = []any{claim}
	}
	greatest, order := map[int64]core.Role{}, core.AllRoles()
	for _, g := range p.config.Roles {
		if slices.Contains(groups, any(g.Group)) && slices.Index(order, g.Role) > slices.Index(order, greatest[g.Organization]) {
			greatest[g.Organization] = g.Role
		}
	}
	return greatest
}

// Logout reads a logout token (OpenID Connect Back-Channel Logout). Invalid when it is not one of this provider for this client;
// Unavailable while the provider's keys cannot be read.
func (p *Provider) Logout(ctx context.Context, token string) (issuer, subject, session string, err error) {
	found, err := p.discover(ctx)
	if err != nil {
		return "", "", "", err
	}
	verified, err := found.Verifier(&gooidc.Config{ClientID: p.config.ClientID}).VerifyLogout(gooidc.ClientContext(ctx, p.client), token)
	if err != nil {
		return "", "", "", fault.Because(err, fault.Invalid,
			"the logout token does not hold; expected one that the identity provider has signed for this client")
	}
	return verified.Issuer, verified.Subject, verified.SessionID, nil
}

// discover asks the issuer what it has, once it answers.
func (p *Provider) discover(ctx context.Context) (*gooidc.Provider, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.found != nil {
		return p.found, nil
	}
	found, err := gooidc.NewProvider(gooidc.ClientContext(ctx, p.client), p.config.Issuer)
	if err != nil {
		return nil, fault.Because(err, fault.Unavailable, "the identity provider %s cannot be asked", p.config.Issuer)
	}
	p.found = found
	return found, nil
}

func (p *Provider) oauth(found *gooidc.Provider) *oauth2.Config {
	return &oauth2.Config{
		ClientID: p.config.ClientID, ClientSecret: p.config.ClientSecret, RedirectURL: p.config.RedirectURL,
		Endpoint: found.Endpoint(), Scopes: append([]string{gooidc.ScopeOpenID}, p.config.Scopes...),
	}
}
