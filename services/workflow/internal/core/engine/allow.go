package engine

import (
	"sync"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/id"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/limit"
)

// Limits keep what programs make within the limits of their organizations. Every method answers from memory.
//
// A refusal is recorded as the error of its operation, so a replay has it without asking. A turn that has made more than the rates permit
// is stored as it is: its run has a debt, and no next turn before that is paid (rest.go). A process knows the debts of its own runs; they
// end with it.
type Limits interface {
	// Bounded reports whether an organization has limits now.
	Bounded(organization int64) bool
	// Child and Emit admit a child and an event with so many bytes, or refuse it with fault.Limited. Settle ends the claims of children.
	Child(p limit.Program, bytes int) error
	Emit(p limit.Program, bytes int) error
	Settle(organization int64, children int)
	// Owe counts what a stored turn has made, and returns the debt of its run. Due is about how long it takes to pay one, 0 if it is paid.
	Owe(p limit.Program, before limit.Debt, starts, events int) limit.Debt
	Due(p limit.Program, d limit.Debt) time.Duration
	// Leave notes that a run has ended with a debt, Begins is the debt until which a new run waits. Free reports whether so many events
	// would make none.
	Leave(p limit.Program, d limit.Debt)
	Begins(p limit.Program) limit.Debt
	Free(p limit.Program, events int) bool
	// Full reports whether a next generation has to wait for storage, and NoteFull that one does. Wrote counts bytes of history.
	Full(p limit.Program) bool
	NoteFull()
	Wrote(organization, bytes int64)
}

var _ Limits = (*limit.Limiter)(nil)

// unlimited are the limits of an engine that has none.
type unlimited struct{}

func (unlimited) Bounded(int64) bool                                     { return false }
func (unlimited) Child(limit.Program, int) error                         { return nil }
func (unlimited) Emit(limit.Program, int) error                          { return nil }
func (unlimited) Settle(int64, int)                                      {}
func (unlimited) Owe(_ limit.Program, d limit.Debt, _, _ int) limit.Debt { return d }
func (unlimited) Due(limit.Program, limit.Debt) time.Duration            { return 0 }
func (unlimited) Leave(limit.Program, limit.Debt)                        {}
func (unlimited) Begins(limit.Program) limit.Debt                        { return limit.Debt{} }
func (unlimited) Free(limit.Program, int) bool                           { return true }
func (unlimited) Full(limit.Program) bool                                { return false }
func (unlimited) NoteFull()                                              {}
func (unlimited) Wrote(int64, int64)                                     {}

// made is what a turn makes, as rates count it.
type made struct{ starts, events int }

// allowed is the run, as limits know it.
func (r *run) allowed() limit.Program {
	return limit.Program{Organization: r.loaded.Organization, Domain: id.ReservedRun(r.loaded.Workflow)}
}

// admitChild asks whether the program may start a child.
func (r *run) admitChild(bytes int) *history.FunctionError {
	if refusal := limited(r.engine.Limits.Child(r.allowed(), bytes)); refusal != nil {
		return refusal
	}
	r.claimed++
	return nil
}

// admitEmit asks whether the program may emit an event.
func (r *run) admitEmit(bytes int) *history.FunctionError {
	return limited(r.engine.Limits.Emit(r.allowed(), bytes))
}

// limited is a limit as a program sees it.
func limited(err error) *history.FunctionError {
	if err == nil {
		return nil
	}
	return &history.FunctionError{Code: history.CodeLimited, Message: fault.Public(err)}
}

// settle ends the claims of the run's children.
func (r *run) settle() {
	r.engine.Limits.Settle(r.loaded.Organization, r.claimed)
	r.claimed = 0
}

// makes counts what the present turn makes. The events of the engine itself, such as the one about the end, are not counted.
func (r *run) makes() (m made) {
	m.starts = len(r.starts)
	for _, e := range r.entries {
		if e.Kind == history.KindEmit && e.Error == nil {
			m.events++
		}
	}
	return m
}

// debt is what a run has made beyond the rates of its organization, and until when it waits for those of children (allowances).
type debt struct {
	organization limit.Program
	made         limit.Debt
	until        time.Time
}

// debts are those of the runs of this process.
//
// It is safe for concurrent use.
type debts struct {
	mu  sync.Mutex
	all map[int64]debt
	// sweep is how many there are before those that are paid are removed.
	sweep int
}

// sweepLeast is the smallest number of debts that is swept.
const sweepLeast = 1024

// owe notes what a turn has made, now that it is stored.
func (r *run) owe(ended bool) {
	m, e, p := r.makes(), r.engine, r.allowed()
	e.debts.mu.Lock()
	defer e.debts.mu.Unlock()
	before := e.debts.all[r.loaded.ID]
	after := debt{p, e.Limits.Owe(p, before.made, m.starts, m.events), before.until}
	if now := e.Clock.Now(); m.starts > 0 {
		if wait := e.children.take(r.loaded.Organization, m.starts, now); wait > 0 {
			after.until = now.Add(wait)
		}
	}
	switch {
	case ended:
		delete(e.debts.all, r.loaded.ID)
		e.Limits.Leave(p, after.made)
	case after != before && e.due(after) > 0:
		e.keepDebt(r.loaded.ID, after)
	}
}

// keepDebt is called under the lock of debts.
func (e *Engine) keepDebt(execution int64, d debt) {
	if e.debts.all == nil {
		e.debts.all, e.debts.sweep = map[int64]debt{}, sweepLeast
	}
	if e.debts.all[execution] = d; len(e.debts.all) > e.debts.sweep { // of runs that park and are not woken here again
		for other, d := range e.debts.all {
			if e.due(d) == 0 {
				delete(e.debts.all, other)
			}
		}
		e.debts.sweep = max(sweepLeast, 2*len(e.debts.all))
	}
}

// due is how long a debt takes.
func (e *Engine) due(d debt) time.Duration {
	return max(d.until.Sub(e.Clock.Now()), e.Limits.Due(d.organization, d.made), 0)
}

// owing is how long a run waits because of its debt; 0: it has none.
func (e *Engine) owing(execution int64) time.Duration {
	e.debts.mu.Lock()
	defer e.debts.mu.Unlock()
	d, some := e.debts.all[execution]
	if !some {
		return 0
	}
	due := e.due(d)
	if due == 0 {
		delete(e.debts.all, execution)
	}
	return due
}

// excuse lets a run continue that has a debt: it was cancelled. The debt is paid all the same.
func (e *Engine) excuse(execution int64) {
	e.debts.mu.Lock()
	defer e.debts.mu.Unlock()
	delete(e.debts.all, execution)
}

// begins has a new run wait for the debts of those that have ended. Those of the domain service do not wait.
func (r *run) begins() {
	e, p := r.engine, r.allowed()
	if p.Domain {
		return
	}
	d := debt{organization: p, made: e.Limits.Begins(p)}
	if id.IsChildRun(r.loaded.Workflow) {
		d.until = e.children.free(r.loaded.Organization)
	}
	if e.due(d) > 0 {
		e.debts.mu.Lock()
		defer e.debts.mu.Unlock()
		e.keepDebt(r.loaded.ID, d)
	}
}
