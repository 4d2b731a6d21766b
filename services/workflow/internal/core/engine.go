package core

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
)

// ErrFenced says that the execution, or the instance's name, belongs to somebody else now, or that the execution has
// ended. Nothing was written; what is in memory is worthless.
var ErrFenced = errors.New("somebody else owns this now")

// Settings are the engine's numbers. Every one has to be above zero.
type Settings struct {
	// Instance is the stable name of this process; a restarted process of the same name has its executions back at once.
	Instance string
	// Lease is how long the executions of a dead instance stay unclaimed.
	Lease time.Duration
	// Poll is how often to look for work that nobody was told of.
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
	// Crashes is how many processes in a row may die with an execution in hand, the last of them while it was tried alone, before it is tried for the
	// last time (quarantine.go); at least 2.
	Crashes int
	// Retention is how long events are kept for waits that come later.
	Retention time.Duration
}

// EngineDeps are what an Engine works with.
type EngineDeps struct {
	Store     Store
	Scripts   Scripts
	Functions *Functions
	// Agents says which relays the runs of an organization may call.
	Agents AgentOwners
	// CheckEmit says whether a program may emit the event; nil when it may.
	CheckEmit func(Emit) *FunctionError
	// Flows is called when there is work for Flows that they may not have been told of; nil: there are none.
	Flows func()
	// Observe is told of each attempt at an in-process Function, and of its end, with what went wrong, if anything
	// did, without secrets; nil for nobody. Replay attempts nothing.
	Observe func(ctx context.Context, call Call) (inside context.Context, end func(problem string))
	Clock   clock.Clock
	// Random answers the programs' random(): at least 0 and below 1. nil: the system's randomness.
	Random   func() float64
	Log      *slog.Logger
	Settings Settings
}

// Engine claims executions, runs their turns and commits them. It is made of loops that are woken by signals; one loop looks
// every Poll whether there is work for any of them (lookout.go), so that a lost signal costs time and nothing else.
type Engine struct {
	EngineDeps
	// lease is set by Run before the loops start, and only read afterwards.
	lease Lease
	// claims wakes the claim loop, timers the timer loop, calls the Dispatcher, which is a part of its own.
	claims signal
	timers *alarm
	calls  signal
	// activities bounds the Functions under way, the organizations in turns, and active waits for them at the end.
	activities *fair.Slots
	active     sync.WaitGroup
	// places says which executions are in this process, and where.
	places *places
	// endings tells who waits for an execution's end.
	endings endings
	// openings says of which programs the first turn is run before the start is stored.
	openings openings
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

var _ Runner = (*Engine)(nil)

// NewEngine makes an Engine; Run starts it.
func NewEngine(d EngineDeps) *Engine {
	if d.Random == nil {
		d.Random = drawn
	}
	return &Engine{
		EngineDeps: d,
		claims:     newSignal(),
		timers:     newAlarm(),
		calls:      newSignal(),
		activities: fair.NewSlots(d.Settings.Activities),
		places:     newPlaces(d.Settings.Live, d.Settings.Cache),
	}
}

// Calls is raised when a turn has opened a call that a relay is to carry out, and when one is to be sent (again).
func (e *Engine) Calls() <-chan struct{} { return e.calls }

// Run runs executions until ctx ends or the instance's name is taken by another process. ready is called once the
// name is ours. A name that is taken is the error ErrFenced: nothing could be committed any more.
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
	var loops, drivers sync.WaitGroup
	e.places.open(e.lease, func(j job, woken signal) { drivers.Go(func() { e.driveOne(ctx, j, woken) }) })
	loops.Go(func() { stop(e.lookoutLoop(ctx)) })
	loops.Go(func() { e.claimLoop(ctx) })
	loops.Go(func() { e.timerLoop(ctx) })
	loops.Go(func() { e.forgetLoop(ctx) })
	ready()
	<-ctx.Done()
	// In this order: no driver starts once the places are shut, and drivers start Functions. A group must not grow from
	// zero while it is waited for.
	e.places.shut()
	loops.Wait()
	drivers.Wait()
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
		e.claims.raise()
	}
}

// Runs reports whether an execution runs in this process since it was started.
func (e *Engine) Runs(organization int64, workflow string) bool {
	return e.endings.runs(organization, workflow)
}

// Recall answers an execution that has completed in this process lately.
func (e *Engine) Recall(organization int64, workflow string) (Execution, bool) {
	return e.endings.recall(organization, workflow)
}

// Watch answers a channel that gets the execution when it ends here.
func (e *Engine) Watch(organization int64, workflow string) (ended <-chan Execution, forget func()) {
	return e.endings.watch(organization, workflow)
}

// claimLoop takes executions that can go on and that nobody has: those of dead processes, those that found no place
// when they were stored, and those whose signal was lost. What it costs grows with them alone, never with what is
// parked.
func (e *Engine) claimLoop(ctx context.Context) {
	for ctx.Err() == nil {
		if e.claim(ctx) > 0 {
			continue
		}
		wait := untilTold
		if e.suspect.execution != 0 {
			wait = e.Settings.Poll // its probation ends by itself
		}
		e.claims.wait(ctx, e.Clock, wait)
	}
}

// claim takes as many executions as there are free places, and answers how many it took.
func (e *Engine) claim(ctx context.Context) int {
	here, free := e.places.here()
	if free <= 0 {
		e.places.tellWhenFree(e.claims.raise)
		return 0
	}
	c := Claim{Lease: e.lease, Now: e.Clock.Now(), Here: here, Limit: free, Suspicious: e.suspicious()}
	found, err := e.Store.Claim(ctx, c)
	e.report(ctx, "claim executions", err)
	for _, w := range found {
		e.places.wake(w.Woken)
	}
	if err != nil {
		return 0
	}
	return len(found) + e.claimSuspect(ctx, c)
}

// driveOne drives an execution and then frees its place. After trouble the execution is still ours and running in the
// store: no longer here, it is claimed again. Its place is kept during a pause, or that would happen in a tight loop.
func (e *Engine) driveOne(ctx context.Context, j job, woken signal) {
	parked, rests, err := e.drive(ctx, j, woken)
	if j.started != nil {
		e.endings.leave(j.started.Execution)
	}
	if parked {
		e.count(j.id, false)
		return // its place is free already, and perhaps another driver of it at work
	}
	if err == nil && rests != nil {
		e.rest(ctx, j.id, rests.Organization, rests.HeldUntil)
		return
	}
	e.setback(ctx, j, err)
	e.places.leave(j.id)
	if err != nil {
		e.claims.raise()
	}
}

// timerBatch bounds how many executions one firing locks and wakes.
const timerBatch = 500

// timerLoop fires timers when they are due. Of timers that others open, and of trouble, the lookout tells it again.
func (e *Engine) timerLoop(ctx context.Context) {
	for ctx.Err() == nil {
		now := e.Clock.Now()
		fired, next, err := e.Store.FireTimers(ctx, now, timerBatch)
		e.report(ctx, "fire timers", err)
		if fired == timerBatch {
			continue
		}
		until := now.Add(untilTold)
		if !next.IsZero() && next.Before(until) {
			// The next timer may have become due since now was read; the floor keeps the loop from spinning.
			until = later(next, now.Add(time.Millisecond))
		}
		e.timers.sleep(ctx, e.Clock, now, until)
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// forgetEvery is how often old events are forgotten.
const forgetEvery = time.Hour

// forgetLoop forgets events that are older than any wait may look for.
func (e *Engine) forgetLoop(ctx context.Context) {
	for ctx.Err() == nil {
		e.report(ctx, "forget old events", e.Store.Forget(ctx, e.Clock.Now().Add(-e.Settings.Retention)))
		_ = clock.Sleep(ctx, e.Clock, forgetEvery) // ends early with ctx
	}
}

// report logs a loop's trouble; the loop goes on.
func (e *Engine) report(ctx context.Context, what string, err error) {
	if err != nil && ctx.Err() == nil {
		e.Log.WarnContext(ctx, "engine loop met trouble", "what", what, "error", err)
	}
}

// newRef makes identifiers for executions and programs.
func (e *Engine) newRef() string { return id.New(e.Clock.Now()) }
