package store

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/store/query"
)

// Load reads everything needed to continue an execution. The row with its counters is read first: what arrives during
// the rest is found by the fence of the next commit.
func (s *Store) Load(ctx context.Context, execution int64) (core.Loaded, error) {
	row, err := s.queries.LoadExecution(ctx, execution)
	if err != nil {
		return core.Loaded{}, pg.Classify(err, "load execution %d", execution)
	}
	// Cancelled between claim and load.
	if core.State(row.State).Ended() {
		return core.Loaded{}, fmt.Errorf("load execution %d: %w", execution, core.ErrFenced)
	}
	l := core.Loaded{
		Execution: core.Execution{
			ID: row.ID, Ref: core.Handle(row.Ref, int(row.Attempt), int(row.Generation)), Generation: int(row.Generation), Base: row.BaseSeq, Organization: row.Organization, Workflow: row.Workflow,
			State: core.State(row.State), Program: core.Hex(digest(row.Program)), CreatedAt: row.CreatedAt, Trace: row.Trace,
		},
		Inputs: row.Inputs, Turn: row.Turn, Wakes: row.Wakes,
	}
	if err := json.Unmarshal(row.Secrets, &l.Secrets); err != nil {
		return core.Loaded{}, fmt.Errorf("secrets of execution %d: %w", execution, err)
	}
	if l.Program, err = s.program(ctx, fmt.Sprintf("execution %d", execution), row.Program, row.Modules); err != nil {
		return core.Loaded{}, err
	}
	if l.Generation > 1 {
		l.Continuation = row.Call
	}
	// All of the generation: replay needs every entry, and max_history bounds them.
	if l.History, err = s.entries(ctx, execution, l.Base, math.MaxInt32); err != nil {
		return core.Loaded{}, err
	}
	timers, err := s.queries.TimersOf(ctx, execution)
	if err != nil {
		return core.Loaded{}, pg.Classify(err, "load timers of execution %d", execution)
	}
	for _, t := range timers {
		l.Open = append(l.Open, core.Opened{Op: ref(t.Branch, t.Op), Deadline: t.Due})
	}
	if l.Polls, err = s.polls(ctx, execution); err != nil {
		return core.Loaded{}, err
	}
	_, l.Arrived, err = s.Arrivals(ctx, execution)
	return l, err
}

// program puts the pinned sources together. They are found by digest: a run goes on with the bytes it was started
// with, whatever is submitted later (D7).
func (s *Store) program(ctx context.Context, owner string, main, named []byte) (core.Program, error) {
	var modules map[string]string
	if err := json.Unmarshal(named, &modules); err != nil {
		return core.Program{}, fmt.Errorf("modules of %s: %w", owner, err)
	}
	// No module is without a name (core.Start).
	names, missing := map[string][32]byte{"": digest(main)}, [][]byte(nil)
	for name, sum := range modules {
		b, err := hex.DecodeString(sum)
		if err != nil {
			return core.Program{}, fmt.Errorf("digest of module %q of %s: %w", name, owner, err)
		}
		names[name] = digest(b)
	}
	files := make(map[[32]byte][]byte, len(names))
	for _, sum := range names {
		source, known := s.sources.find(sum)
		if files[sum] = source; !known {
			missing = append(missing, sum[:])
		}
	}
	if len(missing) > 0 {
		rows, err := s.queries.LoadPrograms(ctx, missing)
		if err != nil {
			return core.Program{}, pg.Classify(err, "load program of %s", owner)
		}
		for _, r := range rows {
			files[digest(r.Digest)] = r.Source
			s.sources.add(digest(r.Digest), r.Source)
		}
	}
	p := core.Program{Source: files[digest(main)], Modules: make(map[string][]byte, len(modules))}
	for name := range modules {
		p.Modules[name] = files[names[name]]
	}
	return p, nil
}

// nothingCame is the kind of the row that says where an execution stands to which nothing has come.
const nothingCame = -1

// Arrivals reads what has come for an execution, where it stands, and the counter that tells a later commit whether more
// came: all at one moment. Events and answers are in the order in which they came, and timers behind them: what came in
// time wins over the end of the time.
func (s *Store) Arrivals(ctx context.Context, execution int64) (core.Standing, []core.Arrival, error) {
	rows, err := s.queries.Arrivals(ctx, execution)
	if err != nil {
		return core.Standing{}, nil, pg.Classify(err, "look at execution %d", execution)
	}
	if len(rows) == 0 {
		return core.Standing{}, nil, fault.New(fault.NotFound, "there is no execution %d", execution)
	}
	standing := core.Standing{State: core.State(rows[0].State), Wakes: rows[0].Wakes}
	if standing.State.Ended() {
		return standing, nil, fmt.Errorf("look at execution %d: %w", execution, core.ErrFenced)
	}
	if rows[0].Kind == nothingCame {
		return standing, nil, nil
	}
	arrived, err := arrivals(execution, rows)
	return standing, arrived, err
}

// arrivals are rows as core knows them.
func arrivals(execution int64, rows []query.ArrivalsRow) (_ []core.Arrival, err error) {
	arrived := make([]core.Arrival, len(rows))
	for i, row := range rows {
		a := core.Arrival{Op: ref(row.Branch, row.Op), Kind: core.ArrivalKind(row.Kind), Value: row.Value}
		if a.Error, err = decodeError(row.Error); err != nil {
			return nil, fmt.Errorf("answer to %s of execution %d: %w", a.Op, execution, err)
		}
		if a.Kind == core.EventArrived {
			// Forget keeps events that were handed over, so this is a fault and not the end of a retention.
			if row.Event == nil || row.EventID == nil || row.Source == nil || row.Type == nil || row.OccurredAt == nil {
				return nil, fmt.Errorf("event of %s of execution %d is gone", a.Op, execution)
			}
			a.Event = *row.Event
			a.Value = core.Event{ID: *row.EventID, Source: *row.Source, Type: *row.Type, Data: row.Data, Time: *row.OccurredAt}.Value()
		}
		arrived[i] = a
	}
	return arrived, nil
}
