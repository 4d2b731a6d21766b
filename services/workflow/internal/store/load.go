package store

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/engine"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/execution"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/program"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/store/payloads"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/store/query"
)

// After a crash all runs that were in progress are loaded at once, and when many timers fire, all that were evicted. Executions that are
// loaded at the same time share three statements.
const (
	// readMost bounds how many executions are read together, because each waits for all of them. readLanes is the number of concurrent
	// reads.
	readMost, readLanes = 128, 4
	// loadEntries is the longest history that is read together with others; a longer one is read by itself. That bounds what is in
	// memory twice, and no other execution waits for it.
	loadEntries = 500
)

// load is an execution on its way into memory.
type load struct {
	execution int64
	loaded    engine.Loaded
	// entries is the length of its history, which is not read yet if that is more than loadEntries.
	entries int64
	// refusal is why it cannot be loaded.
	refusal error
	// ended is set if it is loaded although it has ended.
	ended bool
}

// Load reads everything needed to continue an execution. Loads of the same moment share their statements.
func (s *Store) Load(ctx context.Context, execution int64) (engine.Loaded, error) {
	item := &load{execution: execution}
	if err := s.loads.do(ctx, item); err != nil {
		return engine.Loaded{}, err
	}
	return s.complete(ctx, item)
}

// LoadAny is Load for readers: it also reads an execution that has ended.
func (s *Store) LoadAny(ctx context.Context, execution int64) (engine.Loaded, error) {
	item := &load{execution: execution, ended: true}
	if err := s.loadAll(ctx, []*load{item}); err != nil {
		return engine.Loaded{}, err
	}
	return s.complete(ctx, item)
}

// complete reads a history that is too long to be read with others.
func (s *Store) complete(ctx context.Context, item *load) (engine.Loaded, error) {
	if item.refusal != nil {
		return engine.Loaded{}, item.refusal
	}
	if item.entries > loadEntries {
		var err error
		// All of the generation: replay needs every entry, and max_history bounds them.
		if item.loaded.History, err = s.entries(ctx, item.execution, item.loaded.Base, math.MaxInt32); err != nil {
			if broken, is := errors.AsType[*undecodable](err); is {
				return engine.Loaded{}, item.damaged("%v", broken)
			}
			return engine.Loaded{}, err
		}
	}
	if err := item.whole(); err != nil {
		return engine.Loaded{}, err
	}
	return item.loaded, nil
}

// damaged is the error for an execution that is not stored completely.
func (l *load) damaged(format string, args ...any) error {
	return &engine.Damaged{Organization: l.loaded.Organization, Workflow: l.loaded.Workflow, What: fmt.Sprintf(format, args...)}
}

// damagedMost is how many gaps of a history an error names.
const damagedMost = 5

// whole checks that no entry is missing: the numbers of a history have no gaps.
func (l *load) whole() error {
	next, last := l.loaded.Base+1, l.loaded.Base+l.entries
	var gaps []string
	gap := func(to int64) {
		switch {
		case to == next:
			gaps = append(gaps, strconv.FormatInt(next, 10))
		case to > next:
			gaps = append(gaps, fmt.Sprintf("%d to %d", next, to))
		}
	}
	for _, e := range l.loaded.History {
		gap(e.Seq - 1)
		next = e.Seq + 1
	}
	gap(last)
	if len(gaps) == 0 {
		return nil
	}
	text := strings.Join(gaps[:min(len(gaps), damagedMost)], ", ")
	if len(gaps) > damagedMost {
		text += fmt.Sprintf(" and %d more gaps", len(gaps)-damagedMost)
	}
	return l.damaged("entries are missing from its history: %s; found %d of generation %d, expected %d",
		text, len(l.loaded.History), l.loaded.Generation, l.entries)
}

// loadAll reads many executions. Their rows, with the counters, are read first, so that the fence of the next commit notices what arrives
// while the rest is read.
func (s *Store) loadAll(ctx context.Context, items []*load) error {
	ids, anyway := make([]int64, len(items)), map[int64]bool{}
	for i, item := range items {
		ids[i] = item.execution
		if item.ended {
			anyway[item.execution] = true
		}
	}
	rows, err := s.queries.LoadMany(ctx, query.LoadManyParams{Ids: ids, Pace: int32(s.Generations)})
	if err != nil {
		return pg.Classify(err, "load %d executions", len(items))
	}
	found := make(map[int64]*load, len(rows))
	var histories query.HistoriesParams
	var large payloads.Columns
	for _, row := range rows {
		item := &load{execution: row.ID, entries: row.LastSeq - row.BaseSeq}
		found[row.ID] = item
		// Cancelled between claim and load.
		if execution.Named(row.State).Ended() && !anyway[row.ID] {
			item.refusal = fmt.Errorf("load execution %d: %w", row.ID, engine.ErrFenced)
			continue
		}
		item.loaded = engine.Loaded{Execution: execution.Execution{
			ID: row.ID, Organization: row.Organization, Workflow: row.Workflow, Generation: int(row.Generation),
		}}
		whole, err := loaded(row)
		if err != nil {
			item.refusal = item.damaged("%v", err) // the other executions are loaded
			continue
		}
		item.loaded = whole
		large.Add(whole.Inputs, func(value []byte) { item.loaded.Inputs = value }, func(err error) { item.refusal = item.damaged("%v", err) })
		large.Add(whole.Continuation, func(value []byte) { item.loaded.Continuation = value }, func(err error) {
			item.refusal = item.damaged("%v", err)
		})
		if item.entries > 0 && item.entries <= loadEntries {
			histories.Executions, histories.Bases = append(histories.Executions, row.ID), append(histories.Bases, row.BaseSeq)
		}
	}
	if err := large.Read(ctx, s.queries); err != nil {
		return err
	}
	if err := s.programsOf(ctx, rows, found); err != nil {
		return err
	}
	if err := s.historiesOf(ctx, histories, found); err != nil {
		return err
	}
	if err := s.openOf(ctx, ids, found); err != nil {
		return err
	}
	for _, item := range items {
		if read := found[item.execution]; read != nil {
			*item = *read
			continue
		}
		item.refusal = fault.New(fault.NotFound, "there is no execution %d", item.execution)
	}
	return nil
}

// loaded decodes the row of an execution.
func loaded(row query.LoadManyRow) (engine.Loaded, error) {
	l := engine.Loaded{
		Execution: execution.Execution{
			ID: row.ID, Ref: history.Handle(row.Ref, int(row.Attempt), int(row.Generation)), Generation: int(row.Generation), Base: row.BaseSeq,
			Organization: row.Organization, Workflow: row.Workflow,
			State: execution.Named(row.State), Program: program.Hex(digest(row.Program)), CreatedAt: row.CreatedAt, Trace: row.Trace,
		},
		Inputs: row.Inputs, Turn: row.Turn, Wakes: row.Wakes,
	}
	if l.Generation > 1 {
		l.Continuation = row.Call
		if row.HeldUntil.After(epoch) {
			l.HeldUntil = row.HeldUntil
		}
		if row.Before.After(epoch) {
			l.Before = row.Before
		}
	}
	if err := json.Unmarshal(row.Secrets, &l.Secrets); err != nil {
		return engine.Loaded{}, fmt.Errorf("secrets of execution %d: %w", row.ID, err)
	}
	return l, nil
}

// historiesOf reads the short histories.
func (s *Store) historiesOf(ctx context.Context, p query.HistoriesParams, found map[int64]*load) error {
	if len(p.Executions) == 0 {
		return nil
	}
	rows, err := s.queries.Histories(ctx, p)
	if err != nil {
		return pg.Classify(err, "load the histories of %d executions", len(p.Executions))
	}
	for _, row := range rows {
		l := &found[row.Execution].loaded
		if l.History == nil {
			l.History = make([]history.Entry, 0, found[row.Execution].entries)
		}
		e, err := entry(row)
		if err != nil {
			found[row.Execution].refusal = found[row.Execution].damaged("%v", err)
			continue
		}
		l.History = append(l.History, e)
	}
	var large payloads.Columns
	for _, execution := range p.Executions {
		item := found[execution]
		for i := range item.loaded.History {
			if e := &item.loaded.History[i]; !asIs(e.Kind) {
				large.Add(e.Value, func(whole []byte) { e.Value = whole }, func(err error) { item.refusal = item.damaged("entry %d: %v", e.Seq, err) })
			}
		}
	}
	return large.Read(ctx, s.queries)
}

// openOf reads the open operations of executions, and the arrivals for them.
func (s *Store) openOf(ctx context.Context, ids []int64, found map[int64]*load) error {
	rows, err := s.queries.Standings(ctx, query.StandingsParams{Ids: ids, Everything: true})
	if err != nil {
		return pg.Classify(err, "load what %d executions have open", len(ids))
	}
	if err := s.wholeArrivals(ctx, rows); err != nil {
		return err
	}
	for _, row := range rows {
		l := &found[row.Execution].loaded
		if row.Kind == timerFired || row.Kind == timerOpen {
			l.Open = append(l.Open, engine.Opened{Op: ref(row.Branch, row.Op), Deadline: row.Due})
		}
		if row.Polled != nil {
			p := engine.Polling{
				Op: ref(row.Branch, row.Op), Function: *row.Polled, Round: int(*row.Round), Calling: *row.Calling,
				Deadline: *row.Deadline, Value: row.Seen,
			}
			if p.Error, err = decodeError(row.Problem); err != nil {
				found[row.Execution].refusal = found[row.Execution].damaged("poll %s: %v", p.Op, err)
				continue
			}
			l.Polls = append(l.Polls, p)
		}
		if row.Kind == noArrival || row.Kind == timerOpen {
			continue
		}
		a, err := arrival(row)
		if err != nil {
			found[row.Execution].refusal = found[row.Execution].damaged("the arrival for %s: %v", ref(row.Branch, row.Op), err)
			continue
		}
		l.Arrived = append(l.Arrived, a)
	}
	return nil
}

// programsOf reads the programs of executions.
func (s *Store) programsOf(ctx context.Context, rows []query.LoadManyRow, found map[int64]*load) error {
	pinned := make([]pinned, 0, len(rows))
	for _, row := range rows {
		if found[row.ID].refusal != nil {
			continue
		}
		item := found[row.ID]
		p, err := pin(fmt.Sprintf("execution %d", row.ID), row.Program, row.Modules)
		if err != nil {
			item.refusal = item.damaged("%v", err)
			continue
		}
		p.into, p.refuse = &item.loaded.Program, func(missing string) { item.refusal = item.damaged("%s", missing) }
		pinned = append(pinned, p)
	}
	return s.fill(ctx, pinned)
}

// pinned is the program of a run by digest: a run continues with the sources that it was started with (D7).
type pinned struct {
	main    [32]byte
	modules map[string][32]byte
	into    *program.Program
	// refuse is called if a source is missing.
	refuse func(missing string)
}

// pin decodes the columns of a program. owner names the run or flow in errors.
func pin(owner string, main, named []byte) (pinned, error) {
	p := pinned{main: digest(main)}
	var modules map[string]string
	if err := json.Unmarshal(named, &modules); err != nil {
		return p, fmt.Errorf("modules of %s: %w", owner, err)
	}
	p.modules = make(map[string][32]byte, len(modules))
	for name, sum := range modules {
		b, err := hex.DecodeString(sum)
		if err != nil {
			return p, fmt.Errorf("digest of module %q of %s: %w", name, owner, err)
		}
		p.modules[name] = digest(b)
	}
	return p, nil
}

// program reads the program of one run or flow.
func (s *Store) program(ctx context.Context, owner string, main, named []byte) (source program.Program, err error) {
	p, err := pin(owner, main, named)
	if err != nil {
		return program.Program{}, err
	}
	var missing error
	p.into, p.refuse = &source, func(what string) { missing = fmt.Errorf("program of %s: %s", owner, what) }
	if err := s.fill(ctx, []pinned{p}); err != nil {
		return program.Program{}, err
	}
	return source, missing
}

// fill sets the sources of programs. Those that are not in memory are read together.
func (s *Store) fill(ctx context.Context, programs []pinned) error {
	files := map[[32]byte][]byte{}
	var missing [][]byte
	want := func(sum [32]byte) {
		if _, seen := files[sum]; seen {
			return
		}
		source, known := s.sources.find(sum)
		if files[sum] = source; !known {
			missing = append(missing, sum[:])
		}
	}
	for _, p := range programs {
		want(p.main)
		for _, sum := range p.modules {
			want(sum)
		}
	}
	if len(missing) > 0 {
		rows, err := s.queries.LoadPrograms(ctx, missing)
		if err != nil {
			return pg.Classify(err, "load %d programs", len(missing))
		}
		for _, r := range rows {
			files[digest(r.Digest)] = r.Source
			s.sources.add(digest(r.Digest), r.Source)
		}
	}
	there := map[[32]byte]bool{}
	for sum, source := range files {
		there[sum] = source != nil
	}
	for _, p := range programs {
		if !there[p.main] {
			p.refuse(fmt.Sprintf("the program with the digest %x is missing", p.main))
			continue
		}
		for name, sum := range p.modules {
			if !there[sum] {
				p.refuse(fmt.Sprintf("the module %q with the digest %x is missing", name, sum))
			}
		}
		*p.into = program.Program{Source: files[p.main], Modules: make(map[string][]byte, len(p.modules))}
		for name, sum := range p.modules {
			p.into.Modules[name] = files[sum]
		}
	}
	return nil
}
