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

// openID wants an identity token in the header Authorization: signed by the issuer, for our audience, and of the account
// that the hook's configuration names. Pub/Sub signs for whoever asks, so the account is what counts.
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

// verifier checks identity tokens of one issuer. It asks for the issuer's keys when they are first needed, and again
// until that has worked once; the library looks for new keys by itself.
type verifier struct {
	terms Terms

	mu    sync.Mutex
	ready *oidc.IDTokenVerifier
}

func (v *verifier) get(ctx context.Context) (*oidc.IDTokenVerifier, error) {
	// Held while the issuer is asked, for at most the client's timeout: deliveries that come meanwhile use its keys
	// instead of fetching them too.
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.ready != nil {
		return v.ready, nil
	}
	// The key set keeps its context: it must outlive the request.
	keep := context.WithoutCancel(ctx)
	// The issuer is in the configuration, but its document names where the keys are: that too goes through httpx (D41).
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
	// What cannot be a token does not make us ask the issuer for its keys.
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
