package workflow_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/testkit/wait"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/execution"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/program"
)

// TestALoopOfGenerationsIsHeldBack runs a program that calls continue_with without waiting for anything. After the generations that a
// minute allows, it rests, also in the next process, reports why, and takes no place of another run; after the minute it continues.
func TestALoopOfGenerationsIsHeldBack(t *testing.T) {
	t.Parallel()
	const most = 5
	e := newEngines(t)
	e.generations = most
	e.store.Generations = most
	act := func(context.Context, activity.Call) (any, error) { return 1, nil }
	stop := e.run("one", e.store, act)
	e.start("def again(n):\n    continue_with(again, n + 1)\ncontinue_with(again, 1)")
	held := func() (execution.Execution, string) {
		w, waiting, err := e.service.Get(t.Context(), 1, "w")
		if err != nil {
			t.Fatal(err)
		}
		return w, strings.Join(waiting, "; ")
	}
	wait.For(t, "it is held back", func() bool { _, why := held(); return strings.Contains(why, "is held back until ") })
	w, why := held()
	if w.Generation != most+2 || w.State != execution.Running || !strings.Contains(why, "continue_with too often") {
		t.Errorf("it is in generation %d, in state %d, and says %q; expected generation %d", w.Generation, w.State, why, most+2)
	}
	// More of them than there are places take nobody's.
	for i := range 12 {
		if _, err := e.service.Start(t.Context(), execution.Start{
			Organization: 2, Workflow: "loop-" + string(rune('a'+i)),
			Program: program.Program{Source: []byte("def again(n):\n    continue_with(again, n + 1)\ncontinue_with(again, 1)")},
		}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := e.service.Start(t.Context(), execution.Start{
		Organization: 3, Workflow: "other",
		Program: program.Program{Source: []byte("run('act', {})")},
	}); err != nil {
		t.Fatal(err)
	}
	wait.For(t, "another one ends", func() bool {
		other, err := e.store.Get(t.Context(), 3, "other")
		return err == nil && other.State == execution.Completed
	})
	stop()
	stop = e.run("two", e.store, act)
	if again, why := held(); again.Generation != w.Generation || !strings.Contains(why, "is held back") {
		t.Errorf("in another process it is in generation %d, and says %q", again.Generation, why)
	}
	stop()
	later := &steppedClock{}
	at := clock.System().Now().Add(2 * time.Minute)
	later.now.Store(&at)
	e.clock = later
	e.run("three", e.store, act)
	wait.For(t, "it continues after a minute", func() bool { again, _ := held(); return again.Generation > w.Generation })
}
