package engine

import (
	"context"
	"errors"
	"time"

	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/limit"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/wake"
)

// A run rests between two turns if its next one may not begin yet: its generation is held back (pace.go) or waits for storage, or what it
// has made is to be paid (Limits). It is running in the store and owned by this process, and has no place and no goroutine. One loop asks
// for all of them again and again, from memory, so that another limit ends a rest early. So does a cancellation, which the loop reads.

// Rest is why a run rests.
type Rest int

const (
	// NoRest is that of a run that does not rest in this process.
	NoRest Rest = iota
	// AtWork is that of a run which has a place in this process.
	AtWork
	// HeldBack rests because it has begun many generations.
	HeldBack
	// NoStorage rests before a generation because the organization has no storage left.
	NoStorage
	// OverRate rests because it has made more than the rates of its organization permit.
	OverRate
)

// resting is a run that rests.
type resting struct {
	why  Rest
	turn int64
	of   limit.Program
	// until is when a generation that is held back may run.
	until time.Time
	// ask is when the loop asks again, read when it looks for a cancellation.
	ask, read time.Time
	// woken is set if something has arrived since the loop has read.
	woken bool
}

const (
	// restStep is how long the loop waits at the longest before it asks again; restLeast the shortest.
	restStep  = time.Second
	restLeast = 10 * time.Millisecond
	// restRead is how often the loop reads whether a run was cancelled that was not woken.
	restRead = 30 * time.Second
)

// rests returns why the run may not continue now; nil if it may. What has been cancelled may.
func (r *run) rests(j job) *resting {
	e := r.engine
	now := e.Clock.Now()
	rest := &resting{turn: r.loaded.Turn, of: r.allowed(), read: now.Add(restRead)}
	if j.cancelled {
		return nil
	}
	for _, a := range r.loaded.Arrived {
		if a.Op == history.Cancellation {
			return nil // its end frees storage
		}
	}
	if r.machine == nil && r.loaded.HeldUntil.After(now) {
		rest.why, rest.until = HeldBack, r.loaded.HeldUntil
		rest.ask = now.Add(min(restStep, rest.until.Sub(now)))
		return rest
	}
	begins := r.machine == nil && len(r.loaded.History) == 0
	if begins && r.loaded.Generation > 1 && e.Limits.Full(rest.of) {
		e.Limits.NoteFull()
		rest.why, rest.ask = NoStorage, now.Add(restStep)
		return rest
	}
	if begins && r.loaded.Generation <= 1 && !j.rested {
		r.begins()
	}
	return r.owes(rest)
}

// owes completes a rest because of a debt; nil if there is none.
func (r *run) owes(rest *resting) *resting {
	due := r.engine.owing(r.loaded.ID)
	if due <= 0 {
		return nil
	}
	rest.why, rest.ask = OverRate, r.engine.Clock.Now().Add(min(restStep, due))
	return rest
}

// between returns the rest of a run between two turns, nil if it has none. Functions that are under way keep it in its place (await).
func (r *run) between() *resting {
	if len(r.running) > 0 || len(r.answered) > 0 {
		return nil
	}
	now := r.engine.Clock.Now()
	rest := &resting{turn: r.loaded.Turn, of: r.allowed(), read: now.Add(restRead)}
	if r.over && r.engine.Limits.Full(rest.of) {
		r.engine.Limits.NoteFull()
		rest.why, rest.ask = NoStorage, now.Add(restStep)
		return rest
	}
	return r.owes(rest)
}

// rest gives up the place of a run. What it has in memory is kept while there is room, as that of a parked one.
func (e *Engine) rest(r *run, rest resting) {
	if r.machine != nil && r.over {
		r.machine.Close()
		r.machine = nil
	}
	e.restful.Due(e.places.rest(r, rest))
}

// Rests is why an execution rests in this process, if it does.
func (e *Engine) Rests(execution int64) Rest { return e.places.why(execution) }

// restLoop resumes runs that have rested.
func (e *Engine) restLoop(ctx context.Context) {
	for ctx.Err() == nil {
		now := e.Clock.Now()
		due, next := e.places.rested(now)
		for _, id := range due {
			e.ask(ctx, id, now)
		}
		until := now.Add(wake.MaxIdle)
		if len(due) > 0 {
			until = now.Add(restLeast)
		} else if !next.IsZero() {
			until = later(next, now.Add(restLeast))
		}
		e.restful.Sleep(ctx, e.Clock, until)
	}
}

// ask resumes a run whose rest is over, and else says when to ask again.
func (e *Engine) ask(ctx context.Context, execution int64, now time.Time) {
	rest, some := e.places.restOf(execution)
	if !some {
		return
	}
	again := restStep
	switch rest.why {
	case HeldBack:
		again = min(again, rest.until.Sub(now))
	case NoStorage:
		if !e.Limits.Full(rest.of) {
			again = 0
		}
	case OverRate:
		again = min(again, e.owing(execution))
	case NoRest, AtWork:
	}
	if again <= 0 {
		e.places.resume(job{id: execution, turn: rest.turn, organization: rest.of.Organization, rested: true})
		return
	}
	rest.ask = now.Add(again)
	rest.woken = false
	if !rest.read.After(now) {
		rest.read = now.Add(restRead)
		standing, arrived, err := e.Store.Arrivals(ctx, execution)
		if errors.Is(err, ErrFenced) || err == nil && standing.State.Ended() {
			e.places.drop(execution)
			return
		}
		e.report(ctx, "look at a run that rests", err)
		for _, a := range arrived {
			if a.Op == history.Cancellation {
				e.places.resume(job{id: execution, turn: rest.turn, organization: rest.of.Organization, rested: true, cancelled: true})
				return
			}
		}
	}
	e.places.askAgain(execution, rest)
}
