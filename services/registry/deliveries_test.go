package registry

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstep-cd/lockstep/pkg/testkit/bustest"
	"github.com/lockstep-cd/lockstep/pkg/testkit/pgtest"
	"github.com/lockstep-cd/lockstep/services/registry/internal/core"
	"github.com/lockstep-cd/lockstep/services/registry/internal/store"
)

const (
	digest          = "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
	token           = "token-of-ci"
	data            = `{"image":"r.example.com/shop/api","digest":"` + digest + `","tag":"1.4.0"}`
	structuredMedia = "application/cloudevents+json"
	batchMedia      = "application/cloudevents-batch+json"
	envelopeMedia   = "application/vnd.docker.distribution.events.v2+json"
)

func structured(id string) string {
	return fmt.Sprintf(`{"specversion":"1.0","id":%q,"source":"/ci","type":"com.gitlab.cd.artifact.published","data":%s}`, id, data)
}

func envelope(id, digest string) string {
	return fmt.Sprintf(`{"events":[{"id":"pull","action":"pull"},{"id":%q,"timestamp":"2026-03-25T10:00:00Z","action":"push","target":{"mediaType":"application/vnd.oci.image.index.v1+json","digest":%q,"repository":"shop/web","tag":"2"},"request":{"host":"r.example.com"}}]}`, id, digest)
}

// post is a delivery that tests modify.
type post struct {
	method, path string
	header       http.Header
	body         string
}

func (p post) do(t *testing.T, base string) (status int, header http.Header, body string) {
	t.Helper()
	if p.method == "" {
		p.method = http.MethodPost
	}
	r, err := http.NewRequestWithContext(t.Context(), p.method, base+p.path, strings.NewReader(p.body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header = p.header
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, response.Header, string(text)
}

func with(media string, more ...string) http.Header {
	h := http.Header{"Authorization": {"Bearer " + token}, "Content-Type": {media}}
	for pair := range slices.Chunk(more, 2) {
		h.Add(pair[0], pair[1])
	}
	return h
}

// serve runs the HTTP side on a real outbox.
func serve(t *testing.T, tokens ...string) (*httptest.Server, *pgxpool.Pool) {
	t.Helper()
	s, pool, _ := serveConfig(t, Config{Tokens: tokens})
	return s, pool
}

// serveConfig runs the HTTP side of a configuration, and returns the intake, which resolves hints when it is run.
func serveConfig(t *testing.T, c Config) (*httptest.Server, *pgxpool.Pool, *intake) {
	t.Helper()
	pool, _ := pgtest.New(t, pgtest.Migration{Name: store.MigrationName, FS: store.Migrations()},
		pgtest.Migration{Name: store.HookMigrationName, FS: store.HookMigrations()})
	in, err := newIntake(c, pool, bustest.Log(t), func() {})
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(in.handler)
	t.Cleanup(s.Close)
	return s, pool, in
}

// waiting returns the causes of the events in the outbox.
func waiting(t *testing.T, pool *pgxpool.Pool) []string {
	t.Helper()
	rows, err := pool.Query(context.WithoutCancel(t.Context()), "SELECT event->>'causationid' FROM outbox ORDER BY id")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	causes := []string{}
	for rows.Next() {
		var cause string
		if err := rows.Scan(&cause); err != nil {
			t.Fatal(err)
		}
		causes = append(causes, cause)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return causes
}

func TestAccepted(t *testing.T) {
	t.Parallel()
	s, pool := serve(t, "old", token)
	posts := []post{
		{path: "/v1/events", header: with(structuredMedia), body: structured("structured")},
		{path: "/v1/events", header: with(structuredMedia + "; charset=UTF-8"), body: structured("charset")},
		{path: "/v1/events", header: with(batchMedia), body: "[" + structured("batch-1") + "," + structured("batch-2") + "]"},
		{path: "/v1/events", header: with("application/json", "ce-specversion", "1.0", "ce-id", "binary", "ce-source", "/ci", "ce-type",
			"com.gitlab.cd.artifact.published"), body: data},
		{path: "/v1/notifications/distribution", header: with(envelopeMedia), body: envelope("envelope", digest)},
		{
			path: "/v1/notifications/distribution", header: with("application/vnd.docker.distribution.events.v1+json"),
			body: envelope("envelope-v1", digest),
		},
		{path: "/v1/events", header: func() http.Header {
			h := with(structuredMedia)
			h.Set("Authorization", "bearer old")
			return h
		}(), body: structured("other-token")},
	}
	for _, p := range append(slices.Clone(posts), posts...) { // all of them twice
		if status, _, body := p.do(t, s.URL); status != http.StatusAccepted || !strings.HasPrefix(body, `{"events":["`) {
			t.Errorf("%s answered %d %s", p.body, status, body)
		}
	}
	want := []string{"structured", "charset", "batch-1", "batch-2", "binary", "envelope", "envelope-v1", "other-token"}
	if diff := cmp.Diff(want, waiting(t, pool)); diff != "" {
		t.Errorf("outbox (-want +got):\n%s", diff)
	}
}

func TestADeliveryWithoutArtifactsIsAccepted(t *testing.T) {
	t.Parallel()
	s, pool := serve(t, token)
	for _, p := range []post{
		{path: "/v1/events", header: with(batchMedia), body: "[]"},
		{path: "/v1/notifications/distribution", header: with(envelopeMedia), body: `{"events":[{"action":"pull"}]}`},
	} {
		if status, _, body := p.do(t, s.URL); status != http.StatusOK || body != "{\"events\":[]}\n" {
			t.Errorf("answered %d %s", status, body)
		}
	}
	if left := waiting(t, pool); len(left) != 0 {
		t.Errorf("stored %v", left)
	}
}

func TestTheSamePushTwiceIsOneEvent(t *testing.T) {
	t.Parallel()
	s, pool := serve(t, token)
	p := post{path: "/v1/events", header: with(structuredMedia), body: structured("once")}
	_, _, first := p.do(t, s.URL)
	_, _, second := p.do(t, s.URL)
	if want := fmt.Sprintf("{\"events\":[%q]}\n", core.Identify("/ci", "once")); first != want || second != want {
		t.Errorf("answers are %s and %s, want twice %s", first, second, want)
	}
	if left := waiting(t, pool); len(left) != 1 {
		t.Errorf("stored %v", left)
	}
}

func TestRefused(t *testing.T) {
	t.Parallel()
	s, pool := serve(t, token)
	const authorization = "Authorization"
	event := func(change func(*post)) post {
		p := post{path: "/v1/events", header: with(structuredMedia), body: structured("x")}
		change(&p)
		return p
	}
	tests := []struct {
		name   string
		post   post
		status int
		want   []string // field and a part of its problem
	}{
		{"no token", event(func(p *post) { p.header.Del(authorization) }), 401, nil},
		{"empty token", event(func(p *post) { p.header.Set(authorization, "Bearer ") }), 401, nil},
		{"wrong token", event(func(p *post) { p.header.Set(authorization, "Bearer token-of-cj") }), 401, nil},
		{"another scheme", event(func(p *post) { p.header.Set(authorization, "Basic "+token) }), 401, nil},
		{"unknown path without token", post{path: "/v2", header: http.Header{}}, 401, nil},
		{"unknown path", event(func(p *post) { p.path = "/v2" }), 404, []string{"path", "found /v2"}},
		{"wrong method", event(func(p *post) { p.method = http.MethodPut }), 405, []string{"method", "found PUT; expected POST"}},
		{
			"no content type", event(func(p *post) { p.header.Del("Content-Type") }), 415,
			[]string{"content-type", "missing; expected application/cloudevents+json or"},
		},
		{
			"wrong content type", event(func(p *post) { p.header.Set("Content-Type", "text/plain") }),
			415,
			[]string{"content-type", "found text/plain"},
		},
		{
			"wrong charset", event(func(p *post) { p.header.Set("Content-Type", structuredMedia+"; charset=latin1") }),
			415,
			[]string{"content-type", "expected charset utf-8"},
		},
		{"two content types", event(func(p *post) { p.header.Add("Content-Type", structuredMedia) }), 415, []string{"content-type"}},
		{"compressed", event(func(p *post) { p.header.Set("Content-Encoding", "gzip") }), 415, []string{"content-encoding", "found gzip"}},
		{"envelope as event", event(func(p *post) { p.header.Set("Content-Type", envelopeMedia) }), 415, []string{"content-type"}},
		{"event as envelope", event(func(p *post) { p.path = "/v1/notifications/distribution" }), 415, []string{"content-type"}},
		{
			"too large", event(func(p *post) { p.body = strings.Repeat(" ", 1<<20+1) }),
			413,
			[]string{"body", "found 1048577 bytes; expected 1048576 bytes at most"},
		},
		{"not JSON", event(func(p *post) { p.body = "{" }), 400, []string{"body", "ends too early"}},
		{"deeply nested", event(func(p *post) { p.body = strings.Repeat(`{"a":`, 200_000) }), 400, []string{"body", "nested more than 32 deep"}},
		{
			"no digest", event(func(p *post) { p.body = strings.Replace(p.body, "digest", "tsegid", 1) }), 400,
			[]string{"data.digest", "missing; expected sha256:"},
		},
	}
	t.Cleanup(func() { // after all subtests
		if left := waiting(t, pool); len(left) != 0 {
			t.Errorf("refused deliveries left %v in the outbox", left)
		}
	})
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			status, h, body := tt.post.do(t, s.URL)
			if status != tt.status || h.Get("Content-Type") != "application/problem+json" {
				t.Fatalf("answered %d %s %s, want %d", status, h.Get("Content-Type"), body, tt.status)
			}
			problem(t, body, tt.status, tt.want)
		})
	}
}

// problem checks a document of RFC 9457.
func problem(t *testing.T, body string, status int, want []string) {
	t.Helper()
	var p struct {
		Title, Detail string
		Status        int
		Errors        []struct{ Field, Problem string }
	}
	if err := json.Unmarshal([]byte(body), &p); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	if p.Status != status || p.Title != http.StatusText(status) || p.Detail == "" {
		t.Errorf("problem is %s", body)
	}
	if want == nil {
		return
	}
	if len(p.Errors) != 1 || p.Errors[0].Field != want[0] {
		t.Fatalf("errors are %v, want one about %s", p.Errors, want[0])
	}
	for _, part := range want[1:] {
		if !strings.Contains(p.Errors[0].Problem, part) {
			t.Errorf("problem %q does not say %q", p.Errors[0].Problem, part)
		}
	}
}

func TestWithoutTokensEveryDeliveryIsRefused(t *testing.T) {
	t.Parallel()
	s, _ := serve(t)
	p := post{path: "/v1/events", header: with(structuredMedia), body: structured("x")}
	p.header.Set("Authorization", "Bearer ")
	if status, _, _ := p.do(t, s.URL); status != http.StatusUnauthorized {
		t.Errorf("answered %d", status)
	}
}

func TestTruncatedBody(t *testing.T) {
	t.Parallel()
	s, pool := serve(t, token)
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/events",
		io.MultiReader(strings.NewReader(structured("x")[:40]), broken{}))
	r.Header = with(structuredMedia)
	w := httptest.NewRecorder()
	s.Config.Handler.ServeHTTP(w, r)
	if w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), "an end after 40 bytes") {
		t.Errorf("answered %d %s", w.Code, w.Body)
	}
	if left := waiting(t, pool); len(left) != 0 {
		t.Errorf("stored %v", left)
	}
}

// broken is a body whose sender disconnected.
type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

func TestUnavailableDatabase(t *testing.T) {
	t.Parallel()
	s, pool := serve(t, token)
	pool.Close()
	p := post{path: "/v1/events", header: with(structuredMedia), body: structured("x")}
	status, h, body := p.do(t, s.URL)
	if status != http.StatusServiceUnavailable && status != http.StatusInternalServerError {
		t.Errorf("answered %d %v %s", status, h, body)
	}
	if strings.Contains(body, "pool") {
		t.Errorf("the answer reveals internals: %s", body)
	}
}

func TestConfigRefusesTooFewConnections(t *testing.T) {
	t.Parallel()
	for most, good := range map[int32]bool{-1: false, 0: true, minConnections - 1: false, minConnections: true} {
		if err := (Config{MaxConnections: most}).Validate(); (err == nil) != good {
			t.Errorf("max_connections %d: error = %v", most, err)
		}
	}
}

func TestConfigRefusesBadTokens(t *testing.T) {
	t.Parallel()
	if err := (Config{Tokens: []string{"good", "not good"}}).Validate(); err == nil || !strings.Contains(err.Error(), "tokens[1]") ||
		strings.Contains(err.Error(), "not good") {
		t.Errorf("error = %v", err)
	}
}

// TestAPartlyReadableDelivery: the readable parts are accepted with a success, and the rest is left out and shown.
func TestAPartlyReadableDelivery(t *testing.T) {
	t.Parallel()
	s, pool := serve(t, token)
	bad := strings.Replace(structured("3"), digest, "latest", 1)
	for _, tt := range []struct {
		name   string
		post   post
		status int
		refuse string
	}{
		{"one of a batch", post{
			path: "/v1/events", header: with(batchMedia),
			body: "[" + structured("1") + "," + bad + "," + structured("2") + "]",
		}, http.StatusAccepted, `[1].data.digest: found \"latest\"`},
		{"another type", post{
			path: "/v1/events", header: with(structuredMedia),
			body: strings.Replace(structured("4"), "artifact", "rollout", 1),
		}, http.StatusOK, `type: found \"com.gitlab.cd.rollout.published\"`},
		{"a push that cannot be understood", post{
			path: "/v1/notifications/distribution", header: with(envelopeMedia),
			body: envelope("5", "latest"),
		}, http.StatusOK, `events[1].target.digest: found \"latest\"`},
		{"no envelope", post{path: "/v1/notifications/distribution", header: with(envelopeMedia), body: "7"}, http.StatusOK, `body: found 7`},
		{
			"too large an envelope",
			post{path: "/v1/notifications/distribution", header: with(envelopeMedia), body: strings.Repeat(" ", 1<<20+1)},
			http.StatusOK, `found 1048577 bytes`,
		},
	} {
		if status, _, answer := tt.post.do(t, s.URL); status != tt.status || !strings.Contains(answer, tt.refuse) {
			t.Errorf("%s: answered %d %s", tt.name, status, answer)
		}
	}
	if left := waiting(t, pool); !slices.Equal(left, []string{"1", "2"}) {
		t.Errorf("stored %v", left)
	}
	_, _, shown := post{method: http.MethodGet, path: "/v1/hooks", header: with("application/json")}.do(t, s.URL)
	for _, part := range []string{"com.gitlab.cd.rollout.published", "events[1].target.digest", "found 1048577 bytes", `"times":1`} {
		if !strings.Contains(shown, part) {
			t.Errorf("GET /v1/hooks does not show %q: %s", part, shown)
		}
	}
}

// TestASlowBody: a body that takes too long is answered with a timeout, after which senders retry.
func TestASlowBody(t *testing.T) {
	t.Parallel()
	s, pool := serve(t, token)
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/events",
		io.MultiReader(strings.NewReader(structured("x")[:40]), slow{}))
	r.Header = with(structuredMedia)
	w := httptest.NewRecorder()
	s.Config.Handler.ServeHTTP(w, r)
	if w.Code != http.StatusRequestTimeout || !strings.Contains(w.Body.String(), "found 40 bytes in the time") {
		t.Errorf("answered %d %s", w.Code, w.Body)
	}
	if left := waiting(t, pool); len(left) != 0 {
		t.Errorf("stored %v", left)
	}
}

// slow is a body that does not arrive before the connection's deadline.
type slow struct{}

func (slow) Read([]byte) (int, error) {
	return 0, &net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}
}

// TestTheSubcommandHooks: every program that runs the service can list the paths of hooks.
func TestTheSubcommandHooks(t *testing.T) {
	t.Parallel()
	c := Config{Hooks: []HookConfig{{Name: "shop", Source: "harbor", Secrets: []string{secretFile(t, hookSecret)}}}}
	var out strings.Builder
	if err := Program(&out).Subcommands["hooks"](t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if want := hookPath(c.Hooks[0], hookSecret); !strings.Contains(out.String(), "shop\t") || !strings.Contains(out.String(), want) {
		t.Errorf("wrote %q, want %s", out.String(), want)
	}
}
