package store

import (
	"cmp"
	"context"

	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/engine"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/execution"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/store/query"
)

// The parts of a transaction that carries many commits. Each is one statement for all of them.

// continues reports whether a turn has recorded something and its execution keeps running, as after each step: its entries say where the
// execution is, and its row stays as it is.
func (c *commit) continues() bool {
	return c.Next == execution.Running && c.Turn > 0 && len(c.Entries) > 0 && c.Continue == nil
}

// lockTurns locks the executions of commits and returns those that pass the fence: the caller still owns them, and the
// turn is current. The rows stay locked until the commit.
func lockTurns(ctx context.Context, q *query.Queries, commits []*commit) ([]*commit, error) {
	if len(commits) == 0 {
		return nil, nil
	}
	var p query.LockTurnsParams
	for _, c := range commits {
		p.Ids, p.Turns = append(p.Ids, c.Execution.ID), append(p.Turns, c.Turn)
		p.Owners, p.Epochs = append(p.Owners, c.Lease.Instance), append(p.Epochs, c.Lease.Epoch)
		p.LastSeqs, p.Recorded = append(p.LastSeqs, c.LastSeq), append(p.Recorded, len(c.Entries) > 0)
	}
	rows, err := q.LockTurns(ctx, p)
	if err != nil {
		return nil, pg.Classify(err, "lock %d executions", len(commits))
	}
	locked := make(map[int64]query.LockTurnsRow, len(rows))
	for _, row := range rows {
		locked[row.ID] = row
	}
	var passed []*commit
	for _, c := range commits {
		row, ok := locked[c.Execution.ID]
		if c.fenced = !ok || row.Turn != c.Turn; c.fenced {
			continue
		}
		delete(locked, row.ID) // of two turns of one execution, which only a fault could bring here, one passes
		if passed = append(passed, c); c.Next == execution.Parked && row.Wakes != c.Wakes {
			c.pass(execution.Running)
		} else {
			c.pass(c.Next)
		}
	}
	return passed, nil
}

// endTurns is the fence: every turn passes it, or the transaction is refused.
func endTurns(ctx context.Context, q *query.Queries, commits []*commit, strict bool) error {
	var all query.HoldTurnsParams
	ending := query.EndTurnsParams{Strict: strict}
	for _, c := range commits {
		all.Ids, all.Turns = append(all.Ids, c.Execution.ID), append(all.Turns, c.Turn)
		all.Owners, all.Epochs = append(all.Owners, c.Lease.Instance), append(all.Epochs, c.Lease.Epoch)
		if c.continues() {
			continue
		}
		ending.Ids, ending.Turns = append(ending.Ids, c.Execution.ID), append(ending.Turns, c.Turn)
		ending.Owners, ending.Epochs = append(ending.Owners, c.Lease.Instance), append(ending.Epochs, c.Lease.Epoch)
		ending.LastSeqs, ending.Nexts = append(ending.LastSeqs, c.LastSeq), append(ending.Nexts, c.Next.String())
		ending.Wakes, ending.Errors, ending.Ended = append(ending.Wakes, c.Wakes), append(ending.Errors, c.Error), append(ending.Ended, c.At)
		ending.Recorded = append(ending.Recorded, len(c.Entries) > 0)
	}
	if len(ending.Ids) < len(all.Ids) {
		if err := q.HoldTurns(ctx, all); err != nil {
			return pg.Classify(err, "hold %d executions", len(all.Ids))
		}
	}
	if len(ending.Ids) == 0 {
		return nil
	}
	return pg.Classify(q.EndTurns(ctx, ending), "end %d turns", len(ending.Ids))
}

func appendEntries(ctx context.Context, q *query.Queries, commits []*commit) error {
	p, err := entryRows(commits)
	if err != nil || len(p.Executions) == 0 {
		return err
	}
	if mayBeTried(commits) {
		return pg.Classify(appendTried(ctx, q, p, commits), "append to the histories of %d executions", len(commits))
	}
	return pg.Classify(q.AppendMany(ctx, p), "append to the histories of %d executions", len(commits))
}

// entryRows are the rows of the entries of turns.
func entryRows(commits []*commit) (p query.AppendManyParams, err error) {
	for _, c := range commits {
		for i, e := range c.Entries {
			value := string(e.Value)
			if stored, large := c.values[i]; large {
				value = stored.Text
			}
			refusal, err := encodeError(e.Error)
			if err != nil {
				return p, err
			}
			p.Executions, p.Seqs = append(p.Executions, c.Execution.ID), append(p.Seqs, e.Seq)
			p.Branches, p.Ops = append(p.Branches, int32(e.Op.Branch)), append(p.Ops, int32(e.Op.Index))
			p.Kinds, p.Names, p.Hashes = append(p.Kinds, string(e.Kind)), append(p.Names, e.Name), append(p.Hashes, int64(e.Hash))
			p.Vals, p.Errors = append(p.Vals, value), append(p.Errors, string(refusal))
			p.Events, p.Ats = append(p.Events, e.Event), append(p.Ats, e.At)
		}
	}
	return p, nil
}

// closeOps deletes the open rows of operations that are part of the history now, and all open rows of executions that have ended.
func closeOps(ctx context.Context, q *query.Queries, commits []*commit) error {
	var ended []int64
	var p query.CloseManyParams
	for _, c := range commits {
		if c.Next.Ended() {
			if !c.Bare {
				ended = append(ended, c.Execution.ID)
			}
			continue
		}
		for _, op := range c.Closed {
			p.Executions = append(p.Executions, c.Execution.ID)
			p.Branches, p.Ops = append(p.Branches, int32(op.Branch)), append(p.Ops, int32(op.Index))
		}
	}
	if len(ended) > 0 {
		if err := q.DropMany(ctx, ended); err != nil {
			return pg.Classify(err, "close everything of %d executions", len(ended))
		}
	}
	if len(p.Executions) == 0 {
		return nil
	}
	return pg.Classify(q.CloseMany(ctx, p), "close %d operations", len(p.Executions))
}

// opRow names an operation of an execution.
type opRow struct {
	execution  int64
	branch, op int32
}

// openOps stores new timers, calls and waits. It returns the waits, which have to be matched.
func openOps(ctx context.Context, q *query.Queries, commits []*commit) ([]opRow, error) {
	var timers query.OpenTimersParams
	var calls query.OpenCallsParams
	var waits query.OpenWaitsParams
	var polls query.OpenPollsParams
	var opened []opRow
	for _, c := range commits {
		for _, o := range c.Open {
			row := opRow{c.Execution.ID, int32(o.Op.Ref.Branch), int32(o.Op.Ref.Index)}
			// Everything that blocks has a deadline (D12), and so a timer.
			timers.Executions, timers.Branches = append(timers.Executions, row.execution), append(timers.Branches, row.branch)
			timers.Ops, timers.Dues, timers.Opened = append(timers.Ops, row.op), append(timers.Dues, o.Due), append(timers.Opened, c.At)
			if o.Location == activity.Held {
				if err := addCall(&calls, c, o, row); err != nil {
					return nil, err
				}
				continue
			}
			switch o.Op.Kind {
			case history.KindRun:
				if err := addCall(&calls, c, o, row); err != nil {
					return nil, err
				}
			case history.KindPoll:
				if err := addPoll(&polls, &calls, c, o, row); err != nil {
					return nil, err
				}
			case history.KindWait, history.KindReceive:
				opened = append(opened, row)
			default: // a sleep is its timer; nothing else blocks
			}
		}
		for _, w := range c.waits {
			waits.Executions, waits.Branches = append(waits.Executions, w.execution), append(waits.Branches, w.branch)
			waits.Ops = append(waits.Ops, w.op)
			waits.Keys, waits.Shapes, waits.Types = append(waits.Keys, w.key[:]), append(waits.Shapes, w.shape), append(waits.Types, w.eventType)
			waits.Filters, waits.Ats = append(waits.Filters, w.filter), append(waits.Ats, c.At)
		}
	}
	for _, part := range []struct {
		rows int
		save func() error
	}{
		{len(timers.Executions), func() error { return q.OpenTimers(ctx, timers) }},
		{len(calls.Executions), func() error { return q.OpenCalls(ctx, calls) }},
		{len(waits.Executions), func() error { return q.OpenWaits(ctx, waits) }},
		{len(polls.Executions), func() error { return q.OpenPolls(ctx, polls) }},
	} {
		if part.rows == 0 {
			continue
		}
		if err := part.save(); err != nil {
			return nil, pg.Classify(err, "open operations of %d executions", len(commits))
		}
	}
	return opened, nil
}

// addCall adds the row of a call, or of a round of a poll, which is not retried, since the next round is. Calls of in-process Functions are
// never sent: their rows show what the run waits for.
func addCall(p *query.OpenCallsParams, c *commit, o engine.Opening, row opRow) error {
	retry, err := encodeRetry(o.Op.Retry)
	if err != nil {
		return err
	}
	p.Retries = append(p.Retries, retry)
	p.Ids = append(p.Ids, cmp.Or(o.Request, o.Op.Activity(c.Execution.Ref)))
	p.Executions, p.Branches, p.Ops = append(p.Executions, row.execution), append(p.Branches, row.branch), append(p.Ops, row.op)
	p.Functions, p.Args = append(p.Functions, o.Op.Name), append(p.Args, string(o.Op.Args))
	p.Locations, p.Agents = append(p.Locations, int16(o.Location)), append(p.Agents, o.Agent)
	holder, at := "", c.At
	if o.Room != nil {
		holder, at = o.Room.Holder, o.Room.Until
	}
	p.Holders = append(p.Holders, holder)
	p.NoRetries, p.Ats, p.Deadlines = append(p.NoRetries, o.Op.NoRetry || o.Poll != nil), append(p.Ats, at), append(p.Deadlines, o.Due)
	return nil
}
