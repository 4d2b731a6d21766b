package drivertest

import (
	"strings"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/driver"
	"github.com/lockstep-cd/lockstep/pkg/event"
)

const (
	atGate     = "rollout.gate_reached environment_id=3 weight=25"
	hasAborted = "rollout.aborted environment_id=3 reason=aborted: because"
)

// aborted is a shop where a member aborts at some time, and retries an hour after the abort is done.
func aborted(t *testing.T, after string, later time.Duration) *world {
	t.Helper()
	w := shop(t)
	w.asks = map[string]map[string]time.Duration{
		after:      {event.TypeRolloutAbortRequested: later},
		hasAborted: {event.TypeRolloutRetryRequested: time.Hour},
	}
	return w
}

func TestAnAbortedRolloutIsTriedAgainFromItsFirstGate(t *testing.T) { // D18, E73
	t.Parallel()
	for name, w := range map[string]*world{
		"on its way":     aborted(t, "deployment.started deployment_id=12", 0),
		"while it soaks": aborted(t, atGate, 3*time.Second),
		"while it is held": func() *world {
			w := aborted(t, atGate, 2*time.Hour)
			w.held = map[string]time.Duration{"staging/25": 3 * time.Hour}
			return w
		}(),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w.t = t
			if failure := w.run(driver.Deploy, inputs(2, nil)); failure != "" {
				t.Fatalf("%s\n%s", failure, strings.Join(w.story, "\n"))
			}
			story := strings.Join(w.story, "\n")
			for _, want := range []string{
				"abort: api\nabort: worker\n" + hasAborted + "\nretry: api\nretry: worker\n",
				"rollout_environment.healthy environment_id=3\nrollout.healthy",
			} {
				if !strings.Contains(story, want) {
					t.Errorf("story lacks %q:\n%s", want, story)
				}
			}
			after := story[strings.Index(story, "retry: worker"):]
			if !strings.Contains(after, "deployment.gate_reached deployment_id=11 weight=25") {
				t.Errorf("it has not begun at the first gate again:\n%s", after)
			}
		})
	}
}

// D46: a grant that arrives between the abort and the retry is about the gate as it was before; the run waits for that of its new request.
func TestAGrantFromBeforeTheAbortOpensNothing(t *testing.T) {
	t.Parallel()
	w := aborted(t, atGate, 2*time.Hour)
	w.held = map[string]time.Duration{"staging/25": 150 * time.Minute}
	start := w.now
	if failure := w.run(driver.Deploy, inputs(2, nil)); failure != "" {
		t.Fatalf("%s\n%s", failure, strings.Join(w.story, "\n"))
	}
	if took := w.now.Sub(start); took < 5*time.Hour+30*time.Minute { // abort after 2 h, retry 1 h later, the new grant 2.5 h after that
		t.Errorf("it took %v: it left the gate before its new request was granted\n%s", took, strings.Join(w.story, "\n"))
	}
}

func TestAnAbortedRolloutThatNobodyRetriesFails(t *testing.T) { // D12
	t.Parallel()
	w := aborted(t, atGate, time.Second)
	delete(w.asks, hasAborted)
	w.run(driver.Deploy, inputs(2, nil))
	expectEnd(t, w, "rollout.failed reason=staging: aborted: because, and nobody retried it within 604800 seconds")
}

func TestARetryTakesBackAnAbort(t *testing.T) {
	t.Parallel()
	w := shop(t)
	in := inputs(2, nil)
	in["rollout"].(object)["retry"] = true
	if failure := w.run(driver.Deploy, in); failure != "" {
		t.Fatal(failure)
	}
	if story := strings.Join(w.story, "\n"); !strings.Contains(story, "sync: argocd/shop-staging\nretry: api\nretry: worker\n") {
		t.Errorf("story:\n%s", story)
	}
}

// Before an environment is entered there is nothing to take back: the rollout stands, and a retry asks the question again.
func TestAnAbortWhilePeopleDecideAboutAnEnvironment(t *testing.T) {
	t.Parallel()
	const asked = "approval of staging: none"
	w := aborted(t, "rollout.passage_requested environment_id=3 gate_id=staging", time.Hour)
	w.run(driver.Deploy, inputs(2, func(_, environment object) { environment["approval"] = object{"reason": "ask first"} }))
	story := strings.Join(w.story, "\n")
	if want := asked + "\n" + hasAborted + "\n" + asked; !strings.Contains(story, want) || strings.Contains(story, "commit:") {
		t.Errorf("found:\n%s\nexpected no commit, and:\n%s", story, want)
	}
}
