package telemetry_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/telemetry"
)

const sampleTrace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

func TestLoggerWritesTheTraceOfTheContext(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	log := telemetry.Logger(&out, "info").With(telemetry.KeyService, "workflow")
	ctx := telemetry.WithTraceParent(t.Context(), sampleTrace)
	log.DebugContext(ctx, "hidden")
	log.InfoContext(ctx, "handled", slog.Int(telemetry.KeyRollout, 12), telemetry.Milliseconds(telemetry.KeyDuration, 1500*time.Microsecond))
	var line map[string]any
	if err := json.Unmarshal(out.Bytes(), &line); err != nil {
		t.Fatalf("not one line of JSON: %v\n%s", err, out.String())
	}
	delete(line, "time")
	want := map[string]any{
		"level": "INFO", "msg": "handled", "service": "workflow", "rollout": 12.0, "duration_ms": 1.5,
		"trace_id": "4bf92f3577b34da6a3ce929d0e0e4736", "span_id": "00f067aa0ba902b7",
	}
	if diff := cmp.Diff(want, line); diff != "" {
		t.Errorf("line (-want +got):\n%s", diff)
	}
}

func TestLevels(t *testing.T) {
	t.Parallel()
	for level, want := range map[string]int{"debug": 4, "info": 3, "": 3, "nonsense": 3, "WARN": 2, "error": 1} {
		var out bytes.Buffer
		log := telemetry.Logger(&out, level)
		log.DebugContext(t.Context(), "d")
		log.InfoContext(t.Context(), "i")
		log.WarnContext(t.Context(), "w")
		log.ErrorContext(t.Context(), "e")
		if got := strings.Count(out.String(), "\n"); got != want {
			t.Errorf("level %q writes %d lines, want %d", level, got, want)
		}
		problems := telemetry.CheckLevel("log_level", level)
		if bad := level == "nonsense"; bad != (len(problems) == 1 && problems[0].Name == "log_level") || !bad && len(problems) > 0 {
			t.Errorf("level %q: problems %v", level, problems)
		}
	}
}

func TestTraceTravelsInsideAnEvent(t *testing.T) {
	t.Parallel()
	var e event.Event
	telemetry.InjectTrace(t.Context(), &e)
	if got := event.Extension(e, event.ExtensionTraceParent); got != "" {
		t.Errorf("a context without trace gives %q", got)
	}
	e = event.Event{}
	e.SetSpecVersion("1.0")
	telemetry.InjectTrace(telemetry.WithTraceParent(t.Context(), sampleTrace), &e)
	if got := event.Extension(e, event.ExtensionTraceParent); got != sampleTrace {
		t.Errorf("traceparent = %q, want %q", got, sampleTrace)
	}
	if got := telemetry.TraceParent(telemetry.ExtractTrace(t.Context(), e)); got != sampleTrace {
		t.Errorf("extracted %q, want %q", got, sampleTrace)
	}
	telemetry.InjectTrace(telemetry.EnsureTrace(t.Context()), &e)
	if got := event.Extension(e, event.ExtensionTraceParent); got != sampleTrace {
		t.Errorf("sending the event again changed its trace to %q", got)
	}
}

func TestMalformedTraceIsIgnored(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"", "x", "00-00000000000000000000000000000000-00f067aa0ba902b7-01"} {
		if got := telemetry.TraceParent(telemetry.WithTraceParent(t.Context(), bad)); got != "" {
			t.Errorf("%q gives the trace %q", bad, got)
		}
	}
}

func TestEnsureTraceKeepsOne(t *testing.T) {
	t.Parallel()
	ctx := telemetry.EnsureTrace(t.Context())
	tp := telemetry.TraceParent(ctx)
	if tp == "" || telemetry.TraceParent(telemetry.EnsureTrace(ctx)) != tp {
		t.Errorf("trace %q was not kept", tp)
	}
}

func TestHealth(t *testing.T) {
	t.Parallel()
	away := fault.New(fault.Unavailable, "nats is not connected")
	ok := func(context.Context) error { return nil }
	tests := []struct {
		name, path string
		checks     map[string]func(context.Context) error
		status     int
		body       string
	}{
		{"runs", "/healthz", map[string]func(context.Context) error{"nats": func(context.Context) error { return away }}, 200, `{"status":"ok"}`},
		{
			"ready", "/readyz",
			map[string]func(context.Context) error{"nats": ok, "database": ok},
			200,
			`{"status":"ok","checks":{"database":"ok","nats":"ok"}}`,
		},
		{
			"not ready", "/readyz",
			map[string]func(context.Context) error{"nats": func(context.Context) error { return away }, "database": ok},
			503,
			`{"status":"not ready","checks":{"database":"ok","nats":"nats is not connected"}}`,
		},
		{
			"no internals", "/readyz",
			map[string]func(context.Context) error{"database": func(context.Context) error { return errors.New("hunter2") }},
			503,
			`{"status":"not ready","checks":{"database":"internal error"}}`,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			rec := httptest.NewRecorder()
			telemetry.Health(tt.checks).ServeHTTP(rec, httptest.NewRequestWithContext(t.Context(), http.MethodGet, tt.path, nil))
			if rec.Code != tt.status || strings.TrimSpace(rec.Body.String()) != tt.body {
				t.Errorf("%s answers %d %s, want %d %s", tt.path, rec.Code, rec.Body, tt.status, tt.body)
			}
		})
	}
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	c := prometheus.NewCounter(prometheus.CounterOpts{Name: "lockstep_turns_total", Help: "Turns."})
	c.Add(3)
	rec := httptest.NewRecorder()
	telemetry.Health(nil, c).ServeHTTP(rec, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	for _, want := range []string{"lockstep_turns_total 3", "go_goroutines"} {
		if !strings.Contains(rec.Body.String(), want) {
			t.Errorf("/metrics lacks %q", want)
		}
	}
}

func TestEveryHealthShowsWhatTheProcessCounts(t *testing.T) {
	t.Parallel()
	name := rand.Text() // the counters belong to the process, which may run the test more than once
	end := telemetry.RequestStarted(name)
	telemetry.ObserveRequest(telemetry.ProtocolHTTP, name, "200", 20*time.Millisecond)
	telemetry.ObserveEvent(name, "com.gitlab.cd.test", "acknowledged", time.Second, time.Minute)
	scrape := func() string {
		rec := httptest.NewRecorder()
		telemetry.Health(nil).ServeHTTP(rec, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
		return rec.Body.String()
	}
	first := scrape()
	for _, want := range []string{
		`lockstep_requests_in_flight{protocol="` + name + `"} 1`,
		`lockstep_request_duration_seconds_bucket{method="` + name + `",protocol="http",status="200",le="0.025"} 1`,
		`lockstep_event_duration_seconds_count{consumer="` + name + `",outcome="acknowledged",type="com.gitlab.cd.test"} 1`,
		`lockstep_event_age_seconds_sum{consumer="` + name + `"} 60`,
		`lockstep_build_info{commit=`,
	} {
		if !strings.Contains(first, want) {
			t.Errorf("/metrics lacks %s", want)
		}
	}
	end()
	if want := `lockstep_requests_in_flight{protocol="` + name + `"} 0`; !strings.Contains(scrape(), want) {
		t.Errorf("/metrics lacks %s", want)
	}
}

func TestVersion(t *testing.T) {
	t.Parallel()
	rec := httptest.NewRecorder()
	telemetry.Health(nil).ServeHTTP(rec, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/version", nil))
	var got map[string]string
	if err := json.Unmarshal(rec.Body.Bytes(), &got); err != nil || got["version"] == "" || got["commit"] == "" || got["go"] == "" {
		t.Errorf("/version answers %s, %v", rec.Body, err)
	}
}
