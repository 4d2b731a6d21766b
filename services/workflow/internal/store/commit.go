package store

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/store/query"
)

// work is what goes through the group of turns and events: one of the two.
type work struct {
	turn     *turn
	received *received
}

// organization is whose it is.
func (w *work) organization() int64 {
	if w.turn != nil {
		return w.turn.Execution.Organization
	}
	return w.received.Organization
}

// turn is a Commit on its way.
type turn struct {
	core.Commit
	// wire and told are what it emits: for the outbox, and for waits of this service's own programs. waits are rows.
	wire  []event.Sealed
	told  []*told
	waits []openWait
	// fenced and done are the outcome.
	fenced bool
	done   core.Committed
}

// received is an event that came from outside. claim says whether it came for the first time; nil: the table of events does.
type received struct {
	told
	claim func(context.Context, pgx.Tx) (bool, error)
	// refusal is why it is not to be had, where that is no fault of the transaction's.
	refusal error
}

// first claims the event.
func (r *received) first(ctx context.Context, tx pgx.Tx) (first bool, err error) {
	if r.refusal = nil; r.claim == nil {
		return true, nil
	}
	if first, err = r.claim(ctx, tx); fault.Is(err, fault.NotFound) {
		r.refusal, err = err, nil
	}
	return first, err
}

// Commit ends a turn. Turns and events of the same moment share a transaction.
func (s *Store) Commit(ctx context.Context, c core.Commit) (core.Committed, error) {
	t := &turn{Commit: c}
	// Whatever can fail by itself does so before it is in one transaction with others.
	if err := s.encodeEmits(t); err != nil {
		return core.Committed{}, err
	}
	var err error
	if t.waits, err = s.prepareWaits(ctx, c); err != nil {
		return core.Committed{}, err
	}
	if err := s.turns.do(ctx, &work{turn: t}); err != nil {
		return core.Committed{}, err
	}
	if t.fenced {
		return core.Committed{}, fmt.Errorf("commit turn %d of execution %d: %w", c.Turn, c.Execution.ID, core.ErrFenced)
	}
	return t.done, nil
}

func (s *Store) encodeEmits(t *turn) error {
	for _, emit := range t.Emits {
		e, err := s.Encode(emit, t.Execution.Trace)
		if err != nil {
			return fmt.Errorf("encode event %q: %w", emit.ID, err)
		}
		t.wire = append(t.wire, e)
		t.told = append(t.told, emitted(emit, e.Source()))
	}
	return nil
}

// emitted is what this service's own programs may wait for: what they emit does not come back over the bus (events.Domain).
func emitted(emit core.Emit, source string) *told {
	return &told{Event: core.Event{
		Organization: emit.Organization, Source: source, ID: emit.ID, Type: emit.Type, Data: emit.Data, Time: emit.Time,
	}}
}

// commitAll is the transaction of many turns and events: in one journey where all goes as expected, and in two where events come of which
// is known who may wait for them.
func (s *Store) commitAll(ctx context.Context, items []*work) error {
	if known, ok := s.known(items); ok {
		if done, err := s.commitKnown(ctx, known); done || err != nil {
			return err
		}
	} else if s.expected(items) {
		if done, err := s.commitExpected(ctx, items); done || err != nil {
			return err
		}
	}
	return s.commitAsked(ctx, items)
}

// commitAsked is the transaction of turns and events of which anything may be true. A turn whose fence refuses it is left out,
// and the others are committed.
func (s *Store) commitAsked(ctx context.Context, items []*work) error {
	var woken []core.Woken
	emits, met := false, false
	err := s.pipelined(ctx, func(tx pgx.Tx, q *query.Queries) error {
		woken, emits, met = nil, false, false
		var turns []*turn
		var events []*told
		if matches(items) {
			if err := q.LockMatching(ctx); err != nil {
				return pg.Classify(err, "lock matching")
			}
		}
		for _, item := range items {
			if r := item.received; r != nil {
				first, err := r.first(ctx, tx)
				if err != nil {
					return err
				}
				if r.stored = false; first {
					events = append(events, &r.told)
				}
				continue
			}
			turns = append(turns, item.turn)
		}
		turns, err := endTurns(ctx, q, turns)
		if err != nil {
			return err
		}
		if err := appendEntries(ctx, q, turns); err != nil {
			return err
		}
		if err := openChannels(ctx, q, turns); err != nil {
			return err
		}
		if err := closeOps(ctx, q, turns); err != nil {
			return err
		}
		if err := beginGenerations(ctx, q, turns); err != nil {
			return err
		}
		waits, err := openOps(ctx, q, turns)
		if err != nil {
			return err
		}
		if waits, err = askAgain(ctx, q, turns, waits); err != nil {
			return err
		}
		var wire []event.Sealed
		for _, t := range turns {
			wire, events = append(wire, t.wire...), append(events, t.told...)
		}
		if emits = len(wire) > 0; emits {
			if err := s.Add(ctx, tx, wire...); err != nil {
				return err
			}
		}
		woken, err = s.tell(ctx, q, events, waits)
		woken, met = keepRunning(turns, woken), metHandler(events)
		return err
	})
	if err != nil {
		return fenced(err)
	}
	if emits {
		s.Committed()
	}
	if met {
		s.Met()
	}
	s.wake(woken)
	return nil
}

// fenced is ErrFenced where two owners wrote the same number of a history. The turns' fence should have refused one; the
// primary key does it in any case.
func fenced(err error) error {
	if refusal, ok := errors.AsType[*pgconn.PgError](err); ok && refusal.ConstraintName == "entry_pkey" {
		return fmt.Errorf("%w: %w", core.ErrFenced, err)
	}
	return err
}

// matches reports whether the transaction makes an event or a wait known.
func matches(items []*work) bool {
	for _, item := range items {
		if item.received != nil || len(item.turn.told) > 0 || len(item.turn.waits) > 0 || item.turn.gaveUp() {
			return true
		}
	}
	return false
}

// gaveUp reports whether a wait of the turn ended without an event, while others of its execution may go on.
func (t *turn) gaveUp() bool {
	return !t.Next.Ended() && slices.ContainsFunc(t.Entries, func(e core.Entry) bool {
		return e.Event == 0 && (e.Kind == core.KindWait || e.Kind == core.KindReceive)
	})
}

// askAgain adds to waits all that an execution has open of which one wait ended without an event: one may have been handed to that
// wait after the turn had looked, and is there for the others now.
func askAgain(ctx context.Context, q *query.Queries, turns []*turn, waits []opRow) ([]opRow, error) {
	var ids []int64
	for _, t := range turns {
		if t.gaveUp() {
			ids = append(ids, t.Execution.ID)
		}
	}
	if len(ids) == 0 {
		return waits, nil
	}
	rows, err := q.OpenWaitsOf(ctx, ids)
	if err != nil {
		return nil, pg.Classify(err, "look for the waits of %d executions", len(ids))
	}
	for _, row := range rows {
		waits = append(waits, opRow{row.Execution, row.Branch, row.Op})
	}
	return waits, nil
}

// keepRunning tells the turns that wanted to park but found an event at once, and answers the executions that are not
// among them.
func keepRunning(turns []*turn, woken []core.Woken) []core.Woken {
	if len(woken) == 0 {
		return nil
	}
	parked := map[int64]*turn{}
	for _, t := range turns {
		if t.done.State == core.Parked {
			parked[t.Execution.ID] = t
		}
	}
	var others []core.Woken
	for _, w := range woken {
		if t, own := parked[w.ID]; own && w.Ours {
			t.done.State = core.Running
			continue
		}
		others = append(others, w)
	}
	return others
}

// wake tells the engine what can go on.
func (s *Store) wake(woken []core.Woken) {
	if s.Woken == nil {
		return
	}
	for _, w := range woken {
		s.Woken(w)
	}
}
