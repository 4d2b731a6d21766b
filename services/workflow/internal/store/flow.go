package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/pkg/telemetry"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/flow"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/program"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/store/payloads"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/store/query"
)

var _ flow.Store = (*Store)(nil)

// RegisterFlow makes a flow the current one of its name. Old version and new change places in one transaction: an event
// meets one of the two.
func (s *Store) RegisterFlow(ctx context.Context, f flow.Flow, sum [32]byte) (current flow.Flow, created bool, err error) {
	err = s.tx(ctx, func(_ pgx.Tx, q *query.Queries) error {
		current, created = f, false
		if err := q.LockFlowName(ctx, query.LockFlowNameParams{Organization: f.Organization, Name: f.Name}); err != nil {
			return pg.Classify(err, "lock flow %q", f.Name)
		}
		row, err := q.CurrentFlow(ctx, query.CurrentFlowParams{Organization: f.Organization, Name: f.Name})
		if err == nil && digest(row.Digest) == sum {
			current.ID, current.Version, current.RegisteredAt = row.ID, int(row.Version), row.RegisteredAt
			return nil
		}
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return pg.Classify(err, "find flow %q", f.Name)
		}
		last, err := q.LastVersion(ctx, query.LastVersionParams{Organization: f.Organization, Name: f.Name})
		if err != nil {
			return pg.Classify(err, "number flow %q", f.Name)
		}
		if err := retireFlow(ctx, q, f.Organization, f.Name, f.RegisteredAt); err != nil && !fault.Is(err, fault.NotFound) {
			return err
		}
		current.Version, created = int(last)+1, true
		current.ID, err = saveFlow(ctx, q, current, sum)
		return err
	})
	return current, created, err
}

// saveFlow stores a version with its handlers and what may start them.
func saveFlow(ctx context.Context, q *query.Queries, f flow.Flow, sum [32]byte) (int64, error) {
	main := program.Digest(f.Program.Source)
	modules := make(map[string]string, len(f.Program.Modules))
	sources := query.SaveProgramsParams{Digests: [][]byte{main[:]}, Sources: [][]byte{f.Program.Source}}
	for name, source := range f.Program.Modules {
		sum := program.Digest(source)
		modules[name] = program.Hex(sum)
		sources.Digests, sources.Sources = append(sources.Digests, sum[:]), append(sources.Sources, source)
	}
	if err := q.SavePrograms(ctx, sources); err != nil {
		return 0, pg.Classify(err, "save program of flow %q", f.Name)
	}
	p := query.SaveFlowParams{
		Organization: f.Organization, Name: f.Name, Version: int32(f.Version), Program: main[:], Inputs: f.Inputs, Digest: sum[:],
		RegisteredAt: f.RegisteredAt,
	}
	if len(f.Inputs) == 0 {
		p.Inputs = []byte("{}")
	}
	for _, field := range []struct {
		into  *[]byte
		value any
	}{{&p.Modules, modules}, {&p.Secrets, f.Secrets}, {&p.Labels, f.Labels}} {
		encoded, err := json.Marshal(field.value)
		if err != nil {
			return 0, fmt.Errorf("encode flow %q: %w", f.Name, err)
		}
		*field.into = encoded
	}
	id, err := q.SaveFlow(ctx, p)
	if err != nil {
		return 0, pg.Classify(err, "save flow %q", f.Name)
	}
	for place, h := range f.Handlers {
		filter, err := json.Marshal(h.Filter)
		if err != nil {
			return 0, fmt.Errorf("encode filter of flow %q: %w", f.Name, err)
		}
		handler, err := q.SaveHandler(ctx, query.SaveHandlerParams{
			Flow: id, Place: int32(place), Types: h.Types, Filter: filter, Function: h.Function, Position: h.Position,
		})
		if err == nil {
			err = q.SaveTriggers(ctx, query.SaveTriggersParams{Organization: f.Organization, Types: h.Types, Handler: handler})
		}
		if err != nil {
			return 0, pg.Classify(err, "save handlers of flow %q", f.Name)
		}
	}
	return id, nil
}

// DeleteFlow retires a flow.
func (s *Store) DeleteFlow(ctx context.Context, organization int64, name string, at time.Time) error {
	return s.tx(ctx, func(_ pgx.Tx, q *query.Queries) error { return retireFlow(ctx, q, organization, name, at) })
}

// retireFlow has no further event meet the flow. Its rows stay for those that have.
func retireFlow(ctx context.Context, q *query.Queries, organization int64, name string, at time.Time) error {
	id, err := q.RetireFlow(ctx, query.RetireFlowParams{RetiredAt: at, Organization: organization, Name: name})
	if errors.Is(err, pgx.ErrNoRows) {
		return fault.New(fault.NotFound, "there is no flow %q in organization %d", name, organization)
	}
	if err == nil {
		err = q.DropTriggers(ctx, id)
	}
	return pg.Classify(err, "retire flow %q", name)
}

// ListFlows reads a page of current flows.
func (s *Store) ListFlows(ctx context.Context, organization, after int64, limit int) ([]flow.Flow, error) {
	rows, err := s.queries.ListFlows(ctx, query.ListFlowsParams{Organization: organization, After: after, Most: int32(limit)})
	if err != nil {
		return nil, pg.Classify(err, "list flows of organization %d", organization)
	}
	ids := make([]int64, len(rows))
	for i, row := range rows {
		ids[i] = row.ID
	}
	handlers, err := s.handlers(ctx, ids)
	if err != nil {
		return nil, err
	}
	flows := make([]flow.Flow, len(rows))
	for i, row := range rows {
		flows[i] = flow.Flow{
			ID: row.ID, Organization: row.Organization, Name: row.Name, Version: int(row.Version), ProgramDigest: program.Hex(digest(row.Program)),
			Handlers: handlers[row.ID], RegisteredAt: row.RegisteredAt, Started: row.Started, Refused: row.Refused, LastRefusal: row.LastRefusal,
		}
	}
	return flows, nil
}

// handlers reads the handlers of flows, in the order of the programs.
func (s *Store) handlers(ctx context.Context, flows []int64) (map[int64][]program.Handler, error) {
	rows, err := s.queries.HandlersOf(ctx, flows)
	if err != nil {
		return nil, pg.Classify(err, "read handlers of flows")
	}
	handlers := map[int64][]program.Handler{}
	for _, row := range rows {
		h := program.Handler{Types: row.Types, Function: row.Function, Position: row.Position}
		if err := json.Unmarshal(row.Filter, &h.Filter); err != nil {
			return nil, fmt.Errorf("filter of handler %d: %w", row.ID, err)
		}
		handlers[row.Flow] = append(handlers[row.Flow], h)
	}
	return handlers, nil
}

// LoadFlow reads a version with its program.
func (s *Store) LoadFlow(ctx context.Context, id int64) (flow.Flow, error) {
	row, err := s.queries.LoadFlow(ctx, id)
	if err != nil {
		return flow.Flow{}, pg.Classify(err, "load flow %d", id)
	}
	f := flow.Flow{
		ID: row.ID, Organization: row.Organization, Name: row.Name, Version: int(row.Version), ProgramDigest: program.Hex(digest(row.Program)),
		Inputs: row.Inputs, RegisteredAt: row.RegisteredAt,
	}
	if err := errors.Join(json.Unmarshal(row.Secrets, &f.Secrets), json.Unmarshal(row.Labels, &f.Labels)); err != nil {
		return flow.Flow{}, fmt.Errorf("flow %d: %w", id, err)
	}
	if f.Program, err = s.program(ctx, fmt.Sprintf("flow %d", id), row.Program, row.Modules); err != nil {
		return flow.Flow{}, err
	}
	handlers, err := s.handlers(ctx, []int64{id})
	f.Handlers = handlers[id]
	return f, err
}

// The interval between attempts to start a run, while that is not possible, grows from the first to the longest.
const (
	firstFlowAttempt   = time.Second
	longestFlowAttempt = time.Minute
)

// NextFlowWork takes events that have met a handler.
func (s *Store) NextFlowWork(ctx context.Context, now time.Time, limit int) ([]flow.Work, error) {
	rows, err := s.queries.NextFlowWork(ctx, query.NextFlowWorkParams{
		Now: now, Most: int32(limit), First: interval(firstFlowAttempt), Longest: interval(longestFlowAttempt),
	})
	if err != nil {
		return nil, pg.Classify(err, "take events that start flows")
	}
	var large payloads.Columns
	for i := range rows {
		large.Add(rows[i].Data, func(whole []byte) { rows[i].Data = whole }, func(err error) {
			s.Log.ErrorContext(ctx, "an event is damaged; its flow is not started", "event", rows[i].ID, telemetry.KeyError, err)
			rows[i].Data = nil // stored data is never absent
		})
	}
	if err := large.Read(ctx, s.queries); err != nil {
		return nil, err
	}
	rows = slices.DeleteFunc(rows, func(row query.NextFlowWorkRow) bool { return row.Data == nil })
	work := make([]flow.Work, len(rows))
	for i, row := range rows {
		work[i] = flow.Work{Handler: row.Handler, Place: int(row.Place), Flow: row.Flow, Event: history.Event{
			Row: row.ID, Organization: row.Organization, Source: row.Source, ID: row.EventID, Type: row.Type, Data: row.Data, Time: row.OccurredAt,
		}}
	}
	return work, nil
}

// FlowWorkDone forgets work, and counts what it led to with it.
func (s *Store) FlowWorkDone(ctx context.Context, w flow.Work, o flow.Outcome) error {
	return s.tx(ctx, func(_ pgx.Tx, q *query.Queries) error {
		n, err := q.DropFlowWork(ctx, query.DropFlowWorkParams{Event: w.Event.Row, Handler: w.Handler})
		switch {
		case err != nil || n == 0:
		case o.Started:
			err = q.CountStart(ctx, w.Flow)
		case o.Refusal != "":
			err = q.CountRefusal(ctx, query.CountRefusalParams{ID: w.Flow, LastRefusal: o.Refusal})
		}
		return pg.Classify(err, "finish the work of flow %d for event %d", w.Flow, w.Event.Row)
	})
}
