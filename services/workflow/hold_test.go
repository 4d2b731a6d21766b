package workflow_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/testkit/bustest"
	"github.com/lockstep-cd/lockstep/pkg/testkit/wait"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/execution"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/limit"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/script"
	limitstore "github.com/lockstep-cd/lockstep/services/workflow/internal/store/limits"
)

// TestADebtOutlivesItsProcess: a run that has made more than the rates of its organization waits for what is left of that also in the next
// process, whether the one before has stopped or died.
func TestADebtOutlivesItsProcess(t *testing.T) {
	t.Parallel()
	for name, died := range map[string]bool{"stopped": false, "died": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBounded(t, script.New(script.Limits{}), 1, limit.Limits{EventsPerSecond: 1})
			b.checkEmit = func(history.Emit) *history.FunctionError { return nil }
			var calls atomic.Int64
			act := func(context.Context, activity.Call) (any, error) { calls.Add(1); return 1, nil }
			var of Store = b.store
			if died {
				of = unreleased{b.store}
			}
			stop := b.runWith("one", of, act, 2000)
			b.submit(1, "w", `
for i in range(7):
    run("emit", {"type": "org.shop.tick", "data": {"n": i}})
run("act", {})
`)
			wait.For(t, "its rest is held", func() bool { return b.number(`SELECT count(*) FROM runnable WHERE not_before > now()`) == 1 })
			var until time.Time
			if err := b.store.Pool.QueryRow(t.Context(), `SELECT not_before FROM runnable`).Scan(&until); err != nil {
				t.Fatal(err)
			}
			stop()
			// Nothing is known of debts in the memory of the next one.
			b.limiter = limit.New(limitstore.New(b.store.Pool), clock.System(), bustest.Log(t))
			b.limits = b.limiter
			var at atomic.Int64
			b.runWith("two", b.store, func(context.Context, activity.Call) (any, error) {
				at.Store(clock.System().Now().UnixNano())
				return 1, nil
			}, 2000)
			b.await(execution.Completed)
			if began := time.Unix(0, at.Load()); calls.Load() != 0 || began.Before(until.Add(-time.Second)) {
				t.Errorf("it continued at %s, expected about %s, and was called %d times before", began, until, calls.Load())
			}
		})
	}
}
