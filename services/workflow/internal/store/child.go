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
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/engine"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/execution"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/store/query"
)

// startChildren stores the children of turns with them, and returns those that are new and the programs that were stored. A child that
// exists is left alone: it was started by the same run, under the same id.
func (s *Store) startChildren(
	ctx context.Context, q *query.Queries, commits []*commit,
) (born []engine.Woken, programs [][32]byte, err error) {
	var starts []*start
	var p query.SaveChildrenParams
	for _, c := range commits {
		starts = append(starts, c.children...)
		for _, child := range c.Starts {
			p.Organizations, p.Workflows = append(p.Organizations, child.Organization), append(p.Workflows, child.Workflow)
			p.Parents, p.ParentWorkflows = append(p.Parents, c.Execution.ID), append(p.ParentWorkflows, c.Execution.Workflow)
			p.Detacheds, p.Ats = append(p.Detacheds, child.Detached), append(p.Ats, child.At)
		}
	}
	if len(starts) == 0 {
		return nil, nil, nil
	}
	sources, programs := s.unsaved(starts)
	if len(programs) > 0 {
		if err := q.SavePrograms(ctx, sources); err != nil {
			return nil, nil, pg.Classify(err, "save %d programs", len(programs))
		}
	}
	rows, err := q.CreateExecutions(ctx, s.newExecutions(starts))
	if err != nil {
		return nil, nil, pg.Classify(err, "create %d children", len(starts))
	}
	for _, row := range rows {
		born = append(born, engine.Woken{ID: row.ID})
	}
	return born, programs, errors.Join(saveTraces(ctx, q, starts, rows), pg.Classify(q.SaveChildren(ctx, p), "save %d children", len(starts)))
}

// saveStatuses stores what the runs of turns report of themselves.
func saveStatuses(ctx context.Context, q *query.Queries, commits []*commit) error {
	var p query.SaveStatusesParams
	for _, c := range commits {
		var last map[string]int
		for _, e := range c.Entries {
			if e.Kind != history.KindStatus {
				continue
			}
			if at, known := last[e.Name]; known {
				p.Vals[at], p.Ats[at] = string(e.Value), e.At
				continue
			}
			if last == nil {
				last = map[string]int{}
			}
			last[e.Name] = len(p.Keys)
			p.Organizations, p.Executions = append(p.Organizations, c.Execution.Organization), append(p.Executions, c.Execution.ID)
			p.Keys, p.Vals, p.Ats = append(p.Keys, e.Name), append(p.Vals, string(e.Value)), append(p.Ats, e.At)
		}
	}
	if len(p.Keys) == 0 {
		return nil
	}
	return pg.Classify(q.SaveStatuses(ctx, p), "save %d statuses", len(p.Keys))
}

// Statuses reads what runs report of themselves.
func (s *Store) Statuses(ctx context.Context, organization int64, executions []int64) (map[int64]map[string]string, error) {
	rows, err := s.queries.Statuses(ctx, query.StatusesParams{Organization: organization, Executions: executions})
	if err != nil {
		return nil, pg.Classify(err, "read the statuses of %d executions", len(executions))
	}
	found := map[int64]map[string]string{}
	for _, row := range rows {
		if found[row.Execution] == nil {
			found[row.Execution] = map[string]string{}
		}
		found[row.Execution][row.Key] = string(row.Value)
	}
	return found, nil
}

// Reported reads what a run reports of itself, and whether its program was ever changed.
func (s *Store) Reported(ctx context.Context, organization, execution int64) (map[string]string, bool, error) {
	row, err := s.queries.Reported(ctx, query.ReportedParams{Organization: organization, Execution: execution})
	if err != nil {
		return nil, false, pg.Classify(err, "read what execution %d reports", execution)
	}
	var values map[string]json.RawMessage
	if err := json.Unmarshal(row.Status, &values); err != nil {
		return nil, false, fmt.Errorf("what execution %d reports: %w", execution, err)
	}
	if len(values) == 0 {
		return nil, row.Changed, nil
	}
	status := make(map[string]string, len(values))
	for key, value := range values {
		status[key] = string(value)
	}
	return status, row.Changed, nil
}

// orphanChildren marks the children of runs that end, in the transaction that ends them.
func orphanChildren(ctx context.Context, q *query.Queries, commits []*commit) error {
	var p query.OrphanChildrenParams
	for _, c := range commits {
		if c.Family && c.Next.Ended() {
			p.Organizations, p.Parents = append(p.Organizations, c.Execution.Organization), append(p.Parents, c.Execution.ID)
		}
	}
	if len(p.Parents) == 0 {
		return nil
	}
	return pg.Classify(q.OrphanChildren(ctx, p), "mark the children of %d executions", len(p.Parents))
}

// CancelOrphans cancels children whose parents have ended, each in a transaction of its own. One that dies in between is repeated.
func (s *Store) CancelOrphans(ctx context.Context, now time.Time, limit int) (int, error) {
	rows, err := s.queries.Orphans(ctx, int32(limit))
	if err != nil {
		return 0, pg.Classify(err, "find orphans")
	}
	for _, row := range rows {
		_, err := s.Cancel(ctx, row.Organization, row.Workflow, fmt.Sprintf("its parent %q has ended", row.Parent), now)
		if err != nil && !fault.Is(err, fault.NotFound) {
			return 0, err
		}
		err = s.queries.SettleOrphan(ctx, query.SettleOrphanParams{Organization: row.Organization, Workflow: row.Workflow})
		if err != nil {
			return 0, pg.Classify(err, "settle the orphan %q", row.Workflow)
		}
	}
	return len(rows), nil
}

// EndOf is the event about the end of an execution, as the wait for it would have had it.
func (s *Store) EndOf(ctx context.Context, organization int64, workflow string) (json.RawMessage, error) {
	row, err := s.queries.LastOf(ctx, query.LastOfParams{Organization: organization, Workflow: workflow})
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, pg.Classify(err, "read the end of %q", workflow)
	}
	kind := history.TypeFailed
	switch execution.Named(row.State) {
	case execution.Completed:
		kind = history.TypeCompleted
	case execution.Cancelled:
		kind = history.TypeCancelled
	default: // it has failed
	}
	if err := s.whole(ctx, &row.Value); err != nil {
		return nil, fmt.Errorf("the last entry of %q: %w", workflow, err)
	}
	var last struct {
		Result json.RawMessage `json:"result,omitempty"`
	}
	if err := json.Unmarshal(row.Value, &last); err != nil {
		return nil, fmt.Errorf("the last entry of %q: %w", workflow, err)
	}
	fields := map[string]any{"workflow_id": workflow}
	switch kind {
	case history.TypeFailed:
		fields["error"] = row.Error
	case history.TypeCancelled:
		fields["reason"] = row.Error
	default:
		fields["result"] = last.Result
	}
	data, err := json.Marshal(fields)
	if err != nil {
		return nil, fmt.Errorf("encode the end of %q: %w", workflow, err)
	}
	return history.Event{ID: row.Ref, Source: event.SourceWorkflow, Type: kind, Data: data, Time: row.EndedAt}.Value(), nil
}

// rootOf is the run that a child descends from; the run itself where it was not started by a program, whatever its id.
func (s *Store) rootOf(ctx context.Context, organization int64, workflow string) (string, error) {
	root, err := s.queries.RootOf(ctx, query.RootOfParams{Organization: organization, Workflow: workflow})
	if errors.Is(err, pgx.ErrNoRows) {
		return workflow, nil
	}
	return root, pg.Classify(err, "find the root of %q", workflow)
}
