package store

import (
	"context"
	"fmt"

	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/control"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/execution"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
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
