package store

import (
	"context"
	"fmt"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/engine"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/execution"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/store/payloads"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/store/query"
)

// The kinds of rows that Standings returns beside those that are stored (engine.ArrivalKind).
const (
	// noArrival is the row of an execution without arrivals.
	noArrival = -1
	// timerOpen and timerFired are timers of open operations.
	timerOpen, timerFired = -2, int16(engine.TimerArrived)
)

// look is an execution whose arrivals are being read.
type look struct {
	execution int64
	// known reports that the execution exists.
	known    bool
	standing engine.Standing
	arrivals []engine.Arrival
}

// Arrivals reads an execution's arrivals, its state, and the counter by which a later commit notices further arrivals, all at one moment.
// Events and answers are in their order of arrival, timers after them: what arrived in time wins over the timeout. Concurrent callers
// share a statement.
func (s *Store) Arrivals(ctx context.Context, execution int64) (engine.Standing, []engine.Arrival, error) {
	item := &look{execution: execution}
	if err := s.looks.do(ctx, item); err != nil {
		return engine.Standing{}, nil, err
	}
	if !item.known {
		return engine.Standing{}, nil, fault.New(fault.NotFound, "there is no execution %d", execution)
	}
	if item.standing.State.Ended() {
		return item.standing, nil, fmt.Errorf("look at execution %d: %w", execution, engine.ErrFenced)
	}
	return item.standing, item.arrivals, nil
}

// lookAll is Arrivals of many executions.
func (s *Store) lookAll(ctx context.Context, items []*look) error {
	ids := make([]int64, len(items))
	for i, item := range items {
		ids[i] = item.execution
	}
	rows, err := s.queries.Standings(ctx, query.StandingsParams{Ids: ids})
	if err != nil {
		return pg.Classify(err, "look at %d executions", len(items))
	}
	if err := s.wholeArrivals(ctx, rows); err != nil {
		return err
	}
	found := make(map[int64]*look, len(rows))
	for _, row := range rows {
		item := found[row.Execution]
		if item == nil {
			item = &look{execution: row.Execution, known: true, standing: engine.Standing{State: execution.Named(row.State), Wakes: row.Wakes}}
			found[row.Execution] = item
		}
		if row.Kind == noArrival || item.standing.State.Ended() {
			continue
		}
		a, err := arrival(row)
		if err != nil {
			return err
		}
		item.arrivals = append(item.arrivals, a)
	}
	for _, item := range items {
		if read := found[item.execution]; read != nil {
			*item = *read
		}
	}
	return nil
}

// wholeArrivals completes the data of events that are not stored in their rows. An event whose payload is missing loses its id, so that it
// is found to be damaged.
func (s *Store) wholeArrivals(ctx context.Context, rows []query.StandingsRow) error {
	var large payloads.Columns
	for i := range rows {
		large.Add(rows[i].Data, func(whole []byte) { rows[i].Data = whole }, func(error) { rows[i].EventID = nil })
	}
	return large.Read(ctx, s.queries)
}

// arrival is a row as core knows it.
func arrival(row query.StandingsRow) (a engine.Arrival, err error) {
	a = engine.Arrival{Op: ref(row.Branch, row.Op), Kind: engine.ArrivalKind(row.Kind), Value: row.Value, Tries: decodeTries(row.Tries)}
	if a.Error, err = decodeError(row.Error); err != nil {
		return a, fmt.Errorf("answer to %s of execution %d: %w", a.Op, row.Execution, err)
	}
	if a.Kind == engine.EventArrived {
		// Forget keeps events that were delivered, so this is damage and not the end of their retention.
		if row.Event == nil || row.EventID == nil || row.Source == nil || row.Type == nil || row.OccurredAt == nil {
			return a, fmt.Errorf("event of %s of execution %d is gone", a.Op, row.Execution)
		}
		a.Event = *row.Event
		a.Value = history.Event{ID: *row.EventID, Source: *row.Source, Type: *row.Type, Data: row.Data, Time: *row.OccurredAt}.Value()
	}
	return a, nil
}
