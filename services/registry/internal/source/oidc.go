package source

import (
	"context"
	"errors"
	"strings"
	"sync"

	"github.com/coreos/go-oidc/v3/oidc"
)

// GoogleIssuer signs the identity tokens of Pub/Sub.
const GoogleIssuer = "https://accounts.google.com"

// openID expects an identity token in the header Authorization: signed by the issuer, for our audience, and of the account in the hook's
// configuration. Pub/Sub signs tokens for anyone, so the account is what counts.
func openID(t Terms) (Check, error) {
	if t.Audience == "" || t.Email == "" {
		return nil, errors.New("audience and email: missing; expected those of the push subscription")
	}
	if t.Issuer == "" {
		t.Issuer = GoogleIssuer
	}
	v := &verifier{terms: t}
	return v.check, nil
}

// verifier checks identity tokens of one issuer. It fetches the issuer's keys when they are first needed, until that succeeds; the library
// then follows key rotations.
type verifier struct {
	terms Terms

	mu    sync.Mutex
	ready *oidc.IDTokenVerifier
}

func (v *verifier) get(ctx context.Context) (*oidc.IDTokenVerifier, error) {
	// Held while the keys are fetched, for at most the client's timeout: concurrent deliveries use them instead of fetching them too.
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.ready != nil {
		return v.ready, nil
	}
	// The key set keeps this context: it must outlive the request.
	keep := context.WithoutCancel(ctx)
	// The issuer is configured, but its document names the address of the keys: that goes through httpx, too (D41).
	if v.terms.Client != nil {
		keep = oidc.ClientContext(keep, v.terms.Client)
	}
	provider, err := oidc.NewProvider(keep, v.terms.Issuer)
	if err != nil {
		return nil, err
	}
	v.ready = provider.Verifier(&oidc.Config{ClientID: v.terms.Audience})
	return v.ready, nil
}

func (v *verifier) check(ctx context.Context, d Delivery, _ []string) bool {
	scheme, raw, _ := strings.Cut(one(d.Header, "Authorization"), " ")
	// Only what may be a token causes a request for the issuer's keys.
	if !strings.EqualFold(scheme, "bearer") || strings.Count(raw, ".") != 2 {
		return false
	}
	ready, err := v.get(ctx)
	if err != nil {
		return false
	}
	token, err := ready.Verify(ctx, raw)
	if err != nil {
		return false
	}
	var claims struct {
		Email    string `json:"email"`
		Verified bool   `json:"email_verified"`
	}
	return token.Claims(&claims) == nil && claims.Verified && same(claims.Email, v.terms.Email)
}
