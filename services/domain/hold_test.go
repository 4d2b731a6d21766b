package domain

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/rollout"
)

// granted are the gates that workflows have been let past, in order.
func (s *shop) granted() []string {
	s.t.Helper()
	rows, err := s.pool.Query(s.t.Context(), `SELECT event->'data'->>'gate_id' FROM outbox WHERE event->>'type' = $1 ORDER BY id`,
		event.TypeRolloutPassageGranted)
	s.ok(err)
	defer rows.Close()
	gates := []string{}
	for rows.Next() {
		var gate string
		s.ok(rows.Scan(&gate))
		gates = append(gates, gate)
	}
	s.ok(rows.Err())
	return gates
}

// ownStory is the part of the story that is the rollout's own.
func (s *shop) ownStory(r core.Rollout) []string {
	s.t.Helper()
	var lines []string
	for _, line := range s.story(r) {
		if strings.HasPrefix(line, "rollout ") {
			lines = append(lines, line)
		}
	}
	return lines
}

func (s *shop) want(got, want any) {
	s.t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		s.t.Errorf("(-want +got):\n%s", diff)
	}
}

func (s *shop) refused(err error, text string) {
	s.t.Helper()
	if !fault.Is(err, fault.Refused) || !strings.Contains(err.Error(), text) {
		s.t.Errorf("got %v (%v), want a refusal with %q", err, fault.ClassOf(err), text)
	}
}

func TestAPauseOnTheWayIsARequestUntilTheNextGate(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	r := s.rollout(s.set)
	s.report(event.RolloutPassageRequested{RolloutID: r.ID, GateID: "staging", EnvironmentID: s.staging.ID})
	r, err := s.rollouts.PauseRollout(t.Context(), user(), r.ID, "lunch")
	s.ok(err)
	if r.State != core.RolloutInProgress || !r.PauseRequested {
		t.Errorf("on its way: %+v", r)
	}
	_, err = s.rollouts.PauseRollout(t.Context(), user(), r.ID, "")
	s.refused(err, "will pause at its next gate already")

	gate := s.emit(event.RolloutGateReached{RolloutID: r.ID, EnvironmentID: s.staging.ID, Weight: 25}, "")
	s.deliver(gate, gate)
	if r = s.reload(r); r.State != core.RolloutPaused || r.PauseRequested {
		t.Errorf("at the gate: %+v", r)
	}
	ask := s.emit(event.RolloutPassageRequested{RolloutID: r.ID, GateID: "staging/25"}, "")
	s.deliver(ask, ask)
	_, err = s.rollouts.PauseRollout(t.Context(), user(), r.ID, "")
	s.refused(err, "is paused already")
	s.want(s.granted(), []string{"staging"})

	r, err = s.rollouts.ResumeRollout(t.Context(), user(), r.ID, "back")
	s.ok(err)
	if r.State != core.RolloutInProgress {
		t.Errorf("resumed: %+v", r)
	}
	s.want(s.granted(), []string{"staging", "staging/25"})
	_, err = s.rollouts.ResumeRollout(t.Context(), user(), r.ID, "")
	s.refused(err, "nobody has paused it")
	s.report(event.RolloutGateReached{RolloutID: r.ID, EnvironmentID: s.staging.ID, Weight: 25}) // late, and twice
	s.want(s.ownStory(r), []string{
		"rollout create →pending", "rollout start pending→in_progress", "rollout pass_gate in_progress→in_progress",
		"rollout pause in_progress→in_progress", "rollout reach_gate in_progress→in_progress", "rollout pause in_progress→paused",
		"rollout request_passage paused→paused", "rollout resume paused→in_progress", "rollout pass_gate in_progress→in_progress",
	})
	s.verifyJournal(r)
}

func TestAPauseWhereItStandsIsTrueAtOnce(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	r := s.rollout(s.set)
	s.report(event.ApprovalRequested{RolloutID: r.ID, GateID: "staging"})
	r, err := s.rollouts.PauseRollout(t.Context(), user(), r.ID, "")
	s.ok(err)
	if r.State != core.RolloutPaused || !r.AwaitingApproval {
		t.Errorf("while people are asked: %+v", r)
	}
	_, err = s.rollouts.ApproveGate(t.Context(), person(2), rollout.Resolution{RolloutID: r.ID, GateID: "staging"})
	s.ok(err)
	s.report(event.RolloutPassageRequested{RolloutID: r.ID, GateID: "staging"})
	if r = s.reload(r); r.State != core.RolloutPaused || len(s.granted()) > 0 {
		t.Errorf("an approval is no resumption: %+v, granted %v", r, s.granted())
	}
	_, err = s.rollouts.ResumeRollout(t.Context(), user(), r.ID, "")
	s.ok(err)
	s.want(s.granted(), []string{"staging"})
	s.verifyJournal(r)
}

func TestAHoldThatIsTakenBackOrEndsWithTheRollout(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	r := s.rollout(s.set)
	r, err := s.rollouts.PauseRollout(t.Context(), user(), r.ID, "before it starts")
	s.ok(err)
	r, err = s.rollouts.ResumeRollout(t.Context(), user(), r.ID, "never mind")
	s.ok(err)
	if r.State != core.RolloutPending || r.PauseRequested {
		t.Errorf("taken back: %+v", r)
	}
	s.report(event.RolloutPassageRequested{RolloutID: r.ID, GateID: "staging"})
	s.want(s.granted(), []string{"staging"})
	_, err = s.rollouts.PauseRollout(t.Context(), user(), r.ID, "")
	s.ok(err)
	s.report(event.RolloutPassageRequested{RolloutID: r.ID, GateID: "staging/25"})
	s.report(event.RolloutFailed{RolloutID: r.ID, Reason: "degraded"}) // a hold keeps nobody from failing
	if r = s.reload(r); r.State != core.RolloutFailed || r.PauseRequested {
		t.Errorf("failed: %+v", r)
	}
	s.report(event.RolloutPassageRequested{RolloutID: r.ID, GateID: "staging/50"})
	_, err = s.rollouts.ResumeRollout(t.Context(), user(), r.ID, "")
	s.refused(err, "has ended: failed")
	_, err = s.rollouts.PauseRollout(t.Context(), user(), r.ID, "")
	s.refused(err, "has ended: failed")
	s.want(s.granted(), []string{"staging"})
	s.verifyJournal(r)
}

func TestTheGatesOfADeployment(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	r := s.rollout(s.set)
	d := s.deployments(s.stops(r)[0])[0]
	s.report(event.DeploymentGateReached{DeploymentID: d.ID, Weight: 25})
	s.report(event.DeploymentAdvance{DeploymentID: d.ID, Weight: 25})
	s.report(event.DeploymentGateReached{DeploymentID: d.ID, Weight: 50})
	found, err := s.view.GatesByDeployment(t.Context(), org, []int64{d.ID})
	s.ok(err)
	type gate struct {
		ID              string
		Reached, Passed bool
	}
	var got []gate
	for _, g := range found[d.ID] {
		got = append(got, gate{g.GateID, g.ReachedAt != nil, g.PassedAt != nil})
	}
	s.want(got, []gate{{"staging/25", true, true}, {"staging/50", true, false}})
	other, err := s.view.GatesByDeployment(t.Context(), 2, []int64{d.ID})
	s.ok(err)
	if len(other) > 0 {
		t.Errorf("another organization sees %v", other)
	}
}

func TestRollingBack(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	first := s.rollout(s.set)
	_, err := s.rollouts.RollbackRollout(t.Context(), user(), rollout.Rollback{RolloutID: first.ID})
	s.refused(err, "nothing was live before rollout_1")
	s.succeed(first)
	second := s.release(2)
	r := s.rollout(second)
	s.handOver()
	s.report(event.RolloutEnvironmentStarted{RolloutID: r.ID, EnvironmentID: s.staging.ID})
	_, err = s.rollouts.RollbackRollout(t.Context(), user(), rollout.Rollback{RolloutID: r.ID})
	s.refused(err, "rollout_2 has changed nothing, so there is nothing to roll back; to end it where it is, cancel it")
	s.report(event.DeploymentStarted{DeploymentID: s.deployments(s.stops(r)[0])[0].ID})

	third := s.release(3)
	_, err = s.rollouts.RollbackRollout(t.Context(), user(), rollout.Rollback{RolloutID: r.ID, VersionSetID: third.ID})
	s.refused(err, third.Name+" is not earlier than "+second.Name)
	if _, err = s.rollouts.RollbackRollout(t.Context(), user(), rollout.Rollback{RolloutID: r.ID, VersionSetID: 999}); !fault.Is(err,
		fault.NotFound) {
		t.Errorf("not a set: %v", err)
	}
	stranger := core.Actor{Organization: 2, Type: core.PrincipalUser, ID: 1, Permissions: core.RoleOwner.Permissions()}
	if _, err = s.rollouts.RollbackRollout(t.Context(), stranger, rollout.Rollback{RolloutID: r.ID}); !fault.Is(err, fault.NotFound) {
		t.Errorf("another organization: %v", err)
	}
	if got := s.reload(r); got.State != core.RolloutInProgress {
		t.Errorf("what was refused has changed something: %+v", got)
	}

	back, err := s.rollouts.RollbackRollout(t.Context(), user(), rollout.Rollback{RolloutID: r.ID, Reason: "slow"})
	s.ok(err)
	s.handOver()
	if got := s.reload(r); got.State != core.RolloutCancelled {
		t.Errorf("the rollout that was rolled back: %+v", got)
	}
	if got := s.reload(back); got.VersionSetID != s.set.ID || got.State != core.RolloutPending {
		t.Errorf("the rollback: %+v", got)
	}
	s.want(s.engine.cancels, []string{"rollout-2"})
	s.want(s.engine.started[len(s.engine.started)-1].ID, "rollout-3")
	j, err := s.view.Journal(t.Context(), org, back.ID, core.Page{First: 1})
	s.ok(err)
	s.want(j.Nodes[0].Reason, "rollback of rollout_2: slow")
	s.succeed(back)
	if got := s.reload(back); !got.IsRollback {
		t.Errorf("not derived: %+v", got)
	}
	s.verifyJournal(r)
	s.verifyJournal(back)
}

func TestTheJournalOfADeploymentHasItsGates(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	r := s.rollout(s.set)
	d := s.deployments(s.stops(r)[0])[0]
	reached := s.emit(event.DeploymentGateReached{DeploymentID: d.ID, Weight: 25}, "")
	s.deliver(reached, reached) // before anything is reported as started, and twice
	s.report(event.DeploymentAdvance{DeploymentID: d.ID, Weight: 25})
	s.report(event.DeploymentHealthy{DeploymentID: d.ID})
	s.report(event.DeploymentGateReached{DeploymentID: d.ID, Weight: 50}) // late
	want := []string{
		"rollout start pending→in_progress", "rolloutenvironment start pending→in_progress", "deployment start pending→deploying",
		"deployment reach_gate deploying→deploying", "deployment pass_gate deploying→deploying", "deployment complete deploying→healthy",
		"deployment reach_gate healthy→healthy",
	}
	if diff := cmp.Diff(want, s.story(r)[7:]); diff != "" {
		t.Errorf("journal after the creation (-want +got):\n%s", diff)
	}
	j, err := s.view.Journal(t.Context(), org, r.ID, core.Page{First: 500})
	s.ok(err)
	if gate := j.Nodes[11].GateID; gate != "staging/25" {
		t.Errorf("gate: got %q, want staging/25", gate)
	}
	s.verifyJournal(r)
}

// What a grant lets the run change is derived from the record, not from what the run's request claims (D46).
func TestAGrantNamesTheEnvironmentThatItOpens(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	r := s.rollout(s.set)
	for _, gate := range []string{"staging", "staging/25", "staging/025", "staging/x", "production", "release"} {
		if gate == "production" { // the pipeline has an approval there
			s.report(event.ApprovalRequested{RolloutID: r.ID, GateID: gate, EnvironmentID: s.production.ID})
			s.ok(s.approve(person(2), r, gate))
		}
		s.deliver(s.emit(event.RolloutPassageRequested{RolloutID: r.ID, GateID: gate, EnvironmentID: s.production.ID}, ""))
	}
	var got []event.RolloutPassageGranted
	rows, err := s.pool.Query(t.Context(), `SELECT event->'data' FROM outbox WHERE event->>'type' = $1 ORDER BY id`,
		event.TypeRolloutPassageGranted)
	s.ok(err)
	got, err = pgx.CollectRows(rows, pgx.RowTo[event.RolloutPassageGranted])
	s.ok(err)
	for i, g := range got {
		if opens := g.EnvironmentID > 0 && g.Weight == 0; opens != (len(g.Places) > 0) {
			t.Errorf("%s: found places %v", g.GateID, g.Places)
		}
		s.want(g.ApplicationID, r.ApplicationID)
		got[i].ApplicationID, got[i].Places, got[i].PinnedWeights = 0, nil, nil
	}
	s.want(got, []event.RolloutPassageGranted{
		{RolloutID: r.ID, GateID: "staging", EnvironmentID: s.staging.ID},
		{RolloutID: r.ID, GateID: "staging/25", EnvironmentID: s.staging.ID, Weight: 25},
		{RolloutID: r.ID, GateID: "staging/025"},
		{RolloutID: r.ID, GateID: "staging/x"},
		{RolloutID: r.ID, GateID: "production", EnvironmentID: s.production.ID},
		{RolloutID: r.ID, GateID: "release"},
	})
}
