package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
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
	// What changes meanwhile must not move the end of what was read past what was not.
	err = pg.InSnapshot(ctx, s.Pool, func(tx pgx.Tx) error {
		in := s.queries.WithTx(tx)
		rest = 0
		if rows, err = page(ctx, in, p); err != nil || len(rows) == q.Limit {
			return err
		}
		rest, err = p.rest(ctx, in)
		return err
	})
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

// page reads the rows of a page.
func page(ctx context.Context, q *query.Queries, p listParams) (rows []query.FindExecutionRow, err error) {
	switch p.by {
	case byLabel:
		var found []query.ListLabelledRow
		found, err = q.ListLabelled(ctx, query.ListLabelledParams(p.labelled()))
		for _, row := range found {
			rows = append(rows, query.FindExecutionRow(row))
		}
	case byStatus:
		var found []query.ListReportingRow
		found, err = q.ListReporting(ctx, query.ListReportingParams(p.reporting()))
		for _, row := range found {
			rows = append(rows, query.FindExecutionRow(row))
		}
	case byTrouble:
		var found []query.ListTroubledRow
		found, err = q.ListTroubled(ctx, query.ListTroubledParams(p.troubled()))
		for _, row := range found {
			rows = append(rows, query.FindExecutionRow(row))
		}
	default:
		var found []query.ListExecutionsRow
		found, err = q.ListExecutions(ctx, p.ListExecutionsParams)
		for _, row := range found {
			rows = append(rows, query.FindExecutionRow(row))
		}
	}
	return rows, err
}

// Count counts executions, up to most+1. atLeast reports that there may be more.
func (s *Store) Count(ctx context.Context, q control.ListQuery, most int) (n int64, atLeast bool, err error) {
	p, err := s.listParams(ctx, q, countBudget, most+1)
	if err != nil {
		return 0, false, err
	}
	switch p.by {
	case byLabel:
		n, err = s.queries.CountLabelled(ctx, p.labelled())
	case byStatus:
		n, err = s.queries.CountReporting(ctx, p.reporting())
	case byTrouble:
		n, err = s.queries.CountTroubled(ctx, p.troubled())
	default:
		n, err = s.queries.CountExecutions(ctx, query.CountExecutionsParams(p.ListExecutionsParams))
	}
	if err != nil {
		return 0, false, pg.Classify(err, "count workflows of organization %d", q.Organization)
	}
	if n > int64(most) {
		return int64(most), true, nil
	}
	rest, err := p.rest(ctx, s.queries)
	return n, rest != 0, pg.Classify(err, "count workflows of organization %d", q.Organization)
}

// order is the index that a list reads, from its end.
type order int

const (
	// byAge reads all executions of the organization, byTrouble those in the index execution_by_trouble.
	byAge order = iota
	byTrouble
	// byLabel reads those that bear a label, byStatus those that report a status value.
	byLabel
	byStatus
)

// listParams are the arguments of the statements of lists.
type listParams struct {
	query.ListExecutionsParams

	by order
	// Labels are all that are wanted; nil if there are none.
	Labels []byte
	// Key and Value are the label, or the status value, that is read by.
	Key, Value string
}

func (p listParams) labelled() query.CountLabelledParams {
	return query.CountLabelledParams{
		Organization: p.Organization, Key: p.Key, Value: p.Value, Before: p.Before, Least: p.Least, Budget: p.Budget, Labels: p.Labels,
		States: p.States, Program: p.Program, StartedFrom: p.StartedFrom, StartedTo: p.StartedTo, EndedFrom: p.EndedFrom, EndedTo: p.EndedTo,
		Prefix: p.Prefix, Part: p.Part, StatusKeys: p.StatusKeys, StatusValues: p.StatusValues, Most: p.Most,
	}
}

func (p listParams) troubled() query.CountTroubledParams {
	return query.CountTroubledParams{
		Organization: p.Organization, Before: p.Before, Least: p.Least, Budget: p.Budget, Labels: p.Labels,
		States: p.States, Program: p.Program, StartedFrom: p.StartedFrom, StartedTo: p.StartedTo, EndedFrom: p.EndedFrom, EndedTo: p.EndedTo,
		Prefix: p.Prefix, Part: p.Part, StatusKeys: p.StatusKeys, StatusValues: p.StatusValues, Most: p.Most,
	}
}

func (p listParams) reporting() query.CountReportingParams {
	return query.CountReportingParams{
		Organization: p.Organization, Key: p.Key, Value: p.Value, Before: p.Before, Least: p.Least, Budget: p.Budget, Labels: p.Labels,
		States: p.States, Program: p.Program, StartedFrom: p.StartedFrom, StartedTo: p.StartedTo, EndedFrom: p.EndedFrom, EndedTo: p.EndedTo,
		Prefix: p.Prefix, Part: p.Part, StatusKeys: p.StatusKeys, StatusValues: p.StatusValues, Most: p.Most,
	}
}

// choose decides by which index the list is read: of labels, status values and bad ends, by what the fewest executions have.
func (s *Store) choose(ctx context.Context, q control.ListQuery, p *listParams) (err error) {
	labels := query.RarestLabelledParams{Organization: q.Organization, Keys: slices.Sorted(maps.Keys(q.Labels))}
	for _, key := range labels.Keys {
		labels.Vals = append(labels.Vals, q.Labels[key])
	}
	if len(labels.Keys) > 0 {
		if p.Labels, err = json.Marshal(q.Labels); err != nil {
			return fmt.Errorf("encode labels: %w", err)
		}
	}
	troubled := len(q.States) > 0 && !slices.ContainsFunc(q.States, untroubled)
	p.by = byAge
	fewest := int64(math.MaxInt64)
	// One alone is not counted.
	counts := len(labels.Keys)+len(p.StatusKeys) > 1 || troubled && len(labels.Keys)+len(p.StatusKeys) > 0
	if len(labels.Keys) > 0 {
		found := query.RarestLabelledRow{At: 1}
		if counts {
			found, err = s.queries.RarestLabelled(ctx, labels)
		}
		p.by, fewest = byLabel, found.N
		p.Key, p.Value = labels.Keys[max(found.At, 1)-1], labels.Vals[max(found.At, 1)-1]
	}
	if len(p.StatusKeys) > 0 && err == nil {
		found := query.RarestReportingRow{At: 1}
		if counts {
			found, err = s.queries.RarestReporting(ctx, query.RarestReportingParams{
				Organization: q.Organization, Keys: p.StatusKeys, Vals: p.StatusValues,
			})
		}
		if found.N < fewest {
			p.by, fewest = byStatus, found.N
			p.Key, p.Value = p.StatusKeys[max(found.At, 1)-1], p.StatusValues[max(found.At, 1)-1]
		}
	}
	if troubled && err == nil {
		var n int64
		if counts {
			n, err = s.queries.FewTroubled(ctx, q.Organization)
		}
		if n < fewest {
			p.by = byTrouble
		}
	}
	return pg.Classify(err, "find what the fewest workflows of organization %d have", q.Organization)
}

func (s *Store) listParams(ctx context.Context, q control.ListQuery, budget, most int) (p listParams, err error) {
	p.ListExecutionsParams = query.ListExecutionsParams{
		Organization: q.Organization, Before: q.Before, Budget: int32(budget), Most: int32(most), States: make([]string, len(q.States)),
		Program: q.Program, StartedFrom: orNull(q.StartedFrom), StartedTo: orNull(q.StartedTo), EndedFrom: orNull(q.EndedFrom),
		EndedTo: orNull(q.EndedTo), Prefix: q.Prefix, Part: q.Part, StatusKeys: []string{}, StatusValues: []string{},
	}
	for _, key := range slices.Sorted(maps.Keys(q.Status)) {
		p.StatusKeys, p.StatusValues = append(p.StatusKeys, key), append(p.StatusValues, q.Status[key])
	}
	for i, state := range q.States {
		p.States[i] = state.String()
	}
	if err := s.choose(ctx, q, &p); err != nil {
		return p, err
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
func (p listParams) rest(ctx context.Context, q *query.Queries) (int64, error) {
	var n, last int64
	switch p.by {
	case byLabel:
		row, err := q.ScannedLabelled(ctx, query.ScannedLabelledParams{
			Organization: p.Organization, Key: p.Key, Value: p.Value, Before: p.Before, Least: p.Least, Budget: p.Budget,
		})
		if err != nil {
			return 0, err
		}
		n, last = row.N, row.Last
	case byStatus:
		row, err := q.ScannedReporting(ctx, query.ScannedReportingParams{
			Organization: p.Organization, Key: p.Key, Value: p.Value, Before: p.Before, Least: p.Least, Budget: p.Budget,
		})
		if err != nil {
			return 0, err
		}
		n, last = row.N, row.Last
	case byTrouble:
		row, err := q.ScannedTroubled(ctx, query.ScannedTroubledParams{
			Organization: p.Organization, Before: p.Before, Least: p.Least, Budget: p.Budget,
		})
		if err != nil {
			return 0, err
		}
		n, last = row.N, row.Last
	default:
		row, err := q.ScannedExecutions(ctx, query.ScannedExecutionsParams{
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

// untroubled are the states that the index execution_by_trouble leaves out.
func untroubled(s execution.State) bool {
	return s != execution.Failed && s != execution.Cancelled && s != execution.Quarantined && s != execution.Terminated
}
