package domain

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock/clocktest"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/access"
	"github.com/lockstep-cd/lockstep/services/domain/internal/oidc/oidctest"
)

const bootstrapToken = "a-bootstrap-token-for-tests-only-0123456789"

// browserOf is a browser at an installation, with the bootstrap token if it is given.
func browserOf(t *testing.T, f *fixture, c Config) *visitor {
	t.Helper()
	f.ok(f.store.EnsureOwner(t.Context(), ownerOrganization, owner, ownerName))
	h, err := f.handler(c.withDefaults())
	f.ok(err)
	return &visitor{t: t, handler: h, origin: "http://127.0.0.1:8080", cookies: map[string]*http.Cookie{}}
}

// shows signs in with a token.
func (v *visitor) shows(token string) int {
	v.t.Helper()
	body, _ := json.Marshal(map[string]string{"token": token})
	return v.send(http.MethodPost, v.origin+"/session", string(body), map[string]string{"Lockstep-Csrf": "1"}).Code
}

// signOut ends the session, and returns a copy of its cookies from before.
func (v *visitor) signOut() (copied map[string]*http.Cookie) {
	v.t.Helper()
	copied = maps.Clone(v.cookies)
	if w := v.send(http.MethodDelete, v.origin+"/session", "", map[string]string{"Lockstep-Csrf": "1"}); w.Code != http.StatusNoContent ||
		len(v.cookies) != 0 {
		v.t.Fatalf("found %d %s, cookies %v", w.Code, w.Body, v.cookies)
	}
	return copied
}

// TestSignOutEndsEverySession is about the three ways in: after each of them a copy of the cookie is worth nothing.
func TestSignOutEndsEverySession(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	provider := oidctest.New(t)
	v := browserOf(t, f, Config{BootstrapToken: bootstrapToken, PublicURL: "http://127.0.0.1:8080", OIDC: OIDC{
		Issuer: provider.URL, ClientID: oidctest.ClientID, ClientSecret: oidctest.ClientSecret, Roles: []string{"shop=deployer"},
	}})
	provider.SignInAs(claimsOf("alice@example.com", "shop"))
	_, token, err := f.access.CreateToken(t.Context(), user(), access.NewToken{Name: "laptop"})
	f.ok(err)
	for name, enter := range map[string]func(){
		"bootstrap token": func() { v.shows(bootstrapToken) }, "token": func() { v.shows(token) }, "identity provider": func() { v.signIn("/") },
	} {
		enter()
		if got := v.asks(whoAmI); !strings.Contains(got, `"permissions":["READ"`) {
			t.Fatalf("%s: found %s", name, got)
		}
		v.cookies = v.signOut()
		if got := v.asks(whoAmI); !strings.Contains(got, "UNAUTHENTICATED") {
			t.Errorf("%s: with a copy of the cookie after sign-out: %s", name, got)
		}
		v.cookies = map[string]*http.Cookie{}
	}
	// The token itself is none of a session's, and still good; sign-ins are over.
	if v.shows(token) != http.StatusNoContent {
		t.Error("the token is no longer good")
	}
	tokens, err := f.access.VisibleTokens(t.Context(), user(), []int64{owner})
	f.ok(err)
	for _, one := range tokens[owner] {
		if one.SignIn != (one.RevokedAt != nil) {
			t.Errorf("found %+v; want the sign-in revoked, and the token not", one)
		}
	}
}

func TestASessionEndsWithTheBootstrapToken(t *testing.T) {
	t.Parallel()
	now := clocktest.New(time.Unix(1_800_000_000, 0))
	f := setupWith(t, now, Config{SessionLifetime: 2 * time.Hour})
	v := browserOf(t, f, Config{BootstrapToken: bootstrapToken})
	if v.shows(bootstrapToken); !strings.Contains(v.asks(whoAmI), `"ADMINISTER"`) {
		t.Fatalf("found %s", v.asks(whoAmI))
	}
	another := browserOf(t, f, Config{BootstrapToken: "another-" + bootstrapToken})
	another.cookies = v.cookies
	if got := another.asks(whoAmI); !strings.Contains(got, "UNAUTHENTICATED") {
		t.Errorf("with another bootstrap token: %s", got)
	}
	now.Advance(2 * time.Hour)
	if got := v.asks(whoAmI); !strings.Contains(got, "UNAUTHENTICATED") {
		t.Errorf("after session_lifetime: %s", got)
	}
}

// TestAnIdentityProviderEndsSessions: a member who was removed there loses the session by back-channel logout, or when it expires.
func TestAnIdentityProviderEndsSessions(t *testing.T) {
	t.Parallel()
	now := clocktest.New(time.Unix(1_800_000_000, 0))
	f := setupWith(t, now, Config{OIDC: OIDC{SessionLifetime: time.Hour}})
	provider := oidctest.New(t)
	newVisitor := func() *visitor { return visit(t, f, provider, "http://127.0.0.1:8080", "shop=deployer") }
	signedIn := func(name, session string) *visitor {
		v := newVisitor()
		claims := claimsOf(name, "shop")
		claims["sid"] = session
		provider.SignInAs(claims)
		if at := v.signIn("/"); at != "/" || !strings.Contains(v.asks(whoAmI), name) {
			t.Fatalf("%s: found %q, %s", name, at, v.asks(whoAmI))
		}
		return v
	}
	logout := func(claims map[string]any) int {
		form := url.Values{"logout_token": {provider.LogoutToken(claims)}}
		v := newVisitor()
		return v.send(http.MethodPost, v.origin+"/session/oidc/logout", form.Encode(),
			map[string]string{"Content-Type": "application/x-www-form-urlencoded"}).Code
	}
	expect := func(what string, v *visitor, in bool) {
		t.Helper()
		if got := v.asks(whoAmI); strings.Contains(got, "UNAUTHENTICATED") == in {
			t.Errorf("%s: found %s; want signed in %t", what, got, in)
		}
	}
	laptop, phone, bob := signedIn("alice@example.com", "s1"), signedIn("alice@example.com", "s2"), signedIn("bob@example.com", "s3")
	if code := logout(map[string]any{"sid": "s1"}); code != http.StatusOK {
		t.Errorf("found %d", code)
	}
	expect("the session that was ended", laptop, false)
	expect("another one of hers", phone, true)
	if code := logout(map[string]any{"sub": "sub-of-alice@example.com"}); code != http.StatusOK {
		t.Errorf("found %d", code)
	}
	expect("all of hers", phone, false)
	expect("another member's", bob, true)
	for range 2 { // again is a no-op, and so is what nobody knows
		if code := logout(map[string]any{"sub": "nobody", "sid": "none"}); code != http.StatusOK {
			t.Errorf("found %d", code)
		}
	}
	if code := logout(map[string]any{"sub": "sub-of-bob@example.com", "aud": "another-client"}); code != http.StatusBadRequest {
		t.Errorf("a token for another client: found %d", code)
	}
	expect("after a token for another client", bob, true)
	// Whose groups give nothing any more loses the sessions that there are with the next sign-in, and otherwise within the hour.
	carol := signedIn("carol@example.com", "s4")
	provider.SignInAs(claimsOf("carol@example.com"))
	if at := newVisitor().signIn("/"); at != "/?sign-in=no-access" {
		t.Errorf("found %q", at)
	}
	expect("in no group any more", carol, false)
	now.Advance(time.Hour)
	expect("after the session's life", bob, false)
}

func TestWeakBootstrapTokens(t *testing.T) {
	t.Parallel()
	for token, weak := range map[string]bool{
		"0123456789abcdef": true, strings.Repeat("ab", 32): true, "9f86d081884c7d659a2feaa0c55ad015": false, bootstrapToken: false,
	} {
		if isWeak(token) != weak {
			t.Errorf("%s: found %t, want %t", token, !weak, weak)
		}
	}
}
