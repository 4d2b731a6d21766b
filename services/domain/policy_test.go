package domain

import (
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/id"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/rollout"
)

// upgraded is a shop where one set is live and a rollout of another has begun to change staging.
func upgraded(t *testing.T) (*shop, core.Rollout) {
	t.Helper()
	s := newShop(t)
	return s, s.upgrade()
}

// upgrade makes the first set live, and begins to change staging to another.
func (s *shop) upgrade() core.Rollout {
	s.t.Helper()
	s.succeed(s.rollout(s.set))
	r := s.rollout(s.release(2))
	s.report(event.DeploymentStarted{DeploymentID: s.deployments(s.stops(r)[0])[0].ID})
	return r
}

// due carries out the automatic rollback that is due, if there is one.
func (s *shop) due() (core.AutomaticRollback, bool) {
	s.t.Helper()
	done, worked, err := s.rollouts.RollBackDue(s.t.Context())
	s.ok(err)
	return done, worked
}

func (s *shop) nothingDue(when string) {
	s.t.Helper()
	if done, worked := s.due(); worked {
		s.t.Errorf("%s: rolled back: %+v", when, done)
	}
}

func TestAFailedRolloutIsRolledBackAtOnceAndOnce(t *testing.T) {
	t.Parallel()
	s, r := upgraded(t)
	failed := s.emit(event.RolloutFailed{RolloutID: r.ID, Reason: "sync failed"}, "")
	s.deliver(failed, failed)
	s.report(event.WorkflowFailed{WorkflowID: "rollout-" + itoa(r.ID), Error: "fail"})
	s.nothingDue("while more may be reported of it")
	s.close()
	done, worked := s.due()
	if !worked || done.RolloutID != r.ID || done.MadeRolloutID == 0 {
		t.Fatalf("rolled back: %+v", done)
	}
	s.nothingDue("a second time")

	back := s.reload(core.Rollout{ID: done.MadeRolloutID})
	s.want(back.VersionSetID, s.set.ID)
	j, err := s.view.Journal(t.Context(), org, back.ID, core.Page{First: 1})
	s.ok(err)
	s.want(j.Nodes[0].PrincipalType, core.PrincipalPolicy)
	s.want(j.Nodes[0].Reason, "automatic rollback of rollout_2: it failed")
	s.handOver()
	s.want(s.engine.started[len(s.engine.started)-1].ID, "rollout-3")

	s.report(event.DeploymentStarted{DeploymentID: s.deployments(s.stops(back)[0])[0].ID})
	s.report(event.RolloutFailed{RolloutID: back.ID, Reason: "that, too"})
	s.close()
	s.nothingDue("a rollback that failed")
	s.verifyJournal(back)
}

// rollsBackOnlyWhatStaysDegraded is the policy that leaves a rollout that failed to people.
func (s *shop) rollsBackOnlyWhatStaysDegraded() {
	s.t.Helper()
	_, err := s.rollouts.SetRollbackPolicy(s.t.Context(), user(),
		core.RollbackPolicy{ApplicationID: s.application.ID, OnDegraded: true, DegradedAfter: 30 * time.Minute})
	s.ok(err)
}

// By default a rollout that failed is rolled back at once, also where it failed because a service degraded.
func TestARolloutThatFailedBecauseAServiceDegradedIsRolledBackAtOnce(t *testing.T) {
	t.Parallel()
	s, r := upgraded(t)
	s.report(event.DeploymentDegraded{DeploymentID: s.deployments(s.stops(r)[0])[0].ID, Reason: "crash loop"})
	s.report(event.RolloutFailed{RolloutID: r.ID, Reason: "api is degraded"})
	s.close()
	done, worked := s.due()
	if !worked || done.RolloutID != r.ID || done.Cause != "failed" || done.MadeRolloutID == 0 {
		t.Errorf("rolled back: %+v", done)
	}
}

func TestADegradedRolloutIsLeftForAWhile(t *testing.T) {
	t.Parallel()
	s, r := watched(t)
	s.rollsBackOnlyWhatStaysDegraded()
	d := s.deployments(s.stops(r)[0])[0]
	s.report(event.DeploymentDegraded{DeploymentID: d.ID, Reason: "crash loop"})
	s.report(event.RolloutFailed{RolloutID: r.ID, Reason: "api is degraded"})
	s.close()
	s.nothingDue("before the time")
	var wait time.Duration
	s.ok(s.pool.QueryRow(t.Context(), `SELECT b.due_at - d.finished_at FROM cd_automatic_rollbacks b, cd_deployments d WHERE d.id = $1`,
		d.ID).Scan(&wait))
	s.want(wait, 30*time.Minute)

	again := s.rollout(s.set) // another request is faster
	s.until(30)
	done, worked := s.due()
	if !worked || done.MadeRolloutID != 0 || done.Outcome != "put off: rollout_3 is pending" {
		t.Errorf("with a newer rollout: %+v", done)
	}
	s.want(s.reload(again).State, core.RolloutPending)
	s.nothingDue("a moment after it was put off")
}

func TestAnApplicationsOwnPolicy(t *testing.T) {
	t.Parallel()
	s, r := upgraded(t)
	set := func(p core.RollbackPolicy) {
		t.Helper()
		p.ApplicationID = s.application.ID
		_, err := s.rollouts.SetRollbackPolicy(t.Context(), user(), p)
		s.ok(err)
	}
	set(core.RollbackPolicy{OnDegraded: true, DegradedAfter: 0})
	s.report(event.RolloutFailed{RolloutID: r.ID, Reason: "no rollback on failed"})
	s.close()
	s.nothingDue("switched off")

	r = s.rollout(s.sets()[0])
	s.report(event.DeploymentDegraded{DeploymentID: s.deployments(s.stops(r)[0])[0].ID})
	s.report(event.RolloutFailed{RolloutID: r.ID, Reason: "degraded"})
	s.close()
	s.ok(s.fail(s.staging.ID))
	if done, worked := s.due(); !worked || done.MadeRolloutID != 0 || done.Outcome == "" {
		t.Errorf("where the rollback is refused: %+v", done)
	}

	_, err := s.rollouts.SetRollbackPolicy(t.Context(), user(),
		core.RollbackPolicy{ApplicationID: s.application.ID, DegradedAfter: -time.Second})
	if !fault.Is(err, fault.Invalid) {
		t.Errorf("a wait below nothing: %v", err)
	}
	_, err = s.rollouts.SetRollbackPolicy(t.Context(), core.Actor{
		Organization: 2, Type: core.PrincipalUser, ID: 1,
		Permissions: core.RoleOwner.Permissions(),
	}, core.RollbackPolicy{ApplicationID: s.application.ID})
	if !fault.Is(err, fault.NotFound) {
		t.Errorf("another organization's application: %v", err)
	}
}

// fail makes an environment unready.
func (f *fixture) fail(environment int64) error {
	return f.rollouts.Apply(f.t.Context(), core.Inbound{Organization: org, ID: "gone", Type: "x", Correlation: id.OnboardingRun(environment,
		1), Envelope: f.emit(event.EnvironmentNotReady{EnvironmentID: environment, Reason: "gone"}, "")},
		rollout.EnvironmentReadiness{EnvironmentID: environment, Reason: "gone"})
}

func TestWhatChangedNothingIsNotRolledBack(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	first := s.rollout(s.set)
	s.report(event.DeploymentStarted{DeploymentID: s.deployments(s.stops(first)[0])[0].ID})
	s.report(event.RolloutFailed{RolloutID: first.ID, Reason: "the first ever"})
	s.close()
	s.nothingDue("nothing to go back to")
	s.succeed(s.rollout(s.set))
	r := s.rollout(s.release(2))
	s.report(event.RolloutFailed{RolloutID: r.ID, Reason: "before anything was touched"})
	s.close()
	s.nothingDue("nothing has changed")
	r = s.rollout(s.sets()[0])
	s.report(event.DeploymentStarted{DeploymentID: s.deployments(s.stops(r)[0])[0].ID})
	_, err := s.rollouts.CancelRollout(t.Context(), user(), r.ID, "people decide")
	s.ok(err)
	s.nothingDue("cancelled")
}
