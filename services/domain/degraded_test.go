package domain

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-cd/lockstep/pkg/clock/clocktest"
	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// ward is a shop whose services are watched, by a clock that stands until it is moved.
type ward struct {
	*shop
	now *clocktest.Clock
}

// watched is a ward at minute 0, where one set is live and a rollout of another has begun to change staging.
func watched(t *testing.T) (ward, core.Rollout) {
	t.Helper()
	now := clocktest.New(instant(0))
	s := shopOf(setupAt(t, now))
	return ward{s, now}, s.upgrade()
}

// live is a ward where that rollout has completed.
func live(t *testing.T) (ward, core.Rollout) {
	t.Helper()
	w, r := watched(t)
	w.succeed(r)
	return w, r
}

// until moves the clock on to a minute.
func (w ward) until(minute int) {
	w.t.Helper()
	w.now.Advance(instant(minute).Sub(w.now.Now()))
}

// sees is what an observer says of one of the two services in production; it arrives now, whenever it was seen.
func (w ward) sees(service, minute int, health string) {
	w.t.Helper()
	w.report(w.observation(service, minute, health))
}

func (w ward) observation(service, minute int, health string) event.ServiceHealthObserved {
	w.t.Helper()
	services, err := w.view.ServicesByApplication(w.t.Context(), org, []int64{w.application.ID})
	w.ok(err)
	return event.ServiceHealthObserved{
		ServiceID: services[w.application.ID][service].ID, EnvironmentID: w.production.ID, Health: health,
		ObservedAt: wire(minute),
	}
}

// rollsBackAt checks that nothing is rolled back before a minute, and that the rollout is rolled back at that minute, once.
func (w ward) rollsBackAt(minute int, r core.Rollout) core.Rollout {
	w.t.Helper()
	w.now.Advance(instant(minute).Sub(w.now.Now()) - time.Second)
	w.nothingDue("a second early")
	w.until(minute)
	done, worked := w.due()
	if !worked || done.RolloutID != r.ID || done.MadeRolloutID == 0 {
		w.t.Fatalf("in minute %d: rolled back: %+v", minute, done)
	}
	w.nothingDue("a second time")
	return w.reload(core.Rollout{ID: done.MadeRolloutID})
}

// D13, R46, R47: the health of what a rollout has made live is watched after its end; the reaction is a new rollout, once.
func TestWhatDegradesAfterItsRolloutIsRolledBackOnce(t *testing.T) {
	t.Parallel()
	w, r := live(t)
	frozen := w.deployments(w.stops(r)[1])
	w.sees(0, 4, "healthy")
	w.until(10)
	seen := w.emit(w.observation(0, 10, "degraded"), "")
	w.deliver(seen, seen)
	w.until(20)
	w.sees(0, 20, "degraded") // still
	w.deliver(seen)           // again, and late
	back := w.rollsBackAt(40, r)
	w.want(back.VersionSetID, w.set.ID)
	j, err := w.view.Journal(t.Context(), org, back.ID, core.Page{First: 1})
	w.ok(err)
	w.want(j.Nodes[0].PrincipalType, core.PrincipalPolicy)
	w.want(j.Nodes[0].Reason, "automatic rollback of rollout_2: it stayed degraded")
	if diff := cmp.Diff(frozen, w.deployments(w.stops(r)[1])); diff != "" { // R36
		t.Errorf("deployments (-before +after):\n%s", diff)
	}

	w.sees(0, 41, "degraded") // while the rollback runs
	w.succeed(back)
	w.until(50)
	w.sees(0, 50, "healthy")
	w.sees(0, 51, "degraded")
	w.until(500)
	w.nothingDue("a rollback that degraded, or a second one of the same rollout")
	w.verifyJournal(r)
}

func TestRecoveryStopsTheClockAndAnotherDegradationStartsIt(t *testing.T) {
	t.Parallel()
	w, r := live(t)
	w.sees(0, 5, "degraded")
	w.until(20)
	w.sees(0, 20, "healthy")
	w.until(36)
	w.nothingDue("recovered in time")
	w.sees(0, 36, "degraded")
	w.rollsBackAt(66, r)
}

// One that is well does not speak for the other.
func TestTheClockCountsFromTheFirstThatIsStillDegraded(t *testing.T) {
	t.Parallel()
	w, r := live(t)
	w.sees(0, 5, "degraded")
	w.sees(1, 10, "degraded")
	w.sees(0, 15, "healthy")
	w.rollsBackAt(40, r)
}

// R17: what was seen counts by when it was seen, in every order.
func TestObservationsThatComeLateStartNoClockAndStopNone(t *testing.T) {
	t.Parallel()
	w, r := live(t)
	w.until(7)
	w.sees(0, 6, "healthy")
	w.sees(0, 5, "degraded")
	w.until(40)
	w.nothingDue("degraded, but before it was healthy")
	w.sees(0, 40, "degraded")
	w.sees(0, 38, "healthy")
	w.rollsBackAt(70, r)

	w, r = live(t)
	w.until(35) // the word was under way for so long that it is due when it comes
	w.sees(0, 4, "degraded")
	if done, worked := w.due(); !worked || done.RolloutID != r.ID || done.MadeRolloutID == 0 {
		t.Errorf("heard of after the time: %+v", done)
	}
}

// While it is under way a rollout is its program's; what was seen before it became healthy was not its doing.
func TestTheClockOfARolloutStartsWhenItIsOver(t *testing.T) {
	t.Parallel()
	w, r := watched(t)
	w.until(1)
	w.sees(0, 1, "degraded")
	w.until(45)
	w.nothingDue("under way")
	w.succeed(r)
	w.rollsBackAt(75, r)

	w, r = watched(t)
	w.sees(0, 1, "degraded")
	_, err := w.rollouts.CancelRollout(t.Context(), user(), r.ID, "people decide")
	w.ok(err)
	w.sees(0, 2, "degraded")
	w.until(500)
	w.nothingDue("cancelled")
}

// A deployment that ended degraded is the first word, until an observer has a newer one.
func TestAFailedRolloutWhoseServiceRecoversIsLeft(t *testing.T) {
	t.Parallel()
	w, r := watched(t)
	w.rollsBackOnlyWhatStaysDegraded()
	d := w.deployments(w.stops(r)[0])[0]
	w.until(2)
	w.report(event.DeploymentDegraded{DeploymentID: d.ID, Reason: "crash loop"})
	w.report(event.RolloutFailed{RolloutID: r.ID, Reason: "api is degraded"})
	w.close()
	saw := func(minute int, health string) {
		w.report(event.ServiceHealthObserved{ServiceID: d.ServiceID, EnvironmentID: w.staging.ID, Health: health, ObservedAt: wire(minute)})
	}
	saw(1, "progressing") // before its end
	saw(9, "healthy")
	w.until(33)
	w.nothingDue("recovered")
	saw(33, "degraded")
	w.rollsBackAt(63, r)
}

// E74: at once on failed, also where the clock for degraded runs when the failure is closed.
func TestAFailureDoesNotWaitForTheClock(t *testing.T) {
	t.Parallel()
	w, r := watched(t)
	w.report(event.RolloutFailed{RolloutID: r.ID, Reason: "sync failed"})
	w.report(event.ServiceHealthObserved{
		ServiceID: w.deployments(w.stops(r)[0])[0].ServiceID, EnvironmentID: w.staging.ID, Health: "degraded",
		ObservedAt: wire(0),
	})
	w.nothingDue("while more may be reported of it")
	w.close()
	if done, worked := w.due(); !worked || done.RolloutID != r.ID || done.Cause != "failed" || done.MadeRolloutID == 0 {
		t.Errorf("rolled back: %+v", done)
	}
}

func TestANewerRolloutTakesOver(t *testing.T) {
	long(t)
	t.Parallel()
	w, r := live(t)
	idle := w.rollout(w.release(3)) // deploys nothing, and is over before anything degrades
	w.report(event.RolloutFailed{RolloutID: idle.ID, Reason: "before anything was touched"})
	w.close()
	w.sees(0, 5, "degraded")
	active := w.rollout(w.sets()[0])
	w.until(35)
	if done, worked := w.due(); !worked || done.MadeRolloutID != 0 || done.Outcome != "put off: rollout_4 is pending" {
		t.Errorf("with a newer one active: %+v", done)
	}
	w.nothingDue("put off")
	w.succeed(active)
	w.until(36)
	if done, worked := w.due(); !worked || done.RolloutID != r.ID || done.MadeRolloutID != 0 {
		t.Errorf("what the newer one has replaced: %+v", done)
	}
	w.rollsBackAt(65, active) // which degraded does, too
	w.want(w.reload(r).State, core.RolloutCompleted)

	w, r = live(t)
	w.sees(0, 5, "degraded")
	newer := w.rollout(w.release(3))
	w.succeed(newer)
	w.until(35)
	if done, worked := w.due(); !worked || done.RolloutID != r.ID || done.MadeRolloutID != 0 {
		t.Errorf("what was replaced while it was degraded: %+v", done)
	}
	if done, worked := w.due(); !worked || done.RolloutID != newer.ID || done.MadeRolloutID == 0 {
		t.Errorf("what has replaced it, and is degraded: %+v", done)
	}
	w.nothingDue("what was replaced")

	w, r = live(t)
	idle = w.rollout(w.release(3))
	w.report(event.RolloutFailed{RolloutID: idle.ID, Reason: "before anything was touched"})
	w.close()
	w.sees(0, 5, "degraded")
	w.rollsBackAt(35, r)
}

// A newer rollout that ends before it has replaced what is degraded has not done what the policy owes (D13).
func TestAWayBackStaysOwedWhileANewerRolloutIsActive(t *testing.T) {
	t.Parallel()
	w, r := live(t)
	w.sees(0, 5, "degraded")
	newer := w.rollout(w.release(3))
	for minute := 35; minute < 38; minute++ {
		w.until(minute)
		if done, worked := w.due(); !worked || done.RolloutID != r.ID || done.MadeRolloutID != 0 ||
			!strings.HasPrefix(done.Outcome, "put off: ") {
			t.Errorf("minute %d, with a newer one active: %+v", minute, done)
		}
		w.nothingDue("put off")
	}
	_, err := w.rollouts.CancelRollout(t.Context(), user(), newer.ID, "not this one")
	w.ok(err)
	w.until(38)
	done, worked := w.due()
	if !worked || done.RolloutID != r.ID || done.MadeRolloutID == 0 {
		t.Errorf("when it is over: %+v", done)
	}
	w.until(500)
	w.nothingDue("once is enough")
}

func TestTheClockGoesByThePolicyOfTheMomentItRunsOut(t *testing.T) {
	t.Parallel()
	w, r := live(t)
	set := func(p core.RollbackPolicy) {
		t.Helper()
		p.ApplicationID = w.application.ID
		_, err := w.rollouts.SetRollbackPolicy(t.Context(), user(), p)
		w.ok(err)
	}
	w.sees(0, 5, "degraded")
	set(core.RollbackPolicy{OnDegraded: true, DegradedAfter: time.Hour})
	w.until(35)
	if done, worked := w.due(); !worked || done.MadeRolloutID != 0 {
		t.Errorf("after half an hour of an hour: %+v", done)
	}
	w.rollsBackAt(65, r)

	w, _ = live(t)
	set(core.RollbackPolicy{OnFailed: true})
	w.sees(0, 5, "degraded")
	w.until(500)
	w.nothingDue("switched off")
}

// D57, E74: what people take away after they have retired it is rolled back by nobody, whichever comes first, and is watched again once it
// is restored.
func TestARetiredServiceThatDegradesIsNotRolledBack(t *testing.T) {
	t.Parallel()
	w, r := live(t)
	api := w.observation(0, 5, "").ServiceID
	_, err := w.setup.RetireService(t.Context(), user(), api, "merged")
	w.ok(err)
	w.until(5)
	w.sees(0, 5, "degraded")
	w.until(300)
	w.nothingDue("a retired service")
	_, err = w.setup.RestoreService(t.Context(), user(), api, "")
	w.ok(err)
	w.sees(0, 300, "degraded")
	if done, worked := w.due(); !worked || done.RolloutID != r.ID || done.Cause != core.CauseDegraded {
		t.Errorf("restored, and degraded for hours: %+v", done)
	}

	w, _ = live(t)
	w.sees(0, 5, "degraded")
	w.until(20)
	_, err = w.setup.RetireService(t.Context(), user(), w.observation(0, 5, "").ServiceID, "merged")
	w.ok(err)
	w.until(300)
	if done, worked := w.due(); worked && done.MadeRolloutID != 0 {
		t.Errorf("retired while the clock runs: %+v", done)
	}
}
