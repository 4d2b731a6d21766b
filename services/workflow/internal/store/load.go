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
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/store/query"
)

// After a crash all runs that were under way are read at once, and when many timers end, all that were evicted. What is read at the
// same time is read together: three statements for all of them.
const (
	// readMost bounds how many executions are read together, readLanes how often that is done at a time. A run has to wait for those
	// it is read with.
	readMost, readLanes = 128, 4
	// loadEntries is the longest history that is read together with others; a longer one is read by itself. So what is in memory
	// twice is bounded, and nobody waits for it.
	loadEntries = 500
)

// load is an execution on its way into memory.
type load struct {
	execution int64
	loaded    core.Loaded
	// entries is the length of its history, which is not there yet where that is more than loadEntries.
	entries int64
	// refusal is why it cannot be had.
	refusal error
}

// Load reads everything needed to continue an execution. Loads of the same moment share their statements.
func (s *Store) Load(ctx context.Context, execution int64) (core.Loaded, error) {
	item := &load{execution: execution}
	if err := s.loads.do(ctx, item); err != nil {
		return core.Loaded{}, err
	}
	if item.refusal != nil {
		return core.Loaded{}, item.refusal
	}
	if item.entries > loadEntries {
		var err error
		// All of the generation: replay needs every entry, and max_history bounds them.
		if item.loaded.History, err = s.entries(ctx, execution, item.loaded.Base, math.MaxInt32); err != nil {
			if broken, is := errors.AsType[*undecodable](err); is {
				return core.Loaded{}, item.damaged("%v", broken)
			}
			return core.Loaded{}, err
		}
	}
	if err := item.whole(); err != nil {
		return core.Loaded{}, err
	}
	return item.loaded, nil
}

// damaged says that what is stored of an execution is no whole.
func (l *load) damaged(format string, args ...any) error {
	return &core.Damaged{Organization: l.loaded.Organization, Workflow: l.loaded.Workflow, What: fmt.Sprintf(format, args...)}
}

// damagedMost is how many gaps of a history are named.
const damagedMost = 5

// whole looks for entries that are not there. Their numbers have no gaps: each turn counts on from the last one.
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
	return l.damaged("entries are missing from its history: %s; found %d of generation %d, expected %d", text, len(l.loaded.History), l.loaded.Generation, l.entries)
}

// loadAll reads many executions. The rows with their counters are read first: what arrives during the rest is found by the fence of
// the next commit.
func (s *Store) loadAll(ctx context.Context, items []*load) error {
	ids := make([]int64, len(items))
	for i, item := range items {
		ids[i] = item.execution
	}
	rows, err := s.queries.LoadMany(ctx, query.LoadManyParams{Ids: ids, Pace: int32(s.Generations)})
	if err != nil {
		return pg.Classify(err, "load %d executions", len(items))
	}
	found := make(map[int64]*load, len(rows))
	var histories query.HistoriesParams
	for _, row := range rows {
		item := &load{execution: row.ID, entries: row.LastSeq - row.BaseSeq}
		found[row.ID] = item
		// Cancelled between claim and load.
		if core.State(row.State).Ended() {
			item.refusal = fmt.Errorf("load execution %d: %w", row.ID, core.ErrFenced)
			continue
		}
		item.loaded = core.Loaded{Execution: core.Execution{ID: row.ID, Organization: row.Organization, Workflow: row.Workflow, Generation: int(row.Generation)}}
		whole, err := loaded(row)
		if err != nil {
			item.refusal = item.damaged("%v", err) // it is of no concern to those that are read with it
			continue
		}
		item.loaded = whole
		if item.entries > 0 && item.entries <= loadEntries {
			histories.Executions, histories.Bases = append(histories.Executions, row.ID), append(histories.Bases, row.BaseSeq)
		}
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
		if there := found[item.execution]; there != nil {
			*item = *there
			continue
		}
		item.refusal = fault.New(fault.NotFound, "there is no execution %d", item.execution)
	}
	return nil
}

// loaded is what the row of an execution says.
func loaded(row query.LoadManyRow) (core.Loaded, error) {
	l := core.Loaded{
		Execution: core.Execution{
			ID: row.ID, Ref: core.Handle(row.Ref, int(row.Attempt), int(row.Generation)), Generation: int(row.Generation), Base: row.BaseSeq, Organization: row.Organization, Workflow: row.Workflow,
			State: core.State(row.State), Program: core.Hex(digest(row.Program)), CreatedAt: row.CreatedAt, Trace: row.Trace,
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
		return core.Loaded{}, fmt.Errorf("secrets of execution %d: %w", row.ID, err)
	}
	return l, nil
}

// historiesOf reads histories that are short.
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
			l.History = make([]core.Entry, 0, found[row.Execution].entries)
		}
		e, err := entry(row)
		if err != nil {
			found[row.Execution].refusal = found[row.Execution].damaged("%v", err)
			continue
		}
		l.History = append(l.History, e)
	}
	return nil
}

// openOf reads what executions have open, and what has come for it.
func (s *Store) openOf(ctx context.Context, ids []int64, found map[int64]*load) error {
	rows, err := s.queries.Standings(ctx, query.StandingsParams{Ids: ids, Everything: true})
	if err != nil {
		return pg.Classify(err, "load what %d executions have open", len(ids))
	}
	for _, row := range rows {
		l := &found[row.Execution].loaded
		if row.Kind == timerFired || row.Kind == timerGoesOn {
			l.Open = append(l.Open, core.Opened{Op: ref(row.Branch, row.Op), Deadline: row.Due})
		}
		if row.Polled != nil {
			p := core.Polling{Op: ref(row.Branch, row.Op), Function: *row.Polled, Round: int(*row.Round), Calling: *row.Calling, Deadline: *row.Deadline, Value: row.Seen}
			if p.Error, err = decodeError(row.Problem); err != nil {
				found[row.Execution].refusal = found[row.Execution].damaged("poll %s: %v", p.Op, err)
				continue
			}
			l.Polls = append(l.Polls, p)
		}
		if row.Kind == nothingCame || row.Kind == timerGoesOn {
			continue
		}
		a, err := arrival(row)
		if err != nil {
			found[row.Execution].refusal = found[row.Execution].damaged("what came for %s: %v", ref(row.Branch, row.Op), err)
			continue
		}
		l.Arrived = append(l.Arrived, a)
	}
	return nil
}

// programsOf puts the programs of executions together.
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

// pinned are the sources of a run by digest: it goes on with the bytes it was started with, whatever is submitted later (D7).
type pinned struct {
	main    [32]byte
	modules map[string][32]byte
	into    *core.Program
	// refuse is told where a source is missing.
	refuse func(missing string)
}

// pin reads the columns of a program. owner is who has it, for people.
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

// program is the program of one owner.
func (s *Store) program(ctx context.Context, owner string, main, named []byte) (program core.Program, err error) {
	p, err := pin(owner, main, named)
	if err != nil {
		return core.Program{}, err
	}
	var missing error
	p.into, p.refuse = &program, func(what string) { missing = fmt.Errorf("program of %s: %s", owner, what) }
	if err := s.fill(ctx, []pinned{p}); err != nil {
		return core.Program{}, err
	}
	return program, missing
}

// fill finds the sources of programs. Those that are not remembered are read together.
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
		*p.into = core.Program{Source: files[p.main], Modules: make(map[string][]byte, len(p.modules))}
		for name, sum := range p.modules {
			p.into.Modules[name] = files[sum]
		}
	}
	return nil
}
