package workflow_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/clock/clocktest"
	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/outbox"
	"github.com/lockstep-cd/lockstep/pkg/testkit/bustest"
	"github.com/lockstep-cd/lockstep/pkg/testkit/pgtest"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/agent"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/control"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/engine"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/execution"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/flow"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/program"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/schedule"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/events"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/script"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/store"
	schedulestore "github.com/lockstep-cd/lockstep/services/workflow/internal/store/schedules"
)

// asked counts the statements of a pool, by their names.
type asked struct {
	mu    sync.Mutex
	times map[string]int
}

func (a *asked) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	name, _, _ := strings.Cut(strings.TrimPrefix(data.SQL, "-- name: "), "\n")
	a.mu.Lock()
	defer a.mu.Unlock()
	a.times[name]++
	return ctx
}

func (*asked) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (a *asked) of(name string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.times[name]
}

func (a *asked) all() (total int, list []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(a.times)) {
		total += a.times[name]
		list = append(list, fmt.Sprintf("%s %d", name, a.times[name]))
	}
	return total, list
}

// nowhere is a bus that takes everything and has no receivers.
type nowhere struct{}

func (nowhere) PublishAll(_ context.Context, events []event.Sealed, _ []string) []error {
	return make([]error, len(events))
}

func (nowhere) Connected() bool { return true }

func (nowhere) OnHint(context.Context, string, func([]byte)) error { return nil }

// quiet is everything of the service that looks into the database by itself, on a clock that a test moves. asked counts its statements.
type quiet struct {
	t       *testing.T
	asked   *asked
	clock   *clocktest.Clock
	pool    *pgxpool.Pool // whose statements are not counted
	store   *store.Store
	service *control.Service
	flows   *flow.Flows
	// others is the service of a process that ends before it has signalled any other.
	others *control.Service
}

func newQuiet(t *testing.T) *quiet {
	t.Helper()
	owned, _ := pgtest.New(t, pgtest.Migration{Name: "outbox", FS: outbox.Migrations()},
		pgtest.Migration{Name: "workflow", FS: store.Migrations()})
	q := &quiet{t: t, asked: &asked{times: map[string]int{}}, clock: clocktest.New(time.Date(2026, 3, 25, 10, 0, 0, 0, time.UTC))}
	config := owned.Config()
	config.ConnConfig.Tracer = q.asked
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	q.pool = owned
	log, scripts := bustest.Log(t), script.New(script.Limits{})
	deps := store.Deps{
		Pool: owned, Encode: events.Encode, Add: outbox.AddNumbered, AddNew: outbox.AddNew, Committed: func() {},
		Clock: q.clock, Log: log,
	}
	q.others = control.NewService(store.New(deps), scripts, q.clock, &engines{t: t})

	var runner *engine.Engine
	sender := outbox.NewSender(outbox.SenderDeps{
		Pool: pool, Bus: nowhere{}, Clock: q.clock, Log: log, Name: "workflow",
		Receivers: []string{"domain"},
	})
	// Nobody wakes the sender: what it does then is in its own tests, and takes one more timer.
	deps.Pool, deps.Woken = pool, func(w engine.Woken) { runner.Wake(w) }
	q.store = store.New(deps)
	functions, err := activity.NewFunctions()
	if err != nil {
		t.Fatal(err)
	}
	owners, watchers := agent.NewRegistry(q.store, q.clock, log), control.NewSubscriptions(q.store, q.clock, log)
	runner = engine.New(engine.Deps{
		Store: watchers.Store(q.store), Scripts: scripts, Functions: functions, Agents: owners, CheckEmit: events.CheckEmit,
		Clock: q.clock, Log: log,
		Flows: func() { q.flows.Wake() },
		Settings: engine.Settings{
			Instance: "idle", Lease: 5 * time.Second, Poll: time.Second, CallTimeout: time.Minute, WaitTimeout: time.Hour,
			Live: 10, Cache: 1 << 20, Activities: 10, History: 100, Crashes: 3, Retention: time.Hour,
		},
	})
	q.service = control.NewService(q.store, scripts, q.clock, runner)
	q.flows = flow.NewFlows(flow.Deps{Store: q.store, Scripts: scripts, Start: q.service.Start, Clock: q.clock, Log: log})
	dispatcher := agent.Dispatcher{Store: q.store, Clock: q.clock, Log: log, Woken: runner.Calls()}
	agents := events.NewAgents(events.AgentsDeps{Store: q.store, Clock: q.clock, Log: log})
	running, stop := context.WithCancel(t.Context())
	var loops sync.WaitGroup
	t.Cleanup(func() { stop(); loops.Wait() })
	ready := make(chan struct{})
	for _, loop := range []func(context.Context) error{
		func(ctx context.Context) error { return runner.Run(ctx, func() { close(ready) }) },
		q.flows.Run, dispatcher.Run, owners.Run, watchers.Run, sender.Run, agents.Run,
		outbox.NewInbox(outbox.InboxDeps{Pool: pool, Clock: q.clock, Log: log, Name: "workflow"}).Run,
		schedule.New(schedule.Deps{Store: schedulestore.New(pool), Scripts: scripts, Clock: q.clock, Log: log}).Run,
	} {
		loops.Go(func() { _ = loop(running) })
	}
	<-ready
	return q
}

func (q *quiet) start(by *control.Service, workflow, source string) {
	q.t.Helper()
	if _, err := by.Start(q.t.Context(), execution.Start{
		Organization: organization, Workflow: workflow,
		Program: program.Program{Source: []byte(source)},
	}); err != nil {
		q.t.Fatal(err)
	}
}

// await waits until a run is in a state. No time passes meanwhile.
func (q *quiet) await(workflow string, state execution.State) {
	q.t.Helper()
	for deadline := clock.System().Now().Add(within); ; {
		e, err := q.store.Get(q.t.Context(), organization, workflow)
		if err == nil && e.State == state {
			return
		}
		if err != nil && !fault.Is(err, fault.NotFound) || clock.System().Now().After(deadline) {
			q.t.Fatalf("workflow %s is in state %v (%v), expected %v", workflow, e.State, err, state)
		}
		_ = clock.Sleep(q.t.Context(), clock.System(), time.Millisecond)
	}
}

// asleep waits until every loop waits for its timer or a signal: claims, timers, retention, the lookout, flows, the owners of agents,
// watchers, the outbox, heartbeats of agents, receipts, schedules, runs that rest.
func (q *quiet) asleep() {
	q.t.Helper()
	all := make(chan struct{})
	go func() { defer close(all); q.clock.AwaitTimers(12) }()
	limit := clock.System().NewTimer(within)
	defer limit.Stop()
	select {
	case <-all:
	case <-limit.C():
		q.t.Fatalf("the loops were not all asleep within %s", within)
	}
}

func (q *quiet) second() {
	q.t.Helper()
	q.asleep()
	q.clock.Advance(time.Second)
}

// TestAServiceWithNothingToDoAsksLittle has two minutes pass beside runs that are parked, one of them until long after that: at most
// three statements a second, each of which is a commit (E43).
func TestAServiceWithNothingToDoAsksLittle(t *testing.T) {
	t.Parallel()
	q := newQuiet(t)
	for workflow, program := range map[string]string{"sleeper": "sleep(seconds = 3600)", "waiter": `wait_for_event("com.example.never")`} {
		q.start(q.service, workflow, program)
		q.await(workflow, execution.Parked)
	}
	q.second() // what the starts have left to do is done
	q.asleep()
	before, _ := q.asked.all()
	rounds := q.asked.of("Due :one")
	const seconds, most = 120, 3
	for range seconds {
		q.second()
	}
	q.asleep()
	after, list := q.asked.all()
	if asked := after - before; asked > most*seconds {
		t.Errorf("%d statements in %d seconds, expected at most %d a second; since the start:\n%s", asked, seconds,
			most, strings.Join(list, "\n"))
	}
	if looked := q.asked.of("Due :one") - rounds; looked != seconds {
		t.Errorf("the lookout has looked %d times in %d seconds", looked, seconds)
	}
}

// TestLostSignalsAreFoundWithinASecond: a dead process has left a run without an owner, an event that starts the run of a flow, and a
// timer that fires before any that this process knows.
func TestLostSignalsAreFoundWithinASecond(t *testing.T) {
	t.Parallel()
	q := newQuiet(t)
	source := `
def handle(event):
    pass
on_event(type = "com.example.tick", handler = handle)
`
	if _, _, err := q.flows.Register(t.Context(),
		flow.Flow{Organization: organization, Name: "f", Program: program.Program{Source: []byte(source)}}); err != nil {
		t.Fatal(err)
	}
	q.start(q.service, "later", "sleep(seconds = 60)")
	q.start(q.service, "sleeper", "sleep(seconds = 3600)")
	q.await("later", execution.Parked)
	q.await("sleeper", execution.Parked)
	q.second()
	q.start(q.others, "left", "x = 1")
	q.second()
	q.await("left", execution.Completed)

	tick := history.Event{
		Organization: organization, Source: "/test", ID: "1", Type: "com.example.tick", Data: []byte("{}"),
		Time: q.clock.Now(),
	}
	if _, _, err := q.others.Receive(t.Context(), tick); err != nil {
		t.Fatal(err)
	}
	q.second()
	for deadline := clock.System().Now().Add(within); ; {
		list, err := q.store.ListFlows(t.Context(), organization, 0, 10)
		if err != nil || clock.System().Now().After(deadline) {
			t.Fatalf("the flow has not been started within %s: %v (%v)", within, list, err)
		}
		if list[0].Started == 1 {
			break
		}
		_ = clock.Sleep(t.Context(), clock.System(), time.Millisecond)
	}

	if _, err := q.pool.Exec(t.Context(), `UPDATE timer SET due = $1 FROM execution WHERE id = execution AND workflow = 'sleeper'`,
		q.clock.Now().Add(1500*time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	q.second()
	q.second()
	q.await("sleeper", execution.Completed)
}
