package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/store/query"
)

// How an event and a wait find each other, whichever comes first.
//
// Both have keys: an event one for each shape registered for its type, a wait the one of its filter. Both sides look for
// the other only after their own commit, so at least one of the two sees the other (engine.md f.5); whoever does hands
// the wait the earliest event it may have, under the lock of the execution. For that, keys must be committed before
// anybody looks by them:
//
//	event: commit event + keys of known shapes → commit keys of shapes registered meanwhile → look for waits
//	wait:  commit wait + shape                 → commit keys of older events, once a shape → look for events
//
// A shape that an event's second step does not see was committed after the event, so the shape's own second step sees
// the event. What a crash interrupts has looked = false, and Sweep does it again.

// Receive stores an event and matches it.
func (s *Store) Receive(ctx context.Context, e core.Event) (matched int, duplicate bool, err error) {
	return s.receive(ctx, e, func(pgx.Tx) (bool, error) { return true, nil })
}

// ReceiveFrom is Receive for an event from another service's outbox, which is claimed in the same transaction.
func (s *Store) ReceiveFrom(ctx context.Context, wire event.Event, e core.Event) (matched int, duplicate bool, err error) {
	return s.receive(ctx, e, func(tx pgx.Tx) (bool, error) { return s.ClaimEvent(ctx, tx, wire) })
}

func (s *Store) receive(ctx context.Context, e core.Event, claim func(pgx.Tx) (bool, error)) (matched int, duplicate bool, err error) {
	var id int64
	err = s.tx(ctx, func(tx pgx.Tx, q *query.Queries) error {
		id = 0
		first, err := claim(tx)
		if err != nil || !first {
			return err
		}
		id, err = s.save(ctx, q, e)
		return err
	})
	// Neither error nor row: a duplicate, which the claim or the table of events has recognized (E25, E26).
	if err != nil || id == 0 {
		return 0, err == nil, err
	}
	matched, err = s.match(ctx, id)
	if err != nil {
		// The event is stored, which is what was asked for. The sweep matches it.
		s.Log.WarnContext(ctx, "match event", "event", e.ID, "error", err)
	}
	return matched, false, nil
}

// save stores an event with its keys; 0 means that it was there.
func (s *Store) save(ctx context.Context, q *query.Queries, e core.Event) (int64, error) {
	data := e.Data
	if data == nil {
		data = []byte("null")
	}
	id, err := q.SaveEvent(ctx, query.SaveEventParams{
		Organization: e.Organization, Source: e.Source, EventID: e.ID, Type: e.Type, Data: data,
		OccurredAt: e.Time, ReceivedAt: s.Clock.Now(),
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, nil
	}
	if err != nil {
		return 0, pg.Classify(err, "save event %q", e.ID)
	}
	e.Row = id
	return id, saveKeys(ctx, q, e)
}

// saveKeys gives an event the keys of all shapes of its type.
func saveKeys(ctx context.Context, q *query.Queries, e core.Event) error {
	shapes, err := q.ShapesOf(ctx, query.ShapesOfParams{Organization: e.Organization, Type: e.Type})
	if err != nil {
		return pg.Classify(err, "read filters of %s", e.Type)
	}
	var keys keys
	for _, shape := range shapes {
		keys.add(e, shape.Paths)
	}
	return keys.save(ctx, q)
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

// match is what an event does after its commit.
func (s *Store) match(ctx context.Context, id int64) (int, error) {
	row, err := s.queries.FindEvent(ctx, id)
	if err != nil {
		return 0, pg.Classify(err, "find event %d", id)
	}
	e := core.Event{Row: row.ID, Organization: row.Organization, Type: row.Type, Data: row.Data}
	// Once more, for shapes that were registered since the event was stored (see above).
	if err := saveKeys(ctx, s.queries, e); err != nil { // a transaction of its own: one statement
		return 0, err
	}
	waits, err := s.queries.WaitsForEvent(ctx, id)
	if err != nil {
		return 0, pg.Classify(err, "find waits for event %d", id)
	}
	matched := 0
	for start := 0; start < len(waits); {
		// The query orders by execution: all waits of one are satisfied under one lock, and wake it once.
		end := start
		var ops []core.OpRef
		for ; end < len(waits) && waits[end].Execution == waits[start].Execution; end++ {
			ops = append(ops, ref(waits[end].Branch, waits[end].Op))
		}
		n, err := s.satisfy(ctx, waits[start].Execution, ops)
		if err != nil {
			return matched, err
		}
		matched += n
		start = end
	}
	// Last: a crash before this leaves the event to Sweep, and to match it again is harmless.
	return matched, pg.Classify(s.queries.EventLooked(ctx, id), "mark event %d", id)
}

// satisfy hands waits of one execution their events, where there are some, and wakes the execution. The lock makes it
// one at a time for an execution. Two events that look at once could otherwise both be handed to one wait, or one
// event to two waits, and a run has each event once (D19).
func (s *Store) satisfy(ctx context.Context, execution int64, ops []core.OpRef) (satisfied int, err error) {
	err = s.tx(ctx, func(_ pgx.Tx, q *query.Queries) error {
		satisfied = 0
		row, err := q.LockExecution(ctx, execution)
		if err != nil || core.State(row.State).Ended() {
			return pg.Classify(err, "lock execution %d", execution)
		}
		for _, op := range ops {
			branch, index := int32(op.Branch), int32(op.Index)
			events, err := q.Satisfy(ctx, query.SatisfyParams{Execution: execution, Branch: branch, Op: index})
			if err != nil {
				return pg.Classify(err, "deliver to %s of execution %d", op, execution)
			}
			satisfied += len(events)
			if err := q.WaitLooked(ctx, query.WaitLookedParams{Execution: execution, Branch: branch, Op: index}); err != nil {
				return pg.Classify(err, "mark %s of execution %d", op, execution)
			}
		}
		if satisfied == 0 {
			return nil
		}
		return pg.Classify(q.Wake(ctx, execution), "wake execution %d", execution)
	})
	return satisfied, err
}

// backfillBatch bounds what is in memory: a type may have a month of events.
const backfillBatch = 1000

// look is what the waits of an execution do after their commit. It takes all waits of the execution that have not
// looked yet, also those of an earlier turn that a crash interrupted.
func (s *Store) look(ctx context.Context, execution int64) error {
	shapes, err := s.queries.ShapeOfWaits(ctx, execution)
	if err != nil {
		return pg.Classify(err, "read filters of execution %d", execution)
	}
	for _, shape := range shapes {
		if err := s.backfill(ctx, shape); err != nil {
			return err
		}
	}
	waits, err := s.queries.WaitsToLook(ctx, execution)
	if err != nil {
		return pg.Classify(err, "read waits of execution %d", execution)
	}
	ops := make([]core.OpRef, len(waits))
	for i, w := range waits {
		ops[i] = ref(w.Branch, w.Op)
	}
	_, err = s.satisfy(ctx, execution, ops)
	return err
}

// backfill gives the events that are older than a shape their keys. Doing it twice is harmless. It is done once for a
// shape and not for each wait: from then on every event gets a key of it when it is stored.
func (s *Store) backfill(ctx context.Context, shape query.ShapeOfWaitsRow) error {
	for after := int64(0); ; {
		events, err := s.queries.EventsOfType(ctx, query.EventsOfTypeParams{
			Organization: shape.Organization, Type: shape.Type, ID: after, Limit: backfillBatch,
		})
		if err != nil {
			return pg.Classify(err, "read events %s", shape.Type)
		}
		var keys keys
		for _, row := range events {
			after = row.ID
			keys.add(core.Event{Row: row.ID, Organization: shape.Organization, Type: shape.Type, Data: row.Data}, shape.Paths)
		}
		if err := keys.save(ctx, s.queries); err != nil {
			return err
		}
		if len(events) < backfillBatch {
			return pg.Classify(s.queries.ShapeFilled(ctx, shape.ID), "mark filter %d", shape.ID)
		}
	}
}

// afterCommit matches what a turn made known. Trouble is left to the sweep: the turn is durable.
func (s *Store) afterCommit(ctx context.Context, c core.Commit, events []int64) {
	for _, o := range c.Open {
		// One look is for all waits of the execution, so the first that is found is enough.
		if len(o.Op.Wants()) == 0 {
			continue
		}
		if err := s.look(ctx, c.Execution.ID); err != nil {
			s.Log.WarnContext(ctx, "match waits", "execution", c.Execution.ID, "error", err)
		}
		break
	}
	if len(c.Emits) > 0 {
		s.Committed()
	}
	s.matchAll(ctx, events)
}

// matchAll matches what this service emitted itself: it does not come back over the bus (events.Domain).
func (s *Store) matchAll(ctx context.Context, events []int64) {
	for _, id := range events {
		if _, err := s.match(ctx, id); err != nil {
			s.Log.WarnContext(ctx, "match own event", "row", id, "error", err)
		}
	}
}

// Sweep does again what was interrupted.
func (s *Store) Sweep(ctx context.Context, before time.Time) error {
	events, err := s.queries.EventsNotLooked(ctx, before)
	if err != nil {
		return pg.Classify(err, "find events that were not matched")
	}
	for _, id := range events {
		if _, err := s.match(ctx, id); err != nil {
			return fmt.Errorf("event %d: %w", id, err)
		}
	}
	executions, err := s.queries.ExecutionsNotLooked(ctx, before)
	if err != nil {
		return pg.Classify(err, "find waits that were not matched")
	}
	for _, id := range executions {
		if err := s.look(ctx, id); err != nil {
			return fmt.Errorf("execution %d: %w", id, err)
		}
	}
	return nil
}

// Forget deletes old events. The statement takes a few thousand at a time, so that no lock is held for long.
func (s *Store) Forget(ctx context.Context, before time.Time) error {
	for {
		n, err := s.queries.ForgetEvents(ctx, query.ForgetEventsParams{Before: before, Message: core.TypeMessage})
		if err != nil || n == 0 {
			return pg.Classify(err, "forget old events")
		}
	}
}
