package control

import (
	"context"
	"fmt"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/id"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/engine"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/execution"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
)

// Sentence says what is waited for.
func (w Waiting) Sentence() string {
	until := w.Due.UTC().Format(time.RFC3339)
	switch w.Kind {
	case history.KindContinue:
		switch w.Name {
		case fullName:
			return "waits until the storage of its organization is below its limit, before it begins its next generation"
		case rateName:
			return "waits because it has started or emitted more than its organization may in a second; it continues when that is made up for"
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

// fullName is the name of a wait for storage, rateName that of one for the rates.
const (
	fullName = "storage"
	rateName = "rate"
)

// withRest adds why a run rests. What rests in another replica is known only of a generation without entries that waits for storage.
func (s *Service) withRest(ctx context.Context, e execution.Execution, open []Waiting) ([]Waiting, error) {
	if e.State != execution.Running {
		return open, nil
	}
	w := Waiting{Kind: history.KindContinue, Since: e.UpdatedAt, Due: s.clock.Now()}
	if s.Rests != nil {
		switch s.Rests(e.ID) {
		case engine.OverRate:
			w.Name = rateName
			return append(open, w), nil
		case engine.NoStorage:
			w.Name = fullName
			return append(open, w), nil
		case engine.AtWork:
			return open, nil
		case engine.NoRest, engine.HeldBack:
		}
	}
	if s.Full == nil || len(open) > 0 || e.Generation <= 1 || id.ReservedRun(e.Workflow) || !s.Full(e.Organization) {
		return open, nil
	}
	last, err := s.store.History(ctx, e.ID, e.LastSeq-1, 1)
	if err != nil || len(last) == 0 || last[0].Kind != history.KindContinue {
		return open, err
	}
	w.Name = fullName
	return []Waiting{w}, nil
}

// admitAgain refuses to have one more run where its organization is at a limit. begins reports whether there will be one more: what changes
// nothing takes nothing from the limits.
func (o *Operator) admitAgain(
	ctx context.Context, organization int64, workflow string, begins func(execution.Execution, error) bool,
) error {
	if o.Admit == nil || id.ReservedRun(workflow) {
		return nil
	}
	e, err := o.store.Get(ctx, organization, workflow)
	if err != nil && !fault.Is(err, fault.NotFound) {
		return err
	}
	if !begins(e, err) {
		return nil
	}
	return o.Admit(organization, 0)
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
	// Tries are the attempts that have failed so far, where that is known.
	Tries *history.Tries
	Round int
	// Since is when it began.
	Since time.Time
	Due   time.Time
}
