package control

import (
	"context"
	"fmt"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/id"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/execution"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
)

// Sentence says what is waited for.
func (w Waiting) Sentence() string {
	until := w.Due.UTC().Format(time.RFC3339)
	switch w.Kind {
	case history.KindContinue:
		if w.Name == fullName {
			return "waits until the storage of its organization is below its limit, before it begins its next generation"
		}
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

// fullName is the name of a wait for storage.
const fullName = "storage"

// withFull adds that a run waits for storage, where it would begin a generation.
func (s *Service) withFull(e execution.Execution, open []Waiting) []Waiting {
	if s.Full == nil || len(open) > 0 || e.Generation <= 1 || e.State != execution.Running || id.ReservedRun(e.Workflow) || !s.Full(e.Organization) {
		return open
	}
	now := s.clock.Now()
	return []Waiting{{Kind: history.KindContinue, Name: fullName, Since: e.UpdatedAt, Due: now}}
}

// admitAgain refuses to have one more run where its organization is at a limit, unless there is the run already.
func (o *Operator) admitAgain(ctx context.Context, organization int64, workflow string) error {
	if o.Admit == nil || id.ReservedRun(workflow) {
		return nil
	}
	err := o.Admit(organization, 0)
	if err == nil {
		return nil
	}
	if e, notFound := o.store.Get(ctx, organization, workflow); notFound == nil && !e.State.Ended() {
		return nil
	}
	return err
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
