package domain

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/access"
	"github.com/lockstep-cd/lockstep/services/domain/internal/oidc/oidctest"
)

// visitor is a browser at the whole HTTP surface, over a real database; the identity provider is another server.
type visitor struct {
	t       *testing.T
	handler http.Handler
	origin  string
	cookies map[string]*http.Cookie
}

func visit(t *testing.T, f *fixture, provider *oidctest.Provider, origin string, roles ...string) *visitor {
	t.Helper()
	h, err := f.handler(Config{PublicURL: origin, OIDC: OIDC{
		Issuer: provider.URL, Label: "Example ID", ClientID: oidctest.ClientID, ClientSecret: oidctest.ClientSecret, Roles: roles,
	}}.withDefaults())
	if err != nil {
		t.Fatal(err)
	}
	return &visitor{t: t, handler: h, origin: origin, cookies: map[string]*http.Cookie{}}
}

// get asks for a page of ours; the cookies are kept as a browser keeps them.
func (v *visitor) get(address string) *httptest.ResponseRecorder {
	return v.send(http.MethodGet, address, "", nil)
}

func (v *visitor) send(method, address, body string, header map[string]string) *httptest.ResponseRecorder {
	v.t.Helper()
	r := httptest.NewRequestWithContext(v.t.Context(), method, address, strings.NewReader(body))
	if strings.HasPrefix(v.origin, "https") {
		r.Header.Set("X-Forwarded-Proto", "https")
	}
	for name, value := range header {
		r.Header.Set(name, value)
	}
	for _, c := range v.cookies {
		r.AddCookie(c)
	}
	w := httptest.NewRecorder()
	v.handler.ServeHTTP(w, r)
	for _, c := range w.Result().Cookies() {
		if c.MaxAge < 0 {
			delete(v.cookies, c.Name)
		} else {
			v.cookies[c.Name] = c
		}
	}
	return w
}

// atProvider follows the redirect to the provider, and answers where that sends the browser.
func (v *visitor) atProvider(w *httptest.ResponseRecorder) string {
	v.t.Helper()
	client := &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport:     &http.Transport{DisableKeepAlives: true},
	}
	r, err := http.NewRequestWithContext(v.t.Context(), http.MethodGet, w.Header().Get("Location"), nil)
	if err != nil {
		v.t.Fatal(err)
	}
	answer, err := client.Do(r)
	if err != nil {
		v.t.Fatal(err)
	}
	_ = answer.Body.Close()
	return answer.Header.Get("Location")
}

// signIn goes the whole way, and answers where it ends.
func (v *visitor) signIn(page string) string {
	v.t.Helper()
	begun := v.get(v.origin + "/session/oidc?return=" + url.QueryEscape(page))
	if begun.Code != http.StatusFound {
		v.t.Fatalf("found %d %s; expected to be sent to the provider", begun.Code, begun.Body)
	}
	return v.get(v.atProvider(begun)).Header().Get("Location")
}

// asks returns the answer to a GraphQL query of the session.
func (v *visitor) asks(query string) string {
	v.t.Helper()
	return v.send(http.MethodPost, v.origin+"/graphql", query,
		map[string]string{"Content-Type": "application/json", "Lockstep-Csrf": "1"}).Body.String()
}

const whoAmI = `{"query":"{ viewer { member { name role } permissions } }"}`

func claimsOf(name string, groups ...string) map[string]any {
	return map[string]any{"sub": "sub-of-" + name, "email": name, "email_verified": true, "groups": groups}
}

func TestSigningInAtAnIdentityProvider(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	provider := oidctest.New(t)
	v := visit(t, f, provider, "https://cd.example.com", "platform=owner", "shop=deployer")
	if got := v.get(v.origin + "/session").Body.String(); !strings.Contains(got, `{"label":"Example ID","path":"/session/oidc"}`) {
		t.Errorf("the console receives %s", got)
	}
	provider.SignInAs(claimsOf("alice@example.com", "shop"))
	if at := v.signIn("/rollouts/rollout_7?tab=x"); at != "/rollouts/rollout_7?tab=x" {
		t.Fatalf("found %q; want the page that was asked for", at)
	}
	session := v.cookies["__Host-lockstep"]
	if session == nil || !session.Secure || !session.HttpOnly || session.SameSite != http.SameSiteStrictMode || session.Path != "/" ||
		session.Domain != "" {
		t.Fatalf("found %+v", v.cookies)
	}
	if len(v.cookies) != 1 {
		t.Errorf("the attempt is still there: %v", v.cookies)
	}
	if got := v.asks(whoAmI); !strings.Contains(got, `"name":"alice@example.com","role":"DEPLOYER"`) {
		t.Errorf("found %s", got)
	}
	// Without the header a request may be another site's (CSRF).
	if w := v.send(http.MethodPost, v.origin+"/graphql", whoAmI,
		map[string]string{"Content-Type": "application/json"}); w.Code != http.StatusForbidden {
		t.Errorf("found %d without the header", w.Code)
	}

	// Groups count at each sign-in anew, and sessions follow the role at once.
	other := visit(t, f, provider, "https://cd.example.com", "platform=owner", "shop=deployer")
	provider.SignInAs(claimsOf("alice@example.com", "shop", "platform"))
	other.signIn("/")
	for _, browser := range []*visitor{v, other} {
		if got := browser.asks(whoAmI); !strings.Contains(got, `"role":"OWNER"`) {
			t.Errorf("after another group: %s", got)
		}
	}
	// The member's tokens show both sign-ins; to revoke one ends its session alone.
	alice, err := f.view.MemberByName(t.Context(), org, "alice@example.com")
	f.ok(err)
	tokens, err := f.access.VisibleTokens(t.Context(), user(), []int64{alice.ID})
	f.ok(err)
	if len(tokens[alice.ID]) != 2 {
		t.Fatalf("found %+v", tokens)
	}
	_, err = f.access.RevokeToken(t.Context(), user(), tokens[alice.ID][0].ID)
	f.ok(err)
	if got := other.asks(whoAmI); !strings.Contains(got, "UNAUTHENTICATED") {
		t.Errorf("after it was revoked: %s", got)
	}
	if got := v.asks(whoAmI); !strings.Contains(got, "alice") {
		t.Errorf("the other session ended too: %s", got)
	}
}

func TestASignInThatIsNotOnesOwn(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	provider := oidctest.New(t)
	v := visit(t, f, provider, "http://127.0.0.1:8080", "shop=viewer")
	provider.SignInAs(claimsOf("alice@example.com", "shop"))
	begun := v.get(v.origin + "/session/oidc")
	back := v.atProvider(begun)
	mallory := visit(t, f, provider, "http://127.0.0.1:8080", "shop=viewer")
	if at := mallory.get(back).Header().Get("Location"); at != "/?sign-in=expired" || len(mallory.cookies) != 0 {
		t.Errorf("a browser that did not begin it: found %q, %v", at, mallory.cookies)
	}
	altered := strings.Replace(back, "state=", "state=x", 1)
	if at := v.get(altered).Header().Get("Location"); at != "/?sign-in=expired" {
		t.Errorf("another state: found %q", at)
	}
	if at := v.get(back).Header().Get("Location"); at != "/?sign-in=expired" {
		t.Errorf("an attempt counts once: found %q", at)
	}
	v.get(v.origin + "/session/oidc")
	refused, _ := url.Parse(v.atProvider(v.get(v.origin + "/session/oidc")))
	q := refused.Query()
	q.Del("code")
	q.Set("error", "access_denied")
	refused.RawQuery = q.Encode()
	if at := v.get(refused.String()).Header().Get("Location"); at != "/?sign-in=refused" {
		t.Errorf("the provider said no: found %q", at)
	}
	for _, elsewhere := range []string{
		"https://evil.example.com/", "//evil.example.com", `/\evil.example.com`,
		"javascript:alert(1)", "/a\nb",
	} {
		if at := v.signIn(elsewhere); at != "/" {
			t.Errorf("to go back to %q: found %q", elsewhere, at)
		}
	}
	plain := visit(t, f, provider, "http://cd.example.com", "shop=viewer")
	if at := plain.get(plain.origin + "/session/oidc").Header().Get("Location"); at != "/?sign-in=insecure" {
		t.Errorf("plain HTTP from another machine: found %q", at)
	}
}

func TestWhoHasNoAccess(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	provider := oidctest.New(t)
	v := visit(t, f, provider, "http://127.0.0.1:8080", "shop=deployer")
	member := func(name string) core.Member {
		m, err := f.access.CreateMember(t.Context(), user(), access.NewMember{Name: name, Kind: core.PrincipalUser, Role: core.RoleMaintainer})
		f.ok(err)
		return m
	}
	turnedAway := func(what string, claims map[string]any) {
		t.Helper()
		provider.SignInAs(claims)
		if at := v.signIn("/"); at != "/?sign-in=no-access" || len(v.cookies) != 0 {
			t.Errorf("%s: found %q, %v", what, at, v.cookies)
		}
	}
	turnedAway("in no group", claimsOf("carol@example.com"))
	member("bob@example.com")
	unverified := claimsOf("bob@example.com", "shop")
	unverified["email_verified"] = false
	turnedAway("a name that the provider does not vouch for", unverified)
	provider.SignInAs(claimsOf("bob@example.com", "shop"))
	if at := v.signIn("/"); at != "/" {
		t.Errorf("who was added beforehand: found %q", at)
	}
	if got := v.asks(whoAmI); !strings.Contains(got, `"role":"DEPLOYER"`) {
		t.Errorf("groups decide: %s", got)
	}
	v.cookies = map[string]*http.Cookie{}
	impostor := claimsOf("bob@example.com", "shop")
	impostor["sub"] = "another-subject"
	turnedAway("a name that another member has", impostor)
	bob, err := f.view.MemberByName(t.Context(), org, "bob@example.com")
	f.ok(err)
	_, err = f.access.RemoveMember(t.Context(), user(), bob.ID)
	f.ok(err)
	turnedAway("who was removed", claimsOf("bob@example.com", "shop"))
	member("bob@example.com")
	turnedAway("a removed member, whose name the provider has not verified", unverified)
	provider.SignInAs(claimsOf("bob@example.com", "shop"))
	if at := v.signIn("/"); at != "/" {
		t.Errorf("who was removed and added again: found %q", at)
	}
}

func TestRolesThatAreGivenHere(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	provider := oidctest.New(t)
	v := visit(t, f, provider, "http://127.0.0.1:8080") // no groups decide
	provider.SignInAs(claimsOf("dora@example.com", "shop"))
	if at := v.signIn("/"); at != "/?sign-in=no-access" {
		t.Errorf("who is no member: found %q", at)
	}
	_, err := f.access.CreateMember(t.Context(), user(),
		access.NewMember{Name: "dora@example.com", Kind: core.PrincipalUser, Role: core.RoleApprover})
	f.ok(err)
	if at := v.signIn("/"); at != "/" || !strings.Contains(v.asks(whoAmI), `"role":"APPROVER"`) {
		t.Errorf("found %q, %s", at, v.asks(whoAmI))
	}
}

// configured are the changes of the configuration in an organization's journal, the first first.
func (f *fixture) configured(organization int64) (changes []string) {
	f.t.Helper()
	rows, err := f.pool.Query(f.t.Context(), `SELECT principal_type || ': ' || coalesce(before::text, 'none') || ' -> ' || coalesce(after::text, 'none')
		FROM cd_changes WHERE organization_id = $1 AND action = 'applyConfiguration' ORDER BY id`, organization)
	f.ok(err)
	for rows.Next() {
		var change string
		f.ok(rows.Scan(&change))
		changes = append(changes, change)
	}
	f.ok(rows.Err())
	return changes
}

// D50: how people sign in, and with what the installation begins, is in the journals of the organizations that it concerns, with each
// change that a start of the service finds; a start without a change adds nothing.
func TestChangesOfTheConfigurationAreRecorded(t *testing.T) {
	t.Parallel()
	f := newShop(t)
	c := Config{
		BootstrapToken: "a-token-of-32-characters-or-more", BootstrapOrganization: "default",
		OIDC: OIDC{Issuer: "https://id.example.com", ClientID: "lockstep", ClientSecret: "hunter2", Roles: []string{"platform=owner"}},
	}
	start := func() {
		t.Helper()
		f.ok(f.recordConfiguration(t.Context(), c))
	}
	for range 2 {
		start()
	}
	f.want([]int{len(f.configured(org)), len(f.configured(2))}, []int{1, 0})

	c.OIDC.Roles = []string{"platform=owner", "shop=deployer@2", "nobody=viewer@77"} // the last organization does not exist
	start()
	c.BootstrapToken = "another-token-of-32-characters-or-more"
	start()
	c.OIDC.Roles = nil
	for range 2 {
		start()
	}
	ours, theirs := f.configured(org), f.configured(2)
	f.want([]int{len(ours), len(theirs)}, []int{4, 2})
	f.want(strings.HasPrefix(ours[0], "system: none -> {"), true)
	granted := `{"oidc": {"roles": ["shop=deployer"], "issuer": "https://id.example.com", "groups_claim": ""}}`
	f.want(theirs, []string{"system: none -> " + granted, "system: " + granted + " -> none"})
	fingerprints := regexp.MustCompile(`"fingerprint": "([0-9a-f]{8})"`).FindAllStringSubmatch(ours[2], -1)
	if len(fingerprints) != 2 || fingerprints[0][1] == fingerprints[1][1] {
		t.Errorf("found fingerprints %v, expected that of the former token and another one", fingerprints)
	}
	for _, change := range slices.Concat(ours, theirs) {
		if strings.Contains(change, "hunter2") || strings.Contains(change, "32-characters") {
			t.Errorf("a secret is in the journal: %s", change)
		}
	}
}
