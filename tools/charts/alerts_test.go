package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"

	"github.com/lockstep-cd/lockstep/pkg/bus"
	"github.com/lockstep-cd/lockstep/pkg/gitfetch"
	"github.com/lockstep-cd/lockstep/pkg/outbox"
	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/pkg/telemetry"
	"github.com/lockstep-cd/lockstep/pkg/testkit/chartvalues"
	"github.com/lockstep-cd/lockstep/services/domain"
	"github.com/lockstep-cd/lockstep/services/workflow"
)

// rules returns the alerts, as Prometheus reads them.
func rules(t *testing.T) map[string]rulefmt.Rule {
	t.Helper()
	groups, errs := rulefmt.ParseFile(filepath.Join(root, "deploy/prometheus/alerts.yaml"), false, model.UTF8Validation)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	all := map[string]rulefmt.Rule{}
	for _, g := range groups.Groups {
		for _, r := range g.Rules {
			all[r.Alert] = r
		}
	}
	return all
}

// well is an hour of an installation without faults.
const well = `
up{job="lockstep-domain-health", instance="a"} 1x90
lockstep_request_duration_seconds_count{job="lockstep-domain-health", protocol="http", method="POST", status="200"} 0+600x90
lockstep_request_duration_seconds_count{job="lockstep-domain-health", protocol="http", method="POST", status="503"} 0+1x90
lockstep_request_duration_seconds_bucket{job="lockstep-domain-health", protocol="http", method="POST", status="200", le="0.1"} 0+600x90
lockstep_request_duration_seconds_bucket{job="lockstep-domain-health", protocol="http", method="POST", status="200", le="+Inf"} 0+600x90
lockstep_event_duration_seconds_count{job="lockstep-domain-health", consumer="domain", type="com.gitlab.cd.rollout.healthy", outcome="acknowledged"} 0+1x90
lockstep_event_duration_seconds_count{job="lockstep-domain-health", consumer="domain", type="com.gitlab.cd.rollout.failed", outcome="acknowledged"} 0x90
lockstep_event_duration_seconds_count{job="lockstep-domain-health", consumer="domain", type="com.gitlab.cd.rollout.healthy", outcome="retried"} 0x90
lockstep_event_duration_seconds_count{job="lockstep-domain-health", consumer="domain", type="com.gitlab.cd.rollout.healthy", outcome="terminated"} 0x90
lockstep_event_duration_seconds_count{job="lockstep-workflow-health", consumer="workflow", type="com.gitlab.cd.agent.heartbeat", outcome="acknowledged"} 0+12x90
lockstep_event_age_seconds_bucket{job="lockstep-domain-health", consumer="domain", le="1"} 0+10x90
lockstep_event_age_seconds_bucket{job="lockstep-domain-health", consumer="domain", le="300"} 0+10x90
lockstep_event_age_seconds_bucket{job="lockstep-domain-health", consumer="domain", le="+Inf"} 0+10x90
lockstep_outbox_oldest_event_age_seconds{job="lockstep-domain-health"} 1x90
lockstep_outbox_waiting_lanes{job="lockstep-domain-health"} 0x90
lockstep_database_connections{job="lockstep-domain-health", instance="a", state="used"} 3x90
lockstep_database_connections_max{job="lockstep-domain-health", instance="a"} 16x90
lockstep_delivery_ended{job="lockstep-domain-health", application="shop", environment="live", tier="production"} 10x90
lockstep_delivery_failures{job="lockstep-domain-health", application="shop", environment="live", tier="production"} 2x90
lockstep_delivery_unrecovered{job="lockstep-domain-health", application="shop", environment="live", tier="production"} 0x90
lockstep_delivery_refreshed_timestamp_seconds{job="lockstep-domain-health"} 0+60x90
lockstep_break_glass_last_timestamp_seconds{job="lockstep-domain-health"} 0x90
lockstep_passage_breaches_total{job="lockstep-domain-health"} 1x90
lockstep_journal_check_problems{job="lockstep-domain-health"} 0x90
lockstep_archived_runs_total{job="lockstep-workflow-health", outcome="failed"} 0x90
lockstep_notifications_total{outcome="failed", job="lockstep-domain-health"} 2x90
lockstep_notification_oldest_due_age_seconds{job="lockstep-domain-health"} 10x90
lockstep_agent_heartbeat_age_seconds{job="lockstep-workflow-health", agent="1"} 3x90
lockstep_agent_heartbeat_age_seconds{job="lockstep-workflow-health", agent="2"} 4x90
lockstep_agent_cluster_reachable{job="lockstep-workflow-health", agent="1"} 1x90
lockstep_agent_cluster_reachable{job="lockstep-workflow-health", agent="2"} 1x90
lockstep_nats_connected{job="lockstep-workflow-health", instance="a"} 1x90
lockstep_nats_connected{job="lockstep-domain-health", instance="b"} 1x90
lockstep_runs_oldest_runnable_age_seconds{job="lockstep-workflow-health"} 900x90
lockstep_places_used{job="lockstep-workflow-health", kind="runs"} 3x90
lockstep_places_max{job="lockstep-workflow-health", kind="runs"} 1024x90
lockstep_runs_quarantined_total{job="lockstep-workflow-health"} 2x90
lockstep_handoffs_oldest_age_seconds{job="lockstep-domain-health"} 0x90
lockstep_limit_used{job="lockstep-workflow-health", instance="a", organization="1", limit="open_runs"} 50x90
lockstep_limit_max{job="lockstep-workflow-health", instance="a", organization="1", limit="open_runs"} 100x90
process_resident_memory_bytes{job="lockstep-workflow-health", instance="a"} 500000000x90
go_gc_gomemlimit_bytes{job="lockstep-workflow-health", instance="a"} 966367641x90
process_resident_memory_bytes{job="lockstep-domain-health", instance="b"} 500000000x90
go_gc_gomemlimit_bytes{job="lockstep-domain-health", instance="b"} 9.223372036854776e+18x90
`

// faults maps each alert to the series, different from those of well, on which it should fire.
func faults() map[string][][2]string {
	return map[string][][2]string{
		"LockstepDown": {{
			"up{job=\"lockstep-domain-health\", instance=\"a\"} 1x90",
			"up{job=\"lockstep-domain-health\", instance=\"a\"} 0x90",
		}},
		"LockstepRequestsFail": {{`status="503"} 0+1x90`, `status="503"} 0+60x90`}},
		"LockstepRequestsSlow": {
			{`le="0.1"} 0+600x90`, `le="0.1"} 0+500x90`},
			{`status="200", le="+Inf"}`, `status="200", le="5"} 0+600x90` + "\n" +
				`lockstep_request_duration_seconds_bucket{job="lockstep-domain-health", protocol="http", method="POST", status="200", le="+Inf"}`},
		},
		"LockstepEventsGivenUp": {{`outcome="terminated"} 0x90`, `outcome="terminated"} 0+1x90`}},
		"LockstepEventsRetried": {{`outcome="retried"} 0x90`, `outcome="retried"} 0+5x90`}},
		"LockstepEventsLate":    {{`le="1"} 0+10x90`, `le="1"} 0x90`}},
		"LockstepOutboxStuck": {{
			`event_age_seconds{job="lockstep-domain-health"} 1x90`,
			`event_age_seconds{job="lockstep-domain-health"} 0+60x90`,
		}},
		"LockstepOutboxLanesWait": {{
			`waiting_lanes{job="lockstep-domain-health"} 0x90`,
			`waiting_lanes{job="lockstep-domain-health"} 2x90`,
		}},
		"LockstepDatabaseConnectionsTaken": {{`state="used"} 3x90`, `state="used"} 16x90`}},
		"LockstepAgentAway":                {{`agent="2"} 4x90`, `agent="2"} 0+60x90`}},
		"LockstepClusterUnreachable": {{
			`cluster_reachable{job="lockstep-workflow-health", agent="2"} 1x90`,
			`cluster_reachable{job="lockstep-workflow-health", agent="2"} 0x90`,
		}},
		"LockstepNATSDisconnected": {{
			`connected{job="lockstep-domain-health", instance="b"} 1x90`,
			`connected{job="lockstep-domain-health", instance="b"} 0x90`,
		}},
		"LockstepRunsWait": {{`kind="runs"} 3x90`, `kind="runs"} 1024x90`}},
		"LockstepRunsQuarantined": {{
			`quarantined_total{job="lockstep-workflow-health"} 2x90`,
			`quarantined_total{job="lockstep-workflow-health"} 2x60 3x29`,
		}},
		"LockstepHandoffsStuck": {{
			`handoffs_oldest_age_seconds{job="lockstep-domain-health"} 0x90`,
			`handoffs_oldest_age_seconds{job="lockstep-domain-health"} 0+60x90`,
		}},
		"LockstepMemoryNearLimit": {{
			`process_resident_memory_bytes{job="lockstep-workflow-health", instance="a"} 500000000x90`,
			`process_resident_memory_bytes{job="lockstep-workflow-health", instance="a"} 950000000x90`,
		}},
		"LockstepNoHeartbeats": {{`outcome="acknowledged"} 0+12x90`, `outcome="acknowledged"} 7x90`}},
		"LockstepChangesFail":  {{`tier="production"} 2x90`, `tier="production"} 6x90`}},
		"LockstepNotRecovered": {{`tier="production"} 0x90`, `tier="production"} 1x90`}},
		"LockstepBreakGlass": {{
			`glass_last_timestamp_seconds{job="lockstep-domain-health"} 0x90`,
			`glass_last_timestamp_seconds{job="lockstep-domain-health"} 4800x90`,
		}},
		"LockstepJournalChanged": {{
			`check_problems{job="lockstep-domain-health"} 0x90`,
			`check_problems{job="lockstep-domain-health"} 1x90`,
		}},
		"LockstepPassageBreach": {{
			`breaches_total{job="lockstep-domain-health"} 1x90`,
			`breaches_total{job="lockstep-domain-health"} 1+1x90`,
		}},
		"LockstepOrganizationNearLimit": {{`organization="1", limit="open_runs"} 50x90`, `organization="1", limit="open_runs"} 95x90`}},
		"LockstepArchiveFails":          {{`outcome="failed"} 0x90`, `outcome="failed"} 0+1x90`}},
		"LockstepNotificationsFail": {{
			`outcome="failed", job="lockstep-domain-health"} 2x90`, `outcome="failed", job="lockstep-domain-health"} 2+1x90`,
		}},
		"LockstepNotificationsLate": {{
			`due_age_seconds{job="lockstep-domain-health"} 10x90`, `due_age_seconds{job="lockstep-domain-health"} 0+60x90`,
		}},
		"LockstepDeliveryMetricsOld": {{
			`refreshed_timestamp_seconds{job="lockstep-domain-health"} 0+60x90`,
			`refreshed_timestamp_seconds{job="lockstep-domain-health"} 0x90`,
		}},
		"LockstepRolloutsFail": {{`rollout.failed", outcome="acknowledged"} 0x90`, `rollout.failed", outcome="acknowledged"} 0+2x90`}},
	}
}

// TestAlerts: without faults no alert fires; each fires on its own fault, and has a paragraph in the documentation.
func TestAlerts(t *testing.T) {
	t.Parallel()
	guide, err := os.ReadFile(filepath.Join(root, "docs/how-to/respond-to-alerts.md"))
	if err != nil {
		t.Fatal(err)
	}
	all := rules(t)
	if diff := cmp.Diff(slices.Sorted(maps.Keys(faults())), slices.Sorted(maps.Keys(all))); diff != "" {
		t.Fatalf("alerts (-with a fault +in the file):\n%s", diff)
	}
	for name, rule := range all {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if fires(t, rule, well) {
				t.Error("fires when all is well")
			}
			spoiled := well
			for _, f := range faults()[name] {
				if !strings.Contains(spoiled, f[0]) {
					t.Fatalf("found no %s to spoil", f[0])
				}
				spoiled = strings.Replace(spoiled, f[0], f[1], 1)
			}
			if !fires(t, rule, spoiled) {
				t.Error("does not fire")
			}
			if !strings.Contains(string(guide), "\n### "+name+"\n") ||
				!strings.HasSuffix(rule.Annotations["runbook_url"], "docs/how-to/respond-to-alerts.md#"+strings.ToLower(name)) {
				t.Errorf("has no paragraph in docs/how-to/respond-to-alerts.md, or its link does not lead there: %s", rule.Annotations["runbook_url"])
			}
			if s := rule.Labels["severity"]; s != "warning" && s != "critical" || rule.Annotations["summary"] == "" {
				t.Errorf("severity %q, summary %q", s, rule.Annotations["summary"])
			}
		})
	}
}

// fires reports whether an alert is firing after an hour and a half of series, one sample a minute: its expression has been true for the
// required time.
func fires(t *testing.T, rule rulefmt.Rule, series string) bool {
	t.Helper()
	storage := promqltest.LoadedStorage(t, "load 1m\n"+indent(series))
	t.Cleanup(func() { _ = storage.Close() })
	engine := promqltest.NewTestEngine(t, false, 0, promqltest.DefaultMaxSamplesPerQuery)
	end := time.Unix(0, 0).Add(89 * time.Minute)
	for at := end.Add(-time.Duration(rule.For)); !at.After(end); at = at.Add(time.Minute) {
		query, err := engine.NewInstantQuery(t.Context(), storage, nil, rule.Expr, at)
		if err != nil {
			t.Fatal(err)
		}
		result := query.Exec(t.Context())
		if result.Err != nil {
			t.Fatal(result.Err)
		}
		if vector, ok := result.Value.(promql.Vector); !ok || len(vector) == 0 {
			return false
		}
	}
	return true
}

func indent(s string) string { return strings.ReplaceAll(strings.TrimSpace("  "+s), "\n", "\n  ") }

// TestMetricsExist: alerts and dashboard only use metrics that the services export, and the dashboard uses all of the outbox's.
func TestMetricsExist(t *testing.T) {
	t.Parallel()
	known := exposed(t)
	expressions := map[string]string{}
	for name, rule := range rules(t) {
		expressions["alert "+name] = rule.Expr
	}
	text, err := os.ReadFile(filepath.Join(root, "deploy/grafana/lockstep.json"))
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &board); err != nil || len(board.Panels) == 0 {
		t.Fatalf("dashboard: %d panels, %v", len(board.Panels), err)
	}
	for _, p := range board.Panels {
		for i, target := range p.Targets {
			expressions[fmt.Sprintf("panel %s, %d", p.Title, i)] = strings.ReplaceAll(target.Expr, "$__rate_interval", "5m")
		}
	}
	for name, query := range kedaQueries(t) {
		expressions["KEDA "+name] = query
	}
	asked := map[string]bool{}
	for of, expression := range expressions {
		parsed, err := parser.ParseExpr(expression)
		if err != nil {
			t.Errorf("%s: %v", of, err)
			continue
		}
		parser.Inspect(parsed, func(n parser.Node, _ []parser.Node) error {
			if s, ok := n.(*parser.VectorSelector); ok {
				if !known[s.Name] {
					t.Errorf("%s asks for %s, which no service shows", of, s.Name)
				}
				asked[s.Name] = asked[s.Name] || strings.HasPrefix(of, "panel ")
			}
			return nil
		})
	}
	// A panel uses a histogram through the rate of its buckets.
	for _, histogram := range histograms() {
		asked[histogram] = asked[histogram+"_bucket"]
	}
	for _, name := range names(t, slices.Concat(own(), []prometheus.Collector{outbox.Metrics(nil)})...) {
		if !asked[name] {
			t.Errorf("no panel of the dashboard asks for %s", name)
		}
	}
}

// kedaQueries returns the charts' own queries of queue depth, by service.
func kedaQueries(t *testing.T) map[string]string {
	t.Helper()
	rows, err := chartvalues.Read(filepath.Join(root, "charts/lockstep/values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	queries := map[string]string{}
	for _, row := range rows {
		if service, ok := strings.CutSuffix(row.Path, ".autoscaling.keda.query"); ok {
			var query string
			if err := json.Unmarshal([]byte(row.Default), &query); err != nil {
				t.Fatal(err)
			}
			queries[service] = query
		}
	}
	if len(queries) != 3 {
		t.Errorf("found queries %v, expected one for each service", queries)
	}
	return queries
}

// own returns collectors that only some services have.
func own() []prometheus.Collector {
	return slices.Concat(domain.Metrics(), workflow.Metrics(), bus.Metrics(func() *bus.Conn { return nil }),
		gitfetch.NewBudget(gitfetch.Limits{}).Metrics())
}

// names returns the names of collectors' metrics.
func names(t *testing.T, of ...prometheus.Collector) []string {
	t.Helper()
	descriptions := make(chan *prometheus.Desc)
	go func() {
		defer close(descriptions)
		for _, c := range of {
			c.Describe(descriptions)
		}
	}()
	var all []string
	for d := range descriptions {
		var name string
		if _, err := fmt.Sscanf(d.String(), "Desc{fqName: %q,", &name); err != nil {
			t.Fatalf("%s: %v", d, err)
		}
		all = append(all, name)
	}
	return all
}

// histograms are the names of the histograms among a service's own collectors.
func histograms() []string {
	return []string{"lockstep_function_duration_seconds", "lockstep_schedule_late_seconds", "lockstep_check_report_seconds"}
}

// exposed returns the names of the metrics of a service, as in a scrape, and Prometheus's own up.
func exposed(t *testing.T) map[string]bool {
	t.Helper()
	telemetry.RequestStarted(telemetry.ProtocolHTTP)()
	telemetry.ObserveRequest(telemetry.ProtocolHTTP, "GET", "200", time.Second)
	telemetry.RejectedEvent("test", "data")
	telemetry.ObserveFunction("test", true, time.Second)
	telemetry.ObserveEvent("test", "com.gitlab.cd.test", "acknowledged", time.Second, time.Second)
	telemetry.RejectedEvent("test", "data")
	answer := httptest.NewRecorder()
	telemetry.Health(nil).ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	known := map[string]bool{"up": true}
	for line := range strings.Lines(answer.Body.String()) {
		if name, _, ok := strings.Cut(line, " "); ok && !strings.HasPrefix(line, "#") {
			name, _, _ = strings.Cut(name, "{")
			known[name] = true
		}
	}
	for _, name := range names(t, slices.Concat(own(),
		[]prometheus.Collector{pg.Metrics(nil), outbox.Metrics(nil), new(telemetry.Delivery), telemetry.BreakGlass(nil)})...) {
		known[name] = true
	}
	for _, histogram := range histograms() { // they are described by their names
		for _, series := range []string{"_bucket", "_count"} {
			known[histogram+series] = known[histogram+series] || known[histogram]
		}
	}
	return known
}
