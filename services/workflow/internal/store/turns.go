package store

import (
	"cmp"
	"context"
	"slices"

	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/store/query"
)

// The parts of a transaction that carries many turns. Each is one statement for all of them.

// goesOn reports whether a turn has recorded something and its execution runs on, as behind each step: its entries say where it stands,
// and the row of the execution stays as it is.
func (t *turn) goesOn() bool {
	return t.Next == core.Running && t.Turn > 0 && len(t.Entries) > 0 && t.Continue == nil
}

// parted are the turns that go on and the others, each in the order of their executions, which is that in which these are locked.
func parted(turns []*turn) (going, ending []*turn) {
	slices.SortStableFunc(turns, func(a, b *turn) int { return cmp.Compare(a.Execution.ID, b.Execution.ID) })
	for _, t := range turns {
		if t.fenced = true; t.goesOn() {
			going = append(going, t)
		} else {
			ending = append(ending, t)
		}
	}
	return going, ending
}

// endTurns is the fence. It moves executions on that are still their callers' and stand where these think, and answers
// their turns. Its locks hold the executions' rows: what follows is alone with them until the commit.
func endTurns(ctx context.Context, q *query.Queries, turns []*turn) ([]*turn, error) {
	going, ending := parted(turns)
	var passed []*turn
	if len(going) > 0 {
		ids, err := q.HoldTurns(ctx, query.HoldTurnsParams(holds(turns)))
		if err != nil {
			return nil, pg.Classify(err, "hold %d executions", len(turns))
		}
		held := make(map[int64]bool, len(ids))
		for _, id := range ids {
			held[id] = true
		}
		for _, t := range going {
			if held[t.Execution.ID] {
				t.asAsked()
				passed = append(passed, t)
			}
		}
	}
	if len(ending) == 0 {
		return passed, nil
	}
	rows, err := q.EndTurns(ctx, endings(ending))
	if err != nil {
		return nil, pg.Classify(err, "commit %d turns", len(ending))
	}
	moved := make(map[int64]query.EndTurnsRow, len(rows))
	for _, row := range rows {
		moved[row.ID] = row
	}
	for _, t := range ending {
		// Of two turns of one execution, which only a fault could bring here, one passes: that whose number fits.
		row, ok := moved[t.Execution.ID]
		if !ok || row.Turn != t.Turn+1 {
			continue
		}
		delete(moved, t.Execution.ID)
		t.fenced, t.done = false, core.Committed{Turn: row.Turn, State: core.State(row.State)}
		passed = append(passed, t)
	}
	return passed, nil
}

// endTurnsAsAsked is endTurns where every turn is expected to pass and to get the state that it asks for. The caller tells them so when
// the transaction has been committed (asAsked).
func endTurnsAsAsked(ctx context.Context, q *query.Queries, turns []*turn) error {
	going, ending := parted(turns)
	if len(going) > 0 {
		if err := q.HoldTurnsAsAsked(ctx, holds(turns)); err != nil {
			return err
		}
	}
	if len(ending) == 0 {
		return nil
	}
	return q.EndTurnsAsAsked(ctx, query.EndTurnsAsAskedParams(endings(ending)))
}

// holds are the rows of turns whose executions are to be held.
func holds(turns []*turn) (p query.HoldTurnsAsAskedParams) {
	for _, t := range turns {
		p.Ids, p.Turns = append(p.Ids, t.Execution.ID), append(p.Turns, t.Turn)
		p.Owners, p.Epochs = append(p.Owners, t.Lease.Instance), append(p.Epochs, t.Lease.Epoch)
	}
	return p
}

// endings are the rows of turns that change those of their executions.
func endings(turns []*turn) (p query.EndTurnsParams) {
	for _, t := range turns {
		p.Ids, p.Turns = append(p.Ids, t.Execution.ID), append(p.Turns, t.Turn)
		p.Owners, p.Epochs = append(p.Owners, t.Lease.Instance), append(p.Epochs, t.Lease.Epoch)
		p.LastSeqs, p.Nexts = append(p.LastSeqs, t.LastSeq), append(p.Nexts, int16(t.Next))
		p.Wakes, p.Errors, p.Ended = append(p.Wakes, t.Wakes), append(p.Errors, t.Error), append(p.Ended, t.At)
		p.Recorded = append(p.Recorded, len(t.Entries) > 0)
	}
	return p
}

// asAsked is the outcome of a turn that has passed and got the state that it asked for.
func (t *turn) asAsked() {
	t.fenced, t.done = false, core.Committed{Turn: t.Turn, State: t.Next}
	if !t.goesOn() {
		t.done.Turn++
	}
}

func appendEntries(ctx context.Context, q *query.Queries, turns []*turn) error {
	p, err := entryRows(turns)
	if err != nil || len(p.Executions) == 0 {
		return err
	}
	return pg.Classify(q.AppendMany(ctx, p), "append to the histories of %d executions", len(turns))
}

// entryRows are the rows of what turns have recorded.
func entryRows(turns []*turn) (p query.AppendManyParams, err error) {
	for _, t := range turns {
		for _, e := range t.Entries {
			refusal, err := encodeError(e.Error)
			if err != nil {
				return p, err
			}
			p.Executions, p.Seqs = append(p.Executions, t.Execution.ID), append(p.Seqs, e.Seq)
			p.Branches, p.Ops = append(p.Branches, int32(e.Op.Branch)), append(p.Ops, int32(e.Op.Index))
			p.Kinds, p.Names, p.Hashes = append(p.Kinds, string(e.Kind)), append(p.Names, e.Name), append(p.Hashes, int64(e.Hash))
			p.Vals, p.Errors = append(p.Vals, string(e.Value)), append(p.Errors, string(refusal))
			p.Events, p.Ats = append(p.Events, e.Event), append(p.Ats, e.At)
		}
	}
	return p, nil
}

// closeOps removes what was open for operations that are part of the history now, and all that ended executions have
// open. The history stays: it is the record.
func closeOps(ctx context.Context, q *query.Queries, turns []*turn) error {
	var ended []int64
	var p query.CloseManyParams
	for _, t := range turns {
		if t.Next.Ended() {
			if !t.Bare {
				ended = append(ended, t.Execution.ID)
			}
			continue
		}
		for _, op := range t.Closed {
			p.Executions = append(p.Executions, t.Execution.ID)
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

// openOps stores new timers, calls and waits. It answers the waits, which have to be matched.
func openOps(ctx context.Context, q *query.Queries, turns []*turn) ([]opRow, error) {
	var timers query.OpenTimersParams
	var calls query.OpenCallsParams
	var waits query.OpenWaitsParams
	var polls query.OpenPollsParams
	var opened []opRow
	for _, t := range turns {
		for _, o := range t.Open {
			row := opRow{t.Execution.ID, int32(o.Op.Ref.Branch), int32(o.Op.Ref.Index)}
			// Everything that blocks has a timer, for everything has a deadline (D12).
			timers.Executions, timers.Branches = append(timers.Executions, row.execution), append(timers.Branches, row.branch)
			timers.Ops, timers.Dues, timers.Opened = append(timers.Ops, row.op), append(timers.Dues, o.Due), append(timers.Opened, t.At)
			switch o.Op.Kind {
			case core.KindRun:
				if err := addCall(&calls, t, o, row); err != nil {
					return nil, err
				}
			case core.KindPoll:
				if err := addPoll(&polls, &calls, t, o, row); err != nil {
					return nil, err
				}
			case core.KindWait, core.KindReceive:
				opened = append(opened, row)
			default: // a sleep is its timer; nothing else blocks
			}
		}
		for _, w := range t.waits {
			waits.Executions, waits.Branches, waits.Ops = append(waits.Executions, w.execution), append(waits.Branches, w.branch), append(waits.Ops, w.op)
			waits.Keys, waits.Shapes, waits.Types = append(waits.Keys, w.key[:]), append(waits.Shapes, w.shape), append(waits.Types, w.eventType)
			waits.Filters, waits.Ats = append(waits.Filters, w.filter), append(waits.Ats, t.At)
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
			return nil, pg.Classify(err, "open operations of %d executions", len(turns))
		}
	}
	return opened, nil
}

// addCall adds the row of a run, or of a round of a poll: that is not tried again, the next round is. Those of in-process Functions are never sent: they say what is waited for.
func addCall(p *query.OpenCallsParams, t *turn, o core.Opening, row opRow) error {
	retry, err := encodeRetry(o.Op.Retry)
	if err != nil {
		return err
	}
	p.Retries = append(p.Retries, retry)
	p.Ids = append(p.Ids, o.Op.Activity(t.Execution.Ref))
	p.Executions, p.Branches, p.Ops = append(p.Executions, row.execution), append(p.Branches, row.branch), append(p.Ops, row.op)
	p.Functions, p.Args = append(p.Functions, o.Op.Name), append(p.Args, string(o.Op.Args))
	p.Locations, p.Agents = append(p.Locations, int16(o.Location)), append(p.Agents, o.Agent)
	p.NoRetries, p.Ats, p.Deadlines = append(p.NoRetries, o.Op.NoRetry || o.Poll != nil), append(p.Ats, t.At), append(p.Deadlines, o.Due)
	return nil
}
