package registry

import (
	"bufio"
	"bytes"
	"crypto/hmac"
	"crypto/sha1" //nolint:gosec // what Nexus signs with
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"net/textproto"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstep-cd/lockstep/services/registry/internal/source"
)

// sender is the proof of the sender of a source, and one of its deliveries.
type sender struct {
	source, fixture string
	// events and hints are the expected numbers for the fixture.
	events, hints int
	// sign adds the proof; nil for senders that have none but the path.
	sign func(h http.Header, hookSecret string, body []byte)
	host string
}

func hexMAC(sum []byte) string { return hex.EncodeToString(sum) }

func sha256MAC(hookSecret string, body ...[]byte) []byte {
	m := hmac.New(sha256.New, []byte(hookSecret))
	for _, b := range body {
		_, _ = m.Write(b)
	}
	return m.Sum(nil)
}

// standard signs like Standard Webhooks, at a given time.
func standard(at time.Time) func(h http.Header, hookSecret string, body []byte) {
	return func(h http.Header, hookSecret string, body []byte) {
		id, stamp := "msg_1", strconv.FormatInt(at.Unix(), 10)
		h.Set("webhook-id", id)
		h.Set("webhook-timestamp", stamp)
		sum := sha256MAC(hookSecret, []byte(id+"."+stamp+"."), body)
		h.Set("webhook-signature", "v1,"+base64.StdEncoding.EncodeToString([]byte("of another key"))+" v1,"+
			base64.StdEncoding.EncodeToString(sum))
	}
}

func inHeader(name, prefix string) func(h http.Header, hookSecret string, body []byte) {
	return func(h http.Header, hookSecret string, _ []byte) { h.Set(name, prefix+hookSecret) }
}

func senders() []sender {
	sha256In := func(name, prefix string) func(http.Header, string, []byte) {
		return func(h http.Header, hookSecret string, body []byte) {
			h.Set(name, prefix+hexMAC(sha256MAC(hookSecret, body)))
		}
	}
	return []sender{
		{source: "acr", fixture: "push", hints: 1, sign: inHeader("Authorization", "Bearer ")},
		{source: "artifactory", fixture: "7-predefined", hints: 1, sign: sha256In("X-JFrog-Event-Auth", "")},
		{source: "artifactory", fixture: "7-index", hints: 1, sign: inHeader("X-JFrog-Event-Auth", "")},
		{source: "cloudevents", fixture: "structured", events: 1, sign: standard(time.Now())},
		{source: "cloudevents", fixture: "binary", events: 1, sign: inHeader("Authorization", "Bearer ")},
		{source: "distribution", fixture: "2.0", hints: 1, sign: inHeader("Authorization", "Bearer ")},
		{source: "distribution", fixture: "3.0-index", events: 1, sign: inHeader("Authorization", "Bearer ")},
		{source: "distribution", fixture: "3.0-signed-platforms", events: 1, sign: inHeader("Authorization", "Bearer ")},
		{source: "cdevents", fixture: "0.4-published-cloudevent", events: 1, sign: inHeader("Authorization", "Bearer ")},
		{source: "dockerhub", fixture: "2025", hints: 1},
		{source: "ecr", fixture: "2019", hints: 1, sign: inHeader("X-Api-Key", "")},
		{source: "ecr", fixture: "2024-media-types", events: 1, sign: func(h http.Header, hookSecret string, _ []byte) {
			h.Set("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte("lockstep:"+hookSecret)))
		}},
		{source: "generic", fixture: "full", events: 1, sign: standard(time.Now())},
		{source: "gitea", fixture: "1.22", hints: 1, sign: sha256In("X-Gitea-Signature", "")},
		{source: "github", fixture: "package", events: 1, sign: sha256In("X-Hub-Signature-256", "sha256=")},
		{source: "gitlab", fixture: "registry-notifications", hints: 1, sign: inHeader("Authorization", "Bearer ")},
		{source: "gitlab", fixture: "custom-template", hints: 1, sign: standard(time.Now())},
		{source: "harbor", fixture: "2.0-two-tags", hints: 2, sign: inHeader("Authorization", "")},
		{source: "harbor", fixture: "2.8-cloudevents", hints: 1, sign: inHeader("Authorization", "")},
		{
			source: "nexus", fixture: "3-component", hints: 1, host: "nexus.example.com:8082",
			sign: func(h http.Header, hookSecret string, body []byte) {
				m := hmac.New(sha1.New, []byte(hookSecret))
				_, _ = m.Write(body)
				h.Set("X-Nexus-Webhook-Signature", hexMAC(m.Sum(nil)))
			},
		},
		{source: "quay", fixture: "list", hints: 2},
	}
}

// recorded returns a fixture of package source.
func recorded(t *testing.T, format, name string) (http.Header, []byte) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("internal", "source", "testdata", format, name+".http"))
	if err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(bytes.NewReader(content))
	header, err := textproto.NewReader(r).ReadMIMEHeader()
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return http.Header(header), body
}

// secretFile returns a reference to a secret.
func secretFile(t *testing.T, hookSecret string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(path, []byte(hookSecret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return "file:" + path
}

func count(t *testing.T, pool *pgxpool.Pool, table string) int {
	t.Helper()
	var n int
	if err := pool.QueryRow(t.Context(), "SELECT count(*) FROM "+table).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

const (
	hookSecret = "whsec-like but longer: 0123456789"
	oldSecret  = "the one before it: 9876543210"
)

// hooked is a service with one hook.
type hooked struct {
	server *httptest.Server
	pool   *pgxpool.Pool
	config HookConfig
	in     *intake
}

func hook(t *testing.T, h HookConfig, c Config) hooked {
	t.Helper()
	h.Name = "test"
	if h.Secrets == nil {
		h.Secrets = []string{secretFile(t, hookSecret), secretFile(t, oldSecret)}
	}
	c.Hooks = []HookConfig{h}
	c.Tokens = []string{token}
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	server, pool, in := serveConfig(t, c)
	return hooked{server: server, pool: pool, config: h, in: in}
}

func (h hooked) post(t *testing.T, path string, header http.Header, body []byte) (int, string) {
	t.Helper()
	status, _, answer := post{path: path, header: header, body: string(body)}.do(t, h.server.URL)
	return status, answer
}

func TestHooks(t *testing.T) {
	t.Parallel()
	for _, s := range senders() {
		t.Run(s.source+" "+s.fixture, func(t *testing.T) {
			t.Parallel()
			h := hook(t, HookConfig{Source: s.source, Host: s.host}, Config{})
			recordedHeader, body := recorded(t, s.source, s.fixture)
			path := hookPath(h.config, hookSecret)
			send := func(path, hookSecret string, body []byte) (int, string) {
				header := recordedHeader.Clone()
				if s.sign != nil {
					s.sign(header, hookSecret, body)
				}
				return h.post(t, path, header, body)
			}
			stored := func(step string) {
				t.Helper()
				if e, n := count(t, h.pool, "outbox"), count(t, h.pool, "hint"); e != s.events || n != s.hints {
					t.Fatalf("%s: %d events and %d hints, want %d and %d", step, e, n, s.events, s.hints)
				}
			}
			status, first := send(path, hookSecret, body)
			if status != http.StatusAccepted {
				t.Fatalf("answered %d %s", status, first)
			}
			stored("accepted")
			if status, again := send(path, hookSecret, body); status != http.StatusAccepted || again != first {
				t.Errorf("replayed: answered %d %s, at first %s", status, again, first)
			}
			if status, again := send(hookPath(h.config, oldSecret), oldSecret, body); status != http.StatusAccepted || again != first {
				t.Errorf("with the old hookSecret: answered %d %s", status, again)
			}
			_, unknown := send(path+"0", hookSecret, body)
			if s.sign != nil {
				tampered := bytes.Replace(body, []byte("1.4.0"), []byte("1.4.1"), 1)
				if status, answer := send(path, "another secret", tampered); status != http.StatusNotFound || answer != unknown {
					t.Errorf("bad signature: answered %d %s, for an unknown path %s", status, answer, unknown)
				}
				if status, answer := h.post(t, path, recordedHeader, body); status != http.StatusNotFound || answer != unknown {
					t.Errorf("no signature: answered %d %s", status, answer)
				}
			}
			// Malformed parts are recorded. After an error the vendor would repeat the delivery, and hold up those behind it.
			for name, bad := range map[string]string{
				"truncated":     string(body[:len(body)/2]),
				"wrong type":    "7",
				"wrong charset": strings.Replace(string(body), `"`, "\"\xe4", 1),
				"deeply nested": `{"x":` + strings.Repeat("[", 5000),
				"empty":         "",
			} {
				if status, answer := send(path, hookSecret, []byte(bad)); status != http.StatusOK || !strings.Contains(answer, `"refused":[{"what":`) {
					t.Errorf("%s: answered %d %s", name, status, answer)
				}
			}
			if status, answer := send(path, hookSecret,
				[]byte(string(body)+strings.Repeat(" ", 26<<20))); status != http.StatusRequestEntityTooLarge &&
				(status != http.StatusOK || !strings.Contains(answer, "bytes at most")) {
				t.Errorf("oversized: answered %d %s", status, answer)
			}
			wrong := recordedHeader.Clone()
			wrong.Set("Content-Type", "application/json; charset=latin1")
			if s.sign != nil {
				s.sign(wrong, hookSecret, body)
			}
			if status, answer := h.post(t, path, wrong, body); status != http.StatusUnsupportedMediaType {
				t.Errorf("latin1: answered %d %s", status, answer)
			}
			stored("after bad deliveries")
		})
	}
}

// TestEverySourceHasItsCases: every format has the cases of TestHooks (accepted, replayed, bad signature, truncated, wrong type, oversized,
// wrong charset, deeply nested); Google's identity tokens have a test of their own. Every format has deliveries of several versions or
// kinds, and a fuzz target.
func TestEverySourceHasItsCases(t *testing.T) {
	t.Parallel()
	cases := map[string]bool{"google": true}
	for _, s := range senders() {
		cases[s.source] = true
	}
	targets, err := os.ReadFile(filepath.Join("internal", "source", "fuzz_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range source.Formats() {
		fixtures, err := filepath.Glob(filepath.Join("internal", "source", "testdata", f.Name, "*.http"))
		if err != nil || len(fixtures) < 2 {
			t.Errorf("%s has the fixtures %v, %v; want two or more", f.Name, fixtures, err)
		}
		if !cases[f.Name] {
			t.Errorf("%s is not among the senders of TestHooks", f.Name)
		}
		if !strings.Contains(string(targets), `(f, "`+f.Name+`")`) {
			t.Errorf("%s has no fuzz target", f.Name)
		}
	}
}

func TestStandardWebhooksOutsideTheToleranceAreRefused(t *testing.T) {
	t.Parallel()
	h := hook(t, HookConfig{Source: "generic"}, Config{})
	header, body := recorded(t, "generic", "full")
	for _, late := range []time.Duration{-time.Hour, -6 * time.Minute, 6 * time.Minute} {
		standard(time.Now().Add(late))(header, hookSecret, body)
		if status, _ := h.post(t, hookPath(h.config, hookSecret), header, body); status != http.StatusNotFound {
			t.Errorf("signed %s from now: answered %d", late, status)
		}
	}
	standard(time.Now().Add(-4*time.Minute))(header, hookSecret, body)
	if status, answer := h.post(t, hookPath(h.config, hookSecret), header, body); status != http.StatusAccepted {
		t.Errorf("signed four minutes ago: answered %d %s", status, answer)
	}
}

func TestMissingHooksLookLikeForbiddenOnes(t *testing.T) {
	t.Parallel()
	h := hook(t, HookConfig{Source: "harbor"}, Config{})
	path := hookPath(h.config, hookSecret)
	header, body := recorded(t, "harbor", "2.0-push-artifact")
	_, want := h.post(t, path, header, body)
	for _, other := range []string{
		"/v1/hooks/harbor/" + strings.Repeat("0", 40), "/v1/hooks/quay/" + filepath.Base(path), path + "/", "/v1/hooks/",
		"/v1/hooks/x", path + "?a=b",
	} {
		if status, got := h.post(t, other, header, body); status != http.StatusNotFound || got != want {
			t.Errorf("%s: answered %d %s, want %s", other, status, got, want)
		}
	}
	header.Set("Authorization", hookSecret)
	for _, method := range []string{http.MethodGet, http.MethodPut, http.MethodDelete} {
		if status, _, got := (post{method: method, path: path, header: header, body: string(body)}).do(t,
			h.server.URL); status != http.StatusNotFound || got != want {
			t.Errorf("%s: answered %d %s", method, status, got)
		}
	}
}

func TestRateLimits(t *testing.T) {
	t.Parallel()
	h := hook(t, HookConfig{Source: "quay", Rate: 1}, Config{})
	header, body := recorded(t, "quay", "build")
	seen := map[int]int{}
	for range 10 {
		status, _ := h.post(t, hookPath(h.config, hookSecret), header, body)
		seen[status]++
	}
	if seen[http.StatusOK] < 2 || seen[http.StatusTooManyRequests] == 0 {
		t.Errorf("ten deliveries at one a second were answered %v", seen)
	}
	strangers := map[int]int{}
	for range 200 {
		status, _ := h.post(t, "/v1/hooks/quay/x", header, nil)
		strangers[status]++
	}
	if strangers[http.StatusTooManyRequests] == 0 || len(strangers) != 2 {
		t.Errorf("strangers were answered %v", strangers)
	}
}
