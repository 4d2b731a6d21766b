package store

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/store/query"
)

// How an event and a wait find each other, whichever comes first.
//
// Both have keys: an event one for each shape registered for its type, a wait the one of its filter. Every transaction
// that makes an event, a wait or a shape known first takes the match lock, one for all processes, and keeps it until it
// has committed. So these transactions come one after the other, each statement of one sees everything of those before
// it, and whichever of an event and its wait comes second finds the first: there is no moment in which each looks before
// the other is there, nothing is left to look for after a commit, and nothing that a crash in between could lose. What is
// found is handed over in the same transaction, under the locks of the executions.
//
// Events are numbered under the lock, so their numbers are in the order of their commits. "Came after the run began" is
// a comparison of numbers, and exact.
//
// One lock for all is no bottleneck, because a transaction carries what all callers of a process have at the time
// (group): the lock is taken as often as there are commits, not as there are events. A process that stalls while it has
// the lock loses it with its transaction, which the server ends after five seconds (LockMatching).
//
// A shape that is new is registered by itself, before the turn that needs it: from then on every event gets a key of it,
// and then the older events get theirs, without the lock, for there may be a month of them.

// told is an event that is to be stored and matched.
type told struct {
	core.Event
	// stored says that it is no duplicate, matched counts the waits that it satisfied.
	stored  bool
	matched int
	// met says that it has met a flow's handler.
	met bool
}

// eventName is what an event is known by: the same again is a duplicate.
type eventName struct {
	organization int64
	source, id   string
}

func (e *told) name() eventName { return eventName{e.Organization, e.Source, e.ID} }

// metHandler reports whether one of the events is to start a run of a flow.
func metHandler(events []*told) bool {
	return slices.ContainsFunc(events, func(e *told) bool { return e.met })
}

// Receive stores an event and matches it.
func (s *Store) Receive(ctx context.Context, e core.Event) (matched int, duplicate bool, err error) {
	return s.receive(ctx, e, nil)
}

// ReceiveFrom is Receive for an event from another service's outbox, which is claimed in the same transaction.
func (s *Store) ReceiveFrom(ctx context.Context, wire event.Event, e core.Event) (matched int, duplicate bool, err error) {
	return s.receive(ctx, e, func(ctx context.Context, tx pgx.Tx) (bool, error) { return s.ClaimEvent(ctx, tx, wire) })
}

func (s *Store) receive(ctx context.Context, e core.Event, claim func(context.Context, pgx.Tx) (bool, error)) (matched int, duplicate bool, err error) {
	if e.Time.IsZero() {
		e.Time = s.Clock.Now() // it does not say when it happened: programs get the time of its arrival
	}
	r := &received{told: told{Event: e}, claim: claim}
	if err := s.turns.do(ctx, &work{received: r}); err != nil {
		return 0, false, err
	}
	if r.refusal != nil {
		return 0, false, r.refusal
	}
	// Neither the claim nor the table of events has taken it: a duplicate (E25, E26).
	return r.matched, !r.stored, nil
}

// tell stores events and matches them, and new waits, with what is there. The transaction has the match lock. It answers
// the executions that can go on.
func (s *Store) tell(ctx context.Context, q *query.Queries, events []*told, waits []opRow) ([]core.Woken, error) {
	stored, keys, err := s.save(ctx, q, events)
	if err != nil {
		return nil, err
	}
	if err := keys.save(ctx, q); err != nil {
		return nil, err
	}
	return s.satisfy(ctx, q, waits, keys.params.Keys, stored)
}

// save stores events and answers them by name, with the keys of those that were not there: one for each set of paths that waits
// for their type have.
func (s *Store) save(ctx context.Context, q *query.Queries, events []*told) (byName map[eventName]*told, keys keys, err error) {
	if len(events) == 0 {
		return nil, keys, nil
	}
	byName = make(map[eventName]*told, len(events))
	for _, e := range slices.Backward(events) { // the first of two with one name is the one that is stored
		e.stored, e.matched, e.met = false, 0, false
		byName[e.name()] = e
	}
	rows, err := q.SaveEvents(ctx, s.eventRows(events))
	if err != nil {
		return nil, keys, pg.Classify(err, "save %d events", len(events))
	}
	shapes := map[string][][]string{} // read once: many events have one type
	for _, row := range rows {
		e := byName[eventName{row.Organization, row.Source, row.EventID}]
		e.Row, e.stored, e.met = row.ID, true, row.Met
		paths, known := shapes[string(row.Shapes)]
		if !known {
			if err := json.Unmarshal(row.Shapes, &paths); err != nil {
				return nil, keys, fmt.Errorf("filters of type %q: %w", e.Type, err)
			}
			shapes[string(row.Shapes)] = paths
		}
		s.filters.learn(awaitedType{e.Organization, e.Type}, paths, row.Met)
		for _, shape := range paths {
			keys.add(e.Event, shape)
		}
	}
	return byName, keys, nil
}

// eventRows are the rows of events.
func (s *Store) eventRows(events []*told) query.SaveEventsParams {
	p := query.SaveEventsParams{Received: s.Clock.Now()}
	for _, e := range events {
		data := string(e.Data)
		if e.Data == nil {
			data = "null"
		}
		p.Organizations, p.Sources, p.EventIds = append(p.Organizations, e.Organization), append(p.Sources, e.Source), append(p.EventIds, e.ID)
		p.Types, p.Data, p.Occurred = append(p.Types, e.Type), append(p.Data, data), append(p.Occurred, e.Time)
	}
	return p
}

// keys are rows to be saved together.
type keys struct {
	params query.SaveKeysParams
}

func (k *keys) add(e core.Event, paths []string) {
	// Without a key of this shape no wait of this shape finds the event, which is what a filter on a missing value
	// means.
	values, ok := core.Project(e.Data, paths)
	if !ok {
		return
	}
	key := core.Key(e.Organization, e.Type, paths, values)
	k.params.Keys = append(k.params.Keys, key[:])
	k.params.Events = append(k.params.Events, e.Row)
}

func (k *keys) save(ctx context.Context, q *query.Queries) error {
	if len(k.params.Keys) == 0 {
		return nil
	}
	return pg.Classify(q.SaveKeys(ctx, k.params), "save keys of events")
}

// satisfy hands waits their events, where there are some, and wakes their executions: the waits that are new, and those
// with the keys of new events. A wait has one event and a run has each event once (D19), so of several waits of a run that
// would have the same event one gets it in a round, and the others are asked again.
func (s *Store) satisfy(ctx context.Context, q *query.Queries, waits []opRow, keys [][]byte, events map[eventName]*told) ([]core.Woken, error) {
	if len(waits)+len(keys) == 0 {
		return nil, nil
	}
	p := query.SatisfyParams{Keys: keys}
	for _, w := range waits {
		p.Executions, p.Branches, p.Ops = append(p.Executions, w.execution), append(p.Branches, w.branch), append(p.Ops, w.op)
	}
	if l := s.lease.Load(); l != nil {
		p.Instance, p.Epoch = &l.Instance, &l.Epoch
	}
	wakes := wakings{}
	for {
		rows, err := q.Satisfy(ctx, p)
		if err != nil {
			return nil, pg.Classify(err, "match %d waits and the keys of %d events", len(waits), len(events))
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

// waking is an execution that goes on, and what it is told with that.
type waking struct {
	row   query.SatisfyRow
	came  *core.Arrival
	times int
}

// add notes that it was handed an event, which is nil for one that was there before. Of two things for one execution both would have
// to be told, in their order: it reads them.
func (w *waking) add(e *told, op core.OpRef) {
	w.times++
	if w.came = nil; e != nil && w.times == 1 {
		w.came = e.arrival(op)
	}
}

type wakings map[int64]*waking

func (w wakings) of(execution int64) *waking {
	if w[execution] == nil {
		w[execution] = &waking{}
	}
	return w[execution]
}

func (w wakings) woken() []core.Woken {
	woken := make([]core.Woken, 0, len(w))
	for _, id := range slices.Sorted(maps.Keys(w)) {
		one := core.Woken{ID: id, Turn: w[id].row.Turn, Organization: w[id].row.Organization, Ours: w[id].row.Ours}
		if w[id].came != nil {
			one.Came = &core.Came{Wakes: w[id].row.Wakes, Arrival: *w[id].came}
		}
		woken = append(woken, one)
	}
	return woken
}

// arrival is the event for a wait as Arrivals would read it: to the microsecond.
func (e *told) arrival(op core.OpRef) *core.Arrival {
	stored := e.Event
	stored.Time = stored.Time.Truncate(time.Microsecond)
	return &core.Arrival{Op: op, Kind: core.EventArrived, Event: e.Row, Value: stored.Value()}
}

// wakeMany has executions continue. Those that are parked become this process's at once. came is what some of them are woken
// for.
func (s *Store) wakeMany(ctx context.Context, q *query.Queries, ids []int64, came map[int64]*core.Arrival) ([]core.Woken, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	p := query.WakeManyParams{Ids: ids}
	if l := s.lease.Load(); l != nil {
		p.Instance, p.Epoch = &l.Instance, &l.Epoch
	}
	rows, err := q.WakeMany(ctx, p)
	if err != nil {
		return nil, pg.Classify(err, "wake %d executions", len(ids))
	}
	woken := make([]core.Woken, len(rows))
	for i, row := range rows {
		woken[i] = core.Woken{ID: row.ID, Turn: row.Turn, Organization: row.Organization, Ours: row.Ours}
		if a := came[row.ID]; a != nil {
			woken[i].Came = &core.Came{Wakes: row.Wakes, Arrival: *a}
		}
	}
	return woken, nil
}

// Forget deletes old events and the histories of old generations. The statements take a part at a time, so that no lock is held for
// long. Events go first: what a generation has consumed is older than its end.
func (s *Store) Forget(ctx context.Context, before time.Time) error {
	for {
		n, err := s.queries.ForgetEvents(ctx, query.ForgetEventsParams{Before: before, Message: core.TypeMessage})
		if err != nil {
			return pg.Classify(err, "forget old events")
		}
		if n == 0 {
			break
		}
	}
	for {
		n, err := s.queries.ForgetGenerations(ctx, before)
		if err != nil || n == 0 {
			return pg.Classify(err, "forget the histories of old generations")
		}
	}
}
