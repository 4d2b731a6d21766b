package store

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/store/query"
)

// epoch stands for no time in a column that is not null.
var epoch = time.Unix(0, 0) //nolint:gochecknoglobals // a constant

// beginGenerations makes the generations known that begin with turns which have ended the one before.
func beginGenerations(ctx context.Context, q *query.Queries, turns []*turn) error {
	var p query.BeginGenerationsParams
	for _, t := range turns {
		if t.Continue == nil {
			continue
		}
		p.Executions, p.Numbers = append(p.Executions, t.Execution.ID), append(p.Numbers, int32(t.Execution.Generation+1))
		p.Bases, p.Calls, p.Ats = append(p.Bases, t.LastSeq), append(p.Calls, string(t.Continue)), append(p.Ats, t.At)
		held := t.HeldUntil
		if held.IsZero() {
			held = epoch
		}
		p.Helds = append(p.Helds, held)
	}
	if len(p.Executions) == 0 {
		return nil
	}
	if err := noteHad(ctx, q, turns); err != nil {
		return err
	}
	return pg.Classify(q.BeginGenerations(ctx, p), "begin generations of %d executions", len(p.Executions))
}

// noteHad keeps how far the runs whose generations end have had the events that they wait for. The entries of the turns are written.
func noteHad(ctx context.Context, q *query.Queries, turns []*turn) error {
	var p query.NoteHadParams
	for _, t := range turns {
		for _, want := range t.Had {
			key := keyOf(t.Execution.Organization, want)
			p.Executions, p.Keys = append(p.Executions, t.Execution.ID), append(p.Keys, key[:])
		}
	}
	if len(p.Executions) == 0 {
		return nil
	}
	return pg.Classify(q.NoteHad(ctx, p), "note what %d executions have had", len(turns))
}

// generation is the one that a run is in, and the last entry of the one before.
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

// generations says of each entry of a page, which is in the order of a history, which generation it is of.
func (s *Store) generations(ctx context.Context, execution int64, page []core.Entry) error {
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
