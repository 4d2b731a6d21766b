package web

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock/clocktest"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/httpx"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
)

// issuer is a server that issues tokens, and a server that wants them.
type issuer struct {
	*Client

	t      *testing.T
	now    *clocktest.Clock
	secret string // the file with the secret of the client
	url    string // of the server that wants tokens

	mu sync.Mutex
	// requests are those for tokens: how the client has proved itself, and what it was for.
	requests []string
	// answer is what a request for a token is answered with; the first %d is the number of the token.
	answer string
	status int
	// refuses is a token that the other server does not accept.
	refuses string
}

const clientSecret = "canary/of+the client"

func issuing(t *testing.T, change ...func(*Credential)) *issuer {
	t.Helper()
	i := &issuer{
		t: t, now: clocktest.New(time.Date(2026, 3, 25, 10, 0, 0, 0, time.UTC)), secret: filepath.Join(t.TempDir(), "secret"),
		answer: `{"access_token":"token-%d","token_type":"bearer","expires_in":300}`, status: http.StatusOK,
	}
	i.rotate(clientSecret)
	server := httptest.NewServer(http.HandlerFunc(i.serve))
	t.Cleanup(server.Close)
	i.url = server.URL + "/api"
	credentials := []Credential{
		{
			Name: "approvals", URLPrefixes: []string{i.url}, Ref: "file:" + i.secret, Organizations: []int64{1},
			OAuth2: OAuth2{TokenURL: server.URL + "/token", ClientID: "lockstep", Scopes: []string{"approvals:read", "deployments:read"}},
		},
		{
			Name: "others", URLPrefixes: []string{i.url}, Ref: "file:" + i.secret, Organizations: []int64{2},
			OAuth2: OAuth2{TokenURL: server.URL + "/token", ClientID: "others"},
		},
	}
	for _, c := range change {
		c(&credentials[0])
	}
	transport, err := httpx.New(httpx.Config{Allow: []string{strings.TrimPrefix(server.URL, "http://")}, MaxBody: 1 << 40})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(transport.Close)
	if i.Client, err = New(Deps{HTTP: transport, Credentials: credentials, Clock: i.now}); err != nil {
		t.Fatal(err)
	}
	return i
}

func (i *issuer) rotate(secret string) {
	i.t.Helper()
	if err := os.WriteFile(i.secret, []byte(secret), 0o600); err != nil {
		i.t.Fatal(err)
	}
}

func (i *issuer) serve(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if r.URL.Path == "/api" {
		if r.Header.Get("Authorization") == "Bearer "+i.refuses {
			w.WriteHeader(http.StatusUnauthorized)
		}
		_, _ = fmt.Fprint(w, r.Header.Get("Authorization"))
		return
	}
	if r.URL.Path == "/elsewhere" {
		i.requests = append(i.requests, "elsewhere")
		return
	}
	user, password, _ := r.BasicAuth()
	i.requests = append(i.requests, strings.TrimSpace(fmt.Sprintf("%s %s:%s %s %s %s", r.PostFormValue("grant_type"), user, password,
		r.PostFormValue("scope"), r.PostFormValue("client_id"), r.PostFormValue("client_secret"))))
	w.Header().Set("Content-Type", "application/json")
	if i.status == http.StatusFound {
		w.Header().Set("Location", "/elsewhere")
	}
	w.WriteHeader(i.status)
	_, _ = fmt.Fprint(w, strings.Replace(i.answer, "%d", fmt.Sprint(len(i.requests)), 1))
}

// call answers what the server was sent, or the error, as the engine records it.
func (i *issuer) call(change ...func(*activity.WebRequest)) (string, error) {
	i.t.Helper()
	r := activity.WebRequest{
		Organization: 1, Method: http.MethodGet, URL: i.url, Timeout: 10 * time.Second, Keep: 1000, Repeatable: true, Credential: "approvals",
	}
	for _, c := range change {
		c(&r)
	}
	ctx, concealed := activity.WithConcealed(i.t.Context())
	answer, err := i.Send(ctx, r)
	if strings.Contains(concealed.Redact(string(answer.Body)), "token-") {
		i.t.Errorf("found %s; want a token that the server sends back concealed", concealed.Redact(string(answer.Body)))
	}
	if err != nil && (strings.Contains(err.Error(), "canary") || strings.Contains(err.Error(), "token-")) {
		i.t.Errorf("found %v; want an error without secret and token", err)
	}
	return string(answer.Body), err
}

func (i *issuer) wants(want string, change ...func(*activity.WebRequest)) {
	i.t.Helper()
	if got, err := i.call(change...); err != nil || got != want {
		i.t.Errorf("found %q, %v; want %q", got, err, want)
	}
}

// R3-41, R2-39: a client of OAuth 2.0 has a token issued, for its scopes, and sends it until shortly before it ends, until its secret is
// replaced, or until the server does not accept it any more.
func TestATokenIsIssuedAndSent(t *testing.T) {
	t.Parallel()
	i := issuing(t)
	i.wants("Bearer token-1")
	i.wants("Bearer token-1")
	i.now.Advance(271 * time.Second) // 29 seconds before its end
	i.wants("Bearer token-2")
	i.rotate("another canary")
	i.wants("Bearer token-3")
	i.mu.Lock()
	i.refuses = "token-3"
	i.mu.Unlock()
	i.wants("Bearer token-3") // a program sees the 401 and decides
	i.wants("Bearer token-4")
	i.wants("Bearer token-5", func(r *activity.WebRequest) { r.Organization, r.Credential = 2, "others" })
	want := []string{
		"client_credentials lockstep:canary%2Fof%2Bthe+client approvals:read deployments:read",
		"client_credentials lockstep:canary%2Fof%2Bthe+client approvals:read deployments:read",
		"client_credentials lockstep:another+canary approvals:read deployments:read",
		"client_credentials lockstep:another+canary approvals:read deployments:read", "client_credentials others:another+canary",
	}
	if got := fmt.Sprint(i.requests); got != fmt.Sprint(want) {
		t.Errorf("found %s; want %s", got, want)
	}
}

// R3-41: servers write how long a token is good for as a number, or as a text.
func TestHowLongATokenIsGoodFor(t *testing.T) {
	t.Parallel()
	for value, want := range map[any]float64{300.0: 300, int64(300): 300, "300": 300, "-7": -7, "NaN": 0, "5m": 0, "": 0, nil: 0, true: 0} {
		if got := secondsOf(value); got != want {
			t.Errorf("%v: found %v; want %v", value, got, want)
		}
	}
	i := issuing(t)
	i.answer = `{"access_token":"token-%d","token_type":"Bearer","expires_in":"300"}`
	i.wants("Bearer token-1")
	i.wants("Bearer token-1")
}

// R3-41: how the client proves itself is configured; a token whose end is not known is not kept.
func TestATokenOfUnknownEndIsNotKept(t *testing.T) {
	t.Parallel()
	i := issuing(t, func(c *Credential) { c.OAuth2.Send, c.OAuth2.Scopes = "body", nil })
	i.answer = `{"access_token":"token-%d","token_type":"Bearer"}`
	i.wants("Bearer token-1")
	i.wants("Bearer token-2")
	i.answer = `{"access_token":"token-%d","token_type":"Bearer","expires_in":-7}`
	i.wants("Bearer token-3")
	i.answer = `{"access_token":"token-%d","token_type":"Bearer","expires_in":90000}`
	i.wants("Bearer token-4")
	i.now.Advance(59 * time.Minute)
	i.wants("Bearer token-4")
	i.now.Advance(time.Minute) // none is kept longer than an hour
	i.wants("Bearer token-5")
	if want := "client_credentials :  lockstep " + clientSecret; i.requests[0] != want {
		t.Errorf("found %q; want %q", i.requests[0], want)
	}
}

// R3-41: a token that is not issued is an error that says the status, and has neither the secret nor the answer in it; the secret goes to
// no other URL.
func TestATokenThatIsNotIssued(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		status int
		answer string
		class  fault.Class
		want   string
	}{
		"the client is unknown":   {401, `{"error":"invalid_client","error_description":"canary/of+the client"}`, fault.Unauthenticated, "status 401 (invalid_client)"},
		"a code that is a text":   {400, `{"error":"canary/of+the client is wrong"}`, fault.Unauthenticated, `for the credential "approvals": status 400`},
		"the server is busy":      {503, `canary/of+the client`, fault.Unavailable, "status 503"},
		"too many requests":       {429, `slower`, fault.Unavailable, "status 429"},
		"a redirect":              {302, ``, fault.Unauthenticated, "status 302"},
		"no token":                {200, `{"token_type":"bearer"}`, fault.Unauthenticated, "has issued no token that can be read"},
		"no JSON":                 {200, `token-1`, fault.Unauthenticated, "has issued no token that can be read"},
		"another type":            {200, `{"access_token":"token-%d","token_type":"mac"}`, fault.Unauthenticated, `of type "MAC"`},
		"characters of no header": {200, `{"access_token":"token-%d\r\nX: y","token_type":"bearer"}`, fault.Unauthenticated, "characters that no header can have"},
		"a very long token": {
			200, `{"access_token":"token-%d` + strings.Repeat("x", tokenMost) + `","token_type":"bearer"}`,
			fault.Unauthenticated, "a token of 16391 bytes; expected at most 16384",
		},
		"an error with the status": {200, `{"error":"invalid_scope"}`, fault.Unauthenticated, "status 200 (invalid_scope)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i := issuing(t)
			i.status, i.answer = c.status, c.answer
			if got, err := i.call(); fault.ClassOf(err) != c.class || !strings.Contains(err.Error(), c.want) || got != "" {
				t.Errorf("found %q, %v; want %s: %s", got, err, c.class, c.want)
			}
			if len(i.requests) != 1 {
				t.Errorf("found %v; want one request for a token", i.requests)
			}
		})
	}
}

// R3-41, R3-48: what may be reached for a token is what may be reached at all: neither the addresses of metadata nor private ones. The
// secret only proves the client, and only for its own organization.
func TestTheSecretOfAClientIsForItsServer(t *testing.T) {
	t.Parallel()
	for _, address := range []string{"http://169.254.169.254/token", "http://10.0.0.1/token", "http://[::1]/token", "http://127.0.0.1:1/token"} {
		i := issuing(t, func(c *Credential) { c.OAuth2.TokenURL = address })
		if _, err := i.call(); !fault.Is(err, fault.Refused) || !strings.Contains(err.Error(), "not at a public address") {
			t.Errorf("%s: found %v; want that it may not be reached", address, err)
		}
	}
	i := issuing(t)
	for name, change := range map[string]func(*activity.WebRequest){
		"client of OAuth 2.0":              func(r *activity.WebRequest) { r.Credential, r.URLCredential = "", "approvals" },
		"is a client of":                   func(r *activity.WebRequest) { r.Credential, r.Sign, r.SignID = "", []string{"approvals"}, "x" },
		"is not for this URL":              func(r *activity.WebRequest) { r.URL = strings.TrimSuffix(r.URL, "/api") + "/token" },
		`has no credential "others"`:       func(r *activity.WebRequest) { r.Credential = "others" },
		`has no credential "approvals"`:    func(r *activity.WebRequest) { r.Organization = 2 },
		"no credential of this organizati": func(r *activity.WebRequest) { r.Secrets = map[string]string{"approvals": "env:HOME"} },
	} {
		if _, err := i.call(change); !fault.Is(err, fault.Denied) || !strings.Contains(err.Error(), name) {
			t.Errorf("found %v; want %q", err, name)
		}
	}
	if len(i.requests) != 0 {
		t.Errorf("found %v; want no request for a token", i.requests)
	}
}

// R3-41: what is wrong with a client is reported when the service starts.
func TestClientsAreChecked(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(*Credential){
		"http_credentials[0].oauth2.token_url: missing":      func(c *Credential) { c.OAuth2 = OAuth2{ClientID: "x"} },
		"oauth2.token_url: expected an http or https URL":    func(c *Credential) { c.OAuth2.TokenURL = "ftp://a.test/x" },
		"oauth2.token_url: expected an http or https URL wi": func(c *Credential) { c.OAuth2.TokenURL = "https://u:p@a.test/x" },
		"oauth2.client_id: expected 1 to 255 characters":     func(c *Credential) { c.OAuth2.ClientID = "" },
		"oauth2.scopes: expected names":                      func(c *Credential) { c.OAuth2.Scopes = []string{"a b"} },
		"oauth2.send: expected header or body":               func(c *Credential) { c.OAuth2.Send = "query" },
		"oauth2: found with username or header":              func(c *Credential) { c.Username = "u" },
	} {
		c := Credential{
			Name: "a", URLPrefixes: []string{"https://a.test"}, Ref: "env:X", OAuth2: OAuth2{TokenURL: "https://b.test/token", ClientID: "lockstep"},
		}
		change(&c)
		if _, err := New(Deps{Credentials: []Credential{c}}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("found %v; want %q", err, want)
		}
	}
}

// R3-41: a call that is cancelled does not wait for a token.
func TestACancelledCallWaitsForNoToken(t *testing.T) {
	t.Parallel()
	i := issuing(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := activity.WebRequest{Organization: 1, Method: http.MethodGet, URL: i.url, Timeout: time.Minute, Keep: 10, Credential: "approvals"}
	if _, err := i.Send(ctx, r); !fault.Is(err, fault.Unavailable) {
		t.Errorf("found %v; want that nothing was answered", err)
	}
}
