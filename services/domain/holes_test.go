package domain

import (
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/bus"
	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// The holes that passages (D46, D47) were made for. With holes_shim_test.go of testdata/holes this file also compiles with the code before
// them, where each of its tests fails: docs/contributing/holes.md has how, and what was found.

// believed delivers what the rollout's program reports, whatever comes of it.
func (s *shop) believed(run string, all ...event.Data) {
	s.t.Helper()
	for _, data := range all {
		_ = s.on.Domain(s.t.Context(), []bus.Delivery{{Event: s.emit(data, run), Attempt: 1}})
	}
}

// programOf is the run that was started for a rollout.
func programOf(r core.Rollout) string { return "rollout-" + itoa(r.ID) }

// finishes are the reports of a program that has deployed to every environment of a rollout.
func (s *shop) finishes(r core.Rollout) (all []event.Data) {
	s.t.Helper()
	for _, e := range s.stops(r) {
		all = append(all, event.RolloutEnvironmentStarted{RolloutID: r.ID, EnvironmentID: e.EnvironmentID})
		for _, d := range s.deployments(e) {
			all = append(all, event.DeploymentStarted{DeploymentID: d.ID}, event.DeploymentHealthy{DeploymentID: d.ID})
		}
		all = append(all, event.RolloutEnvironmentHealthy{RolloutID: r.ID, EnvironmentID: e.EnvironmentID})
	}
	return append(all, event.RolloutHealthy{RolloutID: r.ID})
}

// TestHoleAPassageIsGrantedWithoutItsQuorum: the approval of two is requested, and given by nobody (R4-26).
func TestHoleAPassageIsGrantedWithoutItsQuorum(t *testing.T) {
	t.Parallel()
	s := guarded(t)
	s.group("platform", 2)
	s.asking("", `"quorum":2,"group":"platform"`, "")
	r := s.rollout(s.set)
	s.believed(
		programOf(r), event.RolloutPassageRequested{RolloutID: r.ID, GateID: "staging"},
		event.ApprovalRequested{RolloutID: r.ID, GateID: "production", EnvironmentID: s.production.ID},
		event.RolloutPassageRequested{RolloutID: r.ID, GateID: "production"},
	)
	s.want(s.gates(r)["production"].Quorum, 2)
	s.want(s.granted(), []string{"staging"})
}

// TestHoleAnotherRunCompletesARollout: what a run of the organization that is not the rollout's reports about it.
func TestHoleAnotherRunCompletesARollout(t *testing.T) {
	t.Parallel()
	s := guarded(t)
	r := s.rollout(s.set)
	s.believed("another-run", s.finishes(r)...)
	if got := s.reload(r); got.State == core.RolloutCompleted {
		t.Errorf("the rollout is %s by the reports of another run", got.State)
	}
}

// TestHoleAWeightThatIsSkippedIsNeverAsked: a first deployment does not stop at 50 %, whose approval the pipeline requires.
func TestHoleAWeightThatIsSkippedIsNeverAsked(t *testing.T) {
	t.Parallel()
	s := guarded(t)
	s.asking("", "", `"quorum":1`)
	r := s.rollout(s.set)
	run := programOf(r)
	s.believed(run, event.RolloutPassageRequested{RolloutID: r.ID, GateID: "staging"})
	for _, gate := range []string{"release", "production"} { // what that program requested: not the weight at which it does not stop
		s.believed(run, event.ApprovalRequested{RolloutID: r.ID, GateID: gate, EnvironmentID: s.production.ID},
			event.RolloutPassageRequested{RolloutID: r.ID, GateID: gate})
		s.ok(s.approve(person(2), r, gate))
	}
	s.believed(run, s.finishes(r)...)
	if got := s.reload(r); got.State == core.RolloutCompleted {
		t.Errorf("the rollout is %s, and nobody was asked for the approval of production/50", got.State)
	}
}

// TestHoleAStepReplacesWhatAnEnvironmentAsks: an approval step with the environment's name, which anybody may give to oneself.
func TestHoleAStepReplacesWhatAnEnvironmentAsks(t *testing.T) {
	t.Parallel()
	s := guarded(t)
	s.group("platform", 3)
	s.requires(s.production, core.EnvironmentApproval{GateRule: core.GateRule{Quorum: 2, Group: "platform", OnExpiry: core.ExpiryRejects}})
	s.stored(`{"steps":[
		{"type":"deploy","environment":"staging","config":` + appEnvConfig("staging") + `},
		{"type":"approval","name":"production","requester_may_approve":true},
		{"type":"deploy","environment":"production","config":` + appEnvConfig("production") + `}]}`)
	r := s.rollout(s.set)
	s.believed(programOf(r), event.ApprovalRequested{RolloutID: r.ID, GateID: "production", EnvironmentID: s.production.ID})
	gate := s.gates(r)["production"]
	s.want([]any{gate.Quorum, gate.Group, gate.RequesterMayApprove, gate.ExpiresAfter},
		[]any{2, "platform", false, time.Duration(0)})
	if err := s.approve(user(), r, "production"); err == nil {
		t.Error("its requester approved the rollout alone; expected two of the group platform")
	}
}
