package drivertest

import (
	"strings"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/driver"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
)

// hooks are an Application with waves and hooks, as Argo CD syncs one: a PreSync hook, the Rollouts, whose health it waits for, and a
// PostSync hook. Nothing of it ends before the one before has.
type hooks struct {
	// pre and post are how long the hooks take; fails is what the last one says in place of succeeding.
	pre, post time.Duration
	fails     string

	// late reports whether a sync has ended by itself when it is to be terminated.
	late bool

	operation      string
	began, healthy time.Time
	applied        bool
	ended          string
	args           object
	// most is how many operations there have been.
	most int
}

func (h *hooks) sync(w *world, args object) (any, *history.FunctionError) {
	if args["wait"] != "start" || args["supersede"] != true {
		w.t.Errorf("argo.sync waits for what only the walk can bring about: %v", args)
	}
	if operation := args["operation"].(string); operation != h.operation {
		*h = hooks{pre: h.pre, post: h.post, fails: h.fails, late: h.late, operation: operation, began: w.now, most: h.most + 1, args: args}
	}
	running := func(message string) (any, *history.FunctionError) {
		rollouts := []any{}
		for _, r := range w.rollouts {
			if h.applied {
				rollouts = append(rollouts, object{"namespace": r.namespace, "name": r.name})
			}
		}
		return object{"revision": w.head, "phase": "Running", "message": message, "rollouts": rollouts}, nil
	}
	if h.ended == "" && w.now.Sub(h.began) < h.pre {
		return running("waiting for completion of hook batch/Job/migrate")
	}
	if h.ended == "" && !h.applied {
		w.applyAll(args)
		h.applied = true
	}
	for _, r := range w.rollouts {
		r.move(w.now)
		switch {
		case h.ended != "":
		case r.degraded != "":
			h.ended = "one or more synchronization tasks completed unsuccessfully (Rollout shop/" + r.name + ": " + r.degraded + ")"
			w.record("SyncFail hook")
		case r.stable != r.current:
			return running("waiting for healthy state of argoproj.io/Rollout/" + r.name)
		}
	}
	switch {
	case h.ended != "" && h.ended != "Succeeded":
		return nil, &history.FunctionError{Code: "sync_failed", Message: h.ended}
	case h.ended == "" && h.healthy.IsZero():
		h.healthy = w.now
		w.record("PostSync hook")
		return running("waiting for completion of hook batch/Job/smoke")
	case h.ended == "" && w.now.Sub(h.healthy) < h.post:
		return running("waiting for completion of hook batch/Job/smoke")
	case h.fails != "":
		h.ended = "one or more synchronization tasks completed unsuccessfully (Job shop/smoke: " + h.fails + ")"
		return nil, &history.FunctionError{Code: "sync_failed", Message: h.ended}
	}
	h.ended = "Succeeded"
	return object{"revision": w.head, "phase": "Succeeded"}, nil
}

func (h *hooks) terminate(w *world, args object) (any, *history.FunctionError) {
	if h.operation == args["operation"] && h.ended == "" {
		w.record("terminate")
		h.ended = "Operation terminated"
		if h.late {
			w.applyAll(h.args)
			h.applied, h.ended = true, "Succeeded"
		}
	}
	return object{"phase": "Failed"}, nil
}

// hooked is a shop whose Application has hooks.
func hooked(t *testing.T) *world {
	t.Helper()
	w := shop(t)
	w.hooks = &hooks{pre: 50 * time.Second, post: 40 * time.Second}
	return w
}

// The sync of such an Application ends after its Rollouts are healthy, and they are healthy after they were promoted.
func TestRolloutsArePromotedWhileTheSyncIsUnderWay(t *testing.T) {
	t.Parallel()
	for _, watching := range []bool{false, true} {
		w := hooked(t)
		w.watching = watching
		for version := 2; version <= 3; version++ { // twice: a first deploy has no canary
			w.story = nil
			began := w.now
			if failure := w.run(driver.Deploy, inputs(version, nil)); failure != "" {
				t.Fatalf("version %d, watching %t: %s\n%s", version, watching, failure, strings.Join(w.story, "\n"))
			}
			story := strings.Join(w.story, "\n")
			inOrder(t, story, "sync: argocd/shop-staging", "deployment.gate_reached deployment_id=11 weight=25", "promote: api past 25",
				"promote: api past 50",
				"PostSync hook", "deployment.healthy deployment_id=11", "rollout.healthy")
			if took := w.now.Sub(began); took > 10*time.Minute {
				t.Errorf("version %d, watching %t: took %s", version, watching, took)
			}
			if w.hooks.most != version-1 {
				t.Errorf("found %d syncs for %d rollouts", w.hooks.most, version-1)
			}
		}
	}
}

// inOrder wants lines to be in the story, one after the other.
func inOrder(t *testing.T, story string, lines ...string) {
	t.Helper()
	rest := story
	for _, line := range lines {
		_, after, found := strings.Cut(rest, line)
		if !found {
			t.Fatalf("found no %q in its place, expected %q in order:\n%s", line, lines, story)
		}
		rest = after
	}
}

func TestAHookThatFailsFailsTheDeploymentWithItsMessage(t *testing.T) {
	t.Parallel()
	w := hooked(t)
	w.hooks.fails = "Job has reached the specified backoff limit"
	w.run(driver.Deploy, inputs(2, nil))
	story := strings.Join(w.story, "\n")
	if want := "deployment.failed deployment_id=11 reason=api failed after the last gate: sync of argocd/shop-staging to " +
		w.head; !strings.Contains(story, want) ||
		!strings.Contains(story, "(Job shop/smoke: Job has reached the specified backoff limit)") ||
		strings.Contains(story, "deployment.healthy") {
		t.Errorf("story:\n%s", story)
	}
}

func TestARolloutThatDegradesInASyncIsDegradedAndNotOnlyFailed(t *testing.T) {
	t.Parallel()
	w := hooked(t)
	w.rollouts["shop/api"].failsAt = 50
	w.run(driver.Deploy, inputs(2, nil))
	inOrder(t, strings.Join(w.story, "\n"), "deployment.degraded deployment_id=11 reason=ProgressDeadlineExceeded",
		"rollout.failed reason=staging: api is degraded")
}

// Whatever Argo CD waits for, an abort is heeded at once, and nothing is applied after it; a retry begins the sync anew.
func TestAnAbortIsHeededWhileTheSyncIsUnderWay(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		after string
		later time.Duration
		want  []string
	}{
		"in the PreSync hook": {
			"deployment.committed deployment_id=12", 20 * time.Second,
			[]string{"terminate", hasAborted, "sync: argocd", "deployment.gate_reached deployment_id=11 weight=25"},
		},
		"at a gate": {atGate, 3 * time.Second, []string{
			"abort: api", hasAborted, "SyncFail hook", "retry: api", "sync: argocd",
			"deployment.gate_reached deployment_id=11 weight=25",
		}},
		"as it ends": {"deployment.committed deployment_id=12", 20 * time.Second, []string{
			"terminate", "abort: api", "abort: worker",
			hasAborted, "retry: api", "retry: worker", "deployment.gate_reached deployment_id=11 weight=25",
		}},
		"in the PostSync hook": {"PostSync", 0, []string{"PostSync hook", "terminate", hasAborted, "sync: argocd", "PostSync hook"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := aborted(t, tc.after, tc.later)
			w.hooks = &hooks{pre: 50 * time.Second, post: 40 * time.Second, late: name == "as it ends"}
			if tc.after == "PostSync" { // some time after the last promotion
				w.asks = aborted(t, "deployment.advance deployment_id=12 weight=50", 30*time.Second).asks
			}
			if failure := w.run(driver.Deploy, inputs(2, nil)); failure != "" {
				t.Fatalf("%s\n%s", failure, strings.Join(w.story, "\n"))
			}
			story := strings.Join(w.story, "\n")
			inOrder(t, story, append(tc.want, "deployment.healthy deployment_id=11", "rollout.healthy")...)
			if again := w.hooks.most - 1; again != 1 && !w.hooks.late {
				t.Errorf("found %d syncs, expected one more for the retry:\n%s", w.hooks.most, story)
			}
		})
	}
}

// In the middle of an upgrade a service or a relay may be of the release before: then the sync is waited for, as it was.
func TestARelayOfTheReleaseBeforeIsCalledAsItWas(t *testing.T) {
	t.Parallel()
	for _, words := range []string{ // the relay's, and those of the workflow service
		"operation: unknown; expected only agent_id, app_name; wait: unknown; expected only agent_id, app_name",
		"argo.sync: operation: unknown, expected only agent_id, app_name; wait: unknown, expected only agent_id, app_name",
	} {
		w := shop(t)
		w.fail = func(name string, args object) *history.FunctionError {
			if name == "argo.sync" && args["wait"] != nil {
				return &history.FunctionError{Code: history.CodeInvalid, Message: words}
			}
			return nil
		}
		if failure := w.run(driver.Deploy, inputs(2, nil)); failure != "" {
			t.Fatal(failure)
		}
		inOrder(t, strings.Join(w.story, "\n"), "sync: argocd/shop-staging", "promote: api past 25",
			"deployment.healthy deployment_id=11", "rollout.healthy")
	}
}
