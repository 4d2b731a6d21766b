package workflow_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/execution"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/program"
)

// What only computes is recorded with what comes after it: a commit less for each, and everything that a Function with an effect follows
// from is durable before that is called (E24).
func TestComputedAnswersAreRecordedWithWhatFollows(t *testing.T) {
	t.Parallel()
	var e *engines
	var recorded atomic.Int64
	e, c, service := alone(t, func(ctx context.Context, call activity.Call) (any, error) {
		run, err := e.store.Get(ctx, 1, call.Workflow)
		if err != nil {
			return nil, err
		}
		known, err := e.store.History(ctx, run.ID, 0, 100)
		if err != nil {
			return nil, err
		}
		recorded.Store(int64(len(known)))
		return "done", nil
	})
	const source = `
def computed(n):
    for i in range(n):
        run("expression.evaluate", {"expressions": [{"name": "v", "expression": "n + 1"}], "data": {"n": i}})

computed(before)
run("act", {})
computed(after)
r = run("expression.evaluate", {"expressions": [{"name": "v", "expression": "n / 0"}], "data": {"n": 1}}, on_error = "return")
print(r.code)
`
	for _, one := range []struct {
		before, after int
		commits       int64
	}{
		{0, 0, 1},
		{3, 0, 2},
		{1, 3, 2},
		{7, 7, 2},
		{20, 0, 4}, // a turn waits for eight at most
	} {
		begun := c.committed.Load()
		workflow := fmt.Sprintf("w-%d-%d", one.before, one.after)
		_, err := service.Start(t.Context(), execution.Start{
			Organization: 1, Workflow: workflow, Program: program.Program{Source: []byte(source)},
			Inputs: fmt.Appendf(nil, `{"before": %d, "after": %d}`, one.before, one.after),
		})
		if err != nil {
			t.Fatal(err)
		}
		run, entries := ended(t, e, workflow)
		if run.State != execution.Completed {
			t.Fatalf("%s ended as %v: %s", workflow, run.State, run.Error)
		}
		runs := 0
		for _, entry := range entries {
			if entry.Kind == history.KindRun {
				runs++
			}
			if entry.Kind == history.KindPrint && !strings.Contains(string(entry.Value), "expression_evaluate") {
				t.Errorf("%s: printed %s", workflow, entry.Value)
			}
		}
		if runs != one.before+one.after+2 {
			t.Errorf("%s: found %d calls in the history", workflow, runs)
		}
		if found := recorded.Load(); found != int64(one.before) {
			t.Errorf("%s: found %d entries when the Function was called; expected %d", workflow, found, one.before)
		}
		if found := c.committed.Load() - begun; found != one.commits {
			t.Errorf("%s: found %d commits; expected %d", workflow, found, one.commits)
		}
	}
}

// What is computed within a turn passes no limit of the history: such calls fail the run as others do.
func TestComputedAnswersDoNotPassTheLimitOfAHistory(t *testing.T) {
	t.Parallel()
	const call = `run("template.render", {"template": "{{ .n }}", "data": {"n": %s}})`
	for name, source := range map[string]string{
		"side by side":        "def one(i):\n    return " + fmt.Sprintf(call, "i") + "\ngather(*[spawn(one, i) for i in range(120)])",
		"one after the other": "for i in range(120):\n    " + fmt.Sprintf(call, "i"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, _, service := alone(t, func(context.Context, activity.Call) (any, error) { return "done", nil })
			_, err := service.Start(t.Context(), execution.Start{
				Organization: 1, Workflow: "w", Program: program.Program{Source: []byte(source)},
			})
			if err != nil {
				t.Fatal(err)
			}
			if run, _ := ended(t, e, "w"); run.State != execution.Failed || !strings.Contains(run.Error, "grown past 100 entries") {
				t.Errorf("ended as %v: %s", run.State, run.Error)
			}
		})
	}
}
