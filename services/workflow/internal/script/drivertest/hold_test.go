package drivertest

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/driver"
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
		"rollout_environment.started environment_id=3\nheld at staging\ndeployment.started",
		"rollout.gate_reached environment_id=3 weight=25\nheld at staging/25\ndeployment.advance deployment_id=11 weight=25",
	} {
		if !strings.Contains(story, want) {
			t.Errorf("story lacks %q:\n%s", want, story)
		}
	}
}

func TestDegradedWhileSomebodyHoldsIt(t *testing.T) {
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
	expectEnd(t, w, "rollout.failed reason=nobody resumed the rollout before gate staging within 604800 seconds")
}
