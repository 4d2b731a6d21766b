package engine

import (
	"strconv"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/execution"
)

func TestOnlyWhatCompletedHereFromItsStartOnIsRecalled(t *testing.T) {
	t.Parallel()
	var e endings
	named := func(workflow string, state execution.State, attempt int) execution.Execution {
		return execution.Execution{Organization: 1, Workflow: workflow, State: state, Attempt: attempt, Error: "of " + workflow}
	}
	for _, c := range []struct {
		workflow string
		begun    bool
		state    execution.State
		attempt  int
		reports  bool
		recalled bool
	}{
		{workflow: "completed", begun: true, state: execution.Completed, attempt: 1, recalled: true},
		{workflow: "failed", begun: true, state: execution.Failed, attempt: 1},                    // may be retried, by any process
		{workflow: "loaded", begun: true, state: execution.Completed},                             // knows too little
		{workflow: "reports", begun: true, state: execution.Completed, attempt: 1, reports: true}, // the store has its statuses
		{workflow: "elsewhere", state: execution.Completed, attempt: 1},
	} {
		ended := named(c.workflow, c.state, c.attempt)
		if c.begun {
			e.begin(ended)
		}
		if e.runs(1, c.workflow) != c.begun || e.runs(2, c.workflow) {
			t.Errorf("%s: runs here: %t", c.workflow, e.runs(1, c.workflow))
		}
		end, forget := e.watch(1, c.workflow)
		e.notify(ended, c.reports)
		if got := <-end; got.Error != ended.Error {
			t.Errorf("%s: received %q", c.workflow, got.Error)
		}
		forget()
		e.leave(ended)
		got, recalled := e.recall(1, c.workflow, time.Time{})
		if recalled != c.recalled || recalled && got.Error != ended.Error || e.runs(1, c.workflow) {
			t.Errorf("%s: recalled %t, %q", c.workflow, recalled, got.Error)
		}
	}
}

func TestWhatIsRecalledIsBounded(t *testing.T) {
	t.Parallel()
	var e endings
	for i := range recentMost + 10 {
		ended := execution.Execution{Organization: 1, Workflow: strconv.Itoa(i), State: execution.Completed, Attempt: 1}
		e.begin(ended)
		e.notify(ended, false)
		e.leave(ended)
	}
	if _, known := e.recall(1, "9", time.Time{}); known || len(e.recent) != recentMost || len(e.here) != 0 {
		t.Errorf("keeps %d, %d of them running; the tenth is recalled: %t", len(e.recent), len(e.here), known)
	}
	if _, known := e.recall(1, "10", time.Time{}); !known {
		t.Error("the oldest that has room is gone")
	}
}

// A run that was deleted for its age leaves its id to another one: the first is not recalled for as long as that takes, and not once the id
// is another's.
func TestAnEndIsNotRecalledForAnotherRun(t *testing.T) {
	t.Parallel()
	var e endings
	at := time.Unix(1_800_000_000, 0)
	run := func(ref string, state execution.State) {
		one := execution.Execution{Organization: 1, Workflow: "w", Ref: ref, State: state, Attempt: 1, EndedAt: at}
		e.begin(one)
		if _, known := e.recall(1, "w", at); known {
			t.Errorf("%s has begun, and another run is recalled", ref)
		}
		e.notify(one, false)
		e.leave(one)
	}
	run("first", execution.Completed)
	if _, known := e.recall(1, "w", at.Add(recentFor)); !known {
		t.Error("the first is not recalled")
	}
	if _, known := e.recall(1, "w", at.Add(recentFor+1)); known {
		t.Error("the first is recalled for too long")
	}
	run("second", execution.Failed)
	if _, known := e.recall(1, "w", at); known {
		t.Error("a run that has failed is recalled, or the one before it")
	}
	run("third", execution.Completed)
	for i := range recentMost - 1 { // the places of the first, and no more
		one := execution.Execution{Organization: 2, Workflow: strconv.Itoa(i), State: execution.Completed, Attempt: 1, EndedAt: at}
		e.begin(one)
		e.notify(one, false)
		e.leave(one)
	}
	if got, known := e.recall(1, "w", at); !known || got.Ref != "third" {
		t.Errorf("found %+v (%t), expected the third", got, known)
	}
}
