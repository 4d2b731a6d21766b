package store

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/engine"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/store/payloads"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/store/query"
)

// How an event and a wait find each other, whichever comes first.
//
// Both have keys: an event has one for each shape that is registered for its type, a wait has that of its filter. Every transaction
// that stores an event or a wait first locks its keys, and a share of its type; one that stores a shape locks the type as a whole
// (lock.go). It holds the locks until it has committed. So transactions with the same key run one after the other, each of their
// statements sees everything that earlier ones have stored, and the later one of an event and its wait finds the earlier one. They cannot
// miss each other, nothing is left to look up after a commit, and a crash in between loses nothing. Transactions of other keys, types or
// organizations are not in the way: events that no filter asks for wait for no one.
//
// A wait that has met its event gets it in the same transaction, under the lock of its execution, which is taken before anyone looks what
// may be delivered: a wait for several types has several keys, and two events may come for it at the same moment.
//
// Events of a key are numbered under its lock, so their numbers are in the order of their commits. A run gets the events with a higher
// number than any that was stored when it was started: none that was stored before its start, and every one that was sent after the start
// had been confirmed. An event that is being stored at that moment may be either.
//
// A transaction has the items of all concurrent callers of a process (group). A process that stalls while it holds locks loses them with
// its transaction, which the server ends after five seconds (BeginMatching).
//
// A new shape is registered by itself, before the turn that needs it: from then on every event gets a key of it. Older events get
// their keys afterwards, without the lock, because there may be a month of them.

// newEvent is an event that is to be stored and matched.
type newEvent struct {
	history.Event
	// outside is set if it is received, and not emitted here. keys are those by which waits find it.
	outside bool
	keys    [][]byte
	// data is the column, where it is not the data itself.
	data payloads.Stored
	// stored reports that it is no duplicate, matched counts the waits that it satisfied.
	stored  bool
	matched int
	// starts reports that a flow has a handler for it.
	starts bool
}

// eventName identifies an event: another one of the same name is a duplicate.
type eventName struct {
	organization int64
	source, id   string
}

// split cuts off what is stored by digest.
func (s *Store) split(e *newEvent) *newEvent {
	if s.byDigest.Load() && !payloads.Plain(e.Data, s.Large) {
		e.data = payloads.Split(e.Organization, e.Data, s.Large)
	}
	return e
}

// column is the column of an event's data.
func (e *newEvent) column() string {
	switch {
	case e.data.Text != "":
		return e.data.Text
	case e.Data == nil:
		return "null"
	}
	return string(e.Data)
}

func (e *newEvent) name() eventName { return eventName{e.Organization, e.Source, e.ID} }

// startsFlow reports whether one of the events is to start a run of a flow.
func startsFlow(events []*newEvent) bool {
	return slices.ContainsFunc(events, func(e *newEvent) bool { return e.starts })
}

// Receive stores an event and matches it.
func (s *Store) Receive(ctx context.Context, e history.Event) (matched int, duplicate bool, err error) {
	return s.receive(ctx, &received{}, e)
}

// ReceiveFrom is Receive for an event from another service's outbox, which is claimed in the same transaction.
func (s *Store) ReceiveFrom(ctx context.Context, wire event.Event, e history.Event) (matched int, duplicate bool, err error) {
	return s.receive(ctx, &received{claim: func(ctx context.Context, tx pgx.Tx) (bool, error) { return s.ClaimEvent(ctx, tx, wire) }}, e)
}

func (s *Store) receive(ctx context.Context, r *received, e history.Event) (matched int, duplicate bool, err error) {
	if e.Time.IsZero() {
		e.Time = s.Clock.Now() // programs get the time of its arrival
	}
	r.newEvent = *s.split(&newEvent{Event: e, outside: true})
	if err := s.commits.do(ctx, &item{received: r}); err != nil {
		return 0, false, err
	}
	if r.refusal != nil {
		return 0, false, r.refusal
	}
	// Refused by the claim or by the table of events: a duplicate (E25, E26).
	return r.matched, !r.stored, nil
}

// matching is what a transaction stores under the locks of matching.
type matching struct {
	events []*newEvent
	// filters are those that the events have their keys by.
	filters map[eventType]typeFilters
	// waits are new. again are executions all of whose open waits are matched again, because one of their waits has given up.
	waits []opRow
	again []int64
	// strict takes for granted that the events are new, and that the filters of their types are known.
	strict bool
}

// match stores events and matches them with waits, and new waits with events. It returns the executions that can continue.
func (s *Store) match(ctx context.Context, q *query.Queries, m matching) ([]engine.Woken, error) {
	stored, keys, err := s.saveEvents(ctx, q, m)
	if err != nil {
		return nil, err
	}
	return s.satisfy(ctx, q, m, keys, stored)
}

// saveEvents stores events that are new, with their keys. It returns these, and the events by name.
func (s *Store) saveEvents(
	ctx context.Context, q *query.Queries, m matching,
) (byName map[eventName]*newEvent, keys [][]byte, err error) {
	byName = make(map[eventName]*newEvent, len(m.events))
	var added []*newEvent
	for _, e := range m.events {
		e.stored, e.matched, e.starts = false, 0, false
		if byName[e.name()] == nil { // the first of two with one name is stored
			byName[e.name()] = e
			added = append(added, e)
		}
	}
	if !m.strict {
		if added, err = dropStored(ctx, q, added, byName); err != nil {
			return nil, nil, err
		}
	}
	if len(added) == 0 {
		return nil, nil, nil
	}
	p := s.eventRows(added)
	p.Strict = m.strict
	for of, known := range m.filters {
		p.KnownOrganizations, p.KnownTypes = append(p.KnownOrganizations, of.organization), append(p.KnownTypes, of.name)
		p.KnownShapes, p.KnownFlows = append(p.KnownShapes, int32(len(known.shapes))), append(p.KnownFlows, known.flows)
	}
	for place, e := range added {
		e.stored, e.starts = true, m.filters[typeOf(e.Event)].flows
		for _, key := range e.keys {
			p.Keys, p.Places = append(p.Keys, key), append(p.Places, int32(place+1))
		}
	}
	return byName, p.Keys, pg.Classify(q.SaveEvents(ctx, p), "save %d events", len(added))
}

// dropStored leaves out the events that are stored already, here and in byName.
func dropStored(ctx context.Context, q *query.Queries, events []*newEvent, byName map[eventName]*newEvent) ([]*newEvent, error) {
	if len(events) == 0 {
		return nil, nil
	}
	var p query.FindEventsParams
	for _, e := range events {
		p.Organizations, p.Sources, p.EventIds = append(p.Organizations, e.Organization), append(p.Sources, e.Source), append(p.EventIds, e.ID)
	}
	rows, err := q.FindEvents(ctx, p)
	if err != nil {
		return nil, pg.Classify(err, "find %d events", len(events))
	}
	for _, row := range rows {
		delete(byName, eventName{row.Organization, row.Source, row.EventID})
	}
	return slices.DeleteFunc(events, func(e *newEvent) bool { return byName[e.name()] == nil }), nil
}

// eventRows are the rows of events.
func (s *Store) eventRows(events []*newEvent) query.SaveEventsParams {
	p := query.SaveEventsParams{Received: s.Clock.Now()}
	for _, e := range events {
		p.Organizations, p.Sources, p.EventIds = append(p.Organizations, e.Organization), append(p.Sources, e.Source), append(p.EventIds, e.ID)
		p.Types, p.Data, p.Occurred = append(p.Types, e.Type), append(p.Data, e.column()), append(p.Occurred, e.Time)
	}
	return p
}

// keyFor is the key under which waits with a filter of these paths find the event. It has none, and no such wait finds it, where a
// path has no value: that is what a filter on a missing value means.
func keyFor(e history.Event, paths []string) []byte {
	values, ok := history.Project(e.Data, paths)
	if !ok {
		return nil
	}
	key := history.Key(e.Organization, e.Type, paths, values)
	return key[:]
}

// satisfy delivers events to waits, those that are new and those with the keys of new events, and wakes their executions. A wait gets one
// event and a run gets each event once (D19), so one of several waits of a run for the same event gets it in a round, and the others are
// matched again.
func (s *Store) satisfy(
	ctx context.Context, q *query.Queries, m matching, keys [][]byte, events map[eventName]*newEvent,
) ([]engine.Woken, error) {
	if len(m.waits)+len(m.again)+len(keys) == 0 {
		return nil, nil
	}
	p := query.SatisfyParams{Keys: keys, Again: m.again}
	for _, w := range m.waits {
		p.Executions, p.Branches, p.Ops = append(p.Executions, w.execution), append(p.Branches, w.branch), append(p.Ops, w.op)
	}
	p.Instance, p.Epoch = s.owning.ofWoken()
	wakes := wakings{}
	for {
		rows, err := q.Satisfy(ctx, p)
		if err != nil {
			return nil, pg.Classify(err, "match %d waits and the keys of %d events", len(m.waits), len(events))
		}
		for _, row := range rows {
			if row.Woken {
				wakes.of(row.Execution).row = row
				continue
			}
			e := events[eventName{row.Organization, row.Source, row.EventID}]
			if e != nil {
				e.Row, e.matched = row.Event, e.matched+1
			}
			wakes.of(row.Execution).add(e, ref(row.Branch, row.Op))
		}
		if len(rows) == 0 || !rows[0].Several {
			return wakes.woken(), nil
		}
	}
}

// waking is an execution that is woken, and the arrival that it is woken for.
type waking struct {
	row     query.SatisfyRow
	arrival *engine.Arrival
	events  int
}

// add records an event for the execution, nil if it was stored before. An execution with two arrivals reads them, since their order
// matters.
func (w *waking) add(e *newEvent, op history.OpRef) {
	w.events++
	if w.arrival = nil; e != nil && w.events == 1 {
		w.arrival = e.arrival(op)
	}
}

type wakings map[int64]*waking

func (w wakings) of(execution int64) *waking {
	if w[execution] == nil {
		w[execution] = &waking{}
	}
	return w[execution]
}

func (w wakings) woken() []engine.Woken {
	woken := make([]engine.Woken, 0, len(w))
	for _, id := range slices.Sorted(maps.Keys(w)) {
		one := engine.Woken{ID: id, Turn: w[id].row.Turn, Organization: w[id].row.Organization, Ours: w[id].row.Ours}
		if w[id].arrival != nil {
			one.Wakeup = &engine.Wakeup{Wakes: w[id].row.Wakes, Arrival: *w[id].arrival}
		}
		woken = append(woken, one)
	}
	return woken
}

// arrival is the event for a wait as Arrivals would read it, with its time in microseconds.
func (e *newEvent) arrival(op history.OpRef) *engine.Arrival {
	stored := e.Event
	stored.Time = stored.Time.Truncate(time.Microsecond)
	return &engine.Arrival{Op: op, Kind: engine.EventArrived, Event: e.Row, Value: stored.Value()}
}

// wakeMany wakes executions. This process becomes the owner of those that are parked. arrivals has what some of them are woken for.
func (s *Store) wakeMany(ctx context.Context, q *query.Queries, ids []int64, arrivals map[int64]*engine.Arrival) ([]engine.Woken, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	p := query.WakeManyParams{Ids: ids}
	p.Instance, p.Epoch = s.owning.ofWoken()
	rows, err := q.WakeMany(ctx, p)
	if err != nil {
		return nil, pg.Classify(err, "wake %d executions", len(ids))
	}
	woken := make([]engine.Woken, len(rows))
	for i, row := range rows {
		woken[i] = engine.Woken{ID: row.ID, Turn: row.Turn, Organization: row.Organization, Ours: row.Ours}
		if a := arrivals[row.ID]; a != nil {
			woken[i].Wakeup = &engine.Wakeup{Wakes: row.Wakes, Arrival: *a}
		}
	}
	return woken, nil
}

// Forget deletes old events and the histories of old generations, some at a time, so that no lock is held for long. It deletes events
// first: what a generation has consumed is older than its end.
func (s *Store) Forget(ctx context.Context, before time.Time) error {
	for {
		n, err := s.queries.ForgetEvents(ctx, query.ForgetEventsParams{Before: before, Message: history.TypeMessage})
		if err != nil {
			return pg.Classify(err, "forget old events")
		}
		if n == 0 {
			break
		}
	}
	for {
		n, err := s.queries.ForgetGenerations(ctx, before)
		if err != nil {
			return pg.Classify(err, "forget the histories of old generations")
		}
		if n == 0 {
			break
		}
	}
	if err := s.queries.ForgetCancelled(ctx, query.ForgetCancelledParams{Before: before}); err != nil {
		return pg.Classify(err, "end the passages of rollouts that were cancelled")
	}
	return payloads.Sweep(ctx, func(fn func(*query.Queries) error) error {
		return s.tx(ctx, func(_ pgx.Tx, q *query.Queries) error { return fn(q) })
	})
}
