package drivertest

import (
	"strings"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/driver"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
)

func TestDeadlines(t *testing.T) {
	t.Parallel()
	t.Run("a gate that is not reached", func(t *testing.T) {
		t.Parallel()
		w := shop(t)
		w.rollouts["shop/worker"].pace = time.Hour
		w.run(driver.Deploy, inputs(2, nil))
		expectEnd(t, w, "rollout.failed reason=staging: worker failed at gate 25: it did not reach gate 25 within 600 seconds; last seen: Progressing, the new version is not the stable one yet")
	})
	t.Run("a cluster that is away", func(t *testing.T) {
		t.Parallel()
		w := shop(t)
		w.fail = func(name string, _ object) *history.FunctionError {
			if name == "k8s.get" {
				return &history.FunctionError{Code: "unreachable", Message: "no route"}
			}
			return nil
		}
		w.run(driver.Deploy, inputs(2, nil))
		expectEnd(t, w, "rollout.failed reason=staging: api failed at gate 25: it did not reach gate 25 within 600 seconds; last seen: Rollout shop/api: no route")
	})
}

func TestWhatCannotBeApplied(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		edit func(w *world, config object)
		want string
	}{
		{
			"no file", func(w *world, _ object) { delete(w.files, "staging/worker.yaml") },
			`read staging/worker.yaml: no file "staging/worker.yaml"`,
		},
		{
			"service not configured", func(_ *world, c object) { c["services"] = c["services"].([]any)[:1] },
			"service worker has no file in the configuration",
		},
		{
			"version of another image", func(_ *world, c object) { c["services"].([]any)[1].(object)["image"] = "registry/other" },
			"container worker of service worker: expected one version of registry/other in the version set, found registry/shop/worker",
		},
		{
			"blue-green", func(_ *world, c object) { c["rollout_strategy"] = "blue_green" },
			"staging/api.yaml: content: spec.strategy has canary, expected blueGreen",
		},
		{"forbidden", func(w *world, _ object) {
			w.fail = func(name string, _ object) *history.FunctionError {
				if name == "argo.sync" {
					return &history.FunctionError{Code: "auto_sync", Message: "automated sync is on"}
				}
				return nil
			}
		}, "automated sync is on"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := shop(t)
			in := inputs(2, func(_, environment object) {
				tt.edit(w, environment["application_environment"].(object)["config"].(object))
			})
			if failure := w.run(driver.Deploy, in); !strings.Contains(failure, tt.want) {
				t.Errorf("failure %q does not contain %q", failure, tt.want)
			}
			last := w.story[len(w.story)-4:]
			for i, want := range []string{
				"deployment.failed deployment_id=11", "deployment.failed deployment_id=12", "rollout_environment.failed",
				"rollout.failed",
			} {
				if !strings.HasPrefix(last[i], want) {
					t.Errorf("story ends with %q, want %q", last, want)
				}
			}
		})
	}
}

func TestTheApplicationChoosesWhatHappensToTheOthers(t *testing.T) {
	t.Parallel()
	const reason = "staging: worker is degraded at gate 50: ProgressDeadlineExceeded"
	for policy, want := range map[string][]string{
		"stop": {"deployment.failed deployment_id=11 reason=stopped: " + reason},
		"abort": {
			"abort: api", "abort: worker",
			"deployment.failed deployment_id=11 reason=stopped and aborted: " + reason,
		},
	} {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()
			w := shop(t)
			w.rollouts["shop/worker"].failsAt = 50
			w.rollouts["shop/worker"].pace = 30 * time.Second
			w.run(driver.Deploy, inputs(2, func(in, _ object) { in["rollout"].(object)["on_failure"] = policy }))
			expectEnd(t, w, append(append([]string{"deployment.degraded deployment_id=12 reason=ProgressDeadlineExceeded"}, want...),
				"rollout_environment.failed environment_id=3 reason="+reason, "rollout.failed reason="+reason)...)
		})
	}
}

func TestAnAbortThatDoesNotWorkIsPartOfTheReason(t *testing.T) {
	t.Parallel()
	w := shop(t)
	w.rollouts["shop/worker"].failsAt = 25
	w.fail = failing("argo.abort", "forbidden", "no right to patch rollouts/status")
	w.run(driver.Deploy, inputs(2, func(in, _ object) { in["rollout"].(object)["on_failure"] = "abort" }))
	if last := w.story[len(w.story)-1]; !strings.Contains(last, "; api: abort: no right to patch rollouts/status; worker: abort: no right") {
		t.Errorf("last line: %s", last)
	}
}
