// Package oidctest is an identity provider for tests: it signs real tokens, redeems a code once, and checks the client, the redirect
// address and the PKCE challenge as a provider does. It shows no page: every visitor is signed in as its user.
package oidctest

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/coreos/go-oidc/v3/oidc/oidctest"
)

// What the provider knows its only client by.
const (
	ClientID     = "lockstep"
	ClientSecret = "a-secret-of-the-client"
)

// Provider is one that listens on loopback until its test ends.
type Provider struct {
	// URL is the issuer.
	URL string

	t    *testing.T
	key  *rsa.PrivateKey
	mu   sync.Mutex
	user map[string]any
	open map[string]url.Values
}

// New starts one.
func New(t *testing.T) *Provider {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	p := &Provider{t: t, key: key, open: map[string]url.Values{}}
	known := &oidctest.Server{PublicKeys: []oidctest.PublicKey{{PublicKey: key.Public(), KeyID: "k", Algorithm: "RS256"}}}
	mux := http.NewServeMux()
	mux.Handle("/", known)
	mux.HandleFunc("GET /auth", p.authorize)
	mux.HandleFunc("POST /token", p.redeem)
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	known.SetIssuer(server.URL)
	p.URL = server.URL
	return p
}

// SignInAs says who comes next; claims may hold anything, iss, aud, exp and nonce too.
func (p *Provider) SignInAs(claims map[string]any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.user = claims
}

// LogoutToken is what it sends when a session has ended here (OpenID Connect Back-Channel Logout); claims may hold anything, and take the
// place of those that a provider sends.
func (p *Provider) LogoutToken(claims map[string]any) string {
	p.t.Helper()
	all := map[string]any{
		"iss": p.URL, "aud": ClientID, "exp": time.Now().Add(time.Minute).Unix(), "iat": time.Now().Unix(), //nolint:forbidigo // a provider has a clock of its own
		"jti":    rand.Text(),
		"events": map[string]any{"http://schemas.openid.net/event/backchannel-logout": map[string]any{}},
	}
	maps.Copy(all, claims)
	text, err := json.Marshal(all)
	if err != nil {
		p.t.Fatal(err)
	}
	return oidctest.SignIDToken(p.key, "k", "RS256", string(text))
}

// authorize sends the browser back with a code.
func (p *Provider) authorize(w http.ResponseWriter, r *http.Request) {
	asked := r.URL.Query()
	back, err := url.Parse(asked.Get("redirect_uri"))
	if err != nil || asked.Get("client_id") != ClientID || asked.Get("response_type") != "code" ||
		asked.Get("code_challenge_method") != "S256" || asked.Get("nonce") == "" {
		http.Error(w, "invalid_request", http.StatusBadRequest)
		return
	}
	code := rand.Text()
	p.mu.Lock()
	p.open[code] = asked
	p.mu.Unlock()
	back.RawQuery = url.Values{"code": {code}, "state": {asked.Get("state")}}.Encode()
	http.Redirect(w, r, back.String(), http.StatusFound) //nolint:gosec // a provider for tests redirects every visitor to where they ask
}

// redeem answers a code with a token, once.
func (p *Provider) redeem(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = r.ParseForm()
	asked, ok := p.open[r.Form.Get("code")]
	delete(p.open, r.Form.Get("code"))
	id, secret, basic := r.BasicAuth()
	if !basic {
		id, secret = r.Form.Get("client_id"), r.Form.Get("client_secret")
	}
	challenge := sha256.Sum256([]byte(r.Form.Get("code_verifier")))
	if !ok || id != ClientID || secret != ClientSecret || r.Form.Get("redirect_uri") != asked.Get("redirect_uri") ||
		base64.RawURLEncoding.EncodeToString(challenge[:]) != asked.Get("code_challenge") {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		_, _ = w.Write([]byte(`{"error":"invalid_grant"}`))
		return
	}
	claims := map[string]any{
		"iss": p.URL, "aud": ClientID, "exp": time.Now().Add(time.Hour).Unix(), "iat": time.Now().Unix(), //nolint:forbidigo // a provider has a clock of its own
		"nonce": asked.Get("nonce"),
	}
	maps.Copy(claims, p.user)
	text, err := json.Marshal(claims)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{ // a client that is gone needs no answer
		"access_token": "unused", "token_type": "Bearer", "expires_in": 3600,
		"id_token": oidctest.SignIDToken(p.key, "k", "RS256", string(text)),
	})
}
