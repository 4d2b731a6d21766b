package registry

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	ociname "github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/testkit/bustest"
	"github.com/lockstep-cd/lockstep/pkg/testkit/wait"
)

const scopedToken = "token-of-shop-ci-0123456789"

// shopCI is a token for the repositories below a registry's shop.
func shopCI(t *testing.T, host string) TokenConfig {
	t.Helper()
	return TokenConfig{
		Name: "shop-ci", Secrets: []string{secretFile(t, scopedToken)}, Organization: 1,
		Repositories: []string{host + "/shop/*"}, Expires: "2999-12-31",
	}
}

// publishes returns an event of CI.
func publishes(host, repository, id, tag, digest string) post {
	h := with(structuredMedia)
	h.Set("Authorization", "Bearer "+scopedToken)
	return post{path: "/v1/events", header: h, body: fmt.Sprintf(
		`{"specversion":"1.0","id":%q,"source":"/ci","type":"com.gitlab.cd.artifact.published","data":{"image":"%s/%s","digest":%q,"tag":%q}}`,
		id, host, repository, digest, tag)}
}

// seenEvents returns whether the digest was seen, for each event of a tag.
func seenEvents(t *testing.T, pool *pgxpool.Pool, tag string) []string {
	t.Helper()
	rows, err := pool.Query(t.Context(), "SELECT coalesce(event->'data'->>'digest_seen', 'unknown') FROM outbox WHERE event->'data'->>'tag' = $1 ORDER BY id", tag)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	all := []string{}
	for rows.Next() {
		var one string
		if err := rows.Scan(&one); err != nil {
			t.Fatal(err)
		}
		all = append(all, one)
	}
	return all
}

// chart pushes a manifest with an image's media type whose configuration is that of a Helm chart.
func chart(t *testing.T, reference string) string {
	t.Helper()
	img, err := random.Image(10, 1)
	if err != nil {
		t.Fatal(err)
	}
	img = mutate.ConfigMediaType(mutate.MediaType(img, types.OCIManifestSchema1), "application/vnd.cncf.helm.config.v1+json")
	return pushImage(t, reference, img)
}

func pushImage(t *testing.T, reference string, img v1.Image) string {
	t.Helper()
	tag, err := ociname.NewTag(reference)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(tag, img); err != nil {
		t.Fatal(err)
	}
	d, err := img.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return d.String()
}

// TestADigestIsSeenAtItsRegistry: if the registry is accessible, the event of a CI report says whether it has the digest; a digest that is
// pushed later is then confirmed by a second event; a chart becomes no event.
func TestADigestIsSeenAtItsRegistry(t *testing.T) {
	t.Parallel()
	host, closed := ociServer(t), "127.0.0.1:1"
	s, pool, in := serveConfig(t, Config{
		ScopedTokens: []TokenConfig{shopCI(t, host), {
			Name: "other", Secrets: []string{secretFile(t, "token-of-other-0123456789")},
			Organization: 2, Repositories: []string{closed + "/**"}, Expires: "2999-12-31",
		}},
		Registries: []AccountConfig{{Host: host, Organizations: []int64{1}}}, AllowNetworks: []string{host},
	})
	(hooked{server: s, pool: pool, in: in}).resolving(t)
	there := digestOf(t, push(t, host+"/shop/api:1.0.0"))
	late, err := random.Image(10, 1)
	if err != nil {
		t.Fatal(err)
	}
	lateDigest, err := late.Digest()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []post{
		publishes(host, "shop/api", "1", "1.0.0", there),
		publishes(host, "shop/api", "2", "9.9.9", digest),
		publishes(host, "shop/api", "3", "2.0.0", lateDigest.String()),
		publishes(host, "shop/chart", "4", "3.0.0", chart(t, host+"/shop/chart:3.0.0")),
	} {
		status, _, answer := p.do(t, s.URL)
		if status != http.StatusAccepted || !strings.Contains(answer, `"events":["`) {
			t.Fatalf("answered %d %s", status, answer)
		}
	}
	wait.For(t, "the events", func() bool {
		return slices.Equal(seenEvents(t, pool, "1.0.0"), []string{"true"}) && slices.Equal(seenEvents(t, pool, "9.9.9"), []string{"false"}) &&
			slices.Equal(seenEvents(t, pool, "2.0.0"), []string{"false"})
	})
	pushImage(t, host+"/shop/api:2.0.0", late)
	wait.For(t, "the event that confirms the late digest",
		func() bool { return slices.Equal(seenEvents(t, pool, "2.0.0"), []string{"false", "true"}) })
	wait.For(t, "the record of the chart", func() bool { return count(t, pool, "refusal") == 1 })
	if left := seenEvents(t, pool, "3.0.0"); len(left) != 0 {
		t.Errorf("a chart was published: %v", left)
	}
	// A repeated report causes no further event.
	if status, _, answer := publishes(host, "shop/api", "1", "1.0.0", there).do(t, s.URL); status != http.StatusAccepted {
		t.Errorf("answered %d %s", status, answer)
	}
	p := publishes(closed, "a", "1", "1.0.0-closed", digest)
	p.header.Set("Authorization", "Bearer token-of-other-0123456789")
	if status, _, answer := p.do(t, s.URL); status != http.StatusAccepted ||
		!slices.Equal(seenEvents(t, pool, "1.0.0-closed"), []string{"unknown"}) {
		t.Errorf("without an account: answered %d %s, %v", status, answer, seenEvents(t, pool, "1.0.0-closed"))
	}
	if got := seenEvents(t, pool, "1.0.0"); !slices.Equal(got, []string{"true"}) {
		t.Errorf("reported twice: %v", got)
	}
	// A token sees the refusals of its own deliveries, and of no others.
	h := with("application/json")
	h.Set("Authorization", "Bearer token-of-other-0123456789")
	if _, _, shown := (post{method: http.MethodGet, path: "/v1/hooks", header: h}).do(t, s.URL); strings.Contains(shown, "chart") ||
		!strings.Contains(shown, `"name":"other"`) {
		t.Errorf("another token is shown %s", shown)
	}
}

// TestALateConfirmationIsNoLaterPublication: without a time from the sender, the time of publication is that of the first report. Otherwise
// the confirmation of a digest would count as its tag moving back to it from a newer one.
func TestALateConfirmationIsNoLaterPublication(t *testing.T) {
	t.Parallel()
	host := ociServer(t)
	s, pool, in := serveConfig(t, Config{
		ScopedTokens: []TokenConfig{shopCI(t, host)}, Registries: []AccountConfig{{Host: host, Organizations: []int64{1}}},
		AllowNetworks: []string{host},
	})
	(hooked{server: s, pool: pool, in: in}).resolving(t)
	late, err := random.Image(10, 1)
	if err != nil {
		t.Fatal(err)
	}
	lateDigest, err := late.Digest()
	if err != nil {
		t.Fatal(err)
	}
	report := func(id, digest string) {
		t.Helper()
		if status, _, answer := publishes(host, "shop/api", id, "stable", digest).do(t, s.URL); status != http.StatusAccepted {
			t.Fatalf("answered %d %s", status, answer)
		}
	}
	report("1", lateDigest.String())
	wait.For(t, "the event that nobody has seen it", func() bool { return slices.Equal(seenEvents(t, pool, "stable"), []string{"false"}) })
	newer := digestOf(t, push(t, host+"/shop/api:stable"))
	report("2", newer)
	wait.For(t, "the event of the newer one", func() bool { return slices.Equal(seenEvents(t, pool, "stable"), []string{"false", "true"}) })
	report("1", lateDigest.String()) // again, as senders do that got no response
	pushImage(t, host+"/shop/api:late", late)
	wait.For(t, "the event that confirms the late digest",
		func() bool { return slices.Equal(seenEvents(t, pool, "stable"), []string{"false", "true", "true"}) })
	rows, err := pool.Query(t.Context(), "SELECT event->'data'->>'digest', (event->'data'->>'published_at')::timestamptz FROM outbox ORDER BY id")
	if err != nil {
		t.Fatal(err)
	}
	type publication struct {
		Digest string
		At     *time.Time
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[publication])
	if err != nil {
		t.Fatal(err)
	}
	if all[0].At == nil || all[1].At == nil || all[2].At == nil || !all[2].At.Equal(*all[0].At) || !all[1].At.After(*all[2].At) ||
		all[2].Digest != lateDigest.String() || all[1].Digest != newer {
		t.Errorf("published: %+v; expected the confirmation at the instant of the report, before the newer one", all)
	}
}

// TestChartsFromARegistryDoNotBecomeVersions: if a registry's notification does not report the kind of a manifest, the registry is queried;
// if it cannot be, the notification is believed.
func TestChartsFromARegistryDoNotBecomeVersions(t *testing.T) {
	t.Parallel()
	host := ociServer(t)
	h := hook(t, HookConfig{Source: "harbor"}, Config{AllowNetworks: []string{host}})
	h.resolving(t)
	send := func(reference, tag, digest string) {
		t.Helper()
		header := http.Header{"Content-Type": {"application/json"}, "Authorization": {hookSecret}}
		body := fmt.Appendf(nil, `{"type":"PUSH_ARTIFACT","occur_at":1680501893,"event_data":{"resources":[{"digest":%q,"tag":%q,"resource_url":"%s:%s"}]}}`, digest, tag, reference, tag)
		if status, answer := h.post(t, hookPath(h.config, hookSecret), header, body); status != http.StatusAccepted {
			t.Fatalf("answered %d %s", status, answer)
		}
	}
	send(host+"/shop/chart", "3.0.0", chart(t, host+"/shop/chart:3.0.0"))
	send(host+"/shop/api", "1.0.0", digestOf(t, push(t, host+"/shop/api:1.0.0")))
	send("127.0.0.1:1/shop/api", "2.0.0", digest)
	wait.For(t, "the events", func() bool { return len(published(t, h.pool)) == 2 && count(t, h.pool, "hint") == 0 })
	if got := seenEvents(t, h.pool, "2.0.0"); !slices.Equal(got, []string{"unknown"}) {
		t.Errorf("of a registry that cannot be asked: %v", got)
	}
	if shown := h.status(t).Refused; len(shown) != 1 || !strings.Contains(shown[0].Reason, "a Helm chart") ||
		!strings.Contains(shown[0].What, "/shop/chart:3.0.0") {
		t.Errorf("shown: %+v", shown)
	}
}

// TestScopedTokens: a token reports within its scope, until it expires.
func TestScopedTokens(t *testing.T) {
	t.Parallel()
	expired := shopCI(t, "r.example.com")
	expired.Name, expired.Expires, expired.Secrets = "old", "2020-01-31", []string{secretFile(t, "token-of-old-ci-0123456789")}
	c := Config{ScopedTokens: []TokenConfig{shopCI(t, "r.example.com"), expired}}
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	s, pool, _ := serveConfig(t, c)
	if status, _, answer := publishes("r.example.com", "shop/api", "1", "1.0.0", digest).do(t, s.URL); status != http.StatusAccepted {
		t.Fatalf("answered %d %s", status, answer)
	}
	if status, _, answer := publishes("r.example.com", "bank/api", "2", "9.9.9", digest).do(t, s.URL); status != http.StatusForbidden ||
		!strings.Contains(answer, "r.example.com/shop/*") {
		t.Errorf("another repository: answered %d %s", status, answer)
	}
	p := publishes("r.example.com", "shop/api", "3", "1.0.1", digest)
	p.body = strings.Replace(p.body, `"id":`, `"organizationid":"2","id":`, 1)
	if status, _, answer := p.do(t, s.URL); status != http.StatusForbidden || !strings.Contains(answer, "organizationid") {
		t.Errorf("another organization: answered %d %s", status, answer)
	}
	p = publishes("r.example.com", "shop/api", "4", "1.0.2", digest)
	p.header.Set("Authorization", "Bearer token-of-old-ci-0123456789")
	if status, _, answer := p.do(t, s.URL); status != http.StatusUnauthorized || !strings.Contains(answer, "expired at 2020-02-01") {
		t.Errorf("expired: answered %d %s", status, answer)
	}
	var organizations []string
	if err := pool.QueryRow(t.Context(), "SELECT array_agg(event->>'organizationid') FROM outbox").Scan(&organizations); err != nil ||
		!slices.Equal(organizations, []string{"1"}) {
		t.Errorf("reached organizations %v, %v", organizations, err)
	}
	if n := count(t, pool, "refusal"); n != 2 {
		t.Errorf("%d refusals are kept", n)
	}
	bad := Config{ScopedTokens: []TokenConfig{
		{Name: "A", Secrets: []string{"plain"}, Organization: 0, Expires: "soon"},
		{Name: "b", Secrets: []string{"env:B"}, Organization: 1, Repositories: []string{"*"}, Expires: "2027-01-01"},
	}}
	problems := fault.FieldsOf(bad.Validate())
	for _, field := range []string{
		"scoped_tokens[0].name", "scoped_tokens[0].secrets", "scoped_tokens[0].organization",
		"scoped_tokens[0].repositories", "scoped_tokens[0].expires", "scoped_tokens[1].repositories[0]",
	} {
		if !slices.ContainsFunc(problems, func(f fault.Field) bool { return f.Name == field && !strings.Contains(f.Problem, "plain") }) {
			t.Errorf("%s is not refused: %v", field, problems)
		}
	}
}

// TestCredentialsNameTheirOrganization: with more than one organization, a credential without one stops the start.
func TestCredentialsNameTheirOrganization(t *testing.T) {
	t.Parallel()
	account := AccountConfig{Host: "r.example.com", Username: "ci", Password: "env:P"}
	scoped := account
	scoped.Organizations = []int64{1}
	for name, tt := range map[string]struct {
		config  Config
		sources []int64
		want    string
	}{
		"one organization":  {Config{Registries: []AccountConfig{account}, Tokens: []string{"t"}}, []int64{1}, ""},
		"none yet":          {Config{Registries: []AccountConfig{account}, Tokens: []string{"t"}}, nil, ""},
		"two organizations": {Config{Registries: []AccountConfig{scoped, account}}, []int64{1, 2}, "registries[1].organizations"},
		"a second one in the configuration": {
			Config{Registries: []AccountConfig{account, {Host: "b.example.com", Organizations: []int64{2}}}},
			[]int64{1},
			"registries[0].organizations",
		},
		"tokens":                         {Config{Tokens: []string{"t"}}, []int64{1, 2}, "scoped_tokens"},
		"tokens for all, knowingly":      {Config{Tokens: []string{"t"}, SharedTokens: true}, []int64{1, 2}, ""},
		"docker's configuration":         {Config{DockerConfig: true}, []int64{1, 2}, "docker_config"},
		"an anonymous registry":          {Config{Registries: []AccountConfig{{Host: "r.example.com"}}}, []int64{1, 2}, ""},
		"all of them say whose they are": {Config{Registries: []AccountConfig{scoped}}, []int64{1, 2}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := tt.config.checkOrganizations(t.Context(), tt.sources, bustest.Log(t))
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v; want %q", err, tt.want)
			}
		})
	}
}

// TestHandshakesBeforeDeliveries: senders of CloudEvents and Azure Event Grid ask for permission before they deliver.
func TestHandshakesBeforeDeliveries(t *testing.T) {
	t.Parallel()
	h := hook(t, HookConfig{Source: "acr"}, Config{})
	for _, path := range []string{"/v1/events", hookPath(h.config, hookSecret), "/v1/hooks/acr/" + strings.Repeat("0", 40)} {
		p := post{
			method: http.MethodOptions, path: path,
			header: http.Header{"Webhook-Request-Origin": {"eventgrid.azure.net"}, "Webhook-Request-Rate": {"120"}},
		}
		status, header, body := p.do(t, h.server.URL)
		if status != http.StatusOK || header.Get("Webhook-Allowed-Origin") != "eventgrid.azure.net" ||
			header.Get("Webhook-Allowed-Rate") == "" || header.Get("Allow") != http.MethodPost || body != "" {
			t.Errorf("%s: answered %d %v %s", path, status, header, body)
		}
	}
	validation := []byte(`[{"id":"1","eventType":"Microsoft.EventGrid.SubscriptionValidationEvent","data":{"validationCode":"512d38b6","validationUrl":"https://evil.example.com/"}}]`)
	header := http.Header{
		"Content-Type": {"application/json"}, "Aeg-Event-Type": {"SubscriptionValidation"},
		"Authorization": {"Bearer " + hookSecret},
	}
	if status, answer := h.post(t, hookPath(h.config, hookSecret), header, validation); status != http.StatusOK ||
		answer != "{\"validationResponse\":\"512d38b6\"}\n" {
		t.Errorf("answered %d %s", status, answer)
	}
	header.Del("Authorization")
	if status, answer := h.post(t, hookPath(h.config, hookSecret), header, validation); status != http.StatusNotFound {
		t.Errorf("without proof: answered %d %s", status, answer)
	}
}

// TestALargePushIsAccepted: forges send up to 25 MiB about a push; unauthenticated senders may send a megabyte.
func TestALargePushIsAccepted(t *testing.T) {
	t.Parallel()
	h := hook(t, HookConfig{Source: "github"}, Config{})
	header, body := recorded(t, "github", "push")
	large := []byte(strings.Replace(string(body),
		"{", `{"files":[`+strings.Repeat(`"a-file-of-a-commit",`, 90_000)+`"x"],"text":"`+strings.Repeat("x", 20<<20)+`",`, 1))
	signed := header.Clone()
	signed.Set("X-Hub-Signature-256", "sha256="+hexMAC(sha256MAC(hookSecret, large)))
	if status, answer := h.post(t, hookPath(h.config, hookSecret), signed, large); status != http.StatusAccepted ||
		!strings.Contains(answer, `"resolving":1`) {
		t.Errorf("answered %d %.300s", status, answer)
	}
	if status, answer := h.post(t, "/v1/hooks/github/x", signed, large); status != http.StatusRequestEntityTooLarge {
		t.Errorf("a stranger was answered %d %.300s", status, answer)
	}
}

// TestVisibilityOfSenders: an organization sees its own hooks and tokens and, as long as it is the only one, those for all.
func TestVisibilityOfSenders(t *testing.T) {
	t.Parallel()
	file := secretFile(t, hookSecret)
	c := Config{
		Hooks: []HookConfig{
			{Name: "all", Source: "harbor", Secrets: []string{file}},
			{Name: "own", Source: "quay", Secrets: []string{file}, Organization: 1},
		},
	}
	names := func(c Config, organization int64) string {
		t.Helper()
		_, _, in := serveConfig(t, c)
		senders, err := answers{in.sources}.Senders(t.Context(), organization)
		if err != nil {
			t.Fatal(err)
		}
		var all []string
		for _, s := range senders {
			all = append(all, s.GetName())
		}
		return strings.Join(all, " ")
	}
	if got := names(c, 1); got != "all own" {
		t.Errorf("the only organization sees %q", got)
	}
	if got := names(c, 2); got != "" {
		t.Errorf("another organization sees %q", got)
	}
	c.ScopedTokens = []TokenConfig{shopCI(t, "r.example.com")}
	c.ScopedTokens[0].Organization = 2
	if got := names(c, 1); got != "own" {
		t.Errorf("one of two organizations sees %q", got)
	}
	if got := names(c, 2); got != "shop-ci" {
		t.Errorf("the other sees %q", got)
	}
}
