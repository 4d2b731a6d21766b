package workflow_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/control"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/engine"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/execution"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
)

// loads counts what is read of executions.
type loads struct {
	Store
	count atomic.Int64
}

func (l *loads) Load(ctx context.Context, execution int64) (engine.Loaded, error) {
	l.count.Add(1)
	return l.Store.Load(ctx, execution)
}

// TestADamagedRunIsSetAside removes an entry from a history. The run is tried a few times, and then quarantined with an error that names
// the missing entry; once that is restored, RetryWorkflow continues the run.
func TestADamagedRunIsSetAside(t *testing.T) {
	t.Parallel()
	e := newEngines(t)
	stop := e.run("one", e.store, func(context.Context, activity.Call) (any, error) { return 1, nil })
	e.start("run('act', {})\nrun('act', {})\nrun('act', {})\nwait_for_event(type = 'com.example.go', filter = {'n': 1})")
	e.await(execution.Parked)
	stop()
	if _, err := e.store.Pool.Exec(t.Context(), "CREATE TABLE kept AS SELECT * FROM entry WHERE seq = 2"); err != nil {
		t.Fatal(err)
	}
	if _, err := e.store.Pool.Exec(t.Context(), "DELETE FROM entry WHERE seq = 2"); err != nil {
		t.Fatal(err)
	}
	// An event wakes it, as any would.
	event := history.Event{Organization: 1, Source: "test", ID: "1", Type: "com.example.go", Data: []byte(`{"n": 1}`)}
	if matched, _, err := e.store.Receive(t.Context(), event); err != nil || matched != 1 {
		t.Fatal(matched, err)
	}
	counted := &loads{Store: e.store}
	e.run("two", counted, nil)
	w := e.await(execution.Quarantined)
	if !strings.Contains(w.Error, "missing from its history: 2; found 2 of generation 1, expected 3") {
		t.Errorf("the reason is %q", w.Error)
	}
	if n := counted.count.Load(); n < 2 || n > 5 {
		t.Errorf("it was read %d times, expected a few", n)
	}
	if _, err := e.store.Pool.Exec(t.Context(), "INSERT INTO entry SELECT * FROM kept"); err != nil {
		t.Fatal(err)
	}
	if err := e.store.Retry(t.Context(), control.RetryRequest{Organization: 1, Workflow: "w", At: clock.System().Now()}); err != nil {
		t.Fatal(err)
	}
	e.await(execution.Completed)
}
