package git

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock/clocktest"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/gitfetch"
	"github.com/lockstep-cd/lockstep/pkg/httpx"
	"github.com/lockstep-cd/lockstep/pkg/sealing"
	"github.com/lockstep-cd/lockstep/pkg/sealing/book"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
)

// appKeys are two keys of an App, made once: it takes a while.
var appKeys = sync.OnceValue(func() (all [2]*rsa.PrivateKey) {
	for i := range all {
		var err error
		if all[i], err = rsa.GenerateKey(rand.Reader, 2048); err != nil {
			panic(err)
		}
	}
	return all
})

func pemOf(key *rsa.PrivateKey) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}))
}

// gitHubApp is a GitHub with an App that is installed at the team, and the credential of an organization for it.
type gitHubApp struct {
	*server

	t   *testing.T
	now *clocktest.Clock

	mu sync.Mutex
	// key is the one that GitHub knows.
	key *rsa.PrivateKey
	// own is the credential, and value its value.
	own   book.Credential
	value string
	// count is how many tokens were issued, and lives the one that is accepted.
	count int
	lives string
	// knownAfter is how long what lives is not accepted yet, which was issued at issued.
	knownAfter time.Duration
	issued     time.Time
	// good is how long a token is good for.
	good time.Duration
	// instead answers in place of the endpoint of tokens; nil for nothing.
	instead http.HandlerFunc
	// asked are the bodies of the requests for tokens, and strays what was sent where it should not.
	asked, strays []string
	// logins are the user names that Git's protocol was spoken with.
	logins map[string]bool
	// statuses is how many were set.
	statuses int
}

// CredentialNamed implements book.Store.
func (g *gitHubApp) CredentialNamed(context.Context, int64, string) (*book.Credential, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	one := g.own
	return &one, nil
}

// CredentialsOfKind implements book.Store.
func (g *gitHubApp) CredentialsOfKind(_ context.Context, organization int64, kind sealing.Kind) ([]book.Credential, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if organization != g.own.Organization || kind != g.own.Kind {
		return nil, nil
	}
	return []book.Credential{g.own}, nil
}

func newGitHubApp(t *testing.T, forge string, change ...func(*sealing.Terms)) *gitHubApp {
	t.Helper()
	g := &gitHubApp{
		t: t, server: setupForge(t, GitHub), now: clocktest.New(time.Date(2026, 3, 25, 10, 0, 0, 0, time.UTC)), key: appKeys()[0],
		good: time.Hour, logins: map[string]bool{},
	}
	u, err := url.Parse(g.url)
	if err != nil {
		t.Fatal(err)
	}
	g.own = book.Credential{Sealed: []byte("x"), Terms: sealing.Terms{
		Organization: 1, Name: "app", Version: 1, Kind: sealing.Git, URLPrefixes: []string{u.Scheme + "://" + u.Host + "/team"}, Forge: forge,
		Proof: sealing.Proof{GitHubApp: sealing.GitHubApp{ID: "Iv23canary", Installation: "42"}},
	}}
	for _, c := range change {
		c(&g.own.Terms)
	}
	if found := g.own.Check(); len(found) > 0 {
		t.Fatal(found)
	}
	g.value = pemOf(g.key)
	g.before = g.serve
	g.forge = g.replica()
	return g
}

// replica is a process that serves the organization.
func (g *gitHubApp) replica() *Forge {
	g.t.Helper()
	u, err := url.Parse(g.url)
	if err != nil {
		g.t.Fatal(err)
	}
	transport, err := httpx.New(httpx.Config{Allow: []string{u.Host}, MaxBody: gitfetch.MaxBody, Timeout: gitfetch.RequestTimeout})
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(transport.Close)
	f, err := New(Deps{
		HTTP: transport, Budget: gitfetch.NewBudget(gitfetch.Limits{}), AuthorName: "Lockstep", AuthorEmail: "lockstep@example.com",
		Clock: g.now, Log: slog.New(slog.DiscardHandler), Own: book.NewBook(book.Deps{
			Store: g, Open: func(context.Context, []byte, sealing.Terms) (string, error) {
				g.mu.Lock()
				defer g.mu.Unlock()
				return g.value, nil
			},
		}),
	})
	if err != nil {
		g.t.Fatal(err)
	}
	return f
}

// serve answers for the endpoint of tokens as GitHub documents it, and takes the token that lives from everything else in exchange for what
// the server below it wants.
func (g *gitHubApp) serve(w http.ResponseWriter, r *http.Request) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	authorization := r.Header.Get("Authorization")
	if strings.HasSuffix(r.URL.Path, "/app/installations/42/access_tokens") {
		if g.instead != nil {
			g.instead(w, r)
			return true
		}
		g.issue(w, r)
		return true
	}
	if strings.HasPrefix(r.URL.Path, "/elsewhere") || strings.HasPrefix(authorization, "Bearer ey") || strings.Contains(authorization, "BEGIN") {
		g.strays = append(g.strays, r.Method+" "+r.URL.Path+" "+authorization)
		return true
	}
	user, password, basic := r.BasicAuth()
	if basic {
		g.logins[user] = true
	}
	switch {
	case g.now.Now().Before(g.issued.Add(g.knownAfter)):
		r.Header.Del("Authorization")
	case g.lives != "" && authorization == "Bearer "+g.lives && strings.Contains(r.URL.Path, "/status"): // which the server below it has not
		if r.Method == http.MethodPost {
			g.statuses++
			answer(w, http.StatusCreated, map[string]any{})
			return true
		}
		answer(w, http.StatusOK, map[string]any{"statuses": []any{}})
		return true
	case g.lives != "" && authorization == "Bearer "+g.lives:
		r.Header.Set("Authorization", "Bearer secret")
	case g.lives != "" && basic && user == "x-access-token" && password == g.lives:
		r.SetBasicAuth("lockstep", "secret")
	default:
		r.Header.Del("Authorization")
	}
	return false
}

func (g *gitHubApp) issue(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	parts := strings.Split(strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "), ".")
	var header, claims map[string]any
	if len(parts) != 3 || !decoded(parts[0], &header) || !decoded(parts[1], &claims) {
		refuse(w, http.StatusUnauthorized, "A JSON web token could not be decoded")
		return
	}
	digest := sha256.Sum256([]byte(parts[0] + "." + parts[1]))
	signature, _ := base64.RawURLEncoding.DecodeString(parts[2])
	now := float64(g.now.Now().Unix())
	issued, _ := claims["iat"].(float64)
	end, _ := claims["exp"].(float64)
	if header["alg"] != "RS256" || claims["iss"] != g.own.Proof.GitHubApp.ID || issued > now-60 || end <= now || end > now+9*60 ||
		rsa.VerifyPKCS1v15(&g.key.PublicKey, crypto.SHA256, digest[:], signature) != nil {
		refuse(w, http.StatusUnauthorized, "A JSON web token could not be decoded")
		return
	}
	g.asked = append(g.asked, r.Method+" "+string(body))
	g.count++
	g.issued = g.now.Now()
	g.lives = fmt.Sprintf("ghs_canary_%d", g.count)
	answer(w, http.StatusCreated, map[string]any{
		"token": g.lives, "expires_at": g.now.Now().Add(g.good).UTC().Format(time.RFC3339), "repository_selection": "selected",
	})
}

func decoded(part string, into any) bool {
	raw, err := base64.RawURLEncoding.DecodeString(part)
	return err == nil && json.Unmarshal(raw, into) == nil
}

// set changes what GitHub or the organization has.
func (g *gitHubApp) set(change func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	change()
}

// read reads a file with a process, and expects how many tokens were issued by then.
func (g *gitHubApp) read(with *Forge, wantIssued int) {
	g.t.Helper()
	content, _, err := with.ReadFile(g.t.Context(), 1, g.url, "main", "staging/api.yaml")
	if err != nil || string(content) != "old\n" {
		g.t.Errorf("found %q, %v; want the file", content, err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.count != wantIssued {
		g.t.Errorf("found %d tokens issued; want %d", g.count, wantIssued)
	}
}

// fails reads a file, and expects an error that has nothing of key and token in it, in no form.
func (g *gitHubApp) fails(class fault.Class, text string) {
	g.t.Helper()
	ctx, concealed := activity.WithConcealed(g.t.Context())
	_, _, err := g.forge.ReadFile(ctx, 1, g.url, "main", "staging/api.yaml")
	if !fault.Is(err, class) || !strings.Contains(err.Error(), text) {
		g.t.Errorf("found %v; want …%s…", err, text)
	}
	if err != nil && (strings.Contains(err.Error(), "ghs_") || strings.Contains(err.Error(), "KEY") || concealed.Redact(err.Error()) != err.Error()) {
		g.t.Errorf("found %v; want an error without secrets", err)
	}
}

func (g *gitHubApp) noStrays() {
	g.t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.strays) > 0 {
		g.t.Errorf("found that was sent elsewhere: %q", g.strays)
	}
}

// D56: a GitHub App reads, commits, proposes, reports and merges with a token of its installation, which is issued for the one repository
// and kept until shortly before its end: over Git's protocol, and through GitHub's interface.
func TestAGitHubApp(t *testing.T) {
	t.Parallel()
	for _, forge := range []string{"", GitHub} {
		t.Run("forge "+forge, func(t *testing.T) {
			t.Parallel()
			g := newGitHubApp(t, forge)
			head := g.add(t, "main", map[string]string{"staging/api.yaml": "old\n"})
			g.read(g.forge, 1)
			g.now.Advance(59 * time.Minute)
			g.read(g.forge, 1)
			g.now.Advance(31 * time.Second)
			g.read(g.forge, 2)
			c := g.request(map[string]string{"web.yaml": "new\n"})
			c.Organization = 1
			if _, err := g.forge.Commit(t.Context(), c); err != nil {
				t.Error(err)
			}
			if forge == GitHub {
				p := g.proposal(map[string]string{"staging/api.yaml": "new\n"})
				made := g.propose(t, p)
				if _, err := g.merge(t, p, made, activity.MergeSquash); err != nil {
					t.Error(err)
				}
				if _, err := g.forge.SetStatus(t.Context(), activity.StatusRequest{
					Organization: 1, RepoURL: g.url, Commit: head, Status: activity.CommitStatus{Name: "lockstep", State: activity.StatusSuccess},
				}); err != nil || g.statuses != 1 {
					t.Errorf("found %d statuses, %v; want 1", g.statuses, err)
				}
			}
			g.mu.Lock()
			if want := `POST {"repositories":["shop"]}`; g.count != 2 || g.asked[0] != want || g.asked[1] != want {
				t.Errorf("found %q; want %s twice", g.asked, want)
			}
			if !g.logins["x-access-token"] || len(g.logins) != 1 {
				t.Errorf("found the user names %v; want x-access-token", g.logins)
			}
			g.mu.Unlock()
			g.noStrays()
		})
	}
}

// D56: a token that GitHub does not accept any more is replaced once, by each process for itself; the key is rotated and revoked while it
// is in use.
func TestAGitHubAppsTokenIsTakenBack(t *testing.T) {
	t.Parallel()
	for _, forge := range []string{"", GitHub} {
		t.Run("forge "+forge, func(t *testing.T) {
			t.Parallel()
			g := newGitHubApp(t, forge)
			g.add(t, "main", map[string]string{"staging/api.yaml": "old\n"})
			g.read(g.forge, 1)
			settled := func() { g.now.Advance(settlesWithin) } // a token that is younger may not be known yet
			settled()
			other := g.replica() // whose tokens end those of the first here, so that both have to do with it
			g.read(other, 2)
			settled()
			g.read(g.forge, 3)
			settled()
			g.read(other, 4)
			g.read(other, 4)

			// The key is rotated: the old one is not used any more, although its token lives.
			g.set(func() { g.key, g.value, g.own.Version = appKeys()[1], pemOf(appKeys()[1]), 2 })
			g.read(other, 5)
			// The key was deleted at GitHub, and the token with it.
			settled()
			g.set(func() { g.key, g.lives = appKeys()[0], "" })
			g.fails(fault.Unauthenticated, "(status 401): its private key belongs to another App or was deleted")
			g.set(func() { g.key = appKeys()[1] })
			g.read(other, 6)

			settled()
			// GitHub issues tokens that it never accepts: they are waited for, and asked for no more than twice in one operation.
			g.set(func() {
				g.instead = func(w http.ResponseWriter, r *http.Request) {
					g.issue(w, r)
					g.lives = ""
				}
			})
			waited := g.waits()
			g.fails(fault.Unauthenticated, "does not accept the configured credentials")
			if pauses := waited(); g.count > 8 || pauses > 3 {
				t.Errorf("found %d tokens issued, and %d pauses; want 8 and 3 at most", g.count, pauses)
			}
			g.set(func() { g.instead = nil })
			g.read(other, g.count+1)

			g.set(func() { g.own.Revoked = true })
			before := g.count
			g.fails(fault.Unauthenticated, `the credential "app" was revoked`)
			if _, _, err := other.ReadFile(t.Context(), 1, g.url, "main", "staging/api.yaml"); !fault.Is(err, fault.Unauthenticated) || g.count != before {
				t.Errorf("found %v, and %d tokens more; want that it was revoked", err, g.count-before)
			}
			g.noStrays()
		})
	}
}

// D56: what GitHub answers in place of a token is reported in words of ours, with what is to be done, and nothing of its answer.
func TestAGitHubAppGetsNoToken(t *testing.T) {
	t.Parallel()
	status := func(code int, header ...string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			for i := 0; i < len(header); i += 2 {
				w.Header().Set(header[i], header[i+1])
			}
			refuse(w, code, "you said "+r.Header.Get("Authorization"))
		}
	}
	body := func(text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusCreated)
			_, _ = io.WriteString(w, text)
		}
	}
	for name, tt := range map[string]struct {
		instead http.HandlerFunc
		class   fault.Class
		text    string
	}{
		"401":                {status(401), fault.Unauthenticated, "does not accept the App Iv23canary"},
		"403":                {status(403), fault.Denied, "(status 403): it is suspended"},
		"403 for a limit":    {status(403, "X-Ratelimit-Remaining", "0"), fault.Unavailable, "status 403"},
		"404":                {status(404), fault.Unauthenticated, "knows no installation 42 of the App Iv23canary"},
		"422":                {status(422), fault.Denied, `no token for "shop" to the installation 42`},
		"429":                {status(429), fault.Unavailable, "status 429"},
		"503":                {status(503), fault.Unavailable, "status 503"},
		"418":                {status(418), fault.Unauthenticated, "has issued no token: status 418"},
		"a redirect":         {status(302, "Location", "/elsewhere"), fault.Unauthenticated, "redirects with status 302, which is not followed"},
		"a kept redirect":    {status(307, "Location", "/elsewhere"), fault.Unauthenticated, "redirects with status 307, which is not followed"},
		"a page":             {body("<html>"), fault.Unauthenticated, "does not answer like GitHub"},
		"no token":           {body(`{"expires_at":"2026-03-25T11:00:00Z"}`), fault.Unauthenticated, "does not answer like GitHub"},
		"a token with lines": {body(`{"token":"ghs_canary\r\nX: y","expires_at":"2026-03-25T11:00:00Z"}`), fault.Unauthenticated, "does not answer like GitHub"},
		"no end":             {body(`{"token":"ghs_canary_1"}`), fault.Unauthenticated, "does not answer like GitHub"},
		"a huge answer": {
			body(`{"token":"ghs_canary_1","expires_at":"2026-03-25T11:00:00Z","x":"` + strings.Repeat("x", answerMost) + `"}`), fault.Unauthenticated,
			"does not answer like GitHub",
		},
		"a token that has ended": {
			body(`{"token":"ghs_canary_1","expires_at":"2026-03-25T09:59:59Z"}`), fault.Unauthenticated, "that ended at 2026-03-25T09:59:59Z",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGitHubApp(t, GitHub)
			g.add(t, "main", map[string]string{"staging/api.yaml": "old\n"})
			g.instead = tt.instead
			g.fails(tt.class, tt.text)
			g.noStrays()
			g.set(func() { g.instead = nil })
			g.read(g.forge, 1)
		})
	}
}

// D56: a key that GitHub has none of is an error without it, also where it is a reference and was not seen before.
func TestAGitHubAppWithoutItsKey(t *testing.T) {
	t.Parallel()
	g := newGitHubApp(t, "")
	for text, want := range map[string]string{
		"canary KEY": "no text in PEM",
		strings.Replace(pemOf(g.key), "RSA PRIVATE KEY-----\n", "RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,00\n\n", 1): "a key that is encrypted",
	} {
		g.set(func() { g.value = text })
		_, _, err := g.forge.ReadFile(t.Context(), 1, g.url, "main", "x")
		if !fault.Is(err, fault.Unauthenticated) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "canary KEY") {
			t.Errorf("found %v; want …%s…", err, want)
		}
	}
	g.noStrays()
}

// D56, D41: the address of the API that a user has named is reached by the rules of all requests, and what it gives goes to the places of
// the credential only.
func TestAGitHubAppsAPIAddress(t *testing.T) {
	t.Parallel()
	var seen []string
	internal := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen = append(seen, r.URL.Path) }))
	t.Cleanup(internal.Close)
	g := newGitHubApp(t, GitHub, func(s *sealing.Terms) { s.Proof.GitHubApp.API = internal.URL + "/api" })
	g.fails(fault.Refused, "may not be reached")
	if len(seen) > 0 {
		t.Errorf("found that the internal server was asked for %v", seen)
	}

	// With an address of its own, tokens are asked for there, and the interface is the one below it.
	u, err := url.Parse(g.url)
	if err != nil {
		t.Fatal(err)
	}
	own := newGitHubApp(t, GitHub, func(s *sealing.Terms) {
		s.Proof.GitHubApp.API = s.URLPrefixes[0][:strings.LastIndex(s.URLPrefixes[0], "/")] + "/api/v3/"
	})
	own.add(t, "main", map[string]string{"staging/api.yaml": "old\n"})
	own.read(own.forge, 1)
	// A repository that is not below the URLs of the credential is not logged in to.
	_, _, err = own.forge.ReadFile(t.Context(), 1, u.Scheme+"://"+u.Host+"/others/shop.git", "main", "x")
	if err == nil || own.count != 1 {
		t.Errorf("found %v, and %d tokens; want that others are not logged in to", err, own.count)
	}
	own.noStrays()
}

// D56: what was issued for one repository is not used for another one, and names of repositories that differ in case only are the same.
func TestAGitHubAppsTokenIsForOneRepository(t *testing.T) {
	t.Parallel()
	g := newGitHubApp(t, "")
	g.add(t, "main", map[string]string{"staging/api.yaml": "old\n"})
	g.read(g.forge, 1)
	for _, name := range []string{"/web", "/WEB.git"} {
		if _, _, err := g.forge.ReadFile(t.Context(), 1, strings.TrimSuffix(g.url, "/shop.git")+name, "main", "x"); !fault.Is(err, fault.NotFound) {
			t.Errorf("%s: found %v; want that there is none", name, err)
		}
	}
	if want := `POST {"repositories":["web"]}`; g.count != 2 || g.asked[1] != want {
		t.Errorf("found %q; want a second one, %s", g.asked, want)
	}
}

// D56: other organizations have no part in a token.
func TestAGitHubAppIsItsOrganizations(t *testing.T) {
	t.Parallel()
	g := newGitHubApp(t, GitHub)
	g.add(t, "main", map[string]string{"staging/api.yaml": "old\n"})
	g.read(g.forge, 1)
	if _, _, err := g.forge.ReadFile(t.Context(), 2, g.url, "main", "staging/api.yaml"); !fault.Is(err, fault.Unauthenticated) || g.count != 1 {
		t.Errorf("found %v; want that another organization has no credential", err)
	}
}
