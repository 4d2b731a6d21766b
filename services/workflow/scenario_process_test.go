package workflow_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/outbox"
	"github.com/lockstep-cd/lockstep/pkg/schema"
	"github.com/lockstep-cd/lockstep/pkg/testkit/bustest"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/agent"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/control"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/engine"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/eventtype"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/events"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/script"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/store"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/store/eventtypes"
)

// The processes of a scenario: each is a life of the service, without bus and API, and may crash at a commit.

// crash is the end of a process: before commit number at, or right after it; 0 for none.
type crash struct {
	at      int
	applied bool
}

var errCrashed = errors.New("the process is gone")

// crashing is a store whose process dies once.
type crashing struct {
	Store
	crash
	mu      sync.Mutex
	commits int
	dead    bool
	die     context.CancelFunc
}

func (c *crashing) Commit(ctx context.Context, commit engine.Commit) (engine.Committed, error) {
	c.mu.Lock()
	if c.dead {
		c.mu.Unlock()
		return engine.Committed{}, errCrashed
	}
	c.commits++
	dies := c.commits == c.at
	if dies {
		c.dead = true
	}
	c.mu.Unlock()
	if dies {
		defer c.die()
		if !c.applied {
			return engine.Committed{}, errCrashed
		}
	}
	done, err := c.Store.Commit(context.WithoutCancel(ctx), commit)
	if dies {
		return engine.Committed{}, errCrashed
	}
	return done, err
}

// steady is a store for the dispatcher: a crash between the count of an attempt and its sending is made up for by the
// next attempt, which in the scenario's time never comes.
type steady struct{ Store }

func (s steady) NextCalls(ctx context.Context, now time.Time, limit int) ([]agent.OutgoingCall, error) {
	return s.Store.NextCalls(context.WithoutCancel(ctx), now, limit)
}

// process is one life of the service: everything but the bus and the API.
type process struct {
	store   *crashing
	service *control.Service
	gone    <-chan struct{}
	stop    func()
	// setTime sets the present time.
	setTime func(time.Time)
	// quit ends a process of its own and shows its stacks; nil for one within the test.
	quit func()
}

func (w *world) boot(c crash) process {
	w.lowered = w.lowered || c.applied
	ctx, cancel := context.WithCancel(w.t.Context())
	var functions []activity.Function
	for _, name := range w.answered {
		if !onCluster(name) {
			functions = append(functions, function{name, w})
		}
	}
	a, err := assemble(assembly{
		organization: w.organization, pool: w.pool, wall: shown{w.clock}, log: bustest.Log(w.t), functions: functions, crash: c, die: cancel,
		sender: func(s *control.Service) agent.CallSender { return relay{w, s} },
	})
	if err != nil {
		w.t.Fatal(err)
	}
	var parts sync.WaitGroup
	parts.Go(func() {
		if err := a.run(ctx); err != nil && ctx.Err() == nil {
			w.t.Error(err)
		}
	})
	return process{store: a.store, service: a.service, gone: ctx.Done(), stop: func() { cancel(); parts.Wait() }, setTime: func(time.Time) {}}
}

// assembly is what a life of the service is made of, and assembled the outcome.
type assembly struct {
	// organization has the agent 7.
	organization int64
	pool         *pgxpool.Pool
	wall         clock.Clock
	log          *slog.Logger
	functions    []activity.Function
	sender       func(*control.Service) agent.CallSender
	crash        crash
	die          func()
	// calls is the store of the dispatcher; nil for one that a crash does not interrupt.
	calls func(Store) Store
}

type assembled struct {
	store   *crashing
	service *control.Service
	// run drives executions and sends calls until ctx ends.
	run func(ctx context.Context) error
}

// declared is what the domain service has said of agents: of the one that the scenarios call, and of another organization's.
type declared struct {
	agent.RegistryStore

	organization int64
}

func (d declared) Agents(context.Context) ([]agent.Agent, error) {
	return []agent.Agent{{ID: 7, Organization: d.organization}, {ID: 8, Organization: d.organization + 1}}, nil
}

// declaredTypes are the types of events that organizations have declared, as the service has them.
func declaredTypes(pool *pgxpool.Pool, wall clock.Clock, log *slog.Logger) *eventtype.Types {
	return eventtype.New(eventtype.Deps{
		Store: eventtypes.New(pool), Reserved: event.Prefix, Clock: wall, Log: log,
		Compile: func(text []byte) (eventtype.Validate, error) {
			compiled, err := schema.Compile(text)
			if err != nil {
				return nil, err
			}
			return compiled.Validate, nil
		},
	})
}

func assemble(a assembly) (assembled, error) {
	var runner *engine.Engine
	large := 0
	if a.crash.applied { // half of the crashes meet values that are stored by digest (issue 18, point 8)
		large = 100
	}
	kept := store.New(store.Deps{
		Large: large,
		Pool:  a.pool, Encode: events.Encode, Add: outbox.AddNumbered, AddNew: outbox.AddNew, Committed: func() {},
		Woken: func(woken engine.Woken) { runner.Wake(woken) }, Clock: a.wall, Log: a.log,
	})
	crashing := &crashing{Store: kept, crash: a.crash, die: a.die}
	scripts := script.New(script.Limits{})
	all := append([]activity.Function{activity.OnCluster("k8s.get"), activity.OnCluster("argo.sync"), activity.OnCluster("argo.promote")},
		a.functions...)
	registry, err := activity.NewFunctions(all...)
	if err != nil {
		return assembled{}, err
	}
	runner = engine.New(engine.Deps{
		Store: crashing, Scripts: scripts, Functions: registry, Agents: agent.NewRegistry(declared{organization: a.organization}, a.wall, a.log),
		CheckEmit: events.CheckEmitOf(context.Background(), declaredTypes(a.pool, a.wall, a.log)), Clock: a.wall, Log: a.log,
		Settings: engine.Settings{
			Instance: "scenario", Lease: time.Hour, Poll: 20 * time.Millisecond, CallTimeout: time.Minute, WaitTimeout: 24 * time.Hour,
			Live: 10, Cache: 1 << 20, Activities: 10, History: 1000, Crashes: 3, Retention: 24 * time.Hour,
		},
	})
	service := control.NewService(kept, scripts, a.wall, runner)
	if a.calls == nil {
		a.calls = func(s Store) Store { return steady{s} }
	}
	dispatcher := agent.Dispatcher{
		Store: a.calls(kept), Sender: a.sender(service), Clock: a.wall, Log: a.log, Woken: runner.Calls(),
	}
	return assembled{store: crashing, service: service, run: func(ctx context.Context) error {
		var parts sync.WaitGroup
		defer parts.Wait()
		parts.Go(func() { _ = dispatcher.Run(ctx) })
		return runner.Run(ctx, func() {})
	}}, nil
}
