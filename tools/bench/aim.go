package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// aim says when to send an event so that it meets a wait on the way into the store, by what is remembered of those before on the same path.
// A path is what takes about as long each time: through one process or the other, for runs of either. It is safe for concurrent use.
type aim struct {
	mu   sync.Mutex
	lead [racePaths]time.Duration
}

const (
	// racePaths is how many there are.
	racePaths = 4
	// aimPart is which part of what it has missed by is made up for in the next moment, and aimMost the most: a single moment in which the
	// machine was elsewhere must not spoil those behind it.
	aimPart, aimMost = 4, 500 * time.Microsecond
)

// pathOf is the path of an event through a process, for a run that is in a process.
func pathOf(through, in int) int { return 2*in + through }

// newAim begins with the same expectation for every path: how long after the beginning of a moment an event is to be sent.
func newAim(first time.Duration) *aim {
	a := &aim{}
	for path := range a.lead {
		a.lead[path] = first
	}
	return a
}

// after is how long after the beginning of a moment an event is to be sent that is to be so much later than the wait, or earlier.
func (a *aim) after(path int, later time.Duration) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return max(0, a.lead[path]+later)
}

// learn notes by how much later than they were to be, or earlier, events of one moment and path have come.
func (a *aim) learn(path int, missed []time.Duration) {
	if len(missed) == 0 {
		return
	}
	slices.Sort(missed)
	middle := missed[len(missed)/2]
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lead[path] = max(0, a.lead[path]-min(aimMost, max(-aimMost, middle/aimPart)))
}

// pair is one event and the wait of one run for it. The runs of a cohort ask at the same moment, once in each round, for the same events,
// one for each place.
type pair struct{ cohort, member, round, place int }

// paired is the pair with a number, where so many cohorts take part. Those of one moment have numbers behind one another, and among them
// those of one event.
func paired(number, cohorts int) pair {
	moment := number / racePairs
	return pair{cohort: moment % cohorts, round: moment / cohorts, place: number / raceRuns % racePlaces, member: number % raceRuns}
}

// number is the other way round.
func (p pair) number(cohorts int) int {
	return ((p.round*cohorts+p.cohort)*racePlaces+p.place)*raceRuns + p.member
}

// run is the number of the run of the pair.
func (p pair) run() int { return p.cohort*raceRuns + p.member }

// through is the process that gets the event of the pair: half of them each.
func (p pair) through() int { return p.place % 2 }

// in is the process that has the run in memory at the moment.
func (p pair) in() int { return p.cohort % 2 }

// spread is by how much the event of a pair is to be later than its wait.
func (p pair) spread(cohorts int) time.Duration {
	event := p.number(cohorts) / raceRuns
	chance := rand.New(rand.NewPCG(raceSeed, uint64(event))) //nolint:gosec // the same moments in every run
	return time.Duration(chance.Int64N(int64(raceSpread))) - raceSpread/2 + raceShift
}

// tally counts the outcomes of pairs.
type tally struct {
	// first, second and together are pairs whose event was committed before the wait, after it, and in one transaction with it.
	first, second, together int
	// before and after are those whose event was on its way into the store at most a millisecond before the wait was, and after, and near
	// those with five.
	before, after, near int
}

// met is how the sides of a pair came to be.
type met struct {
	pair

	// later is by how much the event was later on its way into the store than the wait, and second whether it was committed after it;
	// together is set if one transaction has committed both.
	later            time.Duration
	second, together bool
}

func (t *tally) add(m met) {
	switch {
	case m.together:
		t.together++
	case m.second:
		t.second++
	default:
		t.first++
	}
	switch {
	case m.later.Abs() > time.Millisecond:
	case m.later < 0:
		t.before++
	default:
		t.after++
	}
	if m.later.Abs() <= 5*time.Millisecond {
		t.near++
	}
}

// stored is how many pairs have both sides in the store.
func (t *tally) stored() int { return t.first + t.second + t.together }

// note is the tally for a reader: of so many pairs, so many waits have received their events.
func (t *tally) note(pairs, received int) string {
	return fmt.Sprintf("%d lost; committed before the wait %d, after it %d, in one transaction with it %d; within a millisecond of each other on their way there %d (event first %d, wait first %d), within five %d",
		pairs-received, t.first, t.second, t.together, t.before+t.after, t.before, t.after, t.near)
}
