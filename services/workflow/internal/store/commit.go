package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/store/query"
)

// Commit ends a turn in one transaction, and then matches what it made known.
func (s *Store) Commit(ctx context.Context, c core.Commit) (core.Committed, error) {
	var done core.Committed
	var events []int64
	err := s.tx(ctx, func(tx pgx.Tx, q *query.Queries) (err error) {
		// The fence is first, and its update holds the execution's row: what follows is alone with it until the commit.
		if done, err = fence(ctx, q, c); err != nil {
			return err
		}
		if err := appendEntries(ctx, q, c.Execution.ID, c.Entries); err != nil {
			return err
		}
		if err := openChannels(ctx, q, c.Execution, c.Entries); err != nil {
			return err
		}
		if c.Next.Ended() {
			err = dropAll(ctx, q, c.Execution.ID)
		} else {
			err = closeOps(ctx, q, c.Execution.ID, c.Closed)
		}
		if err != nil {
			return err
		}
		if err := open(ctx, q, c); err != nil {
			return err
		}
		events, err = s.emit(ctx, tx, q, c.Emits)
		return err
	})
	if err != nil {
		return core.Committed{}, err
	}
	s.afterCommit(ctx, c, events)
	return done, nil
}

// fence moves the execution on, if it is still the caller's and stands where the caller thinks. The answer's state is
// Running where Parked was asked for and the counter of wakes has moved since it was read.
func fence(ctx context.Context, q *query.Queries, c core.Commit) (core.Committed, error) {
	row, err := q.EndTurn(ctx, query.EndTurnParams{
		LastSeq: c.LastSeq, Next: int16(c.Next), Wakes: c.Wakes, Error: c.Error, Now: c.At,
		ID: c.Execution.ID, Turn: c.Turn, Owner: c.Lease.Instance, Epoch: c.Lease.Epoch,
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return core.Committed{}, fmt.Errorf("commit turn %d of execution %d: %w", c.Turn, c.Execution.ID, core.ErrFenced)
	}
	if err != nil {
		return core.Committed{}, pg.Classify(err, "commit turn %d of execution %d", c.Turn, c.Execution.ID)
	}
	return core.Committed{Turn: row.Turn, State: core.State(row.State)}, nil
}

func appendEntries(ctx context.Context, q *query.Queries, execution int64, entries []core.Entry) error {
	rows := make([]query.AppendEntriesParams, len(entries))
	for i, e := range entries {
		refusal, err := encodeError(e.Error)
		if err != nil {
			return err
		}
		rows[i] = query.AppendEntriesParams{
			Execution: execution, Seq: e.Seq, Branch: int32(e.Op.Branch), Op: int32(e.Op.Index),
			Kind: string(e.Kind), Name: e.Name, Hash: int64(e.Hash),
			Value: e.Value, Error: refusal, RecordedAt: e.At,
		}
		if e.Event != 0 {
			rows[i].Event = &e.Event
		}
	}
	_, err := q.AppendEntries(ctx, rows)
	// Two owners wrote the same number. The fence should have refused one; the primary key does it in any case.
	if err = pg.Classify(err, "append to the history of execution %d", execution); fault.Is(err, fault.Conflict) {
		return fmt.Errorf("%w: %w", core.ErrFenced, err)
	}
	return err
}

// closeOps removes what was open for operations that are part of the history now.
func closeOps(ctx context.Context, q *query.Queries, execution int64, ops []core.OpRef) error {
	if len(ops) == 0 {
		return nil
	}
	branches, indexes := make([]int32, len(ops)), make([]int32, len(ops))
	for i, op := range ops {
		branches[i], indexes[i] = int32(op.Branch), int32(op.Index)
	}
	return pg.Classify(errors.Join(
		q.CloseTimers(ctx, query.CloseTimersParams{Execution: execution, Branches: branches, Ops: indexes}),
		q.CloseWaits(ctx, query.CloseWaitsParams{Execution: execution, Branches: branches, Ops: indexes}),
		q.CloseCalls(ctx, query.CloseCallsParams{Execution: execution, Branches: branches, Ops: indexes}),
		q.CloseDeliveries(ctx, query.CloseDeliveriesParams{Execution: execution, Branches: branches, Ops: indexes}),
	), "close operations of execution %d", execution)
}

// dropAll removes everything an ended execution has open. The history stays: it is the record.
func dropAll(ctx context.Context, q *query.Queries, execution int64) error {
	return pg.Classify(errors.Join(
		q.DropTimers(ctx, execution), q.DropWaits(ctx, execution), q.DropCalls(ctx, execution), q.DropDeliveries(ctx, execution),
		q.DropChannels(ctx, execution),
	), "close everything of execution %d", execution)
}

// open stores new timers, calls and waits.
func open(ctx context.Context, q *query.Queries, c core.Commit) error {
	var timers []query.OpenTimerParams
	var calls []query.OpenCallParams
	var waits []query.OpenWaitParams
	for _, o := range c.Open {
		branch, index := int32(o.Op.Ref.Branch), int32(o.Op.Ref.Index)
		// Everything that blocks has a timer, for everything has a deadline (D12).
		timers = append(timers, query.OpenTimerParams{Execution: c.Execution.ID, Branch: branch, Op: index, Due: o.Due})
		switch o.Op.Kind {
		case core.KindRun:
			calls = append(calls, openCall(c, o, branch, index))
		case core.KindWait, core.KindReceive:
			rows, err := openWait(ctx, q, c, o)
			if err != nil {
				return err
			}
			waits = append(waits, rows...)
		default: // a sleep is its timer; nothing else blocks
		}
	}
	_, err := q.OpenTimer(ctx, timers)
	if err == nil {
		_, err = q.OpenCall(ctx, calls)
	}
	if err == nil {
		_, err = q.OpenWait(ctx, waits)
	}
	return pg.Classify(err, "open operations of execution %d", c.Execution.ID)
}

// openCall is the row of a run. Without NextAt it is never sent: those of in-process Functions say what is waited
// for.
func openCall(c core.Commit, o core.Opening, branch, index int32) query.OpenCallParams {
	p := query.OpenCallParams{
		ID: core.ActivityID(c.Execution.Ref, o.Op.Ref), Execution: c.Execution.ID, Branch: branch, Op: index,
		Function: o.Op.Name, Args: o.Op.Args, Location: int16(o.Location), Agent: o.Agent,
		NoRetry: o.Op.NoRetry, Deadline: o.Due,
	}
	if o.Location == core.Cluster {
		p.NextAt = &c.At
	}
	return p
}

// openWait makes one row for each kind of event that is waited for, under the key of its shape. A shape that is new is
// registered.
func openWait(ctx context.Context, q *query.Queries, c core.Commit, o core.Opening) ([]query.OpenWaitParams, error) {
	var rows []query.OpenWaitParams
	seen := map[[16]byte]bool{}
	for _, want := range o.Op.Wants() {
		paths := want.Filter.Paths()
		values := make([]string, len(paths))
		for i, path := range paths {
			values[i] = want.Filter[path]
		}
		key := core.Key(c.Execution.Organization, want.Type, paths, values)
		// A program may name a type or a channel twice; the rows would be the same.
		if seen[key] {
			continue
		}
		seen[key] = true
		filter, err := json.Marshal(want.Filter)
		if err != nil {
			return nil, fmt.Errorf("encode filter of %s: %w", o.Op.Position, err)
		}
		shape, err := findShape(ctx, q, c.Execution.Organization, want.Type, paths)
		if err != nil {
			return nil, err
		}
		rows = append(rows, query.OpenWaitParams{
			Execution: c.Execution.ID, Branch: int32(o.Op.Ref.Branch), Op: int32(o.Op.Ref.Index),
			Key: key[:], Shape: shape, Type: want.Type, Filter: filter, CreatedAt: c.At,
		})
	}
	return rows, nil
}

// findShape registers the set of paths by which events of the type get keys. When another transaction registers it at
// the same time, SaveShape waits for that one to commit, and the second look finds its row.
func findShape(ctx context.Context, q *query.Queries, organization int64, eventType string, paths []string) (int64, error) {
	if paths == nil {
		paths = []string{} // NULL would never be equal
	}
	find := query.FindShapeParams{Organization: organization, Type: eventType, Paths: paths}
	id, err := q.FindShape(ctx, find)
	if errors.Is(err, pgx.ErrNoRows) {
		if err = q.SaveShape(ctx, query.SaveShapeParams{Organization: organization, Type: eventType, Paths: paths}); err == nil {
			id, err = q.FindShape(ctx, find)
		}
	}
	return id, pg.Classify(err, "register filter %v of %s", paths, eventType)
}

// emit puts events into the outbox and, since this service's own programs may wait for them, into the table of
// events. The rows that come back are matched after the commit, because matching looks at what is committed only.
func (s *Store) emit(ctx context.Context, tx pgx.Tx, q *query.Queries, emits []core.Emit) ([]int64, error) {
	var stored []int64
	wire := make([]event.Event, 0, len(emits))
	for _, emit := range emits {
		e, err := s.Encode(emit)
		if err != nil {
			return nil, fmt.Errorf("encode event %q: %w", emit.ID, err)
		}
		wire = append(wire, e)
		id, err := s.save(ctx, q, core.Event{
			Organization: emit.Organization, Source: e.Source(), ID: emit.ID, Type: emit.Type, Data: emit.Data, Time: emit.Time,
		})
		if err != nil {
			return nil, err
		}
		if id != 0 {
			stored = append(stored, id)
		}
	}
	if len(wire) == 0 {
		return nil, nil
	}
	return stored, s.Add(ctx, tx, wire...)
}
