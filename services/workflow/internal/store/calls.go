package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/agent"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/engine"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/store/query"
)

// FireTimers marks due timers and wakes their executions. Executions are locked before their timers, as everywhere.
// Which timers are due is read without a lock: a timer that is closed meanwhile causes a needless wake-up and nothing else.
// fired counts the timers that were found, so fired = limit means that more may be due.
func (s *Store) FireTimers(ctx context.Context, now time.Time, limit int) (fired int, next time.Time, err error) {
	timers, err := s.queries.DueTimers(ctx, query.DueTimersParams{Now: now, Most: int32(limit)})
	if err != nil {
		return 0, next, pg.Classify(err, "find due timers")
	}
	if last := len(timers) - 1; last >= 0 && timers[last].Due.After(now) {
		next, timers = timers[last].Due, timers[:last]
	}
	if len(timers) == 0 {
		return 0, next, nil
	}
	ids := make([]int64, len(timers))
	arrivals := make(map[int64]*engine.Arrival, len(timers))
	for i, t := range timers {
		ids[i], arrivals[t.Execution] = t.Execution, &engine.Arrival{} // addTimers fills it in
	}
	var woken []engine.Woken
	err = s.pipelined(ctx, func(_ pgx.Tx, q *query.Queries) error {
		if woken, err = s.wakeMany(ctx, q, ids, arrivals); err != nil {
			return err
		}
		rows, err := q.FireTimers(ctx, query.FireTimersParams{Ids: ids, Now: now})
		addTimers(woken, rows)
		return pg.Classify(err, "fire timers")
	})
	if err != nil {
		return 0, time.Time{}, err
	}
	s.wake(woken)
	return len(ids), next, nil
}

// addTimers adds to each wake-up the one timer that has fired for its execution. If several have, the execution reads them, since their
// order matters.
func addTimers(woken []engine.Woken, fired []query.FireTimersRow) {
	ended := make(map[int64]*engine.Arrival, len(fired))
	for _, row := range fired {
		if _, more := ended[row.Execution]; more {
			ended[row.Execution] = nil
			continue
		}
		ended[row.Execution] = &engine.Arrival{Op: ref(row.Branch, row.Op), Kind: engine.TimerArrived}
	}
	for i := range woken {
		if a := ended[woken[i].ID]; a != nil {
			woken[i].Wakeup.Arrival = *a
		} else {
			woken[i].Wakeup = nil
		}
	}
}

// The interval between attempts grows from the first to the longest. The first is short, because a crash right before the
// first attempt delays the call by as much; a relay that carries out the call already ignores another attempt.
const (
	firstResend   = 2 * time.Second
	longestResend = 2 * time.Minute
)

// NextCalls takes the calls that are to be sent now. It is one statement: the attempt is counted and the next one set
// before anything is sent, and each call goes to one process only.
func (s *Store) NextCalls(ctx context.Context, now time.Time, limit int) ([]agent.OutgoingCall, error) {
	rows, err := s.queries.NextCalls(ctx, query.NextCallsParams{
		Now: now, Most: int32(limit), First: interval(firstResend), Longest: interval(longestResend),
	})
	if err != nil {
		return nil, pg.Classify(err, "take calls to send")
	}
	// The rows are in the order of the plan. Calls that are due together go out in the order of their ids.
	slices.SortFunc(rows, func(a, b query.NextCallsRow) int { return strings.Compare(a.ID, b.ID) })
	calls := make([]agent.OutgoingCall, len(rows))
	for i, row := range rows {
		calls[i] = agent.OutgoingCall{
			ID: row.ID, Agent: row.Agent, Function: row.Function, Args: row.Args,
			Attempt: int(row.Attempt), Deadline: row.Deadline, Workflow: row.Workflow, Organization: row.Organization, Trace: row.Trace,
		}
	}
	return calls, nil
}

// interval is a duration without months and days, so that the arithmetic of the query is exact.
func interval(d time.Duration) pgtype.Interval {
	return pgtype.Interval{Microseconds: d.Microseconds(), Valid: true}
}

// Answer stores a relay's answer. An answer to a call that runs no longer wait for is a no-op.
func (s *Store) Answer(ctx context.Context, a agent.Answer, retryAt time.Time) error {
	var woken []engine.Woken
	err := s.tx(ctx, func(tx pgx.Tx, q *query.Queries) (err error) {
		woken = nil
		// Read without a lock, to learn whose call it is: an execution is locked before the rows that belong to it.
		call, err := q.FindCall(ctx, a.Call)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return pg.Classify(err, "find call %q", a.Call)
		}
		// The bus authenticates the agent, not the call that it names: no agent may answer for another.
		if activity.Location(call.Location) != activity.Cluster || call.Agent != a.Agent {
			return fault.New(fault.Denied, "agent %d answered call %q, which is not its own", a.Agent, a.Call)
		}
		if err := q.LockExecution(ctx, call.Execution); err != nil {
			return pg.Classify(err, "lock execution %d", call.Execution)
		}
		pause, again := retryAt.Sub(s.Clock.Now()), true
		if a.Error != nil && call.Retry != nil {
			policy, err := decodeRetry(call.Retry)
			if err != nil {
				return fmt.Errorf("call %q: %w", a.Call, err)
			}
			pause, again = policy.Pause(int(call.Refused)+1, a.Error.Code)
		}
		now := s.Clock.Now()
		retryAt := now.Add(pause)
		// If no time is left for another attempt, the program gets this error and not a timeout.
		if a.Error != nil && a.Error.Retryable && !call.NoRetry && again && retryAt.Before(call.Deadline) {
			tries, err := triedAgain(call, time.Time{}, now, retryAt, a.Error)
			if err != nil {
				return err
			}
			p := query.PostponeCallParams{ID: a.Call, NextAt: &retryAt, Tries: tries}
			return pg.Classify(q.PostponeCall(ctx, p), "postpone call %q", a.Call)
		}
		woken, _, err = s.deliver(ctx, tx, q, a, nil)
		return err
	})
	if err == nil {
		s.wake(woken)
	}
	return err
}

// deliver stores the first answer, under the lock of the execution, and ends the transaction with it. It is a no-op if the call was closed
// before the lock was acquired, or is no longer the session's, if one is given: it is not accepted then.
func (s *Store) deliver(ctx context.Context, tx pgx.Tx, q *query.Queries, a agent.Answer, session *string) (
	woken []engine.Woken, accepted bool, err error,
) {
	refusal, err := encodeError(a.Error)
	if err != nil {
		return nil, false, err
	}
	// The first answer counts: two relays may carry out the call, or one may answer twice (E24).
	calls, err := q.DeliverAnswer(ctx, query.DeliverAnswerParams{ID: a.Call, Session: session, Value: a.Value, Error: refusal})
	if err != nil {
		return nil, false, pg.Classify(err, "deliver answer to call %q", a.Call)
	}
	var answered []int64
	for _, call := range calls {
		if call.First {
			answered = append(answered, call.Execution)
		}
	}
	pg.Last(tx)
	woken, err = s.wakeMany(ctx, q, answered, nil)
	return woken, len(calls) > 0, err
}
