package store

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/store/query"
)

// A start that brings its first turn is stored as one expects it (expected.go): the execution is new, and nobody waits for what the
// turn emits. All those of a moment are one journey. Where it is otherwise nothing is stored, and the caller does the one after the other.

// beginning is a start with its first turn on its way through the group.
type beginning struct {
	*start
	turn *turn
	id   int64
	// refused is set where nothing was stored.
	refused bool
}

// Begin stores a new execution with its first turn. Those of the same moment share a transaction.
func (s *Store) Begin(ctx context.Context, n core.NewExecution, first core.Commit) (id int64, begun bool, err error) {
	b := &beginning{turn: &turn{Commit: first}}
	if b.start, err = newStart(n); err != nil {
		return 0, false, err
	}
	if err := s.encodeEmits(b.turn); err != nil || s.tellsSomebody(b.turn) || n.Owner == nil {
		return 0, false, nil //nolint:nilerr // the commit of the turn says the same, and what becomes of the run then
	}
	if err := s.begins.do(ctx, b); err != nil {
		return 0, false, err
	}
	return b.id, !b.refused, nil
}

// beginAll is the transaction of many beginnings. Where the database has anything against one of them, all are refused; of several with
// one name, those behind the first.
func (s *Store) beginAll(ctx context.Context, all []*beginning) error {
	type name struct {
		organization int64
		workflow     string
	}
	known := make(map[name]bool, len(all))
	items := make([]*beginning, 0, len(all))
	for _, b := range all {
		n := name{b.Organization, b.Workflow}
		if b.refused = known[n]; !b.refused {
			known[n] = true
			items = append(items, b)
		}
	}
	p, err := beginningRows(items)
	if err != nil {
		return err
	}
	starts := make([]*start, len(items))
	var wire []event.Sealed
	var events []*told
	for i, b := range items {
		starts[i] = b.start
		wire, events = append(wire, b.turn.wire...), append(events, b.turn.told...)
	}
	programs, saved := s.unsaved(starts)
	err = s.pipelined(ctx, func(tx pgx.Tx, q *query.Queries) error {
		if len(events) > 0 {
			if err := q.LockMatching(ctx); err != nil {
				return err
			}
		}
		if len(saved) > 0 {
			if err := q.SavePrograms(ctx, programs); err != nil {
				return err
			}
		}
		if err := q.BeginExecutions(ctx, p); err != nil {
			return err
		}
		return s.tellNobody(ctx, tx, q, wire, events)
	})
	if refusal, ok := errors.AsType[*pgconn.PgError](err); ok && !fault.Is(pg.Classify(err, ""), fault.Unavailable) {
		if refusal.Code == codeAwaited {
			s.awaited.learn(refusal.Message, events)
		}
		for _, b := range items {
			b.refused = true
		}
		return nil
	}
	if err != nil {
		return pg.Classify(err, "begin %d workflows", len(items))
	}
	s.programs.add(saved)
	if len(wire) > 0 {
		s.Committed()
	}
	return s.findIDs(ctx, items)
}

// findIDs asks which numbers those have got that go on. Where the question fails they are stored all the same, and are found like those
// of a process that has died.
func (s *Store) findIDs(ctx context.Context, items []*beginning) error {
	byRef := map[string]*beginning{}
	var refs []string
	for _, b := range items {
		if !b.turn.Next.Ended() {
			byRef[b.Ref] = b
			refs = append(refs, b.Ref)
		}
	}
	if len(refs) == 0 {
		return nil
	}
	rows, err := s.queries.FindRefs(ctx, refs)
	if err != nil {
		return pg.Classify(err, "find %d workflows that were begun", len(refs))
	}
	for _, row := range rows {
		byRef[row.Ref].id = row.ID
	}
	return nil
}

// beginningRows are the rows of executions, of their entries and traces. These name an execution by its place, from 1.
func beginningRows(items []*beginning) (query.BeginExecutionsParams, error) {
	starts, turns := make([]*start, len(items)), make([]*turn, len(items))
	for i, b := range items {
		starts[i], turns[i] = b.start, b.turn
		b.turn.Execution.ID = int64(i + 1)
	}
	n := newExecutions(starts)
	entries, err := entryRows(turns)
	if err != nil {
		return query.BeginExecutionsParams{}, err
	}
	p := query.BeginExecutionsParams{
		Refs: n.Refs, Organizations: n.Organizations, Workflows: n.Workflows, Programs: n.Programs, Modules: n.Modules,
		Inputs: n.Inputs, Secrets: n.Secrets, Labels: n.Labels, Created: n.Created, Owners: n.Owners, Epochs: n.Epochs,
		Places: entries.Executions, Seqs: entries.Seqs, Branches: entries.Branches, Ops: entries.Ops, Kinds: entries.Kinds,
		Names: entries.Names, Hashes: entries.Hashes, Vals: entries.Vals, Errors: entries.Errors, Ats: entries.Ats,
	}
	for i, b := range items {
		p.States, p.Failures = append(p.States, int16(b.turn.Next)), append(p.Failures, b.turn.Error)
		p.LastSeqs, p.Turned = append(p.LastSeqs, b.turn.LastSeq), append(p.Turned, b.turn.At)
		if b.Trace != "" {
			p.Traced, p.Parents = append(p.Traced, int32(i+1)), append(p.Parents, b.Trace)
		}
	}
	return p, nil
}
