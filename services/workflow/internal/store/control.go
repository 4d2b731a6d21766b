package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/control"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/engine"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/execution"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/program"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/store/query"
)

var _ control.OperatorStore = (*Store)(nil)

// logKinds are the entries that a log shows.
func logKinds() []string {
	kinds := []history.Kind{
		history.KindPrint, history.KindRun, history.KindPoll, history.KindEmit, history.KindContinue, history.KindEnding,
		history.KindDeferred,
		history.KindCompleted, history.KindFailed, history.KindCancelled, history.KindQuarantined, history.KindTerminated,
	}
	names := make([]string, len(kinds))
	for i, kind := range kinds {
		names[i] = string(kind)
	}
	return names
}

// Logs reads a page of a log.
func (s *Store) Logs(ctx context.Context, q control.LogQuery) ([]history.Entry, error) {
	p := query.LogEntriesParams{Execution: q.Execution, After: q.After, Kinds: logKinds(), Most: int32(q.Limit)}
	if q.Branch != nil {
		branch := int32(*q.Branch)
		p.Branch = &branch
	}
	rows, err := s.queries.LogEntries(ctx, p)
	if err != nil {
		return nil, pg.Classify(err, "read log of execution %d", q.Execution)
	}
	entries := make([]history.Entry, len(rows))
	for i, row := range rows {
		entries[i] = history.Entry{
			Seq: row.Seq, Op: ref(row.Branch, row.Op), Kind: history.Kind(row.Kind), Name: row.Name, Value: row.Value, At: row.RecordedAt,
		}
		if entries[i].Error, err = decodeError(row.Error); err != nil {
			return nil, fmt.Errorf("entry %d of execution %d: %w", row.Seq, q.Execution, err)
		}
	}
	if err := s.wholeEntries(ctx, entries); err != nil {
		return nil, fmt.Errorf("log of execution %d: %w", q.Execution, err)
	}
	return entries, s.generations(ctx, q.Execution, entries)
}

// Retries reads the retries of a workflow.
func (s *Store) Retries(ctx context.Context, execution int64) ([]control.Retry, error) {
	rows, err := s.queries.Retries(ctx, execution)
	if err != nil {
		return nil, pg.Classify(err, "read retries of execution %d", execution)
	}
	retries := make([]control.Retry, len(rows))
	for i, row := range rows {
		retries[i] = control.Retry{At: row.RetriedAt, Reason: row.Reason, Error: row.Error, From: row.FromSeq}
	}
	return retries, nil
}

// Progresses reads the progress of executions, for clients that watch them.
func (s *Store) Progresses(ctx context.Context, executions []int64) ([]control.Progress, error) {
	rows, err := s.queries.Progresses(ctx, executions)
	if err != nil {
		return nil, pg.Classify(err, "look at %d watched executions", len(executions))
	}
	progresses := make([]control.Progress, len(rows))
	for i, row := range rows {
		progresses[i] = control.Progress{Execution: row.ID, State: execution.Named(row.State), LastSeq: row.LastSeq, Turn: row.Turn}
	}
	return progresses, nil
}

// Reset stores a new execution with the beginning of the history of one that has ended, in one transaction.
func (s *Store) Reset(ctx context.Context, r control.ResetRequest) (created bool, err error) {
	var born int64
	err = s.tx(ctx, func(_ pgx.Tx, q *query.Queries) error {
		born = 0
		row, err := lockWorkflow(ctx, q, r.Organization, r.Workflow)
		if err != nil {
			return err
		}
		state := execution.Named(row.State)
		if !state.Ended() {
			return fault.New(fault.Refused, "workflow %q is %s; only one that has ended can be reset", r.Workflow, state)
		}
		same, exists, err := isReset(ctx, q, r)
		switch {
		case err != nil:
			return err
		case exists && same:
			return nil // it was reset so before
		case exists:
			return fault.New(fault.Conflict, "workflow %q exists", r.New)
		case r.To == 0 && state != execution.Failed && state != execution.Quarantined:
			return fault.InvalidFields(fault.Field{
				Name: "to_sequence", Problem: fmt.Sprintf("missing, expected an entry: the workflow is %s, and no step of it has failed", state),
			})
		}
		from, current, err := cut(ctx, q, row, "to_sequence", r.Workflow, r.To)
		if err != nil {
			return err
		}
		labels, err := json.Marshal(r.Labels)
		if err != nil {
			return fmt.Errorf("encode the labels of workflow %q: %w", r.New, err)
		}
		id, err := q.ResetExecution(ctx, query.ResetExecutionParams{
			Ref: r.Ref, Workflow: r.New, Labels: string(labels), Before: from, CreatedAt: r.At, Source: row.ID,
		})
		if errors.Is(err, pgx.ErrNoRows) {
			return fault.New(fault.Conflict, "workflow %q exists", r.New)
		}
		if err != nil {
			return pg.Classify(err, "reset workflow %q", r.Workflow)
		}
		born = id
		return pg.Classify(errors.Join(
			q.CopyHistory(ctx, query.CopyHistoryParams{IntoExecution: id, Source: row.ID, Before: from, Base: current.base}),
			q.TakeChannels(ctx, id),
			q.CopyPayloadUses(ctx, query.CopyPayloadUsesParams{IntoExecution: id, Source: row.ID, Before: from, Base: current.base}),
		), "reset workflow %q", r.Workflow)
	})
	if err == nil && born != 0 {
		s.Tally(r.Organization, 1)
		s.wake([]engine.Woken{{ID: born}}) // a process with room claims it
	}
	return born != 0, err
}

// isReset reports whether the new workflow exists, and whether it is of the same reset.
func isReset(ctx context.Context, q *query.Queries, r control.ResetRequest) (same, exists bool, err error) {
	labels, err := json.Marshal(map[string]string{
		control.LabelResetOf: r.Labels[control.LabelResetOf], control.LabelResetTo: r.Labels[control.LabelResetTo],
	})
	if err != nil {
		return false, false, fmt.Errorf("encode the labels of workflow %q: %w", r.New, err)
	}
	found, err := q.IsReset(ctx, query.IsResetParams{Labels: string(labels), Organization: r.Organization, Workflow: r.New})
	if errors.Is(err, pgx.ErrNoRows) {
		return false, false, nil
	}
	return found, true, pg.Classify(err, "find workflow %q", r.New)
}

// ChangeProgram replaces the program of an execution that stands where it did when the program was checked.
func (s *Store) ChangeProgram(ctx context.Context, c control.ProgramChange) error {
	item, err := s.newStart(engine.NewExecution{
		Start: execution.Start{Organization: c.Organization, Workflow: c.Workflow, Program: c.Program}, Digest: program.Digest(c.Program.Source),
	})
	if err != nil {
		return err
	}
	sources, saved := s.unsaved([]*start{item})
	err = s.tx(ctx, func(_ pgx.Tx, q *query.Queries) error {
		row, err := lockWorkflow(ctx, q, c.Organization, c.Workflow)
		if err != nil {
			return err
		}
		standing, err := q.StandingOf(ctx, row.ID)
		if err != nil {
			return pg.Classify(err, "find where workflow %q stands", c.Workflow)
		}
		last, err := lastEntry(ctx, q, row.ID)
		if err != nil {
			return err
		}
		if row.ID != c.Execution || standing.Turn != c.Turn || standing.Wakes != c.Wakes || last != c.LastSeq ||
			execution.Named(standing.State) != execution.Parked {
			return fault.New(fault.Unavailable, "workflow %q has continued while the program was checked; ask again", c.Workflow)
		}
		if len(saved) > 0 {
			if err := q.SavePrograms(ctx, sources); err != nil {
				return pg.Classify(err, "save %d programs", len(saved))
			}
		}
		return pg.Classify(errors.Join(
			q.ChangeProgram(ctx, query.ChangeProgramParams{ID: row.ID, Program: item.Digest[:], Modules: item.modules}),
			q.SaveProgramChange(ctx, query.SaveProgramChangeParams{
				Organization: c.Organization, Execution: row.ID, LastSeq: last, Replaced: standing.Program, Reason: c.Reason, ChangedBy: c.By,
				ChangedAt: c.At,
			}),
		), "change the program of workflow %q", c.Workflow)
	})
	if err == nil {
		s.programs.add(saved)
	}
	return err
}

// ProgramChanges reads the changes of a workflow's program.
func (s *Store) ProgramChanges(ctx context.Context, organization, execution int64) ([]control.Changed, error) {
	rows, err := s.queries.ProgramChanges(ctx, query.ProgramChangesParams{Organization: organization, Execution: execution})
	if err != nil {
		return nil, pg.Classify(err, "read the changes of the program of execution %d", execution)
	}
	changes := make([]control.Changed, len(rows))
	for i, row := range rows {
		changes[i] = control.Changed{
			At: row.ChangedAt, Reason: row.Reason, By: row.ChangedBy, Replaced: program.Hex(digest(row.Replaced)), LastSeq: row.LastSeq,
		}
	}
	return changes, nil
}
