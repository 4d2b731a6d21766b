package simulation

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/agent"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/control"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/engine"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/execution"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
)

// verdict is what happens to a call that waits at the gate.
type verdict int

const (
	// apply lets it through.
	apply verdict = iota
	// refuse has the connection break before it.
	refuse
	// hide lets it through and has the connection break before its answer.
	hide
	// die is the end of its process, before it; dieAfter after it.
	die
	dieAfter
)

var (
	errBroken = fault.New(fault.Unavailable, "the connection broke")
	errDead   = fault.New(fault.Unavailable, "the process is dead")
)

// visitor is a call that waits for its verdict.
type visitor struct {
	process *process
	what    string
	verdict chan verdict
}

// gate is where every call of every process waits for the scheduler.
type gate struct {
	mu      sync.Mutex
	waiting []*visitor
}

// pass waits for the verdict on a call. What is the same in two runs of a seed is its name, so visitors are in the order of
// names whatever the speed of their goroutines was.
func (g *gate) pass(ctx context.Context, p *process, what string) (verdict, error) {
	g.mu.Lock()
	if p.dead {
		g.mu.Unlock()
		return die, errDead
	}
	v := &visitor{process: p, what: what, verdict: make(chan verdict, 1)}
	g.waiting = append(g.waiting, v)
	g.mu.Unlock()
	select {
	case given := <-v.verdict:
		return given, nil
	case <-ctx.Done():
		g.leave(v)
		return refuse, ctx.Err()
	}
}

func (g *gate) leave(v *visitor) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.waiting = slices.DeleteFunc(g.waiting, func(w *visitor) bool { return w == v })
}

// visitors are the calls that may be let through now, in order.
func (g *gate) visitors() []*visitor {
	g.mu.Lock()
	defer g.mu.Unlock()
	var all []*visitor
	for _, v := range g.waiting {
		if !v.process.stalled {
			all = append(all, v)
		}
	}
	slices.SortStableFunc(all, func(a, b *visitor) int {
		return cmp.Or(cmp.Compare(a.process.name, b.process.name), cmp.Compare(a.process.life, b.process.life), cmp.Compare(a.what, b.what))
	})
	return all
}

func (g *gate) let(v *visitor, given verdict) {
	g.leave(v)
	v.verdict <- given
}

// kill ends a process: nothing that it does from now on has an effect.
func (g *gate) kill(p *process) {
	g.mu.Lock()
	defer g.mu.Unlock()
	p.dead = true
	for _, v := range g.waiting {
		if v.process == p {
			v.verdict <- die
		}
	}
	g.waiting = slices.DeleteFunc(g.waiting, func(v *visitor) bool { return v.process == p })
}

// port is a process's connection to the store.
type port struct {
	gate    *gate
	process *process
	memory  *Memory
	// lease is set by Acquire: what the process wakes becomes its own.
	lease *engine.Lease
	woken func(engine.Woken)
}

var (
	_ engine.Store    = (*port)(nil)
	_ control.Store   = (*port)(nil)
	_ agent.CallStore = (*port)(nil)
)

// through takes a call through the gate. Besides its result, do returns the executions to wake, which a process learns only when its
// call has succeeded.
func through[T any](ctx context.Context, p *port, what string, do func() (T, []engine.Woken, error)) (answer T, err error) {
	var none T
	// A transaction that has begun continues when its caller gives up, as it does in internal/store.
	given, err := p.gate.pass(context.WithoutCancel(ctx), p.process, what)
	switch {
	case err != nil:
		return none, err
	case given == refuse:
		return none, errBroken
	case given == die:
		return none, errDead
	}
	p.memory.mu.Lock()
	answer, woken, err := do()
	p.memory.mu.Unlock()
	switch {
	case given == hide:
		return none, errBroken
	case given == dieAfter:
		return none, errDead
	case err != nil:
		return none, err
	}
	for _, w := range woken {
		p.woken(w)
	}
	return answer, nil
}

// read is through for calls that wake no execution.
func read[T any](ctx context.Context, p *port, what string, do func() (T, error)) (T, error) {
	return through(ctx, p, what, func() (T, []engine.Woken, error) {
		answer, err := do()
		return answer, nil, err
	})
}

// Create implements control.Store: it stores an execution without running its first turn.
func (p *port) Create(ctx context.Context, n engine.NewExecution) (engine.Created, error) {
	return read(ctx, p, "create "+n.Workflow, func() (engine.Created, error) { return p.memory.create(n), nil })
}

// begun is the result of Begin.
type begun struct {
	id  int64
	yes bool
}

// Begin implements engine.Store: it stores an execution together with its first turn.
func (p *port) Begin(ctx context.Context, n engine.NewExecution, first engine.Commit) (int64, bool, error) {
	b, err := through(ctx, p, "begin "+n.Workflow, func() (b begun, woken []engine.Woken, err error) {
		b.id, b.yes, woken, err = p.memory.begin(n, first, p.lease)
		return b, woken, err
	})
	return b.id, b.yes, err
}

// HasMessage implements control.Store. No start of a simulation is refused, so it is not called.
func (*port) HasMessage(context.Context, history.Message) (bool, error) { return false, nil }

// FindStart implements control.Store. No start of a simulation is refused, so it is not called.
func (*port) FindStart(_ context.Context, _ int64, workflow string) (engine.Created, error) {
	return engine.Created{}, fault.New(fault.NotFound, "there is no workflow %q", workflow)
}

// Get implements control.Store.
func (p *port) Get(ctx context.Context, organization int64, workflow string) (execution.Execution, error) {
	return read(ctx, p, "get "+p.memory.plain(workflow), func() (execution.Execution, error) {
		if e := p.memory.find(organization, workflow); e != nil {
			return e.Execution, nil
		}
		return execution.Execution{}, fault.New(fault.NotFound, "there is no workflow %q", workflow)
	})
}

// Waiting implements control.Store. It is for the API, which a simulation does not have: it returns nothing.
func (p *port) Waiting(context.Context, int64) ([]control.Waiting, error) { return nil, nil }

// History implements control.Store; like Waiting it returns nothing.
func (p *port) History(context.Context, int64, int64, int) ([]history.Entry, error) { return nil, nil }

// Cancel implements control.Store: it ends an execution on request, and wakes its owner so that it stops.
func (p *port) Cancel(ctx context.Context, organization int64, workflow, reason string, at time.Time) (bool, error) {
	return through(ctx, p, "cancel "+p.memory.plain(workflow), func() (bool, []engine.Woken, error) {
		if sent, woken := p.memory.sendCancellation(organization, workflow, reason, p.lease); sent {
			return false, woken, nil
		}
		ended, id, woken, err := p.memory.cancel(organization, workflow, reason, at, p.lease)
		if !ended {
			return false, nil, err
		}
		return true, append(woken, engine.Woken{ID: id}), nil
	})
}

// Quarantine implements engine.Store: it ends an execution that kills the processes that run it.
func (p *port) Quarantine(ctx context.Context, organization int64, workflow, reason string, at time.Time) (bool, error) {
	return p.end(ctx, "quarantine "+p.memory.plain(workflow), organization, workflow, execution.Quarantined, history.KindQuarantined, reason, at)
}

func (p *port) end(
	ctx context.Context, what string, organization int64, workflow string, as execution.State, kind history.Kind, reason string, at time.Time,
) (bool, error) {
	return through(ctx, p, what, func() (bool, []engine.Woken, error) {
		ended, id, err := p.memory.end(organization, workflow, as, kind, reason, at)
		if !ended {
			return false, nil, err
		}
		return true, append(p.memory.match(p.memory.ended, nil, p.lease), engine.Woken{ID: id}), nil
	})
}

// outcome is the result of Receive and of Send.
type outcome struct {
	matched   int
	duplicate bool
}

// Receive implements control.Store: it stores an event and delivers it to the waits that match it.
func (p *port) Receive(ctx context.Context, e history.Event) (matched int, duplicate bool, err error) {
	o, err := through(ctx, p, "receive "+e.ID, func() (o outcome, woken []engine.Woken, _ error) {
		o.matched, o.duplicate, woken = p.memory.receive(e, p.lease)
		return o, woken, nil
	})
	return o.matched, o.duplicate, err
}

// Send implements control.Store: it stores a message and delivers it to the run that owns the channel.
func (p *port) Send(ctx context.Context, m history.Message) (matched int, duplicate bool, err error) {
	o, err := through(ctx, p, "send "+m.ID, func() (o outcome, woken []engine.Woken, err error) {
		o.matched, o.duplicate, woken, err = p.memory.send(m, p.lease)
		return o, woken, err
	})
	return o.matched, o.duplicate, err
}

// AnswerTo implements control.Store: it finds the answer to a call among the messages.
func (p *port) AnswerTo(ctx context.Context, m history.Message) (answer *history.Answer, open bool, err error) {
	type found struct {
		answer *history.Answer
		open   bool
	}
	f, err := read(ctx, p, "answer to "+m.ID, func() (f found, err error) {
		f.open = p.memory.isOpen(m.Token)
		for _, e := range p.memory.events {
			if e.Source == history.AnswerSource(m.Token) && e.ID == m.ID {
				return f, json.Unmarshal(e.Data, &f.answer)
			}
		}
		return f, nil
	})
	return f.answer, f.open, err
}

// Answer implements agent.CallStore: it delivers a relay's answer, or schedules the call's next attempt.
func (p *port) Answer(ctx context.Context, a agent.Answer, retryAt time.Time) error {
	_, err := through(ctx, p, "answer "+p.process.world.plain(a.Call), func() (struct{}, []engine.Woken, error) {
		woken, err := p.memory.answer(a, retryAt, p.process.Now(), p.lease)
		return struct{}{}, woken, err
	})
	return err
}

// NextCalls implements agent.CallStore: it returns calls to send now, and schedules when to send each again.
func (p *port) NextCalls(ctx context.Context, now time.Time, limit int) ([]agent.OutgoingCall, error) {
	return read(ctx, p, "next calls", func() ([]agent.OutgoingCall, error) { return p.memory.nextCalls(now, limit), nil })
}

// Acquire implements engine.Store: it gives the process the lease of its instance name under a new epoch.
func (p *port) Acquire(ctx context.Context, instance string, now time.Time, length time.Duration) (int64, error) {
	return read(ctx, p, "acquire", func() (int64, error) {
		epoch := p.memory.acquire(instance, now.Add(length))
		p.lease = &engine.Lease{Instance: instance, Epoch: epoch}
		return epoch, nil
	})
}

// Due implements engine.Store: it renews the lease and reports which kinds of work are due.
func (p *port) Due(ctx context.Context, r engine.Round) (engine.Due, error) {
	return read(ctx, p, "due", func() (engine.Due, error) { return p.memory.due(r) })
}

// Claim implements engine.Store: it takes over executions that have no live owner.
func (p *port) Claim(ctx context.Context, c engine.Claim) ([]engine.Claimed, error) {
	what := "claim"
	if c.Suspected {
		what = "claim a suspect"
	}
	return read(ctx, p, what, func() ([]engine.Claimed, error) { return p.memory.claim(c), nil })
}

// Hold implements engine.Store.
func (p *port) Hold(ctx context.Context, l engine.Lease, holdings []engine.Holding) ([]engine.Holding, error) {
	return read(ctx, p, "hold", func() ([]engine.Holding, error) { return p.memory.hold(l, holdings), nil })
}

// Absolve implements engine.Store: it resets the crash count of an execution that survived its trial.
func (p *port) Absolve(ctx context.Context, l engine.Lease, execution int64) error {
	_, err := read(ctx, p, fmt.Sprintf("absolve %d", execution),
		func() (struct{}, error) { return struct{}{}, p.memory.absolve(l, execution) })
	return err
}

// Exonerate implements engine.Store. It does not pass the gate: it belongs to the step in which the name was acquired, and nothing that
// could happen in between would change its outcome.
func (p *port) Exonerate(_ context.Context, l engine.Lease, suspicious int, now time.Time) error {
	p.memory.exonerate(l, suspicious, now)
	return nil
}

// Try implements engine.Store: it records which suspect the process runs; 0 for none.
func (p *port) Try(ctx context.Context, l engine.Lease, execution int64) error {
	_, err := read(ctx, p, fmt.Sprintf("try %d", execution), func() (struct{}, error) { p.memory.try(l, execution); return struct{}{}, nil })
	return err
}

// Release implements engine.Store: it gives up everything that the lease owns.
func (p *port) Release(ctx context.Context, l engine.Lease) error {
	_, err := read(ctx, p, "release", func() (struct{}, error) { p.memory.release(l); return struct{}{}, nil })
	return err
}

// Load implements engine.Store: it reads what a driver needs to replay an execution.
func (p *port) Load(ctx context.Context, execution int64) (engine.Loaded, error) {
	return read(ctx, p, fmt.Sprintf("load %d", execution), func() (engine.Loaded, error) { return p.memory.load(execution) })
}

// seen is the result of Arrivals.
type seen struct {
	standing engine.Standing
	arrived  []engine.Arrival
}

// Arrivals implements engine.Store: it reads an execution's state and what has arrived for its open operations.
func (p *port) Arrivals(ctx context.Context, execution int64) (engine.Standing, []engine.Arrival, error) {
	s, err := read(ctx, p, fmt.Sprintf("look %d", execution), func() (s seen, err error) {
		s.standing, s.arrived, err = p.memory.look(execution)
		return s, err
	})
	return s.standing, s.arrived, err
}

// Commit implements engine.Store: it stores a turn. The trace names it by execution and turn.
func (p *port) Commit(ctx context.Context, c engine.Commit) (engine.Committed, error) {
	return through(ctx, p, fmt.Sprintf("commit %d turn %d", c.Execution.ID, c.Turn), func() (engine.Committed, []engine.Woken, error) {
		return p.memory.commit(c, p.lease)
	})
}

func (p *port) EndOf(ctx context.Context, organization int64, workflow string) (json.RawMessage, error) {
	return read(ctx, p, "end of "+p.memory.plain(workflow), func() (json.RawMessage, error) { return p.memory.endOf(organization, workflow), nil })
}

func (p *port) CancelOrphans(ctx context.Context, now time.Time, _ int) (int, error) {
	return through(ctx, p, "cancel orphans", func() (int, []engine.Woken, error) { return p.memory.cancelOrphans(now, p.lease) })
}

// firing is the result of FireTimers.
type firing struct {
	fired int
	next  time.Time
}

// FireTimers implements engine.Store. It has no limit: all timers that are due fire in one step.
func (p *port) FireTimers(ctx context.Context, now time.Time, _ int) (fired int, next time.Time, err error) {
	f, err := through(ctx, p, "fire timers", func() (f firing, woken []engine.Woken, _ error) {
		f.fired, f.next, woken = p.memory.fireTimers(now, p.lease)
		return f, woken, nil
	})
	return f.fired, f.next, err
}

// Forget implements engine.Store. It removes nothing: a simulation is shorter than any retention.
func (p *port) Forget(context.Context, time.Time) error { return nil }

// stall keeps the calls of a process waiting, or lets them continue.
func (g *gate) stall(p *process, stalled bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	p.stalled = stalled
}
