package domain

import (
	"fmt"
	"strings"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/rollout"
)

// commands are what workflows have been asked to do, in order.
func (s *shop) commands() []string {
	s.t.Helper()
	rows, err := s.pool.Query(s.t.Context(), `SELECT event->>'type', COALESCE(event->'data'->>'reason', '') FROM outbox
		WHERE event->>'type' IN ($1, $2) ORDER BY id`, event.TypeRolloutAbortRequested, event.TypeRolloutRetryRequested)
	s.ok(err)
	defer rows.Close()
	all := []string{}
	for rows.Next() {
		var kind, reason string
		s.ok(rows.Scan(&kind, &reason))
		all = append(all, kind[len("com.gitlab.cd.rollout."):]+": "+reason)
	}
	s.ok(rows.Err())
	return all
}

func TestAbortAndRetry(t *testing.T) { // D18, E73
	t.Parallel()
	s := newShop(t)
	r := s.rollout(s.set)
	_, err := s.rollouts.AbortRollout(t.Context(), user(), r.ID, "")
	s.refused(err, "nothing is being deployed; cancel it instead")
	s.report(event.DeploymentStarted{DeploymentID: s.deployments(s.stops(r)[0])[0].ID})
	s.report(event.ApprovalRequested{RolloutID: r.ID, GateID: "staging/25", EnvironmentID: s.staging.ID})
	_, err = s.rollouts.RetryRollout(t.Context(), user(), r.ID, "")
	s.refused(err, "nobody has aborted it")

	r, err = s.rollouts.AbortRollout(t.Context(), user(), r.ID, "errors")
	s.ok(err)
	if r.State != core.RolloutInProgress || r.AwaitingApproval {
		t.Errorf("asked for, not done: %+v", r)
	}
	_, err = s.rollouts.AbortRollout(t.Context(), user(), r.ID, "")
	s.refused(err, "is aborted already")
	for _, verb := range []func() error{
		func() error { _, err := s.rollouts.PauseRollout(t.Context(), user(), r.ID, ""); return err },
		func() error { _, err := s.rollouts.ResumeRollout(t.Context(), user(), r.ID, ""); return err },
	} {
		s.refused(verb(), "is aborted; retry it, roll it back or cancel it")
	}
	s.refused(s.approve(person(2), r, "staging/25"), "is not open")
	done := s.emit(event.RolloutAborted{RolloutID: r.ID, EnvironmentID: s.staging.ID, Reason: "aborted: errors"}, "")
	s.deliver(done, done)
	if r = s.reload(r); r.State != core.RolloutPaused {
		t.Errorf("done: %+v", r)
	}
	r, err = s.rollouts.RetryRollout(t.Context(), person(2), r.ID, "mended")
	s.ok(err)
	if r.State != core.RolloutInProgress {
		t.Errorf("tried again: %+v", r)
	}
	s.report(event.RolloutAborted{RolloutID: r.ID, EnvironmentID: s.staging.ID, Reason: "late"})
	s.report(event.ApprovalRequested{RolloutID: r.ID, GateID: "staging/25", EnvironmentID: s.staging.ID}) // once more from the first gate
	s.ok(s.approve(person(2), r, "staging/25"))
	s.want(s.commands(), []string{"abort_requested: errors", "retry_requested: mended"})
	s.want(s.ownStory(r)[2:], []string{
		"rollout request_approval in_progress→in_progress", "rollout abort in_progress→in_progress", "rollout pause in_progress→paused",
		"rollout retry paused→paused", "rollout resume paused→in_progress", "rollout request_approval in_progress→in_progress",
		"rollout approve in_progress→in_progress",
	})
	s.verifyJournal(r)
}

func TestARolloutThatIsOverIsRetriedByANewOne(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	r := s.rollout(s.set)
	s.report(event.RolloutFailed{RolloutID: r.ID, Reason: "no"})
	again, err := s.rollouts.RetryRollout(t.Context(), user(), r.ID, "mended")
	s.ok(err)
	if again.ID == r.ID || again.VersionSetID != r.VersionSetID || again.State != core.RolloutPending {
		t.Errorf("again: %+v", again)
	}
	_, err = s.rollouts.RetryRollout(t.Context(), user(), r.ID, "")
	s.refused(err, "rollout_2 has begun since")
	s.succeed(again)
	_, err = s.rollouts.RetryRollout(t.Context(), user(), again.ID, "")
	s.refused(err, "there is nothing to retry")
	if _, err = s.rollouts.RetryRollout(t.Context(), core.Actor{
		Organization: 2, Type: core.PrincipalUser, ID: 1,
		Permissions: core.RoleOwner.Permissions(),
	}, r.ID, ""); !fault.Is(err, fault.NotFound) {
		t.Errorf("another organization's: %v", err)
	}
}

func TestACompletedWorkflowDoesNotFailWhatWasHealthy(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	r := s.rollout(s.set)
	s.report(event.RolloutStarted{RolloutID: r.ID})
	s.report(event.WorkflowCompleted{WorkflowID: "rollout-1"}) // overtakes
	if got := s.reload(r); got.State != core.RolloutInProgress {
		t.Errorf("before its own report: %+v", got)
	}
	s.report(event.RolloutHealthy{RolloutID: r.ID})
	s.close()
	if got := s.reload(r); got.State != core.RolloutCompleted {
		t.Errorf("after it: %+v", got)
	}
	r = s.rollout(s.release(2))
	s.report(event.WorkflowCompleted{WorkflowID: "rollout-2"})
	s.close()
	if got := s.reload(r); got.State != core.RolloutFailed {
		t.Errorf("without its own report: %+v", got)
	}
	s.verifyJournal(r)
}

func TestAPolicyThatRollsBackAtOnceHoweverItFailed(t *testing.T) {
	t.Parallel()
	s, r := upgraded(t)
	_, err := s.rollouts.SetRolloutPolicy(t.Context(), user(),
		core.RolloutPolicy{ApplicationID: s.application.ID, OnFailure: core.FailureRollsBack, OnNewer: core.NewerRefused})
	s.ok(err)
	_, err = s.rollouts.SetRollbackPolicy(t.Context(), user(), core.RollbackPolicy{ApplicationID: s.application.ID, InFull: true})
	s.ok(err)
	s.report(event.DeploymentDegraded{DeploymentID: s.deployments(s.stops(r)[0])[0].ID})
	s.report(event.DeploymentFailed{DeploymentID: s.deployments(s.stops(r)[0])[1].ID, Reason: "stopped"})
	s.report(event.RolloutEnvironmentFailed{RolloutID: r.ID, EnvironmentID: s.staging.ID, Reason: "degraded"})
	s.report(event.RolloutFailed{RolloutID: r.ID, Reason: "degraded"})
	done, worked := s.due() // nothing is missing, so nothing is waited for
	if !worked || done.MadeRolloutID == 0 {
		t.Fatalf("not rolled back: %+v", done)
	}
	s.handOver()
	if in := string(s.engine.started[len(s.engine.started)-1].Inputs); !strings.Contains(in, `"promote_full": true`) {
		t.Errorf("a complete rollback (D14): %s", in)
	}
}

// people are owners with these numbers.
func (s *shop) people(ids ...int64) {
	s.t.Helper()
	for _, id := range ids {
		s.ok(s.store.EnsureOwner(s.t.Context(), org, id, fmt.Sprintf("person-%d", id)))
	}
}

func TestAQueuedRolloutEndsWithItsRequestersRight(t *testing.T) { // D50
	t.Parallel()
	for what, test := range map[string]struct {
		lose func(s *shop)
		want string
	}{
		"removed": {func(s *shop) {
			_, err := s.access.RemoveMember(t.Context(), user(), 5)
			s.ok(err)
		}, "person-5, who asked for it, was removed from the organization"},
		"another role": {func(s *shop) {
			_, err := s.access.SetMemberRole(t.Context(), user(), 5, core.RoleApprover)
			s.ok(err)
		}, "person-5, who asked for it, may no longer deploy: the role is approver"},
		"still a deployer": {func(s *shop) {
			_, err := s.access.SetMemberRole(t.Context(), user(), 5, core.RoleDeployer)
			s.ok(err)
		}, ""},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			s.people(1, 5)
			_, err := s.rollouts.SetRolloutPolicy(t.Context(), user(), core.RolloutPolicy{
				ApplicationID: s.application.ID, OnFailure: core.FailureStops, OnNewer: core.NewerQueued,
			})
			s.ok(err)
			first := s.rollout(s.set)
			_, err = s.rollouts.CreateRollout(t.Context(), person(5), rollout.NewRollout{VersionSetID: s.release(2).ID})
			s.ok(err)
			test.lose(s)
			s.succeed(first)
			q, worked, err := s.rollouts.BeginQueued(t.Context())
			s.ok(err)
			if !worked || q.Outcome != test.want || (q.MadeRolloutID != 0) != (test.want == "") {
				t.Errorf("found %+v; want the outcome %q", q, test.want)
			}
		})
	}
}

func TestWhatBecomesOfANewerVersionSet(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	policy := func(n core.NewerPolicy) {
		t.Helper()
		_, err := s.rollouts.SetRolloutPolicy(t.Context(), user(),
			core.RolloutPolicy{ApplicationID: s.application.ID, OnFailure: core.FailureStops, OnNewer: n})
		s.ok(err)
	}
	promote := func(a core.Actor, set core.VersionSet) (rollout.Promotion, error) {
		return s.rollouts.CreateRollout(t.Context(), a, rollout.NewRollout{VersionSetID: set.ID, Reason: "newer"})
	}
	s.people(1, 5)
	first := s.rollout(s.set)
	second, third := s.release(2), s.release(3)
	_, err := promote(user(), second)
	s.refused(err, "has an active rollout already: rollout_1 is pending")

	policy(core.NewerSupersedes)
	s.report(event.RolloutStarted{RolloutID: first.ID})
	_, err = promote(user(), second)
	s.refused(err, "rollout_1 is in progress and moves")
	s.report(event.ApprovalRequested{RolloutID: first.ID, GateID: "production"})
	made, err := promote(user(), second)
	s.ok(err)
	if got := s.reload(first); got.State != core.RolloutCancelled || made.Rollout == nil {
		t.Errorf("superseded: %+v by %+v", got, made)
	}
	_, err = promote(user(), s.set)
	s.refused(err, "has an active rollout already") // going back is no newer set

	policy(core.NewerQueued)
	for _, a := range []core.Actor{user(), person(5)} { // the latest one asked for counts
		made, err := promote(a, third)
		s.ok(err)
		if made.Rollout != nil || made.Queued == nil {
			t.Errorf("queued: %+v", made)
		}
	}
	if q, worked, err := s.rollouts.BeginQueued(t.Context()); worked || err != nil {
		t.Errorf("begun beside the active one: %+v, %v", q, err)
	}
	s.succeed(*made.Rollout)
	q, worked, err := s.rollouts.BeginQueued(t.Context())
	s.ok(err)
	if !worked || q.MadeRolloutID == 0 || q.VersionSetID != third.ID {
		t.Errorf("begun: %+v", q)
	}
	j, err := s.view.Journal(t.Context(), org, q.MadeRolloutID, core.Page{First: 1})
	s.ok(err)
	s.want(j.Nodes[0].PrincipalID, int64(5))

	_, err = promote(user(), s.release(4))
	s.ok(err)
	_, err = s.rollouts.CancelRollout(t.Context(), user(), q.MadeRolloutID, "")
	s.ok(err)
	s.ok(s.fail(s.staging.ID))
	q, worked, err = s.rollouts.BeginQueued(t.Context())
	s.ok(err)
	if !worked || q.MadeRolloutID != 0 || q.Outcome == "" {
		t.Errorf("what cannot begin is dropped: %+v", q)
	}
}
