package doctor_test

import (
	"bytes"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/lockstep-cd/lockstep/pkg/bus"
	"github.com/lockstep-cd/lockstep/pkg/clock/clocktest"
	"github.com/lockstep-cd/lockstep/pkg/outbox"
	"github.com/lockstep-cd/lockstep/pkg/testkit/bustest"
	"github.com/lockstep-cd/lockstep/pkg/testkit/pgtest"
	"github.com/lockstep-cd/lockstep/tools/lockstep/doctor"
)

// There is a finding for each agent of the organization, with what is wrong with it, and for each environment.
func TestOrganization(t *testing.T) {
	t.Parallel()
	now := time.Now().UTC().Truncate(time.Second)
	ago := func(d time.Duration) string { return fmt.Sprintf("%q", now.Add(-d).Format(time.RFC3339)) }
	key := `[{"id":"k","publicKey":"U","createdAt":` + ago(time.Hour) + `}]`
	over := `[{"id":"k","publicKey":"U","createdAt":` + ago(time.Hour) + `,"expiresAt":` + ago(time.Minute) + `}]`
	agent := func(number int, connected bool, seen, revoked, keys, environments string) string {
		return fmt.Sprintf(`{"id":"agent_%[1]d","number":%[1]d,"name":"a%[1]d","createdAt":%[2]s,"connected":%[3]t,"lastSeenAt":%[4]s,"revokedAt":%[5]s,"keys":%[6]s,"environments":%[7]s}`,
			number, ago(time.Hour), connected, seen, revoked, keys, environments)
	}
	agents := strings.Join([]string{
		agent(1, true, ago(time.Second), "null", key, "[]"), agent(2, false, "null", "null", key, "[]"),
		agent(3, false, ago(2*time.Hour), "null", key, "[]"), agent(4, false, ago(time.Minute), "null", key, "[]"),
		agent(5, false, ago(time.Hour), ago(time.Hour), key, `[{"id":"e","name":"staging"}]`), agent(6, false, "null", ago(time.Hour), key, "[]"),
		agent(7, false, ago(time.Hour), "null", over, "[]"),
	}, ",")
	origins := []string{
		`{"origin":"built-in","drivers":["argo@1"]}`,
		`{"origin":"oci://r/well:1","digest":"sha256:aa","drivers":["shop@2"],"checkedAt":` + ago(time.Minute) + `}`,
		`{"origin":"oci://r/forgotten:1","digest":"sha256:aa","drivers":["shop@2"],"checkedAt":` + ago(25*time.Hour) + `}`,
		`{"origin":"oci://r/pinned@sha256:aa","digest":"sha256:aa","drivers":["shop@2"],"checkedAt":` + ago(2500*time.Hour) + `}`,
		`{"origin":"oci://r/away:1","digest":"sha256:aa","drivers":["shop@2"],"checkedAt":` + ago(time.Minute) +
			`,"problem":"oci://r/away:1: r cannot be reached; expected an answer","problemCode":"UNREACHABLE"}`,
		`{"origin":"oci://r/never:1","drivers":[],"problem":"not pulled yet","problemCode":"NOT_PULLED"}`,
		`{"origin":"oci://r/broken:1","digest":"sha256:aa","drivers":["shop@2"],"problem":"driver.yaml:3: found 2, not an integer","problemCode":"BROKEN"}`,
		`{"origin":"oci://r/changed:1","drivers":[],"problem":"oci://r/changed:1: found a layer of sha256:bb","problemCode":"ALTERED"}`,
		`{"origin":"oci://r/closed:1","drivers":[],"problem":"r expected a password","problemCode":"DENIED"}`,
		`{"origin":"oci://r/gone:1","drivers":[],"problem":"no such tag","problemCode":"NOT_FOUND"}`,
	}
	environments := `{"id":"e1","name":"staging","readiness":"READY","driverBindings":[{"version":1,"driverRef":"gone@1"},{"version":2,"driverRef":"argo@1"}]},` +
		`{"id":"e4","name":"legacy","readiness":"READY","driverBindings":[{"version":2,"driverRef":"gone@1"},{"version":1,"driverRef":"argo@1"}]},` + `{"id":"e2","name":"production","readiness":"NOT_READY","readinessReason":"Argo CD does not answer"},{"id":"e3","name":"new","readiness":"PENDING"}`
	page := `"pageInfo":{"hasNextPage":false,"endCursor":""}`
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		query, _ := io.ReadAll(r.Body)
		switch {
		case bytes.Contains(query, []byte("agents(")):
			fmt.Fprint(w, `{"data":{"agents":{"nodes":[`+agents+`],`+page+`}}}`)
		case bytes.Contains(query, []byte("driverOrigins")):
			fmt.Fprint(w, `{"data":{"drivers":[{"ref":"argo@1"},{"ref":"shop@2"}],"driverOrigins":[`+strings.Join(origins, ",")+`]}}`)
		case bytes.Contains(query, []byte("environments(")):
			fmt.Fprint(w, `{"data":{"environments":{"nodes":[`+environments+`],`+page+`}}}`)
		default:
			fmt.Fprint(w, typename)
		}
	}))
	t.Cleanup(api.Close)
	findings := doctor.Examine(t.Context(), doctor.Config{Endpoint: api.URL, Clock: clocktest.New(now)})
	expect(t, findings, "agent 1, a1", doctor.OK, "is connected")
	expect(t, findings, "agent 2, a2", doctor.Warning, "never connected")
	expect(t, findings, "agent 3, a3", doctor.Wrong, "seen 2h0m")
	expect(t, findings, "agent 4, a4", doctor.Warning, "seen 1m0")
	expect(t, findings, "agent 5, a5", doctor.Wrong, "is revoked, and environments name it: staging")
	expect(t, findings, "agent 7, a7", doctor.Wrong, "no key that is good")
	expect(t, findings, "environment staging", doctor.OK, "is ready")
	expect(t, findings, "environment production", doctor.Wrong, "Argo CD does not answer")
	expect(t, findings, "environment new", doctor.Warning, "is being checked")
	expect(t, findings, "drivers of built-in", doctor.OK, "argo@1")
	expect(t, findings, "drivers of oci://r/well:1", doctor.OK, "shop@2 of sha256:aa")
	expect(t, findings, "drivers of oci://r/pinned@sha256:aa", doctor.OK, "shop@2")
	expect(t, findings, "drivers of oci://r/forgotten:1", doctor.Warning, "asked last 25h")
	expect(t, findings, "driver of environment legacy", doctor.Wrong, "gone@1 is carried by nothing")
	for origin, want := range map[string]struct {
		state         doctor.State
		found, remedy string
	}{
		"away":    {doctor.Warning, "shop@2 of sha256:aa stay in force", "is the registry up"},
		"never":   {doctor.Wrong, "nothing is in force", "is the registry up"},
		"broken":  {doctor.Warning, "driver.yaml:3", "lockstep driver check"},
		"changed": {doctor.Wrong, "sha256:bb", "not that of its digest"},
		"closed":  {doctor.Wrong, "a password", "drivers.registries and their passwords"},
		"gone":    {doctor.Wrong, "no such tag", "the registry has nothing under that name"},
	} {
		f := finding(findings, "drivers of oci://r/"+origin+":1")
		if f.State != want.state || !strings.Contains(f.Found, want.found) || !strings.Contains(f.Remedy, want.remedy) {
			t.Errorf("drivers of %s: %+v, want %+v", origin, f, want)
		}
	}
	for _, f := range findings {
		if f.Check == "driver of environment staging" {
			t.Errorf("there is a finding about a driver that is carried: %+v", f)
		}
		if strings.HasPrefix(f.Check, "agent 6") {
			t.Errorf("there is a finding about a revoked agent that nobody names: %+v", f)
		}
	}
	// Whose token is refused sees no agents, and hears of the token alone.
	if got := doctor.Examine(t.Context(), doctor.Config{Endpoint: answers(t, 401, "no", nil)}); len(got) != 2 {
		t.Errorf("a refused token: got %+v, want the clock and the token", got)
	}
}

// Certificates of further servers are looked at, and so is whether they are trusted.
func TestCertificatesOfServers(t *testing.T) {
	t.Parallel()
	s := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(s.Close)
	address := strings.TrimPrefix(s.URL, "https://")
	trusting := doctor.Config{TLS: map[string]string{"webhooks": address}, HTTP: s.Client()}
	expect(t, doctor.Examine(t.Context(), trusting), "certificate of webhooks", doctor.OK,
		s.Certificate().NotAfter.UTC().Format(time.DateOnly))
	stranger := doctor.Config{TLS: map[string]string{"webhooks": address, "workflow": strings.TrimPrefix(answers(t, 200, "", nil), "http://")}}
	findings := doctor.Examine(t.Context(), stranger)
	expect(t, findings, "certificate of webhooks", doctor.Wrong, x509.UnknownAuthorityError{}.Error())
	expect(t, findings, "certificate of workflow", doctor.Wrong, "tls")
}

// Events that a service refused permanently are reported for a week.
func TestRefusedEvents(t *testing.T) {
	t.Parallel()
	pool, c := pgtest.New(t, pgtest.Migration{Name: "outbox", FS: outbox.Migrations()})
	examine := func() []doctor.Finding {
		return doctor.Examine(t.Context(), doctor.Config{DatabaseURL: c.URL, Schemas: []string{c.Schema}})
	}
	check := "refused events of schema " + c.Schema
	for _, id := range []string{"old", "new"} {
		if _, err := pool.Exec(t.Context(), `INSERT INTO inbox (source, event_id, claimed_at, rejected_reason)
			VALUES ('/ci', $1, now() - CASE WHEN $1 = 'old' THEN interval '8 days' ELSE interval '1 hour' END, 'environment 7 does not exist')`,
			id); err != nil {
			t.Fatal(err)
		}
		if id == "old" {
			expect(t, examine(), check, doctor.OK, "none within a week")
		}
	}
	expect(t, examine(), check, doctor.Warning, "1 within a week, the last one /ci new: environment 7 does not exist")
}

// A stream that is nearly full is reported before it drops what nobody has read.
func TestAStreamIsNearlyFull(t *testing.T) {
	t.Parallel()
	s := bustest.ServerWith(t, bustest.Unrestricted("operator"))
	c := s.Config("operator")
	js := s.JetStream(t, "operator")
	const room = 1 << 20
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: bus.StreamDomain, Subjects: []string{"cd.domain.>"},
		MaxBytes: room,
	}); err != nil {
		t.Fatal(err)
	}
	for range 9 {
		if _, err := js.Publish(t.Context(), "cd.domain.1.a.b", make([]byte, room/10)); err != nil {
			t.Fatal(err)
		}
	}
	findings := doctor.Examine(t.Context(), doctor.Config{NATSURL: s.URL(), NATSUser: "operator", NATSPassword: c.Password})
	expect(t, findings, "stream DOMAIN", doctor.Warning, "of the 1 MB that it may have")
}

// A service of another release works, and is reported.
func TestReleases(t *testing.T) {
	t.Parallel()
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := `{"status":"ok","checks":{}}`
		if r.URL.Path == "/version" {
			body = `{"version":"v1.2.3"}`
		}
		fmt.Fprint(w, body)
	}))
	t.Cleanup(service.Close)
	for version, want := range map[string]doctor.State{"v1.2.3": doctor.OK, "v1.3.0": doctor.Warning, "": doctor.OK} {
		findings := doctor.Examine(t.Context(), doctor.Config{Health: map[string]string{"domain": service.URL}, Version: version})
		expect(t, findings, "service domain", want, "version v1.2.3")
	}
}
