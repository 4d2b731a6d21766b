package engine

import (
	"sync"
	"time"
)

const (
	// troubleAgain is how often the same trouble is logged.
	troubleAgain = time.Minute
	// troubleMost bounds what is remembered; beyond it begins anew.
	troubleMost = 1000
)

// troubles keeps errors that repeat from filling the log: a run that waits for the database, or for the owners of agents to become
// known, tries each second. The first error of a text is logged at once, and then one each troubleAgain.
//
// It is safe for concurrent use.
type troubles struct {
	mu     sync.Mutex
	logged map[string]*trouble
}

type trouble struct {
	at    time.Time
	times int
}

// add counts an error and reports whether to log it now; times is how often it has happened since it was last logged.
func (t *troubles) add(what string, now time.Time) (times int, log bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	known := t.logged[what]
	if known == nil {
		if t.logged == nil || len(t.logged) >= troubleMost {
			t.logged = map[string]*trouble{}
		}
		t.logged[what] = &trouble{at: now}
		return 1, true
	}
	known.times++
	if now.Sub(known.at) < troubleAgain {
		return known.times, false
	}
	times = known.times
	known.at, known.times = now, 0
	return times, true
}
