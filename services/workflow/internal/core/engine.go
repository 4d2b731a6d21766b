package core

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
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
	// Poll is how often to look for work without having been woken.
	Poll time.Duration
	// CallTimeout and WaitTimeout bound what programs give no timeout for (D12).
	CallTimeout, WaitTimeout time.Duration
	// Live is how many executions may be in memory, Activities how many Functions may run at a time.
	Live, Activities int
	// History is how many entries an execution may have.
	History int
	// Retention is how long events are kept for waits that come later.
	Retention time.Duration
	// Agents are the relays that calls may be sent to.
	Agents map[int64]bool
}

// EngineDeps are what an Engine works with.
type EngineDeps struct {
	Store     Store
	Scripts   Scripts
	Functions *Functions
	// CheckEmit says whether a program may emit the event; nil when it may.
	CheckEmit func(Emit) *FunctionError
	Clock     clock.Clock
	Log       *slog.Logger
	Settings  Settings
}

// Engine claims executions, runs their turns and commits them. It is made of loops that are woken by signals and look
// by themselves every Poll, so that a lost signal costs time and nothing else.
type Engine struct {
	EngineDeps
	// lease is set by Run before the loops start, and only read afterwards.
	lease Lease
	// claims wakes the claim loop, timers the timer loop, calls the Dispatcher, which is a part of its own.
	claims signal
	timers signal
	calls  signal
	// activities bounds the Functions under way, and active waits for them at the end.
	activities chan struct{}
	active     sync.WaitGroup

	// mu guards live: the executions that have a driver, with the signal that wakes it.
	mu   sync.Mutex
	live map[int64]signal
}

// NewEngine makes an Engine; Run starts it.
func NewEngine(d EngineDeps) *Engine {
	return &Engine{
		EngineDeps: d,
		claims:     newSignal(),
		timers:     newSignal(),
		calls:      newSignal(),
		activities: make(chan struct{}, d.Settings.Activities),
		live:       map[int64]signal{},
	}
}

// Wake makes the engine look for work now: something was stored by somebody else. It wakes every live execution: an
// empty look costs a query, and callers need not know whom their change concerns.
func (e *Engine) Wake() {
	e.claims.raise()
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, s := range e.live {
		s.raise()
	}
}

// Calls is raised when a turn has opened a call that a relay is to carry out.
func (e *Engine) Calls() <-chan struct{} { return e.calls }

// Run runs executions until ctx ends or the instance's name is taken by another process. ready is called once the
// name is ours. A name that is taken is the error ErrFenced: nothing could be committed any more.
func (e *Engine) Run(ctx context.Context, ready func()) error {
	epoch, err := e.Store.Acquire(ctx, e.Settings.Instance, e.Clock.Now(), e.Settings.Lease)
	if err != nil {
		return err
	}
	e.lease = Lease{Instance: e.Settings.Instance, Epoch: epoch}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var loops, drivers sync.WaitGroup
	loops.Go(func() { stop(e.renewLoop(ctx)) })
	loops.Go(func() { e.claimLoop(ctx, &drivers) })
	loops.Go(func() { e.timerLoop(ctx) })
	loops.Go(func() { e.sweepLoop(ctx) })
	ready()
	<-ctx.Done()
	// In this order: the claim loop starts drivers, and drivers start Functions. A group must not grow from zero while
	// it is waited for.
	loops.Wait()
	drivers.Wait()
	e.active.Wait()
	if errors.Is(context.Cause(ctx), ErrFenced) {
		return context.Cause(ctx)
	}
	return nil
}

// renewLoop keeps the lease alive. Trouble with the database is waited out: the lease only saves work, the commits are
// fenced by themselves.
func (e *Engine) renewLoop(ctx context.Context) error {
	for {
		// At a third of the lease one renewal may fail, and the next is still in time.
		if err := clock.Sleep(ctx, e.Clock, e.Settings.Lease/3); err != nil {
			return nil //nolint:nilerr // the end of the context is the regular end
		}
		err := e.Store.Renew(ctx, e.lease, e.Clock.Now().Add(e.Settings.Lease))
		if errors.Is(err, ErrFenced) {
			e.Log.ErrorContext(ctx, "another process took this instance's name", "instance", e.lease.Instance)
			return err
		}
		e.report(ctx, "renew lease", err)
	}
}

// claimLoop takes executions that can go on and drives each in a goroutine of its own.
func (e *Engine) claimLoop(ctx context.Context, drivers *sync.WaitGroup) {
	for ctx.Err() == nil {
		ids := e.claim(ctx)
		for _, execution := range ids {
			// It is live before its driver runs: Claim leaves out what is live, and would otherwise hand it out twice.
			woken := newSignal()
			e.mu.Lock()
			e.live[execution] = woken
			e.mu.Unlock()
			drivers.Go(func() { e.driveOne(ctx, execution, woken) })
		}
		if len(ids) == 0 {
			e.claims.wait(ctx, e.Clock, e.Settings.Poll)
		}
	}
}

// claim takes as many executions as there are free places. A driver that ends raises claims, so a place does not stay
// free until the next Poll.
func (e *Engine) claim(ctx context.Context) []int64 {
	e.mu.Lock()
	live := make([]int64, 0, len(e.live))
	for execution := range e.live {
		live = append(live, execution)
	}
	e.mu.Unlock()
	free := e.Settings.Live - len(live)
	if free <= 0 {
		return nil
	}
	ids, err := e.Store.Claim(ctx, e.lease, e.Clock.Now(), live, free)
	e.report(ctx, "claim executions", err)
	return ids
}

// pauseAfterTrouble keeps an execution whose turn met trouble from being tried in a tight loop.
const pauseAfterTrouble = time.Second

// driveOne drives an execution and then frees its place. After trouble the execution is still ours and running in the
// store: no longer live, it is claimed again. Its place is kept during the pause, or that would happen at once.
func (e *Engine) driveOne(ctx context.Context, execution int64, woken signal) {
	err := e.drive(ctx, execution, woken)
	if err != nil && ctx.Err() == nil && !errors.Is(err, ErrFenced) {
		e.Log.ErrorContext(ctx, "turn did not finish", "execution", execution, "error", err)
		_ = clock.Sleep(ctx, e.Clock, pauseAfterTrouble) // only ends early when everything does
	}
	e.mu.Lock()
	delete(e.live, execution)
	e.mu.Unlock()
	e.claims.raise()
}

// timerBatch bounds how many executions one firing locks and wakes.
const timerBatch = 500

// timerLoop fires timers when they are due.
func (e *Engine) timerLoop(ctx context.Context) {
	for ctx.Err() == nil {
		now := e.Clock.Now()
		fired, next, err := e.Store.FireTimers(ctx, now, timerBatch)
		e.report(ctx, "fire timers", err)
		if fired > 0 {
			e.Wake()
		}
		if fired == timerBatch {
			continue
		}
		wait := e.Settings.Poll
		if !next.IsZero() {
			// The next timer may have become due since now was read; the floor keeps the loop from spinning.
			wait = max(min(wait, next.Sub(now)), time.Millisecond)
		}
		e.timers.wait(ctx, e.Clock, wait)
	}
}

const (
	// sweepEvery is the longest that a match which a crash interrupted goes unnoticed, beside sweepAge.
	sweepEvery = 5 * time.Second
	// sweepAge is how long a matching may be under way before it counts as interrupted.
	sweepAge = 5 * time.Second
	// forgetEvery makes it once after each start and then once an hour.
	forgetEvery = 720 // sweeps
)

// sweepLoop repeats what a crash interrupted, and forgets old events.
func (e *Engine) sweepLoop(ctx context.Context) {
	for n := 0; ctx.Err() == nil; n++ {
		now := e.Clock.Now()
		e.report(ctx, "match interrupted events and waits", e.Store.Sweep(ctx, now.Add(-sweepAge)))
		if n%forgetEvery == 0 {
			e.report(ctx, "forget old events", e.Store.Forget(ctx, now.Add(-e.Settings.Retention)))
		}
		_ = clock.Sleep(ctx, e.Clock, sweepEvery) // ends early with ctx
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

// signal is a wake-up that is not lost between two waits, and does not pile up.
type signal chan struct{}

func newSignal() signal { return make(signal, 1) }

// raise never blocks. A signal that is raised already stands for this one too, since whoever waits looks at
// everything.
func (s signal) raise() {
	select {
	case s <- struct{}{}:
	default:
	}
}

// wait returns when the signal is raised, after d, or with ctx.
func (s signal) wait(ctx context.Context, c clock.Clock, d time.Duration) {
	t := c.NewTimer(d)
	defer t.Stop()
	select {
	case <-s:
	case <-t.C():
	case <-ctx.Done():
	}
}
