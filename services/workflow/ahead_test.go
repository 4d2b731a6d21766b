package workflow_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/testkit/bustest"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/control"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/engine"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/execution"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/program"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/events"
	functions "github.com/lockstep-cd/lockstep/services/workflow/internal/function"
)

// countedStarts is a store that counts the starts which it stores with and without a first turn, how often it is asked where a run
// stands, and how many runs are loaded.
type countedStarts struct {
	Store

	created, begun, asked, loaded, committed atomic.Int64
}

func (c *countedStarts) Commit(ctx context.Context, turn engine.Commit) (engine.Committed, error) {
	c.committed.Add(1)
	return c.Store.Commit(ctx, turn)
}

func (c *countedStarts) Get(ctx context.Context, organization int64, workflow string) (execution.Execution, error) {
	c.asked.Add(1)
	return c.Store.Get(ctx, organization, workflow)
}

func (c *countedStarts) Load(ctx context.Context, execution int64) (engine.Loaded, error) {
	c.loaded.Add(1)
	return c.Store.Load(ctx, execution)
}

func (c *countedStarts) Create(ctx context.Context, n engine.NewExecution) (engine.Created, error) {
	c.created.Add(1)
	return c.Store.Create(ctx, n)
}

func (c *countedStarts) Begin(ctx context.Context, n engine.NewExecution, first engine.Commit) (int64, bool, error) {
	id, begun, err := c.Store.Begin(ctx, n, first)
	if begun {
		c.begun.Add(1)
	}
	return id, begun, err
}

// patient is a clock whose timers do not fire: who waits does not look again because something takes long.
type patient struct{ clock.Clock }

func (p patient) NewTimer(time.Duration) clock.Timer { return p.Clock.NewTimer(24 * time.Hour) }

// alone is one process that has places for what it starts, with the Functions of this service and "act". Its callers are patient, and
// no time passes for its engine.
func alone(t *testing.T, act behaviour) (*engines, *countedStarts, *control.Service) {
	t.Helper()
	e := newEngines(t)
	registry, err := activity.NewFunctions(append(functions.All(nil, nil, nil), act)...)
	if err != nil {
		t.Fatal(err)
	}
	c := &countedStarts{Store: e.store}
	// No first turn takes long there, however busy the machine is: one that does is not run ahead the next time.
	swift, now := &steppedClock{}, clock.System().Now()
	swift.now.Store(&now)
	engine := engine.New(engine.Deps{
		Store: c, Scripts: e.scripts, Functions: registry, CheckEmit: events.CheckEmit, Clock: swift, Log: bustest.Log(t),
		Settings: engine.Settings{
			Instance: "alone", Lease: time.Minute, Poll: 20 * time.Millisecond, CallTimeout: time.Minute, WaitTimeout: time.Hour,
			Live: 100, Cache: 1 << 20, Activities: 10, History: 100, Crashes: 3, Retention: time.Hour,
		},
	})
	ctx, cancel := context.WithCancel(t.Context())
	ready, done := make(chan struct{}), make(chan error, 1)
	go func() { done <- engine.Run(ctx, func() { close(ready) }) }()
	<-ready
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the engine ended with %v", err)
		}
	})
	return e, c, control.NewService(c, e.scripts, patient{clock.System()}, engine)
}

// ended returns a run that has ended with its history.
func ended(t *testing.T, e *engines, workflow string) (execution.Execution, []history.Entry) {
	t.Helper()
	run := e.ended(workflow)
	history, err := e.store.History(t.Context(), run.ID, 0, 100)
	if err != nil {
		t.Fatal(err)
	}
	return run, history
}

// A program that has done well before is run ahead of its start: what is stored is the same, in one transaction. What does something in
// the world waits until the start is stored all the same.
func TestTheFirstTurnIsStoredWithItsStart(t *testing.T) {
	t.Parallel()
	var e *engines
	var calls sync.Map
	e, c, service := alone(t, func(ctx context.Context, call activity.Call) (any, error) {
		if _, err := e.store.Get(ctx, 1, call.Workflow); err != nil {
			t.Errorf("%s was called before %s was stored: %v", call.ID, call.Workflow, err)
		}
		if _, twice := calls.LoadOrStore(call.ID, true); twice {
			t.Errorf("%s was called twice", call.ID)
		}
		return "done", nil
	})
	for name, p := range map[string]struct {
		source string
		state  execution.State
		kinds  []history.Kind
	}{
		"nothing": {"x = number", execution.Completed, []history.Kind{history.KindCompleted}},
		"step":    {"run('checkpoint', {'state': {'n': number}})", execution.Completed, []history.Kind{history.KindRun, history.KindCompleted}},
		"steps": {
			"[run('checkpoint', {'state': {'n': n}}) for n in range(2)]\nrun('act', {})", execution.Completed,
			[]history.Kind{history.KindRun, history.KindRun, history.KindRun, history.KindCompleted},
		},
		"act": {
			"print(run('act', {}))\nrun('checkpoint', {'state': {'n': 1}})", execution.Completed,
			[]history.Kind{history.KindRun, history.KindPrint, history.KindRun, history.KindCompleted},
		},
		"emits": {"run('checkpoint', {'state': {'n': uuid()}})\nrun('emit', {'type': 'com.gitlab.cd.rollout.started', 'data': {'rollout_id': number}})", execution.Completed, nil},
		"fails": {
			"run('checkpoint', {'state': {'n': 1}})\nfail('no more')", execution.Failed,
			[]history.Kind{history.KindRun, history.KindFailed},
		},
		"refused": {"run('checkpoint', {})", execution.Failed, []history.Kind{history.KindRun, history.KindFailed}},
	} {
		var first []history.Entry
		begun := c.begun.Load()
		for i := range 3 {
			workflow := fmt.Sprintf("%s-%d", name, i)
			started, err := service.Start(t.Context(), execution.Start{
				Organization: 1, Workflow: workflow, Program: program.Program{Source: []byte(p.source)},
				Inputs: fmt.Appendf(nil, `{"number": %d}`, i+1),
			})
			if err != nil || !started.Created {
				t.Fatalf("%s: started as %+v (%v)", workflow, started, err)
			}
			run, entries := ended(t, e, workflow)
			if run.State != p.state || run.Ref != started.Ref || run.LastSeq != int64(len(entries)) {
				t.Errorf("%s ended as %s (%s) with %d of %d entries, expected %s", workflow, run.State, run.Error, run.LastSeq, len(entries), p.state)
			}
			var kinds []history.Kind
			for _, entry := range entries {
				kinds = append(kinds, entry.Kind)
			}
			if p.kinds != nil && !cmp.Equal(p.kinds, kinds) {
				t.Errorf("%s: the history has %v, expected %v", workflow, kinds, p.kinds)
			}
			if i == 0 {
				first = entries
			}
			// The two differ only in values.
			if diff := cmp.Diff(first, entries, cmpopts.IgnoreFields(history.Entry{}, "At", "Value", "Hash")); diff != "" {
				t.Errorf("the history of %s is another one than that of the first run, which was stored before it ran:\n%s", workflow, diff)
			}
		}
		if got := c.begun.Load() - begun; got != 2 {
			t.Errorf("%d of three runs of %q were stored with their first turn, expected the last two", got, name)
		}
	}
	if got := c.created.Load(); got != 7 {
		t.Errorf("%d starts were stored alone, expected the first of each program", got)
	}
}

// Many callers who start one workflow at the same moment start one run, also where its program is run ahead of the start for each.
func TestManyWhoRunAheadStartOneRun(t *testing.T) {
	t.Parallel()
	var acts sync.Map // by the id of the call, which is the same if it is repeated after its process had lost the run
	e, _, service := alone(t, func(_ context.Context, c activity.Call) (any, error) {
		acts.Store(c.ID, true)
		return nil, nil //nolint:nilnil // it answers nothing
	})
	start := execution.Start{
		Organization: 1, Workflow: "before",
		Program: program.Program{Source: []byte("run('checkpoint', {'state': {'n': 1}})\nrun('act', {})")},
	}
	if _, err := service.Start(t.Context(), start); err != nil {
		t.Fatal(err)
	}
	e.ended(start.Workflow)
	for round := range 5 {
		start.Workflow = fmt.Sprintf("once-%d", round)
		var created, begin sync.WaitGroup
		var firsts atomic.Int64
		var refs sync.Map
		begin.Add(1)
		for range 16 {
			created.Go(func() {
				begin.Wait()
				started, err := service.Start(t.Context(), start)
				if err != nil {
					t.Error(err)
				}
				if started.Created {
					firsts.Add(1)
				}
				refs.Store(started.Ref, true)
			})
		}
		begin.Done()
		created.Wait()
		run := e.ended(start.Workflow)
		refs.Delete(run.Ref)
		refs.Range(func(other, _ any) bool {
			t.Errorf("a caller received %v, the run is %s", other, run.Ref)
			return true
		})
		if firsts.Load() != 1 {
			t.Errorf("%d callers have started %s, expected one", firsts.Load(), start.Workflow)
		}
	}
	got := 0
	acts.Range(func(_, _ any) bool { got++; return true })
	if got != 6 {
		t.Errorf("the six runs have acted %d times", got)
	}
}

// What a start is refused for, it is refused for as well where its main file has done well with other modules.
func TestACircleOfLoadsIsNotRunAhead(t *testing.T) {
	t.Parallel()
	_, c, service := alone(t, func(context.Context, activity.Call) (any, error) { return nil, nil })
	start := func(workflow, module string) error {
		_, err := service.Start(t.Context(), execution.Start{Organization: 1, Workflow: workflow, Program: program.Program{
			Source: []byte("load('m.star', 'x')\nprint(x)"), Modules: map[string][]byte{"m.star": []byte(module)},
		}})
		return err
	}
	for deadline, i := clock.System().Now().Add(within), 0; c.begun.Load() == 0; i++ {
		if err := start(fmt.Sprintf("good-%d", i), "x = 1"); err != nil || clock.System().Now().After(deadline) {
			t.Fatalf("start %d, error %v: none was run ahead", i, err)
		}
	}
	if err := start("circular", "load('m.star', y = 'x')\nx = 1"); !fault.Is(err, fault.Invalid) {
		t.Errorf("found %v, expected a refusal", err)
	}
	if run, err := c.Get(t.Context(), 1, "circular"); !fault.Is(err, fault.NotFound) {
		t.Errorf("stored %v, error %v", run, err)
	}
}
