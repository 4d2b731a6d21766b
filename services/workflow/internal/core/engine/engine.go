package engine

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fair"
	"github.com/lockstep-cd/lockstep/pkg/id"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/agent"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/execution"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/program"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/wake"
)

// Settings are the engine's numbers. Every one has to be above zero.
type Settings struct {
	// Instance is the stable name of this process; a restarted process of the same name has its executions back at once.
	Instance string
	// Lease is how long the executions of a dead instance stay unclaimed.
	Lease time.Duration
	// Poll is how often to look for work for which no signal was received.
	Poll time.Duration
	// CallTimeout and WaitTimeout bound what programs give no timeout for (D12).
	CallTimeout, WaitTimeout time.Duration
	// Live is how many executions may run at a time; as many again may queue in memory. Activities is how many Functions
	// may run at a time.
	Live, Activities int
	// Cache is how many bytes parked executions may take that are kept in memory, so that they need no replay. 0 keeps
	// none.
	Cache int64
	// Generations is how many generations of one execution may begin within a minute without being held back; 0 for any number.
	Generations int
	// History is how many entries a generation of an execution may have.
	History int
	// Crashes is how many processes in a row may die while they own an execution, the last of them while it was tried alone, before it is
	// tried for the last time (quarantine.go); at least 2.
	Crashes int
	// Retention is how long events are kept for waits that come later.
	Retention time.Duration
}

// Deps are what an Engine works with.
type Deps struct {
	Store     Store
	Scripts   program.Scripts
	Functions *activity.Functions
	// Agents says which relays the runs of an organization may call.
	Agents agent.Owners
	// Guard decides about calls that change something; nil admits all of them.
	Guard CallGuard
	// Policies decides about calls before their first attempt; nil: none do.
	Policies CallPolicies
	// Limits bound what programs make; nil: nothing does.
	Limits Limits
	// CheckEmit says whether a program may emit the event; nil when it may. CodeUnreachable: that could not be found out now. The turn is
	// repeated then, because its program has done nothing wrong.
	CheckEmit func(history.Emit) *history.FunctionError
	// CheckReport says why a report of the engine's own cannot be stored; nil when it can.
	CheckReport func(history.Emit) error
	// Flows is called when there is work for flows of which they may not have been notified; nil: there are no flows.
	Flows func()
	// Offered is called when a turn has opened a call that a worker is to carry out; nil: there are no workers.
	Offered func(organization int64, function string)
	// Room keeps place for a call at a worker of this process, which saves the call the way by which any process finds it; nil, or a result
	// that is nil: there is none.
	Room func(organization int64, function string) *activity.Room
	// Observe is called for each attempt at an in-process Function, and end for its end, with the error's text, if any, without secrets;
	// nil: no observer. Replay attempts nothing.
	Observe func(ctx context.Context, call activity.Call) (inside context.Context, end func(problem string))
	Clock   clock.Clock
	// Random answers the programs' random(): at least 0 and below 1. nil: the system's randomness.
	Random   func() float64
	Log      *slog.Logger
	Settings Settings
}

// Engine claims executions, runs their turns and commits them. It is made of loops that are woken by signals; one loop looks
// every Poll whether there is work for any of them (lookout.go), so that a lost signal costs time and nothing else.
type Engine struct {
	Deps
	// lease is set by Run before the loops start, and only read afterwards.
	lease Lease
	// claims wakes the claim loop, timers the timer loop, calls the Dispatcher, which is a part of its own.
	claims wake.Signal
	timers *wake.Alarm
	calls  wake.Signal
	// activities bounds the Functions under way, the organizations in turns, and active waits for them at the end.
	activities *fair.Slots
	// deliveries bounds in the same way those of runs that only report to the outside what happens.
	deliveries *fair.Slots
	// shares bounds what calls of one organization use at a time (activity.Sharing).
	shares fair.Shares[holder]
	// queued counts the attempts that wait for a place, or for their share.
	queued atomic.Int64
	active sync.WaitGroup
	// scheduler says which executions are in this process, and where.
	places *scheduler
	// endings notifies callers that wait for an execution's end.
	endings endings
	// answers notifies those who wait for the answer to a call.
	answers answers
	// openings says of which programs the first turn is run before the start is stored.
	openings openings
	// orphans wakes the loop that cancels children whose parents have ended; children are the rates of organizations.
	orphans  wake.Signal
	children allowances
	// debts are what runs have made beyond rates, and restful wakes the loop that resumes runs which rest.
	debts debts
	// tries are the failed attempts of calls that are under way.
	tries   tries
	restful *wake.Alarm
	// heldAt is when hold was called last; the rest loop's alone, and Run's at the end.
	heldAt time.Time
	// suspect is the execution on probation; the claim loop's alone. began is when Run began.
	suspect suspect
	began   time.Time
	// troubles bounds what is logged of turns that do not finish.
	troubles troubles
	// setbacks are the executions that do not get anywhere, and how often.
	setbackLock sync.Mutex
	setbacks    setbacks
	// held counts the generations that were held back.
	held atomic.Int64
	// longHistories counts the warnings of measure.
	longHistories atomic.Int64
	// quarantined counts the executions that this process has set aside.
	quarantined atomic.Int64
}

// New makes an Engine; Run starts it.
func New(d Deps) *Engine {
	if d.Random == nil {
		d.Random = drawn
	}
	if d.Limits == nil {
		d.Limits = unlimited{}
	}
	e := &Engine{
		Deps:       d,
		claims:     wake.NewSignal(),
		timers:     wake.NewAlarm(),
		calls:      wake.NewSignal(),
		orphans:    wake.NewSignal(),
		activities: fair.NewSlots(d.Settings.Activities),
		deliveries: fair.NewSlots(d.Settings.deliveries()),
		places:     newScheduler(d.Settings.Live, d.Settings.Cache),
		restful:    wake.NewAlarm(),
	}
	e.places.wakes = e.restful.Raise
	return e
}

// Calls is raised when a turn has opened a call that a relay is to carry out, and when one is to be sent (again).
func (e *Engine) Calls() <-chan struct{} { return e.calls }

// Run runs executions until ctx ends or the instance's name is taken by another process. ready is called once the
// name is ours. A name that is taken is the error ErrFenced: no commit can succeed from then on.
func (e *Engine) Run(ctx context.Context, ready func()) error {
	epoch, err := e.Store.Acquire(ctx, e.Settings.Instance, e.Clock.Now(), e.Settings.Lease)
	if err != nil {
		return err
	}
	e.lease = Lease{Instance: e.Settings.Instance, Epoch: epoch}
	e.began = e.Clock.Now()
	if err := e.Store.Exonerate(ctx, e.lease, e.suspicious(), e.began); err != nil {
		return err
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var loops, runs sync.WaitGroup
	e.places.open(e.lease, func(j job, woken wake.Signal) { runs.Go(func() { e.driveOne(ctx, j, woken) }) })
	loops.Go(func() { stop(e.lookoutLoop(ctx)) })
	loops.Go(func() { e.claimLoop(ctx) })
	loops.Go(func() { e.timerLoop(ctx) })
	loops.Go(func() { e.forgetLoop(ctx) })
	loops.Go(func() { e.orphanLoop(ctx) })
	loops.Go(func() { e.restLoop(ctx) })
	ready()
	<-ctx.Done()
	// In this order: no run starts once the places are shut, and runs start Functions. A group must not grow from
	// zero while it is waited for.
	loops.Wait()
	holdings := e.holdings(e.Clock.Now(), true)
	e.places.shut()
	if !errors.Is(context.Cause(ctx), ErrFenced) {
		holding, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseWithin)
		e.keep(holding, holdings)
		cancel()
	}
	runs.Wait()
	e.active.Wait()
	if errors.Is(context.Cause(ctx), ErrFenced) {
		return context.Cause(ctx)
	}
	e.release(ctx)
	return nil
}

// Reserve keeps a place for an execution of an organization that is about to be stored.
func (e *Engine) Reserve(organization int64) (Lease, bool) { return e.places.reserve(organization) }

// Begin runs an execution that was stored for this process. What it needs comes from the caller, so nothing is loaded.
func (e *Engine) Begin(l Loaded) {
	e.endings.begin(l.Execution)
	if !e.places.begin(l, nil) {
		e.endings.leave(l.Execution)
	}
}

// Release gives back what Reserve kept.
func (e *Engine) Release(organization int64) { e.places.release(organization) }

// Wake makes the engine look at an execution that has changed: at once if it is in this process's hands, and through
// the claim loop if it is in nobody's.
func (e *Engine) Wake(w Woken) {
	if !e.places.wake(w) {
		e.claims.Raise()
	}
}

// Runs reports whether an execution runs in this process since it was started.
func (e *Engine) Runs(organization int64, workflow string) bool {
	return e.endings.runs(organization, workflow)
}

// Recall answers an execution that has completed in this process lately, if the store has nothing more about it: it has reported no
// status, was never retried, and has had one program.
func (e *Engine) Recall(organization int64, workflow string) (execution.Execution, bool) {
	return e.endings.recall(organization, workflow, e.Clock.Now())
}

// Watch answers a channel that gets the execution when it ends here.
func (e *Engine) Watch(organization int64, workflow string) (ended <-chan execution.Execution, forget func()) {
	return e.endings.watch(organization, workflow)
}

// driveOne drives an execution and then frees its place. After trouble the execution is still ours and running in the
// store: no longer here, it is claimed again. Its place is kept during a pause, or that would happen in a tight loop.
func (e *Engine) driveOne(ctx context.Context, j job, woken wake.Signal) {
	parked, err := e.drive(ctx, j, woken)
	if j.started != nil {
		e.endings.leave(j.started.Execution)
	}
	if parked {
		e.count(j.id, false)
		return // its place is free already, and perhaps another run of it at work
	}
	e.setback(ctx, j, err)
	e.places.leave(j.id)
	if err != nil {
		e.claims.Raise()
	}
}

// report logs a loop's error; the loop continues.
func (e *Engine) report(ctx context.Context, what string, err error) {
	if err != nil && ctx.Err() == nil {
		e.Log.WarnContext(ctx, "engine loop failed; will retry", "what", what, "error", err)
	}
}

// newRef makes identifiers for executions and programs.
func (e *Engine) newRef() string { return id.New(e.Clock.Now()) }
