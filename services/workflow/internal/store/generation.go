package store

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/store/query"
)

// epoch stands for no time in a column that is not nullable.
var epoch = time.Unix(0, 0) //nolint:gochecknoglobals // a constant

// beginGenerations stores the generations that begin because a turn has ended the previous one.
func beginGenerations(ctx context.Context, q *query.Queries, commits []*commit) error {
	var p query.BeginGenerationsParams
	for _, c := range commits {
		if c.Continue == nil {
			continue
		}
		p.Executions, p.Numbers = append(p.Executions, c.Execution.ID), append(p.Numbers, int32(c.Execution.Generation+1))
		p.Bases, p.Calls, p.Ats = append(p.Bases, c.LastSeq), append(p.Calls, c.call()), append(p.Ats, c.At)
		held := c.HeldUntil
		if held.IsZero() {
			held = epoch
		}
		p.Helds = append(p.Helds, held)
	}
	if len(p.Executions) == 0 {
		return nil
	}
	if err := noteConsumed(ctx, q, commits); err != nil {
		return err
	}
	return pg.Classify(q.BeginGenerations(ctx, p), "begin generations of %d executions", len(p.Executions))
}

// call is the column of what the next generation is called with.
func (c *commit) call() string {
	if len(c.continuation.Payloads) > 0 {
		return c.continuation.Text
	}
	return string(c.Continue)
}

// noteConsumed stores up to which event runs have consumed all events of the keys that they wait for. The entries of their turns are
// stored already.
func noteConsumed(ctx context.Context, q *query.Queries, commits []*commit) error {
	var p query.NoteConsumedParams
	for _, c := range commits {
		for _, want := range c.Consumed {
			key := keyOf(c.Execution.Organization, want)
			p.Executions, p.Keys = append(p.Executions, c.Execution.ID), append(p.Keys, key[:])
		}
	}
	if len(p.Executions) == 0 {
		return nil
	}
	return pg.Classify(q.NoteConsumed(ctx, p), "note what %d executions have consumed", len(commits))
}

// generation is a run's current generation, and the last entry of the previous one.
type generation struct {
	number int
	base   int64
}

func currentGeneration(ctx context.Context, q *query.Queries, execution int64) (generation, error) {
	row, err := q.CurrentGeneration(ctx, execution)
	if errors.Is(err, pgx.ErrNoRows) {
		return generation{number: 1}, nil
	}
	return generation{int(row.Number), row.BaseSeq}, pg.Classify(err, "find the generation of execution %d", execution)
}

// generations sets the generation of each entry of a page, which is in the order of the history.
func (s *Store) generations(ctx context.Context, execution int64, page []history.Entry) error {
	if len(page) == 0 {
		return nil
	}
	p := query.GenerationsOfParams{Execution: execution}
	for _, e := range page {
		p.Seqs = append(p.Seqs, e.Seq)
	}
	numbers, err := s.queries.GenerationsOf(ctx, p)
	if err != nil {
		return pg.Classify(err, "find the generations of execution %d", execution)
	}
	for i := range page {
		page[i].Generation = int(numbers[i])
	}
	return nil
}
