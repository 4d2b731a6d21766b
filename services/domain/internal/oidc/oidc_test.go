package oidc_test

import (
	"net/http"
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/access"
	"github.com/lockstep-cd/lockstep/services/domain/internal/oidc"
	"github.com/lockstep-cd/lockstep/services/domain/internal/oidc/oidctest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const verifier = "a-verifier-of-at-least-forty-three-characters"

// codeOf goes to the provider as a browser does, and comes back with a code and the state.
func codeOf(t *testing.T, p *oidc.Provider, nonce, verifier string) (code, state string) {
	t.Helper()
	address, err := p.AuthURL(t.Context(), "the-state", nonce, verifier)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport:     &http.Transport{DisableKeepAlives: true},
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	back, err := url.Parse(answer.Header.Get("Location"))
	if err != nil || answer.StatusCode != http.StatusFound {
		t.Fatalf("found %d, %v; expected to be sent back", answer.StatusCode, err)
	}
	return back.Query().Get("code"), back.Query().Get("state")
}

func config(p *oidctest.Provider) oidc.Config {
	return oidc.Config{
		Issuer: p.URL, ClientID: oidctest.ClientID, ClientSecret: oidctest.ClientSecret,
		RedirectURL: "https://cd.example.com/session/oidc/callback",
		Scopes:      []string{"email"}, NameClaim: "email", GroupsClaim: "groups", Roles: []oidc.Grant{
			{Group: "platform", Organization: 1, Role: core.RoleOwner},
			{Group: "shop", Organization: 1, Role: core.RoleDeployer},
			{Group: "books", Organization: 2, Role: core.RoleOwner},
			{Group: "platform", Organization: 2, Role: core.RoleViewer},
		},
	}
}

func newProvider(t *testing.T, c oidc.Config) *oidc.Provider {
	t.Helper()
	p, err := oidc.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestIdentity(t *testing.T) {
	t.Parallel()
	known := oidctest.New(t)
	p := newProvider(t, config(known))
	who := func(roles map[int64]core.Role, name string, verified bool) access.Identity {
		email := ""
		if verified {
			email = name
		}
		return access.Identity{
			Issuer: known.URL, Subject: "s1", Name: name, NameIsVerified: verified, Email: email, Roles: roles, GroupsDecide: true,
		}
	}
	for _, c := range []struct {
		name   string
		claims map[string]any
		want   access.Identity
	}{
		{"the greatest role of several groups", map[string]any{
			"sub": "s1", "email": "a@example.com", "email_verified": true,
			"groups": []string{"shop", "platform", "x"},
		}, who(map[int64]core.Role{1: core.RoleOwner, 2: core.RoleViewer}, "a@example.com", true)},
		{
			"one group without a list",
			map[string]any{"sub": "s1", "email": "a@example.com", "groups": "shop"},
			who(map[int64]core.Role{1: core.RoleDeployer}, "a@example.com", false),
		},
		{
			"no group that has a role",
			map[string]any{"sub": "s1", "email": "a@example.com", "groups": []any{"x", 7, nil}},
			who(map[int64]core.Role{}, "a@example.com", false),
		},
		{"no groups at all", map[string]any{"sub": "s1", "email": "a@example.com"}, who(map[int64]core.Role{}, "a@example.com", false)},
	} {
		known.SignInAs(c.claims)
		code, state := codeOf(t, p, "n1", verifier)
		if state != "the-state" {
			t.Errorf("%s: the state came back as %q", c.name, state)
		}
		got, err := p.Identify(t.Context(), code, "n1", verifier)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", c.name, diff)
		}
		if _, err := p.Identify(t.Context(), code, "n1", verifier); !fault.Is(err, fault.Unauthenticated) {
			t.Errorf("%s: a code that was redeemed: found %v; want it refused", c.name, err)
		}
	}
}

func TestWhatIsNotTaken(t *testing.T) {
	t.Parallel()
	known, other := oidctest.New(t), oidctest.New(t)
	p := newProvider(t, config(known))
	person := func(more ...any) map[string]any {
		c := map[string]any{"sub": "s1", "email": "a@example.com"}
		for pair := range slices.Chunk(more, 2) {
			c[pair[0].(string)] = pair[1]
		}
		return c
	}
	for _, c := range []struct {
		name            string
		claims          map[string]any
		nonce, verifier string
	}{
		{"a token for another client", person("aud", "another-client"), "n1", verifier},
		{"a token of another issuer", person("iss", other.URL), "n1", verifier},
		{"a token that has expired", person("exp", time.Now().Add(-time.Hour).Unix()), "n1", verifier},
		{"a token for another sign-in", person("nonce", "n2"), "n1", verifier},
		{"a token without a nonce", person("nonce", ""), "n1", verifier},
		{"a token without a name", person("email", nil), "n1", verifier},
		{"a code that another browser has", person(), "n1", verifier + "-of-another"},
	} {
		known.SignInAs(c.claims)
		code, _ := codeOf(t, p, "n1", verifier)
		if _, err := p.Identify(t.Context(), code, c.nonce, c.verifier); !fault.Is(err, fault.Unauthenticated) {
			t.Errorf("%s: found %v; want it refused", c.name, err)
		}
	}
	if _, err := p.Identify(t.Context(), "made-up", "n1", verifier); !fault.Is(err, fault.Unauthenticated) {
		t.Errorf("a code that nobody gave: found %v; want it refused", err)
	}
	wrong := config(known)
	wrong.ClientSecret = "another"
	known.SignInAs(person())
	code, _ := codeOf(t, p, "n1", verifier)
	if _, err := newProvider(t, wrong).Identify(t.Context(), code, "n1", verifier); !fault.Is(err, fault.Unauthenticated) {
		t.Errorf("another secret: found %v; want it refused", err)
	}
}

func TestLogoutTokens(t *testing.T) {
	t.Parallel()
	known, other := oidctest.New(t), oidctest.New(t)
	p := newProvider(t, config(known))
	issuer, subject, session, err := p.Logout(t.Context(), known.LogoutToken(map[string]any{"sub": "s1", "sid": "session-1"}))
	if err != nil || issuer != known.URL || subject != "s1" || session != "session-1" {
		t.Errorf("found %q %q %q, %v", issuer, subject, session, err)
	}
	for name, token := range map[string]string{
		"nothing": "", "no token": "x.y.z",
		"of another provider": other.LogoutToken(map[string]any{"sub": "s1"}),
		"for another client":  known.LogoutToken(map[string]any{"sub": "s1", "aud": "another-client"}),
		"expired":             known.LogoutToken(map[string]any{"sub": "s1", "exp": 1_000_000_000}),
		"an ID token":         known.LogoutToken(map[string]any{"sub": "s1", "events": nil}),
		"with a nonce":        known.LogoutToken(map[string]any{"sub": "s1", "nonce": "n"}),
		"of nobody":           known.LogoutToken(map[string]any{}),
	} {
		if _, _, _, err := p.Logout(t.Context(), token); !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: found %v; want it refused", name, err)
		}
	}
}

func TestAProviderThatIsAway(t *testing.T) {
	t.Parallel()
	c := config(oidctest.New(t))
	c.Issuer = "http://127.0.0.1:1"
	p := newProvider(t, c) // holders of a token still get in
	if _, err := p.AuthURL(t.Context(), "s", "n", verifier); !fault.Is(err, fault.Unavailable) {
		t.Errorf("found %v; want unavailable", err)
	}
	if _, err := p.Identify(t.Context(), "c", "n", verifier); !fault.Is(err, fault.Unavailable) {
		t.Errorf("found %v; want unavailable", err)
	}
	for _, file := range []string{"/nonexistent", "oidc_test.go"} {
		c.CAFile = file
		if _, err := oidc.New(c); err == nil {
			t.Errorf("certificates in %s: found no error", file)
		}
	}
}
