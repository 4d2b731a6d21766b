package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/control"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/execution"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/store/query"
)

const (
	// listBudget is how many executions a page reads at the most, however few of them match: about 20 ms.
	listBudget = 20_000
	// countBudget is the same for a count.
	countBudget = 200_000
	// startSkew is how far the times of starts may deviate from the order of their numbers: processes have clocks of their own, and starts
	// of one moment share a transaction.
	startSkew = time.Minute
)

// List reads a page of executions. Which statement does it depends on the condition that leaves the fewest rows: each has
// an index of its own, and a page costs about as much as it has rows. Where few of the rows match, it ends with the budget, and
// rest is where the next page begins; 0: it is full, or there are no others.
func (s *Store) List(ctx context.Context, q control.ListQuery) (list []execution.Execution, rest int64, err error) {
	p, err := s.listParams(ctx, q, listBudget, q.Limit)
	if err != nil {
		return nil, 0, err
	}
	var rows []query.FindExecutionRow
	switch {
	case p.Labels != nil:
		var found []query.ListLabelledRow
		found, err = s.queries.ListLabelled(ctx, query.ListLabelledParams(p.labelled()))
		for _, row := range found {
			rows = append(rows, query.FindExecutionRow(row))
		}
	case p.troubled:
		var found []query.ListTroubledRow
		found, err = s.queries.ListTroubled(ctx, query.ListTroubledParams(p.ListExecutionsParams))
		for _, row := range found {
			rows = append(rows, query.FindExecutionRow(row))
		}
	default:
		var found []query.ListExecutionsRow
		found, err = s.queries.ListExecutions(ctx, p.ListExecutionsParams)
		for _, row := range found {
			rows = append(rows, query.FindExecutionRow(row))
		}
	}
	if err == nil && len(rows) < q.Limit {
		rest, err = s.rest(ctx, p)
	}
	if err != nil {
		return nil, 0, pg.Classify(err, "list workflows of organization %d", q.Organization)
	}
	list = make([]execution.Execution, len(rows))
	for i, row := range rows {
		if list[i], err = executionOf(row); err != nil {
			return nil, 0, err
		}
	}
	return list, rest, nil
}

// Count counts executions, up to most+1. atLeast reports that there may be more.
func (s *Store) Count(ctx context.Context, q control.ListQuery, most int) (n int64, atLeast bool, err error) {
	p, err := s.listParams(ctx, q, countBudget, most+1)
	if err != nil {
		return 0, false, err
	}
	switch {
	case p.Labels != nil:
		n, err = s.queries.CountLabelled(ctx, p.labelled())
	case p.troubled:
		n, err = s.queries.CountTroubled(ctx, query.CountTroubledParams(p.ListExecutionsParams))
	default:
		n, err = s.queries.CountExecutions(ctx, query.CountExecutionsParams(p.ListExecutionsParams))
	}
	if err != nil {
		return 0, false, pg.Classify(err, "count workflows of organization %d", q.Organization)
	}
	if n > int64(most) {
		return int64(most), true, nil
	}
	rest, err := s.rest(ctx, p)
	return n, rest != 0, pg.Classify(err, "count workflows of organization %d", q.Organization)
}

// listParams are the arguments of the statements of lists.
type listParams struct {
	query.ListExecutionsParams
	// Labels is nil if there are none.
	Labels []byte
	// troubled reports that all states that are wanted are in the index execution_troubled.
	troubled bool
}

func (p listParams) labelled() query.CountLabelledParams {
	return query.CountLabelledParams{
		Organization: p.Organization, Before: p.Before, Least: p.Least, Labels: p.Labels, States: p.States, Program: p.Program,
		StartedFrom: p.StartedFrom, StartedTo: p.StartedTo, EndedFrom: p.EndedFrom, EndedTo: p.EndedTo, Prefix: p.Prefix, Part: p.Part,
		StatusKeys: p.StatusKeys, StatusValues: p.StatusValues, Most: p.Most,
	}
}

func (s *Store) listParams(ctx context.Context, q control.ListQuery, budget, most int) (p listParams, err error) {
	p.ListExecutionsParams = query.ListExecutionsParams{
		Organization: q.Organization, Before: q.Before, Budget: int32(budget), Most: int32(most), States: make([]string, len(q.States)),
		Program: q.Program, StartedFrom: orNull(q.StartedFrom), StartedTo: orNull(q.StartedTo), EndedFrom: orNull(q.EndedFrom),
		EndedTo: orNull(q.EndedTo), Prefix: q.Prefix, Part: q.Part, StatusKeys: []string{}, StatusValues: []string{},
	}
	for key, value := range q.Status {
		p.StatusKeys, p.StatusValues = append(p.StatusKeys, key), append(p.StatusValues, value)
	}
	for i, state := range q.States {
		p.States[i] = state.String()
	}
	p.troubled = len(q.States) > 0 && !slices.ContainsFunc(q.States, untroubled)
	if len(q.Labels) > 0 {
		if p.Labels, err = json.Marshal(q.Labels); err != nil {
			return p, fmt.Errorf("encode labels: %w", err)
		}
	}
	if p.Before == 0 {
		p.Before = math.MaxInt64
	}
	// What has ended before a time has started before it.
	if to := earlier(q.StartedTo, q.EndedTo); !to.IsZero() {
		bound, err := s.firstFrom(ctx, q.Organization, to.Add(startSkew))
		if err != nil {
			return p, err
		}
		p.Before = min(p.Before, bound)
	}
	if !q.StartedFrom.IsZero() {
		if p.Least, err = s.firstFrom(ctx, q.Organization, q.StartedFrom.Add(-startSkew)); err != nil {
			return p, err
		}
	}
	return p, nil
}

func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// orNull is a time as an argument that may be NULL.
func orNull(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// firstFrom is the number of the first execution that was created at a time or later, up to the skew of clocks; all are below it where
// there is none. It is found by bisection: numbers ascend with time, so no index of times is needed, which every start would pay for.
func (s *Store) firstFrom(ctx context.Context, organization int64, from time.Time) (int64, error) {
	last, err := s.queries.LastExecution(ctx, organization)
	if err != nil {
		return 0, pg.Classify(err, "find the last workflow of organization %d", organization)
	}
	low, high := int64(0), last+1
	for low < high {
		middle := low + (high-low)/2
		row, err := s.queries.ExecutionFrom(ctx, query.ExecutionFromParams{Organization: organization, ID: middle})
		switch {
		case errors.Is(err, pgx.ErrNoRows) || err == nil && !row.CreatedAt.Before(from):
			high = middle
		case err != nil:
			return 0, pg.Classify(err, "find workflow %d of organization %d", middle, organization)
		default:
			low = row.ID + 1
		}
	}
	return low, nil
}

// rest is the last execution that a list has read where its budget has ended, else 0.
func (s *Store) rest(ctx context.Context, p listParams) (int64, error) {
	var n, last int64
	switch {
	case p.Labels != nil:
		return 0, nil
	case p.troubled:
		row, err := s.queries.ScannedTroubled(ctx, query.ScannedTroubledParams{
			Organization: p.Organization, Before: p.Before, Least: p.Least, Budget: p.Budget,
		})
		if err != nil {
			return 0, err
		}
		n, last = row.N, row.Last
	default:
		row, err := s.queries.ScannedExecutions(ctx, query.ScannedExecutionsParams{
			Organization: p.Organization, Before: p.Before, Least: p.Least, Budget: p.Budget,
		})
		if err != nil {
			return 0, err
		}
		n, last = row.N, row.Last
	}
	if n < int64(p.Budget) {
		return 0, nil
	}
	return last, nil
}

// untroubled are the states that the index execution_troubled leaves out.
func untroubled(s execution.State) bool {
	return s != execution.Failed && s != execution.Cancelled && s != execution.Quarantined && s != execution.Terminated
}
