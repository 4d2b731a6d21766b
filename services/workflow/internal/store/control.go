package store

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/control"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/execution"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/store/query"
)

var _ control.OperatorStore = (*Store)(nil)

// List reads a page of executions. Which statement does it depends on the condition that leaves the fewest rows: each has
// an index of its own, and a page costs about as much as it has rows.
func (s *Store) List(ctx context.Context, q control.ListQuery) ([]execution.Execution, error) {
	before := q.Before
	if before == 0 {
		before = math.MaxInt64
	}
	states := make([]int16, len(q.States))
	for i, state := range q.States {
		states[i] = int16(state)
	}
	var rows []query.FindExecutionRow
	var err error
	switch {
	case len(q.Labels) > 0:
		labels, encodeErr := json.Marshal(q.Labels)
		if encodeErr != nil {
			return nil, fmt.Errorf("encode labels: %w", encodeErr)
		}
		var found []query.ListLabelledRow
		found, err = s.queries.ListLabelled(ctx, query.ListLabelledParams{
			Organization: q.Organization, Before: before, Labels: labels, States: states, Program: q.Program, Most: int32(q.Limit),
		})
		for _, row := range found {
			rows = append(rows, query.FindExecutionRow(row))
		}
	case len(states) > 0 && !slices.ContainsFunc(q.States, untroubled):
		var found []query.ListTroubledRow
		found, err = s.queries.ListTroubled(ctx, query.ListTroubledParams{
			Organization: q.Organization, Before: before, States: states, Program: q.Program, Most: int32(q.Limit),
		})
		for _, row := range found {
			rows = append(rows, query.FindExecutionRow(row))
		}
	default:
		var found []query.ListExecutionsRow
		found, err = s.queries.ListExecutions(ctx, query.ListExecutionsParams{
			Organization: q.Organization, Before: before, States: states, Program: q.Program, Most: int32(q.Limit),
		})
		for _, row := range found {
			rows = append(rows, query.FindExecutionRow(row))
		}
	}
	if err != nil {
		return nil, pg.Classify(err, "list workflows of organization %d", q.Organization)
	}
	list := make([]execution.Execution, len(rows))
	for i, row := range rows {
		if list[i], err = executionOf(row); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// untroubled are the states that the index execution_troubled leaves out.
func untroubled(s execution.State) bool {
	return s != execution.Failed && s != execution.Cancelled && s != execution.Quarantined && s != execution.Terminated
}

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
		progresses[i] = control.Progress{Execution: row.ID, State: execution.State(row.State), LastSeq: row.LastSeq, Turn: row.Turn}
	}
	return progresses, nil
}
