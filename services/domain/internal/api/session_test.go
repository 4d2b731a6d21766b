package api

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/throttle"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/access"
)

const token = "a-token-for-tests-only"

// members is an Access with one member, whose token is "a-token-of-a-member", and the sessions of all, as the tables keep them.
type members struct {
	clock    *stopped
	sessions map[string]time.Time
	away     bool
}

func (m *members) Authenticate(_ context.Context, secret string, session bool) (core.Actor, error) {
	if m.away {
		return core.Actor{}, fault.New(fault.Unavailable, "the database is away")
	}
	until, begun := m.sessions[secret]
	if !session && secret == memberToken || session && begun && m.clock.Now().Before(until) {
		return core.Actor{Organization: 1, Type: core.PrincipalUser, ID: 7}, nil
	}
	return core.Actor{}, fault.New(fault.Unauthenticated, "nobody has it")
}

func (m *members) begin(session string, life time.Duration) (string, time.Time, error) {
	until := m.clock.Now().Add(life)
	m.sessions[session] = until
	return session, until, nil
}

func (m *members) StartSession(ctx context.Context, secret string) (string, time.Time, error) {
	if _, err := m.Authenticate(ctx, secret, false); err != nil {
		return "", time.Time{}, err
	}
	return m.begin("a-session-of-a-member", time.Hour)
}

func (m *members) StartConfiguredSession(_ context.Context, _ core.Actor, seal func(string) string) (string, time.Time, error) {
	return m.begin(seal("a-secret-session"), access.SessionLife)
}

func (m *members) EndSession(_ context.Context, session string) error {
	delete(m.sessions, session)
	return nil
}

const memberToken = "a-token-of-a-member"

func TestAMembersTokenIsGoodForASession(t *testing.T) {
	t.Parallel()
	b := newBrowser(t, owner())
	b.expect(200, "POST", "http://cd.example.com/graphql", "{}", "Authorization", "Bearer "+memberToken)
	w := b.expect(204, "POST", "http://127.0.0.1/session", `{"token":"`+memberToken+`"}`, csrfHeader, "1")
	if cookie := w.Result().Cookies()[0]; cookie.MaxAge != 3600 || strings.Contains(cookie.Value, memberToken) {
		t.Errorf("found %+v; want a cookie that ends with the session, and is not the token", cookie)
	}
	session := b.value
	b.expect(200, "POST", "http://127.0.0.1/graphql", "{}", csrfHeader, "1")
	b.expect(401, "POST", "http://127.0.0.1/graphql", "{}", "Authorization", "Bearer "+session) // a cookie is no token
	b.expect(204, "DELETE", "http://127.0.0.1/session", "", csrfHeader, "1")
	b.cookie, b.value = "lockstep-80", session
	b.expect(401, "POST", "http://127.0.0.1/graphql", "{}", csrfHeader, "1") // it has ended on the server too
}

// A session that has just been given is good, whatever other clients at the address do before its first request.
func TestANewSessionIsNotSlowedDownByItsNeighbours(t *testing.T) {
	t.Parallel()
	b := newBrowser(t, owner())
	b.expect(204, "POST", "http://127.0.0.1/session", `{"token":"`+memberToken+`"}`, csrfHeader, "1")
	for i := range 30 {
		b.send("POST", "http://127.0.0.1/graphql", "{}", "Authorization", "Bearer guess-"+strings.Repeat("x", i))
	}
	b.expect(200, "POST", "http://127.0.0.1/graphql", "{}", csrfHeader, "1")
}

// stopped is a clock that stands still.
type stopped struct {
	clock.Clock
	at time.Time
}

func (s *stopped) Now() time.Time { return s.at }

type browser struct {
	t       *testing.T
	handler http.Handler
	clock   *stopped
	access  *members
	// cookie and value are what the last answer set.
	cookie, value string
}

func newBrowser(t *testing.T, tokens Tokens) *browser {
	t.Helper()
	c := &stopped{clock.System(), time.Unix(1_800_000_000, 0)}
	graph := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		actor, _ := core.ActorFrom(r.Context())
		if actor.ID != 7 {
			t.Errorf("found actor %+v", actor)
		}
		w.WriteHeader(http.StatusOK)
	})
	page := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
	guard := throttle.New(nil)
	access := &members{clock: c, sessions: map[string]time.Time{}}
	return &browser{
		t: t, clock: c, access: access,
		handler: NewHandler(Deps{GraphQL: graph, Console: page, Tokens: tokens, Access: access, Clock: c, Guard: guard}),
	}
}

func (b *browser) send(method, url, body string, header ...string) *httptest.ResponseRecorder {
	b.t.Helper()
	r := httptest.NewRequestWithContext(b.t.Context(), method, url, strings.NewReader(body))
	for pair := range slices.Chunk(header, 2) {
		r.Header.Set(pair[0], pair[1])
	}
	if b.cookie != "" {
		r.Header.Set("Cookie", b.cookie+"="+b.value)
	}
	w := httptest.NewRecorder()
	b.handler.ServeHTTP(w, r)
	for _, c := range w.Result().Cookies() {
		b.cookie, b.value = c.Name, c.Value
	}
	return w
}

func (b *browser) expect(status int, method, url, body string, header ...string) *httptest.ResponseRecorder {
	b.t.Helper()
	w := b.send(method, url, body, header...)
	if w.Code != status {
		b.t.Errorf("%s %s: found %d %s; expected %d", method, url, w.Code, w.Body, status)
	}
	return w
}

func owner() Tokens { return Tokens{token: {Organization: 1, Type: core.PrincipalUser, ID: 7}} }

const signIn = `{"token":"` + token + `"}`

func TestASessionIsForOneOriginAndEnds(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ origin, name string }{
		{"http://127.0.0.1:8080", "lockstep-8080"},
		{"http://localhost", "lockstep-80"},
		{"http://[::1]:9000", "lockstep-9000"},
		{"https://cd.example.com", "__Host-lockstep"},
	} {
		b := newBrowser(t, owner())
		b.expect(401, "POST", c.origin+"/graphql", "{}", csrfHeader, "1")
		w := b.expect(204, "POST", c.origin+"/session", signIn, csrfHeader, "1")
		cookie := w.Result().Cookies()[0]
		secure := strings.HasPrefix(c.origin, "https")
		if cookie.Name != c.name || !cookie.HttpOnly || cookie.Secure != secure || cookie.SameSite != http.SameSiteStrictMode ||
			cookie.Path != "/" || cookie.Domain != "" {
			t.Errorf("%s: found %+v", c.origin, cookie)
		}
		if strings.Contains(cookie.Value, token) {
			t.Error("the cookie holds the token")
		}
		b.expect(200, "POST", c.origin+"/graphql", "{}", csrfHeader, "1")
		b.expect(403, "POST", c.origin+"/graphql", "{}") // as a form on another site would
		b.clock.at = b.clock.at.Add(access.SessionLife)
		b.expect(401, "POST", c.origin+"/graphql", "{}", csrfHeader, "1")
	}
}

func TestSignInRefusals(t *testing.T) {
	t.Parallel()
	b := newBrowser(t, owner())
	b.expect(403, "POST", "http://cd.example.com/session", signIn, csrfHeader, "1")
	b.expect(403, "POST", "http://127.0.0.1/session", signIn)
	b.expect(400, "POST", "http://127.0.0.1/session", "", csrfHeader, "1")
	b.expect(400, "POST", "http://127.0.0.1/session", `{"token":"`+strings.Repeat("x", maxSignIn)+`"}`, csrfHeader, "1")
	b.expect(401, "POST", "http://127.0.0.1/session", `{"token":""}`, csrfHeader, "1")
	b.expect(401, "POST", "http://127.0.0.1/session", `{"token":"some-other-token"}`, csrfHeader, "1")
	newBrowser(t, nil).expect(401, "POST", "http://127.0.0.1/session", `{"token":""}`, csrfHeader, "1")
}

func TestForgedAndForeignSessions(t *testing.T) {
	t.Parallel()
	b := newBrowser(t, owner())
	b.expect(204, "POST", "http://127.0.0.1/session", signIn, csrfHeader, "1")
	given := b.value
	secret, signature, _ := strings.Cut(given, ".")
	// Without its MAC a session would outlive the token that began it.
	for _, forged := range []string{
		"", ".", "x", "other." + signature, given + "00", "other.", secret, secret + ".",
		strings.Replace(given, ".", ".0", 1),
	} {
		b.value = forged
		b.expect(401, "POST", "http://127.0.0.1/graphql", "{}", csrfHeader, "1")
	}
	b.value = given
	b.expect(200, "POST", "http://127.0.0.1/graphql", "{}", csrfHeader, "1")
	b.expect(401, "POST", "http://127.0.0.1:81/graphql", "{}", csrfHeader, "1")
	b.expect(401, "POST", "http://rebound.example.com/graphql", "{}", csrfHeader, "1")
	// The same tables, and another token configured.
	other := newBrowser(t, Tokens{"another-token-entirely": {Organization: 1, ID: 7}})
	other.access.sessions = b.access.sessions
	other.cookie, other.value = b.cookie, b.value
	other.expect(401, "POST", "http://127.0.0.1/graphql", "{}", csrfHeader, "1")
}

func TestSignOut(t *testing.T) {
	t.Parallel()
	b := newBrowser(t, owner())
	b.expect(204, "POST", "http://127.0.0.1/session", signIn, csrfHeader, "1")
	cookie, copied := b.cookie, b.value
	b.expect(403, "DELETE", "http://127.0.0.1/session", "")
	b.expect(204, "DELETE", "http://127.0.0.1/session", "", csrfHeader, "1")
	b.expect(401, "POST", "http://127.0.0.1/graphql", "{}", csrfHeader, "1")
	b.cookie, b.value = cookie, copied
	b.expect(401, "POST", "http://127.0.0.1/graphql", "{}", csrfHeader, "1") // it has ended, also for a copy of the cookie
}

func TestTokensAndPages(t *testing.T) {
	t.Parallel()
	b := newBrowser(t, owner())
	b.expect(200, "POST", "http://cd.example.com/graphql", "{}", "Authorization", "Bearer "+token)
	b.expect(401, "POST", "http://cd.example.com/graphql", "{}", "Authorization", "Basic "+token)
	b.expect(401, "POST", "http://cd.example.com/graphql", "{}", "Authorization", "Bearer nobody-has-this")
	if w := b.expect(200, "GET", "http://cd.example.com/session", ""); strings.TrimSpace(w.Body.String()) != `{"options":[]}` {
		t.Errorf("without an identity provider: found %s", w.Body)
	}
	w := b.expect(http.StatusTeapot, "GET", "http://cd.example.com/rollouts/rollout_1", "")
	if w.Header().Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("found %v", w.Header())
	}
}

func TestARequestNamesItsOrganization(t *testing.T) {
	t.Parallel()
	b := newBrowser(t, owner())
	for header, status := range map[string]int{
		"": 200, "1": 200, "organization_1": 200, "2": 403, "organization_2": 403,
		"x": 400, "-1": 400,
	} {
		b.expect(status, "POST", "http://cd.example.com/graphql", "{}", "Authorization", "Bearer "+token, organizationHeader, header)
	}
}

// TestGuessingIsSlow tries three hundred tokens at each door, one after the other.
func TestGuessingIsSlow(t *testing.T) {
	t.Parallel()
	for name, attempt := range map[string]func(b *browser, n int) *httptest.ResponseRecorder{
		"bearer token": func(b *browser, n int) *httptest.ResponseRecorder {
			return b.send("POST", "http://127.0.0.1/graphql", "{}", "Authorization", fmt.Sprintf("Bearer guess-%d", n))
		},
		"sign-in": func(b *browser, n int) *httptest.ResponseRecorder {
			return b.send("POST", "http://127.0.0.1/session", fmt.Sprintf(`{"token":"guess-%d"}`, n), csrfHeader, "1")
		},
		"session": func(b *browser, n int) *httptest.ResponseRecorder {
			b.cookie, b.value = "lockstep-80", fmt.Sprintf("guess-%d", n)
			return b.send("POST", "http://127.0.0.1/graphql", "{}", csrfHeader, "1")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBrowser(t, owner())
			b.expect(200, "POST", "http://127.0.0.1/graphql", "{}", "Authorization", "Bearer "+token)
			refused := 0
			for n := range 300 {
				switch w := attempt(b, n); w.Code {
				case 401:
					refused++
				case 429:
					if w.Header().Get("Retry-After") != "2" || !strings.Contains(w.Body.String(), `"RATE_LIMITED"`) {
						t.Fatalf("found %v %s", w.Header(), w.Body)
					}
				default:
					t.Fatalf("found %d %s", w.Code, w.Body)
				}
			}
			if refused != 20 {
				t.Errorf("found %d answers 401; want 20, and 429 from then on", refused)
			}
			// Who was good before stays so, behind the same address; others get their turn when the address does.
			b.cookie = ""
			b.expect(200, "POST", "http://127.0.0.1/graphql", "{}", "Authorization", "Bearer "+token)
			b.expect(429, "POST", "http://127.0.0.1/graphql", "{}", "Authorization", "Bearer "+memberToken)
			b.clock.at = b.clock.at.Add(2 * time.Second)
			b.expect(200, "POST", "http://127.0.0.1/graphql", "{}", "Authorization", "Bearer "+memberToken)
		})
	}
}

func TestAnAbsentDatabaseIsNobodysFailure(t *testing.T) {
	t.Parallel()
	b := newBrowser(t, owner())
	b.access.away = true
	for range 50 {
		b.expect(503, "POST", "http://127.0.0.1/graphql", "{}", "Authorization", "Bearer "+memberToken)
	}
	b.access.away = false
	b.expect(200, "POST", "http://127.0.0.1/graphql", "{}", "Authorization", "Bearer "+memberToken)
}
