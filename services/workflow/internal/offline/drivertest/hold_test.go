package drivertest

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/driver"
	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
)

func TestAPausedRolloutStaysAtItsGate(t *testing.T) {
	t.Parallel()
	w := shop(t)
	w.held = map[string]time.Duration{"staging": time.Minute, "staging/25": 3 * time.Hour}
	start := w.now
	if failure := w.run(driver.Deploy, inputs(2, nil)); failure != "" {
		t.Fatal(failure)
	}
	if took := w.now.Sub(start); took < 3*time.Hour {
		t.Errorf("it took %v, which is less than it was held", took)
	}
	story := strings.Join(w.story, "\n")
	for _, want := range []string{
		"held at staging\nrollout_environment.started environment_id=3\ndeployment.started",
		"rollout.gate_reached environment_id=3 weight=25\nheld at staging/25\ndeployment.advance deployment_id=11 weight=25",
	} {
		if !strings.Contains(story, want) {
			t.Errorf("story lacks %q:\n%s", want, story)
		}
	}
}

func TestDegradedWhileItIsHeld(t *testing.T) {
	t.Parallel()
	w := shop(t)
	w.held = map[string]time.Duration{"staging/25": 6 * time.Hour}
	w.fail = func(name string, _ object) *history.FunctionError {
		if name == "k8s.get" && slices.Contains(w.story, "held at staging/25") {
			w.rollouts["shop/api"].paused, w.rollouts["shop/api"].degraded = false, "RolloutAborted"
		}
		return nil
	}
	w.run(driver.Deploy, inputs(2, nil))
	expectEnd(t, w, "rollout.failed reason=staging: api is degraded at gate 25: RolloutAborted")
}

func TestAHoldThatNobodyEnds(t *testing.T) {
	t.Parallel()
	w := shop(t)
	w.held = map[string]time.Duration{"staging": 365 * 24 * time.Hour}
	w.run(driver.Deploy, inputs(2, nil))
	expectEnd(t, w, "rollout.failed reason=the passage through gate staging was not granted within 604800 seconds")
}

// D46: where nothing waits at a gate, its passage is requested all the same, and a rejection ends the rollout.
func TestThePassageOfAWeightAtWhichNothingWaitsIsRequested(t *testing.T) {
	t.Parallel()
	w := example(t) // a driver that does not split traffic
	in := exampleInputs()
	w.answers = map[string]string{"staging/50": "rejected"}
	gates := in["rollout"].(object)["environments"].([]any)[0].(object)["gates"].([]any)
	gates[1].(object)["approval"] = object{}
	w.run(driver.Deploy, in)
	expectEnd(t, w, "approval of staging/50: rejected",
		"rollout_environment.failed environment_id=3 reason=staging: gate staging/50 was rejected: because",
		"rollout.failed reason=staging: gate staging/50 was rejected: because")
}

// An approval of a weight that will be skipped is requested at the entrance, and its rejection ends the rollout there.
func TestARejectionOfAnotherApprovalEndsTheWaitAtTheEntrance(t *testing.T) {
	t.Parallel()
	w := shop(t)
	w.held = map[string]time.Duration{"staging": 365 * 24 * time.Hour}
	w.answer(event.TypeApprovalResolved, time.Hour, object{
		"rollout_id": 7, "gate_id": "staging/50", "resolution": "rejected", "principal_type": "user", "reason": "not today",
	})
	w.run(driver.Deploy, inputs(2, nil))
	expectEnd(t, w, "rollout_environment.failed environment_id=3 reason=gate staging/50 was rejected: not today",
		"rollout.failed reason=gate staging/50 was rejected: not today")
}
