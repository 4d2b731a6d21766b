package workflow_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/outbox"
	"github.com/lockstep-cd/lockstep/pkg/testkit/bustest"
	"github.com/lockstep-cd/lockstep/pkg/testkit/pgtest"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/control"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/execution"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/flow"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/program"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/events"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/script"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/store"
)

// TestAnEventStartsItsRunWithoutWaitingForALook: storing an event, received from outside, emitted by a program or about a run's end,
// wakes the loop that starts runs, but only if its type has a handler (E17). There is no lookout here that would wake the loop.
func TestAnEventStartsItsRunWithoutWaitingForALook(t *testing.T) {
	t.Parallel()
	pool, _ := pgtest.New(t, pgtest.Migration{Name: "outbox", FS: outbox.Migrations()},
		pgtest.Migration{Name: "workflow", FS: store.Migrations()})
	var flows *flow.Flows
	var met atomic.Int64
	e := &engines{t: t, scripts: script.New(script.Limits{}), clock: clock.System(), checkEmit: events.CheckEmit}
	e.store = store.New(store.Deps{
		Pool: pool, Encode: events.Encode, Add: outbox.AddNumbered, AddNew: outbox.AddNew, Committed: func() {}, Woken: e.Wake,
		Clock: clock.System(), Log: bustest.Log(t),
		Met: func() { met.Add(1); flows.Wake() },
	})
	e.service = control.NewService(e.store, e.scripts, clock.System(), e)
	started := make(chan string, 10)
	flows = flow.NewFlows(flow.Deps{
		Store: e.store, Scripts: e.scripts, Clock: clock.System(), Log: bustest.Log(t),
		Start: func(_ context.Context, s execution.Start) (execution.Started, error) {
			started <- s.Labels["event_type"]
			return execution.Started{}, nil
		},
	})
	source := `
def handle(event):
    pass
on_event(type = ["com.example.tick", "com.gitlab.cd.rollout.started"], handler = handle)
on_event(type = "com.gitlab.cd.workflow.cancelled", filter = {"workflow_id": "sleeper"}, handler = handle)
`
	if _, _, err := flows.Register(t.Context(), flow.Flow{
		Organization: organization, Name: "f",
		Program: program.Program{Source: []byte(source)},
	}); err != nil {
		t.Fatal(err)
	}
	stopEngine := e.run("a", e.store, func(context.Context, activity.Call) (any, error) { return nil, nil })
	defer stopEngine()
	running, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = flows.Run(running) }()
	t.Cleanup(func() { stop(); <-done })

	receive := func(organization int64, id, eventType string) {
		t.Helper()
		_, _, err := e.service.Receive(t.Context(),
			history.Event{Organization: organization, Source: "/test", ID: id, Type: eventType, Data: []byte("{}"), Time: clock.System().Now()})
		if err != nil {
			t.Fatal(err)
		}
	}
	submit := func(workflow, source string) {
		t.Helper()
		if _, err := e.service.Start(t.Context(), execution.Start{
			Organization: organization, Workflow: workflow,
			Program: program.Program{Source: []byte(source)},
		}); err != nil {
			t.Fatal(err)
		}
	}
	await := func(eventType string) {
		t.Helper()
		limit := clock.System().NewTimer(within)
		defer limit.Stop()
		select {
		case got := <-started:
			if got != eventType {
				t.Fatalf("a run was started for %s, expected one for %s", got, eventType)
			}
		case <-limit.C():
			t.Fatalf("within %s no run was started for %s", within, eventType)
		}
	}
	// The loop has polled once by now or will soon; that poll finds every event stored before it.
	receive(organization, "1", "com.example.tick")
	await("com.example.tick")
	before := met.Load()
	receive(organization, "2", "com.example.other")
	receive(organization+1, "3", "com.example.tick")
	receive(organization, "1", "com.example.tick") // again
	if met.Load() != before {
		t.Errorf("events that meet no handler wake the loop")
	}
	receive(organization, "4", "com.example.tick")
	await("com.example.tick")
	submit("emitter", `run("emit", {"type": "com.gitlab.cd.rollout.started", "data": {"rollout_id": 1}})`)
	await("com.gitlab.cd.rollout.started")
	submit("sleeper", "sleep(seconds = 3600)")
	if err := e.service.Cancel(t.Context(), organization, "sleeper", "enough"); err != nil {
		t.Fatal(err)
	}
	await("com.gitlab.cd.workflow.cancelled")
}
