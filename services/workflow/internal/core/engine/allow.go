package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/id"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/limit"
)

// Limits keep what programs make within the limits of their organizations. Every method answers from memory.
//
// A refusal is recorded as the error of its operation, so a replay has it without asking. A wait is not recorded: the turn that makes more
// than it may is not stored yet, its run gives up its place, and is replayed to the same turn when it may be stored. A process that dies in
// between has stored nothing of the turn, and the next owner of the run makes it.
type Limits interface {
	// Bounded reports whether an organization has limits now.
	Bounded(organization int64) bool
	// Child and Emit admit a child and an event with so many bytes, or refuse it with fault.Limited. Settle ends the claims of children.
	Child(p limit.Program, bytes int) error
	Emit(p limit.Program, bytes int) error
	Settle(organization int64, children int)
	// Pace takes what a turn makes from the rates of the organization, and returns how long it has to wait; TryEvents only without a wait.
	Pace(p limit.Program, starts, events int) time.Duration
	TryEvents(p limit.Program, events int) bool
	// Full reports whether a next generation has to wait for storage, and NoteFull that one does. Wrote counts bytes of history.
	Full(p limit.Program) bool
	NoteFull()
	Wrote(organization int64, bytes int64)
}

var _ Limits = (*limit.Limiter)(nil)

// unlimited are the limits of an engine that has none.
type unlimited struct{}

func (unlimited) Bounded(int64) bool                         { return false }
func (unlimited) Child(limit.Program, int) error             { return nil }
func (unlimited) Emit(limit.Program, int) error              { return nil }
func (unlimited) Settle(int64, int)                          {}
func (unlimited) Pace(limit.Program, int, int) time.Duration { return 0 }
func (unlimited) TryEvents(limit.Program, int) bool          { return true }
func (unlimited) Full(limit.Program) bool                    { return false }
func (unlimited) NoteFull()                                  {}
func (unlimited) Wrote(int64, int64)                         {}

const (
	// paceHere is how long a turn may wait for the rates of its organization in its place: to give that up costs a replay.
	paceHere = 20 * time.Millisecond
	// fullAgain is how often a generation that waits for storage looks whether there is some.
	fullAgain = 15 * time.Second
)

// made is what a turn makes, as rates count it.
type made struct{ starts, events int }

// waiting is a run that has given up its place until a time.
type waiting struct {
	organization int64
	until        time.Time
	// paid is what its turn has taken from the rates already.
	paid made
}

// Error is for the log; a run that waits has not failed.
func (w *waiting) Error() string {
	return fmt.Sprintf("waits until %s", w.until.UTC().Format(time.RFC3339Nano))
}

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

// pace keeps the turn within the rates of the organization. The error is a *waiting if it has to be stored later.
func (r *run) pace(ctx context.Context) error {
	m := r.makes()
	due := made{max(0, m.starts-r.paid.starts), max(0, m.events-r.paid.events)}
	if due == (made{}) {
		return nil
	}
	e := r.engine
	wait := max(e.children.take(r.loaded.Organization, due.starts, e.Clock.Now()), e.Limits.Pace(r.allowed(), due.starts, due.events))
	r.paid.starts, r.paid.events = r.paid.starts+due.starts, r.paid.events+due.events
	if wait <= 0 {
		return nil
	}
	if wait <= paceHere || len(r.running) > 0 { // Functions that are under way would be called again
		return clock.Sleep(ctx, e.Clock, wait)
	}
	return &waiting{organization: r.loaded.Organization, until: e.Clock.Now().Add(wait), paid: r.paid}
}

// rests is until when a run that is about to begin a generation waits; nil if it does not.
func (r *run) rests() *waiting {
	e := r.engine
	now := e.Clock.Now()
	if r.machine != nil {
		return nil
	}
	if r.loaded.HeldUntil.After(now) {
		return &waiting{organization: r.loaded.Organization, until: r.loaded.HeldUntil}
	}
	if r.loaded.Generation <= 1 || len(r.loaded.History) > 0 || !e.Limits.Full(r.allowed()) {
		return nil
	}
	for _, a := range r.loaded.Arrived {
		if a.Op == history.Cancellation {
			return nil // its end frees storage
		}
	}
	e.Limits.NoteFull()
	return &waiting{organization: r.loaded.Organization, until: now.Add(fullAgain)}
}
