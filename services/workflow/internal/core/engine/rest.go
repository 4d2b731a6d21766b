package engine

import (
	"context"
	"errors"
	"slices"
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
	// held is until when the store keeps the run from claims; zero: it does not (hold).
	held time.Time
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
		e.hold(ctx, false)
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

// A claim names the executions that a process has, so that it takes none of them again. Of those that rest there may be any number. So a
// run that rests for longer is held: its row says before when no process claims it, and the claim need not name it. That also has a rest
// outlive the process: the run is claimed by another one when its time has come, and not before.
//
// What is held is only a guess, which the process that has the run may correct: it resumes a run when its rest is over, and holds it for
// longer while that is not so. A process that dies within holdEvery of the beginning of a rest leaves a run that is claimed at once.

const (
	// holdEvery is how often rests are held, in one statement for all.
	holdEvery = 500 * time.Millisecond
	// holdFrom is from which length on a rest is held, unless there are more than holdMost shorter ones, each of which is held for holdLeast.
	holdFrom  = 2 * time.Second
	holdMost  = 256
	holdLeast = 5 * time.Second
	// holdLongest is the longest time for which a run is held at once: a limit that is lifted while no process has the run ends no rest.
	holdLongest = time.Hour
	// holdMargin is how long before its end what is held is held again.
	holdMargin = 2 * time.Second
	// holdFull is for how long a run is held that waits for storage, which nobody knows the end of: its process resumes it earlier.
	holdFull = time.Minute
	// holdsAtOnce is how many are held in one statement.
	holdsAtOnce = 1000
)

// Holding is until when an execution is not to be claimed; the zero time: it may be.
type Holding struct {
	Execution int64
	Until     time.Time
}

// hold has the store keep those that rest from claims. With all it also does so for those whose rest is short: the process ends.
func (e *Engine) hold(ctx context.Context, all bool) {
	now := e.Clock.Now()
	if !all && now.Sub(e.heldAt) < holdEvery && !now.Before(e.heldAt) {
		return
	}
	e.heldAt = now
	e.keep(ctx, e.holdings(now, all))
}

// holdings are until when rests are to be held now.
func (e *Engine) holdings(now time.Time, all bool) []Holding {
	rests, resumed := e.places.toHold(now)
	var holdings []Holding
	for execution, rest := range rests {
		until := now
		switch rest.why {
		case HeldBack:
			until = rest.until
		case OverRate:
			until = now.Add(e.owing(execution))
		case NoRest, AtWork, NoStorage: // nobody knows when there is storage
		}
		length := until.Sub(now)
		if length < holdFrom && !all && len(rests) <= holdMost || length <= 0 && all {
			continue
		}
		switch {
		case all:
		case rest.why == NoStorage:
			length = holdFull
		default:
			length = max(length, holdLeast)
		}
		holdings = append(holdings, Holding{execution, now.Add(min(length, holdLongest))})
	}
	for _, execution := range resumed {
		holdings = append(holdings, Holding{Execution: execution})
	}
	return holdings
}

// keep has the store hold runs.
func (e *Engine) keep(ctx context.Context, holdings []Holding) {
	for some := range slices.Chunk(holdings, holdsAtOnce) {
		held, err := e.Store.Hold(ctx, e.lease, some)
		e.report(ctx, "hold runs that rest", err)
		e.places.hold(some, held)
	}
}

// toHold are the executions that rest and are not held, or not for much longer, and those that were resumed although they are held.
func (p *scheduler) toHold(now time.Time) (rests map[int64]resting, resumed []int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	rests = map[int64]resting{}
	for execution, rest := range p.resting {
		if rest.held.Before(now.Add(holdMargin)) {
			rests[execution] = rest
		}
	}
	for execution := range p.resumed {
		if _, again := p.resting[execution]; !again {
			resumed = append(resumed, execution)
		}
	}
	clear(p.resumed)
	return rests, resumed
}

// hold notes what the store holds of what it was asked to. Of a run that is at work and still held, because its row was locked, it is asked
// again.
func (p *scheduler) hold(asked, held []Holding) {
	p.mu.Lock()
	defer p.mu.Unlock()
	done := make(map[int64]bool, len(held))
	for _, h := range held {
		done[h.Execution] = true
	}
	for _, h := range asked {
		if h.Until.IsZero() && !done[h.Execution] && p.live[h.Execution] != nil {
			p.resumed[h.Execution] = struct{}{}
		}
	}
	for _, h := range held {
		if rest, rests := p.resting[h.Execution]; rests {
			rest.held = h.Until
			p.resting[h.Execution] = rest
		} else if !h.Until.IsZero() {
			p.resumed[h.Execution] = struct{}{} // meanwhile
		}
	}
}
