package web

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/httpx"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
)

// kit is a client that may reach a server, which answers what credentials it was sent.
type kit struct {
	*Client

	server *httptest.Server
	other  *httptest.Server
}

const password = "canary-of-the-test"

func echo(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.URL.Path == "/loop":
		http.Redirect(w, r, "/loop", http.StatusFound)
	case strings.HasPrefix(r.URL.Path, "/to/"):
		target, _ := url.QueryUnescape(r.URL.RawQuery)
		http.Redirect(w, r, target, map[string]int{"/to/307": 307}[r.URL.Path]|map[string]int{"/to/302": 302}[r.URL.Path]) //nolint:gosec // a server of the test
	default:
		_, _ = fmt.Fprintf(w, "%s %s %s", r.Method, r.Header.Get("Authorization"), r.Header.Get("X-Key"))
	}
}

func start(t *testing.T, credentials func(server, other string) []Credential, several bool) kit {
	t.Helper()
	k := kit{server: httptest.NewServer(http.HandlerFunc(echo)), other: httptest.NewServer(http.HandlerFunc(echo))}
	t.Cleanup(k.server.Close)
	t.Cleanup(k.other.Close)
	transport, err := httpx.New(httpx.Config{Allow: []string{"127.0.0.1"}, MaxBody: 1 << 40})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(transport.Close)
	var all []Credential
	if credentials != nil {
		all = credentials(k.server.URL, k.other.URL)
	}
	k.Client, err = New(Deps{
		HTTP: transport, Credentials: all, Several: func(context.Context) (bool, error) { return several, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func get(k kit, u string, change ...func(*activity.WebRequest)) (activity.WebAnswer, error) {
	r := activity.WebRequest{Organization: 1, Method: http.MethodGet, URL: u, Timeout: 10 * time.Second, Keep: 1000, Repeatable: true}
	for _, c := range change {
		c(&r)
	}
	return k.Send(context.Background(), r)
}

func with(name string) func(*activity.WebRequest) {
	return func(r *activity.WebRequest) { r.Credential = name }
}

// A credential goes to its URLs and nowhere else, also after a redirect, and is no other organization's (D27, D41).
func TestACredentialGoesWhereItIsBound(t *testing.T) {
	t.Setenv("WEB_TEST_PASSWORD", password)
	own := func(server, _ string) []Credential {
		bound := []string{server + "/api", server + "/to"}
		return []Credential{
			{Name: "bearer", URLPrefixes: bound, Ref: "env:WEB_TEST_PASSWORD", Organizations: []int64{1}},
			{Name: "basic", URLPrefixes: bound, Username: "u", Ref: "env:WEB_TEST_PASSWORD", Organizations: []int64{1}},
			{Name: "key", URLPrefixes: bound, Header: "X-Key", Ref: "env:WEB_TEST_PASSWORD", Organizations: []int64{1}},
			{Name: "theirs", URLPrefixes: bound, Ref: "env:WEB_TEST_PASSWORD", Organizations: []int64{2}},
			{Name: "nobody's", URLPrefixes: bound, Ref: "env:WEB_TEST_PASSWORD"},
			{Name: "missing", URLPrefixes: bound, Ref: "env:WEB_TEST_MISSING", Organizations: []int64{1}},
		}
	}
	k := start(t, own, true)
	secrets := func(r *activity.WebRequest) {
		r.Secrets = map[string]string{"mine": "env:WEB_TEST_PASSWORD", "stolen": "env:PATH", "theirs": "env:HOME"}
	}
	to := func(path, target string) string { return k.server.URL + path + "?" + url.QueryEscape(target) }
	for _, tt := range []struct {
		name, url, credential string
		want                  string // part of the answer, or of the error
		sent                  bool
	}{
		{"bearer", k.server.URL + "/api", "bearer", "Bearer " + password, true},
		{"below", k.server.URL + "/api/x?y", "bearer", "Bearer " + password, true},
		{"basic", k.server.URL + "/api", "basic", "Basic dTpjYW5hcnk", true},
		{"header", k.server.URL + "/api", "key", password, true},
		{"none", k.server.URL + "/api", "", "GET", false},
		{"another path", k.server.URL + "/apix", "bearer", "is not for this URL", false},
		{"another server", k.other.URL + "/api", "bearer", "is not for this URL", false},
		{"dots", k.server.URL + "/api/../x", "bearer", "found . or ..", false},
		{"encoded dots", k.server.URL + "/api/%2e%2E/x", "bearer", "found . or ..", false},
		{"dots with a parameter", k.server.URL + "/api/..;a/x", "bearer", "found . or ..", false},
		{"a user in the URL", strings.Replace(k.server.URL, "//", "//a@", 1) + "/api", "bearer", "found a user", false},
		{"another organization's", k.server.URL + "/api", "theirs", `no credential of this organization has the reference of the secret "theirs"`, false},
		{"nobody's, with several organizations", k.server.URL + "/api", "nobody's", "has no credential", false},
		{"a missing secret", k.server.URL + "/api", "missing", "cannot be read from its reference", false},
		{"unknown", k.server.URL + "/api", "x", `this organization has no credential "x"`, false},
		{"a secret of the run", k.server.URL + "/api", "mine", password, true},
		{"a reference that no credential has", k.server.URL + "/api", "stolen", "no credential of this organization has the reference", false},
		{"redirect within", to("/to/302", "/api/y"), "bearer", "Bearer " + password, true},
		{"redirect to another path", to("/to/302", "/elsewhere"), "bearer", "GET", false},
		{"redirect to another path, header", to("/to/302", "/elsewhere"), "key", "GET", false},
		{"redirect to another server", to("/to/302", k.other.URL+"/api"), "key", "GET", false},
		{"there and back", to("/to/302", k.other.URL+"/to/302?"+url.QueryEscape(k.server.URL+"/elsewhere")), "key", "GET", false},
	} {
		answer, err := get(k, tt.url, with(tt.credential), secrets)
		found := string(answer.Body)
		if err != nil {
			found = fault.Public(err)
		}
		// Basic has the password in base64.
		sent := strings.Contains(found, password) || strings.Contains(found, "Basic ")
		if !strings.Contains(found, tt.want) || sent != tt.sent {
			t.Errorf("%s: found %q, want %q", tt.name, found, tt.want)
		}
	}
	one := start(t, func(server, _ string) []Credential {
		return []Credential{{Name: "a", URLPrefixes: []string{server}, Ref: "env:WEB_TEST_PASSWORD"}}
	}, false)
	if answer, err := get(one, one.server.URL+"/x", with("a")); err != nil || !strings.Contains(string(answer.Body), password) {
		t.Errorf("one organization: %s, %v", answer.Body, err)
	}
}

// Servers inside are out of reach, whatever a URL, a name or a redirect says (D41).
func TestOnlyPublicServersAreReached(t *testing.T) {
	t.Parallel()
	transport, err := httpx.New(httpx.Config{})
	if err != nil {
		t.Fatal(err)
	}
	c, err := New(Deps{HTTP: transport})
	if err != nil {
		t.Fatal(err)
	}
	for _, u := range []string{"http://127.0.0.1:9", "http://localhost/", "http://169.254.169.254/latest/meta-data", "http://[::1]/", "http://0x7f.1/"} {
		_, err := get(kit{Client: c}, u)
		if !fault.Is(err, fault.Refused) && !fault.Is(err, fault.Unavailable) || u == "http://localhost/" && strings.Contains(fault.Public(err), "127.") {
			t.Errorf("%s: %v", u, err)
		}
	}
	for _, u := range []string{"ftp://a/", "https://", "//a/b", "https://ä.example.com/", "https:a", "https://a/\\b", "a\x00"} {
		if _, err := get(kit{Client: c}, u); !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: %v", u, err)
		}
	}
}

// Nothing that changes something is repeated elsewhere, or by the transport.
func TestARedirectOfAChangeIsItsAnswer(t *testing.T) {
	t.Parallel()
	k := start(t, nil, false)
	for _, path := range []string{"/to/302", "/to/307"} {
		answer, err := get(k, k.server.URL+path+"?"+url.QueryEscape(k.other.URL), func(r *activity.WebRequest) { r.Method = http.MethodPost })
		if err != nil || answer.Status/100 != 3 || answer.Header["location"] != k.other.URL {
			t.Errorf("%s: %+v, %v", path, answer, err)
		}
	}
	if _, err := get(k, k.server.URL+"/loop"); !fault.Is(err, fault.Refused) {
		t.Errorf("a loop of redirects: %v", err)
	}
}

func TestAnswersAreBounded(t *testing.T) {
	t.Parallel()
	large := []byte(rand.Text() + strings.Repeat("x", 5000))
	var broken atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/endless":
			for {
				if _, err := w.Write(make([]byte, 1<<20)); err != nil {
					return
				}
			}
		case "/declared":
			w.Header().Set("Content-Length", fmt.Sprint(MaxRead+1))
			w.WriteHeader(http.StatusOK)
		case "/slow":
			<-r.Context().Done()
		case "/broken":
			broken.Add(1)
			panic(http.ErrAbortHandler)
		default:
			_, _ = w.Write(large)
		}
	}))
	t.Cleanup(server.Close)
	transport, err := httpx.New(httpx.Config{Allow: []string{"127.0.0.1"}, MaxBody: 1 << 40})
	if err != nil {
		t.Fatal(err)
	}
	c, err := New(Deps{HTTP: transport})
	if err != nil {
		t.Fatal(err)
	}
	k := kit{Client: c}
	digest := sha256.Sum256(large)
	for keep, want := range map[int]int{0: -1, 100: -1, len(large): len(large), 1 << 20: len(large)} {
		answer, err := get(k, server.URL, func(r *activity.WebRequest) { r.Keep = keep })
		if err != nil || answer.Size != int64(len(large)) || answer.Digest != hex.EncodeToString(digest[:]) ||
			(answer.Body == nil) != (want < 0) || answer.Body != nil && len(answer.Body) != want {
			t.Errorf("keep %d: %d of %d bytes, %v", keep, len(answer.Body), answer.Size, err)
		}
	}
	for _, path := range []string{"/endless", "/declared"} {
		if _, err := get(k, server.URL+path); !fault.Is(err, fault.Refused) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if _, err := get(k, server.URL+"/slow?key=hidden", func(r *activity.WebRequest) { r.Timeout = 50 * time.Millisecond }); !fault.Is(err, fault.Unavailable) ||
		!strings.Contains(fault.Public(err), "no answer in time") || strings.Contains(fault.Public(err), "hidden") {
		t.Errorf("slow: %v", err)
	}
	// What the server may have executed is not reported as something to repeat, unless repeating it does no harm.
	post := func(repeatable bool) func(*activity.WebRequest) {
		return func(r *activity.WebRequest) {
			r.Method, r.Body, r.Repeatable = http.MethodPost, []byte("x"), repeatable
		}
	}
	if _, err := get(k, server.URL+"/broken", post(false)); !fault.Is(err, fault.Conflict) || broken.Load() != 1 {
		t.Errorf("broken: %v after %d requests", err, broken.Load())
	}
	if _, err := get(k, server.URL+"/broken", post(true)); !fault.Is(err, fault.Unavailable) {
		t.Errorf("broken, repeatable: %v", err)
	}
	server.Close()
	if _, err := get(k, server.URL, post(false)); !fault.Is(err, fault.Unavailable) {
		t.Errorf("nothing was sent: %v", err)
	}
}

// One organization cannot hold all places for Functions with requests to a slow server.
func TestAnOrganizationHasOnlySoManyRequestsInProgress(t *testing.T) {
	t.Parallel()
	arrived, finish := make(chan struct{}), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		arrived <- struct{}{}
		<-finish
	}))
	t.Cleanup(server.Close)
	transport, err := httpx.New(httpx.Config{Allow: []string{"127.0.0.1"}})
	if err != nil {
		t.Fatal(err)
	}
	c, err := New(Deps{HTTP: transport})
	if err != nil {
		t.Fatal(err)
	}
	k := kit{Client: c}
	ended := make(chan error)
	for range MaxInProgress {
		go func() {
			_, err := get(k, server.URL)
			ended <- err
		}()
		<-arrived
	}
	if _, err := get(k, server.URL); !fault.Is(err, fault.Unavailable) {
		t.Errorf("one more: %v", err)
	}
	go func() {
		_, err := get(k, server.URL, func(r *activity.WebRequest) { r.Organization = 2 })
		ended <- err
	}()
	<-arrived
	close(finish)
	for range MaxInProgress + 1 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	if len(c.inProgress) != 0 {
		t.Errorf("still counted: %v", c.inProgress)
	}
}

func TestCredentialsThatCouldNeverWork(t *testing.T) {
	t.Parallel()
	good := Credential{Name: "a", URLPrefixes: []string{"https://a"}, Ref: "env:A", Organizations: []int64{1}}
	for field, all := range map[string][]Credential{
		"":                  {good, {Name: "a", URLPrefixes: []string{"https://a"}, Ref: "env:A", Organizations: []int64{2}}},
		"[0].name":          {{URLPrefixes: good.URLPrefixes, Ref: "env:A"}},
		"[1].name":          {good, good},
		"[0].url_prefixes":  {{Name: "a", Ref: "env:A"}},
		"[0].ref":           {{Name: "a", URLPrefixes: good.URLPrefixes, Ref: "hunter2"}},
		"[0].header":        {{Name: "a", URLPrefixes: good.URLPrefixes, Ref: "env:A", Header: "Host"}},
		"[0].username":      {{Name: "a", URLPrefixes: good.URLPrefixes, Ref: "env:A", Username: "a:b"}},
		"[0].organizations": {{Name: "a", URLPrefixes: good.URLPrefixes, Ref: "env:A", Organizations: []int64{0}}},
	} {
		_, err := New(Deps{Credentials: all})
		if field == "" && err != nil || field != "" && (err == nil || !strings.Contains(err.Error(), "http_credentials"+field)) {
			t.Errorf("%s: %v", field, err)
		}
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("the error shows a password: %v", err)
		}
	}
	if wrong := Unscoped([]Credential{good, {Name: "b"}}); len(wrong) != 1 || wrong[0].Name != "http_credentials[1].organizations" {
		t.Errorf("unscoped: %v", wrong)
	}
}

// What only reports to the outside what happens has a share of its own, of which one server takes a part (D62).
func TestDeliveriesHaveAShareOfTheirOwn(t *testing.T) {
	t.Parallel()
	c, err := New(Deps{})
	if err != nil {
		t.Fatal(err)
	}
	enter := func(delivery bool, server string, times int) (taken int) {
		for range times {
			if _, err := c.enter(1, delivery, server); err == nil {
				taken++
			} else if !fault.Is(err, fault.Unavailable) {
				t.Fatal(err)
			}
		}
		return taken
	}
	for _, one := range []struct {
		delivery bool
		server   string
		want     int
	}{
		{true, "dead", MaxDeliveriesTo}, {true, "other", MaxDeliveries - MaxDeliveriesTo}, {true, "third", 0}, {false, "dead", MaxInProgress},
	} {
		if taken := enter(one.delivery, one.server, 20); taken != one.want {
			t.Errorf("delivery %v to %s: found %d; want %d", one.delivery, one.server, taken, one.want)
		}
	}
}
