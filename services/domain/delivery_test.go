package domain

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/lockstep-cd/lockstep/pkg/clock/clocktest"
	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/telemetry"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/rollout"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/view"
)

// ledger is a shop that delivers by a clock, and rolls nothing back by itself.
type ledger struct{ ward }

func newLedger(t *testing.T) ledger {
	t.Helper()
	now := clocktest.New(instant(0))
	l := ledger{ward{shopOf(setupAt(t, now)), now}}
	_, err := l.rollouts.SetRollbackPolicy(t.Context(), user(), core.RollbackPolicy{ApplicationID: l.application.ID})
	l.ok(err)
	_, err = l.rollouts.SetRolloutPolicy(t.Context(), user(),
		core.RolloutPolicy{ApplicationID: l.application.ID, OnFailure: core.FailureStops, OnNewer: core.NewerSupersedes})
	l.ok(err)
	l.written("cd_version_sets", l.set.ID)
	return l
}

// written sets when a row was made to the clock's time: such instants are the database's own.
func (l ledger) written(table string, id int64) {
	l.t.Helper()
	tx, err := l.pool.Begin(l.t.Context())
	l.ok(err)
	_, err = tx.Exec(l.t.Context(), `SET LOCAL session_replication_role = replica`) // version sets never change otherwise
	l.ok(err)
	_, err = tx.Exec(l.t.Context(), `UPDATE `+table+` SET created_at = $1 WHERE id = $2`, l.now.Now(), id)
	l.ok(err)
	l.ok(tx.Commit(l.t.Context()))
}

// made is a new version set, of a minute.
func (l ledger) made(minute, n int) core.VersionSet {
	l.t.Helper()
	l.until(minute)
	set := l.release(n)
	l.written("cd_version_sets", set.ID)
	return set
}

// asked requests a rollout at a minute.
func (l ledger) asked(minute int, set core.VersionSet) core.Rollout {
	l.t.Helper()
	l.until(minute)
	r := l.rollout(set)
	l.written("cd_rollouts", r.ID)
	return r
}

// begun records that an environment, 0 or 1, is being deployed to.
func (l ledger) begun(minute int, r core.Rollout, stop int) {
	l.t.Helper()
	l.until(minute)
	e := l.stops(r)[stop]
	l.report(event.RolloutEnvironmentStarted{RolloutID: r.ID, EnvironmentID: e.EnvironmentID})
	for _, d := range l.deployments(e) {
		l.report(event.DeploymentStarted{DeploymentID: d.ID})
	}
}

// done records that all is well there; of the last one, that the rollout has completed.
func (l ledger) done(minute int, r core.Rollout, stop int) {
	l.t.Helper()
	l.until(minute)
	stops := l.stops(r)
	for _, d := range l.deployments(stops[stop]) {
		l.report(event.DeploymentHealthy{DeploymentID: d.ID})
	}
	l.report(event.RolloutEnvironmentHealthy{RolloutID: r.ID, EnvironmentID: stops[stop].EnvironmentID})
	if stop == len(stops)-1 {
		l.report(event.RolloutHealthy{RolloutID: r.ID})
	}
}

// failed records that an environment has, and the rollout with it.
func (l ledger) failed(minute int, r core.Rollout, stop int) {
	l.t.Helper()
	l.until(minute)
	e := l.stops(r)[stop]
	for _, d := range l.deployments(e) {
		l.report(event.DeploymentFailed{DeploymentID: d.ID, Reason: "crash loop"})
	}
	l.report(event.RolloutEnvironmentFailed{RolloutID: r.ID, EnvironmentID: e.EnvironmentID, Reason: "crash loop"})
	l.report(event.RolloutFailed{RolloutID: r.ID, Reason: "crash loop"})
	l.close()
}

// measured is what the domain answers of an environment for a window of minutes.
func (l ledger) measured(environment int64, since, until int) view.DeliveryMetrics {
	l.t.Helper()
	all, err := l.view.DeliveryMetrics(l.t.Context(), org, view.DeliveryWindow{
		ApplicationID: l.application.ID, EnvironmentIDs: []int64{environment}, Since: instant(since), Until: instant(until),
	})
	l.ok(err)
	if len(all) != 1 || all[0].EnvironmentID != environment {
		l.t.Fatalf("metrics of environment %d: %+v", environment, all)
	}
	return all[0]
}

// minutes is a distribution of durations, given as mean, median, p90 and longest in minutes.
func minutes(count int, mean, median, p90, longest float64) view.Durations {
	of := func(n float64) time.Duration { return time.Duration(n * float64(time.Minute)).Round(time.Second) }
	return view.Durations{Count: count, Mean: of(mean), Median: of(median), P90: of(p90), Longest: of(longest)}
}

// history plays what can become of rollouts, through the service, and leaves the clock at minute 300.
func (l ledger) history() {
	l.t.Helper()
	t := l.t
	// 1 waits for approval, from 20 to 50.
	r := l.asked(10, l.set)
	l.begun(10, r, 0)
	l.done(20, r, 0)
	l.report(event.ApprovalRequested{RolloutID: r.ID, GateID: "production", EnvironmentID: l.production.ID})
	l.until(50)
	l.ok(l.approve(person(2), r, "production"))
	l.begun(50, r, 1)
	l.done(70, r, 1)
	// 2 is paused by a person at a gate, from 115 to 125, and fails in production.
	r = l.asked(100, l.made(100, 2))
	l.begun(100, r, 0)
	l.done(110, r, 0)
	l.begun(110, r, 1)
	l.until(115)
	l.report(event.RolloutGateReached{RolloutID: r.ID, EnvironmentID: l.production.ID, Weight: 25})
	_, err := l.rollouts.PauseRollout(t.Context(), user(), r.ID, "a look at the graphs")
	l.ok(err)
	l.want(l.reload(r).State, core.RolloutPaused)
	l.until(125)
	_, err = l.rollouts.ResumeRollout(t.Context(), user(), r.ID, "")
	l.ok(err)
	l.failed(130, r, 1)
	// 3 goes back to the first set.
	r = l.asked(135, l.set)
	l.begun(135, r, 0)
	l.done(140, r, 0)
	l.begun(140, r, 1)
	l.done(150, r, 1)
	// 4 has reached staging only, where a newer set supersedes it while it waits; 5 is that, and completes.
	r = l.asked(165, l.made(160, 3))
	l.begun(165, r, 0)
	l.done(170, r, 0)
	l.report(event.ApprovalRequested{RolloutID: r.ID, GateID: "production", EnvironmentID: l.production.ID})
	newer := l.asked(180, l.made(175, 4))
	l.want(l.reload(r).State, core.RolloutCancelled)
	l.begun(180, newer, 0)
	l.done(185, newer, 0)
	l.begun(185, newer, 1)
	l.done(200, newer, 1)
	// 6 takes it back.
	r = l.asked(210, l.set)
	l.begun(210, r, 0)
	l.done(212, r, 0)
	l.begun(212, r, 1)
	l.done(220, r, 1)
	// 7 is aborted at 240, stands from 243 on, and is tried again at 250.
	r = l.asked(230, l.made(230, 5))
	l.begun(230, r, 0)
	l.done(235, r, 0)
	l.begun(235, r, 1)
	l.until(240)
	_, err = l.rollouts.AbortRollout(t.Context(), user(), r.ID, "errors")
	l.ok(err)
	l.until(243)
	l.report(event.RolloutAborted{RolloutID: r.ID, EnvironmentID: l.production.ID, Reason: "errors"})
	l.until(250)
	_, err = l.rollouts.RetryRollout(t.Context(), user(), r.ID, "")
	l.ok(err)
	l.done(260, r, 1)
	// 8 is cancelled, 9 is still on its way.
	r = l.asked(270, l.made(270, 6))
	l.begun(270, r, 0)
	l.done(272, r, 0)
	l.begun(275, r, 1)
	l.until(280)
	_, err = l.rollouts.CancelRollout(t.Context(), user(), r.ID, "")
	l.ok(err)
	r = l.asked(290, l.made(290, 7))
	l.begun(290, r, 0)
	l.until(300)
}

// TestDeliveryMetricsOfWhatTheServiceRecorded compares DORA's metrics with what was done, as docs/reference/delivery-metrics.md defines
// them.
func TestDeliveryMetricsOfWhatTheServiceRecorded(t *testing.T) {
	long(t)
	t.Parallel()
	l := newLedger(t)
	l.history()
	for name, tt := range map[string]struct {
		environment  int64
		since, until int
		want         view.DeliveryMetrics
	}{
		"production, all of it": {l.production.ID, 0, 300, view.DeliveryMetrics{
			Deployments: 5, Reworked: 2, Ended: 6, Failures: 3, Cancelled: 1,
			Lead:   minutes(3, 125.0/3, 30, 70, 70), // 1: 70; 5: 25; 7: 30
			People: minutes(3, 52.0/3, 7, 40, 40),   // 1: 10 until it was asked for, 30 for approval; 5: 5; 7: 7
			// Until 130 and 200 things went wrong, until 150 and 220 they were mended; the abort took 3.
			Machine: minutes(3, 73.0/3, 23, 30, 30), Recovery: minutes(3, 43.0/3, 20, 20, 20),
		}},
		"staging, where nothing failed before production did": {l.staging.ID, 0, 100, view.DeliveryMetrics{
			Deployments: 1, Ended: 1, Lead: minutes(1, 20, 20, 20, 20), People: minutes(1, 10, 10, 10, 10), Machine: minutes(1, 10, 10, 10, 10),
		}},
		"from the very end of a deployment on": {l.production.ID, 70, 100, view.DeliveryMetrics{
			Deployments: 1, Ended: 1, Lead: minutes(1, 70, 70, 70, 70), People: minutes(1, 40, 40, 40, 40), Machine: minutes(1, 30, 30, 30, 30),
		}},
		"until the end of a deployment, which is outside": {l.production.ID, 0, 70, view.DeliveryMetrics{}},
		"a failure that is mended behind the window": {
			l.production.ID, 120, 140,
			view.DeliveryMetrics{Ended: 1, Failures: 1, Recovery: minutes(1, 20, 20, 20, 20)},
		},
		"the mending of a failure before the window": {l.production.ID, 131, 160, view.DeliveryMetrics{Deployments: 1, Reworked: 1, Ended: 1}},
		"what is taken back behind the window": {l.production.ID, 190, 205, view.DeliveryMetrics{
			Deployments: 1, Ended: 1, Failures: 1, Recovery: minutes(1, 20, 20, 20, 20),
			Lead: minutes(1, 25, 25, 25, 25), People: minutes(1, 5, 5, 5, 5), Machine: minutes(1, 20, 20, 20, 20),
		}},
		"what was cancelled, and what is on its way": {l.production.ID, 265, 300, view.DeliveryMetrics{Cancelled: 1}},
		"nothing": {l.production.ID, 151, 160, view.DeliveryMetrics{}},
	} {
		tt.want.EnvironmentID, tt.want.Since, tt.want.Until = tt.environment, instant(tt.since), instant(tt.until)
		if diff := cmp.Diff(tt.want, l.measured(tt.environment, tt.since, tt.until)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}

	of := func(organization int64, w view.DeliveryWindow) []view.DeliveryMetrics {
		all, err := l.view.DeliveryMetrics(t.Context(), organization, w)
		l.ok(err)
		return all
	}
	both := of(org, view.DeliveryWindow{ApplicationID: l.application.ID})
	if len(both) != 2 || both[0].EnvironmentID != l.staging.ID || both[1].EnvironmentID != l.production.ID || both[1].Deployments != 5 ||
		!both[1].Until.Equal(instant(300)) || !both[1].Since.Equal(instant(300).AddDate(0, 0, -30)) {
		t.Errorf("by default, of the pipeline's environments and the last thirty days: %+v", both)
	}
	// Everything is in its own organization, and every application by itself.
	if theirs := of(2, view.DeliveryWindow{
		ApplicationID:  l.application.ID,
		EnvironmentIDs: []int64{l.production.ID},
	}); theirs[0].Ended+theirs[0].Cancelled != 0 {
		t.Errorf("another organization finds %+v", theirs)
	}
	if other := of(org, view.DeliveryWindow{
		ApplicationID:  l.application.ID + 1,
		EnvironmentIDs: []int64{l.production.ID},
	}); other[0].Ended != 0 {
		t.Errorf("another application has %+v", other)
	}
	for _, w := range []view.DeliveryWindow{
		{Since: instant(300)},
		{Since: instant(400)},
		{Since: instant(10), Until: instant(10)},
		{Since: instant(0).AddDate(-2, 0, 0), Until: instant(1)},
	} {
		w.ApplicationID = l.application.ID
		if _, err := l.view.DeliveryMetrics(t.Context(), org, w); !fault.Is(err, fault.Invalid) {
			t.Errorf("%s to %s: %v", w.Since, w.Until, err)
		}
	}
}

// TestAnAttemptThatFailedIsNotPeoplesTime has a set fail and tried again, and another wait in line.
func TestAnAttemptThatFailedIsNotPeoplesTime(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	l.people(1)
	_, err := l.rollouts.SetRolloutPolicy(t.Context(), user(),
		core.RolloutPolicy{ApplicationID: l.application.ID, OnFailure: core.FailureStops, OnNewer: core.NewerQueued})
	l.ok(err)
	r := l.asked(5, l.set)
	l.begun(5, r, 0)
	l.failed(15, r, 0)
	l.until(20)
	r, err = l.rollouts.RetryRollout(t.Context(), user(), r.ID, "mended") // another rollout
	l.ok(err)
	l.written("cd_rollouts", r.ID)
	l.begun(20, r, 0)
	l.done(25, r, 0)
	next := l.made(28, 2)
	l.until(30)
	queued, err := l.rollouts.CreateRollout(t.Context(), user(), rollout.NewRollout{VersionSetID: next.ID})
	l.ok(err)
	if queued.Rollout != nil {
		t.Fatalf("not queued: %+v", queued)
	}
	l.begun(30, r, 1)
	l.done(40, r, 1)
	l.until(41)
	for {
		begun, worked, err := l.rollouts.BeginQueued(t.Context())
		l.ok(err)
		if !worked {
			break
		}
		r = core.Rollout{ID: begun.MadeRolloutID}
		l.written("cd_rollouts", r.ID)
	}
	l.begun(41, r, 0)
	l.done(45, r, 0)
	l.begun(45, r, 1)
	l.done(48, r, 1)
	l.until(60)
	got := l.measured(l.production.ID, 0, 60)
	// 40 minutes, 5 until it was asked for and 5 until it was again; 20 minutes, 2 until it was asked for.
	if diff := cmp.Diff([]view.Durations{minutes(2, 30, 20, 40, 40), minutes(2, 6, 2, 10, 10)},
		[]view.Durations{got.Lead, got.People}); diff != "" {
		t.Errorf("lead time, people's (-want +got):\n%s", diff)
	}
	if got := l.measured(l.staging.ID, 0, 60); got.Failures != 1 || got.Reworked != 1 || got.Recovery != minutes(1, 10, 10, 10, 10) {
		t.Errorf("staging: %+v", got)
	}
}

// TestDeliveryMetricsCostWhatTheWindowHolds asks for an hour of an application with a history, and with one three times as long.
func TestDeliveryMetricsCostWhatTheWindowHolds(t *testing.T) {
	long(t)
	t.Parallel()
	sizes := func(n int) map[string]int {
		return map[string]int{"applications": 5, "environments": 10, "rollouts": 2500 * n, "active": 5, "asking": 0}
	}
	short, long := fill(t, sizes(1)), fill(t, sizes(3))
	document := fmt.Sprintf(`{ deliveryMetrics(application: "application-00002", since: %q) { deployments leadTimePeople { median } recoveryTime { p90 } } }`, time.Now().Add(-time.Hour).UTC().Format(time.RFC3339))
	few, _ := short.cost(document, "", nil)
	many, _ := long.cost(document, "", nil)
	t.Logf("%v, %v of three times as many", few, many)
	// 12 rollouts of the window, up to 100 before it and one behind; for each its environments, its set, and an earlier one of the set.
	if n := many["Attempts"]; few["Attempts"] == 0 || n > few["Attempts"]*1.25 || n > 4000 {
		t.Errorf("visits %.0f rows, and %.0f where there are three times as many", few["Attempts"], n)
	}
	if n := many["GateWords"]; n > few["GateWords"]*1.25 {
		t.Errorf("journals: visits %.0f rows, and %.0f where there are three times as many", few["GateWords"], n)
	}
}

// TestDeliveryIsShownOfWhatIsNamed: each application in the environments that an operator has named, as many as are allowed.
func TestDeliveryIsShownOfWhatIsNamed(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.fixture.application("a-blog", "site") // it goes nowhere
	s.succeed(s.rollout(s.set))
	for name, tt := range map[string]struct {
		config DeliveryMetrics
		want   string
		left   int
	}{
		"one environment": {DeliveryMetrics{
			Environments: []string{"production", "nowhere"}, Days: 30,
			Most: 5,
		}, `lockstep_delivery_deployments{application="shop",environment="production",tier="production"} 1
`, 0},
		"both": {DeliveryMetrics{
			Environments: []string{"production", "staging"}, Days: 30,
			Most: 2,
		}, `lockstep_delivery_deployments{application="shop",environment="production",tier="production"} 1
lockstep_delivery_deployments{application="shop",environment="staging",tier="staging"} 1
`, 0},
		"more than are allowed": {DeliveryMetrics{
			Environments: []string{"production", "staging"}, Days: 30,
			Most: 1,
		}, `lockstep_delivery_deployments{application="shop",environment="staging",tier="staging"} 1
`, 1},
	} {
		var shown telemetry.Delivery
		s.ok(s.measureDelivery(t.Context(), tt.config, &shown))
		want := "# HELP lockstep_delivery_deployments Deployments that were completed in the window.\n# TYPE lockstep_delivery_deployments gauge\n" + tt.want +
			"# HELP lockstep_delivery_left_out Pairs of application and environment that were left out because there are too many.\n# TYPE lockstep_delivery_left_out gauge\n" +
			fmt.Sprintf("lockstep_delivery_left_out %d\n", tt.left)
		if err := testutil.CollectAndCompare(&shown, strings.NewReader(want), "lockstep_delivery_deployments",
			"lockstep_delivery_left_out"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if n := testutil.CollectAndCount(&shown, "lockstep_delivery_lead_time_seconds"); n != 6*strings.Count(tt.want, "application=") {
			t.Errorf("%s: %d series of lead time", name, n)
		}
	}
}
