package engine

import (
	"context"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/execution"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/program"
)

// Running ahead. A start is answered once it is stored (E18), and a program has no visible effect before. But its first turn can be
// computed before that, and stored with the start in one transaction: a process that dies in between has done nothing, and no caller has
// seen the run. So a short run takes one commit instead of two, and the first step of a longer one costs no commit.
//
// This holds only as far as it cannot be noticed: a Function with an effect, or a slow one, is called once the start is durable. Only
// pure Functions (Pure) are called ahead, and only those that the program begins with.
//
// It is done only for programs whose first turn was quick in this process before (openings): the first run of each program is stored
// before any of it runs, so that a program which kills its process is detected (Settings.Crashes), and no caller waits longer for the
// answer to a start because of a tenant's program.

// aheadMost is the longest that a first turn may take for those of the same program to be run ahead.
const aheadMost = 5 * time.Millisecond

// Ahead runs the first turn of an execution and stores both. After an error, it is unknown whether they were stored.
func (e *Engine) Ahead(ctx context.Context, n NewExecution, l Loaded) (c Created, done bool, err error) {
	if !e.openings.well(l.Execution.Program) || !e.near(l.Program) {
		return Created{}, false, nil
	}
	r := e.newRun(l)
	began := e.Clock.Now()
	handedOver := false
	defer func() {
		// What panics here does so again when the execution is stored, and ends it then (drive).
		if thrown := recover(); thrown != nil {
			e.Log.ErrorContext(ctx, "turn panicked before its start was stored", "workflow", l.Workflow, "panic", thrown, "stack", string(debug.Stack()))
			c, done, err = Created{}, false, nil
		}
		r.settle()
		if r.machine != nil && !handedOver {
			r.machine.Close()
		}
	}()
	first, ran := r.first(ctx)
	if r.machine != nil { // else its inputs or modules are refused, which says nothing of the program
		e.openings.learn(l.Execution.Program, ran && e.Clock.Now().Sub(began) <= aheadMost)
	}
	if !ran {
		return Created{}, false, nil
	}
	if !e.Limits.Free(r.allowed(), r.makes().events) {
		return Created{}, false, nil
	}
	id, begun, err := e.Store.Begin(ctx, n, first)
	if err != nil {
		e.places.release(l.Organization)
		e.claims.Raise() // if it is stored, it is this process's to find
		return Created{}, true, err
	}
	if !begun {
		return Created{}, false, nil
	}
	r.loaded.ID, r.ahead = id, true
	e.endings.begin(r.loaded.Execution)
	r.committed(first, Committed{Turn: 1, State: first.Next})
	if first.Next.Ended() {
		e.places.release(l.Organization)
	} else {
		handedOver = e.places.begin(r.loaded, r)
	}
	if !handedOver {
		e.endings.leave(r.loaded.Execution)
	}
	return Created{ID: id, Ref: n.Ref, Created: true}, true, nil
}

// near reports whether a program runs in this process.
func (e *Engine) near(p program.Program) bool {
	n, can := e.Scripts.(program.Near)
	return can && n.Near(p)
}

// first runs the first turn of a run that is not stored, up to its end or to the first Function that is not pure. ran is false where
// it leads to something else: the turn is worth nothing then.
func (r *run) first(ctx context.Context) (c Commit, ran bool) {
	var err error
	source, inputs := r.loaded.Program, r.loaded.Inputs
	if r.machine, err = r.openProgram(); err != nil {
		return Commit{}, false
	}
	_ = r.machine.Replay(nil) // a failure of the program is for Outcome, and nothing else can differ from no history
	r.keepSource()
	r.loaded.Program, r.loaded.Inputs = program.Program{}, nil
	todo, err := r.survey(ctx)
	if err != nil {
		return Commit{}, false
	}
	if len(todo.opened) == 0 && !todo.more && r.answerPure(ctx, todo.inProcess) {
		if todo, err = r.survey(ctx); err != nil {
			return Commit{}, false
		}
	}
	r.take()
	ended, failure := r.outcome()
	if _, more := r.continuation(); more || len(todo.opened) > 0 || r.measure(ctx) != nil {
		return Commit{}, false
	}
	// What fails may do so because its start is to be refused, which only Check says.
	if failure != nil && program.ScriptsFor(r.engine.Scripts, r.loaded.Organization).Check(source, inputs) != nil {
		return Commit{}, false
	}
	if ended {
		if _, interrupted := failure.(*program.Interrupted); interrupted { //nolint:errorlint // it is not wrapped
			return Commit{}, false
		}
		if c, err = r.ending(ctx, failure); err != nil {
			return Commit{}, false
		}
	}
	c = r.whole(c)
	return c, c.beginsWell()
}

// answerPure calls the Functions that a program begins with, if all of them are pure, and reports whether it did.
func (r *run) answerPure(ctx context.Context, ops []history.Op) bool {
	for _, op := range ops {
		if f, known := r.engine.Functions.Lookup(op.Name); !known || !activity.IsPure(f) || op.Kind != history.KindRun {
			return false
		}
	}
	for _, op := range ops {
		answered, finished := r.engine.attempt(ctx, op, r.call(op))
		if !finished || answered.Tries != nil {
			return false // what failed is stored with the entry of the second time
		}
		r.complete(answered)
	}
	return len(ops) > 0
}

// beginsWell reports whether a first turn can be stored with its start: it ends the run, or continues at once, and leaves nothing open.
func (c Commit) beginsWell() bool {
	return (c.Next == execution.Running || c.Next.Ended()) && len(c.Open)+len(c.Closed) == 0 && c.Continue == nil &&
		!slices.ContainsFunc(c.Entries, func(e history.Entry) bool {
			return e.Kind != history.KindRun && e.Kind != history.KindEmit && e.Kind != history.KindNow && e.Kind != history.KindUUID &&
				e.Kind != history.KindRandom && e.Kind != history.KindPrint && e.Kind != history.KindAttempt && e.Kind != history.KindPatched &&
				!e.Kind.Final()
		})
}

// openings remembers programs whose last first turn could have been stored with its start (beginsWell). A missing entry
// costs one extra commit; a stale one, a first turn that is run twice.
//
// It is safe for concurrent use.
type openings struct {
	mu   sync.RWMutex
	good map[string]struct{}
}

// openingsMost bounds it; beyond it begins anew, since programs are few.
const openingsMost = 10_000

// Vouch records that a program has done well, for callers who know so in advance.
func (e *Engine) Vouch(source [32]byte) { e.openings.learn(program.Hex(source), true) }

// well reports whether the program with this digest is one of them.
func (o *openings) well(program string) bool {
	o.mu.RLock()
	defer o.mu.RUnlock()
	_, good := o.good[program]
	return good
}

// learn notes how a first turn of the program went.
func (o *openings) learn(program string, good bool) {
	if o.well(program) == good {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.good == nil || len(o.good) >= openingsMost {
		o.good = map[string]struct{}{}
	}
	if delete(o.good, program); good {
		o.good[program] = struct{}{}
	}
}
