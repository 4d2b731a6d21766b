package workflow_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/outbox"
	"github.com/lockstep-cd/lockstep/pkg/testkit/bustest"
	"github.com/lockstep-cd/lockstep/pkg/testkit/pgtest"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/control"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/engine"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/execution"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/program"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/events"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/script"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/store"
)

// behaviour is a Function made of a Go function.
type behaviour func(context.Context, activity.Call) (any, error)

func (behaviour) Name() string { return "act" }

func (behaviour) Location() activity.Location { return activity.InProcess }

func (behaviour) Effect() activity.Effect { return activity.Reads }

func (b behaviour) Call(ctx context.Context, c activity.Call) (any, error) { return b(ctx, c) }

// engines are processes over one database.
type engines struct {
	t       *testing.T
	store   *store.Store
	scripts program.Scripts
	service *control.Service
	// clock and generations are for those that run next.
	clock       clock.Clock
	generations int
	checkEmit   func(history.Emit) *history.FunctionError
	// policies decide about calls in those that run next; nil for none.
	policies engine.CallPolicies
	// limits bound programs in those that run next; nil for none.
	limits engine.Limits

	mu      sync.Mutex
	running []*engine.Engine
}

func newEngines(t *testing.T) *engines {
	t.Helper()
	return newEnginesWith(t, script.New(script.Limits{}))
}

func newEnginesWith(t *testing.T, scripts program.Scripts) *engines {
	t.Helper()
	pool, _ := pgtest.New(t, pgtest.Migration{Name: "outbox", FS: outbox.Migrations()},
		pgtest.Migration{Name: "workflow", FS: store.Migrations()})
	e := &engines{t: t, scripts: scripts, clock: clock.System(), checkEmit: events.CheckEmit}
	e.store = store.New(store.Deps{
		Pool: pool, Encode: events.Encode, Add: outbox.AddNumbered, AddNew: outbox.AddNew, Committed: func() {}, Woken: e.Wake,
		ClaimEvent: func(context.Context, pgx.Tx, event.Event) (bool, error) { return true, nil },
		Clock:      clock.System(), Log: bustest.Log(t),
	})
	e.service = control.NewService(e.store, scripts, clock.System(), e)
	return e
}

// Reserve has no place: which of the engines gets an execution is what tests are about.
func (e *engines) Reserve(int64) (engine.Lease, bool) { return engine.Lease{}, false }

func (*engines) Ahead(context.Context, engine.NewExecution, engine.Loaded) (engine.Created, bool, error) {
	return engine.Created{}, false, nil
}

func (e *engines) Begin(engine.Loaded) {}

func (e *engines) Release(int64) {}

func (*engines) Runs(int64, string) bool { return false }
func (*engines) Recall(int64, string) (execution.Execution, bool) {
	return execution.Execution{}, false
}

func (e *engines) Watch(int64, string) (ended <-chan execution.Execution, forget func()) {
	return nil, func() {}
}

func (*engines) WatchAnswer(int64, string, string) (answered <-chan struct{}, forget func()) {
	return nil, func() {}
}

func (e *engines) Wake(w engine.Woken) {
	e.mu.Lock()
	defer e.mu.Unlock()
	w.Ours = w.Ours && len(e.running) == 1 // the store knows the last engine only
	for _, engine := range e.running {
		engine.Wake(w)
	}
}

const shortLease = 1000 * time.Millisecond

// run starts a process with one Function, "act". The answer stops it.
func (e *engines) run(instance string, s Store, act behaviour) (stop func()) {
	e.t.Helper()
	return e.runWith(instance, s, act, 100)
}

// runWith lets histories have more entries.
func (e *engines) runWith(instance string, s Store, act behaviour, history int) (stop func()) {
	e.t.Helper()
	functions, err := activity.NewFunctions(act)
	if err != nil {
		e.t.Fatal(err)
	}
	engine := engine.New(engine.Deps{
		Store: s, Scripts: e.scripts, Functions: functions, CheckEmit: e.checkEmit, Limits: e.limits, Policies: e.policies, Clock: e.clock,
		Log: bustest.Log(e.t),
		Settings: engine.Settings{
			Generations: e.generations,
			Instance:    instance, Lease: shortLease, Poll: 20 * time.Millisecond, CallTimeout: time.Minute, WaitTimeout: time.Hour,
			Live: 10, Cache: 1 << 20, Activities: 10, History: history, Crashes: 3, Retention: time.Hour,
		},
	})
	ctx, cancel := context.WithCancel(e.t.Context())
	ready, done := make(chan struct{}), make(chan error, 1)
	go func() { done <- engine.Run(ctx, func() { close(ready) }) }()
	<-ready
	e.mu.Lock()
	e.running = append(e.running, engine)
	e.mu.Unlock()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			e.t.Error(err)
		}
	})
	e.t.Cleanup(stop)
	return stop
}

func (e *engines) start(source string) {
	e.t.Helper()
	_, err := e.service.Start(e.t.Context(), execution.Start{Organization: 1, Workflow: "w", Program: program.Program{Source: []byte(source)}})
	if err != nil {
		e.t.Fatal(err)
	}
}

func (e *engines) await(want execution.State) execution.Execution {
	e.t.Helper()
	for deadline := clock.System().Now().Add(within); clock.System().Now().Before(deadline); {
		w, err := e.store.Get(e.t.Context(), 1, "w")
		if err != nil {
			e.t.Fatal(err)
		}
		if w.State == want {
			return w
		}
		if w.State.Ended() {
			e.t.Fatalf("the run ended as %d: %s", w.State, w.Error)
		}
		if clock.Sleep(e.t.Context(), clock.System(), 5*time.Millisecond) != nil {
			break
		}
	}
	e.t.Fatalf("the run did not come to state %d", want)
	return execution.Execution{}
}

// ended is a run after its end, however that is.
func (e *engines) ended(id string) execution.Execution {
	e.t.Helper()
	for deadline := clock.System().Now().Add(2 * within); clock.System().Now().Before(deadline); {
		w, err := e.store.Get(e.t.Context(), 1, id)
		if err != nil {
			e.t.Fatal(err)
		}
		if w.State.Ended() {
			return w
		}
		if clock.Sleep(e.t.Context(), clock.System(), 10*time.Millisecond) != nil {
			break
		}
	}
	e.t.Fatalf("%s did not end", id)
	return execution.Execution{}
}

func (e *engines) history() []string {
	e.t.Helper()
	entries, err := e.service.History(e.t.Context(), 1, "w", 0, 100)
	if err != nil {
		e.t.Fatal(err)
	}
	var lines []string
	for _, entry := range entries {
		lines = append(lines, string(entry.Kind)+" "+string(entry.Value))
	}
	return lines
}

// An event whose type could not be looked up is the fault of no program: the turn is repeated until it can be, and what the program made of
// the error has no effect (issue 18).
func TestAnEventThatCannotBeCheckedNowIsEmittedLater(t *testing.T) {
	t.Parallel()
	e := newEngines(t)
	var checks atomic.Int64
	e.checkEmit = func(history.Emit) *history.FunctionError {
		if checks.Add(1) <= 3 {
			return &history.FunctionError{Code: history.CodeUnreachable, Message: "the event types could not be read", Retryable: true}
		}
		return nil
	}
	e.run("one", e.store, func(_ context.Context, c activity.Call) (any, error) { return c.Args, nil })
	e.start(`run("act", {"n": 1})
r = attempt(run, "emit", {"type": "com.example.order.shipped", "data": {}})
run("act", {"emitted": r.ok})`)
	e.await(execution.Completed)
	lines := strings.Join(e.history(), "\n")
	if checks.Load() != 4 || !strings.Contains(lines, `"emitted":true`) || strings.Contains(lines, "could not be read") {
		t.Errorf("found %d checks, expected 4; history:\n%s", checks.Load(), lines)
	}
}

func TestCancelInterruptsAFunction(t *testing.T) {
	t.Parallel()
	e := newEngines(t)
	begun, proceed := make(chan struct{}), make(chan struct{})
	e.run("one", e.store, func(ctx context.Context, _ activity.Call) (any, error) {
		close(begun)
		<-ctx.Done()
		close(proceed)
		return "too late", nil
	})
	e.start(`run("act", {})`)
	<-begun
	if err := e.service.Cancel(t.Context(), 1, "w", "enough"); err != nil {
		t.Fatal(err)
	}
	<-proceed
	e.await(execution.Cancelled)
	if h := e.history(); len(h) != 1 || !strings.HasPrefix(h[0], "cancelled") {
		t.Errorf("history %q", h)
	}
}

func TestAnEventReachesARunWhileItsFunctionIsUnderWay(t *testing.T) {
	t.Parallel()
	e := newEngines(t)
	begun, release := make(chan struct{}), make(chan struct{})
	e.run("one", e.store, func(context.Context, activity.Call) (any, error) {
		close(begun)
		<-release
		return nil, nil
	})
	e.start(`
def waits():
    wait_for_event("com.example.tick")
    print("ticked")

spawn(waits)
run("act", {})
`)
	<-begun
	matched, _, err := e.service.Receive(t.Context(), history.Event{
		Organization: 1, Source: "/test", ID: "1", Type: "com.example.tick",
		Data: json.RawMessage(`{}`), Time: clock.System().Now(),
	})
	if err != nil || matched != 1 {
		t.Fatal(matched, err)
	}
	for len(e.history()) < 2 { // the deadline is the test's
		if clock.Sleep(t.Context(), clock.System(), 5*time.Millisecond) != nil {
			t.Fatal("the event was not applied")
		}
	}
	close(release)
	e.await(execution.Completed)
}

func TestAFunctionThatPanicsFailsItsRunOnly(t *testing.T) {
	t.Parallel()
	e := newEngines(t)
	e.run("one", e.store, func(context.Context, activity.Call) (any, error) { panic("at the disco") })
	e.start(`run("act", {})`)
	if w := e.await(execution.Failed); !strings.Contains(w.Error, "internal: the function panicked") || strings.Contains(w.Error, "disco") {
		t.Errorf("failed with %q", w.Error)
	}
}

func TestRetryableErrorsAreRetriedUnderOneKey(t *testing.T) {
	t.Parallel()
	e := newEngines(t)
	var mu sync.Mutex
	keys := map[string]int{}
	e.run("one", e.store, func(_ context.Context, c activity.Call) (any, error) {
		mu.Lock()
		defer mu.Unlock()
		keys[c.ID]++
		if keys[c.ID] != c.Attempt {
			t.Errorf("call %d of %s is attempt %d", keys[c.ID], c.ID, c.Attempt)
		}
		if c.Attempt < 3 {
			return nil, &history.FunctionError{Code: "unreachable", Message: "away", Retryable: true}
		}
		return map[string]any{"n": c.Args["n"]}, nil
	})
	e.start(`
if run("act", {"n": 5}).n != 5:
    fail("other number")
if run("act", {}, retry = False, on_error = "return").code != "unreachable":
    fail("retried")
`)
	e.await(execution.Completed)
	if len(keys) != 2 {
		t.Errorf("keys %v", keys)
	}
}

// cutOff is the store of a process that can no longer reach the database to renew its lease, but works on.
type cutOff struct{ Store }

func (cutOff) Due(context.Context, engine.Round) (engine.Due, error) {
	return engine.Due{}, errors.New("no route to host")
}

func (cutOff) Release(context.Context, engine.Lease) error { return errors.New("no route to host") }

func TestAnotherProcessTakesOverAndTheFormerOwnerIsFenced(t *testing.T) {
	t.Parallel()
	e := newEngines(t)
	begun, release := make(chan struct{}), make(chan struct{})
	letGo := sync.OnceFunc(func() { close(release) })
	e.run("lost", cutOff{e.store}, func(_ context.Context, c activity.Call) (any, error) {
		close(begun)
		<-release
		return "from the former owner, " + c.ID, nil
	})
	t.Cleanup(letGo) // before the end of the process, which waits for it
	e.start(`print(run("act", {}))`)
	<-begun
	e.run("heir", e.store, func(_ context.Context, c activity.Call) (any, error) { return "from the heir, " + c.ID, nil })
	w := e.await(execution.Completed)
	letGo()
	want := `run "from the heir, ` + w.Ref + `/0.0"`
	if h := e.history(); len(h) != 3 || h[0] != want {
		t.Errorf("history %q, expected first %s", h, want)
	}
}

func TestAProcessOfTheSameNameTakesOverAtOnce(t *testing.T) {
	t.Parallel()
	e := newEngines(t)
	begun := make(chan struct{})
	stop := e.run("one", e.store, func(ctx context.Context, _ activity.Call) (any, error) {
		close(begun)
		<-ctx.Done()
		return nil, ctx.Err()
	})
	e.start(`run("act", {})`)
	<-begun
	stop()
	e.run("one", e.store, func(context.Context, activity.Call) (any, error) { return 1, nil })
	e.await(execution.Completed)
}

func TestAHistoryThatGrowsWithoutEndIsStopped(t *testing.T) {
	t.Parallel()
	for name, program := range map[string]string{
		"of answers":  "while run(\"act\", {}):\n    pass",
		"of refusals": "while not run(\"nothing\", {}, on_error=\"return\").ok:\n    pass",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEngines(t)
			e.run("one", e.store, func(context.Context, activity.Call) (any, error) { return true, nil })
			e.start(program)
			if w := e.await(execution.Failed); !strings.Contains(w.Error,
				"the history has grown past 100 entries; call continue_with before the limit") {
				t.Errorf("failed with %q", w.Error)
			}
		})
	}
}

// picky is a store that refuses what programs print.
type picky struct{ Store }

func (p picky) Commit(ctx context.Context, c engine.Commit) (engine.Committed, error) {
	for _, entry := range c.Entries {
		if entry.Kind == history.KindPrint {
			return engine.Committed{}, fault.New(fault.Invalid, "no prints")
		}
	}
	return p.Store.Commit(ctx, c)
}

func TestATurnThatCannotBeStoredFailsTheRun(t *testing.T) {
	t.Parallel()
	e := newEngines(t)
	e.run("one", picky{e.store}, func(context.Context, activity.Call) (any, error) { return true, nil })
	e.start("run(\"act\", {})\nprint(1)\nsleep(60)")
	if w := e.await(execution.Failed); !strings.Contains(w.Error, "what the program did last cannot be stored") {
		t.Errorf("failed with %q", w.Error)
	}
	if h := e.history(); len(h) != 1 || !strings.HasPrefix(h[0], "failed") {
		t.Errorf("history %q", h)
	}
}
