package control

import (
	"fmt"
	"time"

	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
)

// Sentence says what is waited for.
func (w Waiting) Sentence() string {
	until := w.Due.UTC().Format(time.RFC3339)
	switch w.Kind {
	case history.KindContinue:
		return "is held back until " + until + ": its program calls continue_with too often without waiting for anything"
	case history.KindSleep:
		return "sleeps until " + until
	case history.KindPoll:
		return fmt.Sprintf("polls function %s, round %d, at the longest until %s", w.Name, w.Round, until)
	case history.KindReceive:
		return "waits for a message to its channel, at the longest until " + until
	case history.KindWait:
		return "waits for " + history.Describe(w.Types, w.Filter) + ", at the longest until " + until
	default:
		where := ""
		if w.Location == activity.Cluster {
			where = fmt.Sprintf(" on agent %d (sent %d times)", w.Agent, w.Attempt)
		}
		if w.Location == activity.Held {
			return fmt.Sprintf("waits for an approval to call function %s, at the longest until %s", w.Name, until)
		}
		if w.Location == activity.Worker {
			where = " of a worker"
			if w.Attempt > 0 {
				where = fmt.Sprintf(" of a worker (given %d times)", w.Attempt)
			}
		}
		return fmt.Sprintf("waits for function %s%s, at the longest until %s", w.Name, where, until)
	}
}

// Waiting is one thing an execution waits for. Types and Filter are a wait's; Name, Location, Agent and Attempt are a
// run's. A poll has a Name, a Round and in a round what a run has. All have a Due.
type Waiting struct {
	Op       history.OpRef
	Kind     history.Kind
	Name     string
	Types    []string
	Filter   history.Filter
	Location activity.Location
	Agent    int64
	Attempt  int
	Round    int
	// Since is when it began.
	Since time.Time
	Due   time.Time
}
