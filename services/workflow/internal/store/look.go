package store

import (
	"context"
	"fmt"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/store/query"
)

// The kinds of rows that Standings answers beside those that are stored (core.ArrivalKind).
const (
	// nothingCame is the row that says where an execution stands to which nothing has come.
	nothingCame = -1
	// timerGoesOn and timerFired are timers of what is open.
	timerGoesOn, timerFired = -2, int16(core.TimerArrived)
)

// look is an execution that is asked for what has come.
type look struct {
	execution int64
	// known says that there is one.
	known    bool
	standing core.Standing
	arrived  []core.Arrival
}

// Arrivals reads what has come for an execution, where it stands, and the counter that tells a later commit whether more
// came: all at one moment. Events and answers are in the order in which they came, and timers behind them: what came in
// time wins over the end of the time. Those who ask at the same time share a statement.
func (s *Store) Arrivals(ctx context.Context, execution int64) (core.Standing, []core.Arrival, error) {
	item := &look{execution: execution}
	if err := s.looks.do(ctx, item); err != nil {
		return core.Standing{}, nil, err
	}
	if !item.known {
		return core.Standing{}, nil, fault.New(fault.NotFound, "there is no execution %d", execution)
	}
	if item.standing.State.Ended() {
		return item.standing, nil, fmt.Errorf("look at execution %d: %w", execution, core.ErrFenced)
	}
	return item.standing, item.arrived, nil
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
	found := make(map[int64]*look, len(rows))
	for _, row := range rows {
		item := found[row.Execution]
		if item == nil {
			item = &look{execution: row.Execution, known: true, standing: core.Standing{State: core.State(row.State), Wakes: row.Wakes}}
			found[row.Execution] = item
		}
		if row.Kind == nothingCame || item.standing.State.Ended() {
			continue
		}
		a, err := arrival(row)
		if err != nil {
			return err
		}
		item.arrived = append(item.arrived, a)
	}
	for _, item := range items {
		if there := found[item.execution]; there != nil {
			*item = *there
		}
	}
	return nil
}

// arrival is a row as core knows it.
func arrival(row query.StandingsRow) (a core.Arrival, err error) {
	a = core.Arrival{Op: ref(row.Branch, row.Op), Kind: core.ArrivalKind(row.Kind), Value: row.Value}
	if a.Error, err = decodeError(row.Error); err != nil {
		return a, fmt.Errorf("answer to %s of execution %d: %w", a.Op, row.Execution, err)
	}
	if a.Kind == core.EventArrived {
		// Forget keeps events that were handed over, so this is a fault and not the end of a retention.
		if row.Event == nil || row.EventID == nil || row.Source == nil || row.Type == nil || row.OccurredAt == nil {
			return a, fmt.Errorf("event of %s of execution %d is gone", a.Op, row.Execution)
		}
		a.Event = *row.Event
		a.Value = core.Event{ID: *row.EventID, Source: *row.Source, Type: *row.Type, Data: row.Data, Time: *row.OccurredAt}.Value()
	}
	return a, nil
}
