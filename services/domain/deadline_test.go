package domain

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock/clocktest"
	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/rollout"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/setup"
)

// timed is a shop whose clock the test sets, with a pipeline of its own.
type timed struct {
	*shop
	now *clocktest.Clock
}

// newTimed makes one; whole are members of the pipeline, and staging those of its first step.
func newTimed(t *testing.T, whole, staging string) timed {
	t.Helper()
	now := clocktest.New(time.Now().Truncate(time.Second))
	s := timed{shopOf(setupAt(t, now)), now}
	_, err := s.setup.CreateFlowDefinition(t.Context(), user(), setup.NewFlowDefinition{
		ApplicationID: s.application.ID, Definition: fmt.Appendf(nil, `{%s"steps":[
			{"type":"deploy","environment":"staging",%s"config":%s},
			{"type":"deploy","environment":"production","approval":{},"config":%s}]}`,
			whole, staging, appEnvConfig("staging"), appEnvConfig("production")),
	})
	s.ok(err)
	s.makeReady()
	return s
}

// passes looks at deadlines until none is due, and answers what came of them.
func (s timed) passes() string {
	s.t.Helper()
	var all string
	for range 10 {
		done, worked, err := s.rollouts.PassDue(s.t.Context())
		s.ok(err)
		if !worked {
			return strings.TrimSpace(all)
		}
		all += done.Outcome
	}
	s.t.Fatal("deadlines are due again and again")
	return all
}

// last is the reason of the last row of a rollout's own journal with a verb.
func (s *shop) last(r core.Rollout, verb core.Verb) core.Transition {
	s.t.Helper()
	j, err := s.view.Journal(s.t.Context(), org, r.ID, core.Page{First: 500})
	s.ok(err)
	var found core.Transition
	for _, row := range j.Nodes {
		if row.Subject.Kind == core.SubjectRollout && row.Verb == verb {
			found = row
		}
	}
	return found
}

func TestARolloutFailsWhenItsDeadlinePasses(t *testing.T) { // R4-25
	t.Parallel()
	s := newTimed(t, `"deadline":{"after":3600},`, "")
	r := s.rollout(s.set)
	s.now.Advance(59 * time.Minute)
	s.want(s.passes(), "")
	s.report(event.DeploymentStarted{DeploymentID: s.deployments(s.stops(r)[0])[0].ID})
	s.now.Advance(time.Minute)
	s.want(s.passes(), "the rollout: failed")
	s.want(s.passes(), "")
	if got := s.reload(r); got.State != core.RolloutFailed {
		t.Errorf("found %s; want failed", got.State)
	}
	row := s.last(r, core.VerbFail)
	s.want(row.Reason, "the deadline of the rollout has passed: it did not end within 1h0m0s, beside the time in which it waited for people")
	s.want(row.PrincipalType, core.PrincipalSchedule)
	s.want(row.TriggeredBy, "deadline of the rollout")
	s.close()
	s.verifyJournal(r)
	s.report(event.RolloutHealthy{RolloutID: r.ID}) // its program says otherwise, and too late
	s.want(s.reload(r).State, core.RolloutFailed)
}

func TestWaitingForPeopleDoesNotCount(t *testing.T) {
	t.Parallel()
	s := newTimed(t, `"deadline":{"after":3600},`, "")
	r := s.rollout(s.set)
	s.report(event.RolloutPassageRequested{RolloutID: r.ID, GateID: "staging"})
	s.report(event.RolloutEnvironmentHealthy{RolloutID: r.ID, EnvironmentID: s.staging.ID})
	s.now.Advance(30 * time.Minute)
	s.report(event.RolloutPassageRequested{RolloutID: r.ID, GateID: "production"})
	s.now.Advance(48 * time.Hour)
	s.want(s.passes(), "the rollout:") // it stands still
	s.want(s.passes(), "")
	s.ok(s.approve(person(2), r, "production"))
	s.want(s.passes(), "the rollout:") // and runs again
	s.now.Advance(29 * time.Minute)
	s.want(s.passes(), "")
	_, err := s.rollouts.PauseRollout(t.Context(), user(), r.ID, "")
	s.ok(err)
	s.now.Advance(time.Minute) // a wish to pause is no pause yet
	s.want(s.passes(), "the rollout: failed")
	s.want(s.reload(r).State, core.RolloutFailed)
}

func TestWaitingCountsIfThePipelineWantsIt(t *testing.T) {
	t.Parallel()
	s := newTimed(t, `"deadline":{"after":3600,"counts_waiting":true},`, "")
	r := s.rollout(s.set)
	s.pass(r, "staging")
	s.report(event.RolloutPassageRequested{RolloutID: r.ID, GateID: "production"})
	s.now.Advance(time.Hour)
	s.want(s.passes(), "the rollout: failed")
	s.want(s.last(r, core.VerbFail).Reason, "the deadline of the rollout has passed: it did not end within 1h0m0s")
}

func TestAnEnvironmentHasADeadlineFromItsEntrance(t *testing.T) {
	t.Parallel()
	s := newTimed(t, "", `"deadline":{"after":600},`)
	r := s.rollout(s.set)
	s.now.Advance(time.Hour)
	s.want(s.passes(), "") // it has not entered
	s.pass(r, "staging")
	s.now.Advance(5 * time.Minute)
	s.report(event.RolloutEnvironmentHealthy{RolloutID: r.ID, EnvironmentID: s.staging.ID})
	s.now.Advance(5 * time.Minute)
	s.want(s.passes(), `environment "staging": met`)
	s.succeed(r)

	r = s.rollout(s.release(2))
	s.pass(r, "staging")
	s.now.Advance(10 * time.Minute)
	s.want(s.passes(), `environment "staging": failed`)
	s.want(s.stops(r)[0].State, core.RolloutFailed)
	s.want(s.reload(r).State, core.RolloutFailed)
	s.close()
	s.verifyJournal(r)
}

func TestADeadlineThatAborts(t *testing.T) {
	t.Parallel()
	s := newTimed(t, `"deadline":{"after":600,"on_expiry":"abort"},`, "")
	r := s.rollout(s.set)
	s.pass(r, "staging")
	s.report(event.DeploymentStarted{DeploymentID: s.deployments(s.stops(r)[0])[0].ID})
	s.now.Advance(10 * time.Minute)
	s.want(s.passes(), "the rollout: aborted")
	s.report(event.RolloutAborted{RolloutID: r.ID, EnvironmentID: s.staging.ID, Reason: "taken back"})
	s.want(s.reload(r).State, core.RolloutPaused)
	s.now.Advance(time.Hour)
	s.want(s.passes(), "")
	_, err := s.rollouts.RetryRollout(t.Context(), user(), r.ID, "") // time begins anew
	s.ok(err)
	s.now.Advance(9 * time.Minute)
	s.want(s.passes(), "")
	s.now.Advance(time.Minute)
	s.want(s.passes(), "the rollout: aborted")
	s.now.Advance(30 * time.Minute) // its program does not take it back
	s.want(s.passes(), "the abort: failed")
	s.want(s.reload(r).State, core.RolloutFailed)
	if reason := s.last(r, core.VerbFail).Reason; !strings.Contains(reason, "the deadline of the abort has passed") {
		t.Errorf("found %q", reason)
	}
}

func TestARollbackHasADeadline(t *testing.T) {
	t.Parallel()
	s := newTimed(t, `"deadline":{"after":600},"rollback_deadline":{"after":60},`, "")
	s.succeed(s.rollout(s.set))
	s.succeed(s.rollout(s.release(2)))
	back, err := s.rollouts.RollbackRollout(t.Context(), user(), rollout.Rollback{RolloutID: 2, Reason: "slow"})
	s.ok(err)
	s.now.Advance(time.Minute)
	s.want(s.passes(), "the rollout: failed")
	s.want(s.reload(back).State, core.RolloutFailed)
}

// cancel cancels a rollout with a choice.
func (s *shop) cancel(r core.Rollout, then rollout.AfterCancel) (core.Rollout, error) {
	s.t.Helper()
	return s.rollouts.CancelThen(s.t.Context(), user(), rollout.Cancellation{RolloutID: r.ID, Then: then, Reason: "wrong set"})
}

func TestTheCallerWhoCancelsChoosesWhatHappensThen(t *testing.T) { // R4-05, R4-24
	t.Parallel()
	s := newTimed(t, "", "")
	r := s.rollout(s.set)
	_, err := s.cancel(r, rollout.CancelLeaves)
	s.ok(err)
	s.want(s.last(r, core.VerbCancel).Reason, "what is deployed stays: wrong set")
	s.want(s.last(r, core.VerbCancel).PrincipalType, core.PrincipalUser) // also while it is pending
	r = s.rollout(s.set)
	_, err = s.cancel(r, rollout.CancelRollsBack)
	s.refused(err, "nothing was live before")
	s.want(s.reload(r).State, core.RolloutPending) // nothing has happened
	_, err = s.cancel(r, rollout.CancelAborts)
	s.ok(err)
	s.want(s.last(r, core.VerbCancel).Reason, "nothing was being deployed that an abort would take back: wrong set")

	s.succeed(s.rollout(s.set))
	r = s.rollout(s.release(2))
	s.pass(r, "staging")
	s.report(event.DeploymentStarted{DeploymentID: s.deployments(s.stops(r)[0])[0].ID})
	_, err = s.cancel(r, rollout.CancelAborts)
	s.ok(err)
	if got := s.reload(r); got.State != core.RolloutInProgress {
		t.Errorf("found %s; want it to be taken back first", got.State)
	}
	done := s.emit(event.RolloutAborted{RolloutID: r.ID, EnvironmentID: s.staging.ID, Reason: "aborted"}, "")
	s.deliver(done, done)
	s.want(s.reload(r).State, core.RolloutCancelled)
	row := s.last(r, core.VerbCancel)
	s.want(row.Reason, "what was being deployed has been taken back: wrong set")
	s.want(row.PrincipalID, user().ID)
	s.verifyJournal(r)

	r = s.rollout(s.release(3))
	s.pass(r, "staging")
	s.report(event.DeploymentStarted{DeploymentID: s.deployments(s.stops(r)[0])[0].ID})
	back, err := s.cancel(r, rollout.CancelRollsBack)
	s.ok(err)
	s.want(s.reload(r).State, core.RolloutCancelled)
	if back.RollbackOf != r.ID || back.VersionSetID != s.set.ID {
		t.Errorf("found %+v; want a rollback to %d", back, s.set.ID)
	}
}

func TestAProgramThatDoesNotTakeBackIsCancelledAllTheSame(t *testing.T) {
	t.Parallel()
	s := newTimed(t, "", "")
	r := s.rollout(s.set)
	s.pass(r, "staging")
	s.report(event.DeploymentStarted{DeploymentID: s.deployments(s.stops(r)[0])[0].ID})
	_, err := s.cancel(r, rollout.CancelAborts)
	s.ok(err)
	s.now.Advance(29 * time.Minute)
	s.want(s.passes(), "")
	s.now.Advance(time.Minute)
	s.want(s.passes(), "the abort: cancelled")
	s.want(s.last(r, core.VerbCancel).Reason, "its program had not taken everything back within 30m0s: wrong set")
	s.want(s.last(r, core.VerbCancel).PrincipalID, user().ID)

	r = s.rollout(s.set)
	s.pass(r, "staging")
	s.report(event.DeploymentStarted{DeploymentID: s.deployments(s.stops(r)[0])[0].ID})
	_, err = s.cancel(r, rollout.CancelAborts)
	s.ok(err)
	_, err = s.rollouts.RetryRollout(t.Context(), user(), r.ID, "it was right") // withdraws the cancellation
	s.ok(err)
	s.now.Advance(time.Hour)
	s.want(s.passes(), "")
	s.want(s.reload(r).State, core.RolloutInProgress)
}

// A rollout that was paused while it deployed is taken back like any other, and ends once that is reported, not before.
func TestAPausedRolloutIsTakenBackBeforeItIsCancelled(t *testing.T) {
	t.Parallel()
	s := newTimed(t, "", "")
	r := s.rollout(s.set)
	s.pass(r, "staging")
	s.report(event.DeploymentStarted{DeploymentID: s.deployments(s.stops(r)[0])[0].ID})
	_, err := s.rollouts.PauseRollout(t.Context(), user(), r.ID, "")
	s.ok(err)
	s.report(event.RolloutPassageRequested{RolloutID: r.ID, GateID: "production"})
	s.want(s.reload(r).State, core.RolloutPaused)
	for range 2 { // asked again, it is not over either, and gets no more time
		_, err = s.cancel(r, rollout.CancelAborts)
		s.ok(err)
		s.want(s.reload(r).State, core.RolloutPaused)
		s.now.Advance(10 * time.Minute)
	}
	s.now.Advance(9 * time.Minute)
	s.want(s.passes(), "")
	s.report(event.RolloutAborted{RolloutID: r.ID, EnvironmentID: s.staging.ID, Reason: "aborted"})
	s.want(s.reload(r).State, core.RolloutCancelled)
	s.want(s.last(r, core.VerbCancel).Reason, "what was being deployed has been taken back: wrong set")
	s.verifyJournal(r)

	r = s.rollout(s.set) // aborted by a person, it stays paused, as what it was
	s.pass(r, "staging")
	s.report(event.DeploymentStarted{DeploymentID: s.deployments(s.stops(r)[0])[0].ID})
	_, err = s.rollouts.PauseRollout(t.Context(), user(), r.ID, "")
	s.ok(err)
	s.report(event.RolloutPassageRequested{RolloutID: r.ID, GateID: "production"})
	_, err = s.rollouts.AbortRollout(t.Context(), user(), r.ID, "")
	s.ok(err)
	done := s.emit(event.RolloutAborted{RolloutID: r.ID, EnvironmentID: s.staging.ID, Reason: "taken back"}, "")
	s.deliver(done, done)
	s.want(s.last(r, core.VerbPause).Reason, "taken back")
	_, err = s.rollouts.RetryRollout(t.Context(), user(), r.ID, "")
	s.ok(err)
	s.want(s.reload(r).State, core.RolloutInProgress)
	s.verifyJournal(r)
}

// No deadline interrupts an abort, nor overrules the choice of the caller who cancelled.
func TestNoDeadlinePassesInTheMiddleOfAnAbort(t *testing.T) {
	t.Parallel()
	for _, counts := range []string{"false", "true"} {
		s := newTimed(t, `"deadline":{"after":600,"counts_waiting":`+counts+`},`, "")
		r := s.rollout(s.set)
		s.pass(r, "staging")
		s.report(event.DeploymentStarted{DeploymentID: s.deployments(s.stops(r)[0])[0].ID})
		s.now.Advance(590 * time.Second)
		_, err := s.cancel(r, rollout.CancelAborts)
		s.ok(err)
		s.now.Advance(20 * time.Second)
		s.want(s.passes(), "the rollout: after the abort")
		s.want(s.passes(), "")
		s.want(s.reload(r).State, core.RolloutInProgress)
		s.report(event.RolloutAborted{RolloutID: r.ID, EnvironmentID: s.staging.ID, Reason: "aborted"})
		s.want(s.reload(r).State, core.RolloutCancelled)
	}
}
