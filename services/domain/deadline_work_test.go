package domain

import (
	"fmt"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/rollout"
)

// gated is a staging that stops at half of the traffic.
const gated = `"gates":[{"weight":50,"soak_duration":60}],`

// R4-25: a rollout that is at work in an environment for longer than six hours fails, without any deadline in its pipeline, and says which
// deadline that was. Before it enters, nothing counts.
func TestARolloutIsNotAtWorkForEver(t *testing.T) {
	t.Parallel()
	s := newTimed(t, "", "")
	r := s.rollout(s.set)
	s.now.Advance(72 * time.Hour)
	s.want(s.passes(), "")
	s.pass(r, "staging")
	s.report(event.DeploymentStarted{DeploymentID: s.deployments(s.stops(r)[0])[0].ID})
	s.now.Advance(6*time.Hour - time.Second)
	s.want(s.passes(), "")
	s.now.Advance(time.Second)
	s.want(s.passes(), `environment "staging": failed`)
	s.want(s.reload(r).State, core.RolloutFailed)
	s.want(s.last(r, core.VerbFail).Reason, `the default deadline of environment "staging" has passed: the rollout was at work there for 6h0m0s; `+
		"work_deadline of the pipeline changes it")
	s.close()
	s.verifyJournal(r)
}

// R4-25: a rollout that is held for days, by an approval, at a weight, by a passage that is not granted or by a pause, does not fail; what
// is left of its time runs when it continues, also after the service was started again.
func TestARolloutThatIsHeldDoesNotFail(t *testing.T) {
	t.Parallel()
	s := newTimed(t, "", gated)
	r := s.rollout(s.set)
	s.pass(r, "staging")
	s.now.Advance(5 * time.Hour)
	s.report(event.RolloutGateReached{RolloutID: r.ID, EnvironmentID: s.staging.ID, Weight: 50})
	s.now.Advance(time.Minute) // it soaks
	_, err := s.rollouts.PauseRollout(t.Context(), user(), r.ID, "")
	s.ok(err)
	s.report(event.RolloutPassageRequested{RolloutID: r.ID, GateID: "staging/50", EnvironmentID: s.staging.ID})
	s.now.Advance(48 * time.Hour) // the passage is not granted
	s.want(s.passes(), `environment "staging":`)
	s.want(s.passes(), "")
	_, err = s.rollouts.ResumeRollout(t.Context(), user(), r.ID, "")
	s.ok(err)
	s.now.Advance(30 * time.Minute)
	s.want(s.passes(), `environment "staging":`) // it continues
	_, err = s.rollouts.PauseRollout(t.Context(), user(), r.ID, "")
	s.ok(err)
	s.report(event.RolloutEnvironmentHealthy{RolloutID: r.ID, EnvironmentID: s.staging.ID})
	s.report(event.RolloutPassageRequested{RolloutID: r.ID, GateID: "production"})
	s.now.Advance(96 * time.Hour) // people are asked whether it may enter production
	s.passes()
	s.want(s.reload(r).State, core.RolloutPaused)
}

// R4-25: the time at a weight does not count, and that before and after it does.
func TestTimeAtAWeightDoesNotCount(t *testing.T) {
	t.Parallel()
	s := newTimed(t, "", gated)
	r := s.rollout(s.set)
	s.pass(r, "staging")
	s.now.Advance(4 * time.Hour)
	s.report(event.RolloutGateReached{RolloutID: r.ID, EnvironmentID: s.staging.ID, Weight: 50})
	s.now.Advance(time.Minute)
	s.report(event.RolloutPassageRequested{RolloutID: r.ID, GateID: "staging/50", EnvironmentID: s.staging.ID})
	s.passes()
	s.now.Advance(2*time.Hour - time.Second)
	s.want(s.passes(), `environment "staging":`) // it is looked at again when it would have soaked
	s.want(s.passes(), "")
	s.now.Advance(time.Second)
	s.want(s.passes(), `environment "staging": failed`)
	s.want(s.reload(r).State, core.RolloutFailed)
}

// R4-25: a pipeline changes the default, or switches it off; where it has a deadline of its own there is none.
func TestThePipelineSetsHowLongWorkMayTake(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		whole, staging string
		want           []string
	}{
		"default":           {"", "", []string{"staging 6h0m0s at work", "production 6h0m0s at work"}},
		"off":               {`"work_deadline":0,`, "", nil},
		"of the pipeline":   {`"work_deadline":60,`, "", []string{"staging 1m0s at work", "production 1m0s at work"}},
		"of an environment": {"", `"deadline":{"after":600},`, []string{"staging 10m0s", "production 6h0m0s at work"}},
		"of the whole":      {`"deadline":{"after":600},`, "", []string{" 10m0s"}},
		"of both":           {`"deadline":{"after":600},"work_deadline":60,`, "", []string{" 10m0s", "staging 1m0s at work", "production 1m0s at work"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newTimed(t, tt.whole, tt.staging)
			r := s.rollout(s.set)
			all, err := s.view.RolloutDeadlines(t.Context(), org, []int64{r.ID})
			s.ok(err)
			var found []string
			for _, d := range all[r.ID] {
				found = append(found, fmt.Sprintf("%s %s", d.Environment, d.Words()))
			}
			s.want(found, tt.want)
		})
	}
}

// R4-25: a rollback is a rollout, and has the same default; one that is stuck fails (pc#3468).
func TestARollbackIsNotAtWorkForEver(t *testing.T) {
	t.Parallel()
	s := newTimed(t, "", "")
	s.succeed(s.rollout(s.set))
	r := s.rollout(s.release(2))
	s.succeed(r)
	back, err := s.rollouts.RollbackRollout(t.Context(), user(), rollout.Rollback{RolloutID: r.ID, Reason: "errors"})
	s.ok(err)
	s.pass(back, "staging")
	s.now.Advance(6 * time.Hour)
	s.want(s.passes(), `environment "staging": failed`)
	s.want(s.reload(back).State, core.RolloutFailed)
}

// R4-25: a program that reports a weight and then asks for nothing is at work again once the weight has soaked: no rollout stands for ever.
func TestAProgramThatHangsAtAWeightDoesNotStandForEver(t *testing.T) {
	t.Parallel()
	s := newTimed(t, "", `"gates":[{"weight":50,"soak_duration":28800}],`)
	r := s.rollout(s.set)
	s.pass(r, "staging")
	s.now.Advance(time.Hour)
	s.report(event.RolloutGateReached{RolloutID: r.ID, EnvironmentID: s.staging.ID, Weight: 50})
	s.now.Advance(5 * time.Hour)
	s.want(s.passes(), `environment "staging":`) // it soaks
	s.want(s.passes(), "")
	s.now.Advance(3 * time.Hour)
	s.want(s.passes(), `environment "staging":`) // it does not any more
	s.now.Advance(5*time.Hour - time.Second)
	s.want(s.passes(), "")
	s.now.Advance(time.Second)
	s.want(s.passes(), `environment "staging": failed`)
	s.want(s.reload(r).State, core.RolloutFailed)
}

// R4-25: the time in which the service was stopped does not count as work, also if it was stopped twice; a retry begins anew.
func TestTimeInWhichTheServiceIsStoppedDoesNotCount(t *testing.T) {
	t.Parallel()
	s := newTimed(t, "", "")
	look := func(want int64) {
		t.Helper()
		several, err := s.rollouts.NoticeAbsence(t.Context())
		s.ok(err)
		s.want(several, want)
	}
	look(0)
	r := s.rollout(s.set)
	s.pass(r, "staging")
	s.now.Advance(time.Minute)
	look(0)
	s.now.Advance(7 * time.Hour) // stopped
	look(1)
	look(0) // another replica
	s.want(s.passes(), "")
	s.now.Advance(90 * time.Second)
	look(0) // a pause between two looks
	s.now.Advance(10 * time.Hour)
	look(1)
	s.want(s.passes(), "")
	s.now.Advance(6*time.Hour - time.Minute - 91*time.Second)
	s.want(s.passes(), "")
	s.now.Advance(time.Second)
	s.want(s.passes(), `environment "staging": failed`)
	s.want(s.reload(r).State, core.RolloutFailed)
}
