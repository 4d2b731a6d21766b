package engine

import (
	"sync"
	"time"
)

const (
	// troubleAgain is how often the same trouble is told of.
	troubleAgain = time.Minute
	// troubleMost bounds what is remembered; beyond it begins anew.
	troubleMost = 1000
)

// troubles keeps what goes wrong again and again from filling the log: a run that waits for somebody to say whose agents are, or for
// the database, tries each second. The same words are told at once, and then once in troubleAgain.
//
// It is safe for concurrent use.
type troubles struct {
	mu   sync.Mutex
	told map[string]*trouble
}

type trouble struct {
	at    time.Time
	times int
}

// tell counts what has happened and says whether to tell of it now; times is how often it has happened since that was done.
func (t *troubles) tell(what string, now time.Time) (times int, tell bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	known := t.told[what]
	if known == nil {
		if t.told == nil || len(t.told) >= troubleMost {
			t.told = map[string]*trouble{}
		}
		t.told[what] = &trouble{at: now}
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
