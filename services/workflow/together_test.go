package workflow_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/execution"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/program"
)

// D12: the timers of runs that wait for nothing else fire together, whenever they were set; of two of one run the one that was to be the
// first is the first, so that what ends in time is not recorded as late.
func TestOnlyLoneTimersAreMoved(t *testing.T) {
	t.Parallel()
	e := newEngines(t)
	e.run("one", e.store, nil)
	dues := func(id, source string, want int) (all []time.Time) {
		t.Helper()
		start := execution.Start{Organization: 1, Workflow: id, Program: program.Program{Source: []byte(source)}}
		if _, err := e.service.Start(t.Context(), start); err != nil {
			t.Fatal(err)
		}
		for deadline := e.clock.Now().Add(within); e.clock.Now().Before(deadline); _ = clock.Sleep(t.Context(), e.clock, 5*time.Millisecond) {
			w, err := e.store.Get(t.Context(), 1, id)
			if err != nil {
				t.Fatal(err)
			}
			waits, err := e.store.Waiting(t.Context(), w.ID)
			if err != nil {
				t.Fatal(err)
			}
			all = nil
			for _, one := range waits {
				if one.Kind == history.KindSleep || one.Kind == history.KindWait {
					all = append(all, one.Due)
				}
			}
			if w.State == execution.Parked && len(all) == want {
				return all
			}
		}
		t.Fatalf("%s: found the timers %v, expected %d", id, all, want)
		return nil
	}
	moved := 0
	for i := range 8 {
		for _, source := range []string{"sleep(60)", "wait_for_event('com.gitlab.cd.rollout.started', timeout=60)"} {
			if due := dues(fmt.Sprint(source[:4], i), source, 1)[0]; !due.Equal(due.Truncate(250 * time.Millisecond)) {
				t.Errorf("%s: fires at %s, expected a multiple of 250 ms", source, due)
			}
		}
		both := dues(fmt.Sprint("both-", i), "def f():\n    sleep(59.9)\ndefer(f, timeout=60)", 2)
		if apart := both[0].Sub(both[1]).Abs(); apart < 50*time.Millisecond || apart > 150*time.Millisecond {
			t.Errorf("a deferred call and its limit: %s apart, expected what the program asks for", apart)
		}
		if !both[0].Equal(both[0].Truncate(250 * time.Millisecond)) {
			moved++
		}
	}
	if moved == 0 {
		t.Error("the timers of deferred calls were moved, too")
	}
}
