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
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/store/query"
)

// FireTimers marks due timers and wakes their executions. Executions are locked before their timers, as everywhere.
// Which timers are due is read without a lock: of one that is closed meanwhile nothing comes but a needless wake-up.
// fired counts what was found, so the caller can tell from limit that more are due.
func (s *Store) FireTimers(ctx context.Context, now time.Time, limit int) (fired int, next time.Time, err error) {
	ids, err := s.queries.DueExecutions(ctx, query.DueExecutionsParams{Now: now, Most: int32(limit)})
	if err != nil {
		return 0, next, pg.Classify(err, "find due timers")
	}
	if len(ids) > 0 {
		var woken []core.Woken
		came := make(map[int64]*core.Arrival, len(ids))
		for _, id := range ids {
			came[id] = &core.Arrival{} // tellFired fills it in
		}
		err = s.pipelined(ctx, func(_ pgx.Tx, q *query.Queries) error {
			if woken, err = s.wakeMany(ctx, q, ids, came); err != nil {
				return err
			}
			rows, err := q.FireTimers(ctx, query.FireTimersParams{Ids: ids, Now: now})
			tellFired(woken, rows)
			return pg.Classify(err, "fire timers")
		})
		if err != nil {
			return 0, next, err
		}
		s.wake(woken)
	}
	next, err = s.queries.NextTimer(ctx)
	if errors.Is(err, pgx.ErrNoRows) {
		return len(ids), time.Time{}, nil
	}
	return len(ids), next, pg.Classify(err, "find next timer")
}

// tellFired says of each execution that is woken for the end of one timer which one that is. Of several the execution has to read
// the order.
func tellFired(woken []core.Woken, fired []query.FireTimersRow) {
	ended := make(map[int64]*core.Arrival, len(fired))
	for _, row := range fired {
		if _, more := ended[row.Execution]; more {
			ended[row.Execution] = nil
			continue
		}
		ended[row.Execution] = &core.Arrival{Op: ref(row.Branch, row.Op), Kind: core.TimerArrived}
	}
	for i := range woken {
		if a := ended[woken[i].ID]; a != nil {
			woken[i].Came.Arrival = *a
		} else {
			woken[i].Came = nil
		}
	}
}

// The interval between attempts grows from the first to the longest. The first is short: a crash right before the
// first attempt costs as much, and a relay that carries the call out already does nothing with another attempt at it.
const (
	firstResend   = 2 * time.Second
	longestResend = 2 * time.Minute
)

// NextCalls takes the calls that are to be sent now. It is one statement: the attempt is counted and the next one set
// before anything is sent, and a call goes to one of several processes only.
func (s *Store) NextCalls(ctx context.Context, now time.Time, limit int) ([]core.OutgoingCall, error) {
	rows, err := s.queries.NextCalls(ctx, query.NextCallsParams{
		Now: now, Most: int32(limit), First: interval(firstResend), Longest: interval(longestResend),
	})
	if err != nil {
		return nil, pg.Classify(err, "take calls to send")
	}
	// The statement answers in the order of its plan. Calls that are due together go out in the order of their ids.
	slices.SortFunc(rows, func(a, b query.NextCallsRow) int { return strings.Compare(a.ID, b.ID) })
	calls := make([]core.OutgoingCall, len(rows))
	for i, row := range rows {
		calls[i] = core.OutgoingCall{
			ID: row.ID, Agent: row.Agent, Function: row.Function, Args: row.Args,
			Attempt: int(row.Attempt), Deadline: row.Deadline, Workflow: row.Workflow, Organization: row.Organization, Trace: row.Trace,
		}
	}
	return calls, nil
}

// interval has no months or days in it: the arithmetic of the query is exact.
func interval(d time.Duration) pgtype.Interval {
	return pgtype.Interval{Microseconds: d.Microseconds(), Valid: true}
}

// Answer takes a relay's answer. Answers to calls that nobody waits for any more change nothing.
func (s *Store) Answer(ctx context.Context, a core.Answer, retryAt time.Time) error {
	var woken []core.Woken
	err := s.tx(ctx, func(_ pgx.Tx, q *query.Queries) (err error) {
		woken = nil
		// Without a lock, to learn whose call it is: an execution is locked before anything that belongs to it.
		call, err := q.FindCall(ctx, a.Call)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return pg.Classify(err, "find call %q", a.Call)
		}
		// The bus vouches for the agent and not for the call it names: no agent may answer for another.
		if core.Location(call.Location) != core.Cluster || call.Agent != a.Agent {
			return fault.New(fault.Denied, "agent %d answered call %q, which is not its own", a.Agent, a.Call)
		}
		if _, err := q.LockExecution(ctx, call.Execution); err != nil {
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
		retryAt := s.Clock.Now().Add(pause)
		// Where no time is left for another attempt, the program gets this error and not a timeout.
		if a.Error != nil && a.Error.Retryable && !call.NoRetry && again && retryAt.Before(call.Deadline) {
			return pg.Classify(q.PostponeCall(ctx, query.PostponeCallParams{ID: a.Call, NextAt: &retryAt}), "postpone call %q", a.Call)
		}
		woken, err = s.deliver(ctx, q, call, a)
		return err
	})
	if err == nil {
		s.wake(woken)
	}
	return err
}

// deliver hands over the first answer; the execution's lock is held. The call may have been closed before the lock was
// had, and then there is nothing to hand it to.
func (s *Store) deliver(ctx context.Context, q *query.Queries, call query.FindCallRow, a core.Answer) ([]core.Woken, error) {
	if _, err := q.FindCall(ctx, a.Call); errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	refusal, err := encodeError(a.Error)
	if err != nil {
		return nil, err
	}
	// The first answer stays: attempts may be carried out by two relays, or answered twice (E24).
	n, err := q.DeliverAnswer(ctx, query.DeliverAnswerParams{
		Execution: call.Execution, Branch: call.Branch, Op: call.Op, Value: a.Value, Error: refusal,
	})
	if err != nil || n == 0 {
		return nil, pg.Classify(err, "deliver answer to call %q", a.Call)
	}
	if err := q.StopSending(ctx, a.Call); err != nil {
		return nil, pg.Classify(err, "stop sending call %q", a.Call)
	}
	return s.wakeMany(ctx, q, []int64{call.Execution}, nil)
}
