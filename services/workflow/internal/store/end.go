package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/control"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/engine"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/execution"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/store/payloads"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/store/query"
)

// Cancel ends an execution. It does not need the owner's consent: state and turn change under the lock, and the owner's
// next commit is fenced. A Function that is in progress may still have its effect; its answer finds no call.
//
// An execution that has deferred calls is not ended but sent the cancellation: it ends when it has made them.
func (s *Store) Cancel(ctx context.Context, organization int64, workflow, reason string, at time.Time) (bool, error) {
	return s.end(ctx, organization, workflow, ending{
		state: execution.Cancelled, kind: history.KindCancelled, event: history.TypeCancelled, error: reason,
		data: map[string]string{"workflow_id": workflow, "reason": reason}, at: at,
	})
}

// Terminate is Cancel by an operator. It is published as a failure, which every consumer handles (D36).
func (s *Store) Terminate(ctx context.Context, organization int64, workflow, reason string, at time.Time) (bool, error) {
	why := "terminated: " + reason
	return s.end(ctx, organization, workflow, ending{
		state: execution.Terminated, kind: history.KindTerminated, event: history.TypeFailed, error: why,
		data: map[string]string{"workflow_id": workflow, "error": why}, at: at,
	})
}

// Quarantine ends an execution that kills the processes which run it. It is published as a failure (D36).
func (s *Store) Quarantine(ctx context.Context, organization int64, workflow, reason string, at time.Time) (bool, error) {
	return s.end(ctx, organization, workflow, ending{
		state: execution.Quarantined, kind: history.KindQuarantined, event: history.TypeFailed, error: reason,
		data: map[string]string{"workflow_id": workflow, "error": reason}, at: at,
	})
}

// ending is how an execution is ended from outside.
type ending struct {
	state execution.State
	kind  history.Kind
	// event is the type of the event that is published, data is the payload of that and of the last entry.
	event string
	data  map[string]string
	error string
	at    time.Time
}

// end writes state, last entry and event, and removes everything that is open, in one transaction.
func (s *Store) end(ctx context.Context, organization int64, workflow string, with ending) (bool, error) {
	data, err := json.Marshal(with.data)
	if err != nil {
		return false, fmt.Errorf("encode the end of %q: %w", workflow, err)
	}
	var ended int64
	var woken []engine.Woken
	var met bool
	err = s.tx(ctx, func(tx pgx.Tx, q *query.Queries) error {
		ended, woken, met = 0, nil, false
		// The locks of matching are always taken before that of an execution, and executions in the order of their ids.
		own, err := q.ExecutionID(ctx, query.ExecutionIDParams{Organization: organization, Workflow: workflow})
		if err != nil {
			return pg.Classify(err, "find workflow %q", workflow)
		}
		published := &newEvent{Event: history.Event{Organization: organization, Source: event.SourceWorkflow, Type: with.event, Data: data}}
		filters, err := s.lockMatching(ctx, q, newMatchLocks(), []*newEvent{published}, nil, own, false)
		if err != nil {
			return err
		}
		row, err := lockWorkflow(ctx, q, organization, workflow)
		// That it has ended already is no error: the caller has what it wants.
		if err != nil || execution.Named(row.State).Ended() {
			return err
		}
		if with.kind == history.KindCancelled {
			if woken, err = s.sendCancellation(ctx, q, row.ID, data); err != nil || woken != nil {
				return err
			}
		}
		current, err := currentGeneration(ctx, q, row.ID)
		if err != nil {
			return err
		}
		end, err := lastEntry(ctx, q, row.ID)
		if err != nil {
			return err
		}
		err = q.EndExecution(ctx, query.EndExecutionParams{
			ID: row.ID, State: with.state.String(), Error: with.error, EndedAt: with.at, LastSeq: end + 1,
		})
		if err != nil {
			return pg.Classify(err, "end workflow %q", workflow)
		}
		last := &commit{Commit: engine.Commit{
			Execution: execution.Execution{ID: row.ID, Organization: organization}, Next: with.state, Family: with.state != execution.Quarantined,
			Entries: []history.Entry{{Seq: end + 1, Op: history.OpRef{Branch: -1}, Kind: with.kind, Value: data, At: with.at}},
			Emits: []history.Emit{{
				ID:           history.Handle(row.Ref, int(row.Attempt), current.number) + "/" + string(with.kind),
				Organization: organization, Workflow: workflow, Type: with.event, Data: data, Time: with.at,
			}},
		}}
		if err := s.encodeEmits(last); err != nil {
			return err
		}
		ends := []*commit{last}
		err = errors.Join(
			orphanChildren(ctx, q, ends), appendEntries(ctx, q, ends), closeOps(ctx, q, ends), s.Add(ctx, tx, last.wire...),
		)
		if err != nil {
			return err
		}
		ended = row.ID
		keyEvents(last.events, filters)
		large := new(payloads.Rows)
		for _, e := range last.events {
			large.Add(e.data, payloads.Event(e.Source, e.ID))
		}
		if err := large.Save(ctx, q, s.Clock.Now()); err != nil {
			return err
		}
		if woken, err = s.match(ctx, q, matching{events: last.events, filters: filters}); err != nil {
			return err
		}
		err = large.Use(ctx, q)
		met = startsFlow(last.events)
		return err
	})
	if err == nil && ended == 0 {
		s.wake(woken)
	}
	if err == nil && ended != 0 {
		s.Tally(organization, -1)
		s.Committed()
		if met {
			s.Met()
		}
		// Its owner learns it now, not at its next commit.
		s.wake(append(woken, engine.Woken{ID: ended}))
	}
	return ended != 0, err
}

// sendCancellation has an execution that is locked call what it has deferred; nil if it has deferred nothing. A second cancellation is a
// no-op.
func (s *Store) sendCancellation(ctx context.Context, q *query.Queries, execution int64, reason []byte) ([]engine.Woken, error) {
	defers, err := q.HasDeferred(ctx, query.HasDeferredParams{Execution: execution, Kind: string(history.KindDefer)})
	if err != nil || !defers {
		return nil, pg.Classify(err, "find the deferred calls of execution %d", execution)
	}
	err = q.DeliverCancellation(ctx, query.DeliverCancellationParams{
		Execution: execution, Branch: int32(history.Cancellation.Branch), Op: int32(history.Cancellation.Index), Value: reason,
	})
	if err != nil {
		return nil, pg.Classify(err, "deliver the cancellation of execution %d", execution)
	}
	woken, err := s.wakeMany(ctx, q, []int64{execution}, nil)
	if woken == nil {
		woken = []engine.Woken{}
	}
	return woken, err
}

// lockWorkflow locks an execution by the id that its caller chose.
func lockWorkflow(ctx context.Context, q *query.Queries, organization int64, workflow string) (query.LockWorkflowRow, error) {
	row, err := q.LockWorkflow(ctx, query.LockWorkflowParams{Organization: organization, Workflow: workflow})
	if errors.Is(err, pgx.ErrNoRows) {
		return row, fault.New(fault.NotFound, "there is no workflow %q in organization %d", workflow, organization)
	}
	return row, pg.Classify(err, "lock workflow %q", workflow)
}

// lastEntry is the number of the last entry of an execution that is locked. It is a statement after that which locks, because a single one
// would not see what the owner has committed while it waited for the lock.
func lastEntry(ctx context.Context, q *query.Queries, execution int64) (int64, error) {
	seq, err := q.LastEntry(ctx, execution)
	return seq, pg.Classify(err, "find the end of the history of execution %d", execution)
}

// Retry cuts the history of a failed execution and has it run again. It increments the turn, so that an owner which still has
// the failed attempt in memory is fenced.
func (s *Store) Retry(ctx context.Context, r control.RetryRequest) error {
	var retried int64
	err := s.tx(ctx, func(_ pgx.Tx, q *query.Queries) error {
		row, err := lockWorkflow(ctx, q, r.Organization, r.Workflow)
		if err != nil {
			return err
		}
		state := execution.Named(row.State)
		if state != execution.Failed && state != execution.Quarantined {
			return fault.New(fault.Refused, "workflow %q is %s; only one that has failed or is quarantined can be retried", r.Workflow, state)
		}
		from, _, err := cut(ctx, q, row, "from_sequence", r.Workflow, r.From)
		if err != nil {
			return err
		}
		retried = row.ID
		return pg.Classify(errors.Join(
			q.SaveRetry(ctx, query.SaveRetryParams{Execution: row.ID, FromSeq: from, Reason: r.Reason, RetriedAt: r.At}),
			q.MarkConsumed(ctx, query.MarkConsumedParams{Execution: row.ID, Seq: from}),
			q.ForgetEntries(ctx, query.ForgetEntriesParams{Execution: row.ID, Seq: from}),
			q.DropEntryPayloads(ctx, query.DropEntryPayloadsParams{Execution: row.ID, Seq: from}),
			q.ReopenChannels(ctx, query.ReopenChannelsParams{Execution: row.ID, Seq: from}),
			q.RetryExecution(ctx, query.RetryExecutionParams{ID: row.ID, FromSeq: from}),
		), "retry workflow %q", r.Workflow)
	})
	if err == nil {
		s.Tally(r.Organization, 1)
		s.wake([]engine.Woken{{ID: retried}}) // a process with room claims it
	}
	return err
}

// cut is the entry from which on a history is discarded, from the caller's or else the step that failed, and the end of the generation
// before.
func cut(
	ctx context.Context, q *query.Queries, row query.LockWorkflowRow, field, workflow string, from int64,
) (seq int64, current generation, err error) {
	last, err := lastEntry(ctx, q, row.ID)
	if err != nil {
		return 0, current, err
	}
	if current, err = currentGeneration(ctx, q, row.ID); err != nil {
		return 0, current, err
	}
	switch {
	case from != 0:
	case execution.Named(row.State) == execution.Quarantined:
		from = last // nothing that it recorded has failed: it continues where it was
	default:
		from, err = q.FailedStep(ctx, query.FailedStepParams{
			Execution: row.ID, Base: current.base, Immediate: immediateKinds(), Ending: string(history.KindEnding),
		})
		if err != nil {
			return 0, current, pg.Classify(err, "find the failed step of workflow %q", workflow)
		}
	}
	if from > last {
		return 0, current, fault.InvalidFields(fault.Field{
			Name: field, Problem: fmt.Sprintf("found %d, expected at most %d, the end of the history", from, last),
		})
	}
	if from <= current.base {
		return 0, current, fault.InvalidFields(fault.Field{Name: field, Problem: fmt.Sprintf(
			"found %d, which is of a generation that has ended; expected at least %d, the beginning of generation %d",
			from, current.base+1, current.number)})
	}
	taken, err := q.ChannelsTaken(ctx, query.ChannelsTakenParams{Execution: row.ID, Before: from})
	if err != nil {
		return 0, current, pg.Classify(err, "find the channels of workflow %q", workflow)
	}
	if taken > 0 {
		return 0, current, fault.New(fault.Refused,
			"%d channels of workflow %q belong to a workflow that it was reset to; end that one first, or continue from an entry before them", taken,
			workflow)
	}
	return from, current, nil
}

// immediateKinds are operations that are answered immediately: a retry from one of them would fail in the same way.
func immediateKinds() []string {
	return []string{
		string(history.KindNow), string(history.KindUUID), string(history.KindRandom),
		string(history.KindChannel), string(history.KindPrint), string(history.KindEmit),
		string(history.KindAttempt), string(history.KindPatched), string(history.KindDefer),
		string(history.KindStart), string(history.KindStatus), string(history.KindReply),
	}
}
