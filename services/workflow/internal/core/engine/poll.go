package engine

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
)

// A poll calls a Function again and again until the program is content with the answer. It is one activity: while it
// lasts, what is known of it is kept in one place and overwritten, and when it is over its last observation becomes one
// entry of the history, however many there were. So nothing that the program does may depend on the
// observations in between, and the machine lets the program's condition change nothing (script).
//
// A poll alternates between a round, in which the Function is called, and a pause. Each change is a turn that closes
// what the store holds for the operation and opens it anew; each round has an activity id of its own, because a repeat
// of one id is answered with its first answer (E24).

// Polling is how far a poll has come.
type Polling struct {
	Op history.OpRef
	// Function is what is called.
	Function string
	// Round counts the calls from 1: the one under way, or in a pause the next one.
	Round int
	// Calling is true in a round and false in a pause.
	Calling bool
	// Deadline ends the poll.
	Deadline time.Time
	// Value is the last observation, nil if there is none; Error why the last round has none.
	Value json.RawMessage
	Error *history.FunctionError
}

// reopen has the next commit replace what the store holds about a blocked operation.
func (r *run) reopen(ref history.OpRef, known openOp, due time.Time) {
	if cancel, ok := r.running[ref]; ok {
		cancel()
		delete(r.running, ref)
	}
	if known.stored {
		r.closed = append(r.closed, ref)
	}
	known.stored, known.since, known.deadline = false, r.engine.Clock.Now(), due
	r.open[ref] = known
}

// round begins the next round of a poll.
func (r *run) round(op history.Op, known openOp) {
	p := *known.poll
	p.Calling = true
	known.poll = &p
	r.reopen(op.Ref, known, r.roundUntil(p))
}

// roundUntil bounds a round: a call that is lost must not take the whole time of a poll.
func (r *run) roundUntil(p Polling) time.Time {
	until := r.engine.Clock.Now().Add(r.engine.Settings.CallTimeout)
	if p.Deadline.Before(until) {
		return p.Deadline
	}
	return until
}

// observe takes the answer of a round. The program looks at a value and ends the poll if it likes it. An error ends it
// too, except one that may pass: the cluster was away, or the answer did not come.
func (r *run) observe(op history.Op, known openOp, c history.Completion) {
	if c.Round != known.poll.Round || !known.poll.Calling {
		return // of a round that was given up
	}
	p := *known.poll
	if c.Error != nil && (c.Error.Retryable || c.Error.Code == history.CodeTimeout) && !op.NoRetry {
		p.Error = c.Error
	} else {
		r.machine.Complete(c)
		if again, pending := r.pending(op.Ref); !pending || again.Kind != history.KindPoll {
			r.forget(op.Ref)
			return
		}
		p.Value, p.Error = c.Value, nil
	}
	p.Round, p.Calling = p.Round+1, false
	known.poll = &p
	due := r.engine.Clock.Now().Add(op.Interval)
	if p.Deadline.Before(due) {
		due = p.Deadline
	}
	r.reopen(op.Ref, known, due)
}

// pollTime is what the end of a round's or a pause's time means. That the timer has fired says that the time is over, and not this
// process's clock: it may be behind that of the process which fired it, and a fired timer does not fire again.
func (r *run) pollTime(op history.Op, known openOp) {
	p := known.poll
	switch {
	case !known.stored:
		// The timer of the phase before: an answer that came with it has ended that. The store knows nothing of this one yet.
	case !known.deadline.Before(p.Deadline), !r.engine.Clock.Now().Before(p.Deadline):
		r.finish(history.Completion{Op: op.Ref, Value: p.Value, Error: p.expired(op, r.limit(op))})
	case p.Calling:
		r.observe(op, known, history.Completion{
			Op: op.Ref, Round: p.Round,
			Error: &history.FunctionError{Code: history.CodeTimeout, Message: op.Name + " was not answered in time"},
		})
	default:
		r.round(op, known)
	}
}

// expired says what was waited for, and what there was instead (D12).
func (p Polling) expired(op history.Op, limit time.Duration) *history.FunctionError {
	message := fmt.Sprintf("%s was not as expected within %s, asked %d times", op.Name, limit, p.Round-1)
	switch {
	case p.Error != nil:
		message += fmt.Sprintf("; the last error was %s", p.Error)
	case p.Value != nil:
		const shown = 300
		message += "; the last answer was " + history.Storable(history.Truncate(string(p.Value), shown))
	}
	return &history.FunctionError{Code: history.CodeTimeout, Message: message}
}
