package doctor_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/lockstep-cd/lockstep/pkg/bus"
	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/clock/clocktest"
	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/outbox"
	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/pkg/testkit/bustest"
	"github.com/lockstep-cd/lockstep/pkg/testkit/pgtest"
	"github.com/lockstep-cd/lockstep/tools/lockstep/doctor"
)

// expect looks for one finding.
func expect(t *testing.T, findings []doctor.Finding, check string, state doctor.State, text string) {
	t.Helper()
	for _, f := range findings {
		if f.Check == check && f.State == state && strings.Contains(f.Found, text) {
			if (f.Remedy == "") != (state == doctor.OK) {
				t.Errorf("%s is %s with the remedy %q; whatever is not well has one", check, state, f.Remedy)
			}
			return
		}
	}
	t.Errorf("found no %q that is %s with %q in\n%+v", check, state, text, findings)
}

// answers is a server that always says the same.
func answers(t *testing.T, status int, body string, header map[string]string) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for k, v := range header {
			w.Header().Set(k, v)
		}
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body)) // the client may have gone
	}))
	t.Cleanup(s.Close)
	return s.URL
}

const typename = `{"data":{"__typename":"Query"}}`

// TestIsolation has a service say how far the processes are confined that run programs.
func TestIsolation(t *testing.T) {
	t.Parallel()
	service := func(metrics string) string {
		mux := http.NewServeMux()
		mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"status":"ok"}`)) })
		mux.HandleFunc("/metrics", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(metrics)) })
		s := httptest.NewServer(mux)
		t.Cleanup(s.Close)
		return s.URL
	}
	const family = "# TYPE lockstep_workflow_sandbox_isolation gauge\nlockstep_workflow_sandbox_isolation"
	for name, tt := range map[string]struct {
		metrics string
		state   doctor.State
		text    string
	}{
		"all layers": {family + `{layer="landlock",missing=""} 1` + "\n", doctor.OK, "no network"},
		"one missing": {
			family + `{layer="landlock",missing="the kernel has no Landlock"} 0` + "\n", doctor.Warning,
			"landlock: the kernel has no Landlock",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			findings := doctor.Examine(t.Context(), doctor.Config{Health: map[string]string{"workflow": service(tt.metrics)}})
			expect(t, findings, "sandbox of workflow", tt.state, tt.text)
		})
	}
	for _, f := range doctor.Examine(t.Context(), doctor.Config{Health: map[string]string{"domain": service("up 1\n")}}) {
		if strings.HasPrefix(f.Check, "sandbox") {
			t.Errorf("a service without a sandbox has %+v", f)
		}
	}
}

func TestAPI(t *testing.T) {
	t.Parallel()
	late := time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat)
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	tests := []struct {
		name, endpoint, check string
		state                 doctor.State
		text                  string
	}{
		{"well", answers(t, 200, typename, nil), "api", doctor.OK, "takes the token"},
		{"its clock is right", answers(t, 200, typename, nil), "clock of the api", doctor.OK, "within"},
		{"its clock is wrong", answers(t, 200, typename, map[string]string{"Date": late}), "clock of the api", doctor.Wrong, "1h"},
		{"the token is wrong", answers(t, 401, "no", nil), "api", doctor.Wrong, "token is refused"},
		{"another address", answers(t, 200, "<html>", nil), "api", doctor.Wrong, "<html>"},
		{"nothing listens", gone.URL, "api", doctor.Wrong, "refused"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			expect(t, doctor.Examine(t.Context(), doctor.Config{Endpoint: tt.endpoint}), tt.check, tt.state, tt.text)
		})
	}
}

func TestCertificate(t *testing.T) {
	t.Parallel()
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["Date"] = nil // the test turns our own clock
		_, _ = w.Write([]byte(typename))
	}))
	t.Cleanup(s.Close)
	ends := s.Certificate().NotAfter
	at := func(when time.Time) []doctor.Finding {
		return doctor.Examine(t.Context(), doctor.Config{Endpoint: s.URL, HTTP: s.Client(), Clock: clocktest.New(when)})
	}
	expect(t, at(ends.Add(-30*24*time.Hour)), "certificate of the api", doctor.OK, ends.UTC().Format(time.DateOnly))
	expect(t, at(ends.Add(-20*24*time.Hour)), "certificate of the api", doctor.Warning, ends.UTC().Format(time.DateOnly))

	stranger := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12}}}
	findings := doctor.Examine(t.Context(), doctor.Config{Endpoint: s.URL, HTTP: stranger})
	expect(t, findings, "api", doctor.Wrong, "certificate")
	if !strings.Contains(findings[0].Remedy, "authority") {
		t.Errorf("remedy %q does not speak of the certificate", findings[0].Remedy)
	}
}

func TestHealth(t *testing.T) {
	t.Parallel()
	findings := doctor.Examine(t.Context(), doctor.Config{Health: map[string]string{
		"domain":   answers(t, 200, `{"status":"ok","checks":{"database":"ok"}}`, nil),
		"workflow": answers(t, 503, `{"status":"not ready","checks":{"bus":"nats is not connected","database":"ok"}}`, nil),
		"registry": answers(t, 404, "page not found", nil),
		"relay":    "http://127.0.0.1:1",
	}})
	expect(t, findings, "service domain", doctor.OK, "ready")
	expect(t, findings, "service workflow", doctor.Wrong, "bus: nats is not connected")
	expect(t, findings, "service registry", doctor.Wrong, "404")
	expect(t, findings, "service relay", doctor.Wrong, "refused")
	if doctor.Worst(findings) != doctor.Wrong || doctor.Worst(findings[:2]) != doctor.OK {
		t.Errorf("worst of %+v", findings)
	}
}

func TestDatabase(t *testing.T) {
	t.Parallel()
	_, c := pgtest.New(t, pgtest.Migration{Name: "things", FS: fstest.MapFS{
		"0001_thing.sql": {Data: []byte("-- +goose Up\nCREATE TABLE thing (id int);\n-- +goose Down\nDROP TABLE thing;\n")},
	}})
	findings := doctor.Examine(t.Context(), doctor.Config{DatabaseURL: c.URL, Schemas: []string{c.Schema, "not_there"}})
	expect(t, findings, "database", doctor.OK, "PostgreSQL")
	expect(t, findings, "clock of the database", doctor.OK, "within")
	expect(t, findings, "connections of the database", doctor.OK, "used")
	expect(t, findings, "tables of schema "+c.Schema, doctor.OK, "things is at 1")
	expect(t, findings, "tables of schema not_there", doctor.Wrong, "none")

	hour := clocktest.New(time.Now().Add(time.Hour))
	expect(t, doctor.Examine(t.Context(), doctor.Config{DatabaseURL: c.URL, Clock: hour}), "clock of the database", doctor.Wrong, "1h")
	if err := pg.Rollback(t.Context(), c, "things", fstest.MapFS{
		"0001_thing.sql": {Data: []byte("-- +goose Up\nCREATE TABLE thing (id int);\n-- +goose Down\nDROP TABLE thing;\n")},
	}, 0); err != nil {
		t.Fatal(err)
	}
	expect(t, doctor.Examine(t.Context(), doctor.Config{DatabaseURL: c.URL, Schemas: []string{c.Schema}}), "tables of schema "+c.Schema,
		doctor.Wrong, "not finished")

	away := doctor.Examine(t.Context(), doctor.Config{DatabaseURL: "postgres://me:hunter2@127.0.0.1:1/x"})
	expect(t, away, "database", doctor.Wrong, "")
	if strings.Contains(away[0].Found, "hunter2") {
		t.Errorf("the password is shown: %s", away[0].Found)
	}
}

// TestTablesAndOutboxes: tables that are behind or ahead of the release, and events that wait too long.
func TestTablesAndOutboxes(t *testing.T) {
	t.Parallel()
	pool, c := pgtest.New(t, pgtest.Migration{Name: "outbox", FS: outbox.Migrations()})
	newest, err := pg.Newest(outbox.Migrations())
	if err != nil || newest == 0 {
		t.Fatalf("newest migration %d, %v", newest, err)
	}
	examine := func(release int64) []doctor.Finding {
		return doctor.Examine(t.Context(), doctor.Config{
			DatabaseURL: c.URL, Schemas: []string{c.Schema},
			Newest: map[string]int64{"outbox": release},
		})
	}
	expect(t, examine(newest), "tables of schema "+c.Schema, doctor.OK, "outbox is at")
	expect(t, examine(newest), "outbox of schema "+c.Schema, doctor.OK, "0 events wait")
	expect(t, examine(newest+1), "tables of schema "+c.Schema, doctor.Wrong, "this release has")
	expect(t, examine(newest-1), "tables of schema "+c.Schema, doctor.Warning, "this release has")
	add := func(id, age string) {
		t.Helper()
		if _, err := pool.Exec(t.Context(), `INSERT INTO outbox (source, event_id, event, receipted, added_at, last_error)
			VALUES ('/test', $1, '{}', true, now() - $2::interval, 'nats cannot be reached')`, id, age); err != nil {
			t.Fatal(err)
		}
	}
	add("fresh", "0 seconds")
	expect(t, examine(newest), "outbox of schema "+c.Schema, doctor.OK, "1 events wait")
	add("late", "2 hours")
	expect(t, examine(newest), "outbox of schema "+c.Schema, doctor.Warning, "the oldest for 2h0m")
	expect(t, examine(newest), "outbox of schema "+c.Schema, doctor.Warning, "nats cannot be reached")
}

func TestBus(t *testing.T) {
	t.Parallel()
	s := bustest.Server(t)
	as := func(user string) doctor.Config {
		c := s.Config(user)
		return doctor.Config{NATSURL: s.URL(), NATSUser: user, NATSPassword: c.Password}
	}
	workflow := as(bus.UserWorkflow)
	wrong := workflow
	wrong.NATSPassword = "guessed"
	expect(t, doctor.Examine(t.Context(), wrong), "nats", doctor.Wrong, "uthorization")
	expect(t, doctor.Examine(t.Context(), doctor.Config{NATSURL: "nats://127.0.0.1:1"}), "nats", doctor.Wrong, "no servers")
	expect(t, doctor.Examine(t.Context(), workflow), "stream DOMAIN", doctor.Wrong, "is not there")

	conn := s.Connect(t, bus.UserWorkflow)
	if err := conn.Apply(t.Context(), bus.Topology{
		Streams:   []bus.Stream{bus.DomainStream()},
		Consumers: []bus.Consumer{{Stream: bus.StreamDomain, Durable: bus.UserWorkflow}},
	}); err != nil {
		t.Fatal(err)
	}
	findings := doctor.Examine(t.Context(), workflow)
	expect(t, findings, "nats", doctor.OK, "takes the account workflow")
	expect(t, findings, "stream DOMAIN", doctor.OK, "0 events")
	expect(t, findings, "consumer workflow of DOMAIN", doctor.OK, "0 events wait")
	expect(t, findings, "consumer domain of DOMAIN", doctor.Wrong, "is not there")
}

func TestBusInMemory(t *testing.T) {
	t.Parallel()
	s := bustest.ServerWith(t, bustest.Unrestricted("operator"))
	c := s.Config("operator")
	js := s.JetStream(t, "operator")
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: bus.StreamDomain, Subjects: []string{"cd.domain.>"},
		Storage: jetstream.MemoryStorage,
	}); err != nil {
		t.Fatal(err)
	}
	expect(t, doctor.Examine(t.Context(), doctor.Config{NATSURL: s.URL(), NATSUser: "operator", NATSPassword: c.Password}), "stream DOMAIN",
		doctor.Wrong, "in memory")
}

func TestAgents(t *testing.T) {
	t.Parallel()
	s := bustest.Server(t)
	c := s.Config(bus.UserWorkflow)
	nc := s.Raw(t, bus.RelayUser(42))
	beat := func(reachable bool) func() {
		text, err := json.Marshal(map[string]any{"data": event.AgentHeartbeat{
			AgentID: 42, Version: "1.2.3", ClusterReachable: reachable,
			Message: "no route",
		}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			for clock.Sleep(ctx, clock.System(), 10*time.Millisecond) == nil {
				_ = nc.Publish("cd.cluster.42.heartbeat", text) // the connection may be closing
			}
		}()
		return func() {
			cancel()
			<-done
			_ = nc.Flush() // what is still on its way is heard by nobody who listens later
		}
	}
	examine := func(listen time.Duration, agents ...int64) []doctor.Finding {
		return doctor.Examine(t.Context(), doctor.Config{
			NATSURL: s.URL(), NATSUser: bus.UserWorkflow, NATSPassword: c.Password, Agents: agents, Listen: listen,
		})
	}
	// Who has heard everybody listens no longer.
	stop := beat(true)
	expect(t, examine(time.Minute, 42), "agent 42", doctor.OK, "1.2.3")
	expect(t, examine(time.Second, 42, 43), "agent 43", doctor.Wrong, "not heard")
	stop()
	stop = beat(false)
	expect(t, examine(time.Minute, 42), "agent 42", doctor.Wrong, "no route")
	stop()
}
