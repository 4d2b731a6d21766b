package drivertest

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/driver"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/agent"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
)

// observe is the next event of the watch of a Workflow: at once if it differs from the last report, or once it ends; and that the watch has
// ended, after which there is none.
func (a *argoWorkflows) observe(w *world, key string) (history.Event, bool) {
	_, name, _ := strings.Cut(key, "/")
	wf := a.all[name]
	if wf == nil {
		return history.Event{}, false
	}
	report := func(at time.Time, data object) (history.Event, bool) {
		data["watch"] = key
		maps.Copy(data, w.watches[key])
		text, err := json.Marshal(data)
		if err != nil {
			w.t.Fatal(err)
		}
		known := w.reported[key] == string(text) || strings.Contains(w.reported[key], `"error"`)
		return history.Event{Type: agent.TypeObjectChanged, Data: text, Time: at}, !known && !at.Before(w.now)
	}
	for _, at := range []time.Time{w.now, wf.began.Add(wf.takes)} {
		if !a.silent.IsZero() && !at.Before(a.silent) {
			return report(maxTime(w.now, a.silent), object{"error": "the relay has restarted"})
		}
		status := wf.view(at)["status"].(object)
		if e, news := report(at, object{"object": object{"status": object{"phase": status["phase"]}}}); news {
			return e, true
		}
	}
	return history.Event{}, false
}

func maxTime(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// looked are the times of looks at Workflows since a time, in seconds.
func (a *argoWorkflows) looked(since time.Time) []int {
	all := map[int]bool{}
	for _, at := range a.looks {
		if !at.Before(since) {
			all[int(at.Sub(since).Seconds())] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// R2-26, D20: with a watch, a Workflow is looked at when something has happened to it, and else at every tenth rest, and its end is seen at
// once. When the watch ends, it is polled as without one.
func TestAWatchOfWorkflowsTakesThePlaceOfPolling(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		watching bool
		silent   time.Duration
		looks    []int
	}{
		"polled":             {looks: []int{0, 2, 6, 14, 30, 60, 90, 120, 150, 180, 210, 240, 270, 300, 330}},
		"watched":            {watching: true, looks: []int{0, 300, 310}},
		"watched for a time": {watching: true, silent: 100 * time.Second, looks: []int{0, 100, 104, 112, 128, 158, 188, 218, 248, 278, 308, 338}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := argoShop(t)
			w.watching = tc.watching
			w.argo.takes[""] = 310 * time.Second
			began := w.now
			if tc.silent > 0 {
				w.argo.silent = began.Add(tc.silent)
			}
			if failure := w.run(driver.Deploy, workflowInputs(nil)); failure != "" {
				t.Fatal(failure)
			}
			if got := w.argo.looked(began); fmt.Sprint(got) != fmt.Sprint(tc.looks) {
				t.Errorf("looked after %v seconds, expected %v", got, tc.looks)
			}
		})
	}
}

// R2-27: a watch does not report that a deadline has passed: a Workflow that is watched and never ends is stopped all the same.
func TestAWatchedWorkflowThatNeverEnds(t *testing.T) {
	t.Parallel()
	w := argoShop(t)
	w.watching = true
	w.argo.takes["api"] = 0
	began := w.now
	failure := w.run(driver.Deploy, workflowInputs(nil))
	if !strings.Contains(failure, "workflow timed out after 600 seconds") || !slices.Contains(w.story, "stop: deploy-api-d11") {
		t.Errorf("failure %q, story %q", failure, w.story)
	}
	if took := w.now.Sub(began).Round(time.Second); took != 720*time.Second {
		t.Errorf("it took %s; expected the deadline and two minutes", took)
	}
}

// R2-34: the watch is that of the first attempt. What it reports after a retry says nothing about the new Workflow, which is polled.
func TestARetryOfAWatchedWorkflowIsPolled(t *testing.T) {
	t.Parallel()
	w := abortedAt25(t, 120*time.Second)
	w.watching = true
	began := w.now
	if failure := w.run(driver.Deploy, workflowInputs(nil)); failure != "" {
		t.Fatal(failure)
	}
	if w.argo.all["deploy-api-d11-2"] == nil || !slices.Contains(w.story, "rollout.healthy") {
		t.Fatalf("story %q, expected another Workflow of api that succeeds", w.story)
	}
	if got := w.argo.looked(began.Add(85 * time.Second)); fmt.Sprint(got) != fmt.Sprint([]int{0, 2, 6, 14, 30, 60, 90, 120}) {
		t.Errorf("looked %v seconds after the retry, expected that it is polled", got)
	}
}
