package drivertest

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/driver"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
)

// left is an application whose rollout 7 was cancelled, and has left Workflows behind.
func left(t *testing.T, names ...string) *world {
	t.Helper()
	w := argoShop(t)
	w.argo.takes[""] = 0
	for _, name := range names {
		rollout, operation := "7", "rollout-7.deployment-11.1"
		switch {
		case strings.HasSuffix(name, "-2"):
			operation = "rollout-7.deployment-11.2"
		case strings.Contains(name, "-d12"):
			operation = "rollout-7.deployment-12.1"
		case strings.Contains(name, "-d99"):
			rollout, operation = "8", "rollout-8.deployment-99.1"
		}
		w.argo.create(w, object{
			"metadata": object{"name": name, "labels": object{"lockstep.dev/rollout": rollout, "lockstep.dev/deployment": "11"}},
			"spec":     object{},
		}, operation)
	}
	w.story = nil
	return w
}

func cancelledInputs(edit func(environment, config object), environments ...any) object {
	in := workflowInputs(edit)
	in["cancelled"] = object{"environments": environments}
	return in
}

// R2-34: what a cancelled rollout has left behind is stopped, and nothing else: no Workflow of another rollout, none that has ended, none
// that was stopped, and none of an environment that the rollout has completed. It is done twice without harm.
func TestWhatACancelledRolloutHasLeftIsStopped(t *testing.T) {
	t.Parallel()
	for name, edit := range bothWays {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := left(t, "deploy-api-d11", "deploy-api-d11-2", "deploy-worker-d12", "deploy-other-d99", "d11-x")
			w.argo.stop(w, "deploy-api-d11", "stop") // by a person, or by the rollout's own run
			w.story = nil
			if failure := w.run(driver.Cancelled, cancelledInputs(edit, 4.0)); failure != "" || len(w.story) > 0 {
				t.Errorf("of a completed environment: %q, %q", failure, w.story)
			}
			runbook := func(environment, config object) {
				if edit != nil {
					edit(environment, config)
				}
				environment["runs_jobs"], environment["deployments"] = true, nil
			}
			if failure := w.run(driver.Cancelled, cancelledInputs(runbook, 3.0)); failure != "" || len(w.story) > 0 {
				t.Errorf("of a runbook: %q, %q", failure, w.story)
			}
			for range 2 {
				if failure := w.run(driver.Cancelled, cancelledInputs(edit, 3.0)); failure != "" {
					t.Error(failure)
				}
			}
			slices.Sort(w.story)
			expect(t, w, "stop: deploy-api-d11-2", "stop: deploy-worker-d12")
		})
	}
}

// A submit that was under way when the rollout was cancelled creates its Workflow behind the first look.
func TestAWorkflowThatIsSubmittedDuringACancellationIsStopped(t *testing.T) {
	t.Parallel()
	for name, edit := range bothWays {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := left(t)
			began := w.now
			w.fail = func(string, object) *history.FunctionError {
				if w.now.Sub(began) > 100*time.Second && w.argo.all["deploy-api-d11"] == nil {
					w.argo.create(w, object{
						"metadata": object{"name": "deploy-api-d11", "labels": object{"lockstep.dev/rollout": "7", "lockstep.dev/deployment": "11"}}, "spec": object{},
					}, "rollout-7.deployment-11.1")
				}
				return nil
			}
			if failure := w.run(driver.Cancelled, cancelledInputs(edit, 3.0)); failure != "" {
				t.Error(failure)
			}
			expect(t, w, "workflow: deploy-api-d11", "stop: deploy-api-d11")
		})
	}
}

// While the Argo Server or the relay does not answer, it is asked again for half an hour; then the run fails and says what may still run. A
// refusal fails it at once.
func TestAServerThatDoesNotAnswerIsAskedAgain(t *testing.T) {
	t.Parallel()
	for name, edit := range bothWays {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := left(t, "deploy-api-d11")
			began := w.now
			w.argo.away = func() bool { return w.now.Sub(began) < 20*time.Minute }
			if failure := w.run(driver.Cancelled, cancelledInputs(edit, 3.0)); failure != "" || !slices.Contains(w.story, "stop: deploy-api-d11") {
				t.Errorf("away for 20 minutes: %q, %q", failure, w.story)
			}
			w = left(t, "deploy-api-d11")
			w.argo.away = func() bool { return true }
			failure := w.run(driver.Cancelled, cancelledInputs(edit, 3.0))
			if took := w.now.Sub(began); !strings.Contains(failure, "the Workflows of the rollout cannot be listed: ") || took < 30*time.Minute || took > 31*time.Minute {
				t.Errorf("away for ever: %q after %s", failure, took)
			}
			w = left(t, "deploy-api-d11")
			w.fail = func(function string, args object) *history.FunctionError {
				if function == "workflow.stop" || args["method"] == "PUT" {
					return &history.FunctionError{Code: "forbidden", Message: "no passage"}
				}
				return nil
			}
			failure = w.run(driver.Cancelled, cancelledInputs(edit, 3.0))
			if took := w.now.Sub(began); !strings.Contains(failure, "stop workflow deploy-api-d11: ") || !strings.Contains(failure, "no passage") || took > time.Minute {
				t.Errorf("refused: %q after %s", failure, took)
			}
		})
	}
}
