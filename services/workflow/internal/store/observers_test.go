package store

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/agent"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
)

// reports are the reports that were emitted, oldest first: in the table of events and in the outbox alike.
func (b *testStore) reports(eventType string) []string {
	b.t.Helper()
	rows, err := b.Pool.Query(b.t.Context(), `SELECT data FROM event WHERE type = $1 ORDER BY id`, eventType)
	if err != nil {
		b.t.Fatal(err)
	}
	defer rows.Close()
	all := []string{}
	for rows.Next() {
		var data []byte
		var fields map[string]any
		if err := rows.Scan(&data); err != nil {
			b.t.Fatal(err)
		}
		if err := json.Unmarshal(data, &fields); err != nil {
			b.t.Fatal(err)
		}
		word := fields["health"]
		if word == nil {
			word = fields["reachable"]
		}
		all = append(all, fmt.Sprint(word, ": ", fields["reason"], " ", fields["observed_at"]))
	}
	return all
}

func observing(t *testing.T) *testStore {
	t.Helper()
	b := newTestStore(t)
	b.Encode = func(e history.Emit, _ string) (event.Sealed, error) {
		h := event.Header{ID: e.ID, Source: "/services/workflow", Organization: e.Organization, Time: e.Time}
		if e.Type == event.TypeServiceHealthObserved {
			var d event.ServiceHealthObserved
			if err := json.Unmarshal(e.Data, &d); err != nil {
				return event.Sealed{}, err
			}
			return event.Make(h, d)
		}
		var d event.EnvironmentContactChanged
		if err := json.Unmarshal(e.Data, &d); err != nil {
			return event.Sealed{}, err
		}
		return event.Make(h, d)
	}
	return b
}

// R46: reported whether or not an execution runs, once for every change, the newest report last.
func TestAnObserverReportsChanges(t *testing.T) {
	t.Parallel()
	b := observing(t)
	o := agent.StandingReport{
		Organization: 3, Agent: 7, Report: agent.ReportHealth, Namespace: "shop", Name: "api",
		Subject: map[string]int64{"environment_id": 4, "service_id": 5}, Run: "rollout-9",
	}
	// Every report names the run that has registered it (D47).
	encode := b.Encode
	b.Encode = func(e history.Emit, trace string) (event.Sealed, error) {
		if want := "observer/rollout-9/argo.health/environment_id=4,service_id=5"; e.Workflow != want {
			t.Errorf("a report of %q, expected %q", e.Workflow, want)
		}
		return encode(e, trace)
	}
	register := func(o agent.StandingReport, want bool) string {
		t.Helper()
		if changed, err := b.SaveObserver(t.Context(), o); err != nil || changed != want {
			t.Fatalf("changed %t, %v", changed, err)
		}
		watches, err := b.WantedWatches(t.Context(), 7)
		if err != nil || len(watches) != 1 {
			t.Fatal(watches, err)
		}
		return watches[0].ID
	}
	watch := register(o, true)
	if again := register(o, false); again != watch {
		t.Errorf("watch %s, then %s", watch, again)
	}
	reported := func(watch string, agentID int64, second int, report string) error {
		at := b.clock.Now().Add(time.Duration(second) * time.Second).Format(time.RFC3339Nano)
		data := fmt.Sprintf(`{"watch":%q,"observed_at":%q,%s}`, watch, at, report)
		observed := eventAt(0, fmt.Sprint(second, report), agent.TypeObjectChanged, data, b.clock.Now())
		_, err := b.ReceiveObserved(t.Context(), watch, agentID, observed)
		return err
	}
	healthy, degraded := `"report":{"health":"healthy","reason":""}`, `"report":{"health":"degraded","reason":"timed out"}`
	for _, r := range []struct {
		second int
		report string
	}{{1, healthy}, {1, healthy}, {2, healthy}, {5, degraded}, {4, healthy}, {6, `"error":{"message":"no rights"}`}} {
		if err := reported(watch, 7, r.second, r.report); err != nil {
			t.Fatal(err)
		}
	}
	if err := reported(watch, 8, 9, healthy); !fault.Is(err, fault.Denied) {
		t.Errorf("another agent reports: %v", err)
	}
	o.Name = "api-2"
	newer := register(o, true)
	if newer == watch {
		t.Error("another object is reported of under the same watch")
	}
	if err := reported(watch, 7, 10, healthy); err != nil {
		t.Error("a report that comes late:", err)
	}
	if err := reported(newer, 7, 11, healthy); err != nil {
		t.Fatal(err)
	}
	// R4-10: what is as before is reported once more after a new registration, such as by a rollout, so that it is known to be so still.
	o.Name = "api-3"
	newest := register(o, true)
	for second := 12; second < 15; second++ {
		if err := reported(newest, 7, second, healthy); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{
		"healthy:  2026-03-25T10:00:01Z", "degraded: timed out 2026-03-25T10:00:05Z",
		"unknown: no rights 2026-03-25T10:00:06Z", "healthy:  2026-03-25T10:00:11Z",
		"healthy:  2026-03-25T10:00:12Z",
	}
	if diff := cmp.Diff(want, b.reports(event.TypeServiceHealthObserved)); diff != "" {
		t.Errorf("said (-want +got):\n%s", diff)
	}
}

// D47: a relay says how something is, never what: its report is about what was registered whatever members it has, and carries the
// registration's correlation. So the relay of one cluster reports nothing about another environment of the same application.
func TestARelayReportsAboutWhatWasRegisteredOnly(t *testing.T) {
	t.Parallel()
	for kind, c := range map[string]struct {
		subject      map[string]int64
		report, want string
	}{
		agent.ReportHealth: {
			map[string]int64{"environment_id": 4, "service_id": 5},
			`{"environment_id":40,"service_id":50,"application_environment_id":60,"reachable":true,"correlation":"x","observed_at":"x","health":"degraded","reason":"b"}`,
			`{"environment_id":4,"health":"degraded","observed_at":"2026-03-25T10:00:01Z","reason":"b","service_id":5}`,
		},
		agent.ReportReconciliation: {
			map[string]int64{"application_environment_id": 6},
			`{"application_environment_id":60,"environment_id":40,"revision":"a","expected_revision":"b","automatic":true,"drift":"d","objects":[]}`,
			`{"application_environment_id":6,"automatic":true,"drift":"d","expected_revision":"b","objects":[],"observed_at":"2026-03-25T10:00:01Z","revision":"a"}`,
		},
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			b := observing(t)
			o := agent.StandingReport{Organization: 3, Agent: 7, Report: kind, Namespace: "shop", Name: "api", Subject: c.subject, Run: "rollout-9"}
			var found []string
			b.Encode = func(e history.Emit, _ string) (event.Sealed, error) {
				found = append(found, e.Workflow, e.Type, string(e.Data))
				h := event.Header{ID: e.ID, Source: "/services/workflow", Organization: e.Organization, Correlation: e.Workflow, Time: e.Time}
				return event.Make(h, event.Raw{Type: e.Type, JSON: e.Data})
			}
			if _, err := b.SaveObserver(t.Context(), o); err != nil {
				t.Fatal(err)
			}
			watches, err := b.WantedWatches(t.Context(), 7)
			if err != nil || len(watches) != 1 {
				t.Fatal(watches, err)
			}
			at := b.clock.Now().Add(time.Second).Format(time.RFC3339Nano)
			data := fmt.Sprintf(`{"watch":%q,"observed_at":%q,"report":%s}`, watches[0].ID, at, c.report)
			if _, err := b.ReceiveObserved(t.Context(), watches[0].ID, 7, eventAt(0, "1", agent.TypeObjectChanged, data, b.clock.Now())); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]string{"observer/rollout-9/" + o.Key(), o.Event(), c.want}, found); diff != "" {
				t.Errorf("said (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAnAgentThatIsSilentIsOfflineSinceItsLastHeartbeat(t *testing.T) {
	t.Parallel()
	b := observing(t)
	o := agent.StandingReport{Organization: 3, Agent: 7, Report: agent.ReportAgent, Subject: map[string]int64{"environment_id": 4}}
	if _, err := b.SaveObserver(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	if watches, err := b.WantedWatches(t.Context(), 7); err != nil || len(watches) != 0 {
		t.Errorf("the relay is to watch %v, %v", watches, err)
	}
	look := func(after time.Duration) {
		t.Helper()
		b.clock.Advance(after)
		if err := b.ReportAgents(t.Context(), b.clock.Now(), 20*time.Second); err != nil {
			t.Fatal(err)
		}
	}
	beat := func(reachable bool) {
		t.Helper()
		if err := b.SaveBeats(t.Context(), []agent.Beat{{Agent: 7, At: b.clock.Now(), Reachable: reachable, Message: "x"}}); err != nil {
			t.Fatal(err)
		}
	}
	look(5 * time.Second) // nobody has spoken, and nobody has had the time to
	look(20 * time.Second)
	beat(true)
	look(time.Second)
	look(10 * time.Second)
	beat(false)
	look(time.Second)
	look(30 * time.Second)
	look(30 * time.Second)
	beat(true)
	look(time.Second)
	want := []string{
		"false: agent 7 has never been heard of 2026-03-25T10:00:00Z",
		"true:  2026-03-25T10:00:25Z",
		"false: agent 7 does not reach its cluster 2026-03-25T10:00:36Z",
		"false: agent 7 is offline 2026-03-25T10:00:36.001Z",
		"true:  2026-03-25T10:01:37Z",
	}
	if diff := cmp.Diff(want, b.reports(event.TypeEnvironmentContactChanged)); diff != "" {
		t.Errorf("said (-want +got):\n%s", diff)
	}
}
